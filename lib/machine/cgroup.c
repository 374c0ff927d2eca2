/* SPDX-License-Identifier: MIT */
#include "cgroup.h"

#include "../error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cgroup_read_text(const char *path, char *text, size_t room)
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

bool cgroup_read_number(const char *path, uint64_t *value)
{
	char text[64], *end;

	if (!cgroup_read_text(path, text, sizeof(text)))
		return false;
	errno = 0;
	*value = strtoull(text, &end, 10);
	return end != text && !errno;
}

bool cgroup_number(const char *dir, const char *name, uint64_t *value)
{
	char path[CGROUP_FILE_MAX];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return cgroup_read_number(path, value);
}

/* Whether @word is in the list @words, which commas divide and @end or a 0 ends. */
static bool has_word(const char *words, const char *word, char end)
{
	size_t len = strlen(word);

	for (const char *at = words; (at = strstr(at, word)); at += len)
		if ((at == words || at[-1] == ',') && (!at[len] || at[len] == ',' || at[len] == end))
			return true;
	return false;
}

/* @dir and every directory above it down to @root_len characters, the controller's mount point. */
static int each_ancestor(char *dir, size_t root_len, bool is_v2, cgroup_fn fn, void *arg)
{
	int ret = 0;

	while (!ret && strlen(dir) >= root_len) {
		char *slash = strrchr(dir, '/');

		ret = fn(arg, dir, is_v2);
		if (!slash || (size_t)(slash - dir) < root_len)
			break;
		*slash = 0;
	}
	return ret;
}

/* Of a line of /proc/self/cgroup, "0::PATH" for v2 and "N:...,memory,...:PATH" for v1: its path, or NULL. */
static const char *group_in(char *line, const char *controller, bool is_v2)
{
	char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

	if (!group)
		return NULL;
	*group++ = 0;
	names++;
	group[strcspn(group, "\n")] = 0;
	return (is_v2 ? *names == 0 : has_word(names, controller, 0)) ? group : NULL;
}

/* This process's group. */
static bool own_group(const char *controller, bool is_v2, char *path, size_t room)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	const char *group = NULL;
	char *line = NULL;
	size_t size = 0;

	while (f && !group && getline(&line, &size, f) > 0)
		group = group_in(line, controller, is_v2);
	if (group)
		snprintf(path, room, "%s", group);
	free(line);
	if (f)
		fclose(f);
	return group;
}

/* In place: blanks, line breaks and backslashes stand in mountinfo as three octal digits, "\040". */
static void decode(char *path)
{
	char *to = path;

	for (const char *at = path; *at; to++) {
		unsigned int code;

		if (sscanf(at, "\\%3o", &code) == 1 && strspn(at + 1, "01234567") >= 3) {
			*to = (char)code;
			at += 4;
		} else {
			*to = *at++;
		}
	}
	*to = 0;
}

/*
 * One line of /proc/self/mountinfo: when it is a cgroup mount with the controller, walks this process's groups under it.
 * Inside a cgroup namespace or a container the group may stand under the mount with its own prefix cut off.
 */
static int each_of_mount(char *line, const char *controller, cgroup_fn fn, void *arg)
{
	char *sep = strstr(line, " - "), *options, root[PATH_MAX], mount[PATH_MAX], group[PATH_MAX], dir[2 * PATH_MAX];
	const char *rest;
	bool is_v2;

	if (!sep)
		return 0;
	is_v2 = !strncmp(sep + 3, "cgroup2 ", 8);
	options = strrchr(sep, ' ') + 1;
	if (!is_v2 && (strncmp(sep + 3, "cgroup ", 7) || !has_word(options, controller, '\n')))
		return 0;
	if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 || !own_group(controller, is_v2, group, sizeof(group)))
		return 0;
	decode(root);
	decode(mount);
	rest = group;
	if (strcmp(root, "/") && !strncmp(group, root, strlen(root)))
		rest += strlen(root);
	snprintf(dir, sizeof(dir), "%s%s", mount, strcmp(rest, "/") ? rest : "");
	if (access(dir, X_OK))
		snprintf(dir, sizeof(dir), "%s", mount);
	return each_ancestor(dir, strlen(mount), is_v2, fn, arg);
}

int cgroup_each(const char *controller, cgroup_fn fn, void *arg)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char *line = NULL;
	size_t size = 0;
	int ret = 0;

	if (!f)
		return errno == ENOMEM ? fail(ENOMEM, "no memory to read /proc/self/mountinfo") : 0;
	while (!ret) {
		errno = 0;
		if (getline(&line, &size, f) > 0)
			ret = each_of_mount(line, controller, fn, arg);
		else if (errno == ENOMEM)
			ret = fail(ENOMEM, "no memory for a line of /proc/self/mountinfo");
		else
			break;
	}
	free(line);
	fclose(f);
	return ret;
}
