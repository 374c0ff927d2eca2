/* SPDX-License-Identifier: MIT */
#include "stream_help.h"

#include "error.h"
#include "memory/buffer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- reads ------------------------------------------------------------------------------------------------------- */

static const uint64_t sizes[] = { 0, 1, 511, 4095, 4096, 4097, 3 * MIB, 9 * MIB + 1 };

static void read_whole(const char *dir, enum pinion_io io)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = io };
	struct pinion_stream_stats stats;
	uint64_t total = 0, seq;
	struct ground g;

	ground_open(&g, &opts);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct pinion_buffer *buf = buffer(g.ctx, sizes[i] + 8192);
		int fd = file_in(dir, sizes[i]);

		if (io == PINION_IO_DIRECT || i & 1)
			drop_cache(fd);
		ck_ok(pinion_stream_read(g.stream, buf, 4096, fd, 0, sizes[i], &seq));
		close(fd);
		ck_assert_uint_eq(seq, i + 1);
		ck_ok(pinion_stream_wait(g.stream, seq, SOON));
		same_bytes(buf, 4096, 0, sizes[i]);
		pinion_buffer_unref(buf);
		total += sizes[i];
	}
	ck_ok(pinion_stream_flush(g.stream, SOON));
	stats = stats_of(g.stream);
	ck_assert_uint_eq(stats.direct_bytes + stats.buffered_bytes, total);
	ck_assert_uint_ge(stats.reads, 7);
	ck_assert(io != PINION_IO_BUFFERED || (stats.direct_bytes == 0 && *stats.buffered_why));
	ck_assert(stats.buffered_bytes == 0 || *stats.buffered_why);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ground_close(&g);
}

START_TEST(whole_files_are_read_in_every_way)
{
	read_whole(test_tmp(), _i);
}
END_TEST

START_TEST(whole_files_are_read_from_memory)
{
	if (access("/dev/shm", W_OK))
		SKIP("/dev/shm is not writable");
	read_whole("/dev/shm", _i);
}
END_TEST

START_TEST(ranges_need_no_alignment)
{
	static const uint64_t at[] = { 0, 1, 511, 512, 4095, 4096, 4097, 65535, 65536, 1 * MIB - 1 };
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = _i, .piece = 256 * 1024 };
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(3 * MIB + 123);

	drop_cache(fd);
	ground_open(&g, &opts);
	for (unsigned int f = 0; f < 10; f++) {
		for (unsigned int b = 0; b < 10; b += 3) {
			uint64_t len = (3 * f + b) % 4 == 0 ? 3 * MIB + 123 - at[f] : at[(f + 2 * b) % 10];
			uint64_t seq;

			buf = buffer(g.ctx, 4 * MIB + 8192);
			ck_ok(pinion_stream_read(g.stream, buf, at[b], fd, at[f], len, &seq));
			ck_ok(pinion_stream_wait(g.stream, seq, SOON));
			same_bytes(buf, at[b], at[f], len);
			pinion_buffer_unref(buf);
		}
	}
	close(fd);
	ground_close(&g);
}
END_TEST

START_TEST(the_last_piece_may_be_one_byte)
{
	static const uint32_t depth[] = { 1, 2, 3, 4, 64 };
	int fd = file(3 * 64 * KIB + 1);

	for (unsigned int i = 0; i < 5; i++) {
		struct pinion_stream_opts opts = { .size = sizeof(opts), .io = PINION_IO_DIRECT, .piece = 65536,
						   .depth = depth[i] };
		struct pinion_buffer *buf;
		struct ground g;

		drop_cache(fd);
		ground_open(&g, &opts);
		buf = buffer(g.ctx, 3 * 64 * KIB + 1);
		ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 3 * 64 * KIB + 1, NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		same_bytes(buf, 0, 0, 3 * 64 * KIB + 1);
		ck_assert_uint_ge(stats_of(g.stream).reads, 4);
		pinion_buffer_unref(buf);
		ground_close(&g);
	}
	close(fd);
}
END_TEST

START_TEST(why_bytes_were_buffered_is_said)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = PINION_IO_DIRECT };
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(4 * MIB);

	drop_cache(fd);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, 4 * MIB);
	ck_assert_str_eq(stats_of(g.stream).buffered_why, "");
	ck_ok(pinion_stream_read(g.stream, buf, 1, fd, 1, MIB - 1, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_uint_gt(stats_of(g.stream).buffered_bytes, 0);
	ck_assert_str_ne(stats_of(g.stream).buffered_why, "");
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

/* A direct request that the file's end cuts goes on through the page cache, and finds nothing there. */
START_TEST(a_direct_read_that_ends_inside_a_block_says_why_it_goes_on_buffered)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = PINION_IO_DIRECT };
	struct pinion_stream_stats stats;
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(MIB + 100);

	fdatasync(fd);
	drop_cache(fd);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, 2 * MIB);
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 2 * MIB, NULL));
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ENODATA);
	stats = stats_of(g.stream);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
	if (!stats.direct_bytes)
		SKIP("no direct I/O in %s", test_tmp());
	ck_assert_str_eq(stats.buffered_why, "a direct request ended inside a block");
}
END_TEST

START_TEST(a_descriptor_opened_for_direct_reads_serves_unaligned_ranges)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = _i };
	struct pinion_buffer *buf;
	char path[PATH_MAX];
	struct ground g;
	int fd = file(MIB + 5), direct;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fdatasync(fd);
	direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	close(fd);
	if (direct < 0)
		SKIP("no direct I/O in %s", test_tmp());
	ground_open(&g, &opts);
	buf = buffer(g.ctx, 2 * MIB);
	ck_ok(pinion_stream_read(g.stream, buf, 3, direct, 7, MIB - 2, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	same_bytes(buf, 3, 7, MIB - 2);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(direct);
}
END_TEST

START_TEST(short_reads_are_continued)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .depth = 1, .io = _i };
	struct pinion_buffer *buf;
	char *text = malloc(2 * MIB), *got;
	ssize_t n, want = 0;
	uint64_t shorts;
	struct ground g;
	int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	/* Any file that hands out less than was asked for will do. */
	while (fd >= 0 && want < (ssize_t)(2 * MIB) && (n = pread(fd, text + want, 2 * MIB - want, want)) > 0)
		want += n;
	if (want < 65536) {
		free(text);
		SKIP("/proc/kallsyms is too short here");
	}
	ground_open(&g, &opts);
	buf = buffer(g.ctx, 2 * MIB);
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, want, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&got));
	ck_assert_int_eq(memcmp(text, got, want), 0);
	shorts = stats_of(g.stream).short_reads;
	ck_assert_uint_gt(shorts, 0);
	ck_assert_uint_gt(stats_of(g.stream).reads, shorts);
	ck_assert_uint_eq(stats_of(g.stream).buffered_bytes, want);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
	free(text);
}
END_TEST

START_TEST(a_pipe_is_read_as_it_fills)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .depth = 1, .io = _i };
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;
	char *got;
	int end[2];

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 6, &seq));
	ck_assert_int_eq(write(end[1], "abc", 3), 3);
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	ck_assert_int_eq(write(end[1], "def", 3), 3);
	ck_ok(pinion_stream_wait(g.stream, seq, SOON));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&got));
	ck_assert_mem_eq(got, "abcdef", 6);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

#define PIPE_WORDS (UINT32_C(3) << 20)

/* Numbers in order, for as long as they are read. */
static void *fill_pipe(void *arg)
{
	uint32_t words[4096], next = 0;

	while (next < PIPE_WORDS) {
		for (unsigned int i = 0; i < 4096; i++)
			words[i] = next++;
		for (size_t at = 0; at < sizeof(words);) {
			ssize_t n = write(*(int *)arg, (char *)words + at, sizeof(words) - at);

			if (n <= 0)
				return NULL;
			at += n;
		}
	}
	return NULL;
}

/* Once as one read of several pieces and once as several reads, the second half of them through another descriptor. */
START_TEST(a_pipe_is_read_in_order)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .depth = 4, .piece = 1u << 20 };
	uint64_t bytes = PIPE_WORDS * sizeof(uint32_t), parts = _i ? 12 : 1;
	struct pinion_buffer *buf;
	pthread_t writer;
	struct ground g;
	uint32_t *got;
	int end[2], other;

	ck_assert_int_eq(pipe(end), 0);
	other = dup(end[0]);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, bytes);
	ck_assert_int_eq(pthread_create(&writer, NULL, fill_pipe, &end[1]), 0);
	for (uint64_t i = 0; i < parts; i++)
		ck_ok(pinion_stream_read(g.stream, buf, i * bytes / parts, i < parts / 2 ? other : end[0], 0, bytes / parts, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&got));
	for (uint32_t i = 0; i < PIPE_WORDS; i++)
		if (got[i] != i)
			ck_abort_msg("word %u is %u", i, got[i]);
	pthread_join(writer, NULL);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(other);
	close(end[0]);
	close(end[1]);
}
END_TEST

START_TEST(reads_that_touch_are_done_in_order)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .depth = 8, .piece = 65536 };
	struct pinion_buffer *buf;
	struct ground g;
	unsigned char *p;
	int fd = file(4 * MIB);

	ground_open(&g, &opts);
	buf = buffer(g.ctx, MIB);
	for (int i = 0; i < 50; i++) {
		drop_cache(fd);
		for (uint64_t j = 0; j < 4; j++)
			ck_ok(pinion_stream_read(g.stream, buf, j * 1000, fd, j * MIB + i, MIB - 4000, NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&p));
		ck_assert_uint_eq(p[3000], byte_at(3 * MIB + i));
		ck_assert_uint_eq(p[MIB - 1001], byte_at(3 * MIB + i + MIB - 4001));
		ck_assert_uint_eq(p[2999], byte_at(2 * MIB + i + 999));
		ck_assert_uint_eq(p[0], byte_at(i));
		ck_ok(pinion_buffer_unmap(buf, PINION_READ));
	}
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

/* ---- errors ------------------------------------------------------------------------------------------------------ */

START_TEST(a_read_past_the_end_names_both_offsets)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = _i, .piece = 65536 };
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;
	int fd = file(100001);

	ground_open(&g, &opts);
	buf = buffer(g.ctx, MIB);
	for (int i = 0; i < 20; i++) {
		drop_cache(fd);
		ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 1, 399999, &seq));
		ck_assert_int_eq(pinion_stream_wait(g.stream, seq, SOON), -ENODATA);
		ck_assert_msg(strstr(pinion_error(), "100001") != NULL, "%s", pinion_error());
		ck_assert_msg(strstr(pinion_error(), "400000") != NULL, "%s", pinion_error());
		ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ENODATA);
	}
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 100001, 1, &seq));
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -ENODATA);
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 100000, 1, &seq));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

static int read_result(struct ground *g, struct pinion_buffer *buf, int fd, uint64_t len)
{
	uint64_t seq = 0;
	int ret = pinion_stream_read(g->stream, buf, 0, fd, 0, len, &seq);

	return result_of(g, ret, seq);
}

START_TEST(descriptors_that_cannot_be_read_are_errors)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = _i };
	struct pinion_buffer *buf;
	char path[PATH_MAX];
	struct ground g;
	int fd = file(MIB), dir = open(test_tmp(), O_RDONLY | O_DIRECTORY), write_only, bare;

	drop_cache(fd);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	write_only = open(path, O_WRONLY);
	bare = open(test_tmp(), O_PATH);
	ck_assert_int_ge(write_only, 0);
	ground_open(&g, &opts);
	buf = buffer(g.ctx, MIB);
	ck_assert_int_eq(read_result(&g, buf, -1, 1), -EBADF);
	ck_assert_int_eq(read_result(&g, buf, 1000, MIB), -EBADF);
	ck_assert_int_eq(read_result(&g, buf, dir, MIB), -EISDIR);
	ck_assert_int_eq(read_result(&g, buf, bare, 1), -EBADF);
	ck_assert_int_eq(read_result(&g, buf, write_only, MIB), -EBADF);
	ck_assert_str_ne(pinion_error(), "");
	ck_assert_int_eq(read_result(&g, buf, fd, MIB), 0);
	/* Also when the stream has just read that very file. */
	ck_assert_int_eq(read_result(&g, buf, write_only, MIB), -EBADF);
	ck_assert_int_eq(read_result(&g, buf, fd, MIB), 0);
	close(fd);
	ck_assert_int_eq(read_result(&g, buf, fd, 1), -EBADF);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

START_TEST(ranges_that_do_not_fit_are_refused)
{
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(4096);

	ground_open(&g, NULL);
	buf = buffer(g.ctx, 8192);
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 8192, fd, 0, 1, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 0, fd, 0, 8193, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, UINT64_MAX, fd, 0, 2, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 2, fd, 0, UINT64_MAX, NULL), -EINVAL);
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 0, fd, INT64_MAX, 1, NULL), -EOVERFLOW);
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 0, fd, UINT64_MAX, 1, NULL), -EOVERFLOW);
	ck_assert_uint_eq(pinion_stream_pending(g.stream), 0);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_ok(pinion_stream_read(g.stream, buf, 8192, fd, 4096, 0, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

START_TEST(a_sealed_buffer_is_no_destination)
{
	struct pinion_buffer *buf;
	struct ground g;
	int fd = file(4096);

	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_buffer_seal(buf));
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 0, fd, 0, 4096, NULL), -EPERM);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

START_TEST(options_are_checked)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts) };
	struct pinion_stream *s = NULL;
	struct ground g;

	ground_open(&g, NULL);
	opts.piece = 4095;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	opts.piece = UINT32_MAX;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	opts.piece = 0;
	opts.depth = UINT32_MAX;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	opts.depth = 0;
	opts.capacity = UINT32_MAX;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	opts.capacity = 0;
	opts.io = 3;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	opts.io = PINION_IO_AUTO;
	opts.size = 0;
	ck_assert_int_eq(pinion_stream_new(g.dev, &opts, &s), -EINVAL);
	ck_assert_ptr_null(s);
	ck_assert_int_eq(pinion_stream_call(g.stream, NULL, NULL, NULL), -EINVAL);
	pinion_stream_free(NULL);
	ground_close(&g);
}
END_TEST

/* ---- calls ------------------------------------------------------------------------------------------------------- */

struct order {
	int next;
	int wrong;
};

struct numbered {
	struct order *order;
	int number;
};

static int in_order(void *arg)
{
	struct numbered *n = arg;

	if (n->order->next != n->number)
		n->order->wrong++;
	n->order->next = n->number + 1;
	return 0;
}

START_TEST(ten_thousand_calls_run_in_order)
{
	static struct numbered n[10000];
	struct order order = { 0, 0 };
	struct ground g;
	uint64_t seq;
	int rounds = test_rounds(10000);

	ground_open(&g, NULL);
	for (int i = 0; i < rounds; i++) {
		n[i] = (struct numbered){ &order, i };
		ck_ok(pinion_stream_call(g.stream, in_order, &n[i], &seq));
		ck_assert_uint_eq(seq, i + 1);
	}
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(order.next, rounds);
	ck_assert_int_eq(order.wrong, 0);
	ck_assert_uint_eq(pinion_stream_pending(g.stream), 0);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ground_close(&g);
}
END_TEST

/*
 * Without a wait, so that the next operation comes while the stream's thread goes to sleep. Where that thread has no processor of
 * its own it gets this one, and not only at the end of each turn.
 */
static void spin_until_done(struct pinion_stream *s)
{
	for (unsigned int i = 0; pinion_stream_pending(s); i++)
		if (i >= 1000)
			sched_yield();
}

/* Rounds that begin; on a machine that has hardly any time for this, a twentieth of them. */
static bool goes_on(int round, int rounds, int64_t enough)
{
	return round < rounds && (round < rounds / 20 || pinion_deadline_in(0) < enough);
}

START_TEST(a_call_that_is_waited_for_is_never_missed)
{
	int64_t enough = pinion_deadline_in(40000 * MS);
	struct numbered n = { NULL, 0 };
	struct order order = { 0, 0 };
	struct ground g;
	uint64_t seq;
	int rounds = test_rounds(20000);

	ground_open(&g, NULL);
	n.order = &order;
	for (int i = 0; goes_on(i, rounds, enough); i++) {
		n.number = i;
		ck_ok(pinion_stream_call(g.stream, in_order, &n, &seq));
		if (i % 4)
			spin_until_done(g.stream);
		ck_ok(pinion_stream_wait(g.stream, seq, SOON));
	}
	ck_assert_int_eq(order.wrong, 0);
	ground_close(&g);
}
END_TEST

struct after {
	const unsigned char *byte;
	unsigned char want;
	int wrong;
};

static int after_the_read(void *arg)
{
	struct after *a = arg;

	a->wrong += *a->byte != a->want;
	return 0;
}

START_TEST(a_call_runs_after_the_reads_before_it)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 65536, .io = PINION_IO_DIRECT };
	struct after a = { 0 };
	struct pinion_buffer *buf;
	struct ground g;
	unsigned char *p;
	int fd = file(2 * MIB);

	ground_open(&g, &opts);
	buf = buffer(g.ctx, 2 * MIB);
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&p));
	a.byte = p + MIB - 1;
	for (int i = 0; i < 50; i++) {
		a.want = byte_at(MIB - 1 + 512 * i);
		p[MIB - 1] = a.want + 1;
		drop_cache(fd);
		ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 512 * i, MIB, NULL));
		ck_ok(pinion_stream_call(g.stream, after_the_read, &a, NULL));
		ck_ok(pinion_stream_read(g.stream, buf, MIB - 1, fd, 0, 1, NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		ck_assert_uint_eq(p[MIB - 1], byte_at(0));
	}
	ck_assert_int_eq(a.wrong, 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

static int says_why(void *arg)
{
	(void)arg;
	return fail(EPROTO, "the function did not like it");
}

static int says_nothing(void *arg)
{
	(void)arg;
	return -EDOM;
}

static int counts_itself(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	return 0;
}

START_TEST(an_error_is_carried_until_a_flush_says_it)
{
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq[5];
	unsigned char *p;
	int ran = 0, fd = file(4096);

	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, &seq[0]));
	ck_ok(pinion_stream_call(g.stream, says_why, NULL, &seq[1]));
	ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, &seq[2]));
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 4096, &seq[3]));
	ck_ok(pinion_stream_call(g.stream, says_nothing, NULL, &seq[4]));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[4], SOON), -ECANCELED);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "did not like it"));
	ck_ok(pinion_stream_wait(g.stream, seq[0], SOON));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[1], SOON), -EPROTO);
	ck_assert_str_eq(pinion_error(), "the function did not like it");
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[2], SOON), -ECANCELED);
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[3], SOON), -ECANCELED);
	ck_assert_int_eq(ran, 1);
	/* Still so for what comes before the flush. */
	ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, &seq[4]));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[4], SOON), -ECANCELED);
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EPROTO);
	ck_assert_str_eq(pinion_error(), "the function did not like it");
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(ran, 1);
	ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, NULL));
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 4096, &seq[3]));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(ran, 2);
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&p));
	ck_assert_uint_eq(p[4095], byte_at(4095));
	/* What failed keeps its result. */
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq[1], 0), -EPROTO);
	ck_ok(pinion_stream_call(g.stream, says_nothing, NULL, &seq[0]));
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EDOM);
	ck_assert_str_ne(pinion_error(), "");
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

static int reads_a_byte(void *arg)
{
	char c;

	return read(*(int *)arg, &c, 1) == 1 ? 0 : -EIO;
}

static bool flushed_enough;

static void *flush_on(void *ground)
{
	const struct ground *g = ground;

	while (!__atomic_load_n(&flushed_enough, __ATOMIC_RELAXED))
		if (!pinion_stream_flush(g->stream, SOON))
			sched_yield();
	return NULL;
}

/* While one thread flushes, another submits: whatever was not run says which operation it was that failed. */
START_TEST(what_was_not_run_says_why_however_often_another_flushes)
{
	unsigned int unrun = 0;
	uint64_t seq[4];
	pthread_t thread;
	int ran = 0;
	struct ground g;

	ground_open(&g, NULL);
	ck_assert_int_eq(pthread_create(&thread, NULL, flush_on, &g), 0);
	for (unsigned int i = 0; i < test_rounds(5000); i++) {
		ck_ok(pinion_stream_call(g.stream, says_why, NULL, &seq[0]));
		for (int k = 1; k < 4; k++)
			ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, &seq[k]));
		for (int k = 1; k < 4; k++) {
			int ret = pinion_stream_wait(g.stream, seq[k], SOON);

			ck_assert_msg(!ret || (ret == -ECANCELED && strstr(pinion_error(), "was not run, because")), "%d: %s",
				      ret, pinion_error());
			unrun += ret != 0;
		}
	}
	__atomic_store_n(&flushed_enough, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(ran + unrun, 3 * test_rounds(5000));
	ground_close(&g);
}
END_TEST

/* What is not known any more is not told as done well. */
START_TEST(of_a_failure_that_was_forgotten_nothing_is_said)
{
	uint64_t good, bad, first = 0, later = 0;
	struct ground g;
	int ran = 0;

	ground_open(&g, NULL);
	for (int i = 0; i < 70; i++) {
		ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, &good));
		ck_ok(pinion_stream_call(g.stream, says_why, NULL, &bad));
		ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EPROTO);
		first = first ? first : bad;
		later = i == 20 ? good : later;
		ck_assert_int_eq(pinion_stream_wait(g.stream, first, SOON), i < 64 ? -EPROTO : -EOVERFLOW);
	}
	ck_assert_msg(strstr(pinion_error(), "not known any more") != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_stream_wait(g.stream, first - 1, SOON), -EOVERFLOW);
	ck_ok(pinion_stream_wait(g.stream, later, SOON));
	ck_assert_int_eq(pinion_stream_wait(g.stream, later + 1, SOON), -EPROTO);
	ck_ok(pinion_stream_wait(g.stream, good, SOON));
	ck_assert_int_eq(ran, 70);
	ground_close(&g);
}
END_TEST

/* A child can do nothing with a stream but free it. */
START_TEST(a_forked_child_frees_a_stream_and_what_it_was_made_of)
{
	struct ground g;
	pid_t pid;

	ground_open(&g, NULL);
	ck_assert_int_ge(pinion_stream_fd(g.stream), 0);
	pid = fork();
	if (!pid) {
		unsigned int fds = fds_open();
		size_t before = mallinfo2().uordblks;

		pinion_stream_free(g.stream);
		/* Its ring or its poll, the wake-up and the caller's eventfd. */
		if (fds_open() > fds - 2)
			_exit(1);
		/* Sanitizers have an allocator of their own, which tells nothing. */
		_exit(!before || before - mallinfo2().uordblks >= 64 * SENTENCE_MAX ? 0 : 2);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ground_close(&g);
}
END_TEST

START_TEST(waits_end_at_their_deadline)
{
	struct ground g;
	uint64_t seq;
	int end[2];

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	ck_assert_int_eq(pinion_stream_wait(g.stream, 0, 0), -EINVAL);
	ck_assert_int_eq(pinion_stream_wait(g.stream, 1, PINION_FOREVER), -EINVAL);
	ck_ok(pinion_stream_flush(g.stream, 0));
	ck_ok(pinion_stream_call(g.stream, reads_a_byte, &end[0], &seq));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq + 1, 0), -EINVAL);
	ck_assert_int_eq(pinion_stream_wait(g.stream, UINT64_MAX, 0), -EINVAL);
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, 0), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "1"));
	ck_assert_int_eq(pinion_stream_flush(g.stream, 0), -ETIMEDOUT);
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	ck_assert_int_eq(pinion_stream_flush(g.stream, pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	ck_assert_uint_eq(pinion_stream_pending(g.stream), 1);
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_wait(g.stream, seq, PINION_FOREVER));
	ck_ok(pinion_stream_wait(g.stream, seq, 0));
	ck_ok(pinion_stream_flush(g.stream, 0));
	ground_close(&g);
}
END_TEST

START_TEST(a_deadline_before_the_clock_began_is_past)
{
	static const int64_t past[] = { -1, -999999999, INT64_MIN };
	struct ground g;
	uint64_t seq;
	int end[2];

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	ck_ok(pinion_stream_call(g.stream, reads_a_byte, &end[0], &seq));
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(pinion_stream_wait(g.stream, seq, past[i]), -ETIMEDOUT);
		ck_assert_int_eq(pinion_stream_flush(g.stream, past[i]), -ETIMEDOUT);
	}
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ground_close(&g);
}
END_TEST

START_TEST(a_full_stream_makes_the_next_one_wait)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .capacity = 1, .depth = 1 };
	struct pinion_buffer *buf;
	struct ground g;
	int ran = 0, rounds = test_rounds(1000), fd = file(9 * MIB);

	ground_open(&g, &opts);
	buf = buffer(g.ctx, 9 * MIB);
	for (int i = 0; i < rounds; i++) {
		ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, NULL));
		ck_assert_uint_le(pinion_stream_pending(g.stream), 1);
		ck_assert_uint_le(in_flight(g.dev), 1);
	}
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 9 * MIB, NULL));
	ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(ran, rounds + 1);
	same_bytes(buf, 0, 0, 9 * MIB);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

/* ---- counts and lifetimes ---------------------------------------------------------------------------------------- */

/* Another process that reads the device's count when it is told to. */
static pid_t watcher(int *ask, int *answer)
{
	int question[2], reply[2];
	pid_t pid;

	ck_assert_int_eq(pipe(question), 0);
	ck_assert_int_eq(pipe(reply), 0);
	pid = fork();
	if (!pid) {
		struct pinion_context *ctx;
		struct pinion_device *dev;
		uint32_t n;
		char c;

		close(question[1]);
		if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, "stream", NULL, &dev))
			_exit(1);
		while (read(question[0], &c, 1) == 1)
			if (pinion_device_pending(dev, PINION_SCOPE_ALL, &n) ||
			    write(reply[1], &n, sizeof(n)) != sizeof(n))
				_exit(2);
		_exit(0);
	}
	close(question[0]);
	close(reply[1]);
	*ask = question[1];
	*answer = reply[0];
	return pid;
}

static uint32_t seen_by(int ask, int answer)
{
	uint32_t n = UINT32_MAX;

	ck_assert_int_eq(write(ask, "?", 1), 1);
	ck_assert_int_eq(read(answer, &n, sizeof(n)), sizeof(n));
	return n;
}

START_TEST(another_process_sees_each_operation_in_flight)
{
	struct ground g;
	int ask, answer, end[2], ran = 0;
	pid_t pid = watcher(&ask, &answer);

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	ck_assert_uint_eq(seen_by(ask, answer), 0);
	ck_ok(pinion_stream_call(g.stream, reads_a_byte, &end[0], NULL));
	ck_assert_uint_eq(seen_by(ask, answer), 1);
	for (uint32_t i = 2; i <= 5; i++) {
		ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, NULL));
		ck_assert_uint_eq(seen_by(ask, answer), i);
	}
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_uint_eq(seen_by(ask, answer), 0);
	ground_close(&g);
	close(ask);
	ck_assert_int_eq(reap(pid), 0);
}
END_TEST

START_TEST(a_killed_process_takes_its_operations_with_it)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	struct ground g;
	uint64_t before;
	int ready[2], go[2];
	pid_t pid;
	char c;

	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(go), 0);
	pid = fork();
	if (!pid) {
		struct pinion_buffer *buf;
		struct ground own;
		int end[2];

		memset(&own, 0, sizeof(own));
		if (read(go[0], &c, 1) != 1 || pipe(end) || pinion_open(NULL, &own.ctx))
			_exit(1);
		if (pinion_device_add(own.ctx, "stream", NULL, &own.dev) ||
		    pinion_stream_new(own.dev, NULL, &own.stream) || pinion_buffer_alloc(own.ctx, 4096, NULL, &buf))
			_exit(1);
		if (pinion_stream_call(own.stream, reads_a_byte, &end[0], NULL) ||
		    pinion_stream_read(own.stream, buf, 0, end[0], 0, 5, NULL) || write(ready[1], "r", 1) != 1)
			_exit(2);
		for (;;)
			pause();
	}
	ground_open(&g, NULL);
	ck_ok(pinion_device_info(g.dev, &info));
	before = info.reclaimed;
	ck_assert_int_eq(write(go[1], "g", 1), 1);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ck_assert_uint_eq(in_flight(g.dev), 2);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	ck_ok(pinion_device_info(g.dev, &info));
	ck_assert_uint_eq(info.reclaimed, before + 2);
	ground_close(&g);
}
END_TEST

START_TEST(freeing_waits_for_what_was_submitted)
{
	struct pinion_buffer *buf;
	struct ground g;
	int ran = 0, fd = file(9 * MIB);

	ground_open(&g, NULL);
	buf = buffer(g.ctx, 9 * MIB);
	ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 9 * MIB, NULL));
	for (int i = 0; i < 100; i++)
		ck_ok(pinion_stream_call(g.stream, counts_itself, &ran, NULL));
	pinion_stream_free(g.stream);
	ck_assert_int_eq(ran, 100);
	same_bytes(buf, 0, 0, 9 * MIB);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	pinion_close(g.ctx);
	close(fd);
}
END_TEST

/* How often the threads of this process but this one went to sleep by themselves. */
static uint64_t sleeps_of_others(void)
{
	DIR *d = opendir("/proc/self/task");
	const struct dirent *ent;
	uint64_t sum = 0;

	while ((ent = readdir(d))) {
		char path[64], line[128];
		unsigned long long n;
		FILE *f = NULL;

		snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", ent->d_name);
		if (ent->d_name[0] != '.' && atoi(ent->d_name) != gettid())
			f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			sum += sscanf(line, "voluntary_ctxt_switches: %llu", &n) == 1 ? n : 0;
		if (f)
			fclose(f);
	}
	closedir(d);
	return sum;
}

struct late_writer {
	int fd;
	bool frees; /* atomic: the stream is about to be freed */
	uint64_t sleeps;
};

/* Ends the wait when it has lasted a while: all sleep then, and have been woken up for nothing as often as is said. */
static void *write_late(void *arg)
{
	struct late_writer *late = arg;
	uint64_t before;

	while (!__atomic_load_n(&late->frees, __ATOMIC_ACQUIRE))
		sched_yield();
	test_threads_rest();
	before = sleeps_of_others();
	usleep(400000);
	test_threads_rest();
	late->sleeps = sleeps_of_others() - before;
	return write(late->fd, "x", 1) == 1 ? NULL : (void *)1;
}

START_TEST(freeing_does_not_spin_while_it_waits)
{
	struct late_writer late = { 0 };
	struct pinion_buffer *buf;
	struct ground g;
	pthread_t thread;
	int end[2];

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 1, NULL));
	late.fd = end[1];
	ck_assert_int_eq(pthread_create(&thread, NULL, write_late, &late), 0);
	__atomic_store_n(&late.frees, true, __ATOMIC_RELEASE);
	pinion_stream_free(g.stream);
	pthread_join(thread, NULL);
	/* Whoever looks again all the time, with a nap between, does it thousands of times. */
	ck_assert_msg(late.sleeps < 100, "they slept %llu times", (unsigned long long)late.sleeps);
	pinion_buffer_unref(buf);
	pinion_close(g.ctx);
}
END_TEST

START_TEST(a_stream_leaves_no_descriptor)
{
	struct pinion_buffer *buf;
	struct pinion_stream *s;
	unsigned int fds = 0;
	struct ground g;

	ground_open(&g, NULL);
	buf = buffer(g.ctx, MIB);
	for (int i = 0; i < 20; i++) {
		ck_ok(pinion_stream_new(g.dev, NULL, &s));
		for (int j = 0; j < 5; j++) {
			int fd = file(65536 + j);

			ck_ok(pinion_stream_read(s, buf, 0, fd, 0, 65536 + j, NULL));
			close(fd);
		}
		ck_ok(pinion_stream_flush(s, SOON));
		pinion_stream_free(s);
		if (i == 0)
			fds = fds_open();
	}
	ck_assert_uint_eq(fds_open(), fds);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

START_TEST(the_caller_may_let_go_of_the_buffer_and_the_file)
{
	struct ground g;
	int fd, end[2];

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	for (int i = 0; i < 50; i++) {
		struct pinion_buffer *buf = buffer(g.ctx, MIB);

		fd = file(MIB);
		ck_ok(pinion_stream_call(g.stream, reads_a_byte, &end[0], NULL));
		ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, MIB, NULL));
		pinion_buffer_unref(buf);
		close(fd);
		ck_assert_int_eq(write(end[1], "x", 1), 1);
	}
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_uint_eq(stats_of(g.stream).direct_bytes + stats_of(g.stream).buffered_bytes, 50 * MIB);
	ground_close(&g);
}
END_TEST

START_TEST(a_buffer_is_free_when_its_read_is_done)
{
	int64_t enough = pinion_deadline_in(40000 * MS);
	struct pinion_buffer *buf;
	struct ground g;
	uint64_t seq;
	int rounds = test_rounds(3000), fd = file(4096);

	ground_open(&g, NULL);
	buf = buffer(g.ctx, 4096);
	for (int i = 0; goes_on(i, rounds, enough); i++) {
		ck_ok(pinion_stream_read(g.stream, buf, 0, fd, 0, 1, &seq));
		if (i & 1)
			spin_until_done(g.stream);
		ck_ok(pinion_stream_wait(g.stream, seq, SOON));
		ck_assert_msg(__atomic_load_n(&buf->refs, __ATOMIC_ACQUIRE) == 1, "still held after %d reads", i + 1);
	}
	ck_ok(pinion_buffer_seal(buf));
	ck_assert_int_eq(pinion_stream_read(g.stream, buf, 0, fd, 0, 1, NULL), -EPERM);
	pinion_buffer_unref(buf);
	ground_close(&g);
	close(fd);
}
END_TEST

START_TEST(two_streams_run_at_once)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 65536, .depth = 3 };
	struct pinion_buffer *buf[2];
	struct pinion_stream *s[2];
	struct ground g;
	int fd = file(4 * MIB), ran = 0;

	ground_open(&g, &opts);
	s[0] = g.stream;
	ck_ok(pinion_stream_new(g.dev, &opts, &s[1]));
	for (int i = 0; i < 2; i++)
		buf[i] = buffer(g.ctx, 4 * MIB);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 2; i++) {
			ck_ok(pinion_stream_read(s[i], buf[i], 0, fd, 0, 4 * MIB, NULL));
			ck_ok(pinion_stream_call(s[i], counts_itself, &ran, NULL));
		}
	}
	for (int i = 0; i < 2; i++) {
		ck_ok(pinion_stream_flush(s[i], SOON));
		same_bytes(buf[i], 0, 0, 4 * MIB);
		ck_assert_uint_eq(stats_of(s[i]).direct_bytes + stats_of(s[i]).buffered_bytes, 80 * MIB);
		pinion_buffer_unref(buf[i]);
	}
	ck_assert_int_eq(ran, 40);
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_stream_free(s[1]);
	ground_close(&g);
	close(fd);
}
END_TEST

START_TEST(a_device_that_is_removed_takes_no_more_operations)
{
	struct ground g;
	int ran = 0, end[2];

	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, NULL);
	ck_ok(pinion_device_add(g.ctx, "stream-removed", NULL, &g.dev));
	pinion_stream_free(g.stream);
	ck_ok(pinion_stream_new(g.dev, NULL, &g.stream));
	ck_ok(pinion_stream_call(g.stream, reads_a_byte, &end[0], NULL));
	ck_ok(pinion_device_remove(g.dev));
	ck_assert_int_eq(pinion_stream_call(g.stream, counts_itself, &ran, NULL), -ESTALE);
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_assert_int_eq(ran, 0);
	ground_close(&g);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("stream");
	TCase *reads = tcase_create("reads"), *errors = tcase_create("errors"), *calls = tcase_create("calls"),
	      *life = tcase_create("life");

	tcase_set_timeout(reads, 30);
	tcase_add_loop_test(reads, whole_files_are_read_in_every_way, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_loop_test(reads, whole_files_are_read_from_memory, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_loop_test(reads, ranges_need_no_alignment, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_test(reads, the_last_piece_may_be_one_byte);
	tcase_add_test(reads, why_bytes_were_buffered_is_said);
	tcase_add_test(reads, a_direct_read_that_ends_inside_a_block_says_why_it_goes_on_buffered);
	tcase_add_loop_test(reads, a_descriptor_opened_for_direct_reads_serves_unaligned_ranges, PINION_IO_AUTO,
			    PINION_IO_DIRECT + 1);
	tcase_add_loop_test(reads, short_reads_are_continued, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_loop_test(reads, a_pipe_is_read_as_it_fills, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_loop_test(reads, a_pipe_is_read_in_order, 0, 2);
	tcase_add_test(reads, reads_that_touch_are_done_in_order);
	suite_add_tcase(s, reads);
	tcase_set_timeout(errors, 30);
	tcase_add_loop_test(errors, a_read_past_the_end_names_both_offsets, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_loop_test(errors, descriptors_that_cannot_be_read_are_errors, PINION_IO_AUTO, PINION_IO_DIRECT + 1);
	tcase_add_test(errors, ranges_that_do_not_fit_are_refused);
	tcase_add_test(errors, a_sealed_buffer_is_no_destination);
	tcase_add_test(errors, options_are_checked);
	suite_add_tcase(s, errors);
	tcase_set_timeout(calls, 30);
	tcase_add_test(calls, ten_thousand_calls_run_in_order);
	tcase_add_test(calls, a_call_that_is_waited_for_is_never_missed);
	tcase_add_test(calls, a_call_runs_after_the_reads_before_it);
	tcase_add_test(calls, an_error_is_carried_until_a_flush_says_it);
	tcase_add_test(calls, what_was_not_run_says_why_however_often_another_flushes);
	tcase_add_test(calls, of_a_failure_that_was_forgotten_nothing_is_said);
	tcase_add_test(calls, waits_end_at_their_deadline);
	tcase_add_test(calls, a_deadline_before_the_clock_began_is_past);
	tcase_add_test(calls, a_full_stream_makes_the_next_one_wait);
	suite_add_tcase(s, calls);
	tcase_set_timeout(life, 30);
	tcase_add_test(life, another_process_sees_each_operation_in_flight);
	tcase_add_test(life, a_killed_process_takes_its_operations_with_it);
	tcase_add_test(life, a_forked_child_frees_a_stream_and_what_it_was_made_of);
	tcase_add_test(life, freeing_waits_for_what_was_submitted);
	tcase_add_test(life, freeing_does_not_spin_while_it_waits);
	tcase_add_test(life, a_stream_leaves_no_descriptor);
	tcase_add_test(life, the_caller_may_let_go_of_the_buffer_and_the_file);
	tcase_add_test(life, a_buffer_is_free_when_its_read_is_done);
	tcase_add_test(life, two_streams_run_at_once);
	tcase_add_test(life, a_device_that_is_removed_takes_no_more_operations);
	suite_add_tcase(s, life);
	return s;
}

PINION_TEST_MAIN(suite)
