/* SPDX-License-Identifier: MIT */
/* Contract 5.6 and 5.7: load tiers and the device-load selector, row by row. */
#include "select_world.h"

START_TEST(load_tiers_row_by_row)
{
	static const struct {
		uint32_t count, capacity;
		enum pinion_load tier;
	} rows[] = {
		{ 0, 1, 0 },
		{ 0, 8, 0 },
		{ 0, 0, 0 },
		{ 1, 0, 2 },
		{ 1, 1, 2 },
		{ 5, 1, 2 },
		{ 1, 8, 0 },
		{ 2, 8, 1 },
		{ 7, 8, 1 },
		{ 8, 8, 2 },
		{ 9, 8, 2 },
		{ 100, 1, 2 },
		/* Four times the count is more than 32 bits hold. */
		{ UINT32_MAX / 4, UINT32_MAX, 0 },
		{ UINT32_MAX / 4 + 1, UINT32_MAX, 1 },
		{ UINT32_MAX - 1, UINT32_MAX, 1 },
		{ UINT32_MAX, UINT32_MAX, 2 },
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		ck_assert_msg(pinion_load_tier(rows[i].count, rows[i].capacity) == rows[i].tier, "row %zu", i);
	ck_assert_int_eq(PINION_LOAD_IDLE, 0);
	ck_assert_int_eq(PINION_LOAD_MODERATE, 1);
	ck_assert_int_eq(PINION_LOAD_SATURATED, 2);
}
END_TEST

static const struct {
	const char *name;
	struct signals cuda, cpu;
	size_t pick;
} load_rows[] = {
	{ "no lookup has a handle", GONE, GONE, 0 },
	{ "both idle", QUEUE(9, 9, 0, 1), QUEUE(9, 9, 0, 1), 0 },
	{ "first saturated, second idle", QUEUE(9, 9, 4, 1), QUEUE(9, 9, 0, 1), 1 },
	{ "first saturated, second moderate", QUEUE(9, 9, 8, 8), QUEUE(9, 9, 7, 8), 1 },
	{ "first moderate, second idle", QUEUE(9, 9, 2, 8), QUEUE(9, 9, 1, 8), 1 },
	{ "the same tier by other counts", QUEUE(9, 9, 7, 8), QUEUE(9, 9, 2, 8), 0 },
	{ "both saturated", QUEUE(9, 9, 100, 1), QUEUE(9, 9, 1, 1), 0 },
	{ "saturated, and no handle", QUEUE(9, 9, 4, 1), GONE, 1 },
	{ "saturated, and no queue", QUEUE(9, 9, 4, 1), MEMORY(9, 9), 1 },
	{ "saturated, and no count", QUEUE(9, 9, 4, 1), MUTE(9, 9, 1), 1 },
	{ "no count, and idle", MUTE(9, 9, 1), QUEUE(9, 9, 0, 1), 0 },
	{ "capacity 0 is 1", QUEUE(9, 9, 1, 0), QUEUE(9, 9, 0, 0), 1 },
	{ "no guard of memory", QUEUE(0, 9, 0, 1), QUEUE(1000, 1000, 0, 1), 0 },
};

START_TEST(device_load_row_by_row)
{
	struct pinion_set *set = pair(100, 100);

	for (size_t i = 0; i < COUNT(load_rows); i++) {
		struct world w = { .at[PINION_BACKEND_CUDA][0] = load_rows[i].cuda,
				   .at[PINION_BACKEND_CPU][0] = load_rows[i].cpu };
		struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .estimate = estimate_must_not_run };
		struct pinion_selector *s = selector(LOAD, &opts);
		size_t got = pick(s, set);

		ck_assert_msg(got == load_rows[i].pick, "%s: %zu", load_rows[i].name, got);
		pinion_selector_unref(s);
		world_end(&w);
	}
	pinion_set_free(set);
}
END_TEST

static int fail_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	(void)rt;
	(void)n;
	return -ESTALE;
}

START_TEST(a_capacity_that_fails_is_read_as_1)
{
	static const struct pinion_runtime_ops ops = {
		.available = handle_available,
		.total = handle_total,
		.pending = handle_pending,
		.capacity = fail_capacity,
	};
	struct world w = { .at[PINION_BACKEND_CUDA][0] = QUEUE(9, 9, 1, 8) };
	struct handle h = { .runtime.ops = &ops, .world = &w, .location = { PINION_BACKEND_CUDA, 0 } };
	struct pinion_selector_opts opts = { .lookup = lend, .lookup_arg = &h };
	struct pinion_selector *s = selector(LOAD, &opts);
	struct pinion_set *set = pair(1, 1);

	ck_assert_uint_eq(pick(s, set), 1);
	w.at[PINION_BACKEND_CUDA][0].pending = 0;
	ck_assert_uint_eq(pick(s, set), 0);
	pinion_selector_unref(s);
	pinion_set_free(set);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select load");
	TCase *c = tcase_create("load");

	tcase_add_test(c, load_tiers_row_by_row);
	tcase_add_test(c, device_load_row_by_row);
	tcase_add_test(c, a_capacity_that_fails_is_read_as_1);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
