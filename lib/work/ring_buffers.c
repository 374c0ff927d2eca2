/* SPDX-License-Identifier: MIT */
#include "ring_buffers.h"

#include "../error.h"
#include "../memory/buffer.h"
#include "../machine/ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* Pins that a ring takes part in at once; buffers and slices of them share one. */
#define PINS_MAX 64
/* Parts of them. */
#define SLOTS_MAX 1024

/* A pin that the ring takes part in, or may not. */
struct entry {
	struct pin_share share; /* first, for entry_of() */
	struct ring_buffers *table;
	struct pin *pin; /* atomic; NULL: free */
	uint32_t first;	 /* slot */
	uint32_t slots;	 /* 0: it may not, or there is no pin */
};

/* The stream's thread takes part; whoever frees a buffer ends that. */
struct ring_buffers {
	struct process_mark mark;
	int fd;
	struct entry *last; /* the stream's thread's: found last */
	/* The kernel's table and what follows; what the stream's thread reads without it is atomic. */
	pthread_mutex_t lock;
	struct entry entry[PINS_MAX];
	uint32_t end;  /* atomic: slots from here on are empty */
	uint32_t used; /* atomic: of those before */
};

static struct pin *pin_of(const struct entry *e)
{
	return __atomic_load_n(&e->pin, __ATOMIC_RELAXED);
}

static void set_pin(struct entry *e, struct pin *pin)
{
	__atomic_store_n(&e->pin, pin, __ATOMIC_RELAXED);
}

static void set_use(struct ring_buffers *t, uint32_t end, uint32_t used)
{
	__atomic_store_n(&t->end, end, __ATOMIC_RELAXED);
	__atomic_store_n(&t->used, used, __ATOMIC_RELAXED);
}

int ring_buffers_open(const struct io_uring *ring, const struct process_mark *mark, struct ring_buffers **out)
{
	struct ring_buffers *t = calloc(1, sizeof(*t));

	if (!t)
		return fail(ENOMEM, "no memory for a stream");
	t->fd = ring->ring_fd;
	t->mark = *mark;
	pthread_mutex_init(&t->lock, NULL);
	for (unsigned int i = 0; i < PINS_MAX; i++)
		t->entry[i].table = t;
	*out = t;
	return 0;
}

void ring_buffers_close(struct ring_buffers *t)
{
	/* A child's copy of the descriptor is a way to the parent's table. */
	if (t && process_is_maker(&t->mark)) {
		ring_buffers_renew(t);
		pthread_mutex_destroy(&t->lock);
	}
	free(t);
}

bool ring_buffers_worn(const struct ring_buffers *t)
{
	uint32_t end = __atomic_load_n(&t->end, __ATOMIC_RELAXED);

	return end > SLOTS_MAX / 2 && __atomic_load_n(&t->used, __ATOMIC_RELAXED) <= end / 2;
}

void ring_buffers_renew(struct ring_buffers *t)
{
	for (unsigned int i = 0; i < PINS_MAX; i++)
		pin_leave(&t->entry[i].share);
	/* Nobody else has a way to it now. */
	for (unsigned int i = 0; i < PINS_MAX; i++) {
		set_pin(&t->entry[i], NULL);
		t->entry[i].slots = 0;
	}
	if (t->end)
		ring_forget_buffers(t->fd);
	set_use(t, 0, 0);
}

/* ---- taking part --------------------------------------------------------------------------------------------------- */

static struct entry *entry_of(struct pin_share *share)
{
	return (struct entry *)share;
}

/* Behind the last slot in use: some kernels that share registrations drop what lies behind those they add. */
static uint32_t end_of(const struct ring_buffers *t)
{
	uint32_t end = 0;

	for (unsigned int i = 0; i < PINS_MAX; i++) {
		const struct entry *e = &t->entry[i];

		if (pin_of(e) && e->slots && e->first + e->slots > end)
			end = e->first + e->slots;
	}
	return end;
}

/* The pin goes; nothing that is in flight is of its memory. */
static void end_share(struct pin_share *share)
{
	struct entry *e = entry_of(share);
	struct ring_buffers *t = e->table;
	uint32_t slots;

	pthread_mutex_lock(&t->lock);
	slots = e->slots;
	e->slots = 0;
	set_use(t, end_of(t), t->used - slots);
	if (t->end)
		ring_clear_buffers(t->fd, e->first, slots);
	else if (slots)
		ring_forget_buffers(t->fd);
	set_pin(e, NULL);
	pthread_mutex_unlock(&t->lock);
}

/* A ring that may not take part is remembered too: it is not asked again for each request. */
static void begin_share(struct entry *e)
{
	struct ring_buffers *t = e->table;
	uint32_t slots = (e->pin->bytes + PIN_PART - 1) / PIN_PART;

	pthread_mutex_lock(&t->lock);
	if (slots <= SLOTS_MAX - t->end && !ring_clone_buffers(t->fd, e->pin->fd, slots, t->end)) {
		e->first = t->end;
		e->slots = slots;
		set_use(t, t->end + slots, t->used + slots);
	}
	pthread_mutex_unlock(&t->lock);
}

static struct entry *take_part(struct ring_buffers *t, struct pin *pin)
{
	for (unsigned int i = 0; i < PINS_MAX; i++) {
		struct entry *e = &t->entry[i];

		if (pin_of(e))
			continue;
		e->share.end = end_share;
		set_pin(e, pin);
		if (pin_join(pin, &t->mark, &e->share)) {
			set_pin(e, NULL);
			return NULL;
		}
		begin_share(e);
		return e;
	}
	return NULL;
}

/* ---- finding ------------------------------------------------------------------------------------------------------- */

/* Other entries may go meanwhile. That of @pin cannot, while there is a reference to it. */
static struct entry *find(struct ring_buffers *t, const struct pin *pin)
{
	if (t->last && pin_of(t->last) == pin)
		return t->last;
	for (unsigned int i = 0; i < PINS_MAX; i++)
		if (pin_of(&t->entry[i]) == pin)
			return &t->entry[i];
	return NULL;
}

const char *ring_buffers_find(struct ring_buffers *t, const struct pinion_buffer *buf, uint64_t off, uint32_t len,
			      struct ring_bytes *out)
{
	struct pin *pin = buf->pages.pin;
	struct entry *e;

	if (!pin)
		return "the buffer is held otherwise than by a registration";
	if (pin_is_let_out(pin))
		return "others may make holes in the buffer's memfd, which leave other pages than those registered";
	e = find(t, pin);
	if (!e)
		e = take_part(t, pin);
	if (!e)
		return "the stream's table of registered buffers is full";
	t->last = e;
	if (!e->slots)
		return "the kernel lets no second ring share the registration";
	off += buf->pages.offset;
	if (off / PIN_PART != (off + len - 1) / PIN_PART)
		return "the request goes over the edge of a GiB, of which more is not registered in one piece";
	out->slot = e->first + off / PIN_PART;
	out->addr = pin->addr + off;
	return "";
}
