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
static inline enum pinion_load tier(uint32_t pending, uint32_t capacity)
{
	if (!pending)
		return PINION_LOAD_IDLE;
	if (pending >= capacity)
		return PINION_LOAD_SATURATED;
	return (uint64_t)pending * 4 < capacity ? PINION_LOAD_IDLE : PINION_LOAD_MODERATE;
}

PINION_API enum pinion_load pinion_load_tier(uint32_t pending, uint32_t capacity)
{
	return tier(pending, capacity);
}

/*
 * Selecting is made twice of the same parts, with rows and without; who does not see the rows should not pay for them.
 * The compiler would not inline by itself what is used twice.
 */
#define INLINE inline __attribute__((always_inline))

/* ---- one candidate ----------------------------------------------------------------------------------------------- */

static INLINE struct pinion_runtime *look_up(const struct pinion_selector *s, const struct pinion_candidate *c,
					     struct pinion_verdict *row)
{
	struct pinion_runtime *rt = NULL;

	row->looked_up = s->opts.lookup && s->legs & (LEG_FIT | LEG_LOAD);
	if (row->looked_up)
		rt = s->opts.lookup(s->opts.lookup_arg, c->backend, c->device);
	row->has_handle = rt;
	return rt;
}

static INLINE uint64_t estimate(const struct pinion_selector *s, const struct pinion_candidate *c)
{
	return s->opts.estimate ? s->opts.estimate(s->opts.estimate_arg, c) : c->static_cost.bytes_moved;
}

/* Past the wrappers, which would write a sentence for a tier that is not there. */
static INLINE void weigh_load(struct pinion_runtime *rt, struct pinion_verdict *row)
{
	const struct pinion_runtime_ops *ops = rt->ops;
	uint32_t pending, capacity;

	if (!ops->pending || ops->pending(rt, &pending))
		return;
	if (!ops->capacity || ops->capacity(rt, &capacity))
		capacity = 1;
	row->has_load = true;
	row->pending = pending;
	row->capacity = capacity;
	row->load = tier(pending, capacity);
}

static INLINE void weigh_ns(const struct pinion_selector *s, const struct pinion_set *set, const struct entry *e,
			    struct pinion_verdict *row)
{
	uint64_t ns = e->cost_ns;

	if (s->opts.judge && set->has_task)
		row->measured = judge_ns(s->opts.judge, &set->task, e, &ns);
	row->ns = add_saturating(ns, e->candidate.inbound_transfer_ns);
}

/*
 * Everything that the selector's key is made of, from one lookup. What does not fit needs no more of it. No callback is
 * given a pointer into the row, so that where nobody sees the rows the compiler keeps the key alone, in registers.
 */
static INLINE struct pinion_verdict weigh(const struct pinion_selector *s, const struct pinion_set *set, size_t i, bool explain)
{
	const struct entry *e = &set->entries[i];
	struct pinion_verdict row = { 0 };
	struct pinion_runtime *rt;
	uint64_t available;

	if (s->legs & LEG_FIT)
		row.need = estimate(s, &e->candidate);
	rt = look_up(s, &e->candidate, &row);
	if (rt && s->legs & LEG_FIT)
		row.fit = runtime_would_fit(rt, row.need);
	if (rt && explain && rt->ops->available && !rt->ops->available(rt, &available)) {
		row.has_available = true;
		row.available = available;
	}
	if (row.fit != PINION_FIT_NO) {
		if (rt && s->legs & LEG_LOAD)
			weigh_load(rt, &row);
		if (s->legs & LEG_NS)
			weigh_ns(s, set, e, &row);
	}
	if (rt)
		runtime_free(rt);
	return row;
}

/* ---- between candidates ------------------------------------------------------------------------------------------ */

/* The lowest is the best. */
struct key {
	unsigned int rank; /* tightness before load */
	uint64_t ns;
};

#define RANK_TIGHT 4u

static inline struct key key_of(const struct pinion_verdict *row)
{
	return (struct key){ (row->fit == PINION_FIT_TIGHT ? RANK_TIGHT : 0) + (unsigned int)row->load, row->ns };
}

/* Why @a is behind @b: the first part that differs. CHOSEN: it is before it. */
static inline enum pinion_reason behind(struct key a, struct key b)
{
	if (a.rank != b.rank) {
		if (a.rank < b.rank)
			return PINION_REASON_CHOSEN;
		return (a.rank ^ b.rank) & RANK_TIGHT ? PINION_REASON_TIGHT : PINION_REASON_LOADED;
	}
	if (a.ns != b.ns)
		return a.ns > b.ns ? PINION_REASON_SLOWER : PINION_REASON_CHOSEN;
	return PINION_REASON_TIED;
}

/* The best so far. */
struct race {
	struct key best;
	bool any;     /* else nothing fits */
	size_t first; /* of those that tie */
};

/* Those that tie are noted where they take turns; @ties is NULL where not. */
static INLINE void enter(struct race *r, struct ties *ties, size_t i, struct key key)
{
	enum pinion_reason reason = r->any ? behind(key, r->best) : PINION_REASON_CHOSEN;

	if (reason == PINION_REASON_CHOSEN) {
		*r = (struct race){ .best = key, .any = true, .first = i };
		if (ties)
			ties_replace(ties, i);
	} else if (ties && reason == PINION_REASON_TIED) {
		ties_add(ties, i);
	}
}

/* Whether nothing that comes later can be better: no part of the key is above its least, and what ties has no turn. */
static INLINE bool is_decided(const struct pinion_selector *s, const struct race *r)
{
	return r->any && !r->best.rank && !(s->legs & LEG_NS) && !s->opts.rotate;
}

/*
 * The choice, and its key; the first @n candidates' rows, unless @rows is NULL. Who asks for rows wants to see every
 * candidate. The race is apart from the ties, whose address is given away: it stays in registers.
 */
static INLINE size_t choose(struct pinion_selector *s, const struct pinion_set *set, struct key *best,
			    struct pinion_verdict *rows, size_t n)
{
	bool turns = s->opts.rotate && s->legs;
	struct race race = { .any = false };
	struct ties ties;

	ties.count = 0;
	for (size_t i = 0; i < set->size; i++) {
		struct pinion_verdict row = weigh(s, set, i, rows);

		if (row.fit != PINION_FIT_NO)
			enter(&race, turns ? &ties : NULL, i, key_of(&row));
		if (i < n)
			rows[i] = row;
		if (!rows && is_decided(s, &race))
			break;
	}
	*best = race.best;
	return ties.count > 1 ? ties_turn(&ties, s, set) : race.first;
}

static int fail_empty(void)
{
	return fail(ENOENT, "the set has no candidate to select");
}

PINION_API int pinion_select(struct pinion_selector *selector, const struct pinion_set *set, size_t *index)
{
	struct key best;

	if (!set->size)
		return fail_empty();
	*index = choose(selector, set, &best, NULL, 0);
	return 0;
}

static enum pinion_reason reason_of(const struct pinion_selector *s, const struct pinion_verdict *row, struct key best)
{
	if (!s->legs)
		return PINION_REASON_UNSEEN;
	return row->fit == PINION_FIT_NO ? PINION_REASON_NO_FIT : behind(key_of(row), best);
}

PINION_API int pinion_select_explain(struct pinion_selector *selector, const struct pinion_set *set, size_t *index,
				     struct pinion_verdict *rows, size_t n)
{
	struct key best;

	if (!set->size)
		return fail_empty();
	*index = choose(selector, set, &best, rows, n);
	for (size_t i = 0; i < n && i < set->size; i++)
		rows[i].reason = i == *index ? PINION_REASON_CHOSEN : reason_of(selector, &rows[i], best);
	return 0;
}
