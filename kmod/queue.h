/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * queue: what is known of one device: its key, what is in flight on it and who has claimed it. (The kernel has its own struct
 * device.)
 *
 * Lifetime: a reference each for a session that added it, a member, a claim, a waiter and whoever looks at it. With the last one
 * it leaves the table; DEV_DEL takes it out before that and marks it gone.
 *
 * Locking: queues_lock (queue.c) guards the table and is taken with nothing of ours held but session->lock. queue->lock, a mutex,
 * guards everything below it here, the members' counts, claims and waiters; it is innermost but for payer_lock and the info
 * page's, and nothing that faults is done under it: a counter page's unmapping takes it with mmap_lock held.
 */
#ifndef PINION_QUEUE_H
#define PINION_QUEUE_H

#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pinion.h>
#include <linux/uidgid.h>
#include <linux/workqueue.h>

struct payer;
struct session;

#define QUEUES_MAX 255U
/* Over all sessions, so that no reading is longer than this many lines times three. */
#define QUEUE_LANES_MAX 4096U
/* The last of them, for users who have none of the device yet, one each: nobody is refused because others have many. */
#define QUEUE_LANES_KEPT 512U

struct queue {
	struct kref refs;
	u32 index;
	u32 flags; /* PINION_DEV_* */
	u32 cost_unit;
	u64 generation;
	char key[PINION_KEY_BYTES];
	kuid_t uid;	     /* who added it */
	struct payer *payer; /* its user, who is charged for it */

	struct mutex lock;
	bool gone;
	u32 capacity;
	u64 budget;

	struct list_head members; /* struct member: sessions with lanes here */
	u32 nr_members;
	u32 nr_lanes;
	u32 nr_held; /* members whose counts are not all in their pages */
	u64 retired;
	u64 reclaimed;
	u64 past; /* keeps the cookie growing when a member leaves */

	struct list_head claims;
	u32 nr_claims;
	bool exclusive;
	u64 claimed_bytes;
	u64 claimed_units;

	/* wait.c */
	struct list_head waiters;
	u64 flushes;   /* flushes begun; members and waiters are older or younger by it */
	u64 seen;      /* the cookie at the last look */
	u64 tick_ns;   /* until the next one */
	bool ticked;   /* this look is the timer's */
	bool armed;    /* some member's control words say so */
	struct hrtimer timer;
	struct work_struct work;
};

/* With a reference. -ENOENT, and -ESTALE where @generation is not 0 and not that of the device there. */
struct queue *queue_find(u32 index, u64 generation);
struct queue *queue_ref(struct queue *queue);
void queue_put(struct queue *queue);

/* Under queue->lock: shows it in the info page as it is now. */
void queue_show(const struct queue *queue);
/* Whether the open of the call may change the device. */
struct call;
bool queue_is_own(const struct queue *queue, const struct call *call);

/* What a session has added, for as long as its file is open. */
void queue_release_adds(struct session *session);

/* Of every device there is, in the order of indices, with a reference each; NULL: no more. */
struct queue *queue_next(u32 from);

int queue_add(struct call *call);
int queue_get(struct call *call);
int queue_set(struct call *call);
int queue_del(struct call *call);
void queue_exit(void);

#endif
