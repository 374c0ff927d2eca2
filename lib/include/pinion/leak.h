/* SPDX-License-Identifier: MIT */
/* leak: what is left of those who are dead, what outlived its maker, and what is held for nobody. */
#ifndef PINION_LEAK_H
#define PINION_LEAK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;

struct pinion_leak {
	size_t size;	  /* set by the library */
	const char *kind; /* "name": a dead holder's record; "file": of no name; "buffer": of the module, its maker is dead;
			   * "silent": a name whose holder is stopped; "unused": a name that nobody is attached to, which may be
			   * as it should; static */
	char what[96];	  /* the name, the file, the buffer's id and label */
	char why[128];
	int32_t pid;	/* of who is dead or holds it, 0: not known */
	uint64_t bytes; /* of memory that it holds, or of the file */
	uint64_t age_ns;
	bool removable; /* pinion_leak_list() can remove it; memory goes with those who have it */
};

typedef int (*pinion_leak_fn)(void *arg, const struct pinion_leak *leak);

/*
 * Calls @fn for each leak of the runtime directory, and of the module where this context can ask it, until it returns other than
 * 0, which is then returned. With @remove each one that is removable is removed before it is shown. Files that pinion does not
 * make are nobody's business and are not shown. Others of the user cannot take or give up a name meanwhile. Errors: -ETIMEDOUT a
 * process is stopped while it changes the directory; of reading it; -ENOMEM.
 */
int pinion_leak_list(struct pinion_context *ctx, bool remove, pinion_leak_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
