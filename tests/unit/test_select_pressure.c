/* SPDX-License-Identifier: MIT */
/* Contract 1.7: the VRAM-pressure selector, each row of its tables by the name it has there. */
#include "select_world.h"

static uint64_t ten_bytes(void *arg, const struct pinion_candidate *c)
{
	(void)c;
	if (arg)
		++*(unsigned int *)arg;
	return 10;
}

static const struct {
	const char *name;
	uint64_t bytes[2];
	struct signals cuda, cpu;
	bool custom; /* the estimator says 10 */
	size_t pick;
} pressure_rows[] = {
	{ "all comfortable", { 100, 200 }, MEMORY(1000000, 2000000), MEMORY(1000000, 2000000), false, 0 },
	{ "won't fit skipped", { 1000, 1000 }, MEMORY(500, 10000), MEMORY(8000, 10000), false, 1 },
	{ "tight demoted", { 100, 100 }, MEMORY(100, 100), MEMORY(10000, 10000), false, 1 },
	{ "all won't fit", { 1000, 1000 }, MEMORY(1, 10000), MEMORY(1, 10000), false, 0 },
	{ "unknown = comfortable", { 100, 100 }, GONE, MEMORY(10000, 10000), false, 0 },
	{ "custom estimator", { 100, 100 }, MEMORY(50, 1000), MEMORY(50, 1000), true, 0 },
	{ "same, default estimator", { 100, 100 }, MEMORY(50, 1000), MEMORY(50, 1000), false, 0 },
	/* The source's custom estimator leaves both tight. Here it decides. */
	{ "custom estimator decides", { 100, 100 }, MEMORY(500, 1000), MEMORY(50, 1000), true, 0 },
	{ "and without it", { 600, 100 }, MEMORY(500, 1000), MEMORY(150, 150), false, 1 },
	{ "and with it", { 600, 100 }, MEMORY(500, 1000), MEMORY(150, 150), true, 0 },
	/* Derived. */
	{ "tight, unknown", { 100, 100 }, MEMORY(100, 100), GONE, false, 1 },
	{ "tight, tight", { 100, 100 }, MEMORY(100, 100), MEMORY(100, 100), false, 0 },
	{ "won't fit, tight", { 100, 100 }, MEMORY(99, 10000), MEMORY(100, 100), false, 1 },
	{ "unknown by the handle", { 100, 100 }, { .there = true }, MEMORY(10000, 10000), false, 0 },
	{ "comfortable after unknown", { 100, 100 }, MEMORY(10000, 10000), GONE, false, 0 },
};

START_TEST(vram_pressure_row_by_row)
{
	for (size_t i = 0; i < COUNT(pressure_rows); i++) {
		struct world w = {
			.at[PINION_BACKEND_CUDA][0] = pressure_rows[i].cuda,
			.at[PINION_BACKEND_CPU][0] = pressure_rows[i].cpu,
		};
		struct pinion_selector_opts opts = {
			.lookup = lookup,
			.lookup_arg = &w,
			.estimate = pressure_rows[i].custom ? ten_bytes : NULL,
		};
		struct pinion_selector *s = selector(PRESSURE, &opts);
		struct pinion_set *set = pair(pressure_rows[i].bytes[0], pressure_rows[i].bytes[1]);
		size_t got = pick(s, set);

		ck_assert_msg(got == pressure_rows[i].pick, "%s: %zu", pressure_rows[i].name, got);
		pinion_selector_unref(s);
		pinion_set_free(set);
		world_end(&w);
	}
}
END_TEST

START_TEST(vram_pressure_tight_wont_fit_comfortable)
{
	struct pinion_candidate list[] = {
		candidate(PINION_BACKEND_CUDA, 0, 100, 100),
		candidate(PINION_BACKEND_VULKAN, 0, 100, 100),
		candidate(PINION_BACKEND_CPU, 0, 100, 100),
	};
	struct world w = {
		.at[PINION_BACKEND_CUDA][0] = MEMORY(100, 100),
		.at[PINION_BACKEND_VULKAN][0] = MEMORY(99, 10000),
		.at[PINION_BACKEND_CPU][0] = MEMORY(1000, 1000),
	};
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w };
	struct pinion_selector *s = selector(PRESSURE, &opts);
	struct pinion_set *set = set_of(list, 3, false);

	ck_assert_uint_eq(pick(s, set), 2);
	pinion_selector_unref(s);
	pinion_set_free(set);
	world_end(&w);
}
END_TEST

START_TEST(an_estimate_is_asked_for_with_its_argument)
{
	struct world w = { .at[PINION_BACKEND_CUDA][0] = MEMORY(9, 10000), .at[PINION_BACKEND_CPU][0] = MEMORY(10, 10000) };
	unsigned int asked = 0;
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .estimate = ten_bytes, .estimate_arg = &asked };
	struct pinion_selector *s = selector(PRESSURE, &opts);
	struct pinion_set *set = pair(100, 100);

	ck_assert_uint_eq(pick(s, set), 1);
	ck_assert_uint_eq(asked, 2);
	ck_assert_uint_eq(pinion_estimate_default(NULL, pinion_set_at(set, 0)), 100);
	pinion_selector_unref(s);
	pinion_set_free(set);
	world_end(&w);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select pressure");
	TCase *c = tcase_create("pressure");

	tcase_add_test(c, vram_pressure_row_by_row);
	tcase_add_test(c, vram_pressure_tight_wont_fit_comfortable);
	tcase_add_test(c, an_estimate_is_asked_for_with_its_argument);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
