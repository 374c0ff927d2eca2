/* SPDX-License-Identifier: MIT */
/*
 * stream: the inside of a stream. submit.c takes operations in, schedule.c does them on a thread of the stream's own with an
 * engine, stream.c hands results out. They meet in the queue below.
 *
 * Locking: everything from `head` on is under `lock`. An operation in the queue is the schedule's: its progress fields are
 * touched by the stream's thread alone.
 */
#ifndef PINION_LIB_STREAM_H
#define PINION_LIB_STREAM_H

#include <pinion/buffer.h>
#include <pinion/context.h>
#include <pinion/stream.h>
#include <pinion/work.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "../error.h"
#include "../process.h"
#include "engine.h"
#include "file.h"

/* Failures whose sentence is kept for a later wait. */
#define STREAM_FAILURES 64

/* What moves bytes first, of files before others: those may run beside one another. */
enum op_kind { OP_READ, OP_WRITE, OP_COPY, OP_FILL, OP_CALL, OP_JOB, OP_WATCH, OP_FENCE };

/* The part of a buffer that an operation reads or writes, in a mapping that it holds. */
struct stream_span {
	struct pinion_buffer *buf; /* NULL: none */
	char *addr;		   /* of the first byte */
	uint64_t off;
	uint32_t access; /* of the mapping */
};

struct stream_op {
	struct stream_op *next;
	uint64_t seq;
	enum op_kind kind;
	struct pinion_ticket ticket; /* empty where the kernel counts what the operation has it do */
	struct stream_span to, from; /* what it writes and reads */
	struct stream_file *file;
	uint64_t pos; /* in the file */
	uint64_t len;
	unsigned char byte; /* OP_FILL */
	/* OP_CALL, OP_JOB */
	pinion_call_fn fn;
	void *arg;
	/* OP_WATCH */
	int watch; /* the descriptor that polls readable when there is nothing more to wait for; ours */
	int (*watch_take)(int fd, uint64_t *lost);
	uint64_t *lost;
	struct fence *fence; /* OP_FENCE; one reference is ours */
	/* Under the stream's lock: */
	int64_t deadline_ns;
	int ask; /* ECANCELED, ETIMEDOUT: it shall end with that; 0 */
	/* The schedule's: */
	uint64_t issued;    /* bytes that are on their way */
	uint32_t in_flight; /* pieces of it */
	bool begun;	    /* of what moves no bytes: it runs, or waits, or has */
	int err;	    /* 0 or -errno, the first */
	char sentence[SENTENCE_MAX];
};

struct stream_failure {
	uint64_t seq;	    /* 0: none */
	uint64_t cancelled; /* operations after seq up to this one were not run */
	int err;
	char sentence[SENTENCE_MAX];
};

struct pinion_stream {
	struct pinion_device *dev;
	struct process_mark mark;
	struct pinion_stream_opts opts;
	pthread_t thread;
	int wake_fd; /* an eventfd, for the stream's thread while it sleeps */

	/* The stream's thread's: */
	const struct engine_ops *ops;
	struct engine *engine;
	struct piece *piece; /* opts.depth of them */
	uint32_t in_flight;

	pthread_mutex_t lock;
	pthread_cond_t progress;       /* CLOCK_MONOTONIC: an operation is done or there is room */
	struct stream_op *head, *tail; /* in order; the schedule takes from the head */
	uint32_t pending;
	uint64_t submitted; /* the last operation's number */
	uint64_t done;	    /* every operation up to this one is done */
	uint64_t events;    /* whatever the stream's thread must look at */
	bool sleeping;	    /* it waits for wake_fd to be written */
	bool failed;	    /* an operation failed and no flush has said so: what follows is not run */
	bool stop;
	bool asks;		  /* an operation's ask was set */
	int64_t next_deadline_ns; /* not after the first of any operation's */
	struct piece *finished;	  /* by workers */
	struct fence *fences;	  /* who waits for operations of this stream */
	int event_fd;		  /* the caller's to poll; -1: never asked for */
	struct stream_file *file; /* the last one, one reference of it is ours */
	struct stream_failure failure[STREAM_FAILURES];
	uint32_t failures;  /* the next place in it */
	uint64_t forgotten; /* up to this operation there may be failures that it does not have any more */
	struct pinion_stream_stats stats;
	uint32_t why_len; /* of the piece that stats.buffered_why speaks of */
	uint32_t unregistered_len; /* and of stats.unregistered_why */
};

static inline bool op_moves_bytes(const struct stream_op *op)
{
	return op->kind <= OP_FILL;
}

static inline bool op_is_io(const struct stream_op *op)
{
	return op->kind <= OP_WRITE;
}

/* schedule.c: what the stream's thread does until the stream is freed. */
void *schedule_main(void *stream);

/* For the engine, on the stream's thread: bytes moved, a poll that came true (>= 0), or -errno. */
void schedule_done(struct pinion_stream *s, struct piece *p, int res);

/* On any thread: a worker has done the piece, with that result. */
void schedule_finished(struct piece *p, int res);

/* Instead, with the sentence of this thread: the piece could not go on, for no fault of the I/O. */
void schedule_failed(struct pinion_stream *s, struct piece *p, int ret);

/*
 * Under lock: something has happened that the stream's thread must look at. True: it sleeps, and who notes this wakes it, under the
 * lock too unless the stream cannot be freed meanwhile.
 */
bool stream_note(struct pinion_stream *s);
void stream_wake(struct pinion_stream *s);

static inline void stream_event(struct pinion_stream *s)
{
	if (stream_note(s))
		stream_wake(s);
}

/*
 * For the schedule: the operation at the head is done. Counts it down and wakes those who wait. @unrun: it is not, and ends
 * because one before it failed; nothing happens if a flush has told of that one meanwhile.
 */
void stream_retire(struct pinion_stream *s, struct stream_op *op, bool unrun);

/* Gives back what an operation holds; frees it. */
void op_let_go(struct stream_op *op);
void op_free(struct stream_op *op);

int stream_check(const struct pinion_stream *s);

/* Under lock: the result of an operation that is done, with its sentence. */
int stream_result(struct pinion_stream *s, uint64_t seq);

#endif
