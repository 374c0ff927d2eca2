/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * claim: a share of a device's budget and capacity, held by a file.
 *
 * Lifetime: with its file; it has a reference on its queue. Locking: its place in the queue's list and the sums there are under
 * queue->lock; what it is worth does not change.
 */
#ifndef PINION_CLAIM_H
#define PINION_CLAIM_H

#include <linux/list.h>
#include <linux/pid.h>
#include <linux/types.h>

struct call;
struct payer;
struct queue;
struct session;

struct claim {
	struct list_head node; /* queue->claims */
	struct queue *queue;
	struct payer *payer;
	u64 session; /* id of the open that made it */
	u64 id;
	u64 bytes;
	u64 made_ns;
	u32 units;
	u32 flags;
	struct pid *maker;
};

/* Under queue->lock: claims made through opens other than @but. */
bool claim_others(const struct queue *queue, const struct session *but);

int claim_reserve(struct call *call);
int claim_info(struct call *call);

#endif
