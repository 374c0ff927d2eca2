/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * The counter page and the protocol over it.
 *
 * One header for everyone who touches a counter: the module, the library on both grounds, and the interleaving checker
 * (tests/unit/test_counters_model.c). It holds the layout and pure functions written against a few primitives, so that
 * what is checked is what runs.
 *
 * A session is one process (one open context) with one counter page of 64 lines of 64 bytes: 8 control lines, written by
 * whoever flushes and never read back by the writer, and 56 lanes. A lane is bound to one device and has one writer.
 * It counts units and their cost, submitted and completed, each in two parities. Words only grow (modulo 2^64).
 *
 * begin   counts up in the calling thread's lane under the parity that the lane's control word shows.
 * end     counts down in the calling thread's own lane, which need not be the lane the unit began on, under the unit's
 *         parity. So one lane's difference may be negative; the sum over a session's lanes of a device is what counts.
 * read    takes all completed, then all submitted, then all completed again. high = submitted - first completed is not
 *         below the truth at the instant between the first two passes; low = submitted - second completed is not above
 *         the truth at the instant after the second pass. Both are exact when nothing moves.
 * flush   per session and device, two phases as in SRCU: wait until the idle parity is empty, flip the control words,
 *         wait until the old parity is empty. New units go to the other parity, so the wait ends; what began before
 *         the flush is in one of the two, so nothing is missed. Completions may come in any order. A flush that died
 *         between two control words is finished by the next one (pinion_flush_start()).
 * death   the owner's liveness is not in the page: the module drops the page with its mapping, on the memfd ground an
 *         owner word is marked by the kernel (robust futex). The page of a dead owner is not summed.
 * takeover (memfd ground) sets completed and submitted of each lane to the larger of the two: nothing pends and no word
 *         went down.
 *
 * Ordering. A unit's begin happens before its work is made visible (the caller's hand-over is a release), and its end
 * stores completed with release. Readers load with acquire, so a completion that is seen brings its submission with it.
 */
#ifndef _UAPI_LINUX_PINION_COUNTERS_H
#define _UAPI_LINUX_PINION_COUNTERS_H

#include <linux/types.h>

#define PINION_COUNTERS_VERSION 1

#define PINION_LINE_BYTES 64
#define PINION_PAGE_LINES 64
#define PINION_CONTROL_LINES 8
#define PINION_LANES (PINION_PAGE_LINES - PINION_CONTROL_LINES)

/*
 * The primitives. A side that needs others (the checker) defines PINION_COUNTERS_PRIMITIVES and these five before it
 * includes this header. The first four act on naturally aligned __u32 and __u64.
 */
#ifndef PINION_COUNTERS_PRIMITIVES
#ifdef __KERNEL__
#include <asm/barrier.h>
#include <linux/compiler.h>
#define pinion_load(p) READ_ONCE(*(p))
#define pinion_load_acquire(p) smp_load_acquire(p)
#define pinion_store(p, v) WRITE_ONCE(*(p), v)
#define pinion_store_release(p, v) smp_store_release(p, v)
#define pinion_fence() smp_mb()
#else
#define pinion_load(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define pinion_load_acquire(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define pinion_store(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define pinion_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define pinion_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif
#endif

/* Written by flushers only. One for each line of the page; those of the control lines themselves are not used. */
struct pinion_control {
	__u32 epoch; /* bit 0 is the parity of new units */
	__u32 armed; /* someone sleeps for this lane's device */
};

struct pinion_count {
	__u64 ops;
	__u64 cost;
};

struct pinion_lane {
	struct pinion_count submitted[2];
	struct pinion_count completed[2];
};

struct pinion_counter_page {
	struct pinion_control control[PINION_PAGE_LINES];
	struct pinion_lane lane[PINION_LANES];
};

/* The control word of lane @l. */
static inline struct pinion_control *pinion_lane_control(struct pinion_counter_page *page, __u32 l)
{
	return &page->control[PINION_CONTROL_LINES + l];
}

/* Parities to look at. */
#define PINION_EVEN 1u
#define PINION_ODD 2u
#define PINION_BOTH 3u
#define PINION_PARITY(epoch) (((epoch) & 1) ? PINION_ODD : PINION_EVEN)

/* ---- begin, end: by the lane's one writer ------------------------------------------------------------------------ */

/* Counts a unit up; returns the parity that its end must be given. */
static inline __u32 pinion_lane_begin(const struct pinion_control *control, struct pinion_lane *lane, __u64 cost)
{
	__u32 parity = pinion_load(&control->epoch) & 1;
	struct pinion_count *c = &lane->submitted[parity];

	pinion_store(&c->cost, pinion_load(&c->cost) + cost);
	pinion_store(&c->ops, pinion_load(&c->ops) + 1);
	return parity;
}

/* Counts a unit down; returns non-zero when someone sleeps for it. */
static inline __u32 pinion_lane_end(const struct pinion_control *control, struct pinion_lane *lane, __u32 parity, __u64 cost)
{
	struct pinion_count *c = &lane->completed[parity];

	pinion_store_release(&c->cost, pinion_load(&c->cost) + cost);
	pinion_store_release(&c->ops, pinion_load(&c->ops) + 1);
	return pinion_load(&control->armed);
}

/* ---- read ---------------------------------------------------------------------------------------------------------- */

/* Units in @parities of one side of a lane, submitted or completed; its cost. */
static inline __u64 pinion_counts_ops(const struct pinion_count *count, __u32 parities)
{
	return ((parities & PINION_EVEN) ? pinion_load_acquire(&count[0].ops) : 0) +
	       ((parities & PINION_ODD) ? pinion_load_acquire(&count[1].ops) : 0);
}

static inline __u64 pinion_counts_cost(const struct pinion_count *count)
{
	return pinion_load_acquire(&count[0].cost) + pinion_load_acquire(&count[1].cost);
}

static inline __u64 pinion_lane_completed(const struct pinion_lane *lane, __u32 parities)
{
	return pinion_counts_ops(lane->completed, parities);
}

static inline __u64 pinion_lane_submitted(const struct pinion_lane *lane, __u32 parities)
{
	return pinion_counts_ops(lane->submitted, parities);
}

static inline __u64 pinion_lane_completed_cost(const struct pinion_lane *lane)
{
	return pinion_counts_cost(lane->completed);
}

static inline __u64 pinion_lane_submitted_cost(const struct pinion_lane *lane)
{
	return pinion_counts_cost(lane->submitted);
}

/* What is pending in @parities over @n lanes: not below the truth when the first pass ended. What waits use. */
static inline __s64 pinion_lanes_high(const struct pinion_lane *const *lane, __u32 n, __u32 parities)
{
	__u64 completed = 0, submitted = 0;
	__u32 i;

	for (i = 0; i < n; i++)
		completed += pinion_lane_completed(lane[i], parities);
	for (i = 0; i < n; i++)
		submitted += pinion_lane_submitted(lane[i], parities);
	return (__s64)(submitted - completed);
}

struct pinion_sum {
	__s64 low;
	__s64 high;
	__s64 cost_high;
	__u64 submitted;
};

/* One reading of @n lanes in three passes. */
static inline struct pinion_sum pinion_lanes_sum(const struct pinion_lane *const *lane, __u32 n)
{
	struct pinion_sum sum = { 0, 0, 0, 0 };
	__u64 first = 0, second = 0, cost = 0;
	__u32 i;

	for (i = 0; i < n; i++) {
		first += pinion_lane_completed(lane[i], PINION_BOTH);
		cost -= pinion_lane_completed_cost(lane[i]);
	}
	for (i = 0; i < n; i++) {
		sum.submitted += pinion_lane_submitted(lane[i], PINION_BOTH);
		cost += pinion_lane_submitted_cost(lane[i]);
	}
	for (i = 0; i < n; i++)
		second += pinion_lane_completed(lane[i], PINION_BOTH);
	sum.high = (__s64)(sum.submitted - first);
	sum.low = (__s64)(sum.submitted - second);
	sum.cost_high = (__s64)cost;
	return sum;
}

/* A session's share before it enters a total: never below 0, never above what the session may have in flight. */
static inline struct pinion_sum pinion_sum_clamp(struct pinion_sum sum, __u64 max_inflight)
{
	if (sum.low < 0)
		sum.low = 0;
	if (sum.high < 0)
		sum.high = 0;
	if ((__u64)sum.high > max_inflight)
		sum.high = (__s64)max_inflight;
	if (sum.low > sum.high)
		sum.low = sum.high;
	if (sum.cost_high < 0)
		sum.cost_high = 0;
	return sum;
}

/* ---- flush: by the one flusher of a session, over its lanes of one device ------------------------------------------ */

/*
 * Makes the control words agree, in case an earlier flusher died between two of them or a lane was added since; returns
 * the epoch they show. The idle parity is the one that this epoch does not name.
 */
static inline __u32 pinion_flush_start(struct pinion_control *const *control, __u32 n)
{
	__u32 epoch = 0;
	__u32 i;

	for (i = 0; i < n; i++) {
		__u32 e = pinion_load(&control[i]->epoch);

		if (i == 0 || (__s32)(e - epoch) > 0)
			epoch = e;
	}
	for (i = 0; i < n; i++)
		pinion_store(&control[i]->epoch, epoch);
	return epoch;
}

/* Moves new units of these lanes to the parity of @epoch. Called again for lanes that were added meanwhile. */
static inline void pinion_flush_flip(struct pinion_control *const *control, __u32 n, __u32 epoch)
{
	__u32 i;

	for (i = 0; i < n; i++)
		pinion_store(&control[i]->epoch, epoch);
}

static inline void pinion_flush_arm(struct pinion_control *const *control, __u32 n, __u32 armed)
{
	__u32 i;

	for (i = 0; i < n; i++)
		pinion_store(&control[i]->armed, armed);
}

/* ---- flush: by one who keeps looking, for many at once (the module), over a session's lanes of one device --------- */

/*
 * Flushes have numbers. Each turn of a session drains its idle parity, flips, and drains the other; it covers the flushes that
 * were begun before its flip. The epoch is kept here and only ever written to the control words.
 */
#define PINION_TURN_NONE 0
#define PINION_TURN_DRAIN_IDLE 1
#define PINION_TURN_DRAIN_OLD 2

struct pinion_turns {
	__u64 wanted;	/* the last flush that waits for this session */
	__u64 covering; /* the last one that the turn in progress will cover */
	__u64 covered;
	__u32 epoch; /* bit 0 is the parity of new units */
	__u32 state; /* PINION_TURN_* */
};

/* The parities that must be empty for the next step; 0: there is none to take. */
static inline __u32 pinion_turn_asks(const struct pinion_turns *t)
{
	if (t->state == PINION_TURN_NONE)
		return t->wanted > t->covered ? PINION_BOTH : 0;
	return PINION_PARITY(t->epoch + 1);
}

/*
 * The next step, where @empty says whether the parities that pinion_turn_asks() named were empty at an instant after flush
 * @flushes, the last one there is, began. 0: not before they are. Else to be called again; @show: the epoch must go to the
 * control words first.
 */
static inline int pinion_turn_step(struct pinion_turns *t, __u64 flushes, int empty, int *show)
{
	*show = 0;
	if (t->state == PINION_TURN_NONE) {
		t->covering = flushes;
		/* Nothing at all in flight is as good as a turn. */
		if (empty) {
			t->covered = flushes;
			return 1;
		}
		/* For a lane that was bound since, or a word that its writer spoiled. */
		*show = 1;
		t->state = PINION_TURN_DRAIN_IDLE;
		return 1;
	}
	if (!empty)
		return 0;
	if (t->state == PINION_TURN_DRAIN_IDLE) {
		t->covering = flushes;
		t->epoch++;
		*show = 1;
		t->state = PINION_TURN_DRAIN_OLD;
		return 1;
	}
	t->covered = t->covering;
	t->state = PINION_TURN_NONE;
	return 1;
}

/* ---- the memfd ground: who owns a page ----------------------------------------------------------------------------- */

/* The owner word is a robust futex: a thread id, and what the kernel puts there when that thread is gone. */
#define PINION_OWNER_TID 0x3fffffffu
#define PINION_OWNER_DIED 0x40000000u

static inline int pinion_owner_alive(__u32 word)
{
	return (word & PINION_OWNER_TID) && !(word & PINION_OWNER_DIED);
}

/* Takeover of one lane whose owner is dead: returns nothing pending, lowers no word. */
static inline void pinion_lane_retire(struct pinion_lane *lane)
{
	__u32 p;

	for (p = 0; p < 2; p++) {
		struct pinion_count *s = &lane->submitted[p], *c = &lane->completed[p];
		__u64 ops = pinion_load(&s->ops), cost = pinion_load(&s->cost);

		if ((__s64)(pinion_load(&c->ops) - ops) > 0)
			ops = pinion_load(&c->ops);
		if ((__s64)(pinion_load(&c->cost) - cost) > 0)
			cost = pinion_load(&c->cost);
		pinion_store(&s->cost, cost);
		pinion_store(&s->ops, ops);
		pinion_store_release(&c->cost, cost);
		pinion_store_release(&c->ops, ops);
	}
}

/*
 * The roster (which owner has which lane for which device) changes rarely. Its sequence is bumped before and after each
 * change that takes a lane from a device, and after each that adds one, before the lane's first unit. Readers whose reading
 * spans a bump read again, and a flusher whose session's lanes changed while it read them looks again: a unit may begin on
 * a lane that it did not see and end on one that it did.
 */
static inline void pinion_roster_bump(__u64 *seq)
{
	pinion_store_release(seq, pinion_load(seq) + 1);
	pinion_fence();
}

#endif
