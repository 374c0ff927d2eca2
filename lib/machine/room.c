/* SPDX-License-Identifier: MIT */
#include "room.h"

#include "../advice.h"
#include "../error.h"
#include "cgroup.h"

#include <errno.h>
#include <pinion/room.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where one version of a controller keeps its figures. */
struct cgroup_files {
	const char *limit;
	const char *use;
	const char *cache[2]; /* keys of memory.stat: page cache that reclaim can take; NULL: it is not limited */
};

static const struct cgroup_files v1 = { "memory.limit_in_bytes",
					"memory.usage_in_bytes",
					{ "total_inactive_file", "total_active_file" } };
static const struct cgroup_files v2 = { "memory.max", "memory.current", { "inactive_file", "active_file" } };

/* What follows @key at the start of a line; NULL: there is no such line. */
static const char *find_line(const char *text, const char *key)
{
	size_t len = strlen(key);

	for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (!strncmp(line, key, len) && (line[len] == ' ' || line[len] == ':'))
			return line + len + 1;
	return NULL;
}

/* The number there, 0 without one. */
static uint64_t find_number(const char *text, const char *key)
{
	const char *at = find_line(text, key);

	return at ? strtoull(at, NULL, 10) : 0;
}

/* What a look at the limits finds: the first that is short of @need, or the least of them all. */
struct look {
	uint64_t need;
	const char *what;
	uint64_t page; /* of the pool whose limits these are, 0: of memory */
	bool reserved; /* of that, they are reserved already: only what limits their coming */
	bool measure;
	uint64_t available, total;
	pinion_room_fn fn; /* is shown each limit instead */
	void *arg;
};

/* MemAvailable, which may be 0, or what stood in for it before Linux 3.14. False: neither is there. */
static bool meminfo_available(const char *text, uint64_t *bytes)
{
	if (find_line(text, "MemAvailable"))
		*bytes = find_number(text, "MemAvailable") * 1024;
	else
		*bytes = (find_number(text, "MemFree") + find_number(text, "Buffers") + find_number(text, "Cached")) * 1024;
	return find_line(text, "MemAvailable") || find_line(text, "MemFree");
}

static int show_machine(const struct look *look, const char *text)
{
	struct pinion_room room = {
		.size = sizeof(room), .file = "/proc/meminfo", .limit = look->total, .available = look->available
	};

	room.used = look->total - find_number(text, "MemFree") * 1024;
	room.cache = (find_number(text, "Cached") + find_number(text, "Buffers")) * 1024;
	return look->fn(look->arg, &room);
}

static int look_at_memory(struct look *look)
{
	char text[8192];
	uint64_t have;
	bool known;

	if (!cgroup_read_text("/proc/meminfo", text, sizeof(text)))
		return look->fn ? fail(ENODATA, "/proc/meminfo cannot be read") : look->measure ? -ENODATA : 0;
	known = meminfo_available(text, &have);
	look->available = have;
	look->total = find_number(text, "MemTotal") * 1024;
	if (look->fn)
		return known ? show_machine(look, text) : fail(ENODATA, "/proc/meminfo does not say what is free");
	if (!look->measure && known && look->need > have)
		return fail_advise(ENOMEM, PINION_ADVICE_MEMORY, NULL,
				   "%s needs %llu bytes, MemAvailable in /proc/meminfo is %llu", look->what,
				   (unsigned long long)look->need, (unsigned long long)have);
	return look->measure && (!known || !look->total) ? -ENODATA : 0;
}

/* The page cache of a group that reclaim can take. */
static uint64_t group_cache(const char *dir, const struct cgroup_files *files)
{
	char path[CGROUP_FILE_MAX], text[8192];

	if (!files->cache[0])
		return 0;
	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	return cgroup_read_text(path, text, sizeof(text)) ?
		       find_number(text, files->cache[0]) + find_number(text, files->cache[1]) :
		       0;
}

/* Limit - use + the page cache that reclaim can take. */
static uint64_t left_of(uint64_t limit, uint64_t use, uint64_t cache)
{
	use = use > cache ? use - cache : 0;
	return limit > use ? limit - use : 0;
}

static int show_group(const struct look *look, const char *dir, const char *path, const struct cgroup_files *files,
		      uint64_t limit, uint64_t use)
{
	struct pinion_room room = { .size = sizeof(room), .file = path, .limit = limit, .used = use };

	room.cache = group_cache(dir, files);
	room.available = left_of(limit, use, room.cache);
	return look->fn(look->arg, &room);
}

static int group_is_short(const struct look *look, const char *path, uint64_t limit, uint64_t use, uint64_t cache)
{
	char enough[24];

	snprintf(enough, sizeof(enough), "%llu", (unsigned long long)((use > cache ? use - cache : 0) + look->need));
	return fail_advise(ENOMEM, look->page ? PINION_ADVICE_CGROUP_HUGE : PINION_ADVICE_CGROUP, enough,
			   "%s needs %llu bytes%s, the cgroup limit %s is %llu of which %llu are left", look->what,
			   (unsigned long long)look->need, look->page ? " in huge pages" : "", path, (unsigned long long)limit,
			   (unsigned long long)left_of(limit, use, cache));
}

static int look_at_limit(struct look *look, const char *dir, const struct cgroup_files *files)
{
	uint64_t limit, use, have, cache = 0;
	char path[CGROUP_FILE_MAX];

	if (!cgroup_number(dir, files->use, &use) || !cgroup_number(dir, files->limit, &limit) || limit >= INT64_MAX / 2)
		return 0;
	snprintf(path, sizeof(path), "%s/%s", dir, files->limit);
	if (look->fn)
		return show_group(look, dir, path, files, limit, use);
	/* The statistics are the dearest to read, so only when they matter. */
	have = left_of(limit, use, 0);
	if (have < (look->measure ? look->available : look->need)) {
		cache = group_cache(dir, files);
		have = left_of(limit, use, cache);
	}
	if (look->measure) {
		look->available = have < look->available ? have : look->available;
		look->total = limit < look->total ? limit : look->total;
		return 0;
	}
	return look->need <= have ? 0 : group_is_short(look, path, limit, use, cache);
}

static int look_at_group(void *arg, const char *dir, bool is_v2)
{
	return look_at_limit(arg, dir, is_v2 ? &v2 : &v1);
}

/* The controller writes sizes its own way: 2MB, 1GB. */
static void page_name(uint64_t page, char text[24])
{
	unsigned int shift = page >> 30 ? 30 : page >> 20 ? 20 : 10;

	snprintf(text, 24, "%llu%cB", (unsigned long long)(page >> shift), shift == 30 ? 'G' : shift == 20 ? 'M' : 'K');
}

/* Pages of a pool are charged when they are touched, and apart from that when they are reserved. */
static int look_at_pool_group(void *arg, const char *dir, bool is_v2)
{
	static const char *const kind[] = { "", "rsvd." };
	char size[24], limit[64], use[64];
	struct cgroup_files files = { .limit = limit, .use = use };
	struct look *look = arg;
	int ret = 0;

	page_name(look->page, size);
	for (unsigned int i = 0; !ret && i < (look->reserved ? 1 : 2); i++) {
		snprintf(limit, sizeof(limit), "hugetlb.%s.%s%s", size, kind[i], is_v2 ? "max" : "limit_in_bytes");
		snprintf(use, sizeof(use), "hugetlb.%s.%s%s", size, kind[i], is_v2 ? "current" : "usage_in_bytes");
		ret = look_at_limit(look, dir, &files);
	}
	return ret;
}

static int look_at_all(struct look *look)
{
	int ret = look_at_memory(look);

	return ret ? ret : cgroup_each("memory", look_at_group, look);
}

int room_check(uint64_t need, const char *what)
{
	struct look look = { .need = need, .what = what };

	return look_at_all(&look);
}

int room_measure(uint64_t *available, uint64_t *total)
{
	struct look look = { .measure = true };
	int ret = look_at_all(&look);

	if (ret)
		return ret;
	*available = look.available;
	*total = look.total;
	return 0;
}

int room_check_pool(uint64_t need, uint64_t page, bool reserved, const char *what)
{
	struct look look = { .need = need, .what = what, .page = page, .reserved = reserved };

	return cgroup_each("hugetlb", look_at_pool_group, &look);
}

PINION_API int pinion_room_list(pinion_room_fn fn, void *arg)
{
	struct look look = { .fn = fn, .arg = arg };

	return look_at_all(&look);
}

PINION_API int pinion_room_list_huge(uint64_t page_size, pinion_room_fn fn, void *arg)
{
	struct look look = { .page = page_size, .fn = fn, .arg = arg };

	if (page_size < 1024 || page_size & (page_size - 1))
		return fail(EINVAL, "%llu is no size of huge pages: 2 MiB and 1 GiB are", (unsigned long long)page_size);
	return cgroup_each("hugetlb", look_at_pool_group, &look);
}
