/* SPDX-License-Identifier: MIT */
/* context: opens the ground pinion stands on and owns the registry of devices. */
#ifndef PINION_CONTEXT_H
#define PINION_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PINION_FOREVER INT64_MAX

struct pinion_context;

struct pinion_open_opts {
	size_t size;
	const char *dir; /* runtime directory; NULL: $PINION_DIR, else the first that is ours of the default list */
};

struct pinion_context_info {
	size_t size;		/* set by the caller */
	const char *ground;	/* "memfd"; borrowed, static */
	const char *dir;	/* the runtime directory; borrowed until pinion_close() */
	const char *engine;	/* what streams run on: "io_uring"; borrowed, static */
	uint32_t page_size;	/* bytes of a small page */
	uint32_t huge_size;	/* bytes of a huge page that shared memory may get here, 0: none */
	const char *huge_why;	/* why huge_size is what it is; borrowed, static */
	uint64_t memlock_limit; /* bytes, UINT64_MAX: none */
};

/*
 * Opens a context. Any number may be open in one process. @opts may be NULL. The caller owns *@out and frees it with
 * pinion_close(). Starts one thread, which blocks every signal and only waits.
 * Errors: -EPERM the runtime directory belongs to someone else or is open to others; -EAGAIN every session slot of this
 * user is taken; -ENOSPC the file system of the runtime directory is full; -ENOMEM.
 */
int pinion_open(const struct pinion_open_opts *opts, struct pinion_context **out);

/*
 * Closes a context. Streams, models, holders and buffers made from it must be gone, except that buffers may outlive it.
 * Units of work still counted are given up. Optional before exit: the kernel does as much for any death.
 */
void pinion_close(struct pinion_context *ctx);

/* Fills *@info. -E2BIG when the caller's struct is newer and its tail is not zero. */
int pinion_context_info(const struct pinion_context *ctx, struct pinion_context_info *info);

/* The last failure of this thread in one sentence; "" before the first. Borrowed until this thread's next pinion call. */
const char *pinion_error(void);

/* The library's version, "0.1.0"; static. */
const char *pinion_version(void);

/* An absolute deadline @ns nanoseconds from now; saturates at PINION_FOREVER, a negative @ns is now. */
int64_t pinion_deadline_in(int64_t ns);

#ifdef __cplusplus
}
#endif
#endif
