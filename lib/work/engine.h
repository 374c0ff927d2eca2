/* SPDX-License-Identifier: MIT */
/*
 * engine: what does a stream's I/O. The stream's thread decides what is done next (schedule.c) and alone calls the engine, which
 * tells it by schedule_done(), on the same thread, how each piece ended: so results are the same whichever engine it is.
 */
#ifndef PINION_LIB_ENGINE_H
#define PINION_LIB_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool.h"
#include "ring_buffers.h"

struct pinion_stream;
struct stream_op;

/* A part of an operation that is done at once. The stream has opts.depth of them. */
struct piece {
	struct stream_op *op; /* NULL: free */
	struct pinion_stream *stream;
	char *addr;
	uint64_t pos;
	uint32_t len;
	bool direct;
	bool cancelled; /* the engine was asked to end it */
	bool pooled;	/* a worker of the pool has it, and not the engine */
	int res;
	struct piece *next; /* in the stream's list of those that workers have finished */
	struct pool_job job;
	/* The io_uring engine's: */
	bool unsent;	  /* it waits for room in the ring */
	bool in_place;	  /* a chain whose last entry must be left alone */
	uint32_t entries; /* that the kernel has not answered for */
	uint32_t last;	  /* where the last entry is, counted from the ring's first */
	int begin_res;	  /* of the count before the I/O */
	/* Both engines': */
	bool polled; /* it waits until its descriptor is ready */
	struct ring_bytes bytes;  /* what it names then */
	const char *unregistered; /* why the request names its memory by address; "" where it names a registered buffer */
};

struct engine_ops {
	const char *name;
	/* Makes s->engine. -EOPNOTSUPP with a sentence: not here. */
	int (*open)(struct pinion_stream *s);
	void (*close)(struct pinion_stream *s);
	/* Starts what the piece is of: a read or a write, or a poll for OP_WATCH. -errno with a sentence: it cannot be started.
	 */
	int (*start)(struct pinion_stream *s, struct piece *p);
	/* Asks for an early end, with -ECANCELED. False: not now, ask again. */
	bool (*cancel)(struct pinion_stream *s, struct piece *p);
	/*
	 * Hands on what was started and tells what has ended. @idle: sleeps until something has, somebody writes to s->wake_fd or
	 * the deadline comes.
	 */
	void (*wait)(struct pinion_stream *s, bool idle, int64_t deadline_ns);
};

extern const struct engine_ops engine_uring;
extern const struct engine_ops engine_threads;

/* The engine of a new stream: as $PINION_ENGINE says ("uring", "threads"), else io_uring where it is to be had. */
int engine_open(struct pinion_stream *s);

#define ENGINE_NONE "none"

/* The name of the engine that a stream would get now, ENGINE_NONE: it would get none; in *@why, where it is not io_uring, why. */
const char *engine_default(const char **why);

/* The piece's descriptor: past the page cache, through it, or the watch. */
int piece_fd(const struct pinion_stream *s, const struct piece *p);

#endif
