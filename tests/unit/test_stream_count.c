/* SPDX-License-Identifier: MIT */
/* Who counts what a stream reads: the context's page, or the kernel in chains, where it can. And fences on devices. */
#include "ground.h"
#include "stream_help.h"

#include "provider/kmod.h"
#include "provider/kmod_counts.h"
#include "work/account.h"

#include <errno.h>
#include <linux/pinion.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <time.h>

static const struct pinion_stream_opts chained = { .size = sizeof(chained), .capacity = 4096, .count = PINION_COUNT_CHAIN };

#define NEED_THE_MODULE()                                     \
	do {                                                  \
		if (!counts_on_module())                      \
			SKIP("no kernel module counts here"); \
	} while (0)

static struct pinion_device_info info_of(struct pinion_device *dev)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	ck_ok(pinion_device_info(dev, &info));
	return info;
}

/* Until so many units are in flight: the kernel begins an I/O a moment after it was submitted. */
static void until_in_flight(struct pinion_device *dev, uint32_t n)
{
	int64_t give_up = pinion_deadline_in(100000 * MS);

	while (in_flight(dev) != n) {
		ck_assert_msg(pinion_deadline_in(0) < give_up, "%u units in flight, not %u", in_flight(dev), n);
		sched_yield();
	}
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

START_TEST(who_counts_is_chosen_and_told)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts) };
	struct pinion_stream *s = NULL;
	struct ground g;

	ground_open(&g, &opts);
	ck_assert_int_eq(stats_of(g.stream).count, PINION_COUNT_PAGE);
	opts.count = 3;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	ck_assert_ptr_null(s);
	opts.count = PINION_COUNT_PAGE;
	ck_ok(pinion_stream_new(g.dev, &opts, &s));
	ck_assert_int_eq(stats_of(s).count, PINION_COUNT_PAGE);
	pinion_stream_free(s);
	ground_close(&g);
}
END_TEST

START_TEST(where_no_kernel_counts_chains_and_fences_on_devices_are_refused)
{
	struct pinion_open_opts open_opts = { .size = sizeof(open_opts), .ground = "memfd" };
	struct pinion_stream *s = NULL;
	struct ground g;
	uint64_t seq = 77, lost = 77;

	memset(&g, 0, sizeof(g));
	ck_ok(pinion_open(&open_opts, &g.ctx));
	ck_ok(pinion_device_add(g.ctx, "stream", NULL, &g.dev));
	ck_assert_int_eq(pinion_stream_new(g.dev, &chained, &s), -EOPNOTSUPP);
	ck_assert_ptr_null(s);
	ck_assert_msg(strstr(pinion_error(), "module") && strstr(pinion_error(), "PINION_COUNT_PAGE"), "%s", pinion_error());
	ck_ok(pinion_stream_new(g.dev, NULL, &g.stream));
	ck_assert_int_eq(pinion_stream_fence_device(g.stream, g.dev, PINION_SCOPE_ALL, &lost, &seq), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "pinion_device_flush"));
	ck_assert_uint_eq(seq, 77);
	ck_assert_uint_eq(lost, 77);
	ck_assert_uint_eq(pinion_stream_pending(g.stream), 0);
	ground_close(&g);
}
END_TEST

START_TEST(a_synchronous_device_has_nothing_to_count_in_the_kernel)
{
	struct pinion_stream *s = NULL;
	struct pinion_device *cpu;
	struct ground g;

	NEED_THE_MODULE();
	ground_open(&g, &chained);
	ck_assert_int_eq(stats_of(g.stream).count, PINION_COUNT_CHAIN);
	ck_ok(pinion_device_find(g.ctx, "cpu", &cpu));
	ck_assert_int_eq(pinion_stream_new(cpu, &chained, &s), -ENODATA);
	ck_assert_int_eq(pinion_stream_fence_device(g.stream, cpu, PINION_SCOPE_ALL, NULL, NULL), -ENODATA);
	ck_assert_ptr_null(s);
	ground_close(&g);
}
END_TEST

/* ---- chains ------------------------------------------------------------------------------------------------------ */

START_TEST(the_kernel_counts_a_read_while_it_goes_on)
{
	struct pinion_buffer *buf;
	uint64_t seq[3], before;
	struct ground g;
	int end[2];

	NEED_THE_MODULE();
	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, &chained);
	buf = buffer(g.ctx, 4096);
	before = info_of(g.dev).submitted;
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_stream_read(g.stream, buf, i * 8, end[0], 0, 8, &seq[i]));
	for (int i = 0; i < 3; i++) {
		/* What waits for its turn is no unit; what the kernel has is one, of its bytes. */
		until_in_flight(g.dev, 1);
		ck_assert_uint_eq(info_of(g.dev).pending_cost, 8);
		ck_assert_uint_eq(pinion_stream_pending(g.stream), 3 - i);
		ck_assert_int_eq(write(end[1], "12345678", 8), 8);
		ck_ok(pinion_stream_wait(g.stream, seq[i], SOON));
	}
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_assert_uint_eq(info_of(g.dev).pending_cost, 0);
	ck_assert_uint_eq(info_of(g.dev).submitted - before, 3);
	ck_assert_uint_eq(stats_of(g.stream).reads, 3);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(end[0]);
	close(end[1]);
}
END_TEST

/* A short read is a request that is done, and what it is continued by is another one. */
START_TEST(a_short_read_is_counted_down_and_continued)
{
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;
	int end[2];

	NEED_THE_MODULE();
	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, &chained);
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 100, &seq));
	for (int left = 100; left > 0; left -= 10) {
		until_in_flight(g.dev, 1);
		while (info_of(g.dev).pending_cost != (uint64_t)left)
			sched_yield();
		ck_assert_int_eq(write(end[1], "0123456789", 10), 10);
	}
	ck_ok(pinion_stream_wait(g.stream, seq, SOON));
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_assert_uint_eq(stats_of(g.stream).short_reads, 9);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(end[0]);
	close(end[1]);
}
END_TEST

START_TEST(the_deepest_stream_has_a_ring)
{
	struct pinion_stream_opts opts = chained;
	struct ground g;

	NEED_THE_MODULE();
	opts.depth = 1024;
	ground_open(&g, &opts);
	ground_close(&g);
}
END_TEST

START_TEST(every_byte_comes_whoever_counts)
{
	static const uint64_t at[] = { 0, 1, 511, 4096, 65535, 65536 };
	struct pinion_stream_opts opts = chained;
	struct pinion_buffer *buf;
	uint64_t before, reads;
	struct ground g;
	int fd = file(3 * MIB + 123);

	NEED_THE_MODULE();
	opts.io = _i;
	opts.piece = 64 * KIB;
	ground_open(&g, &opts);
	before = info_of(g.dev).submitted;
	for (int i = 0; i < 24; i++) {
		uint64_t from = at[i % 6], to = at[(i / 2) % 6], len = 3 * MIB + 123 - from, seq;

		buf = buffer(g.ctx, 4 * MIB);
		if (i & 1)
			drop_cache(fd);
		ck_ok(pinion_stream_read(g.stream, buf, to, fd, from, len, &seq));
		ck_ok(pinion_stream_wait(g.stream, seq, SOON));
		same_bytes(buf, to, from, len);
		pinion_buffer_unref(buf);
		ck_assert_uint_eq(in_flight(g.dev), 0);
	}
	reads = stats_of(g.stream).reads;
	ck_assert_uint_ge(reads, 24 * 48);
	ck_assert_uint_eq(info_of(g.dev).submitted - before, reads);
	ground_close(&g);
	close(fd);
}
END_TEST

START_TEST(a_read_that_fails_counts_down)
{
	int fd = file(100), dir = open(test_tmp(), O_RDONLY | O_DIRECTORY);
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;

	NEED_THE_MODULE();
	ground_open(&g, &chained);
	buf = buffer(g.ctx, 4096);
	for (int i = 0; i < 20; i++) {
		ck_ok(pinion_stream_read(g.stream, buf, 0, dir, 0, 4096, &seq));
		ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -EISDIR);
		ck_assert_uint_eq(in_flight(g.dev), 0);
		ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EISDIR);
		ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 101, &seq));
		ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -ENODATA);
		ck_assert_uint_eq(in_flight(g.dev), 0);
		ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ENODATA);
	}
	ck_assert_uint_eq(info_of(g.dev).pending_cost, 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(dir);
	close(fd);
}
END_TEST

/* As many units as its lane may hold, begun or ended in the name of the stream's thread, which alone has one. */
static void fill_lane(struct pinion_device *dev, int sign)
{
	const struct kmod_counts *k = dev->counts->kmod;
	struct pinion_add add = { .size = sizeof(add), .ops = sign * (int)k->max_inflight };

	for (unsigned int i = 0; i < PINION_LANES; i++)
		if (k->lane[i].generation == dev->at.generation)
			add.handle = k->lane[i].handle;
	ck_assert_msg(ioctl(k->device->fd, PINION_IOC_ADD, &add) == 0, "ADD: %s", strerror(errno));
}

START_TEST(what_cannot_be_counted_is_not_read)
{
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;
	int end[2];
	char got[16];

	NEED_THE_MODULE();
	ck_assert_int_eq(pipe2(end, O_NONBLOCK), 0);
	ground_open(&g, &chained);
	buf = buffer(g.ctx, 4096);
	ck_assert_int_eq(write(end[1], "first.", 6), 6);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 6, &seq));
	ck_ok(pinion_stream_wait(g.stream, seq, SOON));
	fill_lane(g.dev, 1);
	ck_assert_int_eq(write(end[1], "second", 6), 6);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 6, &seq));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -ENOSPC);
	ck_assert_msg(strstr(pinion_error(), "counting") && strstr(pinion_error(), "stream"), "%s", pinion_error());
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ENOSPC);
	ck_assert_int_eq(read(end[0], got, sizeof(got)), 6);
	fill_lane(g.dev, -1);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_assert_int_eq(write(end[1], "third.", 6), 6);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 6, &seq));
	ck_ok(pinion_stream_wait(g.stream, seq, SOON));
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

static int adds_one(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	return 0;
}

/* The wake-ups go round the ring many times while one read waits: its end must still be there when it has run. */
START_TEST(the_end_of_a_chain_outlives_its_place_in_the_ring)
{
	struct pinion_stream_opts opts = chained;
	struct pinion_buffer *buf;
	struct ground g;
	int end[2], ran = 0, rounds = test_rounds(1000), fd = file(MIB);

	NEED_THE_MODULE();
	opts.depth = 2;
	opts.piece = 4096;
	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, 2 * MIB);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 1, NULL));
	until_in_flight(g.dev, 1);
	/* 256 chains beside it, and a wake-up for each call. */
	ck_ok(pinion_stream_read(g.stream, buf, 4096, fd, 0, MIB, NULL));
	for (int i = 0; i < rounds; i++) {
		ck_ok(pinion_stream_call(g.stream, adds_one, &ran, NULL));
		usleep(50);
	}
	ck_assert_int_eq(__atomic_load_n(&ran, __ATOMIC_RELAXED), 0);
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(ran, rounds);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_assert_uint_eq(info_of(g.dev).pending_cost, 0);
	same_bytes(buf, 4096, 0, MIB);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

START_TEST(many_chains_at_once_end_at_nothing)
{
	struct pinion_stream_opts opts = chained;
	struct pinion_stream *s[3];
	struct pinion_buffer *buf[3];
	struct ground g;
	uint64_t before;
	int fd = file(2 * MIB), rounds = test_rounds(40);

	NEED_THE_MODULE();
	opts.depth = 16;
	opts.piece = 4096;
	ground_open(&g, &opts);
	before = info_of(g.dev).submitted;
	for (int i = 0; i < 3; i++) {
		s[i] = g.stream;
		if (i)
			ck_ok(pinion_stream_new(g.dev, &opts, &s[i]));
		buf[i] = buffer(g.ctx, 2 * MIB);
	}
	for (int round = 0; round < rounds; round++) {
		drop_cache(fd);
		for (int i = 0; i < 3; i++)
			ck_ok(pinion_stream_read(s[i], buf[i], 0, fd, 0, 2 * MIB, NULL));
	}
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_le(in_flight(g.dev), 3 * 16);
		ck_ok(pinion_stream_flush(s[i], SOON));
	}
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_assert_uint_eq(info_of(g.dev).submitted - before, stats_of(s[0]).reads + stats_of(s[1]).reads + stats_of(s[2]).reads);
	for (int i = 0; i < 3; i++) {
		same_bytes(buf[i], 0, 0, 2 * MIB);
		pinion_buffer_unref(buf[i]);
		if (i)
			pinion_stream_free(s[i]);
	}
	ground_close(&g);
	close(fd);
}
END_TEST

START_TEST(a_killed_process_takes_its_chains_with_it)
{
	struct ground g;
	int ready[2];
	pid_t pid;
	char c;

	NEED_THE_MODULE();
	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct pinion_buffer *buf;
		struct ground own;
		int end[2];

		memset(&own, 0, sizeof(own));
		if (pipe(end) || pinion_open(NULL, &own.ctx) || pinion_device_add(own.ctx, "stream", NULL, &own.dev) ||
		    pinion_stream_new(own.dev, &chained, &own.stream) || pinion_buffer_alloc(own.ctx, 4096, NULL, &buf))
			_exit(1);
		if (pinion_stream_read(own.stream, buf, 0, end[0], 0, 5, NULL) || write(ready[1], "r", 1) != 1)
			_exit(2);
		for (;;)
			pause();
	}
	ground_open(&g, NULL);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	until_in_flight(g.dev, 1);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_assert_uint_eq(info_of(g.dev).pending_cost, 0);
	ground_close(&g);
}
END_TEST

START_TEST(a_device_that_is_removed_takes_no_more_chains)
{
	struct pinion_device *other;
	struct pinion_stream *s = NULL;
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(4096);

	NEED_THE_MODULE();
	ground_open(&g, &chained);
	pinion_stream_free(g.stream);
	ck_ok(pinion_device_add(g.ctx, "stream-removed", NULL, &other));
	ck_ok(pinion_stream_new(other, &chained, &g.stream));
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 4096, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_device_remove(other));
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 0, fd, 0, 4096, NULL), -ESTALE);
	ck_assert_int_eq(pinion_stream_new(other, &chained, &s), -ESTALE);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

/* ---- fences on devices ------------------------------------------------------------------------------------------- */

START_TEST(a_fence_waits_for_what_was_in_flight_on_a_device)
{
	struct pinion_ticket first = { 0 }, later = { 0 };
	struct pinion_device *other;
	uint64_t lost = 77, seq;
	struct ground g;
	int ran = 0;

	NEED_THE_MODULE();
	ground_open(&g, _i ? &chained : NULL);
	ck_ok(pinion_device_add(g.ctx, "fenced", NULL, &other));
	for (int scope = PINION_SCOPE_MINE; scope <= PINION_SCOPE_ALL; scope++) {
		ran = 0;
		ck_ok(pinion_work_begin(other, 1, &first));
		ck_ok(pinion_stream_fence_device(g.stream, other, scope, &lost, &seq));
		ck_ok(pinion_work_begin(other, 1, &later));
		ck_ok(pinion_stream_call(g.stream, adds_one, &ran, NULL));
		ck_assert_int_eq(pinion_stream_wait(g.stream, seq, pinion_deadline_in(20 * MS)), -ETIMEDOUT);
		ck_assert_int_eq(__atomic_load_n(&ran, __ATOMIC_RELAXED), 0);
		ck_ok(pinion_work_end(&first));
		/* What began after it does not hold it up. */
		ck_ok(pinion_stream_flush(g.stream, SOON));
		ck_assert_int_eq(ran, 1);
		ck_assert_uint_eq(lost, 0);
		ck_ok(pinion_work_end(&later));
	}
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ground_close(&g);
}
END_TEST

START_TEST(a_fence_on_a_streams_own_device_is_refused)
{
	struct pinion_context *second;
	struct pinion_device *same;
	struct ground g;
	uint64_t seq = 77;

	NEED_THE_MODULE();
	ground_open(&g, NULL);
	ck_assert_int_eq(pinion_stream_fence_device(g.stream, g.dev, PINION_SCOPE_ALL, NULL, &seq), -EDEADLK);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "'stream'"));
	/* Whatever handle it is known by. */
	ck_ok(pinion_open(NULL, &second));
	ck_ok(pinion_device_add(second, "stream", NULL, &same));
	ck_assert_int_eq(pinion_stream_fence_device(g.stream, same, PINION_SCOPE_ALL, NULL, &seq), -EDEADLK);
	ck_assert_uint_eq(seq, 77);
	ck_assert_uint_eq(pinion_stream_pending(g.stream), 0);
	pinion_close(second);
	ground_close(&g);
}
END_TEST

/* Several at once, whose turns overlap. */
START_TEST(many_fences_on_one_device_end)
{
	struct pinion_ticket ticket = { 0 };
	struct pinion_device *other;
	struct pinion_stream *second;
	struct ground g;
	int ran = 0;

	NEED_THE_MODULE();
	ground_open(&g, NULL);
	ck_ok(pinion_device_add(g.ctx, "fenced", NULL, &other));
	ck_ok(pinion_stream_new(g.dev, NULL, &second));
	for (int i = 0; i < 50; i++) {
		ck_ok(pinion_work_begin(other, 1, &ticket));
		ck_ok(pinion_stream_fence_device(g.stream, other, i % 2, NULL, NULL));
		ck_ok(pinion_stream_fence_device(second, other, i % 2, NULL, NULL));
		ck_ok(pinion_stream_call(g.stream, adds_one, &ran, NULL));
		ck_ok(pinion_stream_call(second, adds_one, &ran, NULL));
		ck_ok(pinion_work_end(&ticket));
		if (i % 10 == 9) {
			ck_ok(pinion_stream_flush(g.stream, SOON));
			ck_ok(pinion_stream_flush(second, SOON));
			ck_assert_int_eq(ran, 2 * i + 2);
		}
	}
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_stream_free(second);
	ground_close(&g);
}
END_TEST

START_TEST(a_fence_tells_how_many_units_died)
{
	uint64_t lost = 77, seq;
	struct ground g;
	int ready[2];
	pid_t pid;
	char c;

	NEED_THE_MODULE();
	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		struct pinion_ticket ticket[3] = { 0 };
		struct pinion_context *ctx;
		struct pinion_device *dev;

		if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, "fenced", NULL, &dev))
			_exit(1);
		for (int i = 0; i < 3; i++)
			if (pinion_work_begin(dev, 1, &ticket[i]))
				_exit(2);
		if (write(ready[1], "r", 1) != 1)
			_exit(3);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ground_open(&g, NULL);
	ck_ok(pinion_device_add(g.ctx, "fenced", NULL, &g.dev));
	ck_ok(pinion_stream_fence_device(g.stream, g.dev, PINION_SCOPE_ALL, &lost, &seq));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_ok(pinion_stream_wait(g.stream, seq, SOON));
	ck_assert_uint_eq(lost, 3);
	ground_close(&g);
}
END_TEST

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

static double read_ns(struct ground *g, struct pinion_buffer *buf, int fd, int rounds)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < rounds; i++)
		ck_ok(pinion_stream_read(g->stream, buf, 0, fd, 0, MIB, NULL));
	ck_ok(pinion_stream_flush(g->stream, SOON));
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / rounds / (MIB / 4096);
}

static double look_ns(struct pinion_device *dev, int rounds)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < rounds; i++)
		in_flight(dev);
	clock_gettime(CLOCK_MONOTONIC, &b);
	return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / rounds;
}

/* Figures for counters.md, printed and not judged: they are the machine's. */
START_TEST(what_each_way_costs)
{
	int fd = file(MIB);

	NEED_THE_MODULE();
	for (int count = PINION_COUNT_PAGE; count <= PINION_COUNT_CHAIN; count++) {
		struct pinion_stream_opts opts = {
			.size = sizeof(opts), .piece = 4096, .io = PINION_IO_BUFFERED, .count = count
		};
		double ns[2] = { 0, 0 };
		struct pinion_buffer *buf;
		struct ground g;

		ground_open(&g, &opts);
		buf = buffer(g.ctx, MIB);
		read_ns(&g, buf, fd, 4);
		for (int i = 0; i < 5; i++) {
			double now = read_ns(&g, buf, fd, 40);

			ns[0] = ns[0] == 0 || now < ns[0] ? now : ns[0];
		}
		ns[1] = look_ns(g.dev, 20000);
		printf("# counted by %s: %.0f ns for each read of 4 KiB of the page cache, %.0f ns for a look at the count\n",
		       count == PINION_COUNT_PAGE ? "the page" : "chains", ns[0], ns[1]);
		ck_assert_uint_eq(in_flight(g.dev), 0);
		pinion_buffer_unref(buf);
		ground_close(&g);
	}
	close(fd);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("stream_count");
	TCase *choice = tcase_create("choice"), *chains = tcase_create("chains"), *fences = tcase_create("fences"),
	      *cost = tcase_create("cost");

	tcase_add_test(choice, who_counts_is_chosen_and_told);
	tcase_add_test(choice, where_no_kernel_counts_chains_and_fences_on_devices_are_refused);
	tcase_add_test(choice, a_synchronous_device_has_nothing_to_count_in_the_kernel);
	suite_add_tcase(s, choice);
	tcase_set_timeout(chains, 30);
	tcase_add_test(chains, the_kernel_counts_a_read_while_it_goes_on);
	tcase_add_test(chains, a_short_read_is_counted_down_and_continued);
	tcase_add_test(chains, the_deepest_stream_has_a_ring);
	tcase_add_loop_test(chains, every_byte_comes_whoever_counts, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_test(chains, a_read_that_fails_counts_down);
	tcase_add_test(chains, what_cannot_be_counted_is_not_read);
	tcase_add_test(chains, the_end_of_a_chain_outlives_its_place_in_the_ring);
	tcase_add_test(chains, many_chains_at_once_end_at_nothing);
	tcase_add_test(chains, a_killed_process_takes_its_chains_with_it);
	tcase_add_test(chains, a_device_that_is_removed_takes_no_more_chains);
	suite_add_tcase(s, chains);
	tcase_set_timeout(fences, 30);
	tcase_add_loop_test(fences, a_fence_waits_for_what_was_in_flight_on_a_device, 0, 2);
	tcase_add_test(fences, a_fence_on_a_streams_own_device_is_refused);
	tcase_add_test(fences, many_fences_on_one_device_end);
	tcase_add_test(fences, a_fence_tells_how_many_units_died);
	suite_add_tcase(s, fences);
	tcase_set_timeout(cost, 30);
	tcase_add_test(cost, what_each_way_costs);
	suite_add_tcase(s, cost);
	return s;
}

PINION_TEST_MAIN(suite)
