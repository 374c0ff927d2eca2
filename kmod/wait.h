/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * wait: who waits for a queue, and the flushes that go on in it. One function, wait_settle(), looks at everything at once; it is
 * called by whoever may have changed something: the end of a unit that saw its lane armed (KICK), ADD, a session's end, a claim,
 * a poll, and a timer, since an end may have missed that its lane was just armed, and other users' lanes are never armed.
 *
 * Flushes. The queue counts them; a waiter's number is its own, a member's are those it is wanted for and has covered. Each
 * member drains its idle parity, flips, and drains the other: a turn. A turn covers the flushes that were begun before its flip.
 *
 * A look costs the members, the waiters, and the members once more for each user who waits for its own: waiters of a user stand
 * together on the list.
 *
 * Lifetime: a waiter has a reference on its queue and is on its list from wait_begin() to wait_end(). Fired, it stays on the list
 * and is not looked at again until wait_again().
 *
 * Locking: everything under queue->lock. fire() is called under it and must not block. The timer's handler queues work.
 */
#ifndef PINION_WAIT_H
#define PINION_WAIT_H

#include <linux/list.h>
#include <linux/pinion.h>
#include <linux/wait.h>

#include "queue.h"

struct call;
struct member;
struct payer;
struct session;

struct waiter {
	struct list_head node; /* queue->waiters; beside those of its user */
	struct queue *queue;
	struct payer *payer; /* of the opener; held and charged */
	u64 session; /* id of the open that made it */
	struct member *member; /* of that; NULL: it is none of the device's */
	u32 scope;
	u32 cond;
	u64 value;
	u64 flush; /* its number */

	bool fired;
	int status; /* 0, -ESTALE, -ETIMEDOUT */
	u64 high;
	u64 lost;
	u64 cookie;
	s64 deadline_ns; /* of those that the queue's timer wakes, S64_MAX: none */
	s32 culprit_units;
	struct pid *culprit; /* with a reference, of a wait that timed out */

	wait_queue_head_t head;
	bool asked;  /* somebody asks right now whether it has come to hold */
	bool polled; /* it waits only while somebody sleeps on head */
	void (*fire)(struct waiter *waiter); /* instead of waking head; NULL */
};

/* What WAIT and WATCH share: checks the arguments and finds the queue. */
int wait_make(struct waiter *waiter, struct session *session, const struct pinion_wait *args);
void wait_unmake(struct waiter *waiter);

/* Under queue->lock. */
void wait_begin(struct waiter *waiter);
void wait_again(struct waiter *waiter);
void wait_end(struct waiter *waiter);
void wait_settle(struct queue *queue);
/* A member comes, or leaves with @units in flight. */
void wait_joined(struct member *member);
void wait_left(struct member *member, u64 units);
/* Waiters of opens other than @but. */
bool wait_others(const struct queue *queue, const struct session *but);

void wait_init(struct queue *queue);
void wait_exit(struct queue *queue);

/* Settles now, or soon where somebody else has the queue. */
void wait_kick(struct queue *queue);

/* Writes what the waiter saw. */
void wait_tell(const struct waiter *waiter, struct pinion_wait *args);

int wait_call(struct call *call);
int watch_call(struct call *call);

#endif
