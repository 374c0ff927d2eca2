// SPDX-License-Identifier: GPL-2.0-only
#include "lane.h"

#include <linux/bitops.h>
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/slab.h>

#include "call.h"
#include "count.h"
#include "fault.h"
#include "info.h"
#include "pages.h"
#include "queue.h"
#include "session.h"
#include "slice.h"
#include "table.h"
#include "wait.h"

/* A handle is a lane's number and a serial above it. */
#define HANDLE_LANE_BITS 6
#define HANDLE_LANE_MASK (BIT(HANDLE_LANE_BITS) - 1)
static_assert(PINION_LANES <= HANDLE_LANE_MASK);

static unsigned int max_user_lanes = QUEUE_LANES_MAX / 2;
module_param(max_user_lanes, uint, 0644);
MODULE_PARM_DESC(max_user_lanes, "lanes of one device that one user may have, over all its sessions");

u32 lane_user_most(void)
{
	return min(READ_ONCE(max_user_lanes), QUEUE_LANES_MAX - QUEUE_LANES_KEPT);
}

/* Under session->lock. */
static struct lane *lane_of(struct session *session, u32 handle)
{
	unsigned int nr = handle & HANDLE_LANE_MASK;
	struct lane *lane;

	lockdep_assert_held(&session->lock);
	if (session->state == SESSION_ENDED)
		return ERR_PTR(-EOWNERDEAD);
	if (nr >= PINION_LANES)
		return ERR_PTR(-EINVAL);
	lane = session->lane[array_index_nospec(nr, PINION_LANES)];
	return lane && lane->handle == handle ? lane : ERR_PTR(-EINVAL);
}

static void lane_free(struct lane *lane)
{
	if (lane->pages)
		pages_put(lane->pages);
	kfree(lane);
}

static void member_free(struct member *member)
{
	table_remove(&table_members, member->id);
	queue_put(member->queue);
	kfree(member);
}

u64 lane_drop(struct lane *lane)
{
	struct member *member = lane->member;
	struct queue *queue = member->queue;
	u64 units = 0;
	bool last;

	mutex_lock(&queue->lock);
	info_bump();
	count_unbind(member, lane, lane->handle & HANDLE_LANE_MASK);
	last = !member->lanes;
	if (last)
		units = count_leave(member);
	queue_show(queue);
	info_bump();
	wait_settle(queue);
	mutex_unlock(&queue->lock);
	lane_free(lane);
	if (last)
		member_free(member);
	return units;
}

/* ---- ATTACH -------------------------------------------------------------------------------------------------------- */

/* Where the lane's completed words lie. */
static int lane_elsewhere(struct lane *lane, const struct pinion_attach *args)
{
	struct dma_buf *dmabuf = dma_buf_get(args->completed_fd);
	u64 at = args->completed_off, bytes = sizeof(struct pinion_count) * 2;
	const struct slice *slice;
	int ret = -EINVAL;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	slice = slice_of(dmabuf);
	if (slice && !(at % bytes) && at < (u64)slice->nr << PAGE_SHIFT) {
		lane->pages = pages_get(slice->pages);
		lane->completed = page_address(pages_page(slice->pages, slice->first + (at >> PAGE_SHIFT))) + offset_in_page(at);
		ret = 0;
	}
	dma_buf_put(dmabuf);
	return ret;
}

static struct lane *lane_new(const struct pinion_attach *args)
{
	struct lane *lane = fault_here() ? NULL : kzalloc(sizeof(*lane), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	int ret = 0;

	if (!lane)
		return ERR_PTR(-ENOMEM);
	lane->max_inflight = args->max_inflight;
	lane->max_cost = args->max_cost;
	if (args->flags & PINION_ATTACH_COMPLETED_FD)
		ret = lane_elsewhere(lane, args);
	if (!ret)
		return lane;
	kfree(lane);
	return ERR_PTR(ret);
}

/* Uses up the queue's reference, also when it fails. */
static struct member *member_new(struct session *session, struct queue *queue)
{
	struct member *member = fault_here() ? NULL : kzalloc(sizeof(*member), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	int ret = -ENOMEM;

	if (member)
		ret = table_reserve(&table_members, &member->id);
	if (ret) {
		kfree(member);
		queue_put(queue);
		return ERR_PTR(ret);
	}
	member->session = session;
	member->queue = queue;
	return member;
}

/* A free lane: the one asked for, or one whose number differs from session to session, for the readers' caches. */
static int choose_lane(const struct session *session, const struct pinion_attach *args)
{
	unsigned int i, nr;

	if (args->flags & PINION_ATTACH_LANE)
		return session->lane[array_index_nospec(args->lane, PINION_LANES)] ? -EBUSY : args->lane;
	for (i = 0; i < PINION_LANES; i++) {
		nr = (session->id + i) % PINION_LANES;
		if (!session->lane[nr])
			return nr;
	}
	return -ENOSPC;
}

/* Under queue->lock: whether the user may have one more. */
static bool lane_allowed(const struct queue *queue, const struct payer *payer)
{
	u32 own = count_lanes(queue, payer);

	return own < lane_user_most() && queue->nr_lanes < QUEUE_LANES_MAX - (own ? QUEUE_LANES_KEPT : 0);
}

/* Under session->lock: the lane is the device's, through the member there is or @fresh. *@joined: @fresh it was. */
static int bind(struct session *session, struct lane *lane, struct member *fresh, unsigned int nr, bool *joined)
{
	struct queue *queue = fresh->queue;
	struct member *member;
	int ret = 0;

	mutex_lock(&queue->lock);
	if (queue->gone)
		ret = -ESTALE;
	else if (!lane_allowed(queue, session->payer))
		ret = -ENOSPC;
	if (!ret) {
		member = count_of(queue, session);
		*joined = !member;
		if (!member) {
			member = fresh;
			count_join(member);
		}
		info_bump();
		count_bind(member, lane, nr);
		queue_show(queue);
		info_bump();
	}
	mutex_unlock(&queue->lock);
	return ret;
}

static int attach(struct session *session, struct lane *lane, struct member *fresh, struct pinion_attach *args, bool *joined)
{
	int nr, ret;

	nr = choose_lane(session, args);
	if (nr < 0)
		return nr;
	/* 26 bits of serial, never 0. */
	session->serial = session->serial % ((1U << (32 - HANDLE_LANE_BITS)) - 1) + 1;
	lane->handle = session->serial << HANDLE_LANE_BITS | nr;
	lane->words = &session_counters(session)->lane[nr];
	if (!lane->completed)
		lane->completed = lane->words->completed;
	ret = bind(session, lane, fresh, nr, joined);
	if (ret)
		return ret;
	WRITE_ONCE(session->shown, true);
	args->handle = lane->handle;
	args->lane = nr;
	return 0;
}

static bool attach_ok(const struct pinion_attach *args)
{
	bool elsewhere = args->flags & PINION_ATTACH_COMPLETED_FD;

	return !(args->flags & ~(PINION_ATTACH_COMPLETED_FD | PINION_ATTACH_LANE)) && !args->handle && !args->reserved &&
	       args->generation && args->max_inflight && args->max_inflight <= SESSION_INFLIGHT_MAX &&
	       (args->flags & PINION_ATTACH_LANE ? args->lane < PINION_LANES : !args->lane) &&
	       (elsewhere || (args->completed_fd == -1 && !args->completed_off));
}

int lane_attach(struct call *call)
{
	struct session *session = call->session;
	struct pinion_attach *args = &call->attach;
	struct member *member;
	struct queue *queue;
	struct lane *lane;
	bool joined = false, fresh;
	int ret;

	if (!attach_ok(args))
		return -EINVAL;
	queue = queue_find(args->index, args->generation);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	if (queue->flags & PINION_DEV_SYNC) {
		queue_put(queue);
		return -ENODATA;
	}
	member = member_new(session, queue);
	if (IS_ERR(member))
		return PTR_ERR(member);
	lane = lane_new(args);
	if (IS_ERR(lane)) {
		member_free(member);
		return PTR_ERR(lane);
	}
	mutex_lock(&session->lock);
	fresh = !session->page;
	ret = session->state == SESSION_ENDED ? -EOWNERDEAD : session_need(session);
	if (!ret) {
		ret = attach(session, lane, member, args, &joined);
		if (ret && fresh)
			session_unneed(session);
	}
	if (joined) {
		table_publish(&table_members, member->id, member);
		/* Who listed after the lane was bound and before this did not see it. */
		info_bump();
	}
	mutex_unlock(&session->lock);
	if (ret)
		lane_free(lane);
	if (!joined)
		member_free(member);
	return ret;
}

/* ---- what a lane's handle is good for ------------------------------------------------------------------------------ */

/* Under session->lock. */
static int detach(struct call *call, struct lane *lane)
{
	call->handle.out_units = lane_drop(lane);
	return 0;
}

static int reset(struct call *call, struct lane *lane)
{
	struct queue *queue = lane->member->queue;
	int ret = -ESTALE;

	mutex_lock(&queue->lock);
	if (!queue->gone) {
		info_bump();
		call->handle.out_units = count_forget(lane->member);
		queue_show(queue);
		info_bump();
		wait_settle(queue);
		ret = 0;
	}
	mutex_unlock(&queue->lock);
	return ret;
}

static int kick(struct call *call, struct lane *lane)
{
	if (READ_ONCE(lane->member->queue->gone))
		return -ESTALE;
	wait_kick(lane->member->queue);
	return 0;
}

/* @run on the lane that the call's handle names. */
static int on_lane(struct call *call, int (*run)(struct call *call, struct lane *lane))
{
	const struct pinion_handle *args = &call->handle;
	struct lane *lane;
	int ret;

	if (args->flags || args->reserved || args->out_units)
		return -EINVAL;
	mutex_lock(&call->session->lock);
	lane = lane_of(call->session, args->handle);
	ret = IS_ERR(lane) ? PTR_ERR(lane) : run(call, lane);
	mutex_unlock(&call->session->lock);
	return ret;
}

int lane_detach(struct call *call)
{
	return on_lane(call, detach);
}

int lane_reset(struct call *call)
{
	return on_lane(call, reset);
}

int lane_kick(struct call *call)
{
	return on_lane(call, kick);
}

/* ---- ADD ----------------------------------------------------------------------------------------------------------- */

static int count_begin(struct member *member, u32 parity, u32 ops, u64 cost)
{
	struct pinion_count *to = &member->own.submitted[parity];
	s64 inflight = count_high(member, PINION_BOTH);

	/* With those of the page: what is beyond the bound would be cut from every sum, and the session marked. */
	if (max_t(s64, inflight, member->added[0] + member->added[1]) + ops > member->max_inflight)
		return -ENOSPC;
	member->added[parity] += ops;
	member->added_cost[parity] += cost;
	to->cost += cost;
	to->ops += ops;
	return 0;
}

static int count_end(struct member *member, u32 parity, u32 ops, u64 cost)
{
	struct pinion_count *to = &member->own.completed[parity];

	if (ops > member->added[parity] || cost > member->added_cost[parity])
		return -EINVAL;
	member->added[parity] -= ops;
	member->added_cost[parity] -= cost;
	to->cost += cost;
	to->ops += ops;
	return 0;
}

static int count_add(struct member *member, s32 ops, s64 cost, u32 *parity)
{
	struct queue *queue = member->queue;
	int ret;

	lockdep_assert_held(&queue->lock);
	if (queue->gone)
		return -ESTALE;
	if (*parity == PINION_PARITY_NOW)
		*parity = member->turns.epoch & 1;
	ret = ops > 0 ? count_begin(member, *parity, ops, cost) : count_end(member, *parity, -ops, -cost);
	if (ret)
		return ret;
	if (!member->adds) {
		member->adds = true;
		count_hold(member);
		queue_show(queue);
		/* Who reads pages alone is told that this one's is not all of it. */
		info_bump();
	}
	wait_settle(queue);
	return 0;
}

int lane_count(struct session *session, u32 handle, s32 ops, s64 cost, u32 *parity)
{
	struct lane *lane;
	int ret;

	if (!ops || ops == S32_MIN || (ops > 0 ? cost < 0 : cost > 0) || cost == S64_MIN || *parity > PINION_PARITY_NOW ||
	    (*parity == PINION_PARITY_NOW && ops < 0))
		return -EINVAL;
	mutex_lock(&session->lock);
	lane = lane_of(session, handle);
	if (IS_ERR(lane)) {
		ret = PTR_ERR(lane);
	} else {
		mutex_lock(&lane->member->queue->lock);
		ret = count_add(lane->member, ops, cost, parity);
		mutex_unlock(&lane->member->queue->lock);
	}
	mutex_unlock(&session->lock);
	return ret;
}

int lane_add(struct call *call)
{
	struct pinion_add *args = &call->add;

	if (args->flags || args->reserved || args->out_parity || args->reserved_out)
		return -EINVAL;
	args->out_parity = args->parity;
	return lane_count(call->session, args->handle, args->ops, args->cost, &args->out_parity);
}
