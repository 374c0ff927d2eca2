/* SPDX-License-Identifier: MIT */
/* What became of each candidate. */
#include "select_world.h"

START_TEST(a_list_of_refusals)
{
	struct pinion_candidate list[7];
	struct world w = { 0 };
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w };
	static const struct signals signals[] = {
		QUEUE(99, 1000, 0, 4),
		QUEUE(100, 100, 0, 4),
		QUEUE(5000, 5000, 9, 4),
		QUEUE(5000, 5000, 0, 4),
		QUEUE(5000, 5000, 0, 4),
		QUEUE(5000, 5000, 0, 4),
		{ 0 },
	};
	static const char *const texts[] = {
		"does not fit; needs 100 bytes, 99 are available (%s)",
		"tight; needs 100 bytes, 100 are available (%s); 0 in flight of 4; 3 ns",
		"loaded; needs 100 bytes, 5000 are available (%s); 9 in flight of 4; 3 ns",
		"slower; needs 100 bytes, 5000 are available (%s); 0 in flight of 4; 8 ns measured",
		"chosen; needs 100 bytes, 5000 are available (%s); 0 in flight of 4; 3 ns",
		"tied; needs 100 bytes, 5000 are available (%s); 0 in flight of 4; 3 ns",
		"slower; needs 100 bytes; 7 ns; its device has no handle",
	};
	struct pinion_judge *judge = NULL;
	struct pinion_verdict rows[8];
	struct pinion_selector *s;
	struct pinion_set *set;
	char buf[200], want[200];
	size_t index = NONE;

	for (uint32_t i = 0; i < 7; i++) {
		list[i] = candidate(PINION_BACKEND_CUDA, i, 100, 100);
		w.at[PINION_BACKEND_CUDA][i] = signals[i];
	}
	list[3].kernel_source = "measured";
	list[6].inbound_transfer_ns = 4;
	ck_ok(pinion_judge_new(&judge));
	put(judge, PINION_BACKEND_CUDA, "measured", 8);
	opts.judge = judge;
	set = set_of(list, 7, true);
	s = selector(CHAINED, &opts);
	memset(rows, 0xcc, sizeof(rows));
	ck_ok(pinion_select_explain(s, set, &index, rows, 8));
	ck_assert_uint_eq(index, 4);
	ck_assert_uint_eq(pick(s, set), 4);
	for (int i = 0; i < 7; i++) {
		snprintf(want, sizeof(want), texts[i], pinion_fit_name(rows[i].fit));
		ck_assert_int_eq(pinion_verdict_describe(&rows[i], buf, sizeof(buf)), strlen(buf));
		ck_assert_str_eq(buf, want);
	}
	ck_assert_uint_eq(rows[0].need, 100);
	ck_assert(rows[0].has_available && rows[0].available == 99);
	ck_assert(rows[0].looked_up && rows[0].has_handle && rows[6].looked_up && !rows[6].has_handle);
	ck_assert_uint_eq(((const unsigned char *)&rows[7])[0], 0xcc);
	/* Fewer rows than candidates, and none. */
	memset(rows, 0xcc, sizeof(rows));
	ck_ok(pinion_select_explain(s, set, &index, rows, 2));
	ck_assert_uint_eq(index, 4);
	ck_assert_int_eq(rows[1].reason, PINION_REASON_TIGHT);
	ck_assert_uint_eq(((const unsigned char *)&rows[2])[0], 0xcc);
	ck_ok(pinion_select_explain(s, set, &index, NULL, 0));
	ck_assert_uint_eq(index, 4);
	pinion_selector_unref(s);
	pinion_judge_free(judge);
	pinion_set_free(set);
	world_end(&w);
}
END_TEST

START_TEST(what_a_selector_does_not_look_at_is_said)
{
	struct pinion_selector_opts opts = { .lookup = lookup_must_not_run, .estimate = estimate_must_not_run };
	struct pinion_set *set = pair(300, 200);
	struct pinion_verdict rows[2];
	struct pinion_selector *s;
	char buf[100];
	size_t index;

	s = selector(WINNER, &opts);
	ck_ok(pinion_select_explain(s, set, &index, rows, 2));
	ck_assert_uint_eq(index, 0);
	ck_assert_int_eq(rows[0].reason, PINION_REASON_CHOSEN);
	ck_assert_int_eq(rows[1].reason, PINION_REASON_UNSEEN);
	pinion_verdict_describe(&rows[1], buf, sizeof(buf));
	ck_assert_str_eq(buf, "not looked at");
	pinion_selector_unref(s);

	s = selector(JUDGE, &opts);
	ck_ok(pinion_select_explain(s, set, &index, rows, 2));
	pinion_verdict_describe(&rows[1], buf, sizeof(buf));
	ck_assert_str_eq(buf, "slower; 200 ns; not looked up");
	pinion_selector_unref(s);
	pinion_set_free(set);
}
END_TEST

START_TEST(when_nothing_fits_the_list_says_so)
{
	struct world w = { .at[PINION_BACKEND_CUDA][0] = MEMORY(1, 100), .at[PINION_BACKEND_CPU][0] = MEMORY(2, 100) };
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .rotate = true };
	struct pinion_selector *s = selector(PRESSURE, &opts);
	struct pinion_set *set = pair(300, 200);
	struct pinion_verdict rows[2];
	size_t index;

	/* In turn or not, running out of memory has one place. */
	for (int round = 0; round < 3; round++) {
		ck_ok(pinion_select_explain(s, set, &index, rows, 2));
		ck_assert_uint_eq(index, 0);
		ck_assert_int_eq(rows[0].reason, PINION_REASON_CHOSEN);
		ck_assert_int_eq(rows[0].fit, PINION_FIT_NO);
		ck_assert_int_eq(rows[1].reason, PINION_REASON_NO_FIT);
	}
	ck_assert_ptr_null(pinion_reason_name(0));
	ck_assert_ptr_null(pinion_reason_name(PINION_REASON_UNSEEN + 1));
	pinion_selector_unref(s);
	pinion_set_free(set);
	world_end(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select why");
	TCase *c = tcase_create("why");

	tcase_add_test(c, a_list_of_refusals);
	tcase_add_test(c, what_a_selector_does_not_look_at_is_said);
	tcase_add_test(c, when_nothing_fits_the_list_says_so);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
