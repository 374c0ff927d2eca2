/* SPDX-License-Identifier: MIT */
/* group: control groups of a test's own, as root. */
#ifndef PINION_TEST_GROUP_H
#define PINION_TEST_GROUP_H

#include "harness.h"
#include "setting.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define GROUP_PATH 512

/* A fresh group below this process's own in the hierarchy of version 1 at @mount, or of version 2; false where there is none. */
static inline bool group_make(const char *mount, const char *controller, char group[GROUP_PATH])
{
	char line[512], own[256] = "";
	FILE *f = fopen("/proc/self/cgroup", "r");

	while (f && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':') + 1, *path = strchr(names, ':');

		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		if (!strcmp(names, controller))
			snprintf(own, sizeof(own), "%s", path);
	}
	if (f)
		fclose(f);
	snprintf(group, GROUP_PATH, "%s%s/pinion-test-%d", mount, strcmp(own, "/") ? own : "", getpid());
	return *own && !mkdir(group, 0755);
}

static inline bool group_set(const char *group, const char *name, const char *value)
{
	char path[640];

	snprintf(path, sizeof(path), "%s/%s", group, name);
	return setting_write(path, value);
}

/* What @fn returns in a member of @group, 99 when it cannot be one; the group goes with it. */
static inline int group_run(const char *group, int (*fn)(const char *group))
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		_exit(group_set(group, "cgroup.procs", "0") ? fn(group) : 99);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	for (int i = 0; i < 200 && rmdir(group) && errno == EBUSY; i++)
		usleep(100000);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A fresh group with so much memory, of whichever version limits it; false where there is none. *@file is the limit's. */
static inline bool group_of_memory(const char *bytes, char group[GROUP_PATH], char file[GROUP_PATH + 64])
{
	static const char *const mount[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/memory" };
	static const char *const name[] = { "memory.max", "memory.limit_in_bytes" };

	for (unsigned int i = 0; i < 2; i++) {
		if (!group_make(mount[i], i ? "memory" : "", group))
			continue;
		snprintf(file, GROUP_PATH + 64, "%s/%s", group, name[i]);
		if (group_set(group, name[i], bytes))
			return true;
		rmdir(group);
	}
	return false;
}

#endif
