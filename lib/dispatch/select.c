/* SPDX-License-Identifier: MIT */
#include "select.h"
#include "../error.h"
#include "device.h"

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

/* ---- some candidates ---------------------------------------------------------------------------------------------- */

/* The part of a key that has to be asked for, tightness before load. */
#define RANK_TIGHT 4u
#define RANK_NO	   UINT32_MAX	 /* it does not fit */
#define RANK_OWN   (RANK_NO - 1) /* it is not asked yet, but put off */

/*
 * Candidates are weighed some at a time: what is known of the devices behind pinion's own handles is then read in one go, which
 * is most of what selecting takes. Each has its own lookup, and its handle is let go before the next one. No count is kept from
 * one selection to the next: what a thread has begun or claimed, its next selection counts. Documentation/counters.md says what
 * bounds the time that takes.
 */
#define BATCH DEVICE_SIGNALS

struct batch {
	uint32_t rank[BATCH];
	struct device_signals own; /* of those that are put off, in their order */
	uint32_t own_capacity[BATCH];
};

/* What a selector asks with, apart from what changes under the callbacks' hands as far as the compiler knows. */
struct asking {
	unsigned int legs;
	struct pinion_runtime *(*lookup)(void *arg, enum pinion_backend_id backend, struct pinion_location device);
	void *lookup_arg;
	uint64_t (*estimate)(void *arg, const struct pinion_candidate *candidate);
	void *estimate_arg;
	const struct pinion_judge *judge;
};

static INLINE struct asking asking_of(const struct pinion_selector *s, unsigned int legs, const struct pinion_set *set)
{
	return (struct asking){
		.legs = legs,
		.lookup = legs & (LEG_FIT | LEG_LOAD) ? s->opts.lookup : NULL,
		.lookup_arg = s->opts.lookup_arg,
		.estimate = s->opts.estimate,
		.estimate_arg = s->opts.estimate_arg,
		.judge = set->has_task ? s->opts.judge : NULL,
	};
}

/* @row is NULL where nobody is to see it. */
static INLINE uint32_t rank_of(enum pinion_fit fit, bool has_load, uint32_t pending, uint32_t capacity,
			       struct pinion_verdict *row)
{
	enum pinion_load load = has_load ? tier(pending, capacity) : PINION_LOAD_IDLE;

	if (row)
		row->fit = fit;
	if (fit == PINION_FIT_NO)
		return RANK_NO;
	if (row && has_load) {
		row->has_load = true;
		row->pending = pending;
		row->capacity = capacity;
		row->load = load;
	}
	return (fit == PINION_FIT_TIGHT ? RANK_TIGHT : 0) + (uint32_t)load;
}

/*
 * A handle of the program's own, or on a device without a queue: asked past the wrappers, which would write a sentence for a tier
 * that is not there. What does not fit needs no more of it.
 */
static INLINE uint32_t ask(unsigned int legs, struct pinion_runtime *rt, uint64_t need, struct pinion_verdict *row)
{
	const struct pinion_runtime_ops *ops = rt->ops;
	enum pinion_fit fit = legs & LEG_FIT ? runtime_would_fit(rt, need) : PINION_FIT_UNKNOWN;
	uint32_t pending = 0, capacity = 1;
	bool has_load = false;

	if (legs & LEG_LOAD && fit != PINION_FIT_NO && ops->pending && !ops->pending(rt, &pending)) {
		has_load = true;
		if (!ops->capacity || ops->capacity(rt, &capacity))
			capacity = 1;
	}
	return rank_of(fit, has_load, pending, capacity, row);
}

/* A handle on a device with a queue is asked with the others, of which there are @own before it. */
static INLINE uint32_t put_off(struct batch *b, size_t own, const struct pinion_device_runtime *room, uint64_t need)
{
	b->own.dev[own] = room->device;
	b->own.bytes[own] = need;
	b->own_capacity[own] = room->capacity;
	return RANK_OWN;
}

static INLINE uint32_t look_at(const struct asking *a, const struct pinion_candidate *c, struct batch *b, size_t own,
			       struct pinion_verdict *row)
{
	uint32_t rank = 0;
	uint64_t need = 0, available;
	struct pinion_runtime *rt;

	if (a->legs & LEG_FIT)
		need = a->estimate ? a->estimate(a->estimate_arg, c) : c->static_cost.bytes_moved;
	rt = a->lookup ? a->lookup(a->lookup_arg, c->backend, c->device) : NULL;
	if (row) {
		*row = (struct pinion_verdict){ .looked_up = a->lookup, .has_handle = rt, .need = need };
		row->has_available = rt && rt->ops->available && !rt->ops->available(rt, &available);
		row->available = row->has_available ? available : 0;
	}
	if (!rt)
		return rank;
	if (__builtin_expect(rt->ops == &runtime_queued, 1))
		return put_off(b, own, (const struct pinion_device_runtime *)rt, need);
	rank = ask(a->legs, rt, need, row);
	runtime_free(rt);
	return rank;
}

static INLINE uint32_t rank_own(const struct batch *b, size_t own, struct pinion_verdict *row)
{
	return rank_of(b->own.fit[own], b->own.has_pending[own], b->own.pending[own], b->own_capacity[own], row);
}

/* Looks the @n candidates from @e on up, and asks all that there is to ask. */
static INLINE void look_up(const struct asking *a, const struct entry *e, size_t n, struct batch *b, struct pinion_verdict *rows)
{
	size_t own = 0;

	for (size_t i = 0; i < n; i++) {
		b->rank[i] = look_at(a, &e[i].candidate, b, own, rows ? &rows[i] : NULL);
		own += b->rank[i] == RANK_OWN;
	}
	b->own.n = own;
	if (own)
		device_signals_ask(&b->own, a->legs & LEG_FIT, a->legs & LEG_LOAD);
}

static INLINE uint64_t weigh_ns(const struct asking *a, const struct pinion_set *set, const struct entry *e,
				struct pinion_verdict *row)
{
	uint64_t ns = e->cost_ns;
	bool measured = a->judge && judge_ns(a->judge, &set->task, e, &ns);

	ns = add_saturating(ns, e->candidate.inbound_transfer_ns);
	if (row) {
		row->measured = measured;
		row->ns = ns;
	}
	return ns;
}

/* ---- between candidates ------------------------------------------------------------------------------------------ */

/* The lowest is the best. */
struct key {
	uint32_t rank;
	uint64_t ns;
};

static inline struct key key_of(const struct pinion_verdict *row)
{
	return (struct key){ (row->fit == PINION_FIT_TIGHT ? RANK_TIGHT : 0) + (uint32_t)row->load, row->ns };
}

static INLINE bool is_lower(struct key a, struct key b)
{
	return a.rank != b.rank ? a.rank < b.rank : a.ns < b.ns;
}

/* Why @a is behind @b, which is the lowest: the first part that differs. */
static inline enum pinion_reason behind(struct key a, struct key b)
{
	if (a.rank != b.rank)
		return (a.rank ^ b.rank) & RANK_TIGHT ? PINION_REASON_TIGHT : PINION_REASON_LOADED;
	return a.ns != b.ns ? PINION_REASON_SLOWER : PINION_REASON_TIED;
}

/* The best so far; its rank is RANK_NO when nothing fits. */
struct race {
	struct key best;
	size_t first; /* of those that tie */
};

/* Those that tie are noted where they take turns; @ties is NULL where not. */
static INLINE void enter(struct race *r, struct ties *ties, size_t i, struct key key)
{
	if (is_lower(key, r->best)) {
		*r = (struct race){ key, i };
		if (ties)
			ties_replace(ties, i);
	} else if (ties && !is_lower(r->best, key)) {
		ties_add(ties, i);
	}
}

/*
 * The choice, and its key; the first @n candidates' rows, unless @rows is NULL. Who asks for rows wants to see every
 * candidate. Where the key has no time in it and what ties has no turn, one can be so good that nothing behind it is looked at:
 * so they are looked at one by one. The race is apart from the ties, whose address is given away: it stays in registers.
 */
static INLINE size_t choose(struct pinion_selector *s, unsigned int legs, bool rotate, const struct pinion_set *set,
			    struct key *best, struct pinion_verdict *rows, size_t n)
{
	bool turns = rotate && legs, stops = !rows && !rotate && !(legs & LEG_NS);
	struct race race = { .best = { RANK_NO, 0 } };
	struct asking a = asking_of(s, legs, set);
	struct pinion_verdict row[BATCH];
	struct ties ties;
	struct batch b;
	size_t m;

	ties.count = 0;
	for (size_t first = 0; first < set->size; first += m) {
		const struct entry *e = &set->entries[first];
		size_t own = 0;

		m = stops ? 1 : set->size - first < BATCH ? set->size - first : BATCH;
		look_up(&a, e, m, &b, rows ? row : NULL);
		for (size_t i = 0; i < m; i++) {
			struct key key = { b.rank[i], 0 };

			if (__builtin_expect(key.rank == RANK_OWN, 1))
				key.rank = rank_own(&b, own++, rows ? &row[i] : NULL);
			if (key.rank == RANK_NO)
				continue;
			if (legs & LEG_NS)
				key.ns = weigh_ns(&a, set, &e[i], rows ? &row[i] : NULL);
			enter(&race, turns ? &ties : NULL, first + i, key);
		}
		for (size_t i = 0; rows && i < m && first + i < n; i++)
			rows[first + i] = row[i];
		if (stops && !race.best.rank)
			break;
	}
	*best = race.best;
	return ties.count > 1 ? ties_turn(&ties, s, set) : race.first;
}

static int fail_empty(void)
{
	return fail(ENOENT, "the set has no candidate to select");
}

PINION_API COUNTER_HOT int pinion_select(struct pinion_selector *selector, const struct pinion_set *set, size_t *index)
{
	struct key best;

	if (!set->size)
		return fail_empty();
	/* The one for production apart, so that what a selector does is not asked again for each candidate. */
	if (selector->legs == LEG_ALL && !selector->opts.rotate)
		*index = choose(selector, LEG_ALL, false, set, &best, NULL, 0);
	else
		*index = choose(selector, selector->legs, selector->opts.rotate, set, &best, NULL, 0);
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
	*index = choose(selector, selector->legs, selector->opts.rotate, set, &best, rows, n);
	for (size_t i = 0; i < n && i < set->size; i++)
		rows[i].reason = i == *index ? PINION_REASON_CHOSEN : reason_of(selector, &rows[i], best);
	return 0;
}
