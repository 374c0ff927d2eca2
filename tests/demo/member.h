/* SPDX-License-Identifier: MIT */
/* member: one worker process as demo-crew sees it: started, spoken to and ended by its pid. */
#ifndef PINION_DEMO_MEMBER_H
#define PINION_DEMO_MEMBER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "route.h"

struct member {
	char name[16]; /* "worker 2" */
	pid_t pid;     /* 0: none runs */
	struct claim claim;
	int to, from; /* -1: closed */
	char line[256];
	size_t line_bytes;
	/* What it said: */
	int64_t attach_ns, touch_ns;
	unsigned int held; /* units it holds still, 0: it goes on */
	uint64_t tensors, products, checked, compared, wrong;
};

/* Starts @argv, which ends by itself when this process does; it alone inherits @fd. 0 or -errno. */
int member_start(struct member *m, char *const argv[], int fd);

/* Says one letter. */
void member_say(struct member *m, char letter);

/*
 * The next line it says, which has to begin with @word; returns what follows. NULL after a sentence on stderr when it
 * says something else, ends, or is silent for a minute, and at once when *@interrupted.
 */
const char *member_hear(struct member *m, const char *word, const volatile int *interrupted);

/* Kills it when @sig is not 0, waits for its end and returns its status as waitpid() gives it. */
int member_end(struct member *m, int sig);

#endif
