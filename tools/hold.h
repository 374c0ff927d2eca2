/* SPDX-License-Identifier: MIT */
/* hold: the process that loads a file and then serves it under a name. */
#ifndef PINION_TOOLS_HOLD_H
#define PINION_TOOLS_HOLD_H

#include "memory.h"

#include <pinion/model.h>
#include <stdbool.h>
#include <stdint.h>

struct hold {
	const char *name;
	const char *path; /* absolute; by its own name, which leads to the other files of a model */
	const char *shown; /* the same with all links resolved */
	struct pinion_load_opts opts;
	struct memory memory; /* as it was asked for */
	bool json;	      /* the result is an object */
	int64_t start_ns; /* when the command began, CLOCK_MONOTONIC */
	int report_fd;	  /* where a command in the foreground listens; -1: this process is in the foreground itself */
};

/* Loads, publishes, serves until the name is removed or SIGTERM or SIGINT comes. Returns the exit code. */
int hold_run(struct hold *h);

/* Tells whoever started @h how far the load is. -errno: nobody is there any more. */
int hold_tell_progress(const struct hold *h, uint64_t done, uint64_t total);
/* Of a process that keeps something for others: closes all that it was started with but the standard streams and h->report_fd. */
void hold_close_inherited(struct hold *h);

/* From here on it keeps no directory busy, and no standard stream where a command speaks for it. */
void hold_detach(const struct hold *h);

#endif
