/* SPDX-License-Identifier: MIT */
/* mapping: what the kernel says of memory that this process has mapped. */
#ifndef PINION_LIB_MAPPING_H
#define PINION_LIB_MAPPING_H

#include <stdint.h>

/*
 * How many of @bytes from @addr on, whole pages, are mapped by huge pages, transparent or of a pool. It takes microseconds
 * from Linux 6.7 on; before that, and where the kernel is asked by a filter not to say so, all of /proc/self/smaps is read, and
 * @addr and @bytes must be a mapping's. 0 where the kernel tells neither. Safe from any thread.
 */
uint64_t mapping_huge_bytes(const void *addr, uint64_t bytes);

#endif
