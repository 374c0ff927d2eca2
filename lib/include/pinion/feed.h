/* SPDX-License-Identifier: MIT */
/* feed: the tensors of a model in the order of its files, through a few buffers; for models larger than memory. */
#ifndef PINION_FEED_H
#define PINION_FEED_H

#include <pinion/index.h>
#include <pinion/stream.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;
struct pinion_feed;

struct pinion_feed_opts {
	size_t size;
	enum pinion_io io;
	uint32_t buffers;      /* 1 to 1024, default 4 */
	uint64_t buffer_bytes; /* of each, a multiple of 4096 up to 1 GiB, default 8 MiB */
	const char *device;    /* key of the device the reads count on; NULL: "hostio" */
	const bool *cancel;    /* set by any thread or a signal handler, it ends a wait with -ECANCELED; NULL: nobody will */
	bool hash;	       /* compute the SHA-256 of each file, see pinion_feed_shard_at() */
};

/* Bytes of one tensor. */
struct pinion_chunk {
	size_t size;	 /* set by the caller */
	struct pinion_tensor tensor; /* without data; its name is borrowed from the feed */
	uint64_t number; /* of the tensor, in the model's order */
	uint64_t at;	 /* of the tensor's bytes this is the first */
	uint64_t bytes;	 /* 0 for a tensor without any */
	const void *data; /* borrowed until pinion_feed_done(); aligned as the file has it, modulo 4096; NULL without bytes */
	uint32_t buffer; /* the number of the buffer it is in */
};

struct pinion_feed_stats {
	size_t size; /* set by the caller */
	uint64_t bytes_read; /* from the files, with what lies between tensors */
	uint64_t direct_bytes; /* of them by direct I/O */
	uint64_t buffered_bytes;
	uint64_t fed_bytes; /* of tensors, handed out */
	const char *buffered_why; /* why bytes went through the page cache; "" if none did; static */
};

/*
 * Reads the headers at @path, which is what pinion_index_open() takes, and begins to read. The caller owns *@out.
 * Errors: those of pinion_index_open() and pinion_stream_new(); -EINVAL an option; -ENOMEM.
 */
int pinion_feed_open(struct pinion_context *ctx, const char *path, const struct pinion_feed_opts *opts, struct pinion_feed **out);
void pinion_feed_free(struct pinion_feed *f);

/*
 * The next bytes, in the order of the files; each tensor comes in one chunk or in several, one without bytes in one. Waits for
 * them to be read. What is in no buffer yet is read only as the caller gives buffers back: when it has chunks of all of them,
 * -EBUSY. -ENODATA all was handed out; -ECANCELED; -EBADMSG the file changed while it was read, or ends early; the errno of
 * reading. After an error other than -EBUSY and -ECANCELED the feed is over and says the same again.
 */
int pinion_feed_next(struct pinion_feed *f, struct pinion_chunk *chunk);

/* The caller is through with @chunk. When that is so for each chunk of a buffer, it is read into again. */
void pinion_feed_done(struct pinion_feed *f, const struct pinion_chunk *chunk);

int pinion_feed_info(const struct pinion_feed *f, struct pinion_index_info *info);
int pinion_feed_stats(const struct pinion_feed *f, struct pinion_feed_stats *stats);

/* The i-th file. Its SHA-256 is there once all of its tensors were handed out. -ENOENT. */
int pinion_feed_shard_at(const struct pinion_feed *f, uint64_t i, struct pinion_shard *out);

#ifdef __cplusplus
}
#endif
#endif
