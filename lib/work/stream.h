/* SPDX-License-Identifier: MIT */
/*
 * stream: the inside of a stream. stream.c takes operations in and hands results out; an engine does them on a thread of
 * its own. They meet in the queue below.
 *
 * Locking: everything from `head` on is under `lock`. An operation in the queue is the engine's: its progress fields are
 * touched by the engine's thread alone.
 */
#ifndef PINION_LIB_STREAM_H
#define PINION_LIB_STREAM_H

#include <pinion/buffer.h>
#include <pinion/stream.h>
#include <pinion/work.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../error.h"
#include "../process.h"
#include "file.h"

/* Failures whose sentence is kept for a later wait. */
#define STREAM_FAILURES 64

enum op_kind { OP_READ, OP_CALL };

struct stream_op {
	struct stream_op *next;
	uint64_t seq;
	enum op_kind kind;
	struct pinion_ticket ticket;
	/* OP_READ */
	struct pinion_buffer *buf;
	char *addr; /* of the first byte, in the mapping that buf holds for this operation */
	uint64_t off;
	struct stream_file *file;
	uint64_t pos; /* in the file */
	uint64_t len;
	/* OP_CALL */
	pinion_call_fn fn;
	void *arg;
	/* The engine's: */
	uint64_t issued;      /* bytes handed to the kernel */
	uint32_t in_flight;   /* pieces of it */
	bool called;
	int err;	      /* 0 or -errno, the first */
	char sentence[SENTENCE_MAX];
};

struct stream_failure {
	uint64_t seq;	    /* 0: none */
	uint64_t cancelled; /* operations after seq up to this one were not run */
	int err;
	char sentence[SENTENCE_MAX];
};

struct engine;

struct pinion_stream {
	struct pinion_device *dev;
	struct process_mark mark;
	struct pinion_stream_opts opts;
	struct engine *engine;
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t progress; /* CLOCK_MONOTONIC: an operation is done or there is room */
	struct stream_op *head, *tail; /* in order; the engine takes from the head */
	uint32_t pending;
	uint64_t submitted; /* the last operation's number */
	uint64_t done;	    /* every operation up to this one is done */
	bool failed;	    /* an operation failed and no flush has said so: what follows is not run */
	bool stop;
	struct stream_file *file; /* the last one, one reference of it is ours */
	struct stream_failure failure[STREAM_FAILURES];
	uint32_t failures; /* the next place in it */
	uint64_t flushed;  /* the last failure that a flush reported */
	struct pinion_stream_stats stats;
	uint32_t why_len; /* of the piece that stats.buffered_why speaks of */
};

/* The engine that io_uring is. */
int engine_open(struct pinion_stream *s);
void engine_close(struct pinion_stream *s);
void engine_wake(struct pinion_stream *s);
void *engine_main(void *stream);

/* For the engine: the operation at the head is done. Counts it down and wakes those who wait. */
void stream_retire(struct pinion_stream *s, struct stream_op *op);

#endif
