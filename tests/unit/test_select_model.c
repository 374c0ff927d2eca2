/* SPDX-License-Identifier: MIT */
/* All selectors against a model of the contract's key, over random sets. */
#include "select_world.h"

static uint64_t state = 0x2545f4914f6cdd1d;

static uint64_t below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

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

static void check_selector(const struct model *m, const struct pinion_set *set, enum kind kind, const struct pinion_judge *judge)
{
	struct pinion_selector_opts opts = { .lookup = lookup, .lookup_arg = m->world, .judge = m->judge ? judge : NULL };
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

static Suite *suite(void)
{
	Suite *s = suite_create("select model");
	TCase *c = tcase_create("model");

	tcase_set_timeout(c, 300);
	tcase_add_test(c, random_sets_agree_with_the_model);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
