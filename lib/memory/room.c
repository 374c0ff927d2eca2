/* SPDX-License-Identifier: MIT */
#include "room.h"

#include "../error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where one version of the memory controller keeps its figures. */
struct cgroup_files {
	const char *limit;
	const char *use;
	const char *cache[2]; /* keys of memory.stat: page cache that reclaim can take */
};

static const struct cgroup_files v1 = { "memory.limit_in_bytes", "memory.usage_in_bytes", { "total_inactive_file", "total_active_file" } };
static const struct cgroup_files v2 = { "memory.max", "memory.current", { "inactive_file", "active_file" } };

/* The file's text, cut to @room; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n, got = 0;

	if (fd < 0)
		return false;
	while ((n = read(fd, text + got, room - 1 - got)) > 0)
		got += n;
	close(fd);
	text[got] = 0;
	return n == 0 || got == (ssize_t)room - 1;
}

static bool read_number(const char *path, uint64_t *value)
{
	char text[64], *end;

	if (!read_text(path, text, sizeof(text)))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return end != text && !errno; /* "max" has no digits */
}

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
	bool measure;
	uint64_t available, total;
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

static int look_at_memory(struct look *look)
{
	char text[8192];
	uint64_t have;
	bool known;

	if (!read_text("/proc/meminfo", text, sizeof(text)))
		return look->measure ? -ENODATA : 0;
	known = meminfo_available(text, &have);
	look->available = have;
	look->total = find_number(text, "MemTotal") * 1024;
	if (!look->measure && known && look->need > have)
		return fail(ENOMEM, "%s needs %llu bytes, MemAvailable in /proc/meminfo is %llu; free memory or ask for less", look->what,
			    (unsigned long long)look->need, (unsigned long long)have);
	return look->measure && (!known || !look->total) ? -ENODATA : 0;
}

/* Limit - use + the page cache that reclaim can take. The statistics are the dearest to read, so only when they matter. */
static uint64_t group_room(const char *dir, const struct cgroup_files *files, uint64_t limit, uint64_t use, uint64_t enough)
{
	char path[2 * PATH_MAX + 64], text[8192];
	uint64_t cache, have = limit > use ? limit - use : 0;

	if (have >= enough)
		return have;
	snprintf(path, sizeof(path), "%s/memory.stat", dir);
	cache = read_text(path, text, sizeof(text)) ?
			find_number(text, files->cache[0]) + find_number(text, files->cache[1]) : 0;
	use = use > cache ? use - cache : 0;
	return limit > use ? limit - use : 0;
}

static int look_at_group(const char *dir, const struct cgroup_files *files, struct look *look)
{
	char path[2 * PATH_MAX + 64];
	uint64_t limit, use, have;

	snprintf(path, sizeof(path), "%s/%s", dir, files->use);
	if (!read_number(path, &use))
		return 0;
	snprintf(path, sizeof(path), "%s/%s", dir, files->limit);
	if (!read_number(path, &limit) || limit >= INT64_MAX / 2)
		return 0;
	have = group_room(dir, files, limit, use, look->measure ? look->available : look->need);
	if (look->measure) {
		look->available = have < look->available ? have : look->available;
		look->total = limit < look->total ? limit : look->total;
		return 0;
	}
	if (look->need > have)
		return fail(ENOMEM, "%s needs %llu bytes, the cgroup limit %s is %llu of which %llu are left; raise it or ask for less",
			    look->what, (unsigned long long)look->need, path, (unsigned long long)limit, (unsigned long long)have);
	return 0;
}

/* @dir and every directory above it down to @root_len characters, the controller's mount point. */
static int look_at_ancestors(char *dir, size_t root_len, const struct cgroup_files *files, struct look *look)
{
	int ret = 0;

	while (!ret && strlen(dir) >= root_len) {
		char *slash = strrchr(dir, '/');

		ret = look_at_group(dir, files, look);
		if (!slash || (size_t)(slash - dir) < root_len)
			break;
		*slash = 0;
	}
	return ret;
}

/* This process's group in a line of /proc/self/cgroup: "0::PATH" for v2, "N:...,memory,...:PATH" for v1. */
static bool own_group(bool is_v2, char *path, size_t room)
{
	char text[8192], *line, *save;

	if (!read_text("/proc/self/cgroup", text, sizeof(text)))
		return false;
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = 0;
		names++;
		if (is_v2 ? *names == 0 : strstr(names, "memory") != NULL) {
			snprintf(path, room, "%s", group);
			return true;
		}
	}
	return false;
}

/*
 * One line of /proc/self/mountinfo: when it is a cgroup mount with the memory controller, looks at this process's groups
 * under it. Inside a cgroup namespace or a container the group may stand under the mount with its own prefix cut off.
 */
static int look_at_mount(char *line, struct look *look)
{
	char *sep = strstr(line, " - "), root[PATH_MAX], mount[PATH_MAX], group[PATH_MAX], dir[2 * PATH_MAX];
	const char *rest;
	bool is_v2;

	if (!sep)
		return 0;
	is_v2 = !strncmp(sep + 3, "cgroup2 ", 8);
	if (!is_v2 && (strncmp(sep + 3, "cgroup ", 7) || !strstr(sep, "memory")))
		return 0;
	if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 || !own_group(is_v2, group, sizeof(group)))
		return 0;
	rest = group;
	if (strcmp(root, "/") && !strncmp(group, root, strlen(root)))
		rest += strlen(root);
	snprintf(dir, sizeof(dir), "%s%s", mount, strcmp(rest, "/") ? rest : "");
	if (access(dir, X_OK))
		snprintf(dir, sizeof(dir), "%s", mount);
	return look_at_ancestors(dir, strlen(mount), is_v2 ? &v2 : &v1, look);
}

static int look_at_all(struct look *look)
{
	char *text, *line, *save;
	int ret = look_at_memory(look);

	if (ret)
		return ret;
	text = malloc(1 << 16);
	if (!text)
		return fail(ENOMEM, "no memory to read /proc/self/mountinfo");
	if (read_text("/proc/self/mountinfo", text, 1 << 16))
		for (line = strtok_r(text, "\n", &save); line && !ret; line = strtok_r(NULL, "\n", &save))
			ret = look_at_mount(line, look);
	free(text);
	return ret;
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
