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
	const char *ground; /* "kmod", "memfd" or "auto"; NULL: $PINION_GROUND, else "auto": the module where it can be had */
};

struct pinion_context_info {
	size_t size;		/* set by the caller */
	const char *ground;	/* where new buffers come from: "kmod" or "memfd"; borrowed, static */
	const char *dir;	/* the runtime directory; borrowed until pinion_close() */
	const char *engine;	/* what new streams run on: "io_uring", "threads", or "none" can be made now; borrowed, static */
	uint32_t page_size;	/* bytes of a small page */
	uint32_t huge_size;	/* bytes of a huge page that shared memory may get here, 0: none */
	const char *huge_why;	/* why huge_size is what it is; borrowed, static */
	uint64_t memlock_limit; /* bytes, UINT64_MAX: none */
	const char *ground_why; /* why the ground is not the module; "" on it; borrowed until pinion_close() */
	const char *counts;	/* where devices, counts and claims are: "kmod" or "memfd"; borrowed, static */
	uint32_t apart;		/* living contexts of the directory whose counts are on the other, so that neither sees the other's */
	const char *engine_why; /* why the engine is not io_uring; "" if it is; borrowed, static */
};

/*
 * Opens a context. Any number may be open in one process. @opts may be NULL. The caller owns *@out and frees it with
 * pinion_close(). Starts one thread, which blocks every signal and only waits.
 * Errors: -EINVAL no such ground; of the ground "kmod" -ENODEV no module, -EACCES its device may not be opened by this user,
 * -EPROTO it speaks another ABI; -EPERM the runtime directory belongs to someone else or is open to others; -EAGAIN every
 * session slot of this user is taken; -ENOSPC the file system of the runtime directory is full; -EFBIG RLIMIT_FSIZE is
 * less than the counter file, which is to be made; -ETIMEDOUT
 * another process is stopped in a change to what is there (the sentence says which); -ENOMEM.
 */
int pinion_open(const struct pinion_open_opts *opts, struct pinion_context **out);

/*
 * Closes a context. Streams, models, holders and buffers made from it must be gone, except that buffers may outlive it.
 * Units of work still counted are given up. Optional before exit: the kernel does as much for any death.
 */
void pinion_close(struct pinion_context *ctx);

/* Fills *@info. -E2BIG when the caller's struct is newer and its tail is not zero. */
int pinion_context_info(const struct pinion_context *ctx, struct pinion_context_info *info);

/* The kernel module: what it allows and what is in use. */
struct pinion_module_info {
	size_t size;	     /* set by the caller */
	uint32_t abi;
	uint32_t huge_size;  /* bytes of a huge page */
	uint64_t max_bytes;  /* that all users may have together */
	uint64_t bytes;
	uint64_t max_user_bytes; /* that this user may have */
	uint64_t user_bytes;
	uint64_t max_user_buffers; /* buffers and slices */
	uint64_t user_buffers;
	uint64_t buffers;	   /* of all users */
	uint64_t max_buffer_bytes; /* of one buffer */
	uint64_t memlock_limit;	   /* RLIMIT_MEMLOCK where the module charges it, else UINT64_MAX */
	uint64_t poisoned_bytes;   /* kept from the kernel because a page in them broke */
	uint64_t unwiped_bytes;	   /* to be wiped when they were freed, and not, because somebody else still had them */
};

/*
 * Asks the module; needs no context. Errors: -ENODEV there is none; -EACCES this user may not open its device; -EPROTO it
 * speaks another ABI. The sentence names the line that helps.
 */
int pinion_module_info(struct pinion_module_info *info);

/* A buffer, or slice of one, that the module knows. */
struct pinion_module_buffer {
	size_t size;
	uint64_t id;	      /* never used again */
	uint64_t pages_id;    /* equal: the same memory */
	uint64_t offset;      /* in that memory, bytes */
	uint64_t bytes;
	uint64_t pages_bytes; /* of the memory it is of */
	uint64_t huge_bytes;  /* of those, in huge pages */
	uint64_t age_ns;
	uint32_t uid;	      /* UINT32_MAX: the sum of what other users have, where no more is shown to this one */
	int32_t pid;	      /* who made it; 0: a process that is not seen from here */
	uint32_t rights;      /* PINION_READ, PINION_WRITE */
	uint32_t buffers;     /* in this row: 1, but for the sum */
	uint32_t devices;     /* mappings of the memory by devices */
	char kind[8];	      /* "pages", "shmem", "range" or "memfd" */
	char name[32];	      /* the label it was made with, cut */
};

typedef int (*pinion_module_fn)(void *arg, const struct pinion_module_buffer *buffer);

/* Calls @fn for each buffer, oldest first, until it returns other than 0, which is then returned. Errors as above; -ENOMEM. */
int pinion_module_buffers(pinion_module_fn fn, void *arg);

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
