/* SPDX-License-Identifier: MIT */
#include "cpus.h"

#include "cgroup.h"

#include <sched.h>
#include <stdio.h>

/* CPUs in the affinity mask, of machines of any size. */
static unsigned int in_mask(void)
{
	unsigned int n = 0;

	for (unsigned int room = CPU_SETSIZE; !n && room <= 1u << 16; room *= 2) {
		cpu_set_t *set = CPU_ALLOC(room);

		if (set && !sched_getaffinity(0, CPU_ALLOC_SIZE(room), set))
			n = CPU_COUNT_S(CPU_ALLOC_SIZE(room), set);
		CPU_FREE(set);
	}
	return n ? n : 1;
}

/* "MICROSECONDS PERIOD" in cpu.max of version 2, where "max" is no limit; in two files of version 1, where -1 is none. */
static int look_at_group(void *arg, const char *dir, bool is_v2)
{
	unsigned long long quota = 0, period = 0, whole;
	unsigned int *least = arg;
	uint64_t one, two;
	char path[CGROUP_FILE_MAX], text[64];

	snprintf(path, sizeof(path), "%s/cpu.max", dir);
	if (is_v2 && cgroup_read_text(path, text, sizeof(text)) && sscanf(text, "%llu %llu", &quota, &period) != 2)
		return 0;
	if (!is_v2 && cgroup_number(dir, "cpu.cfs_quota_us", &one) && cgroup_number(dir, "cpu.cfs_period_us", &two)) {
		quota = (int64_t)one > 0 ? one : 0;
		period = two;
	}
	if (!quota || !period)
		return 0;
	whole = quota / period + (quota % period != 0);
	if (whole < *least)
		*least = whole;
	return 0;
}

unsigned int cpus_usable(void)
{
	unsigned int n = in_mask();

	if (n > 1)
		cgroup_each("cpu", look_at_group, &n);
	return n;
}
