/* SPDX-License-Identifier: MIT */
/* hold: the process that loads a file and then serves it under a name. */
#ifndef PINION_TOOLS_HOLD_H
#define PINION_TOOLS_HOLD_H

#include <pinion/model.h>
#include <stdint.h>

struct hold {
	const char *name;
	const char *path; /* absolute */
	struct pinion_load_opts opts;
	int64_t start_ns; /* when the command began, CLOCK_MONOTONIC */
	int report_fd;	  /* where a command in the foreground listens; -1: this process is in the foreground itself */
};

/* Loads, publishes, serves until the name is removed or SIGTERM or SIGINT comes. Returns the exit code. */
int hold_run(struct hold *h);

#endif
