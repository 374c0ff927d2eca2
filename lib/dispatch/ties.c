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

static uint64_t take_turn(struct pinion_selector *selector, const struct pinion_set *set)
{
	if (selector->turn)
		return selector->turn_from + __atomic_fetch_add(selector->turn, 1, __ATOMIC_RELAXED);
	return atomic_fetch_add_explicit(&selector->turns[mark(set) % SELECTOR_TURNS], 1, memory_order_relaxed);
}

size_t ties_turn(const struct ties *t, struct pinion_selector *selector, const struct pinion_set *set)
{
	return nth(t, take_turn(selector, set) % t->count);
}
