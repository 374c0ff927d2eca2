/* SPDX-License-Identifier: MIT */
/* counter read: what is in flight, by loads alone. */
#include "counter_file.h"
#include "counter_roster.h"
#include "kmod_counts.h"

#include "../error.h"
#include "../sanitizer.h"

#include <errno.h>
#include <string.h>
#ifdef __x86_64__
#include <emmintrin.h>
#endif

/* Lanes summed in one reading. More than this many are read in parts, each part by the protocol's passes. */
#define READ_LANES 512
#define READINGS_MAX 1000u

struct walk {
	const struct counter_file *file;
	const struct counts_device *dev;
	uint32_t slot; /* the next one to look at */
	uint32_t end;
	uint64_t slots; /* bits of the present word of the device's slot map not yet looked at */
};

static void walk_start(struct walk *w, const struct counts *c, const struct counts_device *dev, bool mine)
{
	uint32_t used = __atomic_load_n(&c->file->head.slots_used, __ATOMIC_ACQUIRE);

	w->file = c->file;
	w->dev = dev;
	w->slot = mine ? c->slot : 0;
	w->end = mine ? c->slot + 1 : used < COUNTER_SLOTS ? used : COUNTER_SLOTS;
	w->slots = 0;
}

/* The next slot that has lanes for the device and a living owner; false at the end. */
static bool walk_next(struct walk *w, uint32_t *slot, uint64_t *lanes)
{
	const struct counter_file *f = w->file;

	while (w->slot < w->end) {
		uint64_t bits = __atomic_load_n(&w->dev->entry->slots[w->slot / 64], __ATOMIC_ACQUIRE) >> (w->slot % 64);
		uint32_t s;

		if (!bits) {
			w->slot = (w->slot | 63) + 1;
			continue;
		}
		s = w->slot + __builtin_ctzll(bits);
		if (s >= w->end)
			return false;
		w->slot = s + 1;
		if (!pinion_owner_alive(__atomic_load_n(&f->owner[s], __ATOMIC_ACQUIRE)))
			continue;
		*slot = s;
		*lanes = __atomic_load_n(&f->lanes[w->dev->index][s], __ATOMIC_ACQUIRE) & COUNTER_LANE_MASK;
		return true;
	}
	return false;
}

/* Collects lanes until @lane is full; false when the walk is over. */
static bool collect(struct walk *w, const struct pinion_lane **lane, uint32_t *n)
{
	uint64_t mask;
	uint32_t slot;

	*n = 0;
	while (*n + PINION_LANES <= READ_LANES) {
		if (!walk_next(w, &slot, &mask))
			return false;
		for (; mask; mask &= mask - 1)
			lane[(*n)++] = &w->file->page[slot].lane[__builtin_ctzll(mask)];
	}
	return true;
}

static bool roster_changed(const struct counter_file *f, uint64_t seq)
{
	return __builtin_expect(pinion_load_acquire(&f->head.seq) != seq, 0);
}

/*
 * Whether a reading is done again: the roster moved under it. It moves when a lane or a device changes hands, and for as long
 * as a thousand readings only where somebody writes over the file, who is not waited for.
 */
static bool read_again(const struct counter_file *f, uint64_t seq, uint32_t *readings)
{
	return roster_changed(f, seq) && ++*readings < READINGS_MAX;
}

static int stale(const struct counts_device *dev)
{
	return fail(ESTALE, "the device with generation %llu was removed; find it again by its key",
		    (unsigned long long)dev->generation);
}

/* By walking the file: one's own share, or more lanes than the roster holds. */
static __attribute__((noinline)) int64_t walk_pending(const struct counts *c, const struct counts_device *dev, bool mine)
{
	const struct pinion_lane *lane[READ_LANES];
	uint32_t readings = 0;
	uint64_t seq, sum;

	do {
		struct walk w;
		bool more;
		uint32_t n;

		seq = pinion_load_acquire(&c->file->head.seq);
		sum = 0;
		walk_start(&w, c, dev, mine);
		do {
			more = collect(&w, lane, &n);
			sum += pinion_lanes_high(lane, n, PINION_BOTH);
		} while (more);
	} while (read_again(c->file, seq, &readings));
	return (int64_t)sum;
}

static __attribute__((noinline, cold)) int refuse_pending(const struct counts_device *dev)
{
	if (!counts_device_current(dev))
		return stale(dev);
	if (dev->has_queue)
		return -EAGAIN; /* the roster was behind the table for a moment */
	if (!dev->entry)
		return fail(ENODATA, "the device is synchronous: it has no queue");
	return fail(ENODATA, "device '%s' is synchronous: it has no queue", counter_key(dev->entry).s);
}

static inline uint64_t lane_high(const struct pinion_lane *lane)
{
	uint64_t completed = pinion_lane_completed(lane, PINION_BOTH);

	return pinion_lane_submitted(lane, PINION_BOTH) - completed;
}

static inline const struct pinion_lane *part_lane(const struct pinion_lane *const *part, uint32_t i)
{
	return __atomic_load_n(&part[i], __ATOMIC_RELAXED);
}

/* The two passes of pinion_lanes_high() over a device's part of the roster. */
static inline uint64_t part_high(const struct pinion_lane *const *part, uint32_t n)
{
	uint64_t high = 0;

	for (uint32_t i = 0; i < n; i++)
		high -= pinion_lane_completed(part_lane(part, i), PINION_BOTH);
	for (uint32_t i = 0; i < n; i++)
		high += pinion_lane_submitted(part_lane(part, i), PINION_BOTH);
	return high;
}

/* Below 0 as well: a unit may end on a lane that was not seen to begin it. */
static __attribute__((noinline, cold)) uint32_t pending_beyond(uint64_t high)
{
	return (int64_t)high < 0 ? 0 : UINT32_MAX;
}

static inline uint32_t pending_of(uint64_t high)
{
	return __builtin_expect(high > UINT32_MAX, 0) ? pending_beyond(high) : high;
}

/* The same over as many devices as the processor can add up for at once, each of which has @n lanes. */
#define ABREAST 4
#define TRIES	4

static __attribute__((noinline)) void parts_pending(const struct pinion_lane *const *const part[ABREAST], uint32_t n,
						    uint32_t *pending)
{
	const struct pinion_lane *const *w = part[0], *const *x = part[1], *const *y = part[2], *const *z = part[3];
	uint64_t a = 0, b = 0, c = 0, d = 0;

#pragma GCC unroll 2
	for (uint32_t i = 0; i < n; i++) {
		a -= pinion_lane_completed(part_lane(w, i), PINION_BOTH);
		b -= pinion_lane_completed(part_lane(x, i), PINION_BOTH);
		c -= pinion_lane_completed(part_lane(y, i), PINION_BOTH);
		d -= pinion_lane_completed(part_lane(z, i), PINION_BOTH);
	}
#pragma GCC unroll 2
	for (uint32_t i = 0; i < n; i++) {
		a += pinion_lane_submitted(part_lane(w, i), PINION_BOTH);
		b += pinion_lane_submitted(part_lane(x, i), PINION_BOTH);
		c += pinion_lane_submitted(part_lane(y, i), PINION_BOTH);
		d += pinion_lane_submitted(part_lane(z, i), PINION_BOTH);
	}
	pending[0] = pending_of(a);
	pending[1] = pending_of(b);
	pending[2] = pending_of(c);
	pending[3] = pending_of(d);
}

/*
 * And by loads of a whole count, units and cost at once, where the processor says that those are single: x86 with AVX (AMD64
 * manual 2, 7.3.2; Intel SDM 3, 9.1.1). A load is then an operand of the addition, which saves a third of the instructions. x86
 * does not let a load pass an earlier one; the compiler is told not to. Thread sanitizers do not know such loads.
 */
#if defined(__x86_64__) && !THREAD_SANITIZED
#define HAS_PAIRS __builtin_cpu_supports("avx")

static inline __m128i pairs_of(__m128i sum, const struct pinion_count count[2])
{
	sum = _mm_add_epi64(sum, *(const volatile __m128i *)&count[0]);
	return _mm_add_epi64(sum, *(const volatile __m128i *)&count[1]);
}

/* The low halves of four sums, in memory order; their high halves, which are 0 unless a sum is out of range. */
static inline void pack_sums(__m128i a, __m128i b, __m128i c, __m128i d, __m128i *low, __m128i *above)
{
	__m128 ab = _mm_castsi128_ps(_mm_unpacklo_epi64(a, b)), cd = _mm_castsi128_ps(_mm_unpacklo_epi64(c, d));

	*low = _mm_castps_si128(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(2, 0, 2, 0)));
	*above = _mm_castps_si128(_mm_shuffle_ps(ab, cd, _MM_SHUFFLE(3, 1, 3, 1)));
}

static __attribute__((noinline, cold)) void pending_each(__m128i low, __m128i above, uint32_t *pending)
{
	uint32_t l[ABREAST], h[ABREAST];

	_mm_storeu_si128((__m128i *)l, low);
	_mm_storeu_si128((__m128i *)h, above);
	for (size_t i = 0; i < ABREAST; i++)
		pending[i] = pending_of((uint64_t)h[i] << 32 | l[i]);
}

static inline void parts_pending_by_pairs(const struct pinion_lane *const *const part[ABREAST], uint32_t n, uint32_t *pending)
{
	const struct pinion_lane *const *w = part[0], *const *x = part[1], *const *y = part[2], *const *z = part[3];
	__m128i a = _mm_setzero_si128(), b = a, c = a, d = a, e = a, f = a, g = a, h = a, low, above;

	for (uint32_t i = 0; i < n; i++) {
		a = pairs_of(a, part_lane(w, i)->completed);
		b = pairs_of(b, part_lane(x, i)->completed);
		c = pairs_of(c, part_lane(y, i)->completed);
		d = pairs_of(d, part_lane(z, i)->completed);
	}
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++) {
		e = pairs_of(e, part_lane(w, i)->submitted);
		f = pairs_of(f, part_lane(x, i)->submitted);
		g = pairs_of(g, part_lane(y, i)->submitted);
		h = pairs_of(h, part_lane(z, i)->submitted);
	}
	__atomic_signal_fence(__ATOMIC_ACQUIRE);
	pack_sums(_mm_sub_epi64(e, a), _mm_sub_epi64(f, b), _mm_sub_epi64(g, c), _mm_sub_epi64(h, d), &low, &above);
	if (__builtin_expect(_mm_movemask_epi8(_mm_cmpeq_epi32(above, _mm_setzero_si128())) != 0xffff, 0))
		pending_each(low, above, pending);
	else
		_mm_storeu_si128((__m128i *)pending, low);
}
#else
#define HAS_PAIRS	       false
#define parts_pending_by_pairs parts_pending
#endif

static inline bool roster_has(const struct roster_head *head, const struct counts_device *dev)
{
	return __builtin_expect(__atomic_load_n(&head->generation, __ATOMIC_RELAXED) == dev->generation, 1);
}

/* The next ABREAST devices, where all have as many lanes as the first one, whose are @lanes. */
static inline bool read_abreast(const struct counter_roster *r, uint64_t lanes, const struct counts_device *const *dev,
				uint32_t *pending)
{
	const struct pinion_lane *const *part[ABREAST];
	uint32_t first[ABREAST], differ = 0;

#pragma GCC unroll 4
	for (size_t i = 0; i < ABREAST; i++) {
		const struct counts_device *d = dev[i];
		const struct roster_head *head = &r->head[d->index];
		uint64_t part_lanes = __atomic_load_n(&head->lanes, __ATOMIC_ACQUIRE);

		if (!roster_has(head, d))
			return false;
		differ |= (uint32_t)part_lanes ^ (uint32_t)lanes;
		first[i] = roster_first(part_lanes);
	}
	if (differ || lanes == ROSTER_OVERFLOW)
		return false;
#pragma GCC unroll 4
	for (size_t i = 0; i < ABREAST; i++)
		part[i] = &r->lane[first[i]];
	if (HAS_PAIRS)
		parts_pending_by_pairs(part, roster_count(lanes), pending);
	else
		parts_pending(part, roster_count(lanes), pending);
	return true;
}

/* A device with no lane or several, and perhaps some after it: how many. Out of the loop over devices, which is for those with
 * one. */
static COUNTER_HOT __attribute__((noinline)) size_t
read_several(const struct counts *c, uint64_t lanes, const struct counts_device *const *dev, size_t n, uint32_t *pending)
{
	const struct counter_roster *r = c->roster;
	size_t read = 0;
	uint64_t high;

	while (n - read >= ABREAST && read_abreast(r, lanes, dev + read, pending + read))
		read += ABREAST;
	if (read)
		return read;
	if (lanes == ROSTER_OVERFLOW && c->kmod)
		return kmod_read_pending(c, dev, n, pending);
	if (lanes == ROSTER_OVERFLOW)
		high = walk_pending(c, dev[0], false);
	else
		high = part_high(&r->lane[roster_first(lanes)], roster_count(lanes));
	pending[0] = pending_of(high);
	return 1;
}

/* One reading of several devices from the roster; -EAGAIN when it could not be believed. */
static inline int roster_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending)
{
	const struct counts_device *const *end = dev + n;
	const struct counter_roster *r = c->roster;
	uint32_t version = roster_begin(c);

	while (dev < end) {
		const struct counts_device *d = *dev;
		const struct roster_head *head = &r->head[d->index];
		uint64_t lanes = __atomic_load_n(&head->lanes, __ATOMIC_ACQUIRE);

		if (!roster_has(head, d))
			return refuse_pending(d);
		if (__builtin_expect(lanes & 1, 0)) {
			size_t read = read_several(c, lanes, dev, end - dev, pending);

			dev += read;
			pending += read;
			continue;
		}
		*pending++ = pending_of(lane_high((const struct pinion_lane *)(uintptr_t)lanes));
		dev++;
	}
	return roster_end(c, version) ? 0 : -EAGAIN;
}

/* Without the roster, which does not agree with the table of devices, or moves under each look at it. */
static __attribute__((noinline, cold)) int walk_devices(const struct counts *c, const struct counts_device *const *dev, size_t n,
							uint32_t *pending)
{
	for (size_t i = 0; i < n; i++) {
		if (!counts_device_current(dev[i]) || !dev[i]->has_queue)
			return refuse_pending(dev[i]);
		pending[i] = pending_of(walk_pending(c, dev[i], false));
	}
	return 0;
}

COUNTER_HOT int counts_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending)
{
	uint32_t tries = 0;
	int ret;

	do {
		/* On the module other users change the roster too, as often as they please; in the file anybody may write. */
		if (__builtin_expect(tries++ == TRIES, 0))
			return c->kmod ? kmod_pending(c, dev, n, pending) : walk_devices(c, dev, n, pending);
		ret = roster_pending(c, dev, n, pending);
	} while (__builtin_expect(ret == -EAGAIN, 0));
	return ret;
}

int counts_pending_mine(const struct counts *c, const struct counts_device *dev, uint32_t *pending)
{
	int64_t high;

	if (!counts_device_current(dev) || !dev->has_queue)
		return refuse_pending(dev);
	high = walk_pending(c, dev, true);
	if (!counts_device_current(dev))
		return stale(dev);
	*pending = high < 0 ? 0 : high > UINT32_MAX ? UINT32_MAX : high;
	return 0;
}

/* What died with its owner and has not been taken over yet. */
static uint64_t lost_now(const struct counter_file *f, const struct counts_device *dev)
{
	uint64_t lost = 0;

	for (uint32_t s = 0; s < f->head.slots_used && s < COUNTER_SLOTS; s++) {
		uint64_t mask = __atomic_load_n(&f->lanes[dev->index][s], __ATOMIC_ACQUIRE) & COUNTER_LANE_MASK;
		uint64_t submitted = 0, completed = 0;

		if (!mask || pinion_owner_alive(__atomic_load_n(&f->owner[s], __ATOMIC_ACQUIRE)))
			continue;
		for (; mask; mask &= mask - 1) {
			const struct pinion_lane *lane = &f->page[s].lane[__builtin_ctzll(mask)];

			completed += pinion_lane_completed(lane, PINION_BOTH);
			submitted += pinion_lane_submitted(lane, PINION_BOTH);
		}
		if ((int64_t)(submitted - completed) > 0)
			lost += submitted - completed;
	}
	return lost;
}

/* Modulo 2^64, as the words that it is made of. */
static void add_part(struct pinion_sum *total, const struct pinion_sum *part)
{
	total->low = (int64_t)((uint64_t)total->low + (uint64_t)part->low);
	total->high = (int64_t)((uint64_t)total->high + (uint64_t)part->high);
	total->cost_high = (int64_t)((uint64_t)total->cost_high + (uint64_t)part->cost_high);
	total->submitted += part->submitted;
}

static void sum_device(const struct counts *c, const struct counts_device *dev, struct pinion_device_info *info)
{
	const struct pinion_lane *lane[READ_LANES];
	const struct counter_file *f = c->file;
	struct pinion_sum total = { 0, 0, 0, 0 };
	struct walk w;
	uint64_t mask;
	uint32_t n, slot;
	bool more;

	walk_start(&w, c, dev, false);
	do {
		struct pinion_sum part;

		more = collect(&w, lane, &n);
		part = pinion_lanes_sum(lane, n);
		add_part(&total, &part);
	} while (more);
	total = pinion_sum_clamp(total, INT64_MAX);
	info->pending_low = total.low;
	info->pending_high = total.high;
	info->pending_cost = total.cost_high;
	info->submitted = total.submitted + __atomic_load_n(&dev->entry->retired, __ATOMIC_RELAXED);
	info->reclaimed = __atomic_load_n(&dev->entry->reclaimed, __ATOMIC_RELAXED) + lost_now(f, dev);
	info->sessions = info->shared_lanes = 0;
	walk_start(&w, c, dev, false);
	while (walk_next(&w, &slot, &mask)) {
		info->sessions++;
		info->shared_lanes += (f->facts[slot].shared & mask) != 0;
	}
}

int counts_info(const struct counts *c, const struct counts_device *dev, struct pinion_device_info *info)
{
	uint32_t readings = 0;
	uint64_t seq;

	if (!counts_device_current(dev))
		return stale(dev);
	do {
		seq = pinion_load_acquire(&c->file->head.seq);
		sum_device(c, dev, info);
	} while (read_again(c->file, seq, &readings));
	memcpy(info->key, counter_key(dev->entry).s, sizeof(info->key));
	info->generation = dev->generation;
	info->capacity = dev->capacity;
	info->budget = dev->budget;
	return counts_device_current(dev) ? 0 : stale(dev);
}

static void describe_user(const struct counter_file *f, uint32_t slot, uint64_t mask, struct pinion_device_user *row)
{
	const struct pinion_lane *lane[PINION_LANES];
	const struct counter_facts *facts = &f->facts[slot];
	struct pinion_sum sum;
	uint32_t n = 0;

	for (; mask; mask &= mask - 1)
		lane[n++] = &f->page[slot].lane[__builtin_ctzll(mask)];
	sum = pinion_sum_clamp(pinion_lanes_sum(lane, n), INT64_MAX);
	row->pid = facts->pid;
	row->uid = facts->uid;
	memcpy(row->comm, facts->comm, sizeof(row->comm));
	row->comm[sizeof(row->comm) - 1] = 0;
	row->since_ns = facts->since_ns;
	row->pending = sum.high;
	row->submitted = sum.submitted;
}

int counts_users(const struct counts *c, const struct counts_device *dev, struct pinion_device_user *rows, size_t cap, size_t *n)
{
	uint32_t slot, readings = 0;
	uint64_t seq, mask;

	if (!counts_device_current(dev))
		return stale(dev);
	do {
		struct walk w;

		seq = pinion_load_acquire(&c->file->head.seq);
		walk_start(&w, c, dev, false);
		for (*n = 0; walk_next(&w, &slot, &mask); (*n)++)
			if (*n < cap)
				describe_user(c->file, slot, mask, &rows[*n]);
	} while (read_again(c->file, seq, &readings));
	return 0;
}
