/* SPDX-License-Identifier: MIT */
/* room: how much memory the machine and each control group of this process leave it. */
#ifndef PINION_ROOM_H
#define PINION_ROOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One limit that an allocation of this process is held to. */
struct pinion_room {
	size_t size; /* set by the library */
	const char
		*file;	/* where the limit stands: /proc/meminfo, or a file of a control group; borrowed until the call returns */
	uint64_t limit; /* bytes */
	uint64_t used;	/* of them, page cache included */
	uint64_t cache; /* of those, the page cache that the kernel takes back when it is short; 0 of huge pages */
	uint64_t available; /* limit - used + cache; of the machine MemAvailable, which the kernel reckons */
};

typedef int (*pinion_room_fn)(void *arg, const struct pinion_room *room);

/*
 * Calls @fn for the machine and then for each control group of this process that has a limit, from its own upwards, in both
 * versions, until it returns other than 0, which is then returned. Needs no context; reads files. -ENODATA: /proc/meminfo cannot
 * be read; -ENOMEM.
 */
int pinion_room_list(pinion_room_fn fn, void *arg);

/*
 * The same for each limit that a control group of this process has for huge pages of @page_size bytes (2 MiB, 1 GiB) of the
 * kernel's pools, which the limits of memory do not count: up to two in a group, for pages that are there and for pages that are
 * reserved. How many the pools have is not told. None is 0. -EINVAL: not a size that pages have; -ENOMEM.
 */
int pinion_room_list_huge(uint64_t page_size, pinion_room_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
