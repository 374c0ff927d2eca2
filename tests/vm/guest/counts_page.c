// SPDX-License-Identifier: MIT
/* What the pages of Documentation/ say of counts beyond the main path, and the program of examples/uapi. */
#include "dev_counts.h"
#include "tap.h"
#include "until.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#define main pending_main
#include "../../../Documentation/examples/uapi/pending.c"
#undef main

static struct pinion_dev device;
static int dev;

/* What pending.c prints for a key, in a process of its own; its status in *status. */
static long pending(const char *key, int *status)
{
	char *argv[] = { "pending", (char *)key, NULL };
	char text[64] = "";
	int out[2], pid;

	if (pipe(out))
		return -1;
	fflush(stdout);
	pid = fork();
	if (!pid) {
		dup2(out[1], 1);
		exit(pending_main(2, argv));
	}
	close(out[1]);
	waitpid(pid, status, 0);
	if (read(out[0], text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(out[0]);
	return strtol(text, NULL, 10);
}

static void the_example(void)
{
	struct pinion_attach lane;
	int second = dev_open(O_RDWR), status = -1;
	long units;

	if (!tap_ok(dev_attach(second, &device, 100, &lane) == 0 &&
			    dev_count(second, lane.handle, 42, 42, PINION_PARITY_NOW) >= 0,
		    "42 units begin", "-"))
		return;
	units = pending("counts-page", &status);
	tap_ok(units == 42 && status == 0, "the example prints them", "%ld, status %x", units, status);
	close(second);
	units = pending("counts-page", &status);
	tap_ok(units == 0 && status == 0, "and nothing when they are gone", "%ld, status %x", units, status);
	pending("no-such", &status);
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == 1, "and fails for a key that nobody added", "status %x", status);
}

/* Units of a lane that was given back stay in the bounds of the session that has them. */
static void bounds_of_lanes_given_back(void)
{
	int second = dev_open(O_RDWR);
	struct pinion_counter_page *page = dev_counters(second);
	struct pinion_attach a, b, c;
	struct pinion_reading row;
	int ret;

	if (!tap_ok(page != MAP_FAILED && !dev_attach(second, &device, 2, &a) && !dev_attach(second, &device, 1, &b), "two lanes",
		    "-"))
		return;
	page_begin(page, &a);
	page_begin(page, &a);
	page_begin(page, &b);
	tap_ok(dev_handle(second, PINION_IOC_DETACH, a.handle) == 0 && !dev_attach(second, &device, 1, &c),
	       "one is changed for less", "-");
	ret = dev_reading(dev, &device, &row);
	tap_ok(!ret && row.low == 3 && row.high == 3 && !row.marked, "what is in flight on it counts on, and nobody is marked",
	       "%llu %llu, %u marked", (unsigned long long)row.low, (unsigned long long)row.high, row.marked);
	close(second);
	munmap(page, PAGE);
}

/* Who has the watch in an edge-triggered set and reads once does not poll again: still each change is told. */
static void edges(void)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	struct pinion_counter_page *page = dev_counters(dev);
	int set = epoll_create1(0), watch, n, told = 0, round;
	struct pinion_event seen;
	struct pinion_reading row;
	struct pinion_attach lane;

	if (!tap_ok(page != MAP_FAILED && !dev_attach(dev, &device, 100, &lane) && !dev_reading(dev, &device, &row), "a lane",
		    "-"))
		return;
	watch = dev_watch(dev, &device, PINION_SCOPE_EVERY, PINION_COND_CHANGED, row.cookie);
	epoll_ctl(set, EPOLL_CTL_ADD, watch, &event);
	for (round = 0; round < 5; round++) {
		/* No kick: what is armed or not, somebody looks. */
		page_begin(page, &lane);
		n = epoll_wait(set, &event, 1, PATIENCE_MS);
		told += n == 1 && read(watch, &seen, sizeof(seen)) == sizeof(seen);
	}
	tap_ok(told == 5, "every change is told to an edge-triggered epoll", "%d of 5", told);
	close(set);
	close(watch);
	dev_handle(dev, PINION_IOC_RESET, lane.handle);
	dev_handle(dev, PINION_IOC_DETACH, lane.handle);
}

/* A wait for few in flight says how many of them died. They die when it sleeps. */
static void lost(void)
{
	struct pinion_attach lane;
	struct pinion_wait wait;
	int ready[2], pid, ret;
	char c = 0;

	if (pipe(ready))
		return;
	pid = fork();
	if (!pid) {
		int fd = dev_open(O_RDWR);
		struct pinion_info info;

		if (dev_attach(fd, &device, 100, &lane) || dev_count(fd, lane.handle, 3, 3, PINION_PARITY_NOW) < 0 ||
		    write(ready[1], "x", 1) < 0)
			_exit(1);
		if (!eventually(!dev_info(fd, &info) && info.user_watches) || !until_asleep(getppid()))
			_exit(2);
		kill(getpid(), SIGKILL);
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		c = 0;
	ret = dev_wait(dev, &device, PINION_SCOPE_USER, PINION_COND_PENDING_LE, 0, now_ns() + 2 * PATIENCE_MS * 1000000LL, &wait);
	tap_ok(c && !ret && wait.lost == 3 && !wait.high, "PENDING_LE says what was lost", "%d, %llu", ret,
	       (unsigned long long)wait.lost);
	waitpid(pid, NULL, 0);
	close(ready[0]);
}

/* Removed from under another's session: not charged any more, and who polls for nothing but the end is told. */
static void removal(void)
{
	struct pinion_attach lane;
	struct pinion_info before, after;
	struct pinion_dev victim;
	int second = dev_open(O_RDWR), watch, pid, ret, status = -1;

	if (!tap_ok(!dev_info(dev, &before) && !dev_add(dev, "counts-victim", &victim) && !dev_attach(second, &victim, 1, &lane),
		    "a device with another's session", "-"))
		return;
	watch = dev_watch(dev, &victim, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0);
	dev_count(second, lane.handle, 1, 1, PINION_PARITY_NOW);
	pid = fork();
	if (!pid) {
		struct pollfd poller = { .fd = dev_watch(dev, &victim, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0) };

		/* At its deadline poll() would look once more by itself. */
		alarm(2 * PATIENCE_S);
		_exit(!(poll(&poller, 1, -1) == 1 && poller.revents == (POLLERR | POLLHUP)));
	}
	/* Asleep beside this one's watch with one of its own: it polls that. */
	tap_ok(eventually(!dev_info(dev, &after) && after.user_watches == 2) && until_asleep(pid), "another polls", "%u watches",
	       after.user_watches);
	tap_ok(dev_del(dev, &victim, 0) == -EBUSY && dev_del(dev, &victim, PINION_DEL_FORCE) == 0, "goes by force alone", "-");
	waitpid(pid, &status, 0);
	tap_ok(status == 0, "and a poll for no event ends with POLLERR and POLLHUP", "status %x", status);
	ret = dev_info(dev, &after);
	tap_ok(!ret && after.user_devices == before.user_devices, "its user may have another at once", "%u, %u before",
	       after.user_devices, before.user_devices);
	tap_ok(dev_count(second, lane.handle, -1, -1, 0) == -ESTALE && dev_handle(second, PINION_IOC_DETACH, lane.handle) >= 0,
	       "a handle is stale, and can be given back", "-");
	close(watch);
	close(second);
}

int main(void)
{
	struct pinion_info info;

	dev = dev_open(O_RDWR);
	if (!tap_ok(dev_add(dev, "counts-page", &device) == 0, "a device", "-"))
		return tap_end();
	the_example();
	bounds_of_lanes_given_back();
	edges();
	lost();
	removal();
	if (dev_info(dev, &info))
		info.user_claims = ~0U;
	tap_ok(info.user_claims == 0 && info.user_watches == 0 && info.user_sessions == 1 && info.user_devices == 1,
	       "nothing is left", "%u %u %u %u", info.user_claims, info.user_watches, info.user_sessions, info.user_devices);
	return tap_end();
}
