/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * count: a session's share in a queue, and sums over them. The protocol is that of <linux/pinion_counters.h>; what is here says
 * which words are whose.
 *
 * Locking: all of it under queue->lock. A member and its lanes are made and taken away under session->lock too, which is
 * therefore enough to follow a lane to its queue.
 */
#ifndef PINION_COUNT_H
#define PINION_COUNT_H

#include <linux/list.h>
#include <linux/pinion.h>
#include <linux/pinion_counters.h>

#include "queue.h"

struct pages;
struct payer;
struct session;

/* A line of the session's page, bound to a device. */
struct lane {
	struct member *member;
	u32 handle;
	u32 max_inflight;
	u64 max_cost;
	struct pinion_lane *words;	     /* in the session's page */
	const struct pinion_count *completed; /* of both parities: in words, or in a buffer that a device writes */
	struct pages *pages;		     /* that buffer's, held; NULL: words */
};

struct member {
	struct list_head node; /* queue->members */
	struct queue *queue;   /* held */
	struct session *session;
	u64 id; /* for LIST */
	u64 lanes;
	u64 max_inflight; /* sums over lanes: see bounds() */
	u64 max_cost;
	bool marked; /* its words could not be true, once */
	bool adds;   /* it has used ADD */
	bool held;   /* readers of the page alone miss something: count_hold() */
	bool elsewhere; /* some lane's completed words are not in the page */

	struct pinion_lane own; /* a lane of the kernel's: ADD, and what lanes had counted that were given back */
	u64 added[2];		/* begun by ADD and not ended, by parity, and their cost */
	u64 added_cost[2];

	bool armed; /* as the control words show it; they are never read back, nor for the epoch */
	struct pinion_turns turns; /* who comes has covered the flushes that were begun before */

	/* Of the last count_read(). */
	struct pinion_sum sum;	   /* clamped */
	u64 first;
};

struct totals {
	u64 low, high, cost, submitted, cookie;
	u32 marked;
};

/* Three passes over every lane: fills each member's sum. */
void count_read(struct queue *queue, struct totals *totals);
/* One member alone. */
void count_read_one(struct member *member);
/* In flight in @parities, not clamped: 0 or less is empty. */
s64 count_high(const struct member *member, u32 parities);

/* Writes the parity of new units, and whether somebody sleeps, to every lane's control word. */
void count_show_epoch(struct member *member);
void count_show_armed(struct member *member, bool armed);

/* The member joins the queue; -ENOSPC is the caller's to check. */
void count_join(struct member *member);
void count_bind(struct member *member, struct lane *lane, unsigned int nr);
/* What the lane counted stays in member->own. */
void count_unbind(struct member *member, struct lane *lane, unsigned int nr);
/* Finds out anew what held is. */
void count_hold(struct member *member);
/* Forgets what is in flight; how much. */
u64 count_forget(struct member *member);
/* Leaves; what is in flight is given up: how much. */
u64 count_leave(struct member *member);

/* Members of sessions other than @but. */
bool count_others(const struct queue *queue, const struct session *but);
/* Lanes that a user has. */
u32 count_lanes(const struct queue *queue, const struct payer *payer);
/* The member of a session; NULL. */
struct member *count_of(const struct queue *queue, const struct session *session);

#endif
