// SPDX-License-Identifier: MIT
/*
 * The node as it is installed: what the udev rule makes of it (group, mode) lets members in and strangers not, parameters and sysfs
 * say what pinion(4) says, and the program of Documentation/uapi.rst runs.
 */
#include "dev.h"
#include "tap.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define main uapi_rst_main
#define call uapi_rst_call
#define alloc uapi_rst_alloc
#define pin uapi_rst_pin
#define list uapi_rst_list
#include "uapi_rst.h" /* taken out of the page by build.py */
#undef main

#define GROUP 4242 /* stands for "pinion": there is no udev here, its rule is chown and chmod */
#define MEMBER 1000
#define STRANGER 1001
#define SYS "/sys/class/misc/pinion/"
#define PARAMETERS "/sys/module/pinion/parameters/"

/* Runs a check as a user with one more group, in a process of its own. */
static bool as(uid_t uid, gid_t extra, bool (*check)(void *), void *data)
{
	pid_t pid = fork();
	int status = 1;

	if (!pid) {
		if (setgroups(extra ? 1 : 0, &extra) || setgid(uid) || setuid(uid))
			_exit(1);
		_exit(!check(data));
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool may_alloc(void *unused)
{
	struct pinion_info info;
	int dev = dev_open(O_RDWR), fd;

	(void)unused;
	if (dev < 0)
		return false;
	fd = dev_alloc(dev, 16 * PAGE, 0);
	return fd >= 0 && !dev_info(dev, &info) && info.user_bytes == 16 * PAGE && info.user_buffers == 1;
}

static bool may_not_open(void *unused)
{
	(void)unused;
	return dev_open(O_RDWR) == -EACCES && dev_open(O_RDONLY) == -EACCES;
}

static bool may_only_look(void *unused)
{
	struct pinion_info info;
	int dev = dev_open(O_RDONLY);

	(void)unused;
	return dev_open(O_RDWR) == -EACCES && dev >= 0 && !dev_info(dev, &info) && dev_alloc(dev, PAGE, 0) == -EACCES;
}

/* The descriptor is the capability: no right to the node is needed. */
static bool may_map(void *data)
{
	int fd = *(int *)data;
	char *at = dev_map(fd, PAGE, PROT_READ | PROT_WRITE);

	if (at == MAP_FAILED)
		return false;
	at[7] = 42;
	return true;
}

static unsigned long long number(const char *folder, const char *name)
{
	unsigned long long n = ~0ULL;
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", folder, name);
	f = fopen(path, "r");
	if (f && fscanf(f, "%llu", &n) != 1)
		n = ~0ULL;
	if (f)
		fclose(f);
	return n;
}

static bool set(const char *name, unsigned long long n)
{
	char path[128];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), PARAMETERS "%s", name);
	f = fopen(path, "w");
	ok = f && fprintf(f, "%llu\n", n) > 0;
	return f && !fclose(f) && ok;
}

static void permissions(int dev)
{
	int fd = dev_alloc(dev, PAGE, 0);
	char *at = fd < 0 ? MAP_FAILED : dev_map(fd, PAGE, PROT_READ);
	struct stat st = { 0 };
	int ret = stat(PINION_DEVICE, &st);

	tap_ok(!ret && (st.st_mode & 07777) == 0660 && !st.st_uid && !st.st_gid, "without udev the node is root's, 0660",
	       "mode %o, %u:%u", st.st_mode, st.st_uid, st.st_gid);
	tap_ok(as(MEMBER, GROUP, may_not_open, NULL), "before the rule nobody else may open it", "opened");
	tap_ok(!chown(PINION_DEVICE, 0, GROUP), "what the rule does", "%s", strerror(errno));
	tap_ok(as(MEMBER, GROUP, may_alloc, NULL), "a member of the group allocates", "refused");
	tap_ok(as(STRANGER, 0, may_not_open, NULL), "a stranger may not open it", "opened");
	tap_ok(!chmod(PINION_DEVICE, 0640) && as(MEMBER, GROUP, may_only_look, NULL), "read access is to look and not to change", "otherwise");
	tap_ok(as(STRANGER, 0, may_map, &fd) && at != MAP_FAILED && at[7] == 42, "a stranger maps what it was handed", "refused");
	if (chmod(PINION_DEVICE, 0660) || chown(PINION_DEVICE, 0, 0))
		tap_ok(false, "the node is put back", "%s", strerror(errno));
	if (at != MAP_FAILED)
		munmap(at, PAGE);
	close(fd);
}

static void parameters(int dev)
{
	unsigned long long was = number(PARAMETERS, "max_user_bytes");
	struct pinion_info info;
	int fd;

	dev_info(dev, &info);
	tap_ok(number(SYS, "max_bytes") == info.max_bytes && number(SYS, "max_user_bytes") == info.max_user_bytes &&
	       number(SYS, "max_user_buffers") == info.max_user_buffers && number(SYS, "bytes") == info.bytes &&
	       number(SYS, "buffers") == info.buffers && number(SYS, "poisoned_bytes") == info.poisoned_bytes &&
	       number(SYS, "unwiped_bytes") == info.unwiped_bytes, "sysfs says what INFO says", "otherwise");
	tap_ok(set("max_user_bytes", 4 * PAGE) && number(SYS, "max_user_bytes") == 4 * PAGE, "a limit can be changed", "refused");
	fd = dev_alloc(dev, 5 * PAGE, 0);
	tap_ok(fd == -ENOMEM, "the changed limit holds", "%d", fd);
	fd = dev_alloc(dev, 4 * PAGE, 0);
	tap_ok(fd >= 0, "up to the changed limit is allowed", "%d", fd);
	close(fd);
	tap_ok(set("max_user_bytes", was) && number(SYS, "max_user_bytes") == info.max_user_bytes, "and put back", "refused");
	tap_ok(!set("memlock", 1), "memlock is only set at load", "changed");
}

int main(void)
{
	uint64_t bytes, buffers;
	int dev = dev_open(O_RDWR);

	if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
		return tap_end();
	bytes = dev_bytes(dev);
	buffers = dev_buffers(dev);
	permissions(dev);
	parameters(dev);
	if (fork() == 0)
		_exit(uapi_rst_main());
	{
		int status = 1;

		wait(&status);
		tap_ok(status == 0, "the program of uapi.rst runs", "status %d", status);
	}
	tap_ok(dev_bytes(dev) == bytes && dev_buffers(dev) == buffers, "bytes and buffers are back", "%llu bytes, %llu buffers",
	       (unsigned long long)dev_bytes(dev), (unsigned long long)dev_buffers(dev));
	return tap_end();
}
