/* SPDX-License-Identifier: MIT */
#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Of linux/fs.h since Linux 6.7, which older headers do not have. */
struct region {
	uint64_t start, end, categories;
};

struct scan {
	uint64_t size, flags;
	uint64_t start, end, walk_end;
	uint64_t vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN	_IOWR('f', 16, struct scan)
#define IS_HUGE (UINT64_C(1) << 6)
#define REGIONS 16

/* 0 or an errno. */
static int scan_once(int fd, uint64_t *at, uint64_t end, uint64_t *bytes)
{
	struct region region[REGIONS];
	struct scan scan = { .size = sizeof(scan),
			     .start = *at,
			     .end = end,
			     .vec = (uintptr_t)region,
			     .vec_len = REGIONS,
			     .category_mask = IS_HUGE,
			     .return_mask = IS_HUGE };
	int n = ioctl(fd, SCAN, &scan);

	if (n < 0)
		return errno;
	for (int i = 0; i < n; i++)
		*bytes += region[i].end - region[i].start;
	*at = scan.walk_end;
	return 0;
}

/* False: this kernel does not tell in this way. */
static bool scan_all(uint64_t at, uint64_t end, uint64_t *bytes)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), err = fd < 0 ? errno : 0;

	*bytes = 0;
	while (!err && at < end)
		err = scan_once(fd, &at, end, bytes);
	if (fd >= 0)
		close(fd);
	return !err;
}

static uint64_t huge_kib(const char *line)
{
	static const char *const format[] = { "AnonHugePages: %llu kB", "ShmemPmdMapped: %llu kB", "FilePmdMapped: %llu kB",
					      "Shared_Hugetlb: %llu kB", "Private_Hugetlb: %llu kB" };
	unsigned long long kib;

	for (unsigned int i = 0; i < sizeof(format) / sizeof(format[0]); i++)
		if (sscanf(line, format[i], &kib) == 1)
			return kib;
	return 0;
}

static uint64_t read_smaps(uint64_t at, uint64_t end)
{
	unsigned long long from, to;
	uint64_t kib = 0;
	bool here = false;
	char line[512];
	FILE *f = fopen("/proc/self/smaps", "re");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
			here = from >= at && to <= end;
		else if (here)
			kib += huge_kib(line);
	}
	if (f)
		fclose(f);
	return kib * 1024;
}

uint64_t mapping_huge_bytes(const void *addr, uint64_t bytes)
{
	uint64_t at = (uintptr_t)addr, huge;

	return scan_all(at, at + bytes, &huge) ? huge : read_smaps(at, at + bytes);
}
