/* SPDX-License-Identifier: MIT */
/* selftest: the promises of pinion, each tried on this machine with processes that share, count and are killed. */
#ifndef PINION_TOOLS_SELFTEST_H
#define PINION_TOOLS_SELFTEST_H

#include <pinion/pinion.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct selftest {
	struct pinion_context *ctx;
	char key[PINION_KEY_MAX + 1];	/* of a device of its own */
	char name[PINION_NAME_MAX + 1]; /* free at the start of each check and at its end */
	char folder[512];		/* where a file may be written */
	char text[512];			/* what was seen; or what was not as promised */
};

struct selftest_check {
	const char *name;
	const char *promise;
	int (*fn)(struct selftest *t); /* 0, or the promise was not kept and t->text says how */
};

extern const struct selftest_check selftest_checks[];
extern const size_t selftest_count;

/* For a check: leaves the sentence in t->text and returns 1. */
int selftest_fail(struct selftest *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same with the library's sentence behind it. */
int selftest_refused(struct selftest *t, const char *what);

/* A child that speaks to the check over a socket, and is killed with it. */
struct selftest_child {
	pid_t pid;
	int sock;
};

/*
 * Starts a process that opens a context of its own and runs @fn, whose result is its exit status. Its text comes over the socket:
 * the child says a byte when it is where the check wants it, see selftest_hear(). 0 or 1.
 */
int selftest_start(struct selftest *t, struct selftest_child *child, int (*fn)(struct selftest *t, int sock));
/* Waits for the byte. 0, or 1: the child has failed, and t->text is its sentence. */
int selftest_hear(struct selftest *t, struct selftest_child *child);
/* In the child. */
void selftest_say(int sock);
/* Ends it with SIGKILL. It is dead when this returns. */
void selftest_kill(struct selftest_child *child);

#endif
