/* SPDX-License-Identifier: MIT */
/*
 * Points of many small checks, what a call that fails must leave as it was (the counts of INFO and the descriptors), and the
 * module's parameters, going and coming.
 */
#ifndef PINION_VM_STATE_H
#define PINION_VM_STATE_H

#include "dev.h"
#include "tap.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define STATE __attribute__((unused)) static

/* What first went wrong since the last point. */
static char state_wrong[320];

STATE __attribute__((format(printf, 1, 2))) void wrong(const char *why, ...)
{
	va_list args;

	if (*state_wrong)
		return;
	va_start(args, why);
	vsnprintf(state_wrong, sizeof(state_wrong), why, args);
	va_end(args);
}

/* Everything since the last point has held, or not. */
STATE bool point(const char *who, const char *what)
{
	char name[160];
	bool ok = !*state_wrong;

	snprintf(name, sizeof(name), "%s: %s", who, what);
	tap_ok(ok, name, "%s", state_wrong);
	*state_wrong = 0;
	return ok;
}

/* 0 or more stands for success. */
STATE __attribute__((format(printf, 3, 4))) bool expect(int got, int want, const char *what, ...)
{
	char text[160];
	va_list args;

	if (got == want || (got > 0 && want == 0))
		return true;
	va_start(args, what);
	vsnprintf(text, sizeof(text), what, args);
	va_end(args);
	wrong("%s: %s (%d), not %s", text, got < 0 ? strerrorname_np(-got) : "success", got,
	      want ? strerrorname_np(-want) : "success");
	return false;
}

struct state {
	struct pinion_info info;
	int free_fd; /* the lowest; sees those that are reserved and not in /proc too */
	int fds;
};

STATE int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

STATE struct state state_now(int dev)
{
	struct state s = { .free_fd = fcntl(0, F_DUPFD_CLOEXEC, 0) };

	if (s.free_fd >= 0)
		close(s.free_fd);
	s.fds = open_fds();
	if (dev_info(dev, &s.info))
		wrong("INFO: %s", strerror(errno));
	return s;
}

STATE bool state_same(int dev, const struct state *was)
{
	struct state now = state_now(dev);
	const struct pinion_info *a = &was->info, *b = &now.info;

	if (a->bytes != b->bytes || a->user_bytes != b->user_bytes)
		wrong("%llu bytes in use, %llu of the user, not %llu and %llu", b->bytes, b->user_bytes, a->bytes, a->user_bytes);
	else if (a->buffers != b->buffers || a->user_buffers != b->user_buffers)
		wrong("%llu buffers, %llu of the user, not %llu and %llu", b->buffers, b->user_buffers, a->buffers,
		      a->user_buffers);
	else if (a->poisoned_bytes != b->poisoned_bytes || a->unwiped_bytes != b->unwiped_bytes)
		wrong("%llu poisoned and %llu unwiped bytes more", b->poisoned_bytes - a->poisoned_bytes,
		      b->unwiped_bytes - a->unwiped_bytes);
	else if (was->free_fd != now.free_fd || was->fds != now.fds)
		wrong("%d descriptors, the lowest free one %d, not %d and %d", now.fds, now.free_fd, was->fds, was->free_fd);
	else
		return true;
	return false;
}

/* 0 or -errno; of a file in sysfs, debugfs or tracefs. */
STATE int file_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

/* The start of a file as a string, "" when there is none; to be freed. */
STATE char *file_get(const char *path)
{
	const size_t room = 1 << 20;
	char *text = calloc(1, room);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	ssize_t n;

	while (fd >= 0 && have < room - 1 && (n = read(fd, text + have, room - 1 - have)) > 0)
		have += n;
	if (fd >= 0)
		close(fd);
	return text;
}

STATE uint64_t file_number(const char *path)
{
	char *text = file_get(path);
	uint64_t value = *text ? strtoull(text, NULL, 10) : ~0ULL;

	free(text);
	return value;
}

#define PARAMETER "/sys/module/pinion/parameters/"

STATE bool parameter_set(const char *name, unsigned long long value)
{
	char path[128], text[32];
	int ret;

	snprintf(path, sizeof(path), PARAMETER "%s", name);
	snprintf(text, sizeof(text), "%llu", value);
	ret = file_put(path, text);
	return expect(ret, 0, "%s = %s", path, text);
}

/* 0 or -errno: EBUSY or EWOULDBLOCK as long as somebody holds the module. */
STATE int module_remove(void)
{
	return syscall(SYS_delete_module, "pinion", O_NONBLOCK) ? -errno : 0;
}

STATE int module_insert(void)
{
	int fd = open("/mod/pinion.ko", O_RDONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = syscall(SYS_finit_module, fd, "", 0) ? -errno : 0;
	close(fd);
	return ret;
}

#endif
