/* SPDX-License-Identifier: MIT */
/* select: what sets, measurements and selectors know of each other. */
#ifndef PINION_LIB_SELECT_H
#define PINION_LIB_SELECT_H

#include <pinion/select.h>
#include <stdatomic.h>

#include "turns.h"

/* ---- sets ---- */

#define SET_INLINE 4 /* candidates without an allocation of their own */

/* A candidate, and what selecting would otherwise compute again each time. */
struct entry {
	struct pinion_candidate candidate;
	uint64_t time_ns; /* of its cost, with the inbound transfer */
	uint64_t source;  /* source_hash() of its kernel source */
	size_t place;	  /* while ranking: where it was */
};

struct pinion_set {
	struct entry *entries; /* first, or allocated */
	size_t size;
	size_t capacity;
	bool has_task;
	struct pinion_task task;
	struct entry first[SET_INLINE];
};

/* By the axes in the order of pinion_set_rank(); 0 when they are all equal. */
int entry_compare(const struct entry *a, const struct entry *b);

static inline uint64_t add_saturating(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t hash_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15;
	return hash ^ hash >> 32;
}

/* ---- measurements ---- */

uint64_t source_hash(const char *kernel_source);

/*
 * What was measured for an entry of a set with that task. The ns alone never waits; both members, which belong
 * together, wait while another thread writes them.
 */
bool judge_ns(const struct pinion_judge *judge, const struct pinion_task *task, const struct entry *e, uint64_t *ns);
bool judge_measure(const struct pinion_judge *judge, const struct pinion_task *task, const struct entry *e,
		   struct pinion_measure *out);

/* ---- selectors ---- */

/* What a selector's key is made of, in this order. */
enum leg {
	LEG_FIT = 1 << 0,
	LEG_LOAD = 1 << 1,
	LEG_NS = 1 << 2,
	LEG_ALL = LEG_FIT | LEG_LOAD | LEG_NS,
};

struct pinion_selector {
	const char *name;
	unsigned int legs; /* enum leg; none: candidate 0 */
	struct pinion_selector_opts opts;
	atomic_uint refs;
	struct turns own;
	struct turns *lent; /* in place of its own, NULL: none */
	uint64_t turn_from; /* the first turn of any set */
};

/* ---- handles ---- */

/* Whether it fits by the handle's figures. */
enum pinion_fit runtime_fit(struct pinion_runtime *rt, uint64_t bytes);

/* As the public calls of the same names, without a call of their own: selectors make them for each candidate. */
static inline enum pinion_fit runtime_would_fit(struct pinion_runtime *rt, uint64_t bytes)
{
	return rt->ops->would_fit ? rt->ops->would_fit(rt, bytes) : runtime_fit(rt, bytes);
}

/* The operations of pinion_runtime_of_device()'s handle on a device with a queue. Such a handle is not freed. */
extern const struct pinion_runtime_ops runtime_queued __attribute__((visibility("hidden")));

static inline void runtime_free(struct pinion_runtime *rt)
{
	if (rt->ops->free)
		rt->ops->free(rt);
}

/* ---- ties ---- */

/* Candidates of one set that tie. */
struct ties {
	size_t count;
	uint64_t words[PINION_SET_MAX / 64]; /* a bit each; those below used are in use */
	size_t used;
};

/* Sets the bit of @i, which is behind all that are set. */
static inline void ties_mark(struct ties *t, size_t i)
{
	for (; t->used <= i / 64; t->used++)
		t->words[t->used] = 0;
	t->words[i / 64] |= UINT64_C(1) << i % 64;
}

/* Candidate @i ties with those there are. Candidates come in their order. */
static inline void ties_add(struct ties *t, size_t i)
{
	ties_mark(t, i);
	t->count++;
}

/* Candidate @i is better than those there are. */
static inline void ties_replace(struct ties *t, size_t i)
{
	t->count = 1;
	t->used = 0;
	ties_mark(t, i);
}

/* The one whose turn it is. */
size_t ties_turn(const struct ties *t, struct pinion_selector *selector, const struct pinion_set *set);

#endif
