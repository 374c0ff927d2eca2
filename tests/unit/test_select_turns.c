/* SPDX-License-Identifier: MIT */
/* Candidates that tie: the first, or each in its turn. */
#include "select_world.h"

START_TEST(ties_go_to_the_first_unless_asked_otherwise)
{
	struct pinion_selector *s = selector(CHAINED, NULL);
	struct pinion_set *set = twins();

	for (int i = 0; i < 10; i++)
		ck_assert_uint_eq(pick(s, set), 0);
	pinion_selector_unref(s);
	pinion_set_free(set);
}
END_TEST

START_TEST(a_thousand_picks_over_two_idle_devices_are_500_each)
{
	struct world w = {
		.at[PINION_BACKEND_CUDA][0] = QUEUE(9000, 9000, 0, 8),
		.at[PINION_BACKEND_CUDA][1] = QUEUE(9000, 9000, 0, 8),
	};
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .rotate = true };

	for (enum kind kind = PRESSURE; kind < KINDS; kind++) {
		struct pinion_selector *s = selector(kind, &opts);
		int count[2] = { 0 };

		for (int i = 0; i < 1000; i++) {
			/* Another set each time, as a router makes one for each request. */
			struct pinion_set *set = twins();

			count[pick(s, set)]++;
			pinion_set_free(set);
		}
		ck_assert_int_eq(count[0], 500);
		ck_assert_int_eq(count[1], 500);
		pinion_selector_unref(s);
	}
	world_end(&w);
}
END_TEST

START_TEST(only_candidates_with_the_best_key_take_turns)
{
	struct pinion_candidate list[200];
	struct world w = {
		.at[PINION_BACKEND_CUDA][0] = QUEUE(90000, 90000, 0, 8),
		.at[PINION_BACKEND_CUDA][1] = QUEUE(90000, 90000, 8, 8),
	};
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .rotate = true };
	struct pinion_selector *s = selector(CHAINED, &opts);
	static const size_t best[] = { 3, 63, 64, 127, 128, 199 };
	struct pinion_set *set;

	/* Slower ones, and on a busy device faster ones. */
	for (size_t i = 0; i < COUNT(list); i++)
		list[i] = i % 2 ? candidate(PINION_BACKEND_CUDA, 1, 3, 3) : candidate(PINION_BACKEND_CUDA, 0, 600, 600);
	for (size_t i = 0; i < COUNT(best); i++)
		list[best[i]] = candidate(PINION_BACKEND_CUDA, 0, 300, 300);
	set = set_of(list, COUNT(list), false);
	for (size_t i = 0; i < 5 * COUNT(best); i++)
		ck_assert_uint_eq(pick(s, set), best[i % COUNT(best)]);
	pinion_selector_unref(s);
	pinion_set_free(set);
	world_end(&w);
}
END_TEST

START_TEST(sets_used_alternately_do_not_take_each_others_turns)
{
	struct pinion_task other = { PINION_OP_ADD, PINION_DTYPE_F32, 20 };
	struct pinion_selector_opts opts = { .rotate = true };
	struct pinion_selector *s = selector(CHAINED, &opts);
	struct pinion_set *a = twins(), *b = twins();
	int count[2][2] = { 0 };

	pinion_set_set_task(b, &other);
	for (int i = 0; i < 100; i++) {
		count[0][pick(s, a)]++;
		count[1][pick(s, b)]++;
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(count[i / 2][i % 2], 50);
	pinion_selector_unref(s);
	pinion_set_free(a);
	pinion_set_free(b);
}
END_TEST

/* Whatever their devices are: no two of them share a place by chance. And sets of which there are more than places. */
START_TEST(sets_of_any_devices_come_out_even_in_alternation)
{
	struct pinion_selector_opts opts = { .rotate = true };
	struct pinion_selector *all = selector(CHAINED, &opts);
	struct pinion_set *sets[40];
	unsigned int first[COUNT(sets)] = { 0 };

	for (uint32_t i = 0; i < COUNT(sets); i++) {
		struct pinion_candidate list[] = { candidate(PINION_BACKEND_CUDA, 2 * i, 300, 300),
						   candidate(PINION_BACKEND_CUDA, 2 * i + 1, 300, 300) };

		sets[i] = set_of(list, 2, false);
	}
	for (size_t b = 1; b < COUNT(sets); b++) {
		struct pinion_selector *s = selector(CHAINED, &opts);
		unsigned int of_a = 0, of_b = 0;

		for (int i = 0; i < 100; i++) {
			of_a += pick(s, sets[0]) == 0;
			of_b += pick(s, sets[b]) == 0;
		}
		ck_assert_uint_eq(of_a, 50);
		ck_assert_uint_eq(of_b, 50);
		pinion_selector_unref(s);
	}
	for (int i = 0; i < 1000; i++)
		for (size_t b = 0; b < COUNT(sets); b++)
			first[b] += pick(all, sets[b]) == 0;
	for (size_t b = 0; b < COUNT(sets); b++) {
		ck_assert_uint_ge(first[b], 400);
		ck_assert_uint_le(first[b], 600);
		pinion_set_free(sets[b]);
	}
	pinion_selector_unref(all);
}
END_TEST

START_TEST(the_winner_does_not_take_turns)
{
	struct pinion_selector_opts opts = { .rotate = true };
	struct pinion_selector *s = selector(WINNER, &opts);
	struct pinion_set *set = twins();

	for (int i = 0; i < 5; i++)
		ck_assert_uint_eq(pick(s, set), 0);
	pinion_selector_unref(s);
	pinion_set_free(set);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select turns");
	TCase *c = tcase_create("turns");

	tcase_add_test(c, ties_go_to_the_first_unless_asked_otherwise);
	tcase_add_test(c, a_thousand_picks_over_two_idle_devices_are_500_each);
	tcase_add_test(c, only_candidates_with_the_best_key_take_turns);
	tcase_add_test(c, sets_used_alternately_do_not_take_each_others_turns);
	tcase_add_test(c, sets_of_any_devices_come_out_even_in_alternation);
	tcase_add_test(c, the_winner_does_not_take_turns);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
