/* SPDX-License-Identifier: MIT */
/* Picking: the right device by each policy, one winner of a race, every refusal explained. */
#include "harness.h"

#include <errno.h>
#include <pinion/pick.h>
#include <pinion/pinion.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static struct pinion_context *ctx;
static struct pinion_device *a, *b;
static const char *const both[] = { "pick-a", "pick-b" };

static void add_both(struct pinion_context *c, struct pinion_device **one, struct pinion_device **two, uint64_t budget_b)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 1024 * MIB, .capacity = 4 };

	ck_ok(pinion_device_add(c, both[0], &opts, one));
	opts.budget = budget_b;
	ck_ok(pinion_device_add(c, both[1], &opts, two));
}

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
	add_both(ctx, &a, &b, 1024 * MIB);
}

static void teardown(void)
{
	pinion_close(ctx);
}

static int pick(struct pinion_context *c, uint64_t bytes, bool exclusive, enum pinion_policy policy, struct pinion_reservation **r)
{
	struct pinion_want want = { .size = sizeof(want), .bytes = bytes, .exclusive = exclusive, .policy = policy,
				    .keys = both, .key_count = 2 };

	return pinion_pick(c, &want, r);
}

/* 0 or 1: where the claim is. */
static int where(const struct pinion_reservation *r)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };

	ck_ok(pinion_reservation_info(r, &info));
	return strcmp(info.key, both[0]) != 0;
}

static int pick_where(uint64_t bytes, enum pinion_policy policy)
{
	struct pinion_reservation *r;
	int at;

	ck_ok(pick(ctx, bytes, false, policy, &r));
	at = where(r);
	pinion_reservation_free(r);
	return at;
}

START_TEST(two_idle_equal_devices_get_five_hundred_of_a_thousand_picks_each)
{
	unsigned int count[2] = { 0, 0 };

	for (int i = 0; i < 1000; i++)
		count[pick_where(MIB, _i)]++;
	ck_assert_uint_eq(count[0], 500);
	ck_assert_uint_eq(count[1], 500);
}
END_TEST

START_TEST(the_shorter_queue_wins)
{
	struct pinion_ticket t[4] = { 0 };

	for (int i = 0; i < 4; i++)
		ck_ok(pinion_work_begin(a, 0, &t[i]));
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(pick_where(MIB, PINION_POLICY_CHAINED), 1);
		ck_assert_int_eq(pick_where(MIB, PINION_POLICY_LEAST_INFLIGHT), 1);
	}
	for (int i = 0; i < 4; i++)
		ck_ok(pinion_work_end(&t[i]));
}
END_TEST

/* What was picked a moment ago has not begun. */
START_TEST(units_that_are_claimed_count_like_units_in_flight)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .units = 4 };
	struct pinion_reservation *claimed;
	struct pinion_ticket t[3] = { 0 };

	ck_ok(pinion_device_reserve(a, &opts, &claimed));
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(pick_where(MIB, PINION_POLICY_CHAINED), 1);
		ck_assert_int_eq(pick_where(MIB, PINION_POLICY_LEAST_INFLIGHT), 1);
	}
	/* Three in flight are fewer than four that are claimed, and more than two. */
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_begin(b, 0, &t[i]));
	ck_assert_int_eq(pick_where(MIB, PINION_POLICY_LEAST_INFLIGHT), 1);
	pinion_reservation_free(claimed);
	opts.units = 2;
	ck_ok(pinion_device_reserve(a, &opts, &claimed));
	ck_assert_int_eq(pick_where(MIB, PINION_POLICY_LEAST_INFLIGHT), 0);
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_end(&t[i]));
	pinion_reservation_free(claimed);
}
END_TEST

START_TEST(where_it_does_not_fit_comes_before_where_the_queue_is_long)
{
	struct pinion_reservation *most;
	struct pinion_ticket t[4] = { 0 };
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .bytes = 1000 * MIB };

	/* b is idle and full, a is saturated and empty. */
	ck_ok(pinion_device_reserve(b, &opts, &most));
	for (int i = 0; i < 4; i++)
		ck_ok(pinion_work_begin(a, 0, &t[i]));
	ck_assert_int_eq(pick_where(100 * MIB, PINION_POLICY_CHAINED), 0);
	ck_assert_int_eq(pick_where(100 * MIB, PINION_POLICY_FIT), 0);
	/* Tight and idle loses to comfortable and saturated as well. */
	ck_assert_int_eq(pick_where(10 * MIB, PINION_POLICY_CHAINED), 0);
	/* Queues alone: b, although it has to be refused there and a is taken in the end. */
	ck_assert_int_eq(pick_where(10 * MIB, PINION_POLICY_LEAST_INFLIGHT), 1);
	ck_assert_int_eq(pick_where(100 * MIB, PINION_POLICY_LEAST_INFLIGHT), 0);
	for (int i = 0; i < 4; i++)
		ck_ok(pinion_work_end(&t[i]));
	pinion_reservation_free(most);
}
END_TEST

START_TEST(a_refusal_names_every_device_and_its_reason)
{
	struct pinion_reservation *r = NULL;
	struct pinion_want want = { .size = sizeof(want), .bytes = 1 };
	static const char *const nowhere[] = { "pick-none" };

	ck_assert_int_eq(pick(ctx, 2048 * MIB, false, PINION_POLICY_CHAINED, &r), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "'pick-a' has 1073741824 of 1073741824 bytes left, 2147483648 are asked for"));
	ck_assert_ptr_nonnull(strstr(pinion_error(), "'pick-b' has"));
	want.keys = nowhere;
	want.key_count = 1;
	ck_assert_int_eq(pinion_pick(ctx, &want, &r), -ENOENT);
	want.keys = both;
	want.key_count = 2;
	want.policy = 77;
	ck_assert_int_eq(pinion_pick(ctx, &want, &r), -EINVAL);
	ck_assert_int_eq(pinion_pick(ctx, NULL, &r), -EINVAL);
	ck_assert_ptr_null(r);
}
END_TEST

static const struct pinion_pick_row *row_of(const struct pinion_pick_row *rows, size_t n, const char *key)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(rows[i].key, key))
			return &rows[i];
	ck_abort_msg("no row for %s", key);
}

/* Row 39. */
START_TEST(a_device_that_is_not_there_is_passed_over_and_said_or_is_an_error_where_it_is_required)
{
	static const char *const some[] = { "pick-none", "pick-b", "pick-lost" };
	struct pinion_want want = { .size = sizeof(want), .bytes = MIB, .keys = some, .key_count = 3 };
	struct pinion_reservation *r = NULL;
	struct pinion_pick_row rows[4];
	size_t n = 77;

	ck_ok(pinion_pick_explain(ctx, &want, rows, 4, &n, &r));
	ck_assert_int_eq(where(r), 1);
	pinion_reservation_free(r);
	ck_assert_uint_eq(n, 3);
	ck_assert_str_eq(rows[0].key, "pick-none");
	ck_assert_str_eq(rows[1].key, "pick-lost");
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(rows[i].err, -ENOENT);
		ck_assert_msg(strstr(rows[i].why, rows[i].key) != NULL, "%s", rows[i].why);
	}
	ck_assert_int_eq(rows[2].reason, PINION_REASON_CHOSEN);
	ck_assert_int_eq(rows[2].err, 0);
	r = NULL;
	want.require = true;
	ck_assert_int_eq(pinion_pick_explain(ctx, &want, rows, 1, &n, &r), -ENOENT);
	ck_assert_msg(strstr(pinion_error(), "pick-none") != NULL, "%s", pinion_error());
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(pinion_pick(ctx, &want, &r), -ENOENT);
	want.keys = NULL;
	ck_assert_int_eq(pinion_pick(ctx, &want, &r), -EINVAL);
	/* None of them is there. */
	want = (struct pinion_want){ .size = sizeof(want), .bytes = MIB, .keys = some, .key_count = 1 };
	ck_assert_int_eq(pinion_pick(ctx, &want, &r), -ENOENT);
	ck_assert_ptr_null(r);
}
END_TEST

START_TEST(a_pick_tells_what_became_of_each_device)
{
	struct pinion_want want = { .size = sizeof(want), .bytes = 100 * MIB, .policy = _i, .keys = both, .key_count = 2 };
	struct pinion_reserve_opts most = { .size = sizeof(most), .bytes = 1000 * MIB, .units = 1 };
	struct pinion_reservation *full, *r;
	struct pinion_pick_row rows[2];
	size_t n;

	/* a has the shorter queue and no room. */
	ck_ok(pinion_device_reserve(a, &most, &full));
	ck_ok(pinion_pick_explain(ctx, &want, rows, 2, &n, &r));
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(where(r), 1);
	ck_assert_int_eq(row_of(rows, 2, "pick-b")->reason, PINION_REASON_CHOSEN);
	ck_assert_int_eq(row_of(rows, 2, "pick-a")->reason,
			 _i == PINION_POLICY_LEAST_INFLIGHT ? PINION_REASON_LOADED : PINION_REASON_NO_FIT);
	pinion_reservation_free(r);
	/* Fewer rows than devices, and a failure. */
	memset(rows, 0, sizeof(rows));
	want.bytes = 5000 * MIB;
	ck_assert_int_eq(pinion_pick_explain(ctx, &want, rows, 1, &n, &r), -ENOSPC);
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(rows[0].err, -ENOSPC);
	ck_assert_msg(strstr(rows[0].why, rows[0].key) != NULL, "%s", rows[0].why);
	ck_assert_str_eq(rows[1].key, "");
	pinion_reservation_free(full);
}
END_TEST

/* A pick, a selection by the devices' own signals and would_fit are of one mind about memory. */
START_TEST(what_fits_is_the_same_for_would_fit_select_and_pick)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 1000 * MIB, .capacity = 4 };
	static const char *const named[] = { "fit-a", "fit-b", "fit-c" };
	struct pinion_want want = { .size = sizeof(want), .policy = PINION_POLICY_FIT, .keys = named, .key_count = 3 };
	struct pinion_reserve_opts claim = { .size = sizeof(claim) };
	struct pinion_reservation *held[3], *r;
	struct pinion_device *dev[3];

	for (int d = 0; d < 3; d++) {
		ck_ok(pinion_device_add(ctx, named[d], &opts, &dev[d]));
		claim.bytes = (900 - 400 * d) * MIB; /* 100, 500 and 900 are left */
		ck_ok(pinion_device_reserve(dev[d], &claim, &held[d]));
	}
	for (uint64_t need = 10; need <= 1000; need += 10) {
		struct pinion_reservation_info info = { .size = sizeof(info) };
		enum pinion_fit best = PINION_FIT_NO, fit;

		for (int d = 0; d < 3; d++) {
			fit = pinion_device_would_fit(dev[d], need * MIB);
			best = fit < best ? fit : best;
		}
		want.bytes = need * MIB;
		if (best == PINION_FIT_NO) {
			ck_assert_int_eq(pinion_pick(ctx, &want, &r), -ENOSPC);
			continue;
		}
		for (int turn = 0; turn < 3; turn++) {
			struct pinion_device *at;

			ck_ok(pinion_pick(ctx, &want, &r));
			ck_ok(pinion_reservation_device(r, &at));
			pinion_reservation_free(r);
			ck_assert_int_eq(pinion_device_would_fit(at, need * MIB), best);
		}
	}
	for (int d = 0; d < 3; d++)
		pinion_reservation_free(held[d]);
}
END_TEST

/* Of a hundred contexts that pick once each, as a loop in a shell does, both devices have their part. */
START_TEST(contexts_that_pick_once_do_not_all_begin_with_the_first)
{
	unsigned int count[2] = { 0, 0 };

	for (int i = 0; i < 100; i++) {
		struct pinion_reservation *r;
		struct pinion_context *own;

		ck_ok(pinion_open(NULL, &own));
		ck_ok(pick(own, MIB, false, PINION_POLICY_CHAINED, &r));
		count[where(r)]++;
		pinion_reservation_free(r);
		pinion_close(own);
	}
	ck_assert_uint_ge(count[0], 30);
	ck_assert_uint_ge(count[1], 30);
}
END_TEST

/* Two processes pick exclusively from two devices: they never meet. */
START_TEST(exclusive_picks_never_collide)
{
	volatile uint32_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile uint32_t *ready = shared, *done = shared + 1, *place = shared + 2;
	int status;

	for (int p = 0; p < 2; p++) {
		if (fork() == 0) {
			struct pinion_context *own;
			struct pinion_device *one, *two;

			if (pinion_open(NULL, &own))
				_exit(1);
			add_both(own, &one, &two, 1024 * MIB);
			for (uint32_t round = 1; round <= 500; round++) {
				struct pinion_reservation *r;

				__atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
				while (*ready < 2 * round)
					sched_yield();
				if (pick(own, 0, true, PINION_POLICY_CHAINED, &r))
					_exit(2);
				place[p] = 1 + where(r);
				__atomic_add_fetch(done, 1, __ATOMIC_SEQ_CST);
				while (*done < 2 * round)
					sched_yield();
				if (place[0] == place[1])
					_exit(3);
				pinion_reservation_free(r);
			}
			_exit(0);
		}
	}
	for (int p = 0; p < 2; p++) {
		wait(&status);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

START_TEST(policies_have_names)
{
	enum pinion_policy p;

	for (int i = 0; i < 3; i++) {
		ck_ok(pinion_policy_parse(pinion_policy_name(i), &p));
		ck_assert_int_eq(p, i);
	}
	ck_assert_ptr_null(pinion_policy_name(3));
	ck_assert_int_eq(pinion_policy_parse("best", &p), -EINVAL);
	ck_assert_int_eq(pinion_policy_parse(NULL, &p), -EINVAL);
}
END_TEST

START_TEST(what_is_always_there_is_picked_from_where_nobody_looked_for_it_before)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 1 };
	struct pinion_want want = { .size = sizeof(want), .units = 1 };
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_open_opts fresh = { .size = sizeof(fresh) };
	struct pinion_reservation *r = NULL;
	struct pinion_context *own;
	struct pinion_device *dev;
	char dir[512], key[16];

	snprintf(dir, sizeof(dir), "%s/fresh", test_tmp());
	fresh.dir = dir;
	fresh.ground = "memfd";
	ck_ok(pinion_open(&fresh, &own));
	ck_ok(pinion_pick(own, &want, &r));
	ck_ok(pinion_reservation_info(r, &info));
	ck_assert_str_eq(info.key, "hostio");
	pinion_reservation_free(r);
	/* In a full table nothing gives way to it. */
	ck_ok(pinion_device_find(own, "hostio", &dev));
	ck_ok(pinion_device_remove(dev));
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "d%d", i);
		ck_ok(pinion_device_add(own, key, &opts, &dev));
	}
	ck_ok(pinion_pick(own, &want, &r));
	pinion_reservation_free(r);
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "d%d", i);
		ck_ok(pinion_device_find(own, key, &dev));
	}
	pinion_close(own);
}
END_TEST

static Suite *pick_suite(void)
{
	Suite *s = suite_create("pick");
	TCase *tc = tcase_create("pick");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, two_idle_equal_devices_get_five_hundred_of_a_thousand_picks_each, 0, 3);
	tcase_add_test(tc, the_shorter_queue_wins);
	tcase_add_test(tc, units_that_are_claimed_count_like_units_in_flight);
	tcase_add_test(tc, where_it_does_not_fit_comes_before_where_the_queue_is_long);
	tcase_add_test(tc, a_refusal_names_every_device_and_its_reason);
	tcase_add_test(tc, a_device_that_is_not_there_is_passed_over_and_said_or_is_an_error_where_it_is_required);
	tcase_add_loop_test(tc, a_pick_tells_what_became_of_each_device, 0, 3);
	tcase_add_test(tc, what_fits_is_the_same_for_would_fit_select_and_pick);
	tcase_add_test(tc, contexts_that_pick_once_do_not_all_begin_with_the_first);
	tcase_add_test(tc, exclusive_picks_never_collide);
	tcase_add_test(tc, policies_have_names);
	tcase_add_test(tc, what_is_always_there_is_picked_from_where_nobody_looked_for_it_before);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(pick_suite)
