/* SPDX-License-Identifier: MIT */
/* stream: an in-order queue of reads and host functions on io_uring; each operation counts as a unit of its device. */
#ifndef PINION_STREAM_H
#define PINION_STREAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_buffer;
struct pinion_device;
struct pinion_stream;

enum pinion_io {
	PINION_IO_AUTO,	    /* piece by piece: direct where the file allows it and the page cache does not hold it */
	PINION_IO_BUFFERED, /* through the page cache */
	PINION_IO_DIRECT,   /* direct wherever alignment allows; the unaligned ends go through the page cache */
};

struct pinion_stream_opts {
	size_t size;
	uint32_t capacity; /* operations queued at once, default 256; submitting one more waits */
	uint32_t depth;	   /* pieces of reads in flight at once, default 4 */
	uint32_t piece;	   /* bytes of a piece, a multiple of 4096, default 4 MiB */
	enum pinion_io io;
};

/* What the stream has done so far. */
struct pinion_stream_stats {
	size_t size; /* set by the caller */
	uint64_t direct_bytes;
	uint64_t buffered_bytes;
	uint64_t reads;	      /* read requests handed to the kernel */
	uint64_t short_reads; /* of them, those that returned less and were continued */
	const char *buffered_why; /* why the longest piece that went through the page cache did; "" if none did; static */
};

/* A host function: 0 or -errno, which becomes the operation's result. Runs on the stream's thread; must not call the stream. */
typedef int (*pinion_call_fn)(void *arg);

/*
 * Makes a stream whose operations are counted on @dev. Starts one thread. The caller owns *@out.
 * Errors: -EOPNOTSUPP io_uring is refused here (the sentence says by what); -EINVAL; -ENOMEM.
 */
int pinion_stream_new(struct pinion_device *dev, const struct pinion_stream_opts *opts, struct pinion_stream **out);

/* Waits for what was submitted, then frees. */
void pinion_stream_free(struct pinion_stream *s);

/*
 * Reads @len bytes of file @fd from @foff to @off in @buf. The stream holds its own reference to @buf and its own
 * descriptor until the operation is done. Reads behind one another may overlap in time; each is done in order.
 * *@seq (may be NULL): the operation's number, from 1. Result: 0; -ENODATA the file ends before foff + len; the read's
 * errno otherwise; -ECANCELED an earlier operation failed and no flush has reported it yet.
 */
int pinion_stream_read(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, int fd, uint64_t foff, uint64_t len, uint64_t *seq);

/* Calls @fn(@arg) after everything submitted before is done; what is submitted later waits for it. */
int pinion_stream_call(struct pinion_stream *s, pinion_call_fn fn, void *arg, uint64_t *seq);

/*
 * Waits for operation @seq and returns its result, pinion_error() with it. -ETIMEDOUT; -EINVAL never submitted. Failures
 * are remembered until 64 more have been reported by flushes.
 */
int pinion_stream_wait(struct pinion_stream *s, uint64_t seq, int64_t deadline_ns);

/* Waits for everything submitted before the call; returns the first error since the last flush and forgets it. */
int pinion_stream_flush(struct pinion_stream *s, int64_t deadline_ns);

/* Operations submitted and not done. */
uint32_t pinion_stream_pending(struct pinion_stream *s);

int pinion_stream_stats(struct pinion_stream *s, struct pinion_stream_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
