/* SPDX-License-Identifier: MIT */
/* counter read: what is in flight, by loads alone. */
#include "counter_file.h"
#include "counter_roster.h"

#include "../error.h"

#include <errno.h>
#include <string.h>

/* Lanes summed in one reading. More than this many are read in parts, each part by the protocol's passes. */
#define READ_LANES 512

struct walk {
	const struct counter_file *file;
	const struct counts_device *dev;
	uint32_t slot;	/* the next one to look at */
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

static int stale(const struct counts_device *dev)
{
	return fail(ESTALE, "the device with generation %llu was removed; find it again by its key",
		    (unsigned long long)dev->generation);
}

/* By walking the file: one's own share, or more lanes than the roster holds. */
static int64_t walk_pending(const struct counts *c, const struct counts_device *dev, bool mine)
{
	const struct pinion_lane *lane[READ_LANES];
	uint64_t seq;
	int64_t sum;

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
	} while (roster_changed(c->file, seq));
	return sum;
}

static __attribute__((noinline, cold)) int refuse_pending(const struct counts_device *dev)
{
	if (!counts_device_current(dev))
		return stale(dev);
	if (dev->entry->has_queue)
		return -EAGAIN; /* the roster was behind the table for a moment */
	return fail(ENODATA, "device '%s' is synchronous: it has no queue", dev->entry->key);
}

/* The two passes of pinion_lanes_high() over a device's part of the roster. */
static int64_t roster_high(const struct counter_file *f, const uint32_t *line, uint32_t n)
{
	uint64_t completed = 0, submitted = 0;

	for (uint32_t i = 0; i < n; i++)
		completed += pinion_lane_completed(roster_lane(f, line[i]), PINION_BOTH);
	for (uint32_t i = 0; i < n; i++)
		submitted += pinion_lane_submitted(roster_lane(f, line[i]), PINION_BOTH);
	return submitted - completed;
}

/* A device with no lane or several; out of the loop over devices, which is for those with one. */
static __attribute__((noinline)) int64_t roster_many(const struct counts *c, const struct counts_device *dev)
{
	const struct roster_device *d = &c->roster->device[dev->index];
	uint32_t first = d->first, count = d->count;

	/* Also where a rebuild under the reading tore the two apart. */
	if ((uint64_t)first + count > ROSTER_LINES)
		return walk_pending(c, dev, false);
	return roster_high(c->file, &c->roster->line[first], count);
}

/* One reading of several devices from the roster; -EAGAIN when it could not be believed. */
static inline int roster_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending)
{
	const struct counter_roster *r = c->roster;
	uint32_t version = roster_begin(c);

	for (size_t i = 0; i < n; i++) {
		const struct roster_head *head = &r->head[dev[i]->index];
		const struct pinion_lane *only = __atomic_load_n(&head->only, __ATOMIC_RELAXED);
		uint64_t high;

		if (__builtin_expect(head->generation != dev[i]->generation, 0))
			return refuse_pending(dev[i]);
		if (__builtin_expect(only != NULL, 1)) {
			high = pinion_lane_completed(only, PINION_BOTH);
			high = pinion_lane_submitted(only, PINION_BOTH) - high;
		} else {
			high = roster_many(c, dev[i]);
		}
		/* Below 0 as well: a unit may end on a lane that was not seen to begin it. */
		if (__builtin_expect(high > UINT32_MAX, 0))
			high = (int64_t)high < 0 ? 0 : UINT32_MAX;
		pending[i] = high;
	}
	return roster_end(c, version) ? 0 : -EAGAIN;
}

int counts_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending)
{
	int ret;

	do {
		ret = roster_pending(c, dev, n, pending);
	} while (__builtin_expect(ret == -EAGAIN, 0));
	return ret;
}

int counts_pending_mine(const struct counts *c, const struct counts_device *dev, uint32_t *pending)
{
	int64_t high;

	if (!counts_device_current(dev) || !dev->entry->has_queue)
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
		total.low += part.low;
		total.high += part.high;
		total.cost_high += part.cost_high;
		total.submitted += part.submitted;
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
	uint64_t seq;

	if (!counts_device_current(dev))
		return stale(dev);
	do {
		seq = pinion_load_acquire(&c->file->head.seq);
		sum_device(c, dev, info);
	} while (roster_changed(c->file, seq));
	memcpy(info->key, dev->entry->key, sizeof(info->key));
	info->key[PINION_KEY_MAX] = 0;
	info->generation = dev->generation;
	info->capacity = dev->entry->capacity;
	info->budget = dev->entry->budget;
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

int counts_users(const struct counts *c, const struct counts_device *dev, struct pinion_device_user *rows, size_t cap,
		 size_t *n)
{
	uint64_t seq, mask;
	uint32_t slot;

	if (!counts_device_current(dev))
		return stale(dev);
	do {
		struct walk w;

		seq = pinion_load_acquire(&c->file->head.seq);
		walk_start(&w, c, dev, false);
		for (*n = 0; walk_next(&w, &slot, &mask); (*n)++)
			if (*n < cap)
				describe_user(c->file, slot, mask, &rows[*n]);
	} while (roster_changed(c->file, seq));
	return 0;
}
