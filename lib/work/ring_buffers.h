/* SPDX-License-Identifier: MIT */
/*
 * ring_buffers: the table of registered buffers of a stream's ring. It takes part in the pins of buffers (pin.h), which
 * costs no further charge against RLIMIT_MEMLOCK, when a request first wants one of them, and until the pin goes or the ring
 * is closed.
 */
#ifndef PINION_LIB_RING_BUFFERS_H
#define PINION_LIB_RING_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>

#include "../process.h"

struct io_uring;
struct pinion_buffer;
struct ring_buffers;

/* What a request on registered memory names. */
struct ring_bytes {
	uint32_t slot;
	char *addr; /* not to be used but by the kernel */
};

/* The table of @ring, which has none yet, of the process of @mark. -ENOMEM with a sentence. */
int ring_buffers_open(const struct io_uring *ring, const struct process_mark *mark, struct ring_buffers **out);

/* Before the ring goes: at once, and not by a forked child, the memory is no longer the ring's. NULL: nothing. */
void ring_buffers_close(struct ring_buffers *t);

/*
 * Whether most of the table is places that were left, which are not filled again; and begins it anew. On the stream's
 * thread, and not while a request that names a place in it has yet to begin.
 */
bool ring_buffers_worn(const struct ring_buffers *t);
void ring_buffers_renew(struct ring_buffers *t);

/*
 * Bytes [off, off + len) of @buf, of which the caller has a reference, as the ring knows them. "": they are in *@out; else
 * why a request must name them by their address; static. On the stream's thread.
 */
const char *ring_buffers_find(struct ring_buffers *t, const struct pinion_buffer *buf, uint64_t off, uint32_t len,
			      struct ring_bytes *out);

#endif
