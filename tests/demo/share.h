/* SPDX-License-Identifier: MIT */
/* share: how much of the model a process maps, and how much of that is its own, as the kernel counts it. */
#ifndef PINION_DEMO_SHARE_H
#define PINION_DEMO_SHARE_H

#include <stdint.h>
#include <sys/types.h>

struct share {
	uint64_t rss; /* bytes of model pages it has mapped */
	uint64_t pss; /* of them, each divided by the number of processes that map it */
};

/* Adds up the mappings of model buffers of @pid in /proc/PID/smaps. 0 or -errno. */
int share_read(pid_t pid, struct share *out);

#endif
