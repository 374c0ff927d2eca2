/* SPDX-License-Identifier: MIT */
#include "counter_roster.h"

#include "../error.h"
#include "kmod_counts.h"

#include <errno.h>
#include <stdlib.h>

#define REBUILDS_MAX 64u

_Static_assert(offsetof(struct counter_file, page) % PINION_LINE_BYTES == 0, "lanes are lines of the file");

int roster_open(struct counts *c)
{
	c->roster = calloc(1, sizeof(*c->roster));
	if (!c->roster)
		return fail(ENOMEM, "no memory for a roster of counters");
	pthread_mutex_init(&c->roster->lock, NULL);
	c->roster->seq = UINT64_MAX;
	return 0;
}

void roster_close(struct counts *c)
{
	free(c->roster);
}

static void note_owners(const struct counter_file *f, struct counter_roster *r)
{
	uint32_t used = __atomic_load_n(&f->head.slots_used, __ATOMIC_ACQUIRE), n = 0;

	for (uint32_t s = 0; s < used && s < COUNTER_SLOTS; s++) {
		uint32_t word = __atomic_load_n(&f->owner[s], __ATOMIC_ACQUIRE);

		if (!pinion_owner_alive(word))
			continue;
		__atomic_store_n(&r->slot[n], s, __ATOMIC_RELAXED);
		__atomic_store_n(&r->word[n++], word, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&r->owners, n, __ATOMIC_RELAXED);
}

/* The lanes of device @d, from *@at on; false when they do not fit. */
static bool note_lanes(const struct counter_file *f, struct counter_roster *r, uint32_t d, uint32_t *at)
{
	const struct counter_device *dev = &f->device[d];

	for (uint32_t i = 0; i < r->owners; i++) {
		uint32_t s = r->slot[i];
		uint64_t mask;

		if (!(__atomic_load_n(&dev->slots[s / 64], __ATOMIC_ACQUIRE) >> (s % 64) & 1))
			continue;
		mask = __atomic_load_n(&f->lanes[d][s], __ATOMIC_ACQUIRE) & COUNTER_LANE_MASK;
		for (; mask; mask &= mask - 1) {
			if (*at == ROSTER_LANES)
				return false;
			__atomic_store_n(&r->lane[(*at)++], &f->page[s].lane[__builtin_ctzll(mask)], __ATOMIC_RELAXED);
		}
	}
	return true;
}

static uint64_t lanes_of(const struct counter_file *f, struct counter_roster *r, uint32_t d, uint32_t *at)
{
	uint32_t first = *at;

	if (!note_lanes(f, r, d, at))
		return ROSTER_OVERFLOW;
	return *at - first == 1 ? (uintptr_t)r->lane[first] : roster_part(first, *at - first);
}

static void rebuild(const struct counter_file *f, struct counter_roster *r)
{
	uint64_t seq = pinion_load_acquire(&f->head.seq);
	uint32_t at = 0;

	__atomic_store_n(&r->version, r->version + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	note_owners(f, r);
	for (uint32_t d = 0; d < COUNTER_DEVICES; d++) {
		uint64_t generation = __atomic_load_n(&f->device[d].generation, __ATOMIC_ACQUIRE), lanes = roster_part(at, 0);

		if (!__atomic_load_n(&f->device[d].has_queue, __ATOMIC_RELAXED))
			generation = 0;
		if (generation)
			lanes = lanes_of(f, r, d, &at);
		__atomic_store_n(&r->head[d].generation, generation, __ATOMIC_RELAXED);
		__atomic_store_n(&r->head[d].lanes, lanes, __ATOMIC_RELEASE);
	}
	/* A change while it was built leaves it with the old number, so that the next look finds it untrue. */
	__atomic_store_n(&r->seq, seq, __ATOMIC_RELAXED);
	__atomic_store_n(&r->version, r->version + 1, __ATOMIC_RELEASE);
}

uint32_t roster_renew(const struct counts *c)
{
	struct counter_roster *r = c->roster;
	uint32_t version;

	pthread_mutex_lock(&r->lock);
	if (c->kmod && !roster_is_true(c->file, r))
		kmod_roster_rebuild(c);
	/* One that stays untrue is not believed. */
	for (unsigned int i = 0; i < REBUILDS_MAX && !c->kmod && !roster_is_true(c->file, r); i++)
		rebuild(c->file, r);
	version = r->version;
	pthread_mutex_unlock(&r->lock);
	return version;
}
