/* SPDX-License-Identifier: MIT */
/*
 * counter roster: which lanes of which living owners belong to which device, as this context last saw it, packed so that a
 * reading touches little but the lanes themselves.
 *
 * It is true while head.seq has not moved (no lane changed hands) and every owner word in it still reads what it read.
 * Any thread may read it while another rebuilds it: entries are plain words that lead into the file, which stays mapped,
 * and a reading that saw `version` move is done again.
 */
#ifndef PINION_LIB_COUNTER_ROSTER_H
#define PINION_LIB_COUNTER_ROSTER_H

#include "counter_file.h"

#define ROSTER_DEVICES 256u /* places of either table */
#define ROSTER_LANES 16384u /* lanes in all; with more, readings walk the file */

/*
 * What a reading of one device looks at first, four to a cache line. Its lanes are one word, so that a rebuild under the reading
 * tears nothing apart: the address of the only one, which is the commonest case and takes no detour, or else an odd number: where
 * its part of lane[] begins, from bit 32 on, and how many there are, from bit 1 on.
 */
struct roster_head {
	uint64_t generation; /* 0: none, or one without a queue */
	uint64_t lanes;
};

#define ROSTER_OVERFLOW UINT64_C(0xffffffff) /* more than there is room for */

static inline uint64_t roster_part(uint32_t first, uint32_t count)
{
	return (uint64_t)first << 32 | count << 1 | 1;
}

static inline uint32_t roster_first(uint64_t part)
{
	return part >> 32;
}

static inline uint32_t roster_count(uint64_t part)
{
	return (uint32_t)part >> 1;
}

struct counter_roster {
	uint32_t version; /* odd while it is rebuilt */
	uint32_t owners;
	uint64_t seq;
	const __u64 *seq_now; /* what seq is compared with: the file's, or the module's */
	struct roster_head head[ROSTER_DEVICES];
	uint32_t slot[COUNTER_SLOTS]; /* the living, and their owner words */
	uint32_t word[COUNTER_SLOTS];
	/* All that one of the words above speaks of were there before it was; the rest may be NULL. */
	const struct pinion_lane *lane[ROSTER_LANES];
	pthread_mutex_t lock;	     /* rebuilding */
};

/* Makes it true again; the version to give to roster_end(). */
uint32_t roster_renew(const struct counts *c);

static inline bool roster_is_true(const struct counter_file *f, const struct counter_roster *r)
{
	uint32_t differ = 0;

	if (pinion_load_acquire(r->seq_now) != r->seq)
		return false;
	for (uint32_t i = 0; i < r->owners; i++)
		differ |= __atomic_load_n(&f->owner[r->slot[i] % COUNTER_SLOTS], __ATOMIC_ACQUIRE) ^ r->word[i];
	return !differ;
}

/* Starts a reading: the version to give to roster_end(). */
static inline uint32_t roster_begin(const struct counts *c)
{
	const struct counter_roster *r = c->roster;
	uint32_t version = __atomic_load_n(&r->version, __ATOMIC_ACQUIRE);

	if (__builtin_expect(!(version & 1) && roster_is_true(c->file, r), 1))
		return version;
	return roster_renew(c);
}

/* Whether what was read since roster_begin() can be believed. */
static inline bool roster_end(const struct counts *c, uint32_t version)
{
	const struct counter_roster *r = c->roster;

	/* What was read must not be read after the version that vouches for it. */
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return pinion_load_acquire(r->seq_now) == r->seq && __atomic_load_n(&r->version, __ATOMIC_ACQUIRE) == version;
}

int roster_open(struct counts *c);
void roster_close(struct counts *c);

#endif
