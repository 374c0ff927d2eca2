/* SPDX-License-Identifier: MIT */
/*
 * pool: the process's worker threads, never more than it has CPUs (cpus_usable()). A worker is started when there is work and
 * none is idle, blocks every signal, and ends when it had nothing to do for a while. A child has none of its parent's.
 */
#ifndef PINION_LIB_POOL_H
#define PINION_LIB_POOL_H

#include <stdbool.h>

/* The caller's; the pool's from submission until run() is called. */
struct pool_job {
	struct pool_job *prev, *next;
	void (*run)(struct pool_job *job); /* may free the job, or submit it again */
	bool queued;
};

/* Queues the job. -errno with a sentence: there is no worker, and none could be started. */
int pool_submit(struct pool_job *job);

/* Takes a job back that no worker has taken: true; false: it runs, or has run. */
bool pool_withdraw(struct pool_job *job);

/* How many workers there may be; for tests, how many there are and were at most. */
unsigned int pool_limit(void);
unsigned int pool_most(void);

#endif
