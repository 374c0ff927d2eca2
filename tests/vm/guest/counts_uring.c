// SPDX-License-Identifier: MIT
/* ADD, READ and WAIT by io_uring, counted chains, and polls of watches: results, cancelling, and that nothing is left. */
#define _GNU_SOURCE
#include "counting.h"
#include "ring.h"

#include <poll.h>
#include <stddef.h>

#define INFLIGHT 4 /* of the lane */

static struct pinion_dev device;
static int dev, read_only;
static struct pinion_attach lane;
static bool waits; /* this kernel cancels commands */

/* ---- commands ------------------------------------------------------------------------------------------------------ */

static struct io_uring_sqe *command(struct ring *r, int fd, uint32_t op, uint64_t name)
{
	struct io_uring_sqe *sqe = ring_next(r, IORING_OP_URING_CMD, fd, name);

	sqe->cmd_op = op;
	return sqe;
}

static struct io_uring_sqe *add(struct ring *r, int fd, uint32_t handle, int32_t ops, uint32_t parity, uint64_t name)
{
	struct io_uring_sqe *sqe = command(r, fd, PINION_URING_ADD, name);
	const struct pinion_uring_add payload = { .handle = handle, .ops = ops, .cost = ops, .parity = parity };

	memcpy((char *)sqe + offsetof(struct io_uring_sqe, addr3), &payload, sizeof(payload));
	return sqe;
}

static struct io_uring_sqe *call_at(struct ring *r, int fd, uint32_t op, const void *args, uint64_t name)
{
	struct io_uring_sqe *sqe = command(r, fd, op, name);
	const struct pinion_uring_call payload = { .address = (uintptr_t)args };

	memcpy((char *)sqe + offsetof(struct io_uring_sqe, addr3), &payload, sizeof(payload));
	return sqe;
}

static struct pinion_read read_args(struct pinion_reading *row)
{
	*row = (struct pinion_reading){ .index = device.index, .generation = device.generation };
	return (struct pinion_read){
		.size = sizeof(struct pinion_read), .rows = (uintptr_t)row, .count = 1, .row_size = sizeof(*row)
	};
}

static struct pinion_wait wait_args(uint32_t scope, uint32_t cond, uint64_t value, int64_t deadline_ns)
{
	return (struct pinion_wait){ .size = sizeof(struct pinion_wait),
				     .index = device.index,
				     .scope = scope,
				     .generation = device.generation,
				     .cond = cond,
				     .value = value,
				     .deadline_ns = deadline_ns };
}

static struct io_uring_sqe *poll_add(struct ring *r, int fd, uint64_t name)
{
	struct io_uring_sqe *sqe = ring_next(r, IORING_OP_POLL_ADD, fd, name);

	sqe->poll32_events = POLLIN;
	return sqe;
}

static bool open_ring(struct ring *r, unsigned int flags)
{
	return expect(ring_open(r, flags), 0, "io_uring_setup with %x", flags);
}

/* The completions of @n entries by name, from 1 on. */
static void results(struct ring *r, int *res, unsigned int n, unsigned int ms)
{
	struct io_uring_cqe cqe;

	for (unsigned int i = 0; i <= n; i++)
		res[i] = RING_NOTHING;
	for (unsigned int i = 0; i < n && ring_wait(r, &cqe, ms); i++) {
		if (cqe.user_data < 1 || cqe.user_data > n || res[cqe.user_data] != RING_NOTHING)
			wrong("a completion %llu", cqe.user_data);
		else
			res[cqe.user_data] = cqe.res;
	}
}

static uint32_t parity_now(void)
{
	int parity = dev_count(dev, lane.handle, 1, 1, PINION_PARITY_NOW);

	dev_count(dev, lane.handle, -1, -1, parity);
	return parity & 1;
}

/* ---- inline -------------------------------------------------------------------------------------------------------- */

/* @sqe_flags are of each entry; @fd may be an index. */
static void counts_and_reads(struct ring *r, int fd, unsigned int sqe_flags, const char *how)
{
	struct pinion_reading row;
	struct pinion_read args = read_args(&row);

	add(r, fd, lane.handle, 3, 1, 1)->flags = sqe_flags;
	expect(ring_do(r), 0, "%s: ADD", how);
	expect_in_flight(dev, &device, 3, how);
	call_at(r, fd, PINION_URING_READ, &args, 2)->flags = sqe_flags;
	expect(ring_do(r), 0, "%s: READ", how);
	if (row.low != 3 || row.high != 3 || row.session_high != 3 || row.status || row.capacity != device.capacity)
		wrong("%s: READ gives %llu to %llu", how, row.low, row.high);
	add(r, fd, lane.handle, -2, 1, 3)->flags = sqe_flags;
	expect(ring_do(r), 0, "%s: ADD", how);
	add(r, fd, lane.handle, -2, 1, 4)->flags = sqe_flags;
	expect(ring_do(r), -EINVAL, "%s: ADD of more than begun", how);
	add(r, fd, lane.handle, -1, 0, 5)->flags = sqe_flags;
	expect(ring_do(r), -EINVAL, "%s: ADD in the other parity", how);
	add(r, fd, lane.handle, -1, 1, 6)->flags = sqe_flags;
	expect(ring_do(r), 0, "%s: ADD", how);
	expect_in_flight(dev, &device, 0, how);
}

static void ways(void)
{
	struct ring r;

	if (open_ring(&r, 0)) {
		counts_and_reads(&r, dev, 0, "inline");
		point("uring", "ADD and READ");
		counts_and_reads(&r, dev, IOSQE_ASYNC, "by a worker");
		point("uring", "ADD and READ by a worker");
		if (syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_FILES, &dev, 1))
			wrong("IORING_REGISTER_FILES: %s", strerror(errno));
		counts_and_reads(&r, 0, IOSQE_FIXED_FILE, "registered");
		counts_and_reads(&r, 0, IOSQE_FIXED_FILE | IOSQE_ASYNC, "registered, by a worker");
		point("uring", "ADD and READ of a registered file");
	}
	ring_close(&r);
	if (open_ring(&r, IORING_SETUP_SQPOLL)) {
		counts_and_reads(&r, dev, 0, "by a thread that polls");
		if (!eventually(ring_sleeps(&r)))
			wrong("the thread that polls does not sleep");
		counts_and_reads(&r, dev, 0, "by a thread that slept");
	}
	ring_close(&r);
	point("uring", "ADD and READ by a polling thread");
}

static void refusals(void)
{
	struct pinion_reading row;
	struct pinion_read args = read_args(&row), bad;
	struct io_uring_sqe *sqe;
	struct ring r;

	if (!open_ring(&r, 0))
		return;
	add(&r, dev, lane.handle, 1, PINION_PARITY_NOW, 1);
	expect(ring_do(&r), -EINVAL, "ADD without a parity");
	add(&r, dev, lane.handle, 0, 0, 1);
	expect(ring_do(&r), -EINVAL, "ADD of nothing");
	add(&r, dev, lane.handle + 64, 1, 0, 1);
	expect(ring_do(&r), -EINVAL, "ADD by a handle that is none");
	add(&r, dev, lane.handle, INFLIGHT + 1, 0, 1);
	expect(ring_do(&r), -ENOSPC, "ADD of too much");
	add(&r, read_only, lane.handle, 1, 0, 1);
	expect(ring_do(&r), -EACCES, "ADD by a read-only open");
	call_at(&r, read_only, PINION_URING_READ, &args, 1);
	expect(ring_do(&r), 0, "READ by a read-only open");
	call_at(&r, dev, PINION_IOC_INFO, &args, 1);
	expect(ring_do(&r), -ENOTTY, "INFO");
	call_at(&r, dev, PINION_URING_READ, (void *)8, 1);
	expect(ring_do(&r), -EFAULT, "READ of no address");
	sqe = call_at(&r, dev, PINION_URING_READ, &args, 1);
	*((char *)sqe + offsetof(struct io_uring_sqe, addr3) + 8) = 1;
	expect(ring_do(&r), -EINVAL, "READ with a reserved word");
	bad = args;
	bad.size--;
	call_at(&r, dev, PINION_URING_READ, &bad, 1);
	expect(ring_do(&r), -EINVAL, "READ of a small struct");
	bad.size = PAGE + 1;
	call_at(&r, dev, PINION_URING_READ, &bad, 1);
	expect(ring_do(&r), -E2BIG, "READ of a large struct");
	bad = args;
	bad.rows = 8;
	call_at(&r, dev, PINION_URING_READ, &bad, 1);
	expect(ring_do(&r), -EFAULT, "READ to no address");
	ring_close(&r);
	expect_in_flight(dev, &device, 0, "after what was refused");
	point("uring", "what is refused");
}

/* ---- counted chains ------------------------------------------------------------------------------------------------ */

static char data[64];

/* ADD +1, a read, ADD -1, as names 1 to 3. */
static void chain(struct ring *r, int from, uint32_t parity, unsigned int last_flags)
{
	struct io_uring_sqe *sqe;

	add(r, dev, lane.handle, 1, parity, 1)->flags = IOSQE_IO_LINK;
	sqe = ring_next(r, IORING_OP_READ, from, 2);
	sqe->addr = (uintptr_t)data;
	sqe->len = sizeof(data);
	sqe->flags = IOSQE_IO_HARDLINK;
	add(r, dev, lane.handle, -1, parity, 3)->flags = last_flags;
	if (ring_submit(r) != 3)
		wrong("a chain of 3 is not taken");
}

static void expect_chain(struct ring *r, int first, int second, int third, const char *what)
{
	int res[4];

	results(r, res, 3, PATIENCE_MS);
	if (res[1] != first || res[2] != second || res[3] != third)
		wrong("%s: %d, %d, %d, not %d, %d, %d", what, res[1], res[2], res[3], first, second, third);
}

/* Entries are the application's again when they were taken: others come in their place while the I/O goes on. */
static void overwrite(struct ring *r)
{
	struct io_uring_cqe cqe;

	for (int i = 0; i < RING_ENTRIES; i++)
		ring_next(r, IORING_OP_NOP, -1, 100);
	ring_submit(r);
	/* The chain's first has completed among them. */
	for (int i = 0; i < RING_ENTRIES + 1; i++)
		if (!ring_wait(r, &cqe, PATIENCE_MS) || (cqe.user_data != 100 && cqe.user_data != 1))
			wrong("a NOP does not complete");
}

static void entries_used_again(struct ring *r, const int *pipe_of, unsigned int last_flags, const char *what)
{
	struct io_uring_cqe cqe = { .user_data = 0 };

	chain(r, pipe_of[0], parity_now(), last_flags);
	overwrite(r);
	if (write(pipe_of[1], "data", 4) != 4)
		wrong("write: %s", strerror(errno));
	while (ring_wait(r, &cqe, PATIENCE_MS) && cqe.user_data != 3)
		;
	printf("# %s: the last gives %d, %lld in flight after it\n", what, cqe.res, (long long)in_flight(dev, &device));
}

static void chains(void)
{
	struct ring r;
	int end[2];

	if (!open_ring(&r, 0) || pipe2(end, O_CLOEXEC))
		return;
	chain(&r, end[0], parity_now(), 0);
	expect_in_flight(dev, &device, 1, "while the I/O goes on");
	if (write(end[1], "data", 4) != 4)
		wrong("write: %s", strerror(errno));
	expect_chain(&r, 0, 4, 0, "a short read");
	expect_in_flight(dev, &device, 0, "after the I/O");
	point("chain", "counts an I/O while it goes on");
	chain(&r, -1, parity_now(), 0);
	expect_chain(&r, 0, -EBADF, 0, "no such file");
	chain(&r, end[1], parity_now(), 0);
	expect_chain(&r, 0, -EBADF, 0, "a file that cannot be read");
	expect_in_flight(dev, &device, 0, "after an I/O that failed");
	point("chain", "an I/O that fails counts down");
	expect(dev_count(dev, lane.handle, INFLIGHT, INFLIGHT, 0), 0, "ADD");
	if (write(end[1], "data", 4) != 4)
		wrong("write: %s", strerror(errno));
	chain(&r, end[0], 0, 0);
	expect_chain(&r, -ENOSPC, -ECANCELED, -ECANCELED, "a full lane");
	expect_in_flight(dev, &device, INFLIGHT, "after a +1 that failed");
	expect(dev_count(dev, lane.handle, -INFLIGHT, -INFLIGHT, 0), 0, "ADD");
	if (read(end[0], data, sizeof(data)) != 4)
		wrong("the I/O ran");
	point("chain", "a +1 that fails runs nothing");
	entries_used_again(&r, end, IOSQE_ASYNC, "entries used again, the last by a worker");
	expect_in_flight(dev, &device, 0, "with the last by a worker");
	point("chain", "counts down though its entries are used again, if its last is for a worker");
	entries_used_again(&r, end, 0, "entries used again");
	dev_handle(dev, PINION_IOC_RESET, lane.handle);
	ring_close(&r);
	close(end[0]);
	close(end[1]);
}

/* ---- waits --------------------------------------------------------------------------------------------------------- */

static void wait_commands(void)
{
	struct pinion_wait args = wait_args(PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0, now_ns() + 60000000000LL), late;
	struct io_uring_cqe cqe;
	uint32_t parity = parity_now();
	struct ring r;

	if (!open_ring(&r, 0))
		return;
	if (!waits) {
		call_at(&r, dev, PINION_URING_WAIT, &args, 1);
		expect(ring_do(&r), -EOPNOTSUPP, "WAIT");
		ring_close(&r);
		point("wait", "is not to be had where it could not be cancelled");
		return;
	}
	call_at(&r, dev, PINION_URING_WAIT, &args, 1);
	expect(ring_do(&r), 0, "WAIT for what holds");
	dev_count(dev, lane.handle, 2, 2, parity);
	call_at(&r, dev, PINION_URING_WAIT, &args, 1);
	late = wait_args(PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 50000000);
	call_at(&r, dev, PINION_URING_WAIT, &late, 2);
	ring_submit(&r);
	if (!ring_wait(&r, &cqe, PATIENCE_MS) || cqe.user_data != 2 || cqe.res != -ETIMEDOUT)
		wrong("the deadline: %llu %d", cqe.user_data, cqe.res);
	if (late.high != 2 || late.culprit_pid != getpid() || late.culprit_units != 2)
		wrong("at the deadline %llu, culprit %d with %u", late.high, late.culprit_pid, late.culprit_units);
	dev_count(dev, lane.handle, -2, -2, parity);
	if (!ring_wait(&r, &cqe, PATIENCE_MS) || cqe.user_data != 1 || cqe.res || args.high)
		wrong("PENDING_LE: %llu %d, %llu", cqe.user_data, cqe.res, args.high);
	point("wait", "ends with its condition, or at its deadline with what it saw");
	args.deadline_ns = -1;
	call_at(&r, dev, PINION_URING_WAIT, &args, 1);
	expect(ring_do(&r), -EINVAL, "a deadline before time");
	args.deadline_ns = 0;
	args.generation++;
	call_at(&r, dev, PINION_URING_WAIT, &args, 1);
	expect(ring_do(&r), -ESTALE, "another device");
	args = wait_args(PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 60000000000LL);
	dev_count(dev, lane.handle, 1, 1, parity);
	call_at(&r, dev, PINION_URING_WAIT, &args, 1)->flags = IOSQE_ASYNC;
	ring_submit(&r);
	if (ring_wait(&r, &cqe, 100))
		wrong("a wait by a worker: %d", cqe.res);
	dev_count(dev, lane.handle, -1, -1, parity);
	if (!ring_wait(&r, &cqe, PATIENCE_MS) || cqe.res)
		wrong("a wait by a worker does not end");
	ring_close(&r);
	point("wait", "by a worker, and what is refused");
}

static void watch_polls(void)
{
	uint32_t parity = parity_now();
	struct io_uring_cqe cqe;
	struct ring r;
	int watch;

	if (!open_ring(&r, 0))
		return;
	dev_count(dev, lane.handle, 1, 1, parity);
	watch = dev_watch(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0);
	poll_add(&r, watch, 1);
	ring_submit(&r);
	if (ring_wait(&r, &cqe, 100))
		wrong("a poll of a watch: %x", cqe.res);
	dev_count(dev, lane.handle, -1, -1, parity);
	if (!ring_wait(&r, &cqe, PATIENCE_MS) || !(cqe.res & POLLIN))
		wrong("a poll of a watch does not end");
	close(watch);
	ring_close(&r);
	point("poll", "of a watch by POLL_ADD");
}

/* What waits: commands, and polls. The watches are in @watch, to be closed. */
static unsigned int many_waits(struct ring *r, int fd, unsigned int sqe_flags, struct pinion_wait *args, int *watch,
			       unsigned int n)
{
	unsigned int name = 0;

	for (unsigned int i = 0; i < n; i++) {
		watch[i] = dev_watch(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0);
		expect(watch[i], 0, "WATCH");
		poll_add(r, watch[i], ++name);
		args[i] = wait_args(PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 120000000000LL);
		if (waits)
			call_at(r, fd, PINION_URING_WAIT, &args[i], ++name)->flags = sqe_flags;
	}
	if (ring_submit(r) != (int)name)
		wrong("waits are not taken");
	return name;
}

#define WORKERS 2
#define MANY	(2 * WORKERS)

static void few_workers(void)
{
	unsigned int most[2] = { WORKERS, WORKERS }, n;
	int watch[MANY], res[2 * MANY + 9], file = memfd_create("file", MFD_CLOEXEC);
	uint32_t parity = parity_now();
	struct pinion_wait args[MANY];
	struct io_uring_sqe *sqe;
	struct io_uring_cqe cqe;
	struct ring r;
	char to[8][PAGE];

	if (!open_ring(&r, 0) || ftruncate(file, 8 * PAGE))
		return;
	if (syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_IOWQ_MAX_WORKERS, most, 2))
		wrong("IORING_REGISTER_IOWQ_MAX_WORKERS: %s", strerror(errno));
	dev_count(dev, lane.handle, 1, 1, parity);
	n = many_waits(&r, dev, IOSQE_ASYNC, args, watch, MANY);
	for (int i = 0; i < 8; i++) {
		sqe = ring_next(&r, IORING_OP_READ, file, 50);
		sqe->addr = (uintptr_t)to[i];
		sqe->len = PAGE;
		sqe->off = i * PAGE;
		sqe->flags = IOSQE_ASYNC;
	}
	ring_submit(&r);
	for (int i = 0; i < 8; i++)
		if (!ring_wait(&r, &cqe, PATIENCE_MS) || cqe.user_data != 50 || cqe.res != (int)PAGE)
			wrong("read %d: %llu, %d", i, cqe.user_data, cqe.res);
	dev_count(dev, lane.handle, -1, -1, parity);
	results(&r, res, n, PATIENCE_MS);
	for (unsigned int i = 1; i <= n; i++)
		if (res[i] < 0)
			wrong("wait %u: %d", i, res[i]);
	for (int i = 0; i < MANY; i++)
		close(watch[i]);
	close(file);
	ring_close(&r);
	point("workers", "waits, twice as many as workers, and reads on one ring make progress");
}

/* ---- cancelling ---------------------------------------------------------------------------------------------------- */

/* Who cancels says whether its target will come; where it says no, it is looked for all the same, for a while. */
static unsigned int cancel_ms(int ret, int target)
{
	return ret == RING_NOTHING || (target == RING_NOTHING && ret != -ENOENT) ? PATIENCE_MS : 300;
}

static int cancel_of(struct ring *r, uint64_t name, int *target)
{
	struct io_uring_cqe cqe;
	int ret = RING_NOTHING;

	*target = RING_NOTHING;
	ring_next(r, IORING_OP_ASYNC_CANCEL, -1, 99)->addr = name;
	ring_submit(r);
	while (ring_wait(r, &cqe, cancel_ms(ret, *target))) {
		if (cqe.user_data == 99)
			ret = cqe.res;
		else
			*target = cqe.res;
	}
	return ret;
}

static int link_timeout(struct ring *r, struct io_uring_sqe *target, int *res)
{
	struct __kernel_timespec limit = { .tv_nsec = 20000000 };
	struct io_uring_sqe *sqe = ring_next(r, IORING_OP_LINK_TIMEOUT, -1, 98);
	struct io_uring_cqe cqe;
	int ret = RING_NOTHING;

	target->flags |= IOSQE_IO_LINK;
	sqe->addr = (uintptr_t)&limit;
	sqe->len = 1;
	*res = RING_NOTHING;
	ring_submit(r);
	while (ring_wait(r, &cqe, cancel_ms(ret, *res))) {
		if (cqe.user_data == 98)
			ret = cqe.res;
		else
			*res = cqe.res;
	}
	return ret;
}

static void cancels(void)
{
	struct pinion_wait args = wait_args(PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, 0);
	uint32_t parity = parity_now();
	int watch, ret, target;
	struct ring r;

	if (!open_ring(&r, 0))
		return;
	dev_count(dev, lane.handle, 1, 1, parity);
	watch = dev_watch(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0);
	poll_add(&r, watch, 1);
	ring_submit(&r);
	expect(cancel_of(&r, 1, &target), 0, "ASYNC_CANCEL of a poll");
	expect(target, -ECANCELED, "the poll");
	ret = link_timeout(&r, poll_add(&r, watch, 1), &target);
	if ((ret != -ETIME && ret != -EALREADY) || target != -ECANCELED)
		wrong("LINK_TIMEOUT of a poll: %d, %d", ret, target);
	point("cancel", "a poll of a watch, by ASYNC_CANCEL and LINK_TIMEOUT");
	if (waits) {
		/* No kernel yet finds a command so: then it is as it was, and ends at its deadline. */
		args.deadline_ns = now_ns() + 2000000000LL;
		call_at(&r, dev, PINION_URING_WAIT, &args, 1);
		ring_submit(&r);
		ret = cancel_of(&r, 1, &target);
		printf("# ASYNC_CANCEL of WAIT: %d, WAIT %d\n", ret, target);
		if (!(ret == 0 && target == -ECANCELED) && !(ret == -ENOENT && (target == RING_NOTHING || target == -ETIMEDOUT)))
			wrong("ASYNC_CANCEL of WAIT: %d, %d", ret, target);
		if (target == RING_NOTHING)
			expect(ring_do(&r), -ETIMEDOUT, "WAIT that was not cancelled");
		args.deadline_ns = now_ns() + 2000000000LL;
		ret = link_timeout(&r, call_at(&r, dev, PINION_URING_WAIT, &args, 1), &target);
		printf("# LINK_TIMEOUT of WAIT: %d, WAIT %d\n", ret, target);
		if (target == RING_NOTHING)
			expect(ring_do(&r), -ETIMEDOUT, "WAIT that was not cancelled");
		else if (target != -ETIMEDOUT)
			expect(target, -ECANCELED, "WAIT");
		point("cancel", "WAIT, or it ends at its deadline");
	}
	dev_count(dev, lane.handle, -1, -1, parity);
	close(watch);
	ring_close(&r);
}

static bool refcnt_again(uint64_t was, double *took)
{
	double from = mem_clock();
	bool again = eventually(file_number("/sys/module/pinion/refcnt") == was);

	*took = mem_clock() - from;
	if (!again)
		wrong("%llu references to the module after %g s, not %llu",
		      (unsigned long long)file_number("/sys/module/pinion/refcnt"), *took, (unsigned long long)was);
	return again;
}

static void ring_closed(void)
{
	uint64_t refs = file_number("/sys/module/pinion/refcnt");
	uint32_t parity = parity_now();
	struct pinion_wait args[MANY];
	struct ring r;
	int watch[MANY];
	double took;

	if (!open_ring(&r, 0))
		return;
	dev_count(dev, lane.handle, 1, 1, parity);
	many_waits(&r, dev, 0, args, watch, MANY);
	for (int i = 0; i < MANY; i++)
		close(watch[i]);
	ring_close(&r);
	refcnt_again(refs, &took);
	printf("# a ring that is closed: its waits have gone after %.0f ms\n", took * 1e3);
	dev_count(dev, lane.handle, -1, -1, parity);
	point("cancel", "whatever waits, by the closing of the ring");
}

static void killed(bool registered)
{
	uint64_t refs = file_number("/sys/module/pinion/refcnt");
	uint32_t parity = parity_now();
	struct pinion_wait args[MANY];
	int talk[2], watch[MANY];
	double took;
	pid_t pid;
	char c;

	if (pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	dev_count(dev, lane.handle, 1, 1, parity);
	pid = fork();
	if (!pid) {
		int fd = dev_open(O_RDWR);
		struct ring r;

		if (!open_ring(&r, 0) || (registered && syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_FILES, &fd, 1)))
			_exit(1);
		many_waits(&r, registered ? 0 : fd, registered ? IOSQE_FIXED_FILE : 0, args, watch, MANY);
		if (registered)
			close(fd);
		if (*state_wrong)
			_exit(2);
		say(talk[1], "x", 1);
		for (;;)
			pause();
	}
	close(talk[1]);
	hear(talk[0], &c, 1);
	if (file_number("/sys/module/pinion/refcnt") <= refs)
		wrong("no references while waits are pending");
	end_process(pid);
	if (refcnt_again(refs, &took))
		printf("# killed with %d waits: no reference after %.0f ms\n", MANY, took * 1e3);
	close(talk[0]);
	dev_count(dev, lane.handle, -1, -1, parity);
	point("killed", registered ? "with waits of a registered file pending" : "with waits pending");
}

int main(void)
{
	struct pinion_info before, info;
	struct ring r;
	int ret = ring_open(&r, 0);

	if (ret == -ENOSYS || ret == -EPERM) {
		tap_skip("io: io_uring", "this kernel has none");
		return tap_end();
	}
	ring_close(&r);
	complaint = shared_memory(PAGE);
	dev = dev_open(O_RDWR);
	read_only = dev_open(O_RDONLY);
	if (dev_info(dev, &before) || dev_add(dev, "counts-uring", &device) || dev_attach(dev, &device, INFLIGHT, &lane))
		wrong("no device");
	waits = before.features & PINION_FEATURE_URING_WAIT;
	if (!(before.features & PINION_FEATURE_URING))
		wrong("INFO knows no commands of io_uring");
	if (!point("start", waits ? "a device, and a kernel that cancels commands" : "a device"))
		return tap_end();
	ways();
	refusals();
	chains();
	wait_commands();
	watch_polls();
	few_workers();
	cancels();
	ring_closed();
	killed(false);
	killed(true);
	expect_in_flight(dev, &device, 0, "at the end");
	dev_info(dev, &info);
	before.user_devices++;
	before.user_sessions++;
	use_again(dev, &before, "root");
	point("end", "nothing is left");
	return tap_end();
}
