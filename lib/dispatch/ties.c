/* SPDX-License-Identifier: MIT */
#include "select.h"

/* The @n-th of them, from 0 on. */
static size_t nth(const struct ties *t, size_t n)
{
	size_t word = 0;
	uint64_t bits;

	while (n >= (size_t)__builtin_popcountll(t->words[word]))
		n -= (size_t)__builtin_popcountll(t->words[word++]);
	for (bits = t->words[word]; n; n--)
		bits &= bits - 1;
	return word * 64 + (size_t)__builtin_ctzll(bits);
}

/* What a set is about: sets with the same candidates for the same task have the same mark, whoever made them. */
static uint64_t mark(const struct pinion_set *set)
{
	uint64_t hash = set->has_task ? (uint64_t)set->task.op << 32 | set->task.size_class : 0;

	for (size_t i = 0; i < set->size; i++) {
		const struct pinion_candidate *c = &set->entries[i].candidate;

		hash = hash_mix(hash, (uint64_t)c->backend << 40 | (uint64_t)c->device.kind << 32 | c->device.index);
		hash = hash_mix(hash, set->entries[i].source);
	}
	return hash;
}

uint64_t turns_take(struct turns *turns, uint64_t mark)
{
	mark |= !mark;
	for (uint64_t i = 0; i < TURNS; i++) {
		uint64_t at = (mark + i) % TURNS, none = 0;

		if (__atomic_compare_exchange_n(&turns->of[at].mark, &none, mark, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
		    none == mark)
			return __atomic_fetch_add(&turns->of[at].next, 1, __ATOMIC_RELAXED);
	}
	return hash_mix(mark, __atomic_fetch_add(&turns->rest, 1, __ATOMIC_RELAXED));
}

size_t ties_turn(const struct ties *t, struct pinion_selector *selector, const struct pinion_set *set)
{
	struct turns *turns = selector->lent ? selector->lent : &selector->own;

	return nth(t, (selector->turn_from + turns_take(turns, mark(set))) % t->count);
}
