/* SPDX-License-Identifier: MIT */
/*
 * Contract 5.5 to 5.9, the rows that test_select.c does not state: the tier that each kind of handle gives, the two rows
 * of 5.8 that the original names tight as they stand there, the latency leg of the chained selector, and the handle on
 * pinion's own devices.
 */
#include "harness.h"

#include <errno.h>
#include <pinion/context.h>
#include <pinion/device.h>
#include <pinion/select.h>
#include <pinion/work.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- handles ----------------------------------------------------------------------------------------------------- */

/* What the device of a candidate says; a candidate's is that of its device's index. */
struct handle {
	struct pinion_runtime runtime;
	bool there;
	uint64_t available, total;
	uint32_t pending, capacity;
};

static int handle_available(struct pinion_runtime *rt, uint64_t *bytes)
{
	*bytes = ((struct handle *)rt)->available;
	return 0;
}

static int handle_total(struct pinion_runtime *rt, uint64_t *bytes)
{
	*bytes = ((struct handle *)rt)->total;
	return 0;
}

static int handle_pending(struct pinion_runtime *rt, uint32_t *n)
{
	*n = ((struct handle *)rt)->pending;
	return 0;
}

static int handle_no_pending(struct pinion_runtime *rt, uint32_t *n)
{
	(void)rt;
	(void)n;
	return -ENODATA;
}

static int handle_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	*n = ((struct handle *)rt)->capacity;
	return 0;
}

static const struct pinion_runtime_ops memory_alone = { .available = handle_available, .total = handle_total };

static const struct pinion_runtime_ops with_queue = {
	.available = handle_available, .total = handle_total, .pending = handle_pending, .capacity = handle_capacity
};

/* With a queue whose length cannot be told. */
static const struct pinion_runtime_ops mute_queue = {
	.available = handle_available, .total = handle_total, .pending = handle_no_pending, .capacity = handle_capacity
};

#define MEMORY(a, t)                                \
	{                                           \
		{ &memory_alone }, true, a, t, 0, 0 \
	}
#define QUEUE(a, t, p, c)                         \
	{                                         \
		{ &with_queue }, true, a, t, p, c \
	}
#define MUTE(a, t, c)                             \
	{                                         \
		{ &mute_queue }, true, a, t, 0, c \
	}
#define GONE                                \
	{                                   \
		{ NULL }, false, 0, 0, 0, 0 \
	}

static struct pinion_runtime *lookup(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	struct handle *h = (struct handle *)arg + device.index;

	(void)backend;
	return h->there ? &h->runtime : NULL;
}

static struct pinion_candidate candidate(enum pinion_backend_id backend, uint32_t index, uint64_t flops, uint64_t bytes)
{
	return (struct pinion_candidate){
		.backend = backend,
		.device = { backend, index },
		.precision = pinion_precision_deterministic(),
		.static_cost = { .flops = flops, .bytes_moved = bytes },
		.kernel_source = "",
	};
}

static const struct pinion_task task = { PINION_OP_MATMUL, PINION_DTYPE_F32, 20 };

static struct pinion_set *set_of(const struct pinion_candidate *list, size_t n)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_from(list, n, &set));
	pinion_set_set_task(set, &task);
	return set;
}

/* The choice of a chained selector, and why. */
static size_t chained(const struct pinion_selector_opts *opts, const struct pinion_set *set, struct pinion_verdict *rows)
{
	struct pinion_selector_opts own = *opts;
	struct pinion_selector *selector = NULL;
	size_t index = SIZE_MAX;

	own.size = sizeof(own);
	ck_ok(pinion_selector_chained(&own, &selector));
	ck_ok(pinion_select_explain(selector, set, &index, rows, pinion_set_size(set)));
	pinion_selector_unref(selector);
	return index;
}

/* ---- 5.6: what each kind of handle counts as --------------------------------------------------------------------- */

static const struct {
	const char *name;
	bool has_lookup;
	struct handle handle;
	bool says; /* it has a load to say */
	enum pinion_load tier;
} tier_rows[] = {
	{ "no lookup", false, GONE, false, PINION_LOAD_IDLE },
	{ "absent handle", true, GONE, false, PINION_LOAD_IDLE },
	{ "no tier 2", true, MEMORY(900, 900), false, PINION_LOAD_IDLE },
	{ "absent count", true, MUTE(900, 900, 1), false, PINION_LOAD_IDLE },
	{ "present 0, capacity 1", true, QUEUE(900, 900, 0, 1), true, PINION_LOAD_IDLE },
	{ "present 0, capacity 0", true, QUEUE(900, 900, 0, 0), true, PINION_LOAD_IDLE },
	{ "present 4, capacity 1", true, QUEUE(900, 900, 4, 1), true, PINION_LOAD_SATURATED },
	{ "present 1, capacity 0", true, QUEUE(900, 900, 1, 0), true, PINION_LOAD_SATURATED },
	{ "present 1, capacity 8", true, QUEUE(900, 900, 1, 8), true, PINION_LOAD_IDLE },
	{ "present 2, capacity 8", true, QUEUE(900, 900, 2, 8), true, PINION_LOAD_MODERATE },
	{ "present 7, capacity 8", true, QUEUE(900, 900, 7, 8), true, PINION_LOAD_MODERATE },
	{ "present 8, capacity 8", true, QUEUE(900, 900, 8, 8), true, PINION_LOAD_SATURATED },
	{ "the most of both", true, QUEUE(900, 900, UINT32_MAX, UINT32_MAX), true, PINION_LOAD_SATURATED },
};

START_TEST(tiers_by_what_the_handle_knows)
{
	struct pinion_candidate c = candidate(PINION_BACKEND_CUDA, 0, 300, 10);
	struct pinion_set *set = set_of(&c, 1);

	for (size_t i = 0; i < COUNT(tier_rows); i++) {
		struct handle handle = tier_rows[i].handle;
		struct pinion_selector_opts opts = { .lookup = tier_rows[i].has_lookup ? lookup : NULL, .lookup_arg = &handle };
		struct pinion_verdict row;

		ck_assert_uint_eq(chained(&opts, set, &row), 0);
		ck_assert_msg(row.load == tier_rows[i].tier, "%s: tier %d", tier_rows[i].name, row.load);
		ck_assert_msg(row.has_load == tier_rows[i].says, "%s: has_load %d", tier_rows[i].name, row.has_load);
		if (row.has_load)
			ck_assert_uint_eq(row.pending, handle.pending);
	}
	pinion_set_free(set);
}
END_TEST

/* "Tier 0 here means nothing to say, so no signal ties with real idleness": the faster wins, on whichever side. */
START_TEST(nothing_to_say_ties_with_idle)
{
	static const struct handle silent[] = { GONE, MEMORY(900, 900), MUTE(900, 900, 1) };

	for (size_t i = 0; i < COUNT(silent); i++)
		for (uint32_t fast = 0; fast < 2; fast++)
			for (uint32_t quiet = 0; quiet < 2; quiet++) {
				struct pinion_candidate list[] = {
					candidate(PINION_BACKEND_CUDA, 0, fast == 0 ? 300 : 600, 10),
					candidate(PINION_BACKEND_CUDA, 1, fast == 1 ? 300 : 600, 10),
				};
				struct handle world[2] = { QUEUE(900, 900, 0, 1), QUEUE(900, 900, 0, 1) };
				struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = world };
				struct pinion_set *set = set_of(list, 2);
				struct pinion_verdict rows[2];

				world[quiet] = silent[i];
				ck_assert_uint_eq(chained(&opts, set, rows), fast);
				pinion_set_free(set);
			}
}
END_TEST

/* ---- 5.8: the rows marked (*) ------------------------------------------------------------------------------------ */

static uint64_t hundred_bytes(void *arg, const struct pinion_candidate *c)
{
	(void)arg;
	(void)c;
	return 100;
}

static const struct {
	const char *name;
	struct handle cuda, cpu;
} star_rows[] = {
	{ "\"tight\" idle vs comfortable saturated", QUEUE(100, 100, 0, 1), QUEUE(10000, 10000, 4, 1) },
	{ "\"tight\" demoted", MEMORY(100, 100), MEMORY(10000, 10000) },
};

START_TEST(rows_named_tight_as_they_stand_and_as_they_are_meant)
{
	struct pinion_candidate list[] = { candidate(PINION_BACKEND_CUDA, 0, 3000, 3000),
					   candidate(PINION_BACKEND_CPU, 1, 200, 200) };
	struct pinion_set *set = set_of(list, 2);

	for (size_t i = 0; i < COUNT(star_rows); i++)
		for (int meant = 0; meant < 2; meant++) {
			struct handle world[] = { star_rows[i].cuda, star_rows[i].cpu };
			struct pinion_selector_opts opts = { .lookup = lookup,
							     .lookup_arg = world,
							     .estimate = meant ? hundred_bytes : NULL };
			struct pinion_verdict rows[2];

			/* By the default estimate it needs 3000 bytes of 100: the CPU is chosen, and not for the named reason. */
			ck_assert_msg(chained(&opts, set, rows) == 1, "%s", star_rows[i].name);
			ck_assert_int_eq(rows[0].fit, meant ? PINION_FIT_TIGHT : PINION_FIT_NO);
			ck_assert_int_eq(rows[0].reason, meant ? PINION_REASON_TIGHT : PINION_REASON_NO_FIT);
			ck_assert_uint_eq(rows[0].need, meant ? 100 : 3000);
			ck_assert_int_eq(rows[1].fit, PINION_FIT_COMFORTABLE);
		}
	pinion_set_free(set);
}
END_TEST

/* ---- 5.8: the third member of the key ---------------------------------------------------------------------------- */

/* Flops, bytes and overhead; the way there; measured ns, 0: not measured. */
struct leg {
	enum pinion_backend_id backend;
	struct pinion_cost cost;
	uint64_t inbound, measured;
};

#define CPU  PINION_BACKEND_CPU
#define CUDA PINION_BACKEND_CUDA

static const struct {
	const char *name;
	struct leg leg[2];
	uint64_t ns[2];
	size_t pick;
} latency_rows[] = {
	{ "CPU rates are 1 and 4", { { CPU, { 100, 0, 0 }, 0, 0 }, { CPU, { 0, 396, 0 }, 0, 0 } }, { 100, 99 }, 1 },
	{ "others' are 30 and 40", { { CUDA, { 3000, 0, 0 }, 0, 0 }, { CUDA, { 0, 3960, 0 }, 0, 0 } }, { 100, 99 }, 1 },
	{ "the same work", { { CPU, { 3000, 3000, 0 }, 0, 0 }, { CUDA, { 3000, 3000, 0 }, 0, 0 } }, { 3000, 100 }, 1 },
	{ "overhead", { { CPU, { 100, 0, 2 }, 0, 0 }, { CPU, { 101, 0, 0 }, 0, 0 } }, { 102, 101 }, 1 },
	{ "inbound on an estimate", { { CUDA, { 3000, 0, 0 }, 101, 0 }, { CPU, { 200, 0, 0 }, 0, 0 } }, { 201, 200 }, 1 },
	{ "inbound on a measurement", { { CUDA, { 0, 0, 0 }, 0, 51 }, { CPU, { 0, 0, 0 }, 2, 50 } }, { 51, 52 }, 0 },
	{ "measured before estimated", { { CPU, { 10, 0, 0 }, 0, 300 }, { CUDA, { 6000, 0, 0 }, 0, 0 } }, { 300, 200 }, 1 },
	{ "saturating",
	  { { CPU, { 5, 0, 0 }, UINT64_MAX, 0 }, { CUDA, { 0, 0, 0 }, UINT64_MAX, 7 } },
	  { UINT64_MAX, UINT64_MAX },
	  0 },
	{ "saturating and less", { { CPU, { 5, 0, 0 }, UINT64_MAX, 0 }, { CUDA, { 0, 0, 0 }, 1, 7 } }, { UINT64_MAX, 8 }, 1 },
	{ "a set that is not ranked", { { CPU, { 500, 0, 0 }, 0, 0 }, { CPU, { 400, 0, 0 }, 0, 0 } }, { 500, 400 }, 1 },
	{ "index breaks ties", { { CPU, { 400, 0, 0 }, 0, 0 }, { CUDA, { 12000, 0, 0 }, 0, 0 } }, { 400, 400 }, 0 },
};

START_TEST(latency_row_by_row)
{
	for (size_t i = 0; i < COUNT(latency_rows); i++) {
		struct pinion_selector_opts opts = { 0 };
		struct pinion_candidate list[2];
		struct pinion_verdict rows[2];
		struct pinion_judge *judge = NULL;
		struct pinion_set *set;
		size_t got;

		ck_ok(pinion_judge_new(&judge));
		for (uint32_t c = 0; c < 2; c++) {
			const struct leg *leg = &latency_rows[i].leg[c];
			struct pinion_measure measure = { .ns = leg->measured };

			list[c] = candidate(leg->backend, c, 0, 0);
			list[c].static_cost = leg->cost;
			list[c].inbound_transfer_ns = leg->inbound;
			list[c].kernel_source = c ? "b" : "a";
			if (leg->measured)
				ck_ok(pinion_judge_put(judge, &task, leg->backend, list[c].kernel_source, &measure));
		}
		opts.judge = judge;
		set = set_of(list, 2);
		got = chained(&opts, set, rows);
		ck_assert_msg(got == latency_rows[i].pick, "%s: %zu", latency_rows[i].name, got);
		for (int c = 0; c < 2; c++)
			ck_assert_msg(rows[c].ns == latency_rows[i].ns[c], "%s: candidate %d takes %llu ns", latency_rows[i].name,
				      c, (unsigned long long)rows[c].ns);
		pinion_set_free(set);
		pinion_judge_free(judge);
	}
}
END_TEST

/* A bucket, not the count: within one the faster wins though its queue is longer. */
START_TEST(load_enters_as_a_bucket)
{
	static const struct {
		uint32_t slow, fast, capacity;
		size_t pick;
	} rows[] = { { 2, 7, 8, 1 }, { 0, 1, 8, 1 }, { 1, 100, 1, 1 }, { 1, 2, 8, 0 }, { 7, 8, 8, 0 }, { 0, 1, 1, 0 } };
	struct pinion_candidate list[] = { candidate(CUDA, 0, 600, 10), candidate(CUDA, 1, 300, 10) };
	struct pinion_set *set = set_of(list, 2);

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct handle world[] = { QUEUE(900, 900, rows[i].slow, rows[i].capacity),
					  QUEUE(900, 900, rows[i].fast, rows[i].capacity) };
		struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = world };
		struct pinion_verdict verdicts[2];

		ck_assert_msg(chained(&opts, set, verdicts) == rows[i].pick, "row %zu", i);
	}
	pinion_set_free(set);
}
END_TEST

/* Unknown is never between comfortable and tight: it ties with the one, on either side, and comes before the other. */
START_TEST(unknown_ranks_with_comfortable)
{
	static const struct {
		const char *name;
		struct handle first, second;
		size_t pick; /* the second is the faster one */
	} rows[] = {
		{ "comfortable, unknown", MEMORY(900, 900), GONE, 1 },
		{ "unknown, comfortable", GONE, MEMORY(900, 900), 1 },
		{ "tight, unknown", MEMORY(100, 100), GONE, 1 },
		{ "unknown, tight", GONE, MEMORY(100, 100), 0 },
		{ "unknown, does not fit", GONE, MEMORY(99, 900), 0 },
		{ "unknown and saturated, tight and idle", QUEUE(900, 0, 4, 1), QUEUE(100, 100, 0, 1), 0 },
	};
	struct pinion_candidate list[] = { candidate(CUDA, 0, 600, 100), candidate(CUDA, 1, 300, 100) };
	struct pinion_set *set = set_of(list, 2);

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct handle world[] = { rows[i].first, rows[i].second };
		struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = world };
		struct pinion_verdict verdicts[2];
		size_t got = chained(&opts, set, verdicts);

		ck_assert_msg(got == rows[i].pick, "%s: %zu", rows[i].name, got);
	}
	pinion_set_free(set);
}
END_TEST

/* ---- 5.5: the handle on a device --------------------------------------------------------------------------------- */

/* Memory methods delegate; streams are absent for the CPU and else the device's own, with the capacity that it has. */
START_TEST(handles_on_the_built_in_devices)
{
	static const struct {
		const char *key;
		bool streams;
	} rows[] = { { "cpu", false }, { "reference", false }, { "hostio", true } };
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct pinion_device_runtime room;
		struct pinion_device *dev = NULL;
		struct pinion_runtime *rt;
		uint64_t total = 0, of_device = 0;
		uint32_t n = 77, capacity;

		ck_ok(pinion_device_find(ctx, rows[i].key, &dev));
		rt = pinion_runtime_of_device(dev, &room);
		ck_ok(pinion_runtime_total(rt, &total));
		ck_ok(pinion_device_total(dev, &of_device));
		ck_assert_uint_eq(total, of_device);
		ck_assert_int_eq(pinion_runtime_would_fit(rt, UINT64_MAX), PINION_FIT_NO);
		ck_assert_int_eq(pinion_runtime_has_streams(rt), rows[i].streams);
		ck_assert_int_eq(pinion_runtime_pending(rt, &n), rows[i].streams ? 0 : -ENODATA);
		ck_assert_uint_eq(n, rows[i].streams ? 0 : 77);
		ck_assert_int_eq(pinion_runtime_flush(rt, 0), rows[i].streams ? 0 : -ENODATA);
		if (rows[i].streams) {
			ck_ok(pinion_runtime_capacity(rt, &n));
			ck_ok(pinion_device_capacity(dev, &capacity));
			ck_assert_uint_eq(n, capacity);
			ck_assert_uint_gt(n, 1);
		}
	}
	pinion_close(ctx);
}
END_TEST

/* "With capacity fixed at 1 tier 1 can never occur": it is the device's here, and does. */
START_TEST(all_three_tiers_occur_on_a_device)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 8 };
	struct pinion_device_runtime room;
	struct pinion_context *ctx = NULL;
	struct pinion_device *dev = NULL;
	struct pinion_ticket ticket[8] = { 0 };
	uint32_t n, capacity;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "rows-tiers", &opts, &dev));
	pinion_runtime_of_device(dev, &room);
	for (uint32_t i = 0; i < 8; i++) {
		ck_ok(pinion_work_begin(dev, 1, &ticket[i]));
		ck_ok(pinion_runtime_pending(&room.runtime, &n));
		ck_ok(pinion_runtime_capacity(&room.runtime, &capacity));
		ck_assert_int_eq(pinion_load_tier(n, capacity), i < 1 ? 0 : i < 7 ? 1 : 2);
	}
	for (uint32_t i = 0; i < 8; i++)
		ck_ok(pinion_work_end(&ticket[i]));
	ck_ok(pinion_runtime_pending(&room.runtime, &n));
	ck_assert_int_eq(pinion_load_tier(n, capacity), 0);
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_load");
	TCase *tc = tcase_create("rows");

	tcase_add_test(tc, tiers_by_what_the_handle_knows);
	tcase_add_test(tc, nothing_to_say_ties_with_idle);
	tcase_add_test(tc, rows_named_tight_as_they_stand_and_as_they_are_meant);
	tcase_add_test(tc, latency_row_by_row);
	tcase_add_test(tc, load_enters_as_a_bucket);
	tcase_add_test(tc, unknown_ranks_with_comfortable);
	tcase_add_test(tc, handles_on_the_built_in_devices);
	tcase_add_test(tc, all_three_tiers_occur_on_a_device);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(suite)
