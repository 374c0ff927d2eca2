// SPDX-License-Identifier: MIT
/*
 * Limits: each lowered until it bites, what INFO says of it, and back. With the argument "memlock" (and the module loaded with
 * memlock=1): RLIMIT_MEMLOCK.
 */
#define _GNU_SOURCE
#include "calls.h"

#include <sys/resource.h>
#include <sys/wait.h>

#define NOBODY 65534
#define MIB    (1UL << 20)

static int run(const struct call *c)
{
	union args a = { 0 }, was;
	int ret;

	c->make(&a);
	was = a;
	ret = dev_call(given.dev, c->cmd, &a);
	if (!ret)
		call_undo(c, &a);
	else if (memcmp(&a, &was, sizeof(a)))
		wrong("%s: failed and wrote to the struct", c->name);
	return ret;
}

/* Every call that takes bytes is refused, the others work. */
static void all_refused(int want, bool slice_too, const char *what)
{
	for
		EACH_CALL(c)
	if (call_exists(c)) {
		bool takes = c->fd && (slice_too || c->make != make_slice);

		expect(run(c), takes ? want : 0, "%s with %s", c->name, what);
	}
}

static void bytes_limit(const char *name, bool of_user)
{
	struct state was = state_now(given.dev);
	struct pinion_info info = was.info;
	uint64_t usual = of_user ? info.max_user_bytes : info.max_bytes, in_use = of_user ? info.user_bytes : info.bytes;
	uint64_t limit = in_use + 3 * PAGE;
	int fd;

	parameter_set(name, limit);
	expect(dev_info(given.dev, &info), 0, "INFO");
	if ((of_user ? info.max_user_bytes : info.max_bytes) != limit)
		wrong("INFO says %llu of the user, %llu of all, not %lu", info.max_user_bytes, info.max_bytes, limit);
	all_refused(0, false, "room for three pages");
	expect(dev_alloc(given.dev, 4 * PAGE, 0), -ENOMEM, "a page more than there is room for");
	fd = dev_alloc(given.dev, 2 * PAGE, 0);
	expect(fd, 0, "two pages");
	expect(dev_info(given.dev, &info), 0, "INFO");
	if ((of_user ? info.max_user_bytes - info.user_bytes : info.max_bytes - info.bytes) != PAGE)
		wrong("INFO does not show that there is room for a page");
	all_refused(-ENOMEM, false, "room for one page");
	close(fd);
	state_same(given.dev, &was);
	expect(dev_alloc(given.dev, ~0UL << 12, 0), -EINVAL, "what is no size, whatever the limit");

	/* Below what is in use: nothing is taken away, nothing more is given. */
	parameter_set(name, 1);
	all_refused(-ENOMEM, false, "a limit of a byte");
	parameter_set(name, ~0ULL);
	all_refused(0, false, "no limit");
	parameter_set(name, 0);
	expect(dev_info(given.dev, &info), 0, "INFO");
	if ((of_user ? info.max_user_bytes : info.max_bytes) != usual)
		wrong("back to %llu and %llu, not %lu", info.max_user_bytes, info.max_bytes, usual);
	state_same(given.dev, &was);
	point(name, "bites, is explained, and lets go");
}

static void buffers_limit(void)
{
	struct state was = state_now(given.dev);
	struct pinion_info info;
	int fd;

	parameter_set("max_user_buffers", was.info.user_buffers + 1);
	all_refused(0, true, "room for one buffer");
	fd = dev_slice(given.dev, given.buffer, 0, PAGE, 0);
	expect(fd, 0, "SLICE");
	all_refused(-ENOSPC, true, "room for none");
	expect(dev_info(given.dev, &info), 0, "INFO");
	if (info.max_user_buffers != info.user_buffers || info.bytes != was.info.bytes)
		wrong("INFO says %llu of %llu buffers", info.user_buffers, info.max_user_buffers);
	close(fd);
	parameter_set("max_user_buffers", 0);
	all_refused(-ENOSPC, true, "a limit of none");
	parameter_set("max_user_buffers", was.info.max_user_buffers);
	all_refused(0, true, "the usual limit");
	state_same(given.dev, &was);
	point("max_user_buffers", "bites, is explained, and lets go");
}

static void parameters(void)
{
	static const char *const names[] = { "max_bytes", "max_user_bytes", "max_user_buffers" };
	static const char *const bad[] = { "x", "", "-1", "99999999999999999999999", "1 2", "1.5" };
	struct state was = state_now(given.dev);
	struct pinion_info info;
	char path[128];

	for (unsigned int i = 0; i < 3; i++)
		for (unsigned int j = 0; j < sizeof(bad) / sizeof(bad[0]); j++) {
			uint64_t before;
			int ret;

			snprintf(path, sizeof(path), PARAMETER "%s", names[i]);
			before = file_number(path);
			ret = file_put(path, bad[j]);
			if (*bad[j] && !ret)
				wrong("%s took '%s'", names[i], bad[j]);
			if (file_number(path) != before)
				wrong("%s is %lu after '%s'", names[i], file_number(path), bad[j]);
		}
	if (!file_put(PARAMETER "memlock", "1"))
		wrong("memlock can be changed");
	expect(dev_info(given.dev, &info), 0, "INFO");
	if (memcmp(&info, &was.info, sizeof(info)))
		wrong("a limit has changed");
	/* 75 and 50 percent, of a RAM that is a little less than MemTotal at most. */
	if (info.max_bytes <= info.max_user_bytes || info.max_user_bytes / 2 * 3 / 75 > info.max_bytes / 74 ||
	    info.max_user_bytes < PAGE)
		wrong("max_bytes %llu, max_user_bytes %llu", info.max_bytes, info.max_user_bytes);
	point("parameters", "take numbers only");
}

/* As @uid: for the kernel to look at when a file is opened, and to be root again after. */
static int open_as(uid_t uid, int flags)
{
	int fd;

	if (setresuid(uid, uid, 0))
		wrong("setresuid: %s", strerror(errno));
	fd = dev_open(flags);
	if (setresuid(0, 0, 0))
		wrong("setresuid: %s", strerror(errno));
	return fd;
}

static void two_users(void)
{
	struct state was = state_now(given.dev);
	int nobody = open_as(NOBODY, O_RDWR), again = open_as(NOBODY, O_RDONLY), roots, fd;
	struct pinion_info info;

	expect(nobody, 0, "open as nobody");
	/* Root calls, nobody pays. */
	fd = dev_alloc(nobody, 4 * PAGE, 0);
	expect(fd, 0, "ALLOC");
	expect(dev_info(again, &info), 0, "INFO by another open of the same user");
	if (info.user_bytes != 4 * PAGE || info.user_buffers != 1 || info.bytes != was.info.bytes + 4 * PAGE)
		wrong("nobody has %llu bytes in %llu buffers", info.user_bytes, info.user_buffers);
	expect(dev_info(given.dev, &info), 0, "INFO by root's open");
	if (info.user_bytes != was.info.user_bytes || info.user_buffers != was.info.user_buffers)
		wrong("root has %llu bytes in %llu buffers", info.user_bytes, info.user_buffers);
	/* Of nobody's pages a slice is root's as an object, the pages stay nobody's to pay for. */
	roots = dev_slice(given.dev, fd, 0, PAGE, 0);
	expect(roots, 0, "SLICE by root");
	close(fd);
	expect(dev_info(again, &info), 0, "INFO");
	if (info.user_bytes != 4 * PAGE || info.user_buffers)
		wrong("with a slice of root's nobody has %llu bytes in %llu buffers", info.user_bytes, info.user_buffers);
	close(nobody);
	close(again);
	/* The user is known as long as something is charged to it. */
	again = open_as(NOBODY, O_RDONLY);
	expect(dev_info(again, &info), 0, "INFO");
	if (info.user_bytes != 4 * PAGE)
		wrong("after the last close nobody has %llu bytes", info.user_bytes);
	close(again);
	close(roots);
	state_same(given.dev, &was);
	point("users", "the opener pays, whoever calls");

	nobody = open_as(NOBODY, O_RDWR);
	parameter_set("max_user_bytes", was.info.user_bytes + PAGE);
	expect(dev_alloc(given.dev, 2 * PAGE, 0), -ENOMEM, "root at its limit");
	fd = dev_alloc(nobody, PAGE, 0);
	expect(fd, 0, "nobody has a limit of its own");
	expect(dev_alloc(nobody, was.info.user_bytes + PAGE, 0), -ENOMEM, "which holds too");
	parameter_set("max_user_bytes", 0);
	parameter_set("max_bytes", was.info.bytes + PAGE);
	expect(dev_alloc(given.dev, PAGE, 0), -ENOMEM, "root, where nobody took the last page of all");
	parameter_set("max_bytes", 0);
	close(fd);
	close(nobody);
	state_same(given.dev, &was);
	point("users", "have limits of their own, and one together");
}

/* The tree of users, in an order that goes both ways. */
static void many_users(void)
{
	static const uid_t uids[] = { 1000, 500, 2000, 1500, 300, 700, 1000, 1500 };
	const unsigned int nr = sizeof(uids) / sizeof(uids[0]);
	struct state was = state_now(given.dev);
	int devs[sizeof(uids) / sizeof(uids[0])], fds[sizeof(uids) / sizeof(uids[0])];
	struct pinion_info info;

	for (unsigned int i = 0; i < nr; i++) {
		devs[i] = open_as(uids[i], O_RDWR);
		fds[i] = dev_alloc(devs[i], (i + 1) * PAGE, 0);
		expect(fds[i], 0, "ALLOC of user %u", uids[i]);
	}
	for (unsigned int i = 0; i < nr; i++) {
		uint64_t want = 0;

		for (unsigned int k = 0; k < nr; k++)
			want += uids[k] == uids[i] ? (k + 1) * PAGE : 0;
		expect(dev_info(devs[i], &info), 0, "INFO");
		if (info.user_bytes != want)
			wrong("user %u has %llu bytes, not %lu", uids[i], info.user_bytes, want);
	}
	for (unsigned int i = 0; i < nr; i++) {
		close(devs[i]);
		close(fds[nr - 1 - i]);
	}
	state_same(given.dev, &was);
	point("users", "many are told apart");
}

/* ---- RLIMIT_MEMLOCK -------------------------------------------------------------------------------------------------- */

static void memlock_set(uint64_t bytes)
{
	struct rlimit limit = { bytes, bytes };

	if (setrlimit(RLIMIT_MEMLOCK, &limit))
		wrong("setrlimit: %s", strerror(errno));
}

static void in_child(void (*body)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		body();
		_exit(tap_failed > 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		wrong("the child did not end well");
	/* Its points are ours. */
	tap_points += 1;
}

static void memlock_of_nobody(void)
{
	struct pinion_info info;
	int fd, dev, fds[2];
	char byte;
	pid_t pid;

	memlock_set(MIB);
	if (setresuid(NOBODY, NOBODY, NOBODY))
		wrong("setresuid: %s", strerror(errno));
	dev = dev_open(O_RDWR);
	expect(dev, 0, "open as nobody");
	expect(dev_info(dev, &info), 0, "INFO");
	if (info.memlock_bytes != MIB || !(info.features & PINION_FEATURE_MEMLOCK) || info.user_bytes)
		wrong("INFO says memlock %llu, in use %llu", info.memlock_bytes, info.user_bytes);
	expect(dev_alloc(dev, 2 * MIB, 0), -ENOMEM, "2 MiB");
	expect(dev_alloc(dev, MIB + 1, 0), -ENOMEM, "a byte more than the limit");
	fd = dev_alloc(dev, MIB, 0);
	expect(fd, 0, "1 MiB");
	expect(dev_info(dev, &info), 0, "INFO");
	if (info.user_bytes != MIB)
		wrong("INFO says %llu bytes in use", info.user_bytes);
	expect(dev_alloc(dev, PAGE, 0), -ENOMEM, "a page more");
	expect(dev_pin(dev, given.range, PAGE), -ENOMEM, "PIN of a page");
	expect(dev_pin_fd(dev, given.memfd, 0, PAGE, NULL), -ENOMEM, "PIN of a memfd's page");
	/* Whoever holds the buffer, its maker is charged until it is gone. */
	if (pipe2(fds, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	pid = fork();
	if (!pid) {
		close(fds[1]);
		_exit(read(fds[0], &byte, 1) != 0);
	}
	close(fds[0]);
	close(fd);
	expect(dev_alloc(dev, PAGE, 0), -ENOMEM, "a page, while a child holds the buffer");
	close(fds[1]);
	waitpid(pid, NULL, 0);
	expect(dev_info(dev, &info), 0, "INFO");
	if (info.user_bytes)
		wrong("INFO says %llu bytes in use at the end", info.user_bytes);
	fd = dev_alloc(dev, MIB, 0);
	expect(fd, 0, "1 MiB again");
	close(fd);
	memlock_set(0);
	expect(dev_alloc(dev, PAGE, 0), -ENOMEM, "a page with no limit left");
	close(dev);
	point("memlock", "of a user with a limit of 1 MiB");
}

/* What another limit refuses is not left charged: it would be used up in the end. */
static void memlock_given_back(void)
{
	int dev, fd;

	memlock_set(MIB);
	if (setresuid(NOBODY, NOBODY, NOBODY))
		wrong("setresuid: %s", strerror(errno));
	dev = dev_open(O_RDWR);
	for (unsigned int i = 0; i < MIB / PAGE; i++)
		expect(dev_alloc(dev, 2 * PAGE, 0), -ENOMEM, "a page above max_user_bytes");
	fd = dev_alloc(dev, PAGE, 0);
	expect(fd, 0, "a page, after many that were refused");
	close(fd);
	close(dev);
	point("memlock", "is given back where another limit refuses");
}

static void memlock_charged(void)
{
	struct state was = state_now(given.dev);
	int fd;

	if (was.info.memlock_bytes != ~0ULL || !(was.info.features & PINION_FEATURE_MEMLOCK))
		wrong("INFO of root says memlock %llu", was.info.memlock_bytes);
	memlock_set(PAGE);
	fd = dev_alloc(given.dev, 4 * MIB, 0);
	expect(fd, 0, "root, who has CAP_IPC_LOCK");
	close(fd);
	all_refused(0, true, "the capability");
	memlock_set(RLIM_INFINITY);
	state_same(given.dev, &was);
	point("memlock", "of root is no limit");
	in_child(memlock_of_nobody);
	parameter_set("max_user_bytes", PAGE);
	in_child(memlock_given_back);
	parameter_set("max_user_bytes", 0);
	state_same(given.dev, &was);
	point("memlock", "leaves nothing behind");
}

static void little_memlock(void)
{
	struct pinion_info info;
	int dev, fd;

	memlock_set(0);
	if (setresuid(NOBODY, NOBODY, NOBODY))
		wrong("setresuid: %s", strerror(errno));
	dev = dev_open(O_RDWR);
	fd = dev_alloc(dev, 4 * MIB, 0);
	expect(fd, 0, "4 MiB with RLIMIT_MEMLOCK 0");
	expect(dev_info(dev, &info), 0, "INFO");
	if (info.memlock_bytes != ~0ULL || info.features & PINION_FEATURE_MEMLOCK)
		wrong("INFO says memlock %llu", info.memlock_bytes);
	point("memlock", "is not charged unless it is asked for");
}

int main(int argc, char **argv)
{
	bool memlock = argc > 1 && !strcmp(argv[1], "memlock");
	struct state start;
	int dev = dev_open(O_RDWR);

	if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
		return tap_end();
	start = state_now(dev);
	close(dev);
	if (!given_open())
		return tap_end();
	if (memlock) {
		memlock_charged();
	} else {
		bytes_limit("max_user_bytes", true);
		bytes_limit("max_bytes", false);
		buffers_limit();
		parameters();
		two_users();
		many_users();
		in_child(little_memlock);
	}
	given_close(&start);
	return tap_end();
}
