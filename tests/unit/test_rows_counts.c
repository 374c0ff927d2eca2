/* SPDX-License-Identifier: MIT */
/*
 * Contract 5.1 to 5.5 with 7.1: the counter table's own tests as they stand, and what 7.1 asks of a better one. What other
 * tests say is not said again: deaths, scopes and the table (test_device.c), threads (test_work.c), flush (test_flush.c).
 */
#include "harness.h"

#include "work/account.h"

#include <errno.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct pinion_context *ctx;

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static struct pinion_device *device(const char *key, uint32_t capacity)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = capacity };
	struct pinion_device *dev = NULL;

	ck_ok(pinion_device_add(ctx, key, &opts, &dev));
	return dev;
}

static uint32_t count(struct pinion_device *dev, enum pinion_scope scope)
{
	uint32_t n = 77;

	ck_ok(pinion_device_pending(dev, scope, &n));
	return n;
}

#define ck_count(dev, n)                                             \
	do {                                                         \
		ck_assert_uint_eq(count(dev, PINION_SCOPE_ALL), n);  \
		ck_assert_uint_eq(count(dev, PINION_SCOPE_MINE), n); \
	} while (0)

/* ---- 5.4: the tests there are ------------------------------------------------------------------------------------ */

START_TEST(seven_up_and_seven_down_each_step_observed)
{
	struct pinion_device *dev = device("rows-seven", 0);
	struct pinion_ticket ticket[7] = { 0 };

	ck_count(dev, 0);
	for (uint32_t i = 0; i < 7; i++) {
		ck_ok(pinion_work_begin(dev, 1, &ticket[i]));
		ck_count(dev, i + 1);
	}
	for (uint32_t i = 7; i--;) {
		ck_ok(pinion_work_end(&ticket[i]));
		ck_count(dev, i);
	}
}
END_TEST

/* Mended by tickets: a decrement belongs to a unit, so that there is none on a device that has no unit. */
START_TEST(a_decrement_without_a_unit_leaves_0)
{
	struct pinion_device *dev = device("rows-unseen", 0), *none = (void *)1;
	struct pinion_ticket never = { 0 }, ended = { 0 };

	ck_assert_int_eq(pinion_work_end(&never), -EINVAL);
	ck_count(dev, 0);
	ck_ok(pinion_work_begin(dev, 1, &ended));
	ck_ok(pinion_work_end(&ended));
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(pinion_work_end(&ended), -EINVAL);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "ended already"));
		ck_count(dev, 0);
	}
	/* A location that nobody named has no count to be read as 0. */
	ck_assert_int_eq(pinion_device_find(ctx, "rows-nobody-named-it", &none), -ENOENT);
	ck_assert_ptr_eq(none, (void *)1);
}
END_TEST

START_TEST(two_devices_do_not_disturb_one_another)
{
	struct pinion_device *a = device("rows-two-a", 0), *b = device("rows-two-b", 0);
	struct pinion_ticket ticket[3] = { 0 };

	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_begin(i < 2 ? a : b, 1, &ticket[i]));
	ck_count(a, 2);
	ck_count(b, 1);
	/* A surplus end on the one takes nothing from the other. */
	ck_ok(pinion_work_end(&ticket[2]));
	ck_assert_int_eq(pinion_work_end(&ticket[2]), -EINVAL);
	ck_count(a, 2);
	ck_count(b, 0);
	ck_ok(pinion_work_end(&ticket[0]));
	ck_ok(pinion_work_end(&ticket[1]));
	ck_count(a, 0);
	ck_count(b, 0);
}
END_TEST

static int step(void *arg)
{
	++*(int *)arg;
	return 0;
}

static int step_that_fails(void *arg)
{
	++*(int *)arg;
	return -EIO;
}

/* "A live evaluation returns to its starting count", waited for, drained, dropped or in error. */
START_TEST(an_evaluation_returns_to_its_starting_count)
{
	enum { WAITED, DRAINED, DROPPED, FAILED, WAYS };

	for (int way = 0; way < WAYS; way++) {
		struct pinion_device *dev = device("rows-evaluation", 4);
		struct pinion_stream *stream = NULL;
		struct pinion_ticket before = { 0 };
		uint64_t seq[20];
		int ran = 0;

		ck_ok(pinion_work_begin(dev, 1, &before));
		ck_ok(pinion_stream_new(dev, NULL, &stream));
		for (size_t i = 0; i < COUNT(seq); i++)
			ck_ok(pinion_stream_call(stream, way == FAILED && i == 5 ? step_that_fails : step, &ran, &seq[i]));
		for (size_t i = 0; way == WAITED && i < COUNT(seq); i++)
			ck_ok(pinion_stream_wait(stream, seq[i], PINION_FOREVER));
		if (way == DRAINED)
			ck_ok(pinion_stream_flush(stream, PINION_FOREVER));
		if (way == FAILED)
			ck_assert_int_eq(pinion_stream_flush(stream, PINION_FOREVER), -EIO);
		if (way != DROPPED)
			ck_count(dev, 1);
		pinion_stream_free(stream);
		ck_count(dev, 1);
		ck_assert_int_eq(ran, way == FAILED ? 6 : 20);
		ck_ok(pinion_work_end(&before));
		ck_count(dev, 0);
	}
}
END_TEST

/* ---- 5.1, 7.1 ---------------------------------------------------------------------------------------------------- */

/* "Two racing creators are harmless", of different processes here. */
START_TEST(racing_creators_count_on_one_device)
{
	enum { CREATORS = 8 };
	atomic_uint *gate = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int out[2];
	pid_t pid[CREATORS];

	ck_assert_int_eq(pipe(out), 0);
	for (int i = 0; i < CREATORS; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			struct pinion_ticket ticket = { 0 };
			struct pinion_context *own;
			struct pinion_device *dev;
			char c;

			close(out[1]);
			if (pinion_open(NULL, &own))
				_exit(1);
			for (atomic_fetch_add(gate, 1); atomic_load(gate) < CREATORS;)
				sched_yield();
			if (pinion_device_add(own, "rows-race", NULL, &dev) || pinion_work_begin(dev, 1, &ticket))
				_exit(2);
			atomic_fetch_add(gate, 1);
			if (read(out[0], &c, 1)) /* until the test has looked */
				_exit(3);
			if (pinion_work_end(&ticket))
				_exit(4);
			pinion_close(own);
			_exit(0);
		}
	}
	while (atomic_load(gate) < 2 * CREATORS)
		usleep(1000);
	ck_assert_uint_eq(count(device("rows-race", 0), PINION_SCOPE_ALL), CREATORS);
	close(out[1]);
	for (int i = 0; i < CREATORS; i++) {
		int status;

		ck_assert_int_eq(waitpid(pid[i], &status, 0), pid[i]);
		ck_assert_int_eq(status, 0);
	}
	ck_assert_uint_eq(count(device("rows-race", 0), PINION_SCOPE_ALL), 0);
	close(out[0]);
}
END_TEST

/* Moves the lane of this thread, as 2^32 operations would. */
static void submit_unseen(struct pinion_device *dev, uint64_t units)
{
	const struct lane_ref *ref = NULL;

	ck_ok(lane_get(dev, &ref));
	__atomic_add_fetch(&ref->lane->submitted[0].ops, units, __ATOMIC_RELEASE);
}

/* "2^32 outstanding operations would wrap": the count stops at the most that it can say. And never below 0. */
START_TEST(the_count_saturates_at_both_ends)
{
	static const struct {
		const char *name;
		uint64_t moved;
		uint32_t seen;
	} rows[] = {
		{ "the most there can be, less one", UINT32_MAX - UINT64_C(2), UINT32_MAX - 1 },
		{ "the most there can be", UINT32_MAX - UINT64_C(1), UINT32_MAX },
		{ "one more", UINT32_MAX, UINT32_MAX },
		{ "what would wrap to 3", (UINT64_C(1) << 32) + 2, UINT32_MAX },
		{ "2^40", UINT64_C(1) << 40, UINT32_MAX },
		{ "one less than none", -UINT64_C(2), 0 },
	};
	struct pinion_device *dev = device("rows-saturates", 0);
	struct pinion_ticket ticket = { 0 };

	ck_ok(pinion_work_begin(dev, 1, &ticket));
	for (size_t i = 0; i < COUNT(rows); i++) {
		uint32_t mine, all;

		submit_unseen(dev, rows[i].moved);
		all = count(dev, PINION_SCOPE_ALL);
		mine = count(dev, PINION_SCOPE_MINE);
		ck_assert_msg(all == rows[i].seen && mine == rows[i].seen, "%s: %u and %u", rows[i].name, all, mine);
		submit_unseen(dev, -rows[i].moved);
		ck_count(dev, 1);
	}
	ck_ok(pinion_work_end(&ticket));
	ck_count(dev, 0);
}
END_TEST

/* "Count at submission, not at wait-set membership": 5.4's operations that nobody waits for count as the others do. */
static int reads_a_byte(void *arg)
{
	char c;

	return read(*(int *)arg, &c, 1) == 1 ? 0 : -EIO;
}

START_TEST(what_nobody_waits_for_is_counted_until_it_is_done)
{
	struct pinion_device *dev = device("rows-unwaited", 4);
	struct pinion_stream *stream = NULL;
	uint32_t low = 8;
	int end[2];

	ck_assert_int_eq(pipe(end), 0);
	ck_ok(pinion_stream_new(dev, NULL, &stream));
	for (uint32_t i = 0; i < 8; i++) {
		ck_ok(pinion_stream_call(stream, reads_a_byte, &end[0], NULL));
		ck_count(dev, i + 1);
	}
	/* It falls when the work is done, though nobody noticed; a wait that gives up leaves it as it is. */
	ck_assert_int_eq(pinion_stream_flush(stream, 0), -ETIMEDOUT);
	ck_count(dev, 8);
	ck_assert_int_eq(write(end[1], "abc", 3), 3);
	while (low > 5)
		low = count(dev, PINION_SCOPE_ALL);
	ck_assert_uint_eq(low, 5);
	ck_assert_int_eq(write(end[1], "defgh", 5), 5);
	while (count(dev, PINION_SCOPE_ALL))
		;
	pinion_stream_free(stream);
	close(end[0]);
	close(end[1]);
}
END_TEST

/* "Advertise per device": the capacity is the one that was said, 0 is not known and is read as 1 by who asks for tiers. */
START_TEST(capacity_is_the_devices_own)
{
	static const uint32_t said[] = { 0, 1, 4, 500, UINT32_MAX };
	char key[32];

	for (size_t i = 0; i < COUNT(said); i++) {
		uint32_t n = 77;

		snprintf(key, sizeof(key), "rows-capacity-%zu", i);
		ck_ok(pinion_device_capacity(device(key, said[i]), &n));
		ck_assert_uint_eq(n, said[i]);
		ck_assert_int_eq(pinion_load_tier(1, n), n <= 1 ? PINION_LOAD_SATURATED :
							 n <= 4 ? PINION_LOAD_MODERATE :
								  PINION_LOAD_IDLE);
	}
}
END_TEST

/* "Table keyed by location": every device answers, whichever of them work goes to; the CPU has no count rather than 0. */
START_TEST(every_device_of_a_context_is_looked_up)
{
	struct pinion_device *dev[6];
	struct pinion_ticket ticket[21] = { 0 };
	uint32_t seen[6], n = 77, t = 0;
	char key[32];

	for (uint32_t d = 0; d < COUNT(dev); d++) {
		snprintf(key, sizeof(key), "rows-located-%u", d);
		dev[d] = device(key, 1);
		for (uint32_t i = 0; i < d; i++)
			ck_ok(pinion_work_begin(dev[d], 1, &ticket[t++]));
	}
	ck_ok(pinion_devices_pending(dev, COUNT(dev), PINION_SCOPE_ALL, seen));
	for (uint32_t d = 0; d < COUNT(dev); d++) {
		ck_assert_uint_eq(seen[d], d);
		ck_count(dev[d], d);
	}
	while (t)
		ck_ok(pinion_work_end(&ticket[--t]));
	ck_ok(pinion_device_find(ctx, "cpu", &dev[0]));
	ck_assert_int_eq(pinion_device_pending(dev[0], PINION_SCOPE_ALL, &n), -ENODATA);
	ck_assert_uint_eq(n, 77);
}
END_TEST

/* "CPU never": what the CPU computes is counted on no device. */
START_TEST(what_the_cpu_does_is_not_counted)
{
	struct pinion_device *cpu = NULL, *hostio = NULL;
	struct pinion_array *a = NULL, *b = NULL;
	uint32_t before, n = 77;

	ck_ok(pinion_device_find(ctx, "cpu", &cpu));
	ck_ok(pinion_device_find(ctx, "hostio", &hostio));
	before = count(hostio, PINION_SCOPE_ALL);
	ck_ok(pinion_array_zeros(cpu, PINION_DTYPE_F32, 2, (uint64_t[]){ 8, 8 }, &a));
	ck_ok(pinion_array_matmul(a, NULL, a, NULL, &b));
	ck_assert_int_eq(pinion_device_pending(cpu, PINION_SCOPE_ALL, &n), -ENODATA);
	ck_assert_uint_eq(n, 77);
	ck_assert_uint_eq(count(hostio, PINION_SCOPE_ALL), before);
	pinion_array_free(a);
	pinion_array_free(b);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_counts");
	TCase *tc = tcase_create("rows");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, seven_up_and_seven_down_each_step_observed);
	tcase_add_test(tc, a_decrement_without_a_unit_leaves_0);
	tcase_add_test(tc, two_devices_do_not_disturb_one_another);
	tcase_add_test(tc, an_evaluation_returns_to_its_starting_count);
	tcase_add_test(tc, racing_creators_count_on_one_device);
	tcase_add_test(tc, the_count_saturates_at_both_ends);
	tcase_add_test(tc, what_nobody_waits_for_is_counted_until_it_is_done);
	tcase_add_test(tc, capacity_is_the_devices_own);
	tcase_add_test(tc, every_device_of_a_context_is_looked_up);
	tcase_add_test(tc, what_the_cpu_does_is_not_counted);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(suite)
