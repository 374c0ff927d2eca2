/* SPDX-License-Identifier: MIT */
/* io_uring by its system calls: entries are filled, submitted together, and completions come with a time limit. */
#ifndef PINION_VM_RING_H
#define PINION_VM_RING_H

#include "dev.h"
#include "until.h"

#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <stdbool.h>
#include <sys/syscall.h>

#define RING	     __attribute__((unused)) static
#define RING_ENTRIES 64
#define RING_SQES    (RING_ENTRIES * sizeof(struct io_uring_sqe))
#define RING_NOTHING (-100000) /* no completion came */

struct ring {
	int fd;
	struct io_uring_params params;
	char *sq, *cq;
	struct io_uring_sqe *sqe;
	unsigned int filled;
};

RING unsigned int *ring_word(char *at, unsigned int offset)
{
	return (unsigned int *)(at + offset);
}

RING void ring_close(struct ring *r)
{
	if (r->sq != MAP_FAILED)
		munmap(r->sq, PAGE);
	if (r->cq != MAP_FAILED)
		munmap(r->cq, PAGE);
	if ((void *)r->sqe != MAP_FAILED)
		munmap(r->sqe, RING_SQES);
	if (r->fd >= 0)
		close(r->fd);
}

RING int ring_open(struct ring *r, unsigned int flags)
{
	memset(r, 0, sizeof(*r));
	r->params.flags = flags;
	r->params.sq_thread_idle = 100;
	r->sq = r->cq = MAP_FAILED;
	r->sqe = MAP_FAILED;
	r->fd = (int)syscall(SYS_io_uring_setup, RING_ENTRIES, &r->params);
	if (r->fd < 0)
		return -errno;
	fcntl(r->fd, F_SETFD, FD_CLOEXEC);
	r->sq = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_CQ_RING);
	r->sqe = mmap(NULL, RING_SQES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	if (r->sq != MAP_FAILED && r->cq != MAP_FAILED && (void *)r->sqe != MAP_FAILED)
		return 0;
	ring_close(r);
	return -ENOMEM;
}

/* The next entry, zeroed. */
RING struct io_uring_sqe *ring_next(struct ring *r, int op, int fd, uint64_t name)
{
	unsigned int slot = (*ring_word(r->sq, r->params.sq_off.tail) + r->filled++) & (r->params.sq_entries - 1);
	struct io_uring_sqe *sqe = &r->sqe[slot];

	ring_word(r->sq, r->params.sq_off.array)[slot] = slot;
	*sqe = (struct io_uring_sqe){ .opcode = op, .fd = fd, .user_data = name };
	return sqe;
}

/* The thread that polls for entries has to be woken. */
RING bool ring_sleeps(const struct ring *r)
{
	return __atomic_load_n(ring_word(r->sq, r->params.sq_off.flags), __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP;
}

/* How many were taken, or -errno. */
RING int ring_submit(struct ring *r)
{
	unsigned int *tail = ring_word(r->sq, r->params.sq_off.tail), n = r->filled, flags = 0;
	int ret;

	__atomic_store_n(tail, *tail + n, __ATOMIC_RELEASE);
	r->filled = 0;
	if (r->params.flags & IORING_SETUP_SQPOLL) {
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (ring_sleeps(r))
			flags = IORING_ENTER_SQ_WAKEUP;
		else
			return n;
	}
	ret = (int)syscall(SYS_io_uring_enter, r->fd, n, 0, flags, NULL, 0);
	return ret < 0 ? -errno : ret;
}

RING bool ring_take(struct ring *r, struct io_uring_cqe *out)
{
	unsigned int *head = ring_word(r->cq, r->params.cq_off.head), at = *head;
	const struct io_uring_cqe *cqes = (const struct io_uring_cqe *)(r->cq + r->params.cq_off.cqes);

	if (at == __atomic_load_n(ring_word(r->cq, r->params.cq_off.tail), __ATOMIC_ACQUIRE))
		return false;
	*out = cqes[at & (r->params.cq_entries - 1)];
	__atomic_store_n(head, at + 1, __ATOMIC_RELEASE);
	return true;
}

/* The next completion within @ms; false: none. */
RING bool ring_wait(struct ring *r, struct io_uring_cqe *out, unsigned int ms)
{
	const double late = until_clock() + ms / 1e3;
	bool took;

	/* It may return for less: work for this task, a signal. */
	while (!(took = ring_take(r, out)) && until_clock() < late) {
		double left = late - until_clock();
		struct __kernel_timespec limit = { .tv_sec = left, .tv_nsec = (left - (long)left) * 1e9 };
		struct io_uring_getevents_arg arg = { .ts = (uintptr_t)&limit };

		syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof(arg));
	}
	return took || ring_take(r, out);
}

/* Submits; the result of the one entry, whatever its name. */
RING int ring_do(struct ring *r)
{
	struct io_uring_cqe cqe;
	int ret = ring_submit(r);

	if (ret < 0)
		return ret;
	return ring_wait(r, &cqe, PATIENCE_MS) ? cqe.res : RING_NOTHING;
}

#endif
