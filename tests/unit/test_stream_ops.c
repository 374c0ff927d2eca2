/* SPDX-License-Identifier: MIT */
/* What streams do beside reads and calls: writes, copies, jobs, fences; and how an operation ends early. On either engine. */
#include "stream_help.h"

#include "error.h"
#include "work/file.h"
#include "work/pool.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int adds_one(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	return 0;
}

static int reads_a_byte(void *arg)
{
	char c;

	return read(*(int *)arg, &c, 1) == 1 ? 0 : -EIO;
}

struct late_reader {
	int fd;
	int begun; /* atomic */
};

static int begins_and_reads_a_byte(void *arg)
{
	struct late_reader *late = arg;

	__atomic_store_n(&late->begun, 1, __ATOMIC_RELEASE);
	return reads_a_byte(&late->fd);
}

/* Bytes [off, off + len) as if they were of a file, from @foff on. */
static void make_bytes(struct pinion_buffer *buf, uint64_t off, uint64_t foff, uint64_t len)
{
	unsigned char *p;

	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&p));
	for (uint64_t i = 0; i < len; i++)
		p[off + i] = byte_at(foff + i);
	ck_ok(pinion_buffer_unmap(buf, BOTH));
}

static void file_has(int fd, uint64_t foff, uint64_t len)
{
	unsigned char *got = malloc(len + 1);

	ck_assert_int_eq(pread(fd, got, len + 1, foff), (ssize_t)len);
	for (uint64_t i = 0; i < len; i++)
		if (got[i] != byte_at(foff + i))
			ck_abort_msg("byte %llu of %llu", (unsigned long long)i, (unsigned long long)len);
	free(got);
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

START_TEST(what_is_written_is_in_the_file)
{
	static const uint64_t at[] = { 0, 1, 511, 4096, 65536 }, lens[] = { 0, 1, 4095, 65536, 3 * MIB + 5 };
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = _i, .piece = 256 * KIB };
	struct pinion_buffer *buf;
	uint64_t total = 0;
	struct ground g;

	ground_open(&g, &opts);
	buf = buffer(g.ctx, 4 * MIB);
	for (int i = 0; i < 25; i++) {
		uint64_t foff = at[i % 5], len = lens[i / 5], off = at[(i / 2) % 5], seq;
		int fd = file(foff);

		make_bytes(buf, off, foff, len);
		ck_ok(pinion_stream_write(g.stream, buf, off, fd, foff, len, &seq));
		ck_ok(pinion_stream_wait(g.stream, seq, SOON));
		file_has(fd, foff, len);
		if (foff)
			ck_assert_int_eq(lseek(fd, 0, SEEK_END), foff + len);
		close(fd);
		total += len;
	}
	ck_assert_uint_eq(stats_of(g.stream).direct_bytes + stats_of(g.stream).buffered_bytes, total);
	ck_assert_uint_gt(stats_of(g.stream).writes, 20);
	ck_assert_uint_eq(stats_of(g.stream).reads, 0);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

START_TEST(writes_and_reads_of_one_file_are_done_in_order)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = _i, .piece = 64 * KIB, .depth = 16 };
	struct pinion_buffer *a, *b;
	struct ground g;
	unsigned char *p;
	int fd = file(2 * MIB), other;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDONLY | O_CLOEXEC);
	ground_open(&g, &opts);
	a = buffer(g.ctx, 2 * MIB);
	b = buffer(g.ctx, 2 * MIB);
	for (int i = 0; i < 20; i++) {
		ck_ok(pinion_stream_fill(g.stream, a, 0, i, 2 * MIB, NULL));
		ck_ok(pinion_stream_write(g.stream, a, 0, fd, 0, 2 * MIB, NULL));
		ck_ok(pinion_stream_fill(g.stream, a, 0, 255, 2 * MIB, NULL));
		/* Through another descriptor of the same file. */
		ck_ok(pinion_stream_read(g.stream, b, 0, other, 0, 2 * MIB, NULL));
		ck_ok(pinion_stream_write(g.stream, a, 0, fd, 0, 2 * MIB, NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		ck_ok(pinion_buffer_map(b, PINION_READ, (void **)&p));
		for (uint64_t j = 0; j < 2 * MIB; j++)
			if (p[j] != i)
				ck_abort_msg("byte %llu is %u, not %d", (unsigned long long)j, p[j], i);
		ck_ok(pinion_buffer_unmap(b, PINION_READ));
	}
	pinion_buffer_unref(a);
	pinion_buffer_unref(b);
	ground_close(&g);
	close(fd);
	close(other);
}
END_TEST

START_TEST(what_is_appended_keeps_its_order)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 4096 };
	struct pinion_buffer *buf;
	char path[64];
	struct ground g;
	int fd = file(10), end;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	end = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, MIB);
	make_bytes(buf, 0, 10, MIB);
	for (uint64_t i = 0; i < 16; i++)
		ck_ok(pinion_stream_write(g.stream, buf, i * 64 * KIB, end, 0, 64 * KIB, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	file_has(fd, 0, MIB + 10);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(end);
	close(fd);
}
END_TEST

/* Whatever a write goes through is as durable as the caller's descriptor makes it. */
START_TEST(a_write_is_as_durable_as_its_descriptor)
{
	static const int sync[] = { 0, O_DSYNC, O_SYNC };
	int fd = file(MIB), want = sync[_i / 2], end = -1;
	struct stream_file *f;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (_i & 1)
		end = open(path, O_WRONLY | O_CLOEXEC | O_DIRECT | want);
	if (end < 0)
		end = open(path, O_WRONLY | O_CLOEXEC | want);
	ck_assert_int_ge(end, 0);
	ck_ok(file_open(end, true, &f));
	ck_assert_int_eq(fcntl(f->fd, F_GETFL) & (O_SYNC | O_DSYNC), want);
	if (f->direct_fd >= 0)
		ck_assert_int_eq(fcntl(f->direct_fd, F_GETFL) & (O_SYNC | O_DSYNC), want);
	if (f->cached_fd >= 0)
		ck_assert_int_eq(fcntl(f->cached_fd, F_GETFL) & (O_SYNC | O_DSYNC), want);
	/* The file serves no descriptor that asks for more, or less. */
	ck_assert(file_is(f, end, true));
	ck_assert(file_is(f, fd, true) == (want == 0));
	file_unref(f);
	close(end);
	close(fd);
}
END_TEST

static void *drain(void *arg)
{
	static unsigned char got[4 * MIB];
	uint64_t n = 0;
	ssize_t step;

	while (n < 4 * MIB && (step = read(*(int *)arg, got + n, 4 * MIB - n)) > 0)
		n += step;
	for (uint64_t i = 0; i < n; i++)
		if (got[i] != byte_at(i))
			return (void *)1;
	return n == 4 * MIB ? NULL : (void *)2;
}

START_TEST(a_pipe_is_written_in_order)
{
	struct pinion_buffer *buf;
	pthread_t reader;
	struct ground g;
	void *wrong;
	int end[2];

	ck_assert_int_eq(pipe(end), 0);
	/* A pipe has no end to append to: as a shell opens one for ">>". */
	if (_i)
		ck_assert_int_eq(fcntl(end[1], F_SETFL, O_APPEND), 0);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4 * MIB);
	make_bytes(buf, 0, 0, 4 * MIB);
	ck_assert_int_eq(pthread_create(&reader, NULL, drain, &end[0]), 0);
	for (uint64_t i = 0; i < 4; i++)
		ck_ok(pinion_stream_write(g.stream, buf, i * MIB, end[1], 0, MIB, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	pthread_join(reader, &wrong);
	ck_assert_ptr_null(wrong);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

START_TEST(packets_of_a_pipe_stay_packets)
{
	struct pinion_buffer *buf;
	struct ground g;
	char got[100];
	int end[2];

	ck_assert_int_eq(pipe2(end, O_DIRECT), 0);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_stream_write(g.stream, buf, 0, end[1], 0, 10, NULL));
	ck_ok(pinion_stream_write(g.stream, buf, 0, end[1], 0, 20, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(read(end[0], got, sizeof(got)), 10);
	ck_assert_int_eq(read(end[0], got, sizeof(got)), 20);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(end[0]);
	close(end[1]);
}
END_TEST

static int result_of_write(struct ground *g, struct pinion_buffer *buf, int fd, uint64_t len)
{
	uint64_t seq = 0;
	int ret = pinion_stream_write(g->stream, buf, 0, fd, 0, len, &seq);

	return result_of(g, ret, seq);
}

START_TEST(failures_of_io_are_named)
{
	struct rlimit small = { 65536, RLIM_INFINITY };
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;
	char path[64];
	int end[2], fd = file(100), full = open("/dev/full", O_WRONLY), mem = open("/proc/self/mem", O_RDONLY), read_only;

	ck_assert_int_eq(pipe(end), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	read_only = open(path, O_RDONLY | O_CLOEXEC);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, MIB);
	ck_assert_int_eq(result_of_write(&g, buf, full, 4096), -ENOSPC);
	ck_assert_msg(strstr(pinion_error(), "writing") && strstr(pinion_error(), "space"), "%s", pinion_error());
	ck_assert_int_eq(result_of_write(&g, buf, read_only, 1), -EBADF);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "write"));
	close(end[0]);
	ck_assert_int_eq(result_of_write(&g, buf, end[1], 1), -EPIPE);
	/* Nobody has mapped the first page. */
	ck_ok(pinion_stream_read(g.stream, buf, 0, mem, 0, 100, &seq));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -EIO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "reading"));
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EIO);
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 50, 100, &seq));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -ENODATA);
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ENODATA);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	/* The last: the signal that comes with it is blocked in the library's threads. */
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	ck_assert_int_eq(result_of_write(&g, buf, fd, MIB), -EFBIG);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* A pipe, of which recent kernels wait by themselves, and an inotify descriptor, of which none does. */
START_TEST(descriptors_that_do_not_block_are_waited_for)
{
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq[2];
	unsigned char *p;
	int end[2], fd = file(10), notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	char path[64];

	ck_assert_int_eq(pipe2(end, O_NONBLOCK), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ck_assert_int_ge(inotify_add_watch(notify, path, IN_MODIFY), 0);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 4, &seq[0]));
	ck_ok(pinion_stream_read(g.stream, buf, 1024, notify, 0, sizeof(struct inotify_event), &seq[1]));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[0], pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	ck_assert_int_eq(write(end[1], "abcd", 4), 4);
	ck_ok(pinion_stream_wait(g.stream, seq[0], SOON));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[1], pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), 1);
	ck_ok(pinion_stream_wait(g.stream, seq[1], SOON));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&p));
	ck_assert_mem_eq(p, "abcd", 4);
	ck_assert_uint_eq(((struct inotify_event *)(p + 1024))->mask, IN_MODIFY);
	ck_ok(pinion_stream_read(g.stream, buf, 1024, notify, 0, sizeof(struct inotify_event), &seq[1]));
	usleep(10000);
	ck_ok(pinion_stream_cancel(g.stream, seq[1]));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[1], SOON), -ECANCELED);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* ---- copies ------------------------------------------------------------------------------------------------------ */

START_TEST(copies_and_fills_are_what_was_asked_for)
{
	static const uint64_t lens[] = { 0, 1, 4097, 65536, 65537, 5 * MIB + 3 };
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 256 * KIB };
	struct pinion_buffer *a, *b;
	unsigned char *p;
	struct ground g;

	ground_open(&g, &opts);
	a = buffer(g.ctx, 6 * MIB);
	make_bytes(a, 0, 0, 6 * MIB);
	for (unsigned int i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		b = buffer(g.ctx, 6 * MIB);
		ck_ok(pinion_stream_copy(g.stream, b, 100 + i, a, 7 * i, lens[i], NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		same_bytes(b, 100 + i, 7 * i, lens[i]);
		ck_ok(pinion_stream_fill(g.stream, b, 100 + i, 0, lens[i], NULL));
		ck_ok(pinion_stream_fill(g.stream, b, 50, 9, 50, NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		ck_ok(pinion_buffer_map(b, PINION_READ, (void **)&p));
		for (uint64_t j = 0; j < 6 * MIB; j++)
			if (p[j] != (j >= 50 && j < 100 ? 9 : 0))
				ck_abort_msg("byte %llu is %u", (unsigned long long)j, p[j]);
		pinion_buffer_unref(b);
	}
	ck_assert_int_eq(pinion_stream_copy(g.stream, a, 0, a, 10, 11, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_copy(g.stream, a, 0, a, 6 * MIB, 1, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_copy(g.stream, a, UINT64_MAX, a, 0, 2, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_fill(g.stream, a, 6 * MIB, 1, 1, NULL), -EINVAL);
	ck_ok(pinion_stream_copy(g.stream, a, 0, a, 10, 10, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_buffer_seal(a));
	ck_assert_int_eq(pinion_stream_fill(g.stream, a, 0, 1, 1, NULL), -EPERM);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(a);
	ground_close(&g);
}
END_TEST

/* Each step needs the one before, and none says so. */
START_TEST(steps_that_touch_are_done_in_order)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 64 * KIB, .depth = 8 };
	struct pinion_buffer *a, *b, *c;
	int fd = file(0), from = file(MIB);
	struct ground g;

	ground_open(&g, &opts);
	for (int i = 0; i < 20; i++) {
		a = buffer(g.ctx, MIB);
		b = buffer(g.ctx, MIB);
		c = buffer(g.ctx, MIB);
		ck_ok(pinion_stream_read(g.stream, a, 0, from, 0, MIB, NULL));
		ck_ok(pinion_stream_copy(g.stream, b, 0, a, 0, MIB, NULL));
		ck_ok(pinion_stream_fill(g.stream, a, 0, 0, MIB, NULL));
		ck_ok(pinion_stream_write(g.stream, b, 0, fd, 0, MIB, NULL));
		ck_ok(pinion_stream_fill(g.stream, b, 0, 0, MIB, NULL));
		ck_ok(pinion_stream_read(g.stream, c, 0, fd, 0, MIB, NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		same_bytes(c, 0, 0, MIB);
		pinion_buffer_unref(a);
		pinion_buffer_unref(b);
		pinion_buffer_unref(c);
	}
	ground_close(&g);
	close(fd);
	close(from);
}
END_TEST

#define GIB (UINT64_C(1) << 30)

static uint64_t available_kib(void)
{
	unsigned long long kib = 0;
	FILE *f = fopen("/proc/meminfo", "r");
	char line[128];

	while (fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
		;
	fclose(f);
	return kib;
}

START_TEST(more_than_a_gib_is_moved_in_parts)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 1u << 30, .io = PINION_IO_BUFFERED };
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t len = GIB + MIB + 1;
	unsigned char *p;
	int fd = file(0);

	if (available_kib() < 4 * MIB)
		SKIP("less than 4 GiB of memory are available");
	ck_assert_int_eq(ftruncate(fd, 3 * GIB), 0);
	ck_assert_int_eq(pwrite(fd, "end", 3, 5 + len - 3), 3);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, len);
	ck_ok(pinion_stream_fill(g.stream, buf, 0, 7, len, NULL));
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 5, len, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&p));
	ck_assert_mem_eq(p + len - 3, "end", 3);
	for (uint64_t i = 0; i < len - 3; i += 4093)
		if (p[i])
			ck_abort_msg("byte %llu is %u", (unsigned long long)i, p[i]);
	ck_assert_uint_ge(stats_of(g.stream).reads, 2);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static int running, most_running;

static int takes_a_while(void *arg)
{
	int now = __atomic_add_fetch(&running, 1, __ATOMIC_SEQ_CST), most = __atomic_load_n(&most_running, __ATOMIC_SEQ_CST);

	while (now > most && !__atomic_compare_exchange_n(&most_running, &most, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	usleep(1000);
	__atomic_sub_fetch(&running, 1, __ATOMIC_SEQ_CST);
	return adds_one(arg);
}

static int in_order(void *arg)
{
	int *next = arg;

	/* Plain: the stream's order is what makes it safe. */
	return (*next)++ < 0 ? -ERANGE : 0;
}

static int says_why(void *arg)
{
	(void)arg;
	return fail(EPROTO, "the job did not like it");
}

START_TEST(jobs_run_in_their_streams_order)
{
	struct ground g;
	int next = 0, rounds = test_rounds(2000);
	uint64_t seq;

	ground_open(&g, NULL);
	for (int i = 0; i < rounds; i++)
		ck_ok(i % 3 ? pinion_stream_job(g.stream, in_order, &next, NULL) :
			      pinion_stream_call(g.stream, in_order, &next, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(next, rounds);
	ck_ok(pinion_stream_job(g.stream, says_why, NULL, NULL));
	ck_ok(pinion_stream_job(g.stream, in_order, &next, &seq));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -ECANCELED);
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EPROTO);
	ck_assert_str_eq(pinion_error(), "the job did not like it");
	ck_assert_int_eq(next, rounds);
	ck_assert_int_eq(pinion_stream_job(g.stream, NULL, NULL, NULL), -EINVAL);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ground_close(&g);
}
END_TEST

static void jobs_of_many_streams(unsigned int limit)
{
	struct pinion_stream *s[12];
	struct ground g;
	int ran = 0;

	ground_open(&g, NULL);
	for (int i = 0; i < 12; i++)
		ck_ok(pinion_stream_new(g.dev, NULL, &s[i]));
	for (int round = 0; round < 20; round++)
		for (int i = 0; i < 12; i++)
			ck_ok(pinion_stream_job(s[i], takes_a_while, &ran, NULL));
	for (int i = 0; i < 12; i++) {
		ck_ok(pinion_stream_flush(s[i], SOON));
		pinion_stream_free(s[i]);
	}
	ck_assert_int_eq(ran, 240);
	ck_assert_uint_le(most_running, limit);
	ck_assert_uint_le(pool_most(), limit);
	ck_assert_uint_eq(pool_limit(), limit);
	ground_close(&g);
}

START_TEST(there_are_no_more_workers_than_cpus)
{
	cpu_set_t set;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	if (_i == 0) {
		int first = 0;

		while (!CPU_ISSET(first, &set))
			first++;
		CPU_ZERO(&set);
		CPU_SET(first, &set);
		ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
	}
	/* A quota may allow less. */
	ck_assert_uint_le(pool_limit(), CPU_COUNT(&set));
	jobs_of_many_streams(pool_limit());
}
END_TEST

/* ---- fences between streams -------------------------------------------------------------------------------------- */

START_TEST(a_ring_of_streams_takes_turns)
{
	struct pinion_stream *s[3];
	uint64_t last[3] = { 0 };
	struct ground g;
	int next = 0, rounds = test_rounds(1000);

	ground_open(&g, NULL);
	s[0] = g.stream;
	ck_ok(pinion_stream_new(g.dev, NULL, &s[1]));
	ck_ok(pinion_stream_new(g.dev, NULL, &s[2]));
	for (int i = 0; i < rounds; i++) {
		int me = i % 3, before = (i + 2) % 3;

		if (last[before])
			ck_ok(pinion_stream_fence(s[me], s[before], last[before], NULL));
		/* Its plain counter is touched by three threads, one after the other. */
		ck_ok(i % 2 ? pinion_stream_job(s[me], in_order, &next, &last[me]) :
			      pinion_stream_call(s[me], in_order, &next, &last[me]));
	}
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_stream_flush(s[i], SOON));
	ck_assert_int_eq(next, rounds);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_stream_free(s[1]);
	pinion_stream_free(s[2]);
	ground_close(&g);
}
END_TEST

START_TEST(a_fence_carries_a_failure_and_outlives_a_stream)
{
	struct pinion_stream *other;
	struct ground g;
	uint64_t seq, at;
	int end[2], ran = 0;

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	ck_ok(pinion_stream_new(g.dev, NULL, &other));
	ck_assert_int_eq(pinion_stream_fence(g.stream, other, 1, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_fence(g.stream, g.stream, 1, NULL), -EINVAL);
	ck_ok(pinion_stream_call(other, reads_a_byte, &end[0], NULL));
	ck_ok(pinion_stream_job(other, says_why, NULL, &at));
	ck_ok(pinion_stream_fence(g.stream, other, at, &seq));
	ck_ok(pinion_stream_call(g.stream, adds_one, &ran, NULL));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	ck_assert_int_eq(ran, 0);
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	pinion_stream_free(other);
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -ECANCELED);
	ck_assert_msg(strstr(pinion_error(), "EPROTO") && strstr(pinion_error(), "did not like it"), "%s", pinion_error());
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ECANCELED);
	ck_assert_int_eq(ran, 0);
	/* What is done already is no reason to wait; and the stream that waits may go first. */
	ck_ok(pinion_stream_new(g.dev, NULL, &other));
	ck_ok(pinion_stream_call(other, adds_one, &ran, &at));
	ck_ok(pinion_stream_flush(other, SOON));
	ck_ok(pinion_stream_fence(g.stream, other, at, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_stream_call(g.stream, reads_a_byte, &end[0], &at));
	ck_ok(pinion_stream_fence(other, g.stream, at, &seq));
	ck_ok(pinion_stream_cancel(other, seq));
	pinion_stream_free(other);
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ground_close(&g);
}
END_TEST

/* ---- early ends -------------------------------------------------------------------------------------------------- */

START_TEST(what_is_cancelled_ends_at_once)
{
	struct late_reader late = { 0 };
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq[4];
	int end[2], ran = 0;
	char got[8];

	ck_assert_int_eq(pipe2(end, 0), 0);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	/* In flight: nobody will ever write. */
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 8, &seq[0]));
	ck_ok(pinion_stream_call(g.stream, adds_one, &ran, &seq[1]));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[0], pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	ck_assert_int_eq(pinion_stream_cancel(g.stream, 0), -EINVAL);
	ck_assert_int_eq(pinion_stream_cancel(g.stream, seq[1] + 1), -EINVAL);
	ck_ok(pinion_stream_cancel(g.stream, seq[0]));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[0], SOON), -ECANCELED);
	ck_assert_msg(strstr(pinion_error(), "cancelled") != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[1], SOON), -ECANCELED);
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ECANCELED);
	ck_assert_int_eq(pinion_stream_cancel(g.stream, seq[0]), -EALREADY);
	ck_assert_int_eq(ran, 0);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	/* It takes nothing of the pipe any more. */
	ck_assert_int_eq(write(end[1], "12345678", 8), 8);
	ck_assert_int_eq(read(end[0], got, 8), 8);
	/* Not begun: what is before it is done, it is not. A function that runs is waited for. */
	late.fd = end[0];
	ck_ok(pinion_stream_call(g.stream, begins_and_reads_a_byte, &late, &seq[0]));
	ck_ok(pinion_stream_call(g.stream, adds_one, &ran, &seq[1]));
	ck_ok(pinion_stream_job(g.stream, adds_one, &ran, &seq[2]));
	ck_ok(pinion_stream_cancel(g.stream, seq[2]));
	while (!__atomic_load_n(&late.begun, __ATOMIC_ACQUIRE))
		usleep(1000);
	ck_ok(pinion_stream_cancel(g.stream, seq[0]));
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_wait(g.stream, seq[0], SOON));
	ck_ok(pinion_stream_wait(g.stream, seq[1], SOON));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[2], SOON), -ECANCELED);
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ECANCELED);
	ck_assert_int_eq(ran, 1);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

struct canceller {
	struct pinion_stream *s;
	uint64_t seq; /* atomic: the operation to cancel */
	int stop;     /* atomic */
};

static void *cancels(void *arg)
{
	struct canceller *c = arg;
	uint64_t last = 0;
	unsigned int seed = 7;

	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		uint64_t seq = __atomic_load_n(&c->seq, __ATOMIC_ACQUIRE);
		int ret;

		if (seq == last)
			continue;
		last = seq;
		for (int i = rand_r(&seed) % 3000; i > 0; i--)
			__asm__ volatile("");
		ret = pinion_stream_cancel(c->s, seq);
		if (ret && ret != -EALREADY)
			return (void *)1;
	}
	return NULL;
}

/* Against reads of files, copies, and writes to a pipe, in pieces that complete meanwhile. */
START_TEST(a_thousand_cancels_race_with_completions)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 64 * KIB, .depth = 8, .io = PINION_IO_BUFFERED };
	struct canceller c = { 0 };
	int fd = file(MIB), rounds = test_rounds(1000), cancelled = 0, done = 0;
	struct pinion_buffer *a, *b;
	struct pinion_device_info info = { .size = sizeof(info) };
	pthread_t thread;
	struct ground g;
	void *wrong;
	uint64_t seq, before;

	ground_open(&g, &opts);
	a = buffer(g.ctx, MIB);
	b = buffer(g.ctx, MIB);
	ck_ok(pinion_device_info(g.dev, &info));
	before = info.submitted;
	c.s = g.stream;
	ck_assert_int_eq(pthread_create(&thread, NULL, cancels, &c), 0);
	for (int i = 0; i < rounds; i++) {
		int ret;

		ck_ok(i % 3 == 0 ? pinion_stream_copy(g.stream, b, 0, a, 0, MIB, &seq) :
				   pinion_stream_read(g.stream, a, 0, fd, 0, MIB, &seq));
		__atomic_store_n(&c.seq, seq, __ATOMIC_RELEASE);
		ret = pinion_stream_wait(g.stream, seq, SOON);
		ck_assert_msg(ret == 0 || ret == -ECANCELED, "%d (%s)", ret, pinion_error());
		/* The result does not change, and it is told once. */
		ck_assert_int_eq(pinion_stream_wait(g.stream, seq, 0), ret);
		ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), ret);
		ck_ok(pinion_stream_flush(g.stream, SOON));
		ck_assert_uint_eq(pinion_stream_pending(g.stream), 0);
		*(ret ? &cancelled : &done) += 1;
	}
	__atomic_store_n(&c.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, &wrong);
	ck_assert_ptr_null(wrong);
	ck_assert_int_eq(cancelled + done, rounds);
	printf("# %s: %d cancelled, %d done\n", stats_of(g.stream).engine, cancelled, done);
	ck_ok(pinion_device_info(g.dev, &info));
	ck_assert_uint_eq(info.submitted - before, rounds);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_ok(pinion_stream_read(g.stream, a, 0, fd, 0, MIB, &seq));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	same_bytes(a, 0, 0, MIB);
	pinion_buffer_unref(a);
	pinion_buffer_unref(b);
	ground_close(&g);
	close(fd);
}
END_TEST

/* A cancel may come between two requests of one read: the first has taken a byte, the second finds none and is waited for. */
START_TEST(a_read_is_cancelled_between_its_requests)
{
	int rounds = test_rounds(2000), end[2];
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;
	char got[8];

	ck_assert_int_eq(pipe2(end, O_NONBLOCK), 0);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	for (int i = 0; i < rounds; i++) {
		ck_assert_int_eq(write(end[1], "x", 1), 1);
		ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 8, &seq));
		for (int spin = i % 200 * 500; spin > 0; spin--)
			__asm__ volatile("");
		ck_ok(pinion_stream_cancel(g.stream, seq));
		ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -ECANCELED);
		ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ECANCELED);
		/* Whether it took the byte or not. */
		ck_assert_int_le(read(end[0], got, sizeof(got)), 1);
	}
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(end[0]);
	close(end[1]);
}
END_TEST

/* A read whose deadline was taken back before it came, and how far that was in ns: as far as a busy machine needs. */
static int64_t with_a_deadline_taken_back(struct ground *g, struct pinion_buffer *buf, int fd, uint64_t *seq)
{
	for (int64_t soon = 30 * MS;; soon *= 4) {
		ck_ok(pinion_stream_read(g->stream, buf, 0, fd, 0, 1, seq));
		ck_ok(pinion_stream_deadline(g->stream, *seq, pinion_deadline_in(soon)));
		if (!pinion_stream_deadline(g->stream, *seq, PINION_FOREVER))
			return soon;
		ck_assert_int_eq(pinion_stream_flush(g->stream, SOON), -ETIMEDOUT);
	}
}

START_TEST(an_operation_ends_at_its_deadline)
{
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq[3];
	int64_t soon;
	int end[2], ran = 0;

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	/* In flight, and behind it. */
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 8, &seq[0]));
	ck_ok(pinion_stream_call(g.stream, adds_one, &ran, &seq[1]));
	ck_assert_int_eq(pinion_stream_deadline(g.stream, seq[1] + 1, 0), -EINVAL);
	ck_ok(pinion_stream_deadline(g.stream, seq[0], pinion_deadline_in(30 * MS)));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[0], SOON), -ETIMEDOUT);
	ck_assert_msg(strstr(pinion_error(), "deadline") != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ETIMEDOUT);
	ck_assert_int_eq(pinion_stream_deadline(g.stream, seq[0], 0), -EALREADY);
	ck_assert_int_eq(ran, 0);
	/* One that is past, one that is taken back, one that is far. */
	soon = with_a_deadline_taken_back(&g, buf, end[0], &seq[0]);
	ck_ok(pinion_stream_call(g.stream, adds_one, &ran, &seq[1]));
	ck_ok(pinion_stream_deadline(g.stream, seq[1], SOON));
	ck_ok(pinion_stream_call(g.stream, adds_one, &ran, &seq[2]));
	ck_ok(pinion_stream_deadline(g.stream, seq[2], -5));
	usleep(2 * soon / 1000);
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_wait(g.stream, seq[0], SOON));
	ck_ok(pinion_stream_wait(g.stream, seq[1], SOON));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[2], SOON), -ETIMEDOUT);
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ETIMEDOUT);
	ck_assert_int_eq(ran, 1);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* ---- the descriptor ---------------------------------------------------------------------------------------------- */

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1 && p.revents == POLLIN;
}

START_TEST(a_descriptor_tells_what_is_done)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = 5 };
	struct ground g;
	uint64_t n, total = 0, seq = 0;
	int end[2], fd, set, ran = 0;

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	fd = pinion_stream_fd(g.stream);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pinion_stream_fd(g.stream), fd);
	ck_assert(!readable(fd, 0));
	ck_ok(pinion_stream_call(g.stream, reads_a_byte, &end[0], NULL));
	ck_assert(!readable(fd, 20));
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_assert(readable(fd, -1));
	ck_assert_int_eq(read(fd, &n, sizeof(n)), sizeof(n));
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(read(fd, &n, sizeof(n)), -1);
	set = epoll_create1(EPOLL_CLOEXEC);
	ck_assert_int_eq(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
	for (int i = 0; i < 100; i++)
		ck_ok(pinion_stream_call(g.stream, adds_one, &ran, &seq));
	while (total < 100) {
		ck_assert_int_eq(epoll_wait(set, &event, 1, -1), 1);
		ck_assert_uint_eq(event.data.u32, 5);
		ck_assert_int_eq(read(fd, &n, sizeof(n)), sizeof(n));
		total += n;
		/* What was told is done. */
		ck_ok(pinion_stream_wait(g.stream, 1 + total, 0));
	}
	ck_assert_uint_eq(total, 100);
	close(set);
	pinion_stream_free(g.stream);
	/* Asked for late, it tells that there is something. */
	ck_ok(pinion_stream_new(g.dev, NULL, &g.stream));
	ck_ok(pinion_stream_call(g.stream, adds_one, &ran, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert(readable(pinion_stream_fd(g.stream), 0));
	ground_close(&g);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("stream_ops");
	TCase *writes = tcase_create("writes"), *copies = tcase_create("copies"), *jobs = tcase_create("jobs"),
	      *fences = tcase_create("fences"), *ends = tcase_create("ends");

	tcase_set_timeout(writes, 30);
	tcase_add_loop_test(writes, what_is_written_is_in_the_file, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_loop_test(writes, writes_and_reads_of_one_file_are_done_in_order, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_test(writes, what_is_appended_keeps_its_order);
	tcase_add_loop_test(writes, a_write_is_as_durable_as_its_descriptor, 0, 6);
	tcase_add_loop_test(writes, a_pipe_is_written_in_order, 0, 2);
	tcase_add_test(writes, packets_of_a_pipe_stay_packets);
	tcase_add_test(writes, failures_of_io_are_named);
	tcase_add_test(writes, descriptors_that_do_not_block_are_waited_for);
	suite_add_tcase(s, writes);
	tcase_set_timeout(copies, 120);
	tcase_add_test(copies, copies_and_fills_are_what_was_asked_for);
	tcase_add_test(copies, steps_that_touch_are_done_in_order);
	tcase_add_test(copies, more_than_a_gib_is_moved_in_parts);
	suite_add_tcase(s, copies);
	tcase_set_timeout(jobs, 30);
	tcase_add_test(jobs, jobs_run_in_their_streams_order);
	tcase_add_loop_test(jobs, there_are_no_more_workers_than_cpus, 0, 2);
	suite_add_tcase(s, jobs);
	tcase_set_timeout(fences, 30);
	tcase_add_test(fences, a_ring_of_streams_takes_turns);
	tcase_add_test(fences, a_fence_carries_a_failure_and_outlives_a_stream);
	suite_add_tcase(s, fences);
	tcase_set_timeout(ends, 60);
	tcase_add_test(ends, what_is_cancelled_ends_at_once);
	tcase_add_test(ends, a_thousand_cancels_race_with_completions);
	tcase_add_test(ends, a_read_is_cancelled_between_its_requests);
	tcase_add_test(ends, an_operation_ends_at_its_deadline);
	tcase_add_test(ends, a_descriptor_tells_what_is_done);
	suite_add_tcase(s, ends);
	return s;
}

PINION_TEST_MAIN(suite)
