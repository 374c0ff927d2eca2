/* SPDX-License-Identifier: MIT */
/*
 * name: how a name leads to its holder, and what the two say to each other.
 *
 * A name is a record (NAME.name) and a socket (NAME.sock) in the runtime directory. The record says which counter slot
 * the holder has: the name is held while that slot's owner lives, which the kernel decides, so neither a killed holder nor
 * a forked child that inherited its socket keeps a name. Records and sockets change hands under rundir_lock().
 *
 * The socket is SOCK_SEQPACKET. A client sends one name_request and gets one name_answer; an attached client keeps its
 * connection open and may then say NAME_LOCKED.
 */
#ifndef PINION_LIB_NAME_H
#define PINION_LIB_NAME_H

#include <pinion/holder.h>
#include <stdbool.h>
#include <stdint.h>

#include "../context.h"
#include "../error.h"

#define NAME_MAGIC 0x314d414eu /* "NAM1", the protocol's version */
#define NAME_USERS 512u	       /* rows that one answer carries */
#define NAME_SILENT_NS (INT64_C(2) * 1000000000) /* a holder that says nothing for so long is not answering */

enum name_op { NAME_ATTACH = 1, NAME_SHOW, NAME_REMOVE, NAME_LOCKED };

struct name_request {
	uint32_t magic;
	uint32_t op;
	uint32_t wait; /* NAME_ATTACH: answer when it is loaded */
	uint32_t reserved;
};

/* NAME_ATTACH brings the buffer's descriptor with it and, for a model, that of the index; index_bytes is 0 for a storage. */
struct name_answer {
	uint32_t magic;
	int32_t err; /* 0 or -errno, then the sentence says why */
	uint64_t bytes;
	uint64_t index_bytes;
	uint32_t page_size;
	uint32_t hold;
	char sentence[SENTENCE_MAX];
};

struct name_show {
	uint32_t magic;
	uint32_t count; /* attached processes */
	uint32_t rows;	/* of them, those that follow */
	uint32_t reserved;
	struct pinion_name_info info;
	struct pinion_name_user user[];
};

struct name_record {
	uint32_t magic;
	uint32_t slot;
	uint64_t generation;
	int32_t pid; /* as the holder sees itself */
	uint32_t serial; /* a context may have held the name before */
};

int name_check(const char *name);

enum name_state {
	NAME_STATE_NONE, /* there is no record */
	NAME_STATE_HELD,
	NAME_STATE_DEAD, /* there is one of a dead holder */
};

/* What the record says, and its holder's pid in *@pid; an error when it cannot be looked at. */
int name_state(struct pinion_context *ctx, const char *name, enum name_state *state, int32_t *pid);

/* A file of the runtime directory, the name that it belongs to, and whether it is its record. Other than 0 ends the walk. */
typedef int (*name_file_fn)(void *arg, const char *file, const char *name, bool is_record);

/* Calls @fn for each file of a name, in the order of their bytes, and returns what it returned. -errno of listing them. */
int name_each_file(struct pinion_context *ctx, name_file_fn fn, void *arg);

/* pinion_name_list(), which removes what dead holders left, or (@remove false) leaves it where it is. */
int name_each(struct pinion_context *ctx, bool remove, int (*fn)(void *arg, const struct pinion_name_info *info), void *arg);

/* Under rundir_lock(): removes every file of @name. */
void name_remove_files(struct pinion_context *ctx, const char *name);

/* Under rundir_lock(): makes @record the name's, with a listening socket in *@sock. -EEXIST a living one has it. */
int name_take(struct pinion_context *ctx, const char *name, const struct name_record *record, int *sock);

/* Gives the name up when it is still @record's. Takes the lock, and two descriptors for a moment; an error leaves the name. */
int name_release(struct pinion_context *ctx, const char *name, const struct name_record *record);

/* A connection to the living holder of @name. -ENOENT; what a dead one left is removed. -ETIMEDOUT it takes nobody in. */
int name_connect(struct pinion_context *ctx, const char *name, int64_t deadline_ns, struct name_record *record, int *sock);

/* Waits until @sock has something to read: 0; -EPIPE the holder died; -ETIMEDOUT. */
int name_await(struct pinion_context *ctx, const struct name_record *record, int sock, int64_t deadline_ns);

/*
 * Asks the holder of @name for what it serves and waits for it until @deadline_ns; 0: -EBUSY when it is not ready yet.
 * One or two descriptors in @fds and the connection in *@sock, which keeps this process on the list of those attached, are
 * the caller's on success. Nothing of the answer but its form has been checked.
 */
int name_attach(struct pinion_context *ctx, const char *name, int64_t deadline_ns, struct name_answer *answer, int fds[2],
		unsigned int *nfds, int *sock);

#endif
