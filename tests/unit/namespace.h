/* SPDX-License-Identifier: MIT */
/*
 * namespace: what a process of a test's own sees of the machine, for it to change. Root may have that; others have it in a user
 * namespace, where there may be one, in which they are who they were and may mount all the same; not with threads, as an open context has one.
 */
#ifndef PINION_TEST_NAMESPACE_H
#define PINION_TEST_NAMESPACE_H

#include "setting.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <unistd.h>

/* unshare() with @flags; false: it is refused. */
static inline bool namespace_leave(int flags)
{
	unsigned int uid = geteuid(), gid = getegid();
	char users[64], groups[64];
	int ret;

	if (!uid)
		return !unshare(flags);
	snprintf(users, sizeof(users), "%u %u 1", uid, uid);
	snprintf(groups, sizeof(groups), "%u %u 1", gid, gid);
	ret = unshare(flags | CLONE_NEWUSER);
	/* A thread that was joined may be there for a moment. */
	for (int i = 0; i < 2000 && ret && errno == EINVAL; i++) {
		usleep(10000);
		ret = unshare(flags | CLONE_NEWUSER);
	}
	return !ret && setting_write("/proc/self/setgroups", "deny") && setting_write("/proc/self/uid_map", users) &&
	       setting_write("/proc/self/gid_map", groups);
}

/* What is mounted from here on is mounted for this process alone; false: that is refused. */
static inline bool namespace_of_mounts(void)
{
	return namespace_leave(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

#endif
