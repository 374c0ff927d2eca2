/* SPDX-License-Identifier: MIT */
/*
 * guard: runs the rows in a child of its own, and puts back what they change: settings under /sys, directories with big
 * files. The parent does nothing but wait, so it is there to do that however the child ends and whatever signal comes.
 */
#ifndef PINION_BENCH_GUARD_H
#define PINION_BENCH_GUARD_H

#include <limits.h>
#include <stddef.h>

#define SHMEM_THP     "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define HUGETLB_PAGES "/proc/sys/vm/nr_hugepages"

struct guard {
	char files[PATH_MAX]; /* a directory on a disk; "" when there is none, and why */
	char files_why[256];
	char run[PATH_MAX]; /* the runtime directory for this run, in memory where it can be */
};

/* Runs @work in a child and cleans up behind it; returns what the process should exit with. */
int guard_run(int (*work)(const struct guard *g, void *arg), void *arg);

/* The value of a setting: of a list of choices the one in brackets. "" when it cannot be read. */
void setting_read(const char *path, char *value, size_t room);

/* Only in @work: the guard puts it back. -errno. */
int setting_write(const char *path, const char *value);

#endif
