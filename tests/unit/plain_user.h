/* SPDX-License-Identifier: MIT */
/*
 * plain user: a user without rights, for a test that root runs. What a user locks, and has in rings, counts against one limit
 * for all of its processes, and some of it for a while after they are gone: so it is one that nobody else is, where there is such.
 */
#ifndef PINION_TEST_PLAIN_USER_H
#define PINION_TEST_PLAIN_USER_H

#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#define PLAIN_NOBODY 65534
#define PLAIN_FIRST  200000 /* above those that systems give out, and those of tests/cli */
#define PLAIN_MANY   60000

/* The same for this process and its children, who ask it before they fork. */
static inline uid_t plain_uid(void)
{
	unsigned long long inside, outside, count = 0;
	static uid_t uid;
	FILE *f;

	if (uid)
		return uid;
	f = fopen("/proc/self/uid_map", "re");
	/* A container may have fewer of them. */
	if (f && fscanf(f, "%llu %llu %llu", &inside, &outside, &count) != 3)
		count = 0;
	if (f)
		fclose(f);
	uid = count > PLAIN_FIRST + PLAIN_MANY ? PLAIN_FIRST + getpid() % PLAIN_MANY : PLAIN_NOBODY;
	return uid;
}

/* Gives @path to that user, where this is root. */
static inline bool plain_own(const char *path)
{
	return geteuid() || !chown(path, plain_uid(), plain_uid());
}

/* Becomes that user, where this is root. */
static inline bool plain_become(void)
{
	uid_t uid = plain_uid();

	return geteuid() || (!setgroups(0, NULL) && !setgid(uid) && !setuid(uid));
}

#endif
