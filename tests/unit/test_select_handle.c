/* SPDX-License-Identifier: MIT */
/* Contract 1.4 to 1.6 and 5.5: handles, what they answer, and those on a device. */
#include "select_world.h"

#include <pinion/device.h>
#include <pinion/work.h>

#define KNOWN(x) true, (x)
#define UNKNOWN	 false, 0

static const struct {
	bool has_available;
	uint64_t available;
	bool has_total;
	uint64_t total;
	uint64_t size;
	enum pinion_fit fit;
} fit_rows[] = {
	/* the source's tests */
	{ KNOWN(1000), KNOWN(10000), 1001, PINION_FIT_NO },
	{ KNOWN(80), KNOWN(100), 10, PINION_FIT_COMFORTABLE },
	{ KNOWN(20), KNOWN(100), 10, PINION_FIT_TIGHT },
	{ UNKNOWN, KNOWN(100), 10, PINION_FIT_UNKNOWN },
	{ KNOWN(50), UNKNOWN, 10, PINION_FIT_UNKNOWN },
	{ UNKNOWN, UNKNOWN, 10, PINION_FIT_UNKNOWN },
	{ KNOWN(0), KNOWN(0), 0, PINION_FIT_UNKNOWN },
	{ KNOWN(50), KNOWN(100), 0, PINION_FIT_COMFORTABLE },
	/* derived from its text */
	{ KNOWN(25), KNOWN(100), 10, PINION_FIT_COMFORTABLE }, /* exactly 0.85 */
	{ KNOWN(24), KNOWN(100), 10, PINION_FIT_TIGHT },
	{ KNOWN(50), UNKNOWN, 60, PINION_FIT_NO },
	{ KNOWN(50), KNOWN(0), 60, PINION_FIT_NO },
	{ KNOWN(5), KNOWN(100), 0, PINION_FIT_TIGHT },
	{ KNOWN(200), KNOWN(100), 10, PINION_FIT_COMFORTABLE },
	{ KNOWN(UINT64_MAX), KNOWN(UINT64_MAX), UINT64_MAX, PINION_FIT_TIGHT },
	{ KNOWN(UINT64_MAX), KNOWN(UINT64_MAX), 1 << 20, PINION_FIT_COMFORTABLE },
	{ KNOWN(10), KNOWN(100), 10, PINION_FIT_TIGHT }, /* as much as there is fits */
};

START_TEST(would_fit_through_a_handle)
{
	static const struct pinion_location cpu = { PINION_BACKEND_CPU, 0 };

	for (size_t i = 0; i < COUNT(fit_rows); i++) {
		struct world w = { 0 };
		struct signals *s = &w.at[PINION_BACKEND_CPU][0];
		struct pinion_runtime *rt;

		*s = (struct signals)MEMORY(fit_rows[i].available, fit_rows[i].total);
		s->has_available = fit_rows[i].has_available;
		s->has_total = fit_rows[i].has_total;
		/* Derived by the library, and by the handle's own operation. */
		for (int streams = 0; streams < 2; streams++) {
			s->streams = streams;
			rt = lookup(&w, PINION_BACKEND_CPU, cpu);
			ck_assert_msg(pinion_runtime_would_fit(rt, fit_rows[i].size) == fit_rows[i].fit, "row %zu", i);
			ck_assert_uint_eq(atomic_load(&w.fits[PINION_BACKEND_CPU][0]), (unsigned int)streams);
			pinion_runtime_free(rt);
		}
		world_end(&w);
	}
}
END_TEST

START_TEST(a_handle_without_a_queue_has_no_streams_tier)
{
	/* 1.6, row 8 */
	struct world w = { .at[PINION_BACKEND_CPU][0] = MEMORY(50, 100) };
	struct pinion_runtime *rt = lookup(&w, PINION_BACKEND_CPU, (struct pinion_location){ PINION_BACKEND_CPU, 0 });
	uint64_t bytes = 0;
	uint32_t n = 77;

	ck_ok(pinion_runtime_available(rt, &bytes));
	ck_assert_uint_eq(bytes, 50);
	ck_ok(pinion_runtime_total(rt, &bytes));
	ck_assert_uint_eq(bytes, 100);
	ck_assert(!pinion_runtime_has_streams(rt));
	ck_assert_int_eq(pinion_runtime_pending(rt, &n), -ENODATA);
	ck_assert_int_eq(pinion_runtime_capacity(rt, &n), -ENODATA);
	ck_assert_int_eq(pinion_runtime_flush(rt, PINION_FOREVER), -ENODATA);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "synchronous"));
	ck_assert_uint_eq(n, 77);
	pinion_runtime_free(rt);
	pinion_runtime_free(NULL);
	world_end(&w);
}
END_TEST

START_TEST(a_handle_with_a_queue_and_no_memory_signal)
{
	/* 1.6, row 9 */
	struct world w = { .at[PINION_BACKEND_CUDA][0] = {
				   .there = true, .streams = true, .has_pending = true, .pending = 3, .capacity = 4 } };
	struct pinion_runtime *rt = lookup(&w, PINION_BACKEND_CUDA, (struct pinion_location){ PINION_BACKEND_CUDA, 0 });
	uint64_t bytes = 99;
	uint32_t n = 0;

	ck_assert_int_eq(pinion_runtime_available(rt, &bytes), -ENODATA);
	ck_assert_int_eq(pinion_runtime_total(rt, &bytes), -ENODATA);
	ck_assert_uint_eq(bytes, 99);
	ck_assert_int_eq(pinion_runtime_would_fit(rt, 1), PINION_FIT_UNKNOWN);
	ck_assert(pinion_runtime_has_streams(rt));
	ck_ok(pinion_runtime_pending(rt, &n));
	ck_assert_uint_eq(n, 3);
	ck_ok(pinion_runtime_capacity(rt, &n));
	ck_assert_uint_eq(n, 4);
	ck_ok(pinion_runtime_flush(rt, PINION_FOREVER));
	ck_assert_int_eq(pinion_runtime_flush(rt, 0), -ETIMEDOUT);
	pinion_runtime_free(rt);
	world_end(&w);
}
END_TEST

START_TEST(a_handle_that_knows_nothing)
{
	static const struct pinion_runtime_ops nothing;
	struct pinion_runtime rt = { .ops = &nothing };
	struct pinion_selector_opts opts = { .lookup = lend, .lookup_arg = &rt };
	struct pinion_set *set = pair(3000, 200);
	struct pinion_selector *s = selector(CHAINED, &opts);
	struct pinion_verdict rows[2];
	size_t index = NONE;
	uint64_t bytes;

	ck_assert_int_eq(pinion_runtime_available(&rt, &bytes), -ENODATA);
	ck_assert_int_eq(pinion_runtime_total(&rt, &bytes), -ENODATA);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "measure"));
	ck_assert_int_eq(pinion_runtime_would_fit(&rt, UINT64_MAX), PINION_FIT_UNKNOWN);
	ck_assert(!pinion_runtime_has_streams(&rt));
	pinion_runtime_free(&rt);
	ck_ok(pinion_select_explain(s, set, &index, rows, 2));
	ck_assert_uint_eq(index, 0);
	ck_assert(rows[0].has_handle && !rows[0].has_available && !rows[0].has_load && rows[0].fit == PINION_FIT_UNKNOWN);
	pinion_selector_unref(s);
	pinion_set_free(set);
}
END_TEST

START_TEST(a_handle_on_a_device_says_what_the_device_says)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 4 };
	struct pinion_device_runtime room;
	struct pinion_context *ctx = NULL;
	struct pinion_device *dev = NULL;
	struct pinion_ticket ticket[2] = { 0 };
	struct pinion_runtime *rt;
	uint64_t of_device = 0, of_handle = 0;
	uint32_t n = 0;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "select-handle", &opts, &dev));
	rt = pinion_runtime_of_device(dev, &room);
	ck_assert_ptr_eq(rt, &room.runtime);
	ck_assert_int_eq(pinion_runtime_available(rt, &of_handle), pinion_device_available(dev, &of_device));
	ck_assert_int_eq(pinion_runtime_total(rt, &of_handle), pinion_device_total(dev, &of_device));
	ck_assert_uint_eq(of_handle, of_device);
	ck_assert_int_eq(pinion_runtime_would_fit(rt, 1), pinion_device_would_fit(dev, 1));
	ck_assert_int_eq(pinion_runtime_would_fit(rt, UINT64_MAX), pinion_device_would_fit(dev, UINT64_MAX));
	if (pinion_device_capacity(dev, &n)) {
		ck_assert(!pinion_runtime_has_streams(rt));
	} else {
		ck_assert(pinion_runtime_has_streams(rt));
		ck_ok(pinion_runtime_capacity(rt, &n));
		ck_assert_uint_eq(n, 4);
		for (uint32_t i = 0; i < 2; i++) {
			ck_ok(pinion_work_begin(dev, 1, &ticket[i]));
			ck_ok(pinion_runtime_pending(rt, &n));
			ck_assert_uint_eq(n, i + 1);
		}
		ck_assert_int_eq(pinion_runtime_flush(rt, 0), -ETIMEDOUT);
		for (int i = 0; i < 2; i++)
			ck_ok(pinion_work_end(&ticket[i]));
		ck_ok(pinion_runtime_flush(rt, 0));
	}
	/* It is lent: freeing it does nothing, and it can be used again. */
	pinion_runtime_free(rt);
	ck_assert_int_eq(pinion_runtime_would_fit(rt, 1), pinion_device_would_fit(dev, 1));
	pinion_close(ctx);
}
END_TEST

START_TEST(work_on_a_device_moves_the_choice)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 2 };
	struct pinion_selector_opts selector_opts = { .lookup = lend };
	struct pinion_set *set = pair(3000, 200);
	struct pinion_device_runtime room;
	struct pinion_context *ctx = NULL;
	struct pinion_device *dev = NULL;
	struct pinion_ticket ticket[2] = { 0 };
	struct pinion_selector *s;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "select-moves", &opts, &dev));
	selector_opts.lookup_arg = pinion_runtime_of_device(dev, &room);
	s = selector(LOAD, &selector_opts);
	ck_assert_uint_eq(pick(s, set), 0);
	ck_ok(pinion_work_begin(dev, 1, &ticket[0]));
	ck_assert_uint_eq(pick(s, set), 1);
	ck_ok(pinion_work_begin(dev, 1, &ticket[1]));
	ck_assert_uint_eq(pick(s, set), 1);
	ck_ok(pinion_work_end(&ticket[0]));
	ck_ok(pinion_work_end(&ticket[1]));
	ck_assert_uint_eq(pick(s, set), 0);
	pinion_selector_unref(s);
	pinion_set_free(set);
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select handle");
	TCase *c = tcase_create("handles");

	tcase_add_test(c, would_fit_through_a_handle);
	tcase_add_test(c, a_handle_without_a_queue_has_no_streams_tier);
	tcase_add_test(c, a_handle_with_a_queue_and_no_memory_signal);
	tcase_add_test(c, a_handle_that_knows_nothing);
	tcase_add_test(c, a_handle_on_a_device_says_what_the_device_says);
	tcase_add_test(c, work_on_a_device_moves_the_choice);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
