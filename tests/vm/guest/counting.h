/* SPDX-License-Identifier: MIT */
/* What programs about counts share: users, processes, sums, and what went wrong in a process that is not the first. */
#ifndef PINION_VM_COUNTING_H
#define PINION_VM_COUNTING_H

#include "dev_counts.h"
#include "dice.h"
#include "mem.h"
#include "state.h"
#include "until.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#define COUNTING __attribute__((unused)) static
#define NOBODY	 65534
#define DAEMON	 2

/* ---- what other processes found ------------------------------------------------------------------------------------ */

static struct {
	_Atomic int said;
	char why[256];
} * complaint;

COUNTING void *shared_memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		printf("not ok - %zu bytes of shared memory\n", bytes);
		exit(1);
	}
	return at;
}

/* The first stays. */
COUNTING __attribute__((format(printf, 1, 2))) void complain(const char *why, ...)
{
	va_list args;

	if (atomic_exchange(&complaint->said, 1))
		return;
	va_start(args, why);
	vsnprintf(complaint->why, sizeof(complaint->why), why, args);
	va_end(args);
}

COUNTING void complaints(void)
{
	if (complaint->said)
		wrong("%s", complaint->why);
	complaint->said = 0;
}

/* ---- users and processes ------------------------------------------------------------------------------------------- */

/* As @uid for the kernel to look at, root again after. */
COUNTING int open_as(uid_t uid, int flags)
{
	int fd;

	if (setresuid(uid, uid, 0))
		wrong("setresuid: %s", strerror(errno));
	fd = dev_open(flags);
	if (setresuid(0, 0, 0))
		wrong("setresuid: %s", strerror(errno));
	return expect(fd, 0, "open as %u", uid) ? fd : -1;
}

/* A child's process is ended and waited for. */
COUNTING void end_process(pid_t pid)
{
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

COUNTING void say(int fd, const void *what, size_t bytes)
{
	if (write(fd, what, bytes) != (ssize_t)bytes)
		_exit(9);
}

COUNTING bool hear(int fd, void *what, size_t bytes)
{
	size_t have = 0;
	ssize_t n = 0;

	while (have < bytes && ((n = read(fd, (char *)what + have, bytes - have)) > 0 || (n < 0 && errno == EINTR)))
		have += n > 0 ? n : 0;
	if (have < bytes)
		wrong("a process said nothing");
	return have == bytes;
}

/* ---- sums ---------------------------------------------------------------------------------------------------------- */

/* What is in flight, where nothing moves; below 0: an error, or it moved. */
COUNTING int64_t in_flight(int dev, const struct pinion_dev *device)
{
	struct pinion_reading row;
	int ret = dev_reading(dev, device, &row);

	if (ret)
		return ret;
	return row.low == row.high ? (int64_t)row.high : -EAGAIN;
}

COUNTING bool expect_in_flight(int dev, const struct pinion_dev *device, int64_t want, const char *when)
{
	int64_t is = in_flight(dev, device);

	if (is == want)
		return true;
	wrong("%s: %lld in flight, not %lld", when, (long long)is, (long long)want);
	return false;
}

/* Milliseconds until so much is in flight; below 0: it never is. */
COUNTING double in_flight_late(int dev, const struct pinion_dev *device, int64_t want)
{
	double from = mem_clock();

	return eventually(in_flight(dev, device) == want) ? (mem_clock() - from) * 1e3 : -1;
}

/* ---- waits ---------------------------------------------------------------------------------------------------------- */

/* A process that waits, with an open of ours. */
struct waiting {
	pid_t pid;
	int talk;
};

struct waited {
	int ret;
	int64_t ended_ns;
	struct pinion_wait wait;
};

/* It sleeps when this returns: what comes then comes while it waits. */
COUNTING void waiting_start(struct waiting *w, int fd, const struct pinion_dev *device, uint32_t scope, uint32_t cond,
			    uint64_t value, int64_t deadline_ns)
{
	struct waited waited = { 0 };
	int talk[2];

	if (pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	w->pid = fork();
	if (!w->pid) {
		waited.ret = dev_wait(fd, device, scope, cond, value, deadline_ns, &waited.wait);
		waited.ended_ns = now_ns();
		say(talk[1], &waited, sizeof(waited));
		_exit(0);
	}
	close(talk[1]);
	w->talk = talk[0];
	if (!until_asleep(w->pid))
		wrong("a wait does not begin");
}

COUNTING bool waiting_still(struct waiting *w)
{
	struct pollfd p = { .fd = w->talk, .events = POLLIN };

	return !poll(&p, 1, 50);
}

COUNTING struct waited waiting_end(struct waiting *w)
{
	struct waited waited = { .ret = -1000 };
	struct pollfd p = { .fd = w->talk, .events = POLLIN };

	if (poll(&p, 1, PATIENCE_MS) == 1)
		hear(w->talk, &waited, sizeof(waited));
	else
		wrong("a wait does not return");
	end_process(w->pid);
	close(w->talk);
	return waited;
}

/* ---- the end ------------------------------------------------------------------------------------------------------- */

COUNTING bool use_same(const struct pinion_info *a, const struct pinion_info *b)
{
	return a->user_devices == b->user_devices && a->user_sessions == b->user_sessions && a->user_claims == b->user_claims &&
	       a->user_watches == b->user_watches && a->buffers == b->buffers && a->bytes == b->bytes;
}

/* Descriptors of the dead are closed by whoever has time for it. */
COUNTING void use_again(int dev, const struct pinion_info *was, const char *whose)
{
	struct pinion_info now = { 0 };

	if (eventually(!dev_info(dev, &now) && use_same(was, &now)))
		return;
	wrong("%s: %u devices, %u sessions, %u claims, %u watches, %llu buffers, not %u, %u, %u, %u, %llu", whose,
	      now.user_devices, now.user_sessions, now.user_claims, now.user_watches, now.buffers, was->user_devices,
	      was->user_sessions, was->user_claims, was->user_watches, was->buffers);
}

#endif
