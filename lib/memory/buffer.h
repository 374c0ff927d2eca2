/* SPDX-License-Identifier: MIT */
/* buffer: the inside of a buffer, for those in the library that make or hand one over. */
#ifndef PINION_LIB_BUFFER_H
#define PINION_LIB_BUFFER_H

#include <pinion/buffer.h>
#include <pthread.h>

#include "../provider/provider.h"

struct buffer_map {
	void *addr;
	uint32_t uses; /* 0 and mapped: kept because it carries the lock, or for the first to ask */
};

struct pinion_buffer {
	uint32_t refs;
	pthread_mutex_t lock; /* everything below */
	struct pages pages;
	struct buffer_map reader, writer;
	bool writer_out; /* a descriptor that may write was handed out, or it came from elsewhere */
	struct pinion_buffer *prev, *next; /* in the list of all, under its lock */
};

/* A buffer over @pages, which become its own. @writer: a writable mapping of them, or NULL. */
int buffer_new(const struct pages *pages, void *writer, struct pinion_buffer **out);

/* Gives up mappings that nobody uses and that hold nothing: what a process does that only keeps the memory for others. */
void buffer_drop_mappings(struct pinion_buffer *buf);

/* Locks this process's mapping of @prot in RAM. 0; -errno, which is no failure worth a sentence to most. */
int buffer_lock_mapping(struct pinion_buffer *buf, uint32_t prot);

/*
 * A descriptor to hand out with @rights, the caller's to close. For a reader the buffer is sealed where the ground knows no
 * other way. -EOPNOTSUPP: a writer, and it is sealed.
 */
int buffer_hand_out(struct pinion_buffer *buf, uint32_t rights);

/* Whether anybody has sealed it. Takes buf->lock. */
bool buffer_is_sealed(struct pinion_buffer *buf);

const char *buffer_hold_name(enum pinion_hold hold);

#endif
