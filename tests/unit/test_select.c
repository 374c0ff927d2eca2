/* SPDX-License-Identifier: MIT */
/* Contract 2.11 and 2.12: what holds for every selector. */
#include "select_world.h"

START_TEST(an_empty_set_has_no_choice)
{
	struct pinion_selector_opts opts = { .lookup = lookup_must_not_run, .estimate = estimate_must_not_run, .rotate = true };
	struct pinion_set *set = set_of(NULL, 0, true);
	struct pinion_verdict row;
	size_t index = NONE;

	for (enum kind kind = WINNER; kind < KINDS; kind++) {
		struct pinion_selector *s = selector(kind, &opts);

		ck_assert_uint_eq(pick(s, set), NONE);
		ck_assert_int_eq(pinion_select_explain(s, set, &index, &row, 1), -ENOENT);
		ck_assert_uint_eq(index, NONE);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "candidate"));
		pinion_selector_unref(s);
	}
	pinion_set_free(set);
}
END_TEST

/* A lookup would be asked about it. */
START_TEST(a_candidate_on_a_device_of_no_kind_is_refused)
{
	static const unsigned int none[] = { 0, PINION_BACKEND_METAL + 1, 99, -1 };
	struct pinion_candidate c = candidate(PINION_BACKEND_CUDA, 0, 1, 1);
	struct pinion_set *set, *whole = NULL;

	ck_ok(pinion_set_new(&set));
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		c.device.kind = none[i];
		ck_assert_int_eq(pinion_set_push(set, &c), -EINVAL);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "of kind"));
		ck_assert_int_eq(pinion_set_from(&c, 1, &whole), -EINVAL);
	}
	ck_assert_uint_eq(pinion_set_size(set), 0);
	ck_assert_ptr_null(whole);
	/* A kernel of one backend may be on a device of another kind, memory that both reach, say. */
	c.device.kind = PINION_BACKEND_CPU;
	ck_ok(pinion_set_push(set, &c));
	pinion_set_free(set);
}
END_TEST

START_TEST(without_options_a_ranked_set_gives_its_winner)
{
	struct pinion_set *set = pair(3000, 200);

	for (enum kind kind = WINNER; kind < KINDS; kind++) {
		struct pinion_selector *s = selector(kind, NULL);

		ck_assert_uint_eq(pick(s, set), 0);
		pinion_selector_unref(s);
	}
	pinion_set_free(set);
}
END_TEST

START_TEST(options_obey_the_size_rules)
{
	struct {
		struct pinion_selector_opts opts;
		char tail[8];
	} longer = { .opts.size = sizeof(longer) };
	struct pinion_selector *s = NULL;

	for (enum kind kind = WINNER; kind < KINDS; kind++) {
		longer.tail[7] = 1;
		ck_assert_int_eq(makers[kind](&longer.opts, &s), -E2BIG);
		longer.tail[7] = 0;
		ck_ok(makers[kind](&longer.opts, &s));
		pinion_selector_unref(s);
		s = NULL;
		longer.opts.size = 3;
		ck_assert_int_eq(makers[kind](&longer.opts, &s), -EINVAL);
		longer.opts.size = sizeof(longer);
		ck_assert_ptr_null(s);
	}
}
END_TEST

START_TEST(one_lookup_per_candidate_and_each_handle_is_freed_before_the_next)
{
	for (enum kind kind = WINNER; kind < KINDS; kind++) {
		for (int explain = 0; explain < 2; explain++) {
			struct pinion_candidate list[8];
			struct pinion_verdict rows[8];
			struct world w = { 0 };
			struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .rotate = true };
			struct pinion_selector *s = selector(kind, &opts);
			struct pinion_set *set;
			bool looks = kind != WINNER && kind != JUDGE;
			bool fits = looks && kind != LOAD;
			size_t index;

			for (uint32_t d = 0; d < 8; d++) {
				list[d] = candidate(PINION_BACKEND_CUDA, d, 100, 100);
				w.at[PINION_BACKEND_CUDA][d] = (struct signals)QUEUE(d % 3 * 60, 120, d % 4, 3);
			}
			set = set_of(list, 8, true);
			for (unsigned int round = 1; round <= 3; round++) {
				if (explain)
					ck_ok(pinion_select_explain(s, set, &index, rows, 8));
				else
					pick(s, set);
				for (int d = 0; d < 8; d++) {
					ck_assert_uint_eq(atomic_load(&w.lookups[PINION_BACKEND_CUDA][d]), looks ? round : 0);
					ck_assert_uint_eq(atomic_load(&w.fits[PINION_BACKEND_CUDA][d]), fits ? round : 0);
				}
			}
			ck_assert_int_eq(atomic_load(&w.handles_most), looks ? 1 : 0);
			pinion_selector_unref(s);
			pinion_set_free(set);
			world_end(&w);
		}
	}
}
END_TEST

START_TEST(selectors_describe_themselves_and_call_nothing)
{
	static const char *const names[] = { "WinnerSelector", "VramPressureSelector", "DeviceLoadSelector", "JudgeAwareSelector",
					     "ChainedSelector" };
	static const char chained[] =
		"ChainedSelector { lookup: <callback>, estimate: <callback>, judge: 0 measured, ties: in turn }";
	struct pinion_selector_opts opts = { .lookup = lookup_must_not_run, .estimate = estimate_must_not_run, .rotate = true };
	struct pinion_judge *judge = NULL;
	char buf[200], cut[8];

	ck_ok(pinion_judge_new(&judge));
	opts.judge = judge;
	for (enum kind kind = WINNER; kind < KINDS; kind++) {
		struct pinion_selector *s = selector(kind, &opts), *bare = selector(kind, NULL);

		pinion_selector_describe(s, buf, sizeof(buf));
		ck_assert_ptr_eq(strstr(buf, names[kind]), buf);
		pinion_selector_describe(bare, buf, sizeof(buf));
		ck_assert_ptr_eq(strstr(buf, names[kind]), buf);
		ck_assert_ptr_null(strstr(buf, "callback"));
		if (kind == CHAINED) {
			ck_assert_int_eq(pinion_selector_describe(s, buf, sizeof(buf)), strlen(chained));
			ck_assert_str_eq(buf, chained);
			ck_assert_int_eq(pinion_selector_describe(s, cut, sizeof(cut)), strlen(chained));
			ck_assert_str_eq(cut, "Chained");
			ck_assert_int_eq(pinion_selector_describe(s, NULL, 0), strlen(chained));
		}
		pinion_selector_unref(s);
		pinion_selector_unref(bare);
	}
	pinion_judge_free(judge);
}
END_TEST

START_TEST(a_selector_lives_as_long_as_its_last_reference)
{
	struct pinion_candidate c = candidate(PINION_BACKEND_CPU, 0, 1, 1);
	struct pinion_set *set = set_of(&c, 1, false);
	struct pinion_selector *s = selector(CHAINED, NULL), *same = pinion_selector_ref(s);

	ck_assert_ptr_eq(same, s);
	pinion_selector_unref(s);
	ck_assert_uint_eq(pick(same, set), 0);
	pinion_selector_unref(same);
	pinion_selector_unref(NULL);
	pinion_set_free(set);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select");
	TCase *c = tcase_create("every selector");

	tcase_add_test(c, an_empty_set_has_no_choice);
	tcase_add_test(c, a_candidate_on_a_device_of_no_kind_is_refused);
	tcase_add_test(c, without_options_a_ranked_set_gives_its_winner);
	tcase_add_test(c, options_obey_the_size_rules);
	tcase_add_test(c, one_lookup_per_candidate_and_each_handle_is_freed_before_the_next);
	tcase_add_test(c, selectors_describe_themselves_and_call_nothing);
	tcase_add_test(c, a_selector_lives_as_long_as_its_last_reference);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
