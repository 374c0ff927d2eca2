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

_Static_assert(PINION_LOAD_IDLE == 0 && PINION_LOAD_MODERATE == 1 && PINION_LOAD_SATURATED == 2, "a tier is bounds reached");

/* Without branches: what is pending is not to be foreseen. A capacity of 0 is read as 1. */
static inline enum pinion_load tier(uint32_t pending, uint32_t capacity)
{
	uint32_t most = capacity + !capacity;

	return ((uint64_t)pending * 4 >= most) + (pending >= most);
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

/*
 * And what is seldom needed is kept out of what every selection goes through: that all fits a page beside the reading of the
 * counts, so that no part of it pushes another out of the processor's decoded instructions. What it takes is handed over by
 * value, so that what the compiler knows of it is not lost where it is not called.
 */
#define APART __attribute__((noinline))

/* ---- some candidates ---------------------------------------------------------------------------------------------- */

/* The part of a key that has to be asked for, tightness before load. */
#define RANK_TIGHT 4u
#define RANK_NO	   UINT32_MAX	 /* it does not fit */
#define RANK_OWN   (RANK_NO - 1) /* it is put off */

/*
 * Candidates are weighed some at a time: what is known of the devices behind pinion's own handles is then read in one go, which
 * is most of what selecting takes. Each has its own lookup, and its handle is let go before the next one. No count is kept from
 * one selection to the next: what a thread has begun or claimed, its next selection counts. Documentation/counters.md says what
 * bounds the time that takes.
 */
#define BATCH DEVICE_SIGNALS

struct batch {
	uint32_t rank[BATCH];	   /* RANK_OWN at first */
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

/* What is looked up of a candidate, whose handle is the caller's to let go. */
struct looked {
	struct pinion_runtime *rt;
	uint64_t need;
};

static INLINE struct looked look_at(const struct asking *a, const struct pinion_candidate *c, struct pinion_verdict *row)
{
	struct looked at = { NULL, 0 };
	uint64_t available;

	if (a->legs & LEG_FIT)
		at.need = a->estimate ? a->estimate(a->estimate_arg, c) : c->static_cost.bytes_moved;
	if (a->lookup)
		at.rt = a->lookup(a->lookup_arg, c->backend, c->device);
	if (row) {
		*row = (struct pinion_verdict){ .looked_up = a->lookup, .has_handle = at.rt, .need = at.need };
		row->has_available = at.rt && at.rt->ops->available && !at.rt->ops->available(at.rt, &available);
		row->available = row->has_available ? available : 0;
	}
	return at;
}

/* A handle on a device with a queue, which is not freed, is asked with the others, of which there are @own before it. */
static INLINE bool put_off(struct batch *b, size_t own, const struct looked *at)
{
	const struct pinion_device_runtime *room = (const struct pinion_device_runtime *)at->rt;

	if (__builtin_expect(!at->rt || at->rt->ops != &runtime_queued, 0))
		return false;
	device_signals_add(&b->own, own, room->device, at->need);
	b->own_capacity[own] = room->capacity;
	return true;
}

static INLINE uint32_t ask_now(const struct asking *a, const struct looked *at, struct pinion_verdict *row)
{
	uint32_t rank = 0;

	if (at->rt) {
		rank = ask(a->legs, at->rt, at->need, row);
		runtime_free(at->rt);
	}
	return rank;
}

/* The candidates from @i on, of which the first is looked at and is not put off: how many of all are. */
static APART size_t look_on(struct asking a, const struct entry *e, size_t i, size_t n, struct looked at, struct batch *b,
			    struct pinion_verdict *rows)
{
	size_t own = i;

	for (;;) {
		if (put_off(b, own, &at))
			own++;
		else
			b->rank[i] = ask_now(&a, &at, rows ? &rows[i] : NULL);
		if (++i == n)
			return own;
		at = look_at(&a, &e[i].candidate, rows ? &rows[i] : NULL);
	}
}

/* How many of the @n candidates from @e on are put off. Most often all are: that alone is quick. */
static INLINE size_t look_at_all(const struct asking *a, const struct entry *e, size_t n, struct batch *b,
				 struct pinion_verdict *rows)
{
	for (size_t i = 0; i < n; i++) {
		struct looked at = look_at(a, &e[i].candidate, rows ? &rows[i] : NULL);

		if (!put_off(b, i, &at))
			return look_on(*a, e, i, n, at, b, rows);
	}
	return n;
}

static INLINE uint32_t rank_own(const struct batch *b, size_t own, bool has_pending, struct pinion_verdict *row)
{
	return rank_of(b->own.fit[own], has_pending, b->own.pending[own], b->own_capacity[own], row);
}

/* Some were not put off, or not @answered in one reading. */
static APART void settle(struct batch *b, size_t n, bool answered, struct pinion_verdict *rows)
{
	size_t own = 0;

	for (size_t i = 0; i < n; i++) {
		if (b->rank[i] != RANK_OWN)
			continue;
		b->rank[i] = rank_own(b, own, answered || b->own.has_pending[own], rows ? &rows[i] : NULL);
		own++;
	}
}

/* What is known of a batch. */
enum known {
	SETTLED,  /* the ranks */
	ANSWERED, /* all were put off and have both signals */
	EASY,	  /* and each fits comfortably: the commonest */
};

/* Looks the @n candidates from @e on up, and asks all that there is to ask. */
static INLINE enum known look_up(const struct asking *a, const struct entry *e, size_t n, struct batch *b,
				 struct pinion_verdict *rows)
{
	bool answered;
	size_t own;

	device_signals_start(&b->own, (a->legs & LEG_FIT) && (a->legs & LEG_LOAD));
	for (size_t i = 0; i < BATCH; i++)
		b->rank[i] = RANK_OWN;
	own = look_at_all(a, e, n, b, rows);
	if (!own)
		return SETTLED;
	answered = device_signals_ask(&b->own, own, a->legs & LEG_FIT, a->legs & LEG_LOAD);
	if (answered && own == n)
		return b->own.uneasy ? ANSWERED : EASY;
	settle(b, n, answered, rows);
	return SETTLED;
}

static INLINE uint64_t weigh_ns(const struct asking *a, const struct pinion_set *set, const struct entry *e,
				struct pinion_verdict *row)
{
	uint64_t ns, found;
	bool measured = a->judge && judge_ns(a->judge, &set->task, e, &found);

	ns = measured ? add_saturating(found, e->candidate.inbound_transfer_ns) : e->time_ns;
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
	return ((unsigned __int128)a.rank << 64 | a.ns) < ((unsigned __int128)b.rank << 64 | b.ns);
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

static INLINE uint32_t rank_at(const struct batch *b, size_t i, enum known known, struct pinion_verdict *row)
{
	if (known == SETTLED)
		return b->rank[i];
	if (known == EASY && !row)
		return tier(b->own.pending[i], b->own_capacity[i]);
	return rank_own(b, i, true, row);
}

/* The @n candidates from the set's @first on enter. */
static INLINE void enter_batch(struct race *race, struct ties *ties, const struct asking *a, const struct pinion_set *set,
			       size_t first, size_t n, const struct batch *b, enum known known, struct pinion_verdict *rows)
{
	const struct entry *e = set->entries + first;

	for (size_t i = 0; i < n; i++) {
		struct pinion_verdict *row = rows ? &rows[i] : NULL;
		struct key key = { rank_at(b, i, known, row), 0 };

		if (known != EASY && key.rank == RANK_NO)
			continue;
		if (a->legs & LEG_NS)
			key.ns = weigh_ns(a, set, &e[i], row);
		enter(race, ties, first + i, key);
	}
}

static APART struct race enter_uneasy(struct race race, struct ties *ties, struct asking a, const struct pinion_set *set,
				      size_t first, size_t n, const struct batch *b, enum known known,
				      struct pinion_verdict *rows)
{
	enter_batch(&race, ties, &a, set, first, n, b, known, rows);
	return race;
}

/*
 * The choice, and its key; the first @n candidates' rows, unless @rows is NULL. Who asks for rows wants to see every
 * candidate. Where the key has no time in it and what ties has no turn, one can be so good that nothing behind it is looked at:
 * so they are looked at one by one. The race is apart from the ties, whose address is given away: it stays in registers.
 */
static INLINE size_t choose(struct pinion_selector *s, const struct asking *a, bool rotate, const struct pinion_set *set,
			    struct key *best, struct pinion_verdict *rows, size_t n)
{
	bool turns = rotate && a->legs, stops = !rows && !rotate && !(a->legs & LEG_NS);
	struct race race = { .best = { RANK_NO, 0 } };
	struct pinion_verdict row[BATCH];
	struct ties ties;
	enum known known;
	struct batch b;
	size_t m;

	ties.count = 0;
	for (size_t first = 0; first < set->size; first += m) {
		m = stops ? 1 : set->size - first < BATCH ? set->size - first : BATCH;
		known = look_up(a, &set->entries[first], m, &b, rows ? row : NULL);
		if (known == EASY)
			enter_batch(&race, turns ? &ties : NULL, a, set, first, m, &b, EASY, rows ? row : NULL);
		else
			race = enter_uneasy(race, turns ? &ties : NULL, *a, set, first, m, &b, known, rows ? row : NULL);
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

static __attribute__((noinline)) int select_any(struct pinion_selector *selector, const struct pinion_set *set, size_t *index)
{
	const struct asking a = asking_of(selector, selector->legs, set);
	struct key best;

	if (!set->size)
		return fail_empty();
	*index = choose(selector, &a, selector->opts.rotate, set, &best, NULL, 0);
	return 0;
}

/* The one for production apart, with estimates and times as they come, so that what a selector does is not asked again for each
 * candidate. */
PINION_API COUNTER_HOT int pinion_select(struct pinion_selector *selector, const struct pinion_set *set, size_t *index)
{
	struct asking a = asking_of(selector, LEG_ALL, set);
	struct key best;

	if (selector->legs != LEG_ALL || selector->opts.rotate || a.estimate || a.judge || !a.lookup || !set->size)
		return select_any(selector, set, index);
	a.estimate = NULL;
	a.judge = NULL;
	*index = choose(selector, &a, false, set, &best, NULL, 0);
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
	const struct asking a = asking_of(selector, selector->legs, set);
	struct key best;

	if (!set->size)
		return fail_empty();
	*index = choose(selector, &a, selector->opts.rotate, set, &best, rows, n);
	for (size_t i = 0; i < n && i < set->size; i++)
		rows[i].reason = i == *index ? PINION_REASON_CHOSEN : reason_of(selector, &rows[i], best);
	return 0;
}
