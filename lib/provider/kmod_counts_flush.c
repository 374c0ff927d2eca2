/* SPDX-License-Identifier: MIT */
/*
 * kmod counts flush: a watch, which begins with the call and keeps what it has seen. WAIT would begin anew after each signal that
 * the caller handles, and then wait for what was submitted meanwhile.
 */
#include "kmod_counts.h"

#include "../advice.h"
#include "../deadline.h"
#include "../error.h"
#include "kmod.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static uint32_t scope_of(bool mine)
{
	return mine ? PINION_SCOPE_SESSION : PINION_SCOPE_EVERY;
}

int kmod_watch(struct counts *c, const struct counts_device *dev, bool mine, int *fd)
{
	struct pinion_watch args = { .size = sizeof(args),
				     .index = dev->index,
				     .scope = scope_of(mine),
				     .generation = dev->generation,
				     .cond = PINION_COND_FLUSH };
	struct pinion_info info;
	int ret = kmod_call(c, PINION_IOC_WATCH, &args);

	switch (ret) {
	case 0:
		*fd = args.fd;
		return 0;
	case -ESTALE:
		return kmod_stale(dev);
	case -ENOSPC:
		if (!kmod_info(c->kmod->device->fd, &info))
			return fail_advise(ENOSPC, PINION_ADVICE_MODULE_USER_LIMIT, "max_user_watches",
					   "this user waits with %u watches, as many as the module allows", info.user_watches);
		/* fall through */
	default:
		return fail_errno(-ret, "waiting for '%s'", kmod_key(c, dev).s);
	}
}

/* Whether the watch has seen what it was made for, by the deadline. */
static int await(int fd, int64_t deadline_ns)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		int64_t left = deadline_ns == INT64_MAX ? INT64_MAX : deadline_ns <= 0 ? 0 : deadline_ns - deadline_now();
		struct timespec ts = deadline_timespec(left);
		int n = ppoll(&p, 1, left == INT64_MAX ? NULL : &ts, NULL);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return fail_errno(errno, "waiting for a device");
		if (!n && left <= 0)
			return -ETIMEDOUT;
	}
}

static int timed_out(struct counts *c, const struct counts_device *dev, uint32_t scope)
{
	struct pinion_wait args = { .size = sizeof(args),
				    .index = dev->index,
				    .scope = scope,
				    .generation = dev->generation,
				    .cond = PINION_COND_PENDING_LE };
	char culprit[80] = "";

	/* What it waits for most is told by a wait whose deadline has passed. */
	if (kmod_call(c, PINION_IOC_WAIT, &args) == -ETIMEDOUT && args.culprit_pid)
		snprintf(culprit, sizeof(culprit), ", most of them, %u, of process %d", args.culprit_units, args.culprit_pid);
	return fail(ETIMEDOUT, "units submitted before the flush are still in flight; there are %llu now%s",
		    (unsigned long long)args.high, culprit);
}

int kmod_watch_take(int fd, uint64_t *lost)
{
	struct pinion_event event;
	ssize_t n;

	do
		n = read(fd, &event, sizeof(event));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(event))
		return fail_errno(n < 0 ? errno : EPROTO, "reading what became of a flush");
	if (event.status)
		return fail(ESTALE, "the device was removed while it was flushed");
	if (lost)
		*lost = event.lost;
	return 0;
}

int kmod_flush(struct counts *c, const struct counts_device *dev, bool mine, int64_t deadline_ns, uint64_t *lost)
{
	int fd = -1, ret;

	if (!counts_device_current(dev))
		return kmod_stale(dev);
	if (!dev->has_queue) {
		if (lost)
			*lost = 0;
		return 0;
	}
	ret = kmod_watch(c, dev, mine, &fd);
	if (ret)
		return ret;
	ret = await(fd, deadline_ns);
	if (ret == -ETIMEDOUT)
		ret = timed_out(c, dev, scope_of(mine));
	else if (!ret)
		ret = kmod_watch_take(fd, lost);
	close(fd);
	return ret;
}
