/* SPDX-License-Identifier: MIT */
/* model: a loaded file, its tensors in one sealed buffer that other processes attach to without a copy. */
#ifndef PINION_MODEL_H
#define PINION_MODEL_H

#include <pinion/buffer.h>
#include <pinion/index.h>
#include <pinion/stream.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;
struct pinion_model;

struct pinion_load_opts {
	size_t size;
	enum pinion_io io;
	enum pinion_pages pages;
	enum pinion_hold hold;
	const char *device; /* key of the device the reads count on; NULL: "hostio" */
	pinion_progress_fn progress; /* called by the loading thread some ten times a second; done 0: the buffer is made */
	void *progress_arg;
	const bool *cancel; /* set by any thread or a signal handler, it cancels the load with -ECANCELED; NULL: nobody will */
	bool hash;	    /* compute the SHA-256 of each file meanwhile, see pinion_model_shard_at() */
	bool prefer_pages;  /* pages is a wish: the next best will do, which pinion_buffer_info() of the model's buffer tells */
	enum pinion_numa numa; /* where the buffer is */
	uint32_t node;	       /* with numa, the number that the kernel gives the node */
};

struct pinion_load_stats {
	size_t size; /* set by the caller */
	uint64_t bytes_read;	/* from the file */
	uint64_t direct_bytes;	/* of them by direct I/O */
	uint64_t buffered_bytes;
	uint64_t moved_bytes;	/* copied once more, because direct I/O could not place them aligned */
	uint64_t staging_bytes; /* the most that staging took */
	uint64_t alloc_ns;	/* making the buffer */
	uint64_t read_ns;	/* from the first read to the last byte in place */
	const char *buffered_why; /* why bytes went through the page cache; "" if none did; static */
	uint64_t cached_bytes;	  /* of the files, in the page cache when the load came there; PINION_IO_AUTO alone looks */
	const char *cached_by;	  /* how that was found: "cachestat", exactly; "samples", roughly; "" nobody looked; static */
	uint64_t registered_bytes;    /* of direct_bytes, in requests on registered buffers */
	const char *unregistered_why; /* why the others of direct_bytes were not; "" if none was; static */
};

/*
 * Loads a model file into one buffer, then seals it. The caller owns *@out (pinion_model_free()).
 * Errors: those of pinion_index_open() and pinion_buffer_alloc(); -EBADMSG the file changed while it was read,
 * -ENODATA it became shorter.
 */
int pinion_model_load(struct pinion_context *ctx, const char *path, const struct pinion_load_opts *opts, struct pinion_model **out);

/*
 * Whether @m was loaded from the file that is at @path now: the same inode or the same name, of the same size and time, with the
 * same tensors; @contents: and of the same SHA-256, for which all of it is read. 0; -ESTALE, the sentence says what differs;
 * the errors of pinion_index_open(), and with @contents of reading: -ENODATA a file became shorter, or nothing is left to
 * compare, since the load made no SHA-256 and pinion_holder_publish() gave the mapping of @m up.
 */
int pinion_model_match(const struct pinion_model *m, const char *path, bool contents);

struct pinion_holder;

/*
 * Loads @path and holds it as @name, or, where another process holds it or is about to, waits for that and attaches: of many
 * who call this one loads, the others share. *@holder: what keeps the name here (pinion_holder_free(), before the model); NULL:
 * it is another's. The caller owns both. opts->hash compares the contents with those held, too; opts->cancel ends that as well.
 * Errors: those of both; -EEXIST the name is held by what is not this file now, the sentence says what differs; -ETIMEDOUT who
 * has the name is stopped, it has not answered for some seconds.
 */
int pinion_model_load_named(struct pinion_context *ctx, const char *name, const char *path, const struct pinion_load_opts *opts,
			    struct pinion_holder **holder, struct pinion_model **out);

struct pinion_attach_opts {
	size_t size;
	int64_t deadline_ns; /* how long to wait while it is being loaded; 0: do not wait, -EBUSY */
};

/*
 * Attaches to the model that a holder serves under @name: same pages, index included, nothing is copied or parsed. The
 * caller owns *@out; it stays whole when the holder goes. Errors: -ENOENT no such name; -EBUSY still loading;
 * -ETIMEDOUT; -EAGAIN the holder serves as many processes as it can, or is short of memory; -EPIPE the loader failed or
 * died before the data was whole; -EPROTO the holder's answer is refused.
 */
int pinion_model_attach(struct pinion_context *ctx, const char *name, const struct pinion_attach_opts *opts, struct pinion_model **out);

void pinion_model_free(struct pinion_model *m);

/* As in index.h, with data and offset set. Safe from any thread. */
int pinion_model_tensor(const struct pinion_model *m, const char *name, struct pinion_tensor *out);
int pinion_model_tensor_at(const struct pinion_model *m, uint64_t i, struct pinion_tensor *out);
int pinion_model_info(const struct pinion_model *m, struct pinion_index_info *info);
int pinion_model_shard_at(const struct pinion_model *m, uint64_t i, struct pinion_shard *out);

/* How the load went; -ENODATA for an attached model. */
int pinion_model_load_stats(const struct pinion_model *m, struct pinion_load_stats *stats);

/* The buffer, borrowed from the model. */
struct pinion_buffer *pinion_model_buffer(const struct pinion_model *m);

#ifdef __cplusplus
}
#endif
#endif
