/* SPDX-License-Identifier: MIT */
/* Contract 1.4 to 1.6 and 5.5: handles, what they answer, and those on a device. */
#include "select_world.h"

#include "dispatch/device.h"

#include <pinion/device.h>
#include <pinion/work.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

static unsigned int asked;

static enum pinion_fit count_fit(const struct backend_device *of, uint64_t bytes)
{
	(void)of;
	asked++;
	return bytes > 1000 ? PINION_FIT_NO : PINION_FIT_COMFORTABLE;
}

START_TEST(a_device_is_asked_for_room_where_that_counts_and_once)
{
	static const struct {
		enum kind kind;
		unsigned int asked;
	} rows[] = { { LOAD, 0 }, { PRESSURE, 1 }, { CHAINED, 1 } };
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 2 };
	struct pinion_selector_opts selector_opts = { .lookup = lend };
	struct pinion_set *set = pair(3000, 200);
	struct pinion_device_runtime room;
	struct pinion_context *ctx = NULL;
	struct pinion_device *dev = NULL;
	struct backend_device predicts;
	struct pinion_selector *s;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "select-asked", &opts, &dev));
	predicts = *dev->backend;
	predicts.ops.would_fit = count_fit;
	dev->backend = &predicts;
	selector_opts.lookup_arg = pinion_runtime_of_device(dev, &room);
	for (size_t i = 0; i < COUNT(rows); i++) {
		s = selector(rows[i].kind, &selector_opts);
		asked = 0;
		pick(s, set);
		ck_assert_msg(asked == rows[i].asked, "row %zu: asked %u times", i, asked);
		pinion_selector_unref(s);
	}
	pinion_set_free(set);
	pinion_close(ctx);
}
END_TEST

/* ---- many at once ------------------------------------------------------------------------------------------------ */

#define MANY	  29 /* candidates: more than are read in one go, and no multiple of it */
#define OWN	  11 /* devices added by key */
#define CONTEXTS  5  /* all but the last count in one file */
#define ELSEWHERE (CONTEXTS - 1)

/* Devices of contexts in two runtime directories, one that was removed, a synchronous one, the program's own handle, and no
 * handle. */
struct crowd {
	struct pinion_context *ctx[CONTEXTS];
	struct pinion_device *dev[CONTEXTS][OWN], *cpu;
	struct pinion_device_runtime room; /* of whichever was looked up last */
	struct world own;
	uint32_t units[2][OWN]; /* in flight, as the test began them; those elsewhere apart */
	unsigned int lookups;
};

enum sort { QUEUED, QUEUED_ELSEWHERE, REMOVED, SYNCHRONOUS, PROGRAMS, NOTHING, SORTS };

static enum sort sort_of(uint32_t index)
{
	static const enum sort of[MANY] = { [3] = SYNCHRONOUS, [7] = NOTHING,  [8] = PROGRAMS, [12] = QUEUED_ELSEWHERE,
					    [17] = REMOVED,    [18] = REMOVED, [28] = PROGRAMS };

	return of[index];
}

/* Each lookup makes its handle where the last one was: nothing may be asked of that any more. */
static struct pinion_runtime *look_up_in_crowd(void *arg, enum pinion_backend_id backend, struct pinion_location at)
{
	static const struct pinion_location programs = { PINION_BACKEND_CUDA, 0 };
	struct crowd *c = arg;

	c->lookups++;
	switch (sort_of(at.index)) {
	case QUEUED:
		return pinion_runtime_of_device(c->dev[0][at.index % (OWN - 1)], &c->room);
	case QUEUED_ELSEWHERE:
		return pinion_runtime_of_device(c->dev[ELSEWHERE][at.index % (OWN - 1)], &c->room);
	case REMOVED: {
		/* As one that was made before the device went. */
		struct pinion_runtime *rt = pinion_runtime_of_device(c->dev[0][0], &c->room);

		c->room.device = c->dev[0][OWN - 1];
		return rt;
	}
	case SYNCHRONOUS:
		return pinion_runtime_of_device(c->cpu, &c->room);
	case PROGRAMS:
		return lookup(&c->own, backend, programs);
	default:
		return NULL;
	}
}

static void crowd_open(struct crowd *c)
{
	struct pinion_open_opts elsewhere = { .size = sizeof(elsewhere) };
	char key[24], dir[256];

	snprintf(dir, sizeof(dir), "%s/elsewhere", test_tmp());
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	elsewhere.dir = dir;
	*c = (struct crowd){ .own.at[PINION_BACKEND_CUDA][0] = QUEUE(100, 1000, 1, 2) };
	for (unsigned int s = 0; s < CONTEXTS; s++) {
		ck_ok(pinion_open(s == ELSEWHERE ? &elsewhere : NULL, &c->ctx[s]));
		for (unsigned int d = 0; d < OWN; d++) {
			struct pinion_device_opts opts = { .size = sizeof(opts),
							   .capacity = d % 5,
							   .budget = d % 3 ? 1000 * d : 0 };

			/* On the module a key is the same device whatever directory a context is in. */
			snprintf(key, sizeof(key), "select-%s-%u", s == ELSEWHERE ? "elsewhere" : "crowd", d);
			ck_ok(pinion_device_add(c->ctx[s], key, &opts, &c->dev[s][d]));
		}
	}
	ck_ok(pinion_device_find(c->ctx[0], "cpu", &c->cpu));
	ck_ok(pinion_device_remove(c->dev[0][OWN - 1]));
}

/* What a row says of a queue is what the test did, and of memory what the device says when it is asked alone. */
static void check_row(const struct crowd *c, uint32_t i, const struct pinion_verdict *row, uint64_t need)
{
	unsigned int d = i % (OWN - 1);
	enum sort sort = sort_of(i);
	bool elsewhere = sort == QUEUED_ELSEWHERE;

	ck_assert(row->looked_up && row->has_handle == (sort != NOTHING));
	ck_assert_uint_eq(row->need, need);
	if (sort == REMOVED || sort == NOTHING) {
		ck_assert(row->fit == PINION_FIT_UNKNOWN && !row->has_load && !row->has_available);
	} else if (sort == SYNCHRONOUS) {
		ck_assert(row->fit == pinion_device_would_fit(c->cpu, need) && !row->has_load);
	} else if (sort == PROGRAMS) {
		ck_assert(row->fit == (need > 100 ? PINION_FIT_NO : PINION_FIT_TIGHT) && row->has_load == (need <= 100));
	} else {
		ck_assert_int_eq(row->fit, pinion_device_would_fit(c->dev[elsewhere ? ELSEWHERE : 0][d], need));
		ck_assert(row->has_load == (row->fit != PINION_FIT_NO));
		ck_assert_uint_eq(row->pending, row->has_load ? c->units[elsewhere][d] : 0);
		ck_assert_uint_eq(row->capacity, row->has_load ? d % 5 : 0);
	}
}

static uint64_t state = 1;

static unsigned int below(unsigned int n)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (state >> 33) % n;
}

#define UNITS 24 /* in flight at most */

struct unit {
	struct pinion_ticket ticket;
	bool begun;
	unsigned int on, of; /* device and context */
};

/* Begins or ends a unit, in one of the first @contexts contexts. */
static void move_a_unit(struct crowd *c, struct unit unit[UNITS], unsigned int contexts)
{
	struct unit *u = &unit[below(UNITS)];

	u->begun = !u->begun;
	if (!u->begun) {
		ck_ok(pinion_work_end(&u->ticket));
		c->units[u->of == ELSEWHERE][u->on]--;
	} else {
		u->on = below(OWN - 1);
		u->of = below(contexts);
		ck_ok(pinion_work_begin(c->dev[u->of][u->on], 1, &u->ticket));
		c->units[u->of == ELSEWHERE][u->on]++;
	}
}

static bool is_better(const struct pinion_verdict *a, const struct pinion_verdict *b)
{
	bool a_tight = a->fit == PINION_FIT_TIGHT, b_tight = b->fit == PINION_FIT_TIGHT;

	if (a->fit == PINION_FIT_NO || b->fit == PINION_FIT_NO)
		return a->fit != PINION_FIT_NO;
	if (a_tight != b_tight)
		return b_tight;
	return a->load != b->load ? a->load < b->load : a->ns < b->ns;
}

/* What this thread did, in whichever of the contexts, the very next selection sees. */
START_TEST(many_devices_are_read_at_once_as_each_would_be)
{
	static struct unit unit[UNITS];
	static struct crowd c;
	struct pinion_selector_opts opts = { .lookup = look_up_in_crowd, .lookup_arg = &c };
	struct pinion_selector *s = selector(CHAINED, &opts);
	struct pinion_candidate list[MANY];
	struct pinion_verdict rows[MANY];
	unsigned int taken[MANY] = { 0 }, different = 0;
	struct pinion_set *set;

	crowd_open(&c);
	for (uint32_t i = 0; i < MANY; i++)
		list[i] = candidate(PINION_BACKEND_CUDA, i, 300 * ((i * 7 + 5) % MANY), i % 2 ? 90 : 900 * i);
	set = set_of(list, MANY, true);
	for (unsigned int round = 0; round < 2000; round++) {
		size_t index = NONE, explained = NONE, best = 0;

		/* One context's alone at first, so that devices have one lane each; then several. */
		move_a_unit(&c, unit, round < 500 ? 1 : round < 1000 ? 2 : CONTEXTS);
		c.lookups = 0;
		ck_ok(pinion_select(s, set, &index));
		ck_assert_uint_eq(c.lookups, MANY);
		ck_ok(pinion_select_explain(s, set, &explained, rows, MANY));
		ck_assert_uint_eq(explained, index);
		for (uint32_t i = 0; i < MANY; i++) {
			check_row(&c, i, &rows[i], list[i].static_cost.bytes_moved);
			if (is_better(&rows[i], &rows[best]))
				best = i;
		}
		ck_assert_uint_eq(index, best);
		different += !taken[index]++;
	}
	ck_assert_uint_ge(different, 2);
	pinion_selector_unref(s);
	pinion_set_free(set);
	for (unsigned int i = 0; i < CONTEXTS; i++)
		pinion_close(c.ctx[i]);
	world_end(&c.own);
}
END_TEST

static struct pinion_runtime *look_up_room(void *arg, enum pinion_backend_id backend, struct pinion_location at)
{
	struct pinion_device_runtime *room = arg;

	(void)backend;
	return &room[at.index].runtime;
}

/* Nothing of what is behind them is there in a forked child: not the file that counts are in, for one. */
START_TEST(a_parents_handles_have_no_signal_in_its_child)
{
	struct pinion_device_opts device_opts = { .size = sizeof(device_opts), .capacity = 1, .budget = 100 };
	struct pinion_device_runtime room[2];
	struct pinion_selector_opts opts = { .lookup = look_up_room, .lookup_arg = room };
	struct pinion_selector *s = selector(CHAINED, &opts);
	struct pinion_set *set = twins();
	struct pinion_context *ctx = NULL;
	struct pinion_device *dev[2];
	struct pinion_ticket ticket = { 0 };
	size_t index = NONE;
	int status;
	pid_t pid;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "select-parent-0", &device_opts, &dev[0]));
	device_opts.budget = 100000;
	ck_ok(pinion_device_add(ctx, "select-parent-1", &device_opts, &dev[1]));
	ck_ok(pinion_work_begin(dev[1], 1, &ticket));
	for (int i = 0; i < 2; i++)
		pinion_runtime_of_device(dev[i], &room[i]);
	ck_ok(pinion_select(s, set, &index));
	ck_assert_uint_eq(index, 1);
	pid = fork();
	if (!pid) {
		struct pinion_verdict rows[2];
		bool wrong = pinion_select(s, set, &index) || index || pinion_select_explain(s, set, &index, rows, 2) || index;

		for (int i = 0; i < 2; i++)
			wrong |= rows[i].fit != PINION_FIT_UNKNOWN || rows[i].has_load || !rows[i].has_handle;
		_exit(wrong);
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_ok(pinion_work_end(&ticket));
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
	tcase_add_test(c, a_device_is_asked_for_room_where_that_counts_and_once);
	tcase_add_test(c, many_devices_are_read_at_once_as_each_would_be);
	tcase_add_test(c, a_parents_handles_have_no_signal_in_its_child);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
