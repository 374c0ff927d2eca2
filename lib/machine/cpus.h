/* SPDX-License-Identifier: MIT */
/* cpus: how many threads of this process can run at once. */
#ifndef PINION_LIB_CPUS_H
#define PINION_LIB_CPUS_H

/*
 * The CPUs of the calling thread's affinity mask, or fewer where a control group's quota (cpu.max, cpu.cfs_quota_us, every
 * ancestor) gives less time than that, a part of a CPU counted as one. At least 1. Parses files.
 */
unsigned int cpus_usable(void);

#endif
