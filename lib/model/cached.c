/* SPDX-License-Identifier: MIT */
#include "cached.h"

#include <unistd.h>

uint64_t cached_bytes(struct cached *c, uint64_t from, uint64_t len)
{
	uint64_t pages, bytes;

	/* To the kernel a length of 0 is the rest of the file. */
	if (!len)
		return 0;
	if (!c->sampled && file_count_cached(c->file, from, len, &pages)) {
		bytes = pages * sysconf(_SC_PAGESIZE);
		return bytes < len ? bytes : len;
	}
	c->sampled = true;
	return file_is_cached(c->file, from, len) ? len : 0;
}
