/* SPDX-License-Identifier: MIT */
/* room: how much memory can be taken now without the kernel killing someone for it. */
#ifndef PINION_LIB_ROOM_H
#define PINION_LIB_ROOM_H

#include <stdbool.h>
#include <stdint.h>

/*
 * 0 when @need more bytes can be had: MemAvailable and, under every ancestor cgroup (v1 and v2) of this process, limit -
 * use + reclaimable page cache. Else -ENOMEM and a sentence that names the file, its value and the need. What cannot be
 * read limits nothing.
 */
int room_check(uint64_t need, const char *what);

/*
 * The same of the limits that these cgroups have for pages of @page bytes of a pool, which room_check() does not count:
 * for pages that are reserved and, unless they are @reserved already, for reserving them. Not the pool itself.
 */
int room_check_pool(uint64_t need, uint64_t page, bool reserved, const char *what);

/*
 * The same as figures: what could be had now, and the total it is part of: the least of MemAvailable and the cgroups' room,
 * the least of MemTotal and the cgroups' limits. -ENODATA when /proc/meminfo cannot be read. Parses files.
 */
int room_measure(uint64_t *available, uint64_t *total);

#endif
