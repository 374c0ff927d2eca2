/* SPDX-License-Identifier: MIT */
/*
 * Contract 1.4 to 1.7, 2.11, 2.12 and 5.5 to 5.9: handles and their signals, measurements, and the selectors, each row
 * of its tables by the name it has there.
 */
#include "harness.h"

#include <errno.h>
#include <math.h>
#include <pinion/context.h>
#include <pinion/device.h>
#include <pinion/select.h>
#include <pinion/work.h>
#include <pthread.h>
#include <stdatomic.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NONE	     SIZE_MAX /* no choice */

static uint64_t state = 0x2545f4914f6cdd1d;

static uint64_t below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

/* ---- a world of devices ------------------------------------------------------------------------------------------ */

/* What a device answers. Without has_ it cannot measure; without streams it has no queue. */
struct signals {
	bool there; /* the lookup has a handle */
	bool has_available;
	bool has_total;
	bool streams;
	bool has_pending;
	uint64_t available;
	uint64_t total;
	uint32_t pending;
	uint32_t capacity;
};

/* Memory alone; with a queue; with one that cannot be counted; no handle. */
#define MEMORY(a, t)                                           \
	{                                                      \
		true, true, true, false, false, (a), (t), 0, 0 \
	}
#define QUEUE(a, t, p, c)                                        \
	{                                                        \
		true, true, true, true, true, (a), (t), (p), (c) \
	}
#define MUTE(a, t, c)                                           \
	{                                                       \
		true, true, true, true, false, (a), (t), 0, (c) \
	}
#define GONE      \
	{         \
		0 \
	}

/* Devices by kind and index, and what was asked. */
struct world {
	struct signals at[PINION_BACKEND_METAL + 1][8];
	atomic_uint lookups[PINION_BACKEND_METAL + 1][8];
	atomic_uint fits[PINION_BACKEND_METAL + 1][8];
	atomic_int handles; /* given out and not freed */
	atomic_int handles_most;
	bool lends; /* handles are not the selector's to free */
	struct handle *lent[PINION_BACKEND_METAL + 1][8];
};

struct handle {
	struct pinion_runtime runtime;
	struct world *world;
	struct pinion_location location;
};

static const struct signals *signals_of(struct pinion_runtime *rt)
{
	const struct handle *h = (const struct handle *)rt;

	return &h->world->at[h->location.kind][h->location.index];
}

static int handle_available(struct pinion_runtime *rt, uint64_t *bytes)
{
	if (!signals_of(rt)->has_available)
		return -ENODATA;
	*bytes = signals_of(rt)->available;
	return 0;
}

static int handle_total(struct pinion_runtime *rt, uint64_t *bytes)
{
	if (!signals_of(rt)->has_total)
		return -ENODATA;
	*bytes = signals_of(rt)->total;
	return 0;
}

/* Derived as without it, and counted. */
static enum pinion_fit handle_would_fit(struct pinion_runtime *rt, uint64_t bytes)
{
	struct handle *h = (struct handle *)rt;
	const struct signals *s = signals_of(rt);

	atomic_fetch_add(&h->world->fits[h->location.kind][h->location.index], 1);
	return pinion_fit_of(s->has_available ? &s->available : NULL, s->has_total ? &s->total : NULL, bytes);
}

static int handle_pending(struct pinion_runtime *rt, uint32_t *n)
{
	if (!signals_of(rt)->has_pending)
		return -ENODATA;
	*n = signals_of(rt)->pending;
	return 0;
}

static int handle_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	*n = signals_of(rt)->capacity;
	return 0;
}

static int handle_flush(struct pinion_runtime *rt, int64_t deadline_ns)
{
	(void)rt;
	return deadline_ns ? 0 : -ETIMEDOUT;
}

static void handle_free(struct pinion_runtime *rt)
{
	struct handle *h = (struct handle *)rt;

	atomic_fetch_sub(&h->world->handles, 1);
	free(h);
}

/* The four that there are: synchronous or with a queue, the selector's or lent. */
static const struct pinion_runtime_ops plain = {
	.available = handle_available,
	.total = handle_total,
	.free = handle_free,
};

static const struct pinion_runtime_ops queued = {
	.available = handle_available,
	.total = handle_total,
	.would_fit = handle_would_fit,
	.pending = handle_pending,
	.capacity = handle_capacity,
	.flush = handle_flush,
	.free = handle_free,
};

static const struct pinion_runtime_ops plain_lent = { .available = handle_available, .total = handle_total };

static const struct pinion_runtime_ops queued_lent = {
	.available = handle_available,
	.total = handle_total,
	.would_fit = handle_would_fit,
	.pending = handle_pending,
	.capacity = handle_capacity,
	.flush = handle_flush,
};

static struct handle *handle_new(struct world *w, struct pinion_location location)
{
	struct handle *h = calloc(1, sizeof(*h));
	bool streams = w->at[location.kind][location.index].streams;

	h->runtime.ops = w->lends ? (streams ? &queued_lent : &plain_lent) : (streams ? &queued : &plain);
	h->world = w;
	h->location = location;
	return h;
}

static struct pinion_runtime *lookup(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	struct world *w = arg;
	int handles;

	(void)backend;
	atomic_fetch_add(&w->lookups[device.kind][device.index], 1);
	if (!w->at[device.kind][device.index].there)
		return NULL;
	if (w->lends)
		return &w->lent[device.kind][device.index]->runtime;
	handles = atomic_fetch_add(&w->handles, 1) + 1;
	if (handles > atomic_load(&w->handles_most))
		atomic_store(&w->handles_most, handles);
	return &handle_new(w, device)->runtime;
}

/* From now on handles are made once and lent. */
static void world_lends(struct world *w)
{
	w->lends = true;
	for (unsigned int kind = 1; kind < COUNT(w->lent); kind++)
		for (uint32_t i = 0; i < COUNT(w->lent[0]); i++)
			w->lent[kind][i] = handle_new(w, (struct pinion_location){ (enum pinion_backend_id)kind, i });
}

static void world_end(struct world *w)
{
	ck_assert_int_eq(atomic_load(&w->handles), 0);
	for (unsigned int kind = 0; kind < COUNT(w->lent); kind++)
		for (uint32_t i = 0; i < COUNT(w->lent[0]); i++)
			free(w->lent[kind][i]);
}

static int no_kernel(const struct pinion_kernel_call *call)
{
	(void)call;
	return 0;
}

static struct pinion_candidate candidate(enum pinion_backend_id backend, uint32_t index, uint64_t flops, uint64_t bytes)
{
	return (struct pinion_candidate){
		.kernel = no_kernel,
		.backend = backend,
		.device = { backend, index },
		.precision = pinion_precision_deterministic(),
		.static_cost = { .flops = flops, .bytes_moved = bytes },
		.kernel_source = "",
	};
}

static const struct pinion_task task = { PINION_OP_MATMUL, PINION_DTYPE_F32, 20 };

static struct pinion_set *set_of(const struct pinion_candidate *list, size_t n, bool with_task)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_from(list, n, &set));
	pinion_set_set_task(set, &task);
	if (!with_task)
		pinion_set_set_task(set, NULL);
	return set;
}

/* One on CUDA and one on the CPU, of so many flops and bytes. */
static struct pinion_set *pair(uint64_t cuda, uint64_t cpu)
{
	struct pinion_candidate list[] = {
		candidate(PINION_BACKEND_CUDA, 0, cuda, cuda),
		candidate(PINION_BACKEND_CPU, 0, cpu, cpu),
	};

	return set_of(list, 2, true);
}

/* Two that are equal, on two devices. */
static struct pinion_set *twins(void)
{
	struct pinion_candidate list[] = {
		candidate(PINION_BACKEND_CUDA, 0, 300, 300),
		candidate(PINION_BACKEND_CUDA, 1, 300, 300),
	};

	return set_of(list, 2, true);
}

enum kind {
	WINNER,
	PRESSURE,
	LOAD,
	JUDGE,
	CHAINED,
	KINDS,
};

static int (*const makers[KINDS])(const struct pinion_selector_opts *opts, struct pinion_selector **out) = {
	[WINNER] = pinion_selector_winner,    [PRESSURE] = pinion_selector_vram_pressure,
	[LOAD] = pinion_selector_device_load, [JUDGE] = pinion_selector_judge_aware,
	[CHAINED] = pinion_selector_chained,
};

static struct pinion_selector *selector(enum kind kind, const struct pinion_selector_opts *opts)
{
	struct pinion_selector_opts own = { .size = sizeof(own) };
	struct pinion_selector *s = NULL;

	if (opts)
		own = *opts;
	own.size = sizeof(own);
	ck_ok(makers[kind](opts ? &own : NULL, &s));
	return s;
}

static size_t pick(struct pinion_selector *s, const struct pinion_set *set)
{
	size_t index = NONE;
	int ret = pinion_select(s, set, &index);

	ck_assert_int_eq(ret, pinion_set_size(set) ? 0 : -ENOENT);
	ck_assert(ret ? index == NONE : index < pinion_set_size(set));
	return index;
}

/* ---- 1.4, 1.5, 1.6: handles -------------------------------------------------------------------------------------- */

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

/* The lookup of a program with one device. */
static struct pinion_runtime *lend(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	(void)backend;
	return device.kind == PINION_BACKEND_CUDA ? arg : NULL;
}

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
	ck_assert(rows[0].has_handle && !rows[0].has_available && !rows[0].has_load &&
		  rows[0].fit == PINION_FIT_UNKNOWN);
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

/* ---- 1.7: VRAM pressure ------------------------------------------------------------------------------------------ */

static uint64_t ten_bytes(void *arg, const struct pinion_candidate *c)
{
	(void)c;
	if (arg)
		++*(unsigned int *)arg;
	return 10;
}

static uint64_t estimate_must_not_run(void *arg, const struct pinion_candidate *c)
{
	(void)arg;
	(void)c;
	ck_abort_msg("an estimator ran");
	return 0;
}

static struct pinion_runtime *lookup_must_not_run(void *arg, enum pinion_backend_id backend,
						  struct pinion_location device)
{
	(void)arg;
	(void)backend;
	(void)device;
	ck_abort_msg("a lookup ran");
	return NULL;
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
	struct world w = { .at[PINION_BACKEND_CUDA][0] = MEMORY(9, 10000),
			   .at[PINION_BACKEND_CPU][0] = MEMORY(10, 10000) };
	unsigned int asked = 0;
	struct pinion_selector_opts opts = {
		.lookup = lookup, .lookup_arg = &w, .estimate = ten_bytes, .estimate_arg = &asked
	};
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

/* ---- what holds for every selector ------------------------------------------------------------------------------- */

START_TEST(an_empty_set_has_no_choice)
{
	struct pinion_selector_opts opts = { .lookup = lookup_must_not_run,
					     .estimate = estimate_must_not_run,
					     .rotate = true };
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
					ck_assert_uint_eq(atomic_load(&w.lookups[PINION_BACKEND_CUDA][d]),
							  looks ? round : 0);
					ck_assert_uint_eq(atomic_load(&w.fits[PINION_BACKEND_CUDA][d]),
							  fits ? round : 0);
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
	static const char *const names[] = { "WinnerSelector", "VramPressureSelector", "DeviceLoadSelector",
					     "JudgeAwareSelector", "ChainedSelector" };
	static const char chained[] =
		"ChainedSelector { lookup: <callback>, estimate: <callback>, judge: 0 measured, ties: in turn }";
	struct pinion_selector_opts opts = { .lookup = lookup_must_not_run,
					     .estimate = estimate_must_not_run,
					     .rotate = true };
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

/* ---- 5.6 and 5.7: load ------------------------------------------------------------------------------------------- */

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
		struct pinion_selector_opts opts = { .lookup = lookup,
						     .lookup_arg = &w,
						     .estimate = estimate_must_not_run };
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

/* ---- 5.9: judge-aware -------------------------------------------------------------------------------------------- */

static void put(struct pinion_judge *judge, enum pinion_backend_id backend, const char *source, uint64_t ns)
{
	struct pinion_measure measure = { .ns = ns };

	ck_ok(pinion_judge_put(judge, &task, backend, source, &measure));
}

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

/* ---- 5.8: chained ------------------------------------------------------------------------------------------------ */

enum set_kind {
	RANKED, /* CUDA 3000 and CPU 200 flops and bytes: 100 and 200 ns */
	SMALL, /* as long, but each moves 100 bytes, so that a device with 100 free is tight for it and not too small */
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

/* ---- why --------------------------------------------------------------------------------------------------------- */

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

/* ---- in turn ----------------------------------------------------------------------------------------------------- */

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

/* ---- against a model --------------------------------------------------------------------------------------------- */

/* The contract's key, worked out a second time: whole numbers, no shared code. */
struct key {
	bool skipped;
	int pressure, load;
	uint64_t ns;
};

/* 0 comfortable or unknown, 1 tight, 2 does not fit. Totals are multiples of 20, so that 0.85 of them is a whole
 * number. */
static int model_pressure(const struct signals *s, uint64_t size)
{
	uint64_t used, left;

	if (!s->there || !s->has_available)
		return 0;
	if (size > s->available)
		return 2;
	if (!s->has_total || !s->total)
		return 0;
	left = s->available - size;
	used = left < s->total ? s->total - left : 0;
	return used > s->total / 20 * 17;
}

static int model_load(const struct signals *s)
{
	uint32_t capacity = s->capacity ? s->capacity : 1;

	if (!s->there || !s->streams || !s->has_pending || !s->pending)
		return 0;
	if (s->pending >= capacity)
		return 2;
	return (double)s->pending / capacity < 0.25 ? 0 : 1;
}

/* Measured ns by backend and source, 0: none. */
struct model {
	struct world *world;
	uint64_t measured[PINION_BACKEND_METAL + 1][3];
	bool task;
	bool judge;
};

static const char *const model_sources[] = { "", "aocl", "mkl" };

static uint64_t model_ns(const struct model *m, const struct pinion_candidate *c)
{
	bool cpu = c->backend == PINION_BACKEND_CPU;
	uint64_t compute = c->static_cost.flops / (cpu ? 1 : 30), memory = c->static_cost.bytes_moved / (cpu ? 4 : 40);
	uint64_t ns = (compute > memory ? compute : memory) + c->static_cost.overhead_ns;

	for (size_t i = 0; i < COUNT(model_sources); i++)
		if (m->task && m->judge && !strcmp(c->kernel_source, model_sources[i]) && m->measured[c->backend][i])
			ns = m->measured[c->backend][i];
	return ns + c->inbound_transfer_ns;
}

static struct key model_key(const struct model *m, const struct pinion_candidate *c, enum kind kind)
{
	const struct signals *s = &m->world->at[c->device.kind][c->device.index];
	bool chained = kind == CHAINED;
	struct key key = { 0 };

	if (chained || kind == PRESSURE)
		key.pressure = model_pressure(s, c->static_cost.bytes_moved);
	if (chained || kind == LOAD)
		key.load = model_load(s);
	if (chained || kind == JUDGE)
		key.ns = model_ns(m, c);
	key.skipped = key.pressure == 2;
	return key;
}

static int compare_keys(const struct key *a, const struct key *b)
{
	if (a->pressure != b->pressure)
		return a->pressure - b->pressure;
	if (a->load != b->load)
		return a->load - b->load;
	return (a->ns > b->ns) - (a->ns < b->ns);
}

/* The candidates with the lowest key, in their order; candidate 0 when all are skipped. */
static size_t model_ties(const struct key *keys, size_t n, size_t *ties)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		bool lowest = !keys[i].skipped;

		for (size_t j = 0; j < n && lowest; j++)
			lowest = keys[j].skipped || compare_keys(&keys[i], &keys[j]) <= 0;
		if (lowest)
			ties[count++] = i;
	}
	if (!count)
		ties[count++] = 0;
	return count;
}

static struct signals random_signals(void)
{
	return (struct signals){
		.there = below(5),
		.has_available = below(6),
		.available = 100 * below(12) + below(3),
		.has_total = below(6),
		.total = below(8) ? 1000 : 0,
		.streams = below(4),
		.has_pending = below(5),
		.pending = (uint32_t)below(below(3) ? 3 : 10),
		.capacity = (uint32_t)below(9),
	};
}

static struct pinion_candidate random_candidate(void)
{
	struct pinion_candidate c =
		candidate((enum pinion_backend_id)(1 + below(4)), (uint32_t)below(3), 30 * below(4), 100 * below(11));

	c.static_cost.overhead_ns = (uint32_t)below(2);
	c.inbound_transfer_ns = below(3);
	c.kernel_source = model_sources[below(3)];
	return c;
}

static void random_world(struct world *w, struct model *m, struct pinion_judge *judge)
{
	memset(w, 0, sizeof(*w));
	*m = (struct model){ .world = w, .task = below(5), .judge = below(5) };
	for (unsigned int kind = 1; kind < COUNT(w->at); kind++) {
		for (int i = 0; i < 3; i++) {
			w->at[kind][i] = random_signals();
			m->measured[kind][i] = below(2) ? 1 + below(30) : 0;
			if (m->measured[kind][i])
				put(judge, (enum pinion_backend_id)kind, model_sources[i], m->measured[kind][i]);
		}
	}
}

/* The reason that the model has for candidate @i. */
static enum pinion_reason model_reason(const struct key *keys, size_t i, size_t chosen, enum kind kind)
{
	if (i == chosen)
		return PINION_REASON_CHOSEN;
	if (kind == WINNER)
		return PINION_REASON_UNSEEN;
	if (keys[i].skipped)
		return PINION_REASON_NO_FIT;
	if (keys[i].pressure > keys[chosen].pressure)
		return PINION_REASON_TIGHT;
	if (keys[i].load > keys[chosen].load)
		return PINION_REASON_LOADED;
	return keys[i].ns > keys[chosen].ns ? PINION_REASON_SLOWER : PINION_REASON_TIED;
}

#define MODEL_MOST 100

static void check_selector(const struct model *m, const struct pinion_set *set, enum kind kind,
			   const struct pinion_judge *judge)
{
	struct pinion_selector_opts opts = { .lookup = lookup,
					     .lookup_arg = m->world,
					     .judge = m->judge ? judge : NULL };
	struct pinion_selector *first = selector(kind, &opts), *in_turn;
	struct pinion_verdict rows[MODEL_MOST];
	struct key keys[MODEL_MOST];
	size_t ties[MODEL_MOST], n = pinion_set_size(set), count, index;

	opts.rotate = true;
	in_turn = selector(kind, &opts);
	for (size_t i = 0; i < n; i++)
		keys[i] = model_key(m, pinion_set_at(set, i), kind);
	count = model_ties(keys, n, ties);
	ck_assert_uint_eq(pick(first, set), ties[0]);
	ck_ok(pinion_select_explain(first, set, &index, rows, n));
	ck_assert_uint_eq(index, ties[0]);
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(rows[i].reason, model_reason(keys, i, index, kind));
	if (kind == WINNER)
		count = 1;
	for (size_t turn = 0; turn < 2 * count + 1; turn++)
		ck_assert_uint_eq(pick(in_turn, set), ties[turn % count]);
	pinion_selector_unref(first);
	pinion_selector_unref(in_turn);
}

START_TEST(random_sets_agree_with_the_model)
{
	static struct world w;

	for (int round = 0; round < 6000; round++) {
		struct pinion_candidate list[MODEL_MOST];
		size_t n = 1 + below(round % 40 ? 10 : MODEL_MOST);
		struct pinion_judge *judge = NULL;
		struct pinion_set *set;
		struct model m;

		ck_ok(pinion_judge_new(&judge));
		random_world(&w, &m, judge);
		for (size_t i = 0; i < n; i++)
			list[i] = random_candidate();
		set = set_of(list, n, m.task);
		if (below(2))
			world_lends(&w);
		for (enum kind kind = WINNER; kind < KINDS; kind++)
			check_selector(&m, set, kind, judge);
		pinion_set_free(set);
		pinion_judge_free(judge);
		world_end(&w);
	}
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define THREADS 8
#define PICKS	30000

struct crew {
	struct pinion_selector *selector;
	struct pinion_set *set;
	struct pinion_judge *judge;
	atomic_uint count[8];
	atomic_bool wrong;
};

static void *select_many(void *arg)
{
	struct crew *crew = arg;
	size_t index;

	for (int i = 0; i < PICKS; i++) {
		if (pinion_select(crew->selector, crew->set, &index) || index >= 8)
			atomic_store(&crew->wrong, true);
		else
			atomic_fetch_add_explicit(&crew->count[index], 1, memory_order_relaxed);
	}
	return NULL;
}

static void run(struct crew *crew, void *(*body)(void *), int threads)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < threads; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, body, crew), 0);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	ck_assert(!atomic_load(&crew->wrong));
}

START_TEST(eight_threads_in_turn_come_out_even)
{
	struct pinion_candidate list[8];
	struct world w = { 0 };
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = &w, .rotate = true };
	struct crew crew = { .selector = selector(CHAINED, &opts) };

	for (uint32_t i = 0; i < 8; i++) {
		list[i] = candidate(PINION_BACKEND_CUDA, i, 300, 300);
		/* 1, 4 and 6 are busy, 7 does not fit: 0, 2, 3 and 5 take turns. */
		w.at[PINION_BACKEND_CUDA][i] =
			(struct signals)QUEUE(i == 7 ? 1 : 9000, 9000, i % 4 == 1 || i % 4 == 2, 1);
	}
	w.at[PINION_BACKEND_CUDA][2].pending = w.at[PINION_BACKEND_CUDA][5].pending = 0;
	w.at[PINION_BACKEND_CUDA][4].pending = 1;
	crew.set = set_of(list, 8, true);
	run(&crew, select_many, THREADS);
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(atomic_load(&crew.count[i]),
				  i == 0 || i == 2 || i == 3 || i == 5 ? THREADS * PICKS / 4 : 0);
	pinion_selector_unref(crew.selector);
	pinion_set_free(crew.set);
	world_end(&w);
}
END_TEST

/* Odd threads measure, even ones select and read: ns and error of one measurement go together. */
static void *measure_or_select(void *arg)
{
	static atomic_uint number;
	unsigned int me = atomic_fetch_add(&number, 1);
	struct crew *crew = arg;

	for (uint32_t i = 1; i < PICKS; i++) {
		struct pinion_measure m = { .ns = i, .error = i };
		struct pinion_task t = { PINION_OP_ADD, PINION_DTYPE_F32, me << 20 | i };
		size_t index;

		if (me % 2) {
			if (pinion_judge_put(crew->judge, &task, PINION_BACKEND_CUDA, "", &m) ||
			    (i % 8 == 0 && pinion_judge_put(crew->judge, &t, PINION_BACKEND_CPU, "portable-cpu", &m)))
				atomic_store(&crew->wrong, true);
		} else {
			if (pinion_select(crew->selector, crew->set, &index) ||
			    pinion_judge_get(crew->judge, &task, PINION_BACKEND_CUDA, "", &m) ||
			    m.error != (double)m.ns)
				atomic_store(&crew->wrong, true);
		}
	}
	return NULL;
}

START_TEST(measuring_and_selecting_at_once)
{
	struct pinion_selector_opts opts = { .rotate = true };
	struct crew crew = { .set = pair(300, 300) };
	struct pinion_measure m = { .ns = 1, .error = 1 };

	ck_ok(pinion_judge_new(&crew.judge));
	ck_ok(pinion_judge_put(crew.judge, &task, PINION_BACKEND_CUDA, "", &m));
	opts.judge = crew.judge;
	crew.selector = selector(CHAINED, &opts);
	run(&crew, measure_or_select, 4);
	ck_assert_uint_eq(pinion_judge_size(crew.judge), 1 + 2 * ((PICKS - 1) / 8));
	pinion_selector_unref(crew.selector);
	pinion_judge_free(crew.judge);
	pinion_set_free(crew.set);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("select");
	TCase *handles = tcase_create("handles"), *pressure = tcase_create("pressure"), *all = tcase_create("all"),
	      *load = tcase_create("load"), *judge = tcase_create("judge"), *chained = tcase_create("chained"),
	      *why = tcase_create("why"), *turns = tcase_create("turns"), *many = tcase_create("many");

	tcase_add_test(handles, would_fit_through_a_handle);
	tcase_add_test(handles, a_handle_without_a_queue_has_no_streams_tier);
	tcase_add_test(handles, a_handle_with_a_queue_and_no_memory_signal);
	tcase_add_test(handles, a_handle_that_knows_nothing);
	tcase_add_test(handles, a_handle_on_a_device_says_what_the_device_says);
	tcase_add_test(handles, work_on_a_device_moves_the_choice);
	suite_add_tcase(s, handles);
	tcase_add_test(pressure, vram_pressure_row_by_row);
	tcase_add_test(pressure, vram_pressure_tight_wont_fit_comfortable);
	tcase_add_test(pressure, an_estimate_is_asked_for_with_its_argument);
	suite_add_tcase(s, pressure);
	tcase_add_test(all, an_empty_set_has_no_choice);
	tcase_add_test(all, without_options_a_ranked_set_gives_its_winner);
	tcase_add_test(all, options_obey_the_size_rules);
	tcase_add_test(all, one_lookup_per_candidate_and_each_handle_is_freed_before_the_next);
	tcase_add_test(all, selectors_describe_themselves_and_call_nothing);
	tcase_add_test(all, a_selector_lives_as_long_as_its_last_reference);
	suite_add_tcase(s, all);
	tcase_add_test(load, load_tiers_row_by_row);
	tcase_add_test(load, device_load_row_by_row);
	tcase_add_test(load, a_capacity_that_fails_is_read_as_1);
	suite_add_tcase(s, load);
	tcase_set_timeout(judge, 30);
	tcase_add_test(judge, judge_aware_row_by_row);
	suite_add_tcase(s, judge);
	tcase_add_test(chained, chained_row_by_row);
	tcase_add_test(chained, rows_named_tight_are_tight);
	suite_add_tcase(s, chained);
	tcase_add_test(why, a_list_of_refusals);
	tcase_add_test(why, what_a_selector_does_not_look_at_is_said);
	tcase_add_test(why, when_nothing_fits_the_list_says_so);
	suite_add_tcase(s, why);
	tcase_add_test(turns, ties_go_to_the_first_unless_asked_otherwise);
	tcase_add_test(turns, a_thousand_picks_over_two_idle_devices_are_500_each);
	tcase_add_test(turns, only_candidates_with_the_best_key_take_turns);
	tcase_add_test(turns, sets_used_alternately_do_not_take_each_others_turns);
	tcase_add_test(turns, the_winner_does_not_take_turns);
	suite_add_tcase(s, turns);
	tcase_set_timeout(many, 300);
	tcase_add_test(many, random_sets_agree_with_the_model);
	tcase_add_test(many, eight_threads_in_turn_come_out_even);
	tcase_add_test(many, measuring_and_selecting_at_once);
	suite_add_tcase(s, many);
	return s;
}

PINION_TEST_MAIN(suite)
