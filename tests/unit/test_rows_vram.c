/* SPDX-License-Identifier: MIT */
/*
 * Contract 1.7, each row with the fit that it is about: the original names rows after a fit and asserts the choice
 * alone, which comes out the same for another fit.
 */
#include "harness.h"

#include <errno.h>
#include <pinion/context.h>
#include <pinion/select.h>
#include <pthread.h>
#include <stdatomic.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MOST	     4
#define NONE	     SIZE_MAX

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* What the lookup has for a candidate's device: a handle with these figures, one that cannot measure, or none. */
enum answer { FIGURES, MUTE, NO_HANDLE };

struct signal {
	enum answer answer;
	uint64_t available, total;
};

/* Devices are the candidates', one each. What is called is written down in order, and what was taken is given back. */
struct world {
	struct signal at[MOST];
	char log[64];
	atomic_int handles;
	atomic_uint lookups;
	bool silent; /* no log: several threads */
};

struct handle {
	struct pinion_runtime runtime;
	struct world *world;
	uint32_t device;
};

static void note(struct world *w, char what, uint32_t device)
{
	size_t at = strlen(w->log);

	if (!w->silent)
		snprintf(w->log + at, sizeof(w->log) - at, "%s%c%u", at ? " " : "", what, device);
}

static int handle_available(struct pinion_runtime *rt, uint64_t *bytes)
{
	const struct handle *h = (const struct handle *)rt;
	const struct signal *s = &h->world->at[h->device];

	note(h->world, 'f', h->device);
	if (s->answer != FIGURES)
		return -ENODATA;
	*bytes = s->available;
	return 0;
}

static int handle_total(struct pinion_runtime *rt, uint64_t *bytes)
{
	const struct handle *h = (const struct handle *)rt;
	const struct signal *s = &h->world->at[h->device];

	if (s->answer != FIGURES)
		return -ENODATA;
	*bytes = s->total;
	return 0;
}

static void handle_free(struct pinion_runtime *rt)
{
	struct handle *h = (struct handle *)rt;

	note(h->world, 'd', h->device);
	atomic_fetch_sub(&h->world->handles, 1);
	free(h);
}

static const struct pinion_runtime_ops handle_ops = {
	.available = handle_available,
	.total = handle_total,
	.free = handle_free,
};

static struct pinion_runtime *look_up(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	struct world *w = arg;
	struct handle *h;

	(void)backend;
	note(w, 'l', device.index);
	atomic_fetch_add(&w->lookups, 1);
	if (w->at[device.index].answer == NO_HANDLE)
		return NULL;
	h = calloc(1, sizeof(*h));
	*h = (struct handle){ .runtime.ops = &handle_ops, .world = w, .device = device.index };
	atomic_fetch_add(&w->handles, 1);
	return &h->runtime;
}

/* The candidate's place is its device's index. */
static uint64_t ten(void *arg, const struct pinion_candidate *c)
{
	note(arg, 'e', c->device.index);
	return 10;
}

/* flops = bytes_moved, no overhead, no transfer; candidate 0 is on CUDA, the last on the CPU, others on Vulkan. */
static struct pinion_set *set_of(const uint64_t *bytes, uint32_t n)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_new(&set));
	for (uint32_t i = 0; i < n; i++) {
		enum pinion_backend_id kind = !i ? PINION_BACKEND_CUDA : i == n - 1 ? PINION_BACKEND_CPU : PINION_BACKEND_VULKAN;
		struct pinion_candidate c = { .backend = kind,
					      .device = { kind, i },
					      .static_cost = { .flops = bytes[i], .bytes_moved = bytes[i] } };

		ck_ok(pinion_set_push(set, &c));
	}
	return set;
}

/* One of the two constructors: both callbacks, or the lookup and the default estimator. */
static struct pinion_selector *selector_of(struct world *w, bool custom)
{
	struct pinion_selector_opts opts = { .size = sizeof(opts), .lookup = look_up, .lookup_arg = w };
	struct pinion_selector *selector = NULL;

	if (custom) {
		opts.estimate = ten;
		opts.estimate_arg = w;
	}
	ck_ok(pinion_selector_vram_pressure(&opts, &selector));
	return selector;
}

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

#define OF(available, total)                  \
	{                                     \
		FIGURES, (available), (total) \
	}
#define UNMEASURED         \
	{                  \
		MUTE, 0, 0 \
	}
#define ABSENT                  \
	{                       \
		NO_HANDLE, 0, 0 \
	}
#define GOOD  PINION_FIT_COMFORTABLE
#define TIGHT PINION_FIT_TIGHT
#define WONT  PINION_FIT_NO
#define WHO   PINION_FIT_UNKNOWN

static const struct {
	const char *name;
	uint32_t n;
	uint64_t bytes[MOST];
	struct signal at[MOST];
	bool custom; /* 10 bytes for any candidate */
	enum pinion_fit fit[MOST];
	size_t pick;
} rows[] = {
	/* the source's tests */
	{ "all comfortable", 2, { 100, 200 }, { OF(1000000, 2000000), OF(1000000, 2000000) }, false, { GOOD, GOOD }, 0 },
	{ "won't fit skipped", 2, { 1000, 1000 }, { OF(500, 10000), OF(8000, 10000) }, false, { WONT, GOOD }, 1 },
	{ "tight demoted", 2, { 100, 100 }, { OF(100, 100), OF(10000, 10000) }, false, { TIGHT, GOOD }, 1 },
	{ "all won't fit", 2, { 1000, 1000 }, { OF(1, 10000), OF(1, 10000) }, false, { WONT, WONT }, 0 },
	{ "unknown = comfortable", 2, { 100, 100 }, { ABSENT, OF(10000, 10000) }, false, { WHO, GOOD }, 0 },
	{ "custom estimator", 2, { 100, 100 }, { OF(50, 1000), OF(50, 1000) }, true, { TIGHT, TIGHT }, 0 },
	{ "same, default estimator", 2, { 100, 100 }, { OF(50, 1000), OF(50, 1000) }, false, { WONT, WONT }, 0 },
	/* What "custom estimator" says it tests: both comfortable, where the default has another choice. */
	{ "custom, comfortable", 2, { 600, 100 }, { OF(500, 1000), OF(500, 1000) }, true, { GOOD, GOOD }, 0 },
	{ "same, default", 2, { 600, 100 }, { OF(500, 1000), OF(500, 1000) }, false, { WONT, GOOD }, 1 },
	{ "custom, tight and comfortable", 2, { 0, 0 }, { OF(150, 1000), OF(500, 1000) }, true, { TIGHT, GOOD }, 1 },
	{ "same, default just fits", 2, { 0, 0 }, { OF(150, 1000), OF(500, 1000) }, false, { GOOD, GOOD }, 0 },
	/* [D] */
	{ "tight, unknown", 2, { 100, 100 }, { OF(100, 100), ABSENT }, false, { TIGHT, WHO }, 1 },
	{ "tight, unmeasured", 2, { 100, 100 }, { OF(100, 100), UNMEASURED }, false, { TIGHT, WHO }, 1 },
	{ "tight, tight", 2, { 100, 100 }, { OF(100, 100), OF(100, 100) }, false, { TIGHT, TIGHT }, 0 },
	{ "won't fit, tight", 2, { 100, 100 }, { OF(99, 10000), OF(100, 10000) }, false, { WONT, TIGHT }, 1 },
	{ "tight, won't fit, comfortable",
	  3,
	  { 100, 100, 100 },
	  { OF(100, 100), OF(99, 10000), OF(10000, 10000) },
	  false,
	  { TIGHT, WONT, GOOD },
	  2 },
	/* Only a strictly lower score replaces: 1 + 0 + 0 + 0, 1 + 1 + 0, and a winner that is never replaced. */
	{ "the first of the lowest",
	  4,
	  { 100, 100, 100, 100 },
	  { OF(100, 100), UNMEASURED, OF(10000, 10000), ABSENT },
	  false,
	  { TIGHT, WHO, GOOD, WHO },
	  1 },
	{ "the last is the lowest",
	  4,
	  { 100, 100, 100, 100 },
	  { OF(99, 100), OF(100, 100), OF(100, 100), OF(10000, 10000) },
	  false,
	  { WONT, TIGHT, TIGHT, GOOD },
	  3 },
	{ "tight is better than nothing",
	  3,
	  { 100, 100, 100 },
	  { OF(99, 100), OF(99, 100), OF(100, 100) },
	  false,
	  { WONT, WONT, TIGHT },
	  2 },
	{ "four won't fit", 4, { 4, 3, 2, 1 }, { OF(0, 9), OF(0, 9), OF(0, 9), OF(0, 0) }, false, { WONT, WONT, WONT, WONT }, 0 },
	{ "one won't fit", 1, { 100 }, { OF(0, 9) }, false, { WONT }, 0 },
	{ "one unknown", 1, { UINT64_MAX }, { ABSENT }, false, { WHO }, 0 },
};

START_TEST(rows_by_fit_and_choice)
{
	struct world w = { 0 };
	struct pinion_selector *selector = selector_of(&w, rows[_i].custom);
	struct pinion_set *set = set_of(rows[_i].bytes, rows[_i].n);
	struct pinion_verdict v[MOST];
	size_t index = NONE, again = NONE;

	memcpy(w.at, rows[_i].at, sizeof(w.at));
	ck_ok(pinion_select_explain(selector, set, &index, v, MOST));
	ck_assert_msg(index == rows[_i].pick, "%s: %zu", rows[_i].name, index);
	for (uint32_t i = 0; i < rows[_i].n; i++) {
		ck_assert_msg(v[i].fit == rows[_i].fit[i], "%s, candidate %u: %s", rows[_i].name, i, pinion_fit_name(v[i].fit));
		ck_assert_uint_eq(v[i].need, rows[_i].custom ? 10 : rows[_i].bytes[i]);
	}
	ck_ok(pinion_select(selector, set, &again));
	ck_assert_uint_eq(again, index);
	ck_assert_int_eq(atomic_load(&w.handles), 0);
	pinion_selector_unref(selector);
	pinion_set_free(set);
}
END_TEST

START_TEST(an_empty_set_has_no_choice_and_asks_nobody)
{
	struct world w = { 0 };
	struct pinion_selector *selector = selector_of(&w, true);
	struct pinion_set *set = set_of(NULL, 0);
	size_t index = NONE;

	ck_assert_int_eq(pinion_select(selector, set, &index), -ENOENT);
	ck_assert_uint_eq(index, NONE);
	ck_assert_str_eq(w.log, "");
	pinion_selector_unref(selector);
	pinion_set_free(set);
}
END_TEST

/* Estimate, look up, fit, and the handle is gone before the next candidate: once each, in the order of the set. */
START_TEST(what_is_asked_of_each_candidate_and_when)
{
	static const uint64_t bytes[] = { 1, 1, 1 };
	struct world w = { .at = { OF(10, 10), ABSENT, OF(9, 10) } };
	struct pinion_selector *selector = selector_of(&w, true);
	struct pinion_set *set = set_of(bytes, 3);
	size_t index = NONE;

	ck_ok(pinion_select(selector, set, &index));
	ck_assert_uint_eq(index, 1);
	/* Nothing that comes after an unknown can be better, so that asking it is left out. */
	if (strcmp(w.log, "e0 l0 f0 d0 e1 l1"))
		ck_assert_str_eq(w.log, "e0 l0 f0 d0 e1 l1 e2 l2 f2 d2");
	w.log[0] = 0;
	w.at[1] = (struct signal)OF(9, 10);
	ck_ok(pinion_select(selector, set, &index));
	ck_assert_uint_eq(index, 0);
	ck_assert_str_eq(w.log, "e0 l0 f0 d0 e1 l1 f1 d1 e2 l2 f2 d2");
	pinion_selector_unref(selector);
	pinion_set_free(set);
}
END_TEST

START_TEST(the_text_names_the_type_and_a_placeholder_for_each_callback)
{
	struct world w = { .at = { ABSENT, ABSENT } };
	struct pinion_selector *both = selector_of(&w, true), *plain = selector_of(&w, false);
	char text[200];

	pinion_selector_describe(both, text, sizeof(text));
	ck_assert_str_eq(text, "VramPressureSelector { lookup: <callback>, estimate: <callback>, ties: the first }");
	pinion_selector_describe(plain, text, sizeof(text));
	ck_assert_str_eq(text, "VramPressureSelector { lookup: <callback>, estimate: <default>, ties: the first }");
	ck_assert_str_eq(w.log, "");
	ck_assert_uint_eq(atomic_load(&w.lookups), 0);
	pinion_selector_unref(both);
	pinion_selector_unref(plain);
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

#define THREADS 4
#define PICKS	20000

struct crew {
	struct pinion_selector *selector;
	const struct pinion_set *set;
	atomic_uint wrong;
};

/* With a reference of its own, which shares the callbacks. */
static void *select_many(void *arg)
{
	struct crew *crew = arg;
	struct pinion_selector *own = pinion_selector_ref(crew->selector);
	size_t index;

	for (int i = 0; i < PICKS; i++)
		if (pinion_select(own, crew->set, &index) || index != 2)
			atomic_fetch_add(&crew->wrong, 1);
	pinion_selector_unref(own);
	return NULL;
}

START_TEST(threads_share_a_selector_and_its_callbacks)
{
	static const uint64_t bytes[] = { 100, 100, 100 };
	struct world w = { .at = { OF(100, 100), OF(99, 100), OF(1000, 1000) }, .silent = true };
	struct pinion_set *set = set_of(bytes, 3);
	struct crew crew = { .selector = selector_of(&w, false), .set = set };
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, select_many, &crew), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	ck_assert_uint_eq(atomic_load(&crew.wrong), 0);
	ck_assert_uint_eq(atomic_load(&w.lookups), 3 * THREADS * PICKS);
	ck_assert_int_eq(atomic_load(&w.handles), 0);
	pinion_selector_unref(crew.selector);
	pinion_set_free(set);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_vram");
	TCase *pressure = tcase_create("pressure"), *many = tcase_create("many");

	tcase_add_loop_test(pressure, rows_by_fit_and_choice, 0, COUNT(rows));
	tcase_add_test(pressure, an_empty_set_has_no_choice_and_asks_nobody);
	tcase_add_test(pressure, what_is_asked_of_each_candidate_and_when);
	tcase_add_test(pressure, the_text_names_the_type_and_a_placeholder_for_each_callback);
	suite_add_tcase(s, pressure);
	tcase_set_timeout(many, 60);
	tcase_add_test(many, threads_share_a_selector_and_its_callbacks);
	suite_add_tcase(s, many);
	return s;
}

PINION_TEST_MAIN(suite)
