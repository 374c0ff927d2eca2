/* SPDX-License-Identifier: MIT */
/*
 * stream: an in-order queue of reads, writes, copies and host functions; each operation counts as a unit of its device. What a
 * stream does its I/O with is its engine: io_uring, or threads where that is refused, with the same results. A stream is used by
 * one thread at a time, but for pinion_stream_cancel().
 */
#ifndef PINION_STREAM_H
#define PINION_STREAM_H

#include <pinion/device.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_buffer;
struct pinion_stream;

enum pinion_io {
	PINION_IO_AUTO,	    /* piece by piece: direct where the file allows it and the page cache does not hold it */
	PINION_IO_BUFFERED, /* through the page cache */
	PINION_IO_DIRECT,   /* direct wherever alignment allows; the unaligned ends go through the page cache */
};

/*
 * Who counts what a stream reads, on its device. PAGE: each operation is a unit from its submission until it is done, by stores
 * to the context's counter page. CHAIN: each request that the kernel is given is a unit, of as many bytes, from when the
 * kernel begins it until it is done, by the kernel itself (the module's io_uring commands); what waits in the stream is no unit
 * yet, and calls are counted as with PAGE. AUTO: PAGE, which costs less on every ground.
 */
enum pinion_count_by {
	PINION_COUNT_AUTO,
	PINION_COUNT_PAGE,
	PINION_COUNT_CHAIN,
};

/*
 * Whether requests past the page cache name registered buffers, which spares the kernel finding and holding each page. AUTO:
 * wherever that costs no charge against RLIMIT_MEMLOCK: of buffers whose hold is REGISTERED and of which no descriptor that
 * may write was handed out, on kernels whose rings can share a registration (Linux 6.12). Requests on one file name a registered
 * file from the eighth on. NEVER: neither, by this stream.
 */
enum pinion_registered {
	PINION_REGISTERED_AUTO,
	PINION_REGISTERED_NEVER,
};

struct pinion_stream_opts {
	size_t size;
	uint32_t capacity; /* operations queued at once, default 256; submitting one more waits */
	uint32_t depth;	   /* pieces of operations in flight at once, default 4 */
	uint32_t piece;	   /* bytes of a piece, a multiple of 4096, default 4 MiB */
	enum pinion_io io;
	enum pinion_count_by count;
	enum pinion_registered registered;
};

/* What the stream has done so far. */
struct pinion_stream_stats {
	size_t size; /* set by the caller */
	uint64_t direct_bytes; /* read or written past the page cache, and through it */
	uint64_t buffered_bytes;
	uint64_t reads;	      /* read requests handed to the kernel */
	uint64_t short_reads; /* requests that moved less than they asked for and were continued */
	const char *buffered_why; /* why the longest piece that went through the page cache did; "" if none did; static */
	enum pinion_count_by count; /* what is in force: never AUTO */
	uint64_t writes;	    /* write requests handed to the kernel */
	const char *engine;	    /* "io_uring" or "threads"; static */
	const char *engine_why;	    /* why it is not io_uring; "" if it is; static */
	uint64_t registered_bytes;  /* of direct_bytes, in requests on registered buffers */
	const char *unregistered_why; /* why the longest other request past the page cache was not; "" if none was; static */
};

/* A host function: 0 or -errno, which becomes the operation's result. Runs on the stream's thread; must not call the stream. */
typedef int (*pinion_call_fn)(void *arg);

/*
 * Makes a stream whose operations are counted on @dev. Starts one thread, which blocks every signal. The caller owns *@out.
 * The engine is io_uring, or threads where io_uring is refused or there is no memory for a ring; $PINION_ENGINE ("uring",
 * "threads") decides otherwise. Where a seccomp filter takes io_uring away later, what the stream reads and writes from then on
 * fails with -EOPNOTSUPP. Errors: -EOPNOTSUPP io_uring is refused here (the sentence says by what) and PINION_ENGINE or
 * PINION_COUNT_CHAIN asks for it, or PINION_COUNT_CHAIN and nothing here counts so; -EINVAL; -ENOMEM; with PINION_COUNT_CHAIN
 * also -ENODATA a synchronous device; -ESTALE.
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

/*
 * Writes @len bytes at @off of @buf to file @fd from @foff on (to its end, where the descriptor has O_APPEND). What the stream
 * holds, and results, are as of a read: -ENOSPC, -EDQUOT, -EFBIG, -EPIPE, -EIO and others of write(2), by name. What was written
 * before a failure stays. It is as durable as after write(2): fsync() in a call makes it last.
 */
int pinion_stream_write(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, int fd, uint64_t foff, uint64_t len, uint64_t *seq);

/* Copies @len bytes of @from to @to; the ranges must not overlap in one buffer. By the process's workers, in pieces. */
int pinion_stream_copy(struct pinion_stream *s, struct pinion_buffer *to, uint64_t to_off, struct pinion_buffer *from, uint64_t from_off,
		       uint64_t len, uint64_t *seq);

/* Sets @len bytes of @buf to @byte, in the same way. */
int pinion_stream_fill(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, uint8_t byte, uint64_t len, uint64_t *seq);

/* Calls @fn(@arg) after everything submitted before is done; what is submitted later waits for it. */
int pinion_stream_call(struct pinion_stream *s, pinion_call_fn fn, void *arg, uint64_t *seq);

/*
 * The same on one of the process's worker threads, of which there are never more than it has CPUs (affinity and cgroup quota): for
 * functions that compute. One that waits for another job may wait for ever.
 */
int pinion_stream_job(struct pinion_stream *s, pinion_call_fn fn, void *arg, uint64_t *seq);

/*
 * What is submitted later waits until operation @other_seq of @other is done. Either stream may be freed first. -EINVAL: it was never
 * submitted, or @other is @s. Result: 0; -ECANCELED with the sentence of @other's failure.
 */
int pinion_stream_fence(struct pinion_stream *s, struct pinion_stream *other, uint64_t other_seq, uint64_t *seq);

/*
 * What is submitted later waits until everything that was in flight on @dev at this call (of this context, or of all) is done
 * or its owner dead, as pinion_device_flush() would; no thread waits meanwhile. *@lost (may be NULL) is written before the fence
 * is done: units whose owner died. -EOPNOTSUPP: nothing here can watch counts (they are not the kernel module's); -ENODATA; -ESTALE;
 * -ENOSPC: the user has as many watches as the module allows; -EDEADLK: the stream counts on @dev itself. Result: 0; -ESTALE the
 * device was removed meanwhile. While somebody else flushes @dev too, what begins before their flush is done may be waited for as
 * well: two streams that fence each other's devices may wait for ever.
 */
int pinion_stream_fence_device(struct pinion_stream *s, struct pinion_device *dev, enum pinion_scope scope, uint64_t *lost, uint64_t *seq);

/*
 * Waits for operation @seq and returns its result, pinion_error() with it. -ETIMEDOUT; -EINVAL never submitted. Failures
 * are remembered until 64 more have been reported by flushes; -EOVERFLOW: that is so of what came then, and before.
 */
int pinion_stream_wait(struct pinion_stream *s, uint64_t seq, int64_t deadline_ns);

/* Waits for everything submitted before the call; returns the first error since the last flush and forgets it. */
int pinion_stream_flush(struct pinion_stream *s, int64_t deadline_ns);

/*
 * Asks operation @seq to end. What has not begun does not; of what moves bytes, the rest is not moved; a fence waits no more. A
 * function that runs or waits for a worker, or a request that the kernel is in the middle of, is waited for. The result is then -ECANCELED, which is a
 * failure like any other: what follows is not run until a flush has reported it. 0: it was asked, and pinion_stream_wait() tells
 * which it was; -EALREADY it is done; -EINVAL never submitted. Any thread may call it.
 */
int pinion_stream_cancel(struct pinion_stream *s, uint64_t seq);

/* The same by itself at @deadline_ns, with the result -ETIMEDOUT; PINION_FOREVER takes it back. The last call counts. */
int pinion_stream_deadline(struct pinion_stream *s, uint64_t seq, int64_t deadline_ns);

/*
 * An eventfd that polls readable when operations have been done since it was read last, and then reads how many (8 bytes; at the first
 * call, 1 for any number). The stream's: it closes with it. -EMFILE, -ENFILE.
 */
int pinion_stream_fd(struct pinion_stream *s);

/* Operations submitted and not done. */
uint32_t pinion_stream_pending(struct pinion_stream *s);

int pinion_stream_stats(struct pinion_stream *s, struct pinion_stream_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
