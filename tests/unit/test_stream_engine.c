/* SPDX-License-Identifier: MIT */
/* Which engine a stream gets, and that it makes no difference. */
#include "stream_help.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* From now on @call fails with @err, in every thread of this process. */
static void refuse(unsigned int call, int err)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(program) / sizeof(program[0]), program };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter), 0);
}

static int adds_one(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_RELAXED);
	return 0;
}

/* What was done, in numbers that two engines must agree on. */
struct outcome {
	uint64_t hash;
	int results[6];
	char sentence[2][512];
	int ran;
};

static uint64_t hash_of(const unsigned char *p, uint64_t n, uint64_t hash)
{
	for (uint64_t i = 0; i < n; i++)
		hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
	return hash;
}

static void wait_for(struct ground *g, uint64_t seq, struct outcome *o, int i)
{
	o->results[i] = pinion_stream_wait(g->stream, seq, SOON);
	if (o->results[i] && i < 2)
		snprintf(o->sentence[i], sizeof(o->sentence[i]), "%s", pinion_error());
	pinion_stream_flush(g->stream, SOON);
}

static void do_everything(const char *engine, struct outcome *o)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .piece = 64 * KIB };
	int from = file(3 * MIB + 77), to = file(0), end[2];
	struct pinion_buffer *a, *b;
	struct ground g;
	uint64_t seq;
	unsigned char *p;

	memset(o, 0, sizeof(*o));
	ck_assert_int_eq(pipe(end), 0);
	ground_open(&g, &opts);
	ck_assert_str_eq(stats_of(g.stream).engine, engine);
	a = buffer(g.ctx, 4 * MIB);
	b = buffer(g.ctx, 4 * MIB);
	ck_ok(pinion_stream_read(g.stream, a, 13, from, 77, 3 * MIB, NULL));
	ck_ok(pinion_stream_copy(g.stream, b, 5, a, 13, 3 * MIB, NULL));
	ck_ok(pinion_stream_fill(g.stream, b, 99, 42, 100000, NULL));
	ck_ok(pinion_stream_write(g.stream, b, 0, to, 7, 4 * MIB, NULL));
	ck_ok(pinion_stream_job(g.stream, adds_one, &o->ran, NULL));
	ck_ok(pinion_stream_call(g.stream, adds_one, &o->ran, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_stream_read(g.stream, a, 0, to, 0, 4 * MIB, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_stream_read(g.stream, a, 0, from, 3 * MIB, MIB, &seq));
	wait_for(&g, seq, o, 0);
	ck_ok(pinion_stream_read(g.stream, a, 0, open("/proc/self/mem", O_RDONLY), 0, 10, &seq));
	wait_for(&g, seq, o, 1);
	ck_ok(pinion_stream_write(g.stream, a, 0, open("/dev/full", O_WRONLY), 0, 10, &seq));
	wait_for(&g, seq, o, 2);
	ck_ok(pinion_stream_read(g.stream, a, 0, open("/", O_RDONLY), 0, 10, &seq));
	wait_for(&g, seq, o, 3);
	ck_ok(pinion_stream_read(g.stream, a, 0, end[0], 0, 10, &seq));
	ck_ok(pinion_stream_deadline(g.stream, seq, pinion_deadline_in(10 * MS)));
	wait_for(&g, seq, o, 4);
	close(end[1]);
	ck_ok(pinion_stream_read(g.stream, a, 0, end[0], 0, 10, &seq));
	wait_for(&g, seq, o, 5);
	ck_ok(pinion_buffer_map(b, PINION_READ, (void **)&p));
	o->hash = hash_of(p, 4 * MIB, 7);
	ck_ok(pinion_stream_read(g.stream, a, 0, to, 0, 4 * MIB, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	ck_ok(pinion_buffer_map(a, PINION_READ, (void **)&p));
	o->hash = hash_of(p, 4 * MIB, o->hash);
	if (!strcmp(engine, "threads")) {
		ck_assert_uint_eq(stats_of(g.stream).registered_bytes, 0);
		ck_assert(!stats_of(g.stream).direct_bytes || strstr(stats_of(g.stream).unregistered_why, "threads"));
	}
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(a);
	pinion_buffer_unref(b);
	ground_close(&g);
}

START_TEST(engines_give_the_same_results)
{
	struct outcome uring, threads;
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_context *ctx;

	unsetenv("PINION_ENGINE");
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_context_info(ctx, &info));
	pinion_close(ctx);
	if (strcmp(info.engine, "io_uring"))
		SKIP("no io_uring here: %s", info.engine_why);
	ck_assert_str_eq(info.engine_why, "");
	do_everything("io_uring", &uring);
	setenv("PINION_ENGINE", "threads", 1);
	do_everything("threads", &threads);
	ck_assert_uint_eq(uring.hash, threads.hash);
	ck_assert_int_eq(uring.ran, 2);
	ck_assert_int_eq(threads.ran, 2);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(uring.results[i], threads.results[i]);
	ck_assert_int_eq(uring.results[0], -ENODATA);
	ck_assert_int_eq(uring.results[1], -EIO);
	ck_assert_int_eq(uring.results[2], -ENOSPC);
	ck_assert_int_eq(uring.results[3], -EISDIR);
	ck_assert_int_eq(uring.results[4], -ETIMEDOUT);
	ck_assert_int_eq(uring.results[5], -ENODATA);
	ck_assert_str_eq(uring.sentence[0], threads.sentence[0]);
	ck_assert_str_eq(uring.sentence[1], threads.sentence[1]);
}
END_TEST

/* What is said of streams to come. */
static void expect_engine(struct pinion_context *ctx, const char *name, const char *why)
{
	struct pinion_context_info info = { .size = sizeof(info) };

	ck_ok(pinion_context_info(ctx, &info));
	ck_assert_str_eq(info.engine, name);
	ck_assert_msg(strstr(info.engine_why, why) != NULL, "%s", info.engine_why);
}

/* What a container's profile, a service's SystemCallErrorNumber= and a half-hearted filter do. */
static const struct {
	unsigned int call;
	int err;
} refusals[] = {
	{ SYS_io_uring_setup, EPERM }, { SYS_io_uring_setup, ENOSYS }, { SYS_io_uring_setup, EINVAL },
	{ SYS_io_uring_enter, EPERM }, { SYS_io_uring_enter, ENOSYS },
};

START_TEST(threads_are_chosen_where_io_uring_is_refused)
{
	int err = refusals[_i].err;
	struct pinion_context_info info = { .size = sizeof(info) };
	struct outcome threads;
	struct pinion_context *ctx;
	struct pinion_stream *s = NULL;
	struct pinion_device *dev;

	unsetenv("PINION_ENGINE");
	refuse(refusals[_i].call, err);
	do_everything("threads", &threads);
	ck_assert_int_eq(threads.ran, 2);
	ck_assert_int_eq(threads.results[1], -EIO);
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_context_info(ctx, &info));
	ck_assert_str_eq(info.engine, "threads");
	ck_assert_ptr_nonnull(strstr(info.engine_why, "io_uring"));
	ck_ok(pinion_device_find(ctx, "hostio", &dev));
	setenv("PINION_ENGINE", "uring", 1);
	ck_assert_int_eq(pinion_stream_new(dev, NULL, &s), -EOPNOTSUPP);
	ck_assert_msg(strstr(pinion_error(), strerrordesc_np(err)) != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_URING_SECCOMP);
	ck_assert_ptr_null(s);
	expect_engine(ctx, "none", "io_uring is refused here");
	pinion_close(ctx);
}
END_TEST

/* What keeps memory from being registered. */
static const struct {
	unsigned int call;
	int err;
} register_refusals[] = {
	{ SYS_io_uring_setup, EPERM }, { SYS_io_uring_setup, ENOSYS }, { SYS_io_uring_setup, EINVAL },
	{ SYS_io_uring_register, EPERM }, { SYS_io_uring_register, ENOSYS },
};

/* More memory to lock would not help. */
START_TEST(a_registration_that_is_refused_says_by_what)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_REGISTERED };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_buffer *buf = NULL;
	struct pinion_context *ctx;

	refuse(register_refusals[_i].call, register_refusals[_i].err);
	ck_ok(pinion_open(NULL, &ctx));
	ck_assert_int_eq(pinion_buffer_alloc(ctx, 4096, &opts, &buf), -register_refusals[_i].err);
	ck_assert_msg(strstr(pinion_error(), strerrordesc_np(register_refusals[_i].err)) != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_URING_SECCOMP);
	ck_assert_ptr_null(buf);
	opts.hold = PINION_HOLD_AUTO;
	ck_ok(pinion_buffer_alloc(ctx, 4096, &opts, &buf));
	ck_ok(pinion_buffer_info(buf, &info));
	ck_assert_int_ne(info.hold, PINION_HOLD_REGISTERED);
	ck_assert_msg(strstr(info.hold_why, strerrordesc_np(register_refusals[_i].err)) != NULL, "%s", info.hold_why);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

/* A server that shuts itself in when it has begun. */
START_TEST(a_ring_that_is_refused_while_it_is_used_hangs_nobody)
{
	int from = file(64 * KIB), end[2];
	struct pinion_buffer *buf;
	uint64_t seq, behind;
	struct ground g;
	int ran = 0;

	setenv("PINION_ENGINE", "uring", 1);
	ground_open(&g, NULL);
	if (strcmp(stats_of(g.stream).engine, "io_uring"))
		SKIP("no io_uring here");
	buf = buffer(g.ctx, MIB);
	ck_assert_int_eq(pipe(end), 0);
	ck_ok(pinion_stream_read(g.stream, buf, 0, from, 0, 64 * KIB, NULL));
	ck_ok(pinion_stream_flush(g.stream, SOON));
	/* The kernel has this one, and ends it. */
	ck_ok(pinion_stream_read(g.stream, buf, 0, end[0], 0, 1, &seq));
	ck_assert_int_eq(pinion_stream_wait(g.stream, seq, pinion_deadline_in(20 * MS)), -ETIMEDOUT);
	test_threads_rest();
	refuse(SYS_io_uring_enter, EPERM);
	ck_ok(pinion_stream_read(g.stream, buf, MIB / 2, from, 0, 64 * KIB, &behind));
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_ok(pinion_stream_wait(g.stream, seq, SOON));
	ck_assert_int_eq(pinion_stream_wait(g.stream, behind, SOON), -EOPNOTSUPP);
	ck_assert_msg(strstr(pinion_error(), "io_uring is refused here") != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_URING_SECCOMP);
	ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EOPNOTSUPP);
	/* What needs no ring goes on. */
	for (int i = 1; i < 4; i++) {
		ck_ok(pinion_stream_call(g.stream, adds_one, &ran, NULL));
		ck_ok(pinion_stream_flush(g.stream, SOON));
		ck_assert_int_eq(ran, i);
		ck_ok(pinion_stream_read(g.stream, buf, 0, from, 0, 64 * KIB, &seq));
		ck_assert_int_eq(pinion_stream_flush(g.stream, SOON), -EOPNOTSUPP);
	}
	ck_assert_uint_eq(in_flight(g.dev), 0);
	pinion_buffer_unref(buf);
	ground_close(&g);
}
END_TEST

/* Descriptors that are used up are no refusal: what is said is what a stream would meet with. */
START_TEST(what_a_stream_would_get_is_said_where_it_would_get_none)
{
	struct rlimit lim, few;
	struct pinion_stream *s = NULL;
	struct ground g;
	int ret;

	unsetenv("PINION_ENGINE");
	ground_open(&g, NULL);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &lim), 0);
	few = lim;
	few.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ret = pinion_stream_new(g.dev, NULL, &s);
	expect_engine(g.ctx, "none", strerrordesc_np(EMFILE));
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &lim), 0);
	ck_assert_int_eq(ret, -EMFILE);
	ck_assert_ptr_null(s);
	ground_close(&g);
}
END_TEST

START_TEST(an_engine_that_is_not_known_is_refused)
{
	struct pinion_stream *s = NULL;
	struct ground g;

	unsetenv("PINION_ENGINE");
	ground_open(&g, NULL);
	setenv("PINION_ENGINE", "fibres", 1);
	ck_assert_int_eq(pinion_stream_new(g.dev, NULL, &s), -EINVAL);
	ck_assert_msg(strstr(pinion_error(), "fibres") && strstr(pinion_error(), "threads"), "%s", pinion_error());
	ck_assert_ptr_null(s);
	expect_engine(g.ctx, "none", "PINION_ENGINE");
	setenv("PINION_ENGINE", "", 1);
	ck_ok(pinion_stream_new(g.dev, NULL, &s));
	pinion_stream_free(s);
	ground_close(&g);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("stream_engine");
	TCase *choice = tcase_create("choice");

	tcase_set_timeout(choice, 30);
	tcase_add_test(choice, engines_give_the_same_results);
	tcase_add_loop_test(choice, threads_are_chosen_where_io_uring_is_refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_loop_test(choice, a_registration_that_is_refused_says_by_what, 0,
			    sizeof(register_refusals) / sizeof(register_refusals[0]));
	tcase_add_test(choice, a_ring_that_is_refused_while_it_is_used_hangs_nobody);
	tcase_add_test(choice, what_a_stream_would_get_is_said_where_it_would_get_none);
	tcase_add_test(choice, an_engine_that_is_not_known_is_refused);
	suite_add_tcase(s, choice);
	return s;
}

PINION_TEST_MAIN(suite)
