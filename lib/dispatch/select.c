/* SPDX-License-Identifier: MIT */
#include "select.h"
#include "../error.h"

#include <errno.h>

PINION_API uint64_t pinion_estimate_default(void *arg, const struct pinion_candidate *candidate)
{
	(void)arg;
	return candidate->static_cost.bytes_moved;
}

/* A capacity of 0 is read as 1 without a case of its own: any unit saturates either. */
PINION_API enum pinion_load pinion_load_tier(uint32_t pending, uint32_t capacity)
{
	if (!pending)
		return PINION_LOAD_IDLE;
	if (pending >= capacity)
		return PINION_LOAD_SATURATED;
	return (uint64_t)pending * 4 < capacity ? PINION_LOAD_IDLE : PINION_LOAD_MODERATE;
}

/* ---- one candidate ----------------------------------------------------------------------------------------------- */

static struct pinion_runtime *look_up(const struct pinion_selector *s, const struct pinion_candidate *c,
				      struct pinion_verdict *row)
{
	struct pinion_runtime *rt = NULL;

	row->looked_up = s->opts.lookup && s->legs & (LEG_FIT | LEG_LOAD);
	if (row->looked_up)
		rt = s->opts.lookup(s->opts.lookup_arg, c->backend, c->device);
	row->has_handle = rt;
	return rt;
}

/* Past the wrappers, which would write a sentence for a tier that is not there. */
static void weigh_load(struct pinion_runtime *rt, struct pinion_verdict *row)
{
	const struct pinion_runtime_ops *ops = rt->ops;

	if (!ops->pending || ops->pending(rt, &row->pending))
		return;
	if (!ops->capacity || ops->capacity(rt, &row->capacity))
		row->capacity = 1;
	row->has_load = true;
	row->load = pinion_load_tier(row->pending, row->capacity);
}

static void weigh_ns(const struct pinion_selector *s, const struct pinion_set *set, const struct entry *e,
		     struct pinion_verdict *row)
{
	row->ns = e->cost_ns;
	if (s->opts.judge && set->has_task)
		row->measured = judge_ns(s->opts.judge, &set->task, e, &row->ns);
	row->ns = add_saturating(row->ns, e->candidate.inbound_transfer_ns);
}

/* Everything that the selector's key is made of, from one lookup. What does not fit needs no more of it. */
static void weigh(const struct pinion_selector *s, const struct pinion_set *set, size_t i, bool explain,
		  struct pinion_verdict *row)
{
	const struct entry *e = &set->entries[i];
	struct pinion_runtime *rt;

	*row = (struct pinion_verdict){ 0 };
	if (s->legs & LEG_FIT)
		row->need = s->opts.estimate(s->opts.estimate_arg, &e->candidate);
	rt = look_up(s, &e->candidate, row);
	if (rt && s->legs & LEG_FIT)
		row->fit = pinion_runtime_would_fit(rt, row->need);
	if (rt && explain)
		row->has_available = rt->ops->available && !rt->ops->available(rt, &row->available);
	if (row->fit != PINION_FIT_NO) {
		if (rt && s->legs & LEG_LOAD)
			weigh_load(rt, row);
		if (s->legs & LEG_NS)
			weigh_ns(s, set, e, row);
	}
	pinion_runtime_free(rt);
}

/* ---- between candidates ------------------------------------------------------------------------------------------ */

/* Why @a is behind @b: the first part of their keys that differs. CHOSEN: it is before it. */
static enum pinion_reason behind(const struct pinion_verdict *a, const struct pinion_verdict *b)
{
	bool a_tight = a->fit == PINION_FIT_TIGHT, b_tight = b->fit == PINION_FIT_TIGHT;

	if (a_tight != b_tight)
		return a_tight ? PINION_REASON_TIGHT : PINION_REASON_CHOSEN;
	if (a->load != b->load)
		return a->load > b->load ? PINION_REASON_LOADED : PINION_REASON_CHOSEN;
	if (a->ns != b->ns)
		return a->ns > b->ns ? PINION_REASON_SLOWER : PINION_REASON_CHOSEN;
	return PINION_REASON_TIED;
}

/* The best so far. */
struct race {
	struct pinion_verdict best;
	size_t first;	  /* of those that tie */
	struct ties ties; /* none: nothing fits */
};

static void enter(struct race *r, size_t i, const struct pinion_verdict *row)
{
	enum pinion_reason reason;

	if (row->fit == PINION_FIT_NO)
		return;
	reason = r->ties.count ? behind(row, &r->best) : PINION_REASON_CHOSEN;
	if (reason == PINION_REASON_TIED) {
		ties_add(&r->ties, i);
	} else if (reason == PINION_REASON_CHOSEN) {
		r->best = *row;
		r->first = i;
		ties_replace(&r->ties, i);
	}
}

/* Whether nothing that comes later can be better: no part of the key is above its least, and what ties has no turn. */
static bool is_decided(const struct pinion_selector *s, const struct pinion_verdict *row)
{
	return !s->opts.rotate && !(s->legs & LEG_NS) && row->fit != PINION_FIT_NO && row->fit != PINION_FIT_TIGHT &&
	       row->load == PINION_LOAD_IDLE;
}

/* The choice; the first @n candidates' rows, unless @rows is NULL. Who asks for rows wants to see every candidate. */
static size_t choose(struct pinion_selector *s, const struct pinion_set *set, struct race *race,
		     struct pinion_verdict *rows, size_t n)
{
	struct pinion_verdict row;

	race->first = 0;
	race->ties.count = 0;
	for (size_t i = 0; i < set->size; i++) {
		weigh(s, set, i, rows, &row);
		enter(race, i, &row);
		if (i < n)
			rows[i] = row;
		if (!rows && is_decided(s, &row))
			break;
	}
	if (s->opts.rotate && s->legs && race->ties.count > 1)
		return ties_turn(&race->ties, s, set);
	return race->first;
}

static int fail_empty(void)
{
	return fail(ENOENT, "the set has no candidate to select");
}

PINION_API int pinion_select(struct pinion_selector *selector, const struct pinion_set *set, size_t *index)
{
	struct race race;

	if (!set->size)
		return fail_empty();
	*index = choose(selector, set, &race, NULL, 0);
	return 0;
}

static enum pinion_reason reason_of(const struct pinion_selector *s, const struct pinion_verdict *row,
				    const struct pinion_verdict *chosen)
{
	if (!s->legs)
		return PINION_REASON_UNSEEN;
	return row->fit == PINION_FIT_NO ? PINION_REASON_NO_FIT : behind(row, chosen);
}

PINION_API int pinion_select_explain(struct pinion_selector *selector, const struct pinion_set *set, size_t *index,
				     struct pinion_verdict *rows, size_t n)
{
	struct race race;

	if (!set->size)
		return fail_empty();
	*index = choose(selector, set, &race, rows, n);
	for (size_t i = 0; i < n && i < set->size; i++)
		rows[i].reason = i == *index ? PINION_REASON_CHOSEN : reason_of(selector, &rows[i], &race.best);
	return 0;
}
