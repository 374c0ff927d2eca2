/* SPDX-License-Identifier: MIT */
/* Selecting from many threads, and while others measure. */
#include "select_world.h"

#include <pthread.h>

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
		w.at[PINION_BACKEND_CUDA][i] = (struct signals)QUEUE(i == 7 ? 1 : 9000, 9000, i % 4 == 1 || i % 4 == 2, 1);
	}
	w.at[PINION_BACKEND_CUDA][2].pending = w.at[PINION_BACKEND_CUDA][5].pending = 0;
	w.at[PINION_BACKEND_CUDA][4].pending = 1;
	crew.set = set_of(list, 8, true);
	run(&crew, select_many, THREADS);
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(atomic_load(&crew.count[i]), i == 0 || i == 2 || i == 3 || i == 5 ? THREADS * PICKS / 4 : 0);
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
			    pinion_judge_get(crew->judge, &task, PINION_BACKEND_CUDA, "", &m) || m.error != (double)m.ns)
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
	Suite *s = suite_create("select threads");
	TCase *c = tcase_create("threads");

	tcase_set_timeout(c, 300);
	tcase_add_test(c, eight_threads_in_turn_come_out_even);
	tcase_add_test(c, measuring_and_selecting_at_once);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
