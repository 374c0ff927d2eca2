/* SPDX-License-Identifier: MIT */
/*
 * cached: how much of a range of a file the page cache holds. By cachestat() (Linux 6.5), which counts every page in one call;
 * where the kernel has none, or will not say for this file, by a few bytes that are read only if they are there.
 */
#ifndef PINION_LIB_CACHED_H
#define PINION_LIB_CACHED_H

#include <stdbool.h>
#include <stdint.h>

#include "../work/file.h"

struct cached {
	struct stream_file *file; /* NULL: not asked */
	bool sampled;		  /* cachestat() would not answer */
};

/* Bytes of [@from, @from + @len) in the page cache; by samples all or nothing. */
uint64_t cached_bytes(struct cached *c, uint64_t from, uint64_t len);

#endif
