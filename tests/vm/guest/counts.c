// SPDX-License-Identifier: MIT
/* The main path of devices, sessions, readings, claims, waits and watches. */
#include "dev_counts.h"
#include "tap.h"
#include "until.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>

static struct pinion_dev device;
static int dev;

static uint64_t high(void)
{
	struct pinion_reading row;
	int ret = dev_reading(dev, &device, &row);

	return ret ? (uint64_t)ret : row.low == row.high ? row.high : ~0ULL;
}

static void devices(void)
{
	struct pinion_dev again, other;
	int second = dev_open(O_RDWR);
	int ret = dev_add(dev, "counts-test", &device);

	tap_ok(!ret && device.flags == PINION_DEV_CREATED && device.generation, "a device is added", "%d", ret);
	ret = dev_add(second, "counts-test", &again);
	tap_ok(!ret && !again.flags && again.generation == device.generation, "and found by its key", "%d", ret);
	ret = dev_get(second, "no-such", &other);
	tap_ok(ret == -ENOENT, "another is not there", "%d", ret);
	close(second);
	ret = dev_get(dev, "counts-test", &other);
	tap_ok(!ret && other.index == device.index, "it stays while its first open does", "%d", ret);
}

/* A child with units in the page and by ADD, killed: out of the sum when waitpid() returns. */
static void death(void)
{
	struct pinion_attach lane;
	int ready[2], pid, fd;
	char c;

	if (pipe(ready))
		return;
	pid = fork();
	if (!pid) {
		struct pinion_counter_page *page;

		fd = dev_open(O_RDWR);
		page = dev_counters(fd);
		if (page == MAP_FAILED || dev_attach(fd, &device, 100, &lane))
			_exit(1);
		page_begin(page, &lane);
		page_begin(page, &lane);
		dev_count(fd, lane.handle, 3, 3, PINION_PARITY_NOW);
		if (write(ready[1], "x", 1) < 0)
			_exit(1);
		pause();
	}
	close(ready[1]);
	if (read(ready[0], &c, 1) != 1)
		c = 0;
	close(ready[0]);
	tap_ok(high() == 5, "a child's units count", "%llu", (unsigned long long)high());
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	tap_ok(high() == 0, "and are gone when it is", "%llu", (unsigned long long)high());
}

static void waits(void)
{
	struct pinion_counter_page *page = dev_counters(dev);
	struct pinion_attach lane;
	struct pinion_wait wait;
	struct pinion_event event;
	struct pollfd poller = { .events = POLLIN };
	int ret = dev_attach(dev, &device, 100, &lane);
	uint32_t parity;

	if (!tap_ok(page != MAP_FAILED && !ret, "a lane", "%d", ret))
		return;
	parity = page_begin(page, &lane);
	ret = dev_wait(dev, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 20000000, &wait);
	tap_ok(ret == -ETIMEDOUT && wait.culprit_pid == getpid() && wait.high == 1, "a flush waits for a unit", "%d %d", ret,
	       wait.culprit_pid);
	page_end(dev, page, &lane, parity);
	ret = dev_wait(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0, 0, &wait);
	tap_ok(!ret && !wait.high, "and nothing waits for nothing", "%d", ret);
	parity = page_begin(page, &lane);
	poller.fd = dev_watch(dev, &device, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0);
	tap_ok(poller.fd >= 0 && poll(&poller, 1, 20) == 0, "a watch too", "%d", poller.fd);
	/* Work goes on meanwhile. */
	page_begin(page, &lane);
	page_end(dev, page, &lane, parity);
	ret = poll(&poller, 1, PATIENCE_MS);
	tap_ok(ret == 1 && poller.revents == POLLIN, "which ends with it, whatever began since", "%d %x", ret, poller.revents);
	ret = ret == 1 ? read(poller.fd, &event, sizeof(event)) : 0;
	tap_ok(ret == sizeof(event) && !event.status && event.high == 1, "and says what is in flight", "%d", ret);
	close(poller.fd);
	tap_ok(dev_handle(dev, PINION_IOC_RESET, lane.handle) == 1 && high() == 0, "a reset forgets the rest", "%llu",
	       (unsigned long long)high());
	tap_ok(dev_handle(dev, PINION_IOC_DETACH, lane.handle) == 0, "the lane goes back", "-");
	tap_ok(dev_handle(dev, PINION_IOC_KICK, lane.handle) == -EINVAL, "and its handle is none any more", "-");
}

static void claims(void)
{
	int a = dev_reserve(dev, &device, 768 << 10, 1, 0), b = dev_reserve(dev, &device, 512 << 10, 0, 0);
	const struct pinion_info_device *line = (void *)(dev_info_page(dev) + 1 + device.index);

	tap_ok(a >= 0 && b == -ENOSPC, "claims fit the budget", "%d %d", a, b);
	tap_ok(line->generation == device.generation && line->claimed_bytes == 768 << 10 && line->claims == 1,
	       "the info page shows them", "%llu", (unsigned long long)line->claimed_bytes);
	tap_ok(dev_reserve(dev, &device, 0, 0, PINION_RESERVE_EXCLUSIVE) == -EBUSY, "all of it is not to be had", "-");
	close(a);
	b = dev_reserve(dev, &device, 0, 0, PINION_RESERVE_EXCLUSIVE);
	tap_ok(b >= 0 && line->claimed_bytes == ~0ULL, "but when the last close gave it back", "%d", b);
	tap_ok(dev_del(dev, &device, 0) == 0, "one's own device can be removed", "-");
	tap_ok(high() == (uint64_t)-ESTALE, "and is stale then", "-");
	close(b);
}

int main(void)
{
	struct pinion_info info;

	dev = dev_open(O_RDWR);
	devices();
	death();
	waits();
	claims();
	tap_ok(!dev_info(dev, &info) && info.user_claims == 0 &&
		       info.user_watches == 0 && info.user_sessions == 1,
	       "nothing is left", "%u %u %u", info.user_claims, info.user_watches, info.user_sessions);
	return tap_end();
}
