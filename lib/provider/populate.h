/* SPDX-License-Identifier: MIT */
/* populate: makes every page of a mapping present, by as many threads as it pays, and stops before memory is short. */
#ifndef PINION_LIB_POPULATE_H
#define PINION_LIB_POPULATE_H

#include <stdbool.h>
#include <stdint.h>

struct populate {
	char *addr;
	uint64_t bytes;
	bool for_reading; /* the mapping cannot be written */
	int file; /* the memfd behind it, if its pages are small and may be made without the mapping; 0: not */
	uint64_t missing; /* bytes that are not there yet */
	/*
	 * Whether @need more bytes can be had; asked between two parts when the last look, at first the caller's, is 10 ms or 256
	 * MiB ago. NULL: nobody is.
	 */
	int (*room)(const struct populate *p, uint64_t need);
	int node;	      /* for room: whose memory it is to be, -1: any */
	unsigned int threads; /* the most, 0: as many as can run */
	/* Told after each part, from the calling thread; other than 0 ends it with -ECANCELED. NULL: nobody is. */
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *progress_arg;
};

/*
 * Makes the pages present, for writing or for reading. -ENOMEM, -ECANCELED, -EOPNOTSUPP before Linux 5.14: then some are and
 * some are not. Starts threads that are gone when it returns; a signal that kills the process ends it at once.
 */
int populate(const struct populate *p);

#endif
