/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * lane: the calls that bind a line of a session's page to a device, and those that its handle is good for. What a lane is stands
 * in count.h, beside the member that it belongs to.
 *
 * Locking: a lane is made, found and taken away under session->lock, and bound and unbound under queue->lock too.
 */
#ifndef PINION_LANE_H
#define PINION_LANE_H

#include <linux/types.h>

struct call;
struct lane;
struct session;

/*
 * Under session->lock: gives a lane back. With the last one of the device the member leaves: how many units are given up by
 * that.
 */
u64 lane_drop(struct lane *lane);

/* Of one device, of one user. */
u32 lane_user_most(void);

int lane_attach(struct call *call);
int lane_detach(struct call *call);
int lane_reset(struct call *call);
int lane_add(struct call *call);
int lane_kick(struct call *call);

/* ADD with its arguments checked but for handle and sums; *@parity is given, or PINION_PARITY_NOW and comes back. */
int lane_count(struct session *session, u32 handle, s32 ops, s64 cost, u32 *parity);

#endif
