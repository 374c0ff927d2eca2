/* SPDX-License-Identifier: MIT */
/*
 * Contract 1.3 to 1.6 and 2.7 through devices of backends: each row of would_fit is a device that answers what the row
 * says. test_signal.c has the rule alone, test_select.c has it behind a program's own handles.
 */
#include "harness.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "dispatch/registry.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIB	     (UINT64_C(1) << 20)

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* A figure: why there is none, or 0 and what it is. */
#define KNOWN(x) 0, (x)
#define ABSENT	 ENODATA, 0
#define BROKEN	 EIO, 0

static struct row {
	int no_available;
	uint64_t available;
	int no_total;
	uint64_t total;
	uint64_t size;
	enum pinion_fit fit;
} rows[] = {
	/* the source's tests */
	{ KNOWN(1000), KNOWN(10000), 1001, PINION_FIT_NO },
	{ KNOWN(80), KNOWN(100), 10, PINION_FIT_COMFORTABLE },
	{ KNOWN(20), KNOWN(100), 10, PINION_FIT_TIGHT },
	{ ABSENT, KNOWN(100), 10, PINION_FIT_UNKNOWN },
	{ KNOWN(50), ABSENT, 10, PINION_FIT_UNKNOWN },
	{ ABSENT, ABSENT, 10, PINION_FIT_UNKNOWN },
	{ KNOWN(0), KNOWN(0), 0, PINION_FIT_UNKNOWN },
	{ KNOWN(50), KNOWN(100), 0, PINION_FIT_COMFORTABLE },
	/* [D] */
	{ KNOWN(25), KNOWN(100), 10, PINION_FIT_COMFORTABLE },
	{ KNOWN(24), KNOWN(100), 10, PINION_FIT_TIGHT },
	{ KNOWN(50), ABSENT, 60, PINION_FIT_NO },
	{ KNOWN(50), KNOWN(0), 60, PINION_FIT_NO },
	{ KNOWN(5), KNOWN(100), 0, PINION_FIT_TIGHT },
	{ KNOWN(200), KNOWN(100), 10, PINION_FIT_COMFORTABLE },
	{ KNOWN(UINT64_MAX), KNOWN(UINT64_MAX), UINT64_MAX, PINION_FIT_TIGHT },
	{ KNOWN(UINT64_MAX), KNOWN(UINT64_MAX), MIB, PINION_FIT_COMFORTABLE },
	{ KNOWN(10), KNOWN(100), 10, PINION_FIT_TIGHT },
	/* Nothing is left, which is known; and a query that fails, whatever the error is, is "cannot measure". */
	{ KNOWN(0), KNOWN(100), 1, PINION_FIT_NO },
	{ BROKEN, KNOWN(100), UINT64_MAX, PINION_FIT_UNKNOWN },
	{ KNOWN(50), BROKEN, 10, PINION_FIT_UNKNOWN },
	{ KNOWN(50), BROKEN, 51, PINION_FIT_NO },
};

#define ROWS COUNT(rows)

/* Odd ones have a queue. For 10 bytes they are: */
#define ROW_ABSENT    5
#define ROW_NOTHING   6	 /* 0 of 0 */
#define ROW_PLENTY    14 /* what a backend answers that is never short of memory */
#define ROW_TIGHT     16
#define ROW_EXHAUSTED 17 /* 0 of 100 */
#define ROW_BROKEN    18

static int row_available(const struct backend_device *dev, uint64_t *bytes)
{
	const struct row *row = dev->desc.data;

	if (row->no_available)
		return fail(row->no_available, "what is left on '%s' cannot be measured", dev->desc.key);
	*bytes = row->available;
	return 0;
}

static int row_total(const struct backend_device *dev, uint64_t *bytes)
{
	const struct row *row = dev->desc.data;

	if (row->no_total)
		return fail(row->no_total, "the memory of '%s' cannot be measured", dev->desc.key);
	*bytes = row->total;
	return 0;
}

static const struct backend_ops row_ops = { .available = row_available, .total = row_total };

static char row_keys[ROWS][16];

static int rows_enumerate(struct backend_list *list)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < ROWS; i++) {
		struct backend_desc desc = {
			.key = row_keys[i],
			.caps = { .backend = PINION_BACKEND_CUDA,
				  .location = { PINION_BACKEND_CUDA, (uint32_t)i },
				  .substrate = PINION_SUBSTRATE_CUDA,
				  .alignment = 256,
				  .granularity_bits = 8,
				  .slot_capacity = i % 2 ? 4 : 0,
				  .rank_max = 8,
				  .extent_max = UINT32_MAX,
				  .flops_per_ns = 30,
				  .bytes_per_ns = 40 },
			.data = &rows[i],
		};

		snprintf(row_keys[i], sizeof(row_keys[i]), "row-%zu", i);
		ret = backend_found(list, &desc);
	}
	return ret;
}

/* 1.6, row 1. */
static int dummy_enumerate(struct backend_list *list)
{
	const struct backend_desc dummy = {
		.key = "dummy",
		.caps = { .backend = PINION_BACKEND_CPU,
			  .location = { PINION_BACKEND_CPU, 0 },
			  .substrate = PINION_SUBSTRATE_HOST,
			  .alignment = 1,
			  .granularity_bits = 8,
			  .rank_max = 8,
			  .extent_max = UINT64_MAX,
			  .flops_per_ns = 1.0,
			  .bytes_per_ns = 4.0 },
	};

	return backend_found(list, &dummy);
}

static const struct backend_ops no_ops;
static const struct pinion_backend backend_rows = { "rows", BACKEND_ABI, rows_enumerate, &row_ops };
static const struct pinion_backend backend_dummy = { "dummy", BACKEND_ABI, dummy_enumerate, &no_ops };

extern const struct pinion_backend backend_cpu, backend_hostio, backend_reference;

/* In place of the library's table, which is not linked because this one comes first. */
const struct pinion_backend *const backend_table[] = {
	&backend_cpu, &backend_hostio, &backend_reference, &backend_rows, &backend_dummy, NULL,
};

static struct pinion_context *ctx;

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static struct pinion_device *find(const char *key)
{
	struct pinion_device *dev = NULL;

	ck_ok(pinion_device_find(ctx, key, &dev));
	return dev;
}

static struct pinion_device *row_device(size_t i)
{
	char key[16];

	snprintf(key, sizeof(key), "row-%zu", i);
	return find(key);
}

/* ---- 1.4: the memory tier ---------------------------------------------------------------------------------------- */

START_TEST(would_fit_of_a_backend_without_a_predictor)
{
	struct pinion_device *dev = row_device((size_t)_i);
	struct pinion_device_runtime room;
	struct pinion_runtime *rt = pinion_runtime_of_device(dev, &room);

	ck_assert_int_eq(pinion_device_would_fit(dev, rows[_i].size), rows[_i].fit);
	ck_assert_int_eq(pinion_runtime_would_fit(rt, rows[_i].size), rows[_i].fit);
}
END_TEST

/* 0 and the largest number are figures; none of them stands for "absent", which leaves the result alone. */
START_TEST(a_figure_is_present_or_absent_and_any_number)
{
	const struct row *row = &rows[_i];
	struct pinion_device *dev = row_device((size_t)_i);
	struct pinion_device_runtime room;
	struct pinion_runtime *rt = pinion_runtime_of_device(dev, &room);
	uint64_t bytes[4] = { 77, 77, 77, 77 };
	int ret[4] = { pinion_device_available(dev, &bytes[0]), pinion_runtime_available(rt, &bytes[1]),
		       pinion_device_total(dev, &bytes[2]), pinion_runtime_total(rt, &bytes[3]) };

	for (int i = 0; i < 4; i++) {
		int none = i < 2 ? row->no_available : row->no_total;
		uint64_t value = i < 2 ? row->available : row->total;

		ck_assert_int_eq(ret[i], -none);
		ck_assert_uint_eq(bytes[i], none ? 77 : value);
	}
}
END_TEST

/* ---- 1.4: what a selector makes of an absent signal -------------------------------------------------------------- */

static struct pinion_device_runtime rooms[ROWS];

static struct pinion_runtime *look_up(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	(void)arg;
	return backend == PINION_BACKEND_CUDA ? &rooms[device.index].runtime : NULL;
}

/* Which of two that take so many ns, on the devices of these rows and moving 10 bytes each. */
static size_t pick(int (*make)(const struct pinion_selector_opts *opts, struct pinion_selector **out), size_t row0, uint64_t ns0,
		   size_t row1, uint64_t ns1, struct pinion_verdict verdict[2])
{
	struct pinion_selector_opts opts = { .size = sizeof(opts), .lookup = look_up };
	struct pinion_selector *selector = NULL;
	struct pinion_candidate list[2] = { 0 };
	const uint32_t row[2] = { (uint32_t)row0, (uint32_t)row1 };
	struct pinion_set *set = NULL;
	size_t index = SIZE_MAX, again = SIZE_MAX;

	for (int i = 0; i < 2; i++) {
		pinion_runtime_of_device(row_device(row[i]), &rooms[row[i]]);
		list[i].backend = PINION_BACKEND_CUDA;
		list[i].device = (struct pinion_location){ PINION_BACKEND_CUDA, row[i] };
		list[i].static_cost.flops = 30 * (i ? ns1 : ns0);
		list[i].static_cost.bytes_moved = 10;
	}
	ck_ok(pinion_set_from(list, 2, &set));
	ck_ok(make(&opts, &selector));
	ck_ok(pinion_select(selector, set, &index));
	ck_ok(pinion_select_explain(selector, set, &again, verdict, 2));
	ck_assert_uint_eq(index, again);
	pinion_selector_unref(selector);
	pinion_set_free(set);
	return index;
}

START_TEST(without_signals_the_static_cost_decides)
{
	struct pinion_verdict v[2];

	ck_assert_uint_eq(pick(pinion_selector_chained, ROW_ABSENT, 100, ROW_ABSENT, 50, v), 1);
	ck_assert_int_eq(v[0].reason, PINION_REASON_SLOWER);
	ck_assert_uint_eq(pick(pinion_selector_chained, ROW_ABSENT, 50, ROW_ABSENT, 100, v), 0);
	/* These two have nothing but signals: the order of the set, which was ranked by static cost. */
	ck_assert_uint_eq(pick(pinion_selector_vram_pressure, ROW_ABSENT, 100, ROW_ABSENT, 50, v), 0);
	ck_assert_uint_eq(pick(pinion_selector_device_load, ROW_ABSENT, 100, ROW_ABSENT, 50, v), 0);
}
END_TEST

START_TEST(absent_memory_is_neither_none_nor_plenty)
{
	struct pinion_verdict v[2];

	/* Not 0 bytes free: it is taken where a device with nothing left is not, and a failed query like it. */
	ck_assert_uint_eq(pick(pinion_selector_vram_pressure, ROW_EXHAUSTED, 1, ROW_ABSENT, 1, v), 1);
	ck_assert_int_eq(v[0].fit, PINION_FIT_NO);
	ck_assert_int_eq(v[1].fit, PINION_FIT_UNKNOWN);
	ck_assert(v[0].has_available && v[0].available == 0 && !v[1].has_available);
	ck_assert_uint_eq(pick(pinion_selector_vram_pressure, ROW_EXHAUSTED, 1, ROW_BROKEN, 1, v), 1);
	ck_assert(!v[1].has_available);
	/* Nor a Tight one: it comes before that, and is equal to a comfortable one. */
	ck_assert_uint_eq(pick(pinion_selector_vram_pressure, ROW_TIGHT, 1, ROW_ABSENT, 1, v), 1);
	ck_assert_int_eq(v[0].fit, PINION_FIT_TIGHT);
	ck_assert_uint_eq(pick(pinion_selector_vram_pressure, ROW_ABSENT, 1, ROW_PLENTY, 1, v), 0);
	ck_assert_int_eq(v[1].reason, PINION_REASON_TIED);
	ck_assert_uint_eq(pick(pinion_selector_vram_pressure, ROW_PLENTY, 1, ROW_ABSENT, 1, v), 0);
	/* The largest number: never under pressure. */
	ck_assert_uint_eq(pick(pinion_selector_vram_pressure, ROW_TIGHT, 1, ROW_PLENTY, 1, v), 1);
	ck_assert_int_eq(v[1].fit, PINION_FIT_COMFORTABLE);
	ck_assert(v[1].has_available && v[1].available == UINT64_MAX);
}
END_TEST

START_TEST(absent_load_is_no_figure_though_it_ranks_with_idle)
{
	struct pinion_ticket ticket[4];
	struct pinion_verdict v[2];

	ck_assert_uint_eq(pick(pinion_selector_device_load, ROW_NOTHING, 1, ROW_ABSENT, 1, v), 0);
	ck_assert(!v[0].has_load && v[1].has_load);
	ck_assert(v[1].pending == 0 && v[1].capacity == 4);
	ck_assert_int_eq(v[1].reason, PINION_REASON_TIED);
	for (int i = 0; i < 4; i++)
		ck_ok(pinion_work_begin(row_device(ROW_ABSENT), 1, &ticket[i]));
	ck_assert_uint_eq(pick(pinion_selector_device_load, ROW_ABSENT, 1, ROW_NOTHING, 1, v), 1);
	ck_assert(v[0].has_load && v[0].pending == 4 && v[0].load == PINION_LOAD_SATURATED && !v[1].has_load);
	for (int i = 0; i < 4; i++)
		ck_ok(pinion_work_end(&ticket[i]));
}
END_TEST

/* ---- 1.5: the load tier ------------------------------------------------------------------------------------------ */

/* Each row of the tier's table, by the handle on a device that has a queue and by one on a device that has none. */
START_TEST(the_load_tier_is_reached_through_the_memory_tiers_handle)
{
	struct pinion_device_runtime room[2];
	struct pinion_runtime *with = pinion_runtime_of_device(row_device(1), &room[0]),
			      *without = pinion_runtime_of_device(row_device(0), &room[1]);
	struct pinion_ticket ticket[3];
	uint32_t n = 77;

	ck_assert(pinion_runtime_has_streams(with) && !pinion_runtime_has_streams(without));
	ck_ok(pinion_runtime_capacity(with, &n));
	ck_assert_uint_eq(n, 4);
	ck_ok(pinion_runtime_pending(with, &n));
	ck_assert_uint_eq(n, 0);
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_begin(row_device(1), 1, &ticket[i]));
	ck_ok(pinion_runtime_pending(with, &n));
	ck_assert_uint_eq(n, 3);
	/* That device's alone. */
	ck_ok(pinion_device_pending(row_device(3), PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 0);
	n = 77;
	ck_assert_int_eq(pinion_runtime_pending(without, &n), -ENODATA);
	ck_assert_int_eq(pinion_runtime_capacity(without, &n), -ENODATA);
	ck_assert_int_eq(pinion_runtime_flush(without, PINION_FOREVER), -ENODATA);
	ck_assert_uint_eq(n, 77);
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_end(&ticket[i]));
}
END_TEST

#define UNITS 8

static struct pinion_ticket units[UNITS];
static atomic_uint ended;

static void *end_units(void *arg)
{
	for (int i = 0; i < UNITS; i++) {
		usleep(1000);
		atomic_fetch_add(&ended, 1);
		if (pinion_work_end(&units[i]))
			return arg;
	}
	return NULL;
}

START_TEST(flush_returns_when_all_that_was_submitted_is_done)
{
	struct pinion_device_runtime room;
	struct pinion_runtime *rt = pinion_runtime_of_device(row_device(1), &room);
	void *failed = NULL;
	pthread_t thread;
	uint32_t n = 77;

	for (int i = 0; i < UNITS; i++)
		ck_ok(pinion_work_begin(row_device(1), 1, &units[i]));
	ck_assert_int_eq(pinion_runtime_flush(rt, 0), -ETIMEDOUT);
	ck_assert_int_eq(pthread_create(&thread, NULL, end_units, &ctx), 0);
	ck_ok(pinion_runtime_flush(rt, PINION_FOREVER));
	ck_assert_uint_eq(atomic_load(&ended), UNITS);
	ck_ok(pinion_runtime_pending(rt, &n));
	ck_assert_uint_eq(n, 0);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
	/* And at once when there is nothing. */
	ck_ok(pinion_runtime_flush(rt, 0));
}
END_TEST

static uint32_t told;

static int tell(struct pinion_runtime *rt, uint32_t *n)
{
	(void)rt;
	*n = told;
	return 0;
}

static struct pinion_runtime *lend(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	(void)device;
	return backend == PINION_BACKEND_CUDA ? arg : NULL;
}

/* Counts, but neither says how much is much nor can be flushed. */
START_TEST(a_load_tier_with_holes)
{
	static const struct pinion_runtime_ops counts = { .pending = tell };
	struct pinion_runtime rt = { .ops = &counts };
	struct pinion_selector_opts opts = { .size = sizeof(opts), .lookup = lend, .lookup_arg = &rt };
	struct pinion_candidate list[2] = { { .backend = PINION_BACKEND_CUDA, .device = { PINION_BACKEND_CUDA, 0 } },
					    { .backend = PINION_BACKEND_CPU, .device = { PINION_BACKEND_CPU, 0 } } };
	struct pinion_selector *selector = NULL;
	struct pinion_set *set = NULL;
	struct pinion_verdict v[2];
	uint32_t n = 77;
	size_t index;

	ck_assert(pinion_runtime_has_streams(&rt));
	ck_assert_int_eq(pinion_runtime_capacity(&rt, &n), -ENODATA);
	ck_assert_int_eq(pinion_runtime_flush(&rt, PINION_FOREVER), -ENODATA);
	ck_assert_uint_eq(n, 77);
	for (told = 0; told < 3; told++) {
		ck_ok(pinion_runtime_pending(&rt, &n));
		ck_assert_uint_eq(n, told);
	}
	told = UINT32_MAX;
	ck_ok(pinion_runtime_pending(&rt, &n));
	ck_assert_uint_eq(n, UINT32_MAX);

	/* A capacity that nobody says is 1. */
	ck_ok(pinion_set_from(list, 2, &set));
	ck_ok(pinion_selector_device_load(&opts, &selector));
	told = 1;
	ck_ok(pinion_select_explain(selector, set, &index, v, 2));
	ck_assert_uint_eq(index, 1);
	ck_assert(v[0].has_load && v[0].capacity == 1 && v[0].load == PINION_LOAD_SATURATED);
	told = 0;
	ck_ok(pinion_select(selector, set, &index));
	ck_assert_uint_eq(index, 0);
	pinion_selector_unref(selector);
	pinion_set_free(set);
}
END_TEST

/* ---- 1.6, row 1; 1.3; 2.7 ---------------------------------------------------------------------------------------- */

START_TEST(a_dummy_device_is_read_through_the_interface)
{
	const struct pinion_caps *caps = pinion_device_caps(find("dummy"));
	struct pinion_array *array = NULL;
	uint64_t bytes = 77;
	uint32_t n = 77;

	ck_assert_ptr_nonnull(caps);
	ck_assert_int_eq(caps->backend, PINION_BACKEND_CPU);
	ck_assert_str_eq(pinion_backend_name(caps->backend), "cpu");
	ck_assert(pinion_location_equal(caps->location, (struct pinion_location){ PINION_BACKEND_CPU, 0 }));
	ck_assert_uint_eq(caps->alignment, 1);
	ck_assert_uint_eq(caps->granularity_bits, 8);
	ck_assert_uint_eq(caps->transfer_count, 0);
	ck_assert_int_eq(caps->substrate, PINION_SUBSTRATE_HOST);
	ck_assert(caps->flops_per_ns == 1.0 && caps->bytes_per_ns == 4.0);
	/* The empty set of ops: none is supported, and none runs. */
	for (int op = 0; op <= PINION_OP_LAST; op++)
		for (int d = 0; d <= PINION_DTYPE_BOOL; d++)
			ck_assert(!pinion_device_supports(find("dummy"), op, d));
	ck_assert_int_eq(pinion_array_zeros(find("dummy"), PINION_DTYPE_U8, 0, NULL, &array), -EOPNOTSUPP);
	ck_assert_ptr_null(array);
	/* And no signal of either tier. */
	ck_assert_int_eq(pinion_device_available(find("dummy"), &bytes), -ENODATA);
	ck_assert_int_eq(pinion_device_total(find("dummy"), &bytes), -ENODATA);
	ck_assert_int_eq(pinion_device_would_fit(find("dummy"), UINT64_MAX), PINION_FIT_UNKNOWN);
	ck_assert_int_eq(pinion_device_capacity(find("dummy"), &n), -ENODATA);
	ck_assert_int_eq(pinion_device_pending(find("dummy"), PINION_SCOPE_ALL, &n), -ENODATA);
	ck_assert(bytes == 77 && n == 77);
}
END_TEST

/* For as long as the process: over work, removal and another context. */
START_TEST(capabilities_do_not_change)
{
	static const char *const keys[] = { "cpu", "hostio", "reference", "row-1", "dummy" };

	for (size_t i = 0; i < COUNT(keys); i++) {
		const struct pinion_caps *caps = pinion_device_caps(find(keys[i]));
		struct pinion_context *other = NULL;
		struct pinion_device *dev = NULL;
		struct pinion_caps before;
		struct pinion_ticket ticket;

		ck_assert_ptr_nonnull(caps);
		before = *caps;
		if (caps->slot_capacity)
			ck_ok(pinion_work_begin(find(keys[i]), 1, &ticket));
		ck_assert_ptr_eq(pinion_device_caps(find(keys[i])), caps);
		if (caps->slot_capacity)
			ck_ok(pinion_work_end(&ticket));
		ck_ok(pinion_device_remove(find(keys[i])));
		ck_assert_ptr_eq(pinion_device_caps(find(keys[i])), caps);
		ck_ok(pinion_open(NULL, &other));
		ck_ok(pinion_device_find(other, keys[i], &dev));
		ck_assert_ptr_eq(pinion_device_caps(dev), caps);
		pinion_close(other);
		ck_assert_mem_eq(caps, &before, sizeof(before));
	}
}
END_TEST

START_TEST(a_fit_is_one_of_four)
{
	static const struct {
		enum pinion_fit fit;
		const char *name;
	} four[] = { { PINION_FIT_COMFORTABLE, "comfortable" },
		     { PINION_FIT_TIGHT, "tight" },
		     { PINION_FIT_NO, "does not fit" },
		     { PINION_FIT_UNKNOWN, "unknown" } };
	unsigned int named = 0;

	for (size_t i = 0; i < COUNT(four); i++)
		ck_assert_str_eq(pinion_fit_name(four[i].fit), four[i].name);
	for (int fit = -1; fit < 64; fit++)
		named += pinion_fit_name(fit) != NULL;
	ck_assert_uint_eq(named, COUNT(four));
	/* What was never set is unknown. */
	ck_assert_int_eq(PINION_FIT_UNKNOWN, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_runtime");
	TCase *memory = tcase_create("memory"), *load = tcase_create("load"), *rest = tcase_create("rest");

	tcase_add_checked_fixture(memory, setup, teardown);
	tcase_add_loop_test(memory, would_fit_of_a_backend_without_a_predictor, 0, ROWS);
	tcase_add_loop_test(memory, a_figure_is_present_or_absent_and_any_number, 0, ROWS);
	tcase_add_test(memory, without_signals_the_static_cost_decides);
	tcase_add_test(memory, absent_memory_is_neither_none_nor_plenty);
	tcase_add_test(memory, absent_load_is_no_figure_though_it_ranks_with_idle);
	suite_add_tcase(s, memory);
	tcase_set_timeout(load, 30);
	tcase_add_checked_fixture(load, setup, teardown);
	tcase_add_test(load, the_load_tier_is_reached_through_the_memory_tiers_handle);
	tcase_add_test(load, flush_returns_when_all_that_was_submitted_is_done);
	tcase_add_test(load, a_load_tier_with_holes);
	suite_add_tcase(s, load);
	tcase_add_checked_fixture(rest, setup, teardown);
	tcase_add_test(rest, a_dummy_device_is_read_through_the_interface);
	tcase_add_test(rest, capabilities_do_not_change);
	tcase_add_test(rest, a_fit_is_one_of_four);
	suite_add_tcase(s, rest);
	return s;
}

PINION_TEST_MAIN(suite)
