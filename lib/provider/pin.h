/* SPDX-License-Identifier: MIT */
/*
 * pin: an io_uring registration that keeps pages where they are. It belongs to a ring that does no I/O; the rings that do
 * share in it, at no further charge, and leave it before the memory goes.
 */
#ifndef PINION_LIB_PIN_H
#define PINION_LIB_PIN_H

#include <stdbool.h>
#include <stdint.h>

#include "../process.h"

/* io_uring takes at most this much as one registered buffer, so a pin is of so many parts of this size. */
#define PIN_PART (UINT64_C(1) << 30)

struct pin_share;

struct pin {
	uint32_t refs; /* atomic: of the buffer that it was made for, and of windows of it */
	int fd;	       /* the ring's; whoever has it has the pages */
	char *addr;    /* where they were mapped at the time: io_uring names bytes by that, whatever is mapped there now */
	uint64_t bytes;
	/* Atomic: a descriptor is elsewhere by which holes can be made, and what comes in their place are other pages. */
	bool let_out;
	/* Under a lock of all pins: */
	struct process_mark mark; /* of the process whose rings share */
	struct pin_share *shares;
};

/* A ring's part in a pin. */
struct pin_share {
	struct pin_share *next, **at; /* at NULL: in no pin's list */
	bool ending;		      /* a thread is in end() */
	void (*end)(struct pin_share *share);
};

/* Pins the pages mapped at @addr, with one reference. -errno without a sentence. @patient: waits a while where a limit is met. */
int pin_new(void *addr, uint64_t bytes, bool patient, struct pin **out);
struct pin *pin_ref(struct pin *pin); /* NULL: nothing */
void pin_unref(struct pin *pin);      /* NULL: nothing; the last reference ends every share first */

/* Somebody outside may make holes in the memory from now on. NULL: nothing. */
void pin_let_out(struct pin *pin);
bool pin_is_let_out(const struct pin *pin);

/*
 * Adds @share, of a ring of the process of @mark, to the pin, of which the caller has a reference: while it has that, end() is
 * not called. When the pin goes it is, by the thread that gave up the last reference and without a lock of pins, so that shares
 * of one ring may end at once. -EXDEV: the pin was made by a parent process.
 */
int pin_join(struct pin *pin, const struct process_mark *mark, struct pin_share *share);

/* The ring shares no more, if it still does; end() is not called, and where it is being called that is waited for. */
void pin_leave(struct pin_share *share);

#endif
