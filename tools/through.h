/* SPDX-License-Identifier: MIT */
/* through: `load --stream`, a model's tensors through a few buffers and away: counted, hashed, written to a pipe. */
#ifndef PINION_TOOLS_THROUGH_H
#define PINION_TOOLS_THROUGH_H

#include <pinion/feed.h>
#include <stdbool.h>

struct through {
	const char *file;
	struct pinion_feed_opts opts;
	bool json;	    /* the result is an object */
	bool pipe;	    /* the tensors' bytes go to standard output, and what is said to standard error */
	const char *sha256; /* what the file's must be; NULL: it may be anything */
};

/* Returns the exit code. */
int through_run(const struct through *t);

#endif
