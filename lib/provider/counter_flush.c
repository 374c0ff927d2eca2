/* SPDX-License-Identifier: MIT */
/*
 * counter flush: waits until what was submitted to a device before now is done, session by session, by the two-phase
 * drain of <linux/pinion_counters.h>.
 *
 * The sleep is a futex in the device's entry. Arming is a plain store and so is the count that the other side makes
 * before it looks at it, so a wake can be missed while both are in flight; the sleep is therefore bounded, 1 ms at first
 * and up to 100 ms while the sum stands still.
 */
#include "counter_file.h"

#include "../deadline.h"
#include "../error.h"

#include <errno.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLEEP_MIN_NS INT64_C(1000000)
#define SLEEP_MAX_NS INT64_C(100000000)

/* One session's part of a flush. */
struct drain {
	struct counts *counts;
	const struct counts_device *dev;
	uint32_t slot;
	uint64_t generation; /* of the slot's owner when the drain began */
	uint32_t epoch;
	int64_t seen; /* pending in both parities when last looked at and its owner was alive, or dead and not yet succeeded */
	int64_t deadline_ns;
};

void counts_wake(struct counter_device *entry)
{
	__atomic_add_fetch(&entry->wake, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &entry->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void sleep_for(struct counter_device *entry, uint32_t seen, int64_t ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	syscall(SYS_futex, &entry->wake, FUTEX_WAIT, seen, &ts, NULL, 0);
}

static bool drain_alive(const struct drain *d)
{
	return counts_slot_alive(d->counts, d->slot, d->generation);
}

/* The session's lanes of the device, as they are now. */
static uint64_t drain_mask(const struct drain *d)
{
	return __atomic_load_n(&d->counts->file->lanes[d->dev->index][d->slot], __ATOMIC_ACQUIRE) & COUNTER_LANE_MASK;
}

static uint32_t drain_lanes(const struct drain *d, uint64_t mask, struct pinion_control **control, const struct pinion_lane **lane)
{
	struct counter_file *f = d->counts->file;
	uint32_t n = 0;

	for (; mask; mask &= mask - 1, n++) {
		control[n] = pinion_lane_control(&f->page[d->slot], __builtin_ctzll(mask));
		lane[n] = &f->page[d->slot].lane[__builtin_ctzll(mask)];
	}
	return n;
}

/* Counts what the session has in flight, unless its slot is another's by now. */
static void drain_note(struct drain *d, const struct pinion_lane *const *lane, uint32_t n)
{
	int64_t all = pinion_lanes_high(lane, n, PINION_BOTH);

	if (__atomic_load_n(&d->counts->file->facts[d->slot].generation, __ATOMIC_ACQUIRE) == d->generation && n)
		d->seen = all;
}

/* Waits until @parity of the session is empty: 0; -ETIMEDOUT; -ESTALE; 1 when its owner died. */
static int drain_parity(struct drain *d, uint32_t parity)
{
	struct pinion_control *control[PINION_LANES];
	const struct pinion_lane *lane[PINION_LANES];
	int64_t pause = SLEEP_MIN_NS, before = -1, high;
	int ret = 0;
	uint32_t n;

	for (;;) {
		uint32_t wake = __atomic_load_n(&d->dev->entry->wake, __ATOMIC_SEQ_CST);
		uint64_t mask = drain_mask(d);
		int64_t left;

		n = drain_lanes(d, mask, control, lane);
		pinion_flush_flip(control, n, d->epoch);
		pinion_flush_arm(control, n, 1);
		pinion_fence();
		high = pinion_lanes_high(lane, n, parity);
		drain_note(d, lane, n);
		/* A unit begun on a lane added meanwhile may have ended on one of these, and hidden one that is pending. */
		if (drain_mask(d) != mask)
			continue;
		if (!drain_alive(d))
			ret = 1;
		else if (!counts_device_current(d->dev))
			ret = fail(ESTALE, "the device was removed while it was flushed");
		else if (high <= 0)
			ret = 0;
		else if (d->deadline_ns <= 0 || (left = d->deadline_ns - deadline_now()) <= 0)
			ret = fail(ETIMEDOUT, "%lld units submitted before the flush are still in flight", (long long)high);
		else {
			pause = high == before ? pause * 2 : SLEEP_MIN_NS;
			pause = pause > SLEEP_MAX_NS ? SLEEP_MAX_NS : pause;
			before = high;
			sleep_for(d->dev->entry, wake, pause < left ? pause : left);
			continue;
		}
		pinion_flush_arm(control, n, 0);
		return ret;
	}
}

/* Both phases. Holds the slot's flush lock. */
static int drain_session(struct drain *d)
{
	struct pinion_control *control[PINION_LANES];
	const struct pinion_lane *lane[PINION_LANES];
	uint32_t n;
	int ret;

	n = drain_lanes(d, drain_mask(d), control, lane);
	d->epoch = pinion_flush_start(control, n);
	ret = drain_parity(d, PINION_PARITY(d->epoch + 1));
	if (ret)
		return ret;
	d->epoch++;
	return drain_parity(d, PINION_PARITY(d->epoch + 1));
}

/* What a session that died during its drain took with it. */
static uint64_t drain_lost(const struct drain *d)
{
	return d->seen > 0 ? d->seen : 0;
}

static int flush_slot(struct drain *d, uint64_t *lost)
{
	struct counter_facts *facts = &d->counts->file->facts[d->slot];
	int ret;

	d->generation = __atomic_load_n(&facts->generation, __ATOMIC_ACQUIRE);
	d->seen = 0;
	if (!drain_alive(d))
		return 0;
	ret = counter_mutex_lock(&facts->flush_lock, d->deadline_ns);
	if (ret)
		return ret == -ETIMEDOUT ? fail(ETIMEDOUT, "another flush of the same process is still waiting") :
					   counter_fail_damaged("a session's lock");
	ret = drain_session(d);
	counter_mutex_unlock(&facts->flush_lock);
	if (ret == 1) {
		*lost += drain_lost(d);
		ret = 0;
	}
	return ret;
}

int counts_flush(struct counts *c, const struct counts_device *dev, bool mine, int64_t deadline_ns, uint64_t *lost)
{
	struct drain d = { .counts = c, .dev = dev, .deadline_ns = deadline_ns };
	uint32_t used = __atomic_load_n(&c->file->head.slots_used, __ATOMIC_ACQUIRE);
	uint64_t gone = 0;
	int ret = 0;

	if (!counts_device_current(dev))
		return fail(ESTALE, "the device was removed; find it again by its key");
	for (uint32_t s = mine ? c->slot : 0; !ret && s < (mine ? c->slot + 1 : used) && s < COUNTER_SLOTS; s++) {
		if (!(__atomic_load_n(&dev->entry->slots[s / 64], __ATOMIC_ACQUIRE) >> (s % 64) & 1))
			continue;
		d.slot = s;
		ret = flush_slot(&d, &gone);
	}
	if (!ret && lost)
		*lost = gone;
	return ret;
}
