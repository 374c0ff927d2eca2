/* SPDX-License-Identifier: MIT */
/* Contract 5.8: the chained selector, row by row. */
#include "select_world.h"

enum set_kind {
	RANKED,	 /* CUDA 3000 and CPU 200 flops and bytes: 100 and 200 ns */
	SMALL,	 /* as long, but each moves 100 bytes, so that a device with 100 free is tight for it and not too small */
	NO_TASK, /* CUDA 100 and CPU 200, and no task */
	THREE,	 /* CUDA, CPU and Vulkan, 100, 200 and 300 */
	SIBLINGS /* two kernels of the CPU, 500 each */
};

static const struct {
	const char *name;
	enum set_kind set;
	struct signals cuda, others;
	uint64_t measured[3]; /* ns of the candidates, 0: not measured */
	size_t pick;
} chained_rows[] = {
	{ "saturated cost-winner demoted", RANKED, QUEUE(10000, 10000, 4, 1), QUEUE(10000, 10000, 0, 1), { 0 }, 1 },
	{ "WontFit outranks load", RANKED, QUEUE(1, 10000, 0, 1), QUEUE(8000, 10000, 4, 1), { 0 }, 1 },
	{ "tight idle vs comfortable saturated", SMALL, QUEUE(100, 100, 0, 1), QUEUE(10000, 10000, 4, 1), { 0 }, 1 },
	{ "no load", RANKED, QUEUE(10000, 10000, 0, 1), QUEUE(10000, 10000, 0, 1), { 0 }, 0 },
	{ "absent counts", RANKED, MUTE(10000, 10000, 1), MUTE(10000, 10000, 1), { 0 }, 0 },
	{ "no signals at all", RANKED, GONE, GONE, { 0 }, 0 },
	{ "empty judge, comfortable", RANKED, MEMORY(1000000, 2000000), MEMORY(1000000, 2000000), { 0 }, 0 },
	{ "WontFit winner skipped", RANKED, MEMORY(50, 10000), MEMORY(8000, 10000), { 0 }, 1 },
	{ "tight demoted", SMALL, MEMORY(100, 100), MEMORY(10000, 10000), { 0 }, 1 },
	{ "Unknown ties", RANKED, GONE, MEMORY(10000, 10000), { 0 }, 0 },
	{ "all WontFit", RANKED, MEMORY(1, 10000), MEMORY(1, 10000), { 0 }, 0 },
	{ "fast measurement", RANKED, GONE, GONE, { 0, 50 }, 1 },
	{ "slow measurement", RANKED, GONE, GONE, { 0, 5000 }, 0 },
	{ "guard beats judge", RANKED, MEMORY(50, 10000), MEMORY(8000, 10000), { 1 }, 1 },
	{ "judge within tier", THREE, MEMORY(100, 100), MEMORY(10000, 10000), { 1, 90, 40 }, 2 },
	{ "sibling kernels", SIBLINGS, GONE, GONE, { 9000, 1000 }, 1 },
	{ "no context", NO_TASK, GONE, GONE, { 0, 1 }, 0 },
	/* Derived from the order of the key. */
	{ "load outranks a measurement", RANKED, QUEUE(10000, 10000, 4, 1), QUEUE(10000, 10000, 0, 1), { 1 }, 1 },
	{ "tight outranks a measurement", SMALL, MEMORY(100, 100), MEMORY(10000, 10000), { 1 }, 1 },
	{ "tight and saturated vs tight and idle", SMALL, QUEUE(100, 100, 4, 1), QUEUE(100, 100, 0, 1), { 0 }, 1 },
	{ "moderate vs saturated", RANKED, QUEUE(10000, 10000, 8, 8), QUEUE(10000, 10000, 7, 8), { 0 }, 1 },
	{ "all WontFit, the second idle", RANKED, QUEUE(1, 10000, 4, 1), QUEUE(1, 10000, 0, 1), { 0, 1 }, 0 },
};

static struct pinion_set *set_of_kind(enum set_kind kind)
{
	struct pinion_candidate list[] = {
		candidate(PINION_BACKEND_CUDA, 0, 3000, 3000),
		candidate(PINION_BACKEND_CPU, 0, 200, 200),
		candidate(PINION_BACKEND_VULKAN, 0, 300, 300),
	};

	if (kind == NO_TASK || kind == THREE)
		list[0].static_cost = (struct pinion_cost){ .flops = 100, .bytes_moved = 100 };
	if (kind == SMALL)
		list[0].static_cost.bytes_moved = list[1].static_cost.bytes_moved = 100;
	if (kind == SIBLINGS) {
		list[0] = list[1] = candidate(PINION_BACKEND_CPU, 0, 500, 500);
		list[0].kernel_source = "aocl";
		list[1].kernel_source = "mkl";
	}
	return set_of(list, kind == THREE ? 3 : 2, kind != NO_TASK);
}

START_TEST(chained_row_by_row)
{
	for (size_t i = 0; i < COUNT(chained_rows); i++) {
		struct world w = {
			.at[PINION_BACKEND_CUDA][0] = chained_rows[i].cuda,
			.at[PINION_BACKEND_CPU][0] = chained_rows[i].others,
			.at[PINION_BACKEND_VULKAN][0] = chained_rows[i].others,
		};
		struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w };
		struct pinion_set *set = set_of_kind(chained_rows[i].set);
		struct pinion_judge *judge = NULL;
		struct pinion_selector *s;
		size_t got;

		ck_ok(pinion_judge_new(&judge));
		for (size_t c = 0; c < pinion_set_size(set); c++)
			if (chained_rows[i].measured[c])
				put(judge, pinion_set_at(set, c)->backend, pinion_set_at(set, c)->kernel_source,
				    chained_rows[i].measured[c]);
		opts.judge = judge;
		s = selector(CHAINED, &opts);
		got = pick(s, set);
		ck_assert_msg(got == chained_rows[i].pick, "%s: %zu", chained_rows[i].name, got);
		pinion_selector_unref(s);
		pinion_judge_free(judge);
		pinion_set_free(set);
		world_end(&w);
	}
}
END_TEST

START_TEST(rows_named_tight_are_tight)
{
	/* Those marked (*) in 5.8, whose devices were too small for the default estimate there. */
	struct world w = {
		.at[PINION_BACKEND_CUDA][0] = QUEUE(100, 100, 0, 1),
		.at[PINION_BACKEND_CPU][0] = QUEUE(10000, 10000, 4, 1),
	};
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w };
	struct pinion_selector *s = selector(CHAINED, &opts);
	struct pinion_set *set = set_of_kind(SMALL);
	struct pinion_verdict rows[2];
	size_t index;

	ck_ok(pinion_select_explain(s, set, &index, rows, 2));
	ck_assert_uint_eq(index, 1);
	ck_assert_int_eq(rows[0].fit, PINION_FIT_TIGHT);
	ck_assert_int_eq(rows[0].load, PINION_LOAD_IDLE);
	ck_assert_int_eq(rows[0].reason, PINION_REASON_TIGHT);
	ck_assert_int_eq(rows[1].fit, PINION_FIT_COMFORTABLE);
	ck_assert_int_eq(rows[1].load, PINION_LOAD_SATURATED);
	ck_assert_int_eq(rows[1].reason, PINION_REASON_CHOSEN);
	pinion_selector_unref(s);
	pinion_set_free(set);
	world_end(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select chained");
	TCase *c = tcase_create("chained");

	tcase_add_test(c, chained_row_by_row);
	tcase_add_test(c, rows_named_tight_are_tight);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
