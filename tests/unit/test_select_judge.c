/* SPDX-License-Identifier: MIT */
/* Contract 5.9: the judge-aware selector. */
#include "select_world.h"

/* @cuda and @cpu: measured ns, 0: not measured. The candidates take 100 and 200 ns by estimate. */
static size_t judged(uint64_t cuda, uint64_t cpu, uint64_t cuda_inbound, uint64_t cpu_inbound, bool with_task)
{
	struct pinion_candidate list[] = {
		candidate(PINION_BACKEND_CUDA, 0, 3000, 3000),
		candidate(PINION_BACKEND_CPU, 0, 200, 200),
	};
	struct world w = {
		/* Does not fit and is saturated: neither matters here. */
		.at[PINION_BACKEND_CUDA][0] = QUEUE(1, 10000, 4, 1),
		.at[PINION_BACKEND_CPU][0] = QUEUE(1, 10000, 4, 1),
	};
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .estimate = estimate_must_not_run };
	struct pinion_judge *judge = NULL;
	struct pinion_selector *s;
	struct pinion_set *set;
	size_t index;

	ck_ok(pinion_judge_new(&judge));
	if (cuda)
		put(judge, PINION_BACKEND_CUDA, "", cuda);
	if (cpu)
		put(judge, PINION_BACKEND_CPU, "", cpu);
	list[0].inbound_transfer_ns = cuda_inbound;
	list[1].inbound_transfer_ns = cpu_inbound;
	set = set_of(list, 2, with_task);
	opts.judge = judge;
	s = selector(JUDGE, &opts);
	index = pick(s, set);
	ck_assert_uint_eq(atomic_load(&w.lookups[PINION_BACKEND_CUDA][0]), 0);
	pinion_selector_unref(s);
	pinion_judge_free(judge);
	pinion_set_free(set);
	return index;
}

START_TEST(a_measurement_of_no_backend_is_refused)
{
	static const unsigned int none[] = { 0, PINION_BACKEND_METAL + 1, 99, -1 };
	struct pinion_measure measure = { .ns = 5 };
	struct pinion_judge *judge;

	ck_ok(pinion_judge_new(&judge));
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		ck_assert_int_eq(pinion_judge_put(judge, &task, none[i], "", &measure), -EINVAL);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "backend"));
	}
	ck_assert_uint_eq(pinion_judge_size(judge), 0);
	ck_ok(pinion_judge_put(judge, &task, PINION_BACKEND_METAL, "", &measure));
	ck_assert_uint_eq(pinion_judge_size(judge), 1);
	pinion_judge_free(judge);
}
END_TEST

START_TEST(judge_aware_row_by_row)
{
	/* nothing measured: estimates */
	ck_assert_uint_eq(judged(0, 0, 0, 0, true), 0);
	/* fast measured */
	ck_assert_uint_eq(judged(0, 50, 0, 0, true), 1);
	/* a slow measured one loses to a fast one that was not */
	ck_assert_uint_eq(judged(0, 5000, 0, 0, true), 0);
	ck_assert_uint_eq(judged(5000, 0, 0, 0, true), 1);
	/* both measured */
	ck_assert_uint_eq(judged(900, 800, 0, 0, true), 1);
	ck_assert_uint_eq(judged(800, 900, 0, 0, true), 0);
	/* ties go to the earlier */
	ck_assert_uint_eq(judged(0, 100, 0, 0, true), 0);
	ck_assert_uint_eq(judged(200, 0, 0, 0, true), 0);
	/* the inbound transfer is added to estimates and to measured times */
	ck_assert_uint_eq(judged(0, 0, 101, 0, true), 1);
	ck_assert_uint_eq(judged(0, 50, 0, 50, true), 0);
	ck_assert_uint_eq(judged(0, 50, 0, 49, true), 1);
	ck_assert_uint_eq(judged(50, 0, 151, 0, true), 1);
	/* and saturates */
	ck_assert_uint_eq(judged(UINT64_MAX, 0, 5, UINT64_MAX, true), 0);
	ck_assert_uint_eq(judged(UINT64_MAX, 0, 5, 1, true), 1);
	/* without a task the judge is not asked */
	ck_assert_uint_eq(judged(0, 50, 0, 0, false), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select judge");
	TCase *c = tcase_create("judge");

	tcase_set_timeout(c, 30);
	tcase_add_test(c, a_measurement_of_no_backend_is_refused);
	tcase_add_test(c, judge_aware_row_by_row);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
