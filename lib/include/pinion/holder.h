/* SPDX-License-Identifier: MIT */
/* holder: takes a name in the runtime directory and serves a model under it until it is told to go or dies. */
#ifndef PINION_HOLDER_H
#define PINION_HOLDER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;
struct pinion_holder;
struct pinion_model;

#define PINION_NAME_MAX 64 /* characters of a name: letters, digits, '.', '_', '-', not beginning with '.' or '-' */

/*
 * Takes @name and answers for it from a thread of its own: "loading" until pinion_holder_publish(). @path is what is being
 * loaded, for show. A name whose holder is dead is free. The caller owns *@out. Errors: -EEXIST held by a live holder
 * (the sentence says its pid); -EINVAL the name.
 */
int pinion_holder_open(struct pinion_context *ctx, const char *name, const char *path, struct pinion_holder **out);

/* Bytes done of total, for show and for those who wait. Safe from any thread. */
void pinion_holder_progress(struct pinion_holder *h, uint64_t done, uint64_t total);

/* From now on whoever attaches gets @m, which stays the caller's and must outlive @h. Its mapping here is given up. */
int pinion_holder_publish(struct pinion_holder *h, struct pinion_model *m);

/* Waits until someone removes the name or pinion_holder_stop() is called (0), or -ETIMEDOUT. */
int pinion_holder_wait(struct pinion_holder *h, int64_t deadline_ns);

/* Ends pinion_holder_wait(), now or when it is called. From any thread, and from a signal handler. */
void pinion_holder_stop(struct pinion_holder *h);

/* Gives the name up. Those attached keep what they have; those who wait get an error. */
void pinion_holder_free(struct pinion_holder *h);

/* One name of the runtime directory. */
struct pinion_name_info {
	size_t size; /* set by the caller */
	char name[PINION_NAME_MAX + 1];
	char path[256];	    /* the file, its end when it is longer */
	char state[16];	    /* "loading", "ready" or "not answering" */
	int32_t pid;	    /* of the holder, as it sees itself */
	uint64_t done, total; /* bytes, while loading */
	uint64_t bytes;	    /* of the buffer */
	uint64_t huge_bytes;
	uint64_t tensors;
	uint64_t age_ns;
	uint32_t page_size;
	uint32_t attached;  /* processes */
	uint32_t locked;    /* of them, those that locked their own mapping */
	char hold[16];	    /* "registered", "locked" or "unlocked" */
	char hold_why[160];
	char format[16];
};

/* A process that is attached to a name. */
struct pinion_name_user {
	int32_t pid;
	uint32_t uid;
	char comm[16];
	uint32_t locked;
	uint64_t since_ns; /* how long ago, ns */
};

/*
 * Names in the runtime directory, those with a live holder. Calls @fn for each; a non-zero result ends the walk and is
 * returned. What dead holders left behind is removed.
 */
int pinion_name_list(struct pinion_context *ctx, int (*fn)(void *arg, const struct pinion_name_info *info), void *arg);

/*
 * One name, and up to @cap (and never more than 512) of those attached; *@n is how many there are, which may be more.
 * @rows may be NULL with @cap 0, @n too. A holder that does not answer within 2 s is shown as "not answering". -ENOENT.
 */
int pinion_name_show(struct pinion_context *ctx, const char *name, struct pinion_name_info *info, struct pinion_name_user *rows, size_t cap, size_t *n);

/* Asks the holder to go. -EBUSY while processes are attached (the sentence names them); -ENOENT. */
int pinion_name_remove(struct pinion_context *ctx, const char *name);

#ifdef __cplusplus
}
#endif
#endif
