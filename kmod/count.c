// SPDX-License-Identifier: GPL-2.0-only
#include "count.h"

#include <linux/bitops.h>
#include <linux/string.h>

#include "fault.h"
#include "pages.h"
#include "session.h"
#include "wait.h"

/* The first lane of a member from number *@nr on, which is its number then; NULL: no more. */
static struct lane *next_lane(const struct member *member, unsigned int *nr)
{
	u64 left = *nr < PINION_LANES ? member->lanes >> *nr : 0;

	if (!left)
		return NULL;
	*nr += __ffs64(left);
	return member->session->lane[*nr];
}

#define for_each_lane(member, nr, lane) \
	for (nr = 0, lane = next_lane(member, &nr); lane; nr++, lane = next_lane(member, &nr))

/* ---- words --------------------------------------------------------------------------------------------------------- */

static u64 completed_of(const struct member *member, u32 parities)
{
	u64 sum = pinion_counts_ops(member->own.completed, parities);
	const struct lane *lane;
	unsigned int nr;

	for_each_lane(member, nr, lane)
		sum += pinion_counts_ops(lane->completed, parities);
	return sum;
}

static u64 submitted_of(const struct member *member, u32 parities)
{
	u64 sum = pinion_counts_ops(member->own.submitted, parities);
	const struct lane *lane;
	unsigned int nr;

	for_each_lane(member, nr, lane)
		sum += pinion_counts_ops(lane->words->submitted, parities);
	return sum;
}

/* Completed first, as with units. */
static s64 cost_of(const struct member *member)
{
	u64 completed = pinion_counts_cost(member->own.completed), submitted = pinion_counts_cost(member->own.submitted);
	const struct lane *lane;
	unsigned int nr;

	for_each_lane(member, nr, lane)
		completed += pinion_counts_cost(lane->completed);
	for_each_lane(member, nr, lane)
		submitted += pinion_counts_cost(lane->words->submitted);
	return submitted - completed;
}

s64 count_high(const struct member *member, u32 parities)
{
	u64 completed = completed_of(member, parities);

	lockdep_assert_held(&member->queue->lock);
	return submitted_of(member, parities) - completed;
}

/* ---- sums ---------------------------------------------------------------------------------------------------------- */

static void pass_first(struct member *member)
{
	member->first = completed_of(member, PINION_BOTH);
}

static void pass_second(struct member *member)
{
	member->sum.submitted = submitted_of(member, PINION_BOTH);
	member->sum.cost_high = cost_of(member);
}

/* Marks with the words as they are, then bounds them. What the second pass over the completed words gave comes back. */
static u64 pass_third(struct member *member)
{
	u64 completed = completed_of(member, PINION_BOTH);
	struct pinion_sum sum = member->sum;

	sum.high = sum.submitted - member->first;
	sum.low = sum.submitted - completed;
	if (sum.high < 0 || sum.low > (s64)min_t(u64, member->max_inflight, S64_MAX))
		member->marked = true;
	member->sum = pinion_sum_clamp(sum, min_t(u64, member->max_inflight, S64_MAX));
	if ((u64)member->sum.cost_high > member->max_cost)
		member->sum.cost_high = member->max_cost;
	return completed;
}

void count_read_one(struct member *member)
{
	lockdep_assert_held(&member->queue->lock);
	pass_first(member);
	pass_second(member);
	pass_third(member);
}

void count_read(struct queue *queue, struct totals *totals)
{
	struct member *member;

	lockdep_assert_held(&queue->lock);
	*totals = (struct totals){ .cookie = queue->past };
	list_for_each_entry(member, &queue->members, node)
		pass_first(member);
	fault_pass(2);
	list_for_each_entry(member, &queue->members, node)
		pass_second(member);
	fault_pass(3);
	list_for_each_entry(member, &queue->members, node) {
		totals->cookie += pass_third(member) + member->sum.submitted;
		totals->low += member->sum.low;
		totals->high += member->sum.high;
		totals->cost += member->sum.cost_high;
		totals->submitted += member->sum.submitted;
		totals->marked += member->marked;
	}
}

/* ---- control words ------------------------------------------------------------------------------------------------- */

void count_show_epoch(struct member *member)
{
	struct pinion_counter_page *page = session_counters(member->session);
	unsigned int nr;

	lockdep_assert_held(&member->queue->lock);
	for (nr = 0; nr < PINION_LANES; nr++)
		if (member->lanes >> nr & 1)
			pinion_store(&pinion_lane_control(page, nr)->epoch, member->turns.epoch);
}

void count_show_armed(struct member *member, bool armed)
{
	struct pinion_counter_page *page = session_counters(member->session);
	unsigned int nr;

	lockdep_assert_held(&member->queue->lock);
	member->armed = armed;
	for (nr = 0; nr < PINION_LANES; nr++)
		if (member->lanes >> nr & 1)
			pinion_store(&pinion_lane_control(page, nr)->armed, armed);
}

/* ---- lanes --------------------------------------------------------------------------------------------------------- */

void count_join(struct member *member)
{
	struct queue *queue = member->queue;

	lockdep_assert_held(&queue->lock);
	member->turns.covered = queue->flushes;
	list_add_tail(&member->node, &queue->members);
	queue->nr_members++;
	wait_joined(member);
}

static u64 saturating(u64 a, u64 b)
{
	return a + b < a ? U64_MAX : a + b;
}

/* With another lane. Units of lanes that were given back may be in flight: their bounds go when nothing is. */
static void bounds(struct member *member, const struct lane *fresh)
{
	const struct lane *lane;
	unsigned int nr;

	if (count_high(member, PINION_BOTH) <= 0) {
		member->max_inflight = 0;
		member->max_cost = 0;
		for_each_lane(member, nr, lane) {
			member->max_inflight += lane->max_inflight;
			member->max_cost = saturating(member->max_cost, lane->max_cost ?: U64_MAX);
		}
	} else {
		member->max_inflight += fresh->max_inflight;
		member->max_cost = saturating(member->max_cost, fresh->max_cost ?: U64_MAX);
	}
	member->max_inflight = min_t(u64, member->max_inflight, (u64)PINION_LANES * SESSION_INFLIGHT_MAX);
}

void count_hold(struct member *member)
{
	const struct lane *lane;
	unsigned int nr;
	/* Units may balance where their costs do not: others may have ended on other lanes. */
	bool held = member->adds ||
		    pinion_lane_submitted(&member->own, PINION_BOTH) != pinion_lane_completed(&member->own, PINION_BOTH) ||
		    pinion_lane_submitted_cost(&member->own) != pinion_lane_completed_cost(&member->own);

	lockdep_assert_held(&member->queue->lock);
	member->elsewhere = false;
	for_each_lane(member, nr, lane)
		member->elsewhere |= !!lane->pages;
	held |= member->elsewhere;
	member->queue->nr_held += held - member->held;
	member->held = held;
}

void count_bind(struct member *member, struct lane *lane, unsigned int nr)
{
	struct pinion_control *control = pinion_lane_control(session_counters(member->session), nr);

	lockdep_assert_held(&member->queue->lock);
	lane->member = member;
	/* Whatever its owner has put there; a device's words count from what they are. */
	memset(lane->words, 0, sizeof(*lane->words));
	if (lane->pages) {
		u32 p;

		for (p = 0; p < 2; p++) {
			member->own.completed[p].ops -= pinion_load(&lane->completed[p].ops);
			member->own.completed[p].cost -= pinion_load(&lane->completed[p].cost);
		}
	}
	member->session->lane[nr] = lane;
	member->lanes |= BIT_ULL(nr);
	member->queue->nr_lanes++;
	pinion_store(&control->epoch, member->turns.epoch);
	pinion_store(&control->armed, member->armed);
	bounds(member, lane);
	count_hold(member);
}

static void add_counts(struct pinion_count *to, const struct pinion_count *from)
{
	u32 p;

	for (p = 0; p < 2; p++) {
		to[p].ops += pinion_load_acquire(&from[p].ops);
		to[p].cost += pinion_load_acquire(&from[p].cost);
	}
}

void count_unbind(struct member *member, struct lane *lane, unsigned int nr)
{
	lockdep_assert_held(&member->queue->lock);
	add_counts(member->own.completed, lane->completed);
	add_counts(member->own.submitted, lane->words->submitted);
	member->lanes &= ~BIT_ULL(nr);
	member->session->lane[nr] = NULL;
	member->queue->nr_lanes--;
	/* What is read of it from now on by those who see the page: nothing. */
	memset(lane->words, 0, sizeof(*lane->words));
	/* The bounds stay: units of the lane may end on others. */
	count_hold(member);
}

u64 count_forget(struct member *member)
{
	s64 forgotten = 0, in_parity;
	s64 cost = cost_of(member);
	u32 p;

	lockdep_assert_held(&member->queue->lock);
	for (p = 0; p < 2; p++) {
		in_parity = count_high(member, p ? PINION_ODD : PINION_EVEN);
		member->own.completed[p].ops += in_parity;
		forgotten += in_parity;
		member->added[p] = 0;
		member->added_cost[p] = 0;
	}
	member->own.completed[0].cost += cost;
	count_hold(member);
	return clamp_t(s64, forgotten, 0, min_t(u64, member->max_inflight, S64_MAX));
}

u64 count_leave(struct member *member)
{
	struct queue *queue = member->queue;

	lockdep_assert_held(&queue->lock);
	count_read_one(member);
	queue->retired += member->sum.submitted;
	queue->reclaimed += member->sum.high;
	queue->past += 2 * member->sum.submitted + 1;
	wait_left(member, member->sum.high);
	list_del(&member->node);
	queue->nr_members--;
	queue->nr_held -= member->held;
	return member->sum.high;
}

bool count_others(const struct queue *queue, const struct session *but)
{
	const struct member *member;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry(member, &queue->members, node)
		if (member->session != but)
			return true;
	return false;
}

u32 count_lanes(const struct queue *queue, const struct payer *payer)
{
	const struct member *member;
	u32 lanes = 0;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry(member, &queue->members, node)
		if (member->session->payer == payer)
			lanes += hweight64(member->lanes);
	return lanes;
}

struct member *count_of(const struct queue *queue, const struct session *session)
{
	struct member *member;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry(member, &queue->members, node)
		if (member->session == session)
			return member;
	return NULL;
}
