// SPDX-License-Identifier: GPL-2.0-only
#include "session.h"

#include <linux/bitops.h>
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "call.h"
#include "compat.h"
#include "count.h"
#include "fault.h"
#include "info.h"
#include "pages.h"
#include "queue.h"
#include "slice.h"
#include "table.h"
#include "wait.h"

static bool window_group;
module_param(window_group, bool, 0444);
MODULE_PARM_DESC(window_group, "who may open the device may map every user's counter pages, read-only; default no: one's own user's");

/* A handle is a lane's number and a serial above it. */
#define HANDLE_LANE_BITS 6
#define HANDLE_LANE_MASK (BIT(HANDLE_LANE_BITS) - 1)
static_assert(PINION_LANES <= HANDLE_LANE_MASK);

/* ---- lanes --------------------------------------------------------------------------------------------------------- */

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

/* Gives a lane back. With the last one of the device the member leaves: how many units are given up by that. */
static u64 lane_drop(struct session *session, struct lane *lane)
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

/* Nothing of it counts from here on, and who sees its page reads zero. */
static void session_end(struct session *session)
{
	unsigned int nr;

	lockdep_assert_held(&session->lock);
	if (session->state == SESSION_ENDED)
		return;
	WRITE_ONCE(session->state, SESSION_ENDED);
	for (nr = 0; nr < PINION_LANES; nr++)
		if (session->lane[nr])
			lane_drop(session, session->lane[nr]);
	if (session->page) {
		info_bump();
		clear_page(page_address(session->page));
		info_bump();
	}
}

/* Under session->lock: it has a page from now on. */
static int session_need(struct session *session)
{
	struct page *page;
	int ret;

	lockdep_assert_held(&session->lock);
	if (session->page)
		return 0;
	ret = payer_add(session->payer, PAYER_SESSIONS);
	if (ret)
		return ret;
	page = fault_here() ? NULL : alloc_page(GFP_KERNEL_ACCOUNT | GFP_MAYFAIL | __GFP_ZERO);
	if (!page) {
		payer_remove(session->payer, PAYER_SESSIONS);
		return -ENOMEM;
	}
	session->pid = get_task_pid(current, PIDTYPE_TGID);
	get_task_comm(session->comm, current->group_leader);
	session->since_ns = ktime_get_boottime_ns();
	WRITE_ONCE(session->page, page);
	return 0;
}

/* Under session->lock: what session_need() did, undone. Who finds the page for a window has a reference before it is gone. */
static void session_unneed(struct session *session)
{
	struct page *page = session->page;

	lockdep_assert_held(&session->lock);
	table_find(&table_sessions, session->id);
	WRITE_ONCE(session->page, NULL);
	table_found(&table_sessions);
	put_page(page);
	put_pid(session->pid);
	session->pid = NULL;
	payer_remove(session->payer, PAYER_SESSIONS);
}

/* Under session->lock: it is the calling process's from now on. Who attached before may have been the parent. */
static void session_hand_over(struct session *session)
{
	struct pid *pid = get_task_pid(current, PIDTYPE_TGID);

	/* LIST reads both under this one. */
	mutex_lock(&table_members.lock);
	session->former = session->pid;
	WRITE_ONCE(session->pid, pid);
	get_task_comm(session->comm, current->group_leader);
	mutex_unlock(&table_members.lock);
}

/* ---- open, close --------------------------------------------------------------------------------------------------- */

int session_open(struct inode *inode, struct file *file)
{
	struct session *session = fault_here() ? NULL : kzalloc(sizeof(*session), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);

	if (!session)
		return -ENOMEM;
	mutex_init(&session->lock);
	INIT_LIST_HEAD(&session->adds);
	session->payer = payer_get(file->f_cred);
	if (!session->payer)
		goto err_free;
	if (table_reserve(&table_sessions, &session->id))
		goto err_payer;
	table_publish(&table_sessions, session->id, session);
	file->private_data = session;
	return nonseekable_open(inode, file);

err_payer:
	payer_put(session->payer);
err_free:
	kfree(session);
	return -ENOMEM;
}

int session_release(struct inode *inode, struct file *file)
{
	struct session *session = file->private_data;

	mutex_lock(&session->lock);
	session_end(session);
	mutex_unlock(&session->lock);
	table_remove(&table_sessions, session->id);
	queue_release_adds(session);
	if (session->page) {
		put_page(session->page);
		put_pid(session->pid);
		put_pid(session->former);
		payer_remove(session->payer, PAYER_SESSIONS);
	}
	payer_put(session->payer);
	kfree(session);
	return 0;
}

/* ---- mappings ------------------------------------------------------------------------------------------------------ */

static void counters_opened(struct vm_area_struct *vma)
{
	struct session *session = vma->vm_private_data;

	mutex_lock(&session->lock);
	session->maps++;
	mutex_unlock(&session->lock);
}

/* The pages are out of the tables by now: nobody writes them any more. */
static void counters_closed(struct vm_area_struct *vma)
{
	struct session *session = vma->vm_private_data;

	mutex_lock(&session->lock);
	if (!--session->maps)
		session_end(session);
	mutex_unlock(&session->lock);
}

static int counters_stay(struct vm_area_struct *vma)
{
	return -EINVAL;
}

/* Present from the start, but who takes it from its own tables gets it back. */
static vm_fault_t counters_fault(struct vm_fault *vmf)
{
	const struct session *session = vmf->vma->vm_private_data;

	get_page(session->page);
	vmf->page = session->page;
	return 0;
}

static const struct vm_operations_struct counters_vm_ops = {
	.open = counters_opened,
	.close = counters_closed,
	.mremap = counters_stay,
	.fault = counters_fault,
};

/* A window's mapping has the page, whatever becomes of its session. */
static void window_opened(struct vm_area_struct *vma)
{
	get_page(vma->vm_private_data);
}

static void window_closed(struct vm_area_struct *vma)
{
	put_page(vma->vm_private_data);
}

static vm_fault_t window_fault(struct vm_fault *vmf)
{
	struct page *page = vmf->vma->vm_private_data;

	get_page(page);
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct window_vm_ops = {
	.open = window_opened,
	.close = window_closed,
	.fault = window_fault,
};

/*
 * VM_IO keeps everybody from pinning the page: it must be free of writers when its mapping is gone. One page, so there is
 * nothing to split; a child has none of it.
 */
static int counters_mmap(struct session *session, struct vm_area_struct *vma)
{
	bool fresh;
	int ret;

	if (vma_pages(vma) != 1)
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EACCES;
	mutex_lock(&session->lock);
	fresh = !session->page;
	ret = session->state == SESSION_ENDED ? -EOWNERDEAD : session->state == SESSION_MAPPED ? -EBUSY : session_need(session);
	if (!ret) {
		compat_vm_flags_mod(vma, VM_IO | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYEXEC);
		ret = fault_here() ? -ENOMEM : vm_insert_page(vma, vma->vm_start, session->page);
	}
	if (!ret) {
		vma->vm_private_data = session;
		vma->vm_ops = &counters_vm_ops;
		WRITE_ONCE(session->state, SESSION_MAPPED);
		session->maps = 1;
		WRITE_ONCE(session->shown, true);
		session_hand_over(session);
	} else if (fresh && session->page) {
		session_unneed(session);
	}
	mutex_unlock(&session->lock);
	return ret;
}

/* The page of a living session, with a reference. */
static struct page *window_page(const struct session *reader, u64 id)
{
	struct session *session = table_find(&table_sessions, id);
	struct page *page;

	if (!session)
		return ERR_PTR(-ENOENT);
	page = READ_ONCE(session->page);
	if (session->payer != reader->payer && !window_group)
		page = ERR_PTR(-EACCES);
	else if (!page || !READ_ONCE(session->shown) || READ_ONCE(session->state) == SESSION_ENDED)
		page = ERR_PTR(-ENOENT);
	else
		get_page(page);
	table_found(&table_sessions);
	return page;
}

/* A session's number is never used again, so that what is mapped stays its page, and reads zero when it has ended. */
static int window_mmap(struct session *session, struct vm_area_struct *vma)
{
	struct page *page;
	int ret;

	if (vma_pages(vma) != 1)
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EACCES;
	page = window_page(session, vma->vm_pgoff - (PINION_MMAP_WINDOW >> PAGE_SHIFT));
	if (IS_ERR(page))
		return PTR_ERR(page);
	compat_vm_flags_mod(vma, VM_IO | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE | VM_MAYEXEC | VM_SHARED);
	ret = fault_here() ? -ENOMEM : vm_insert_page(vma, vma->vm_start, page);
	if (ret) {
		put_page(page);
		return ret;
	}
	vma->vm_private_data = page;
	vma->vm_ops = &window_vm_ops;
	return 0;
}

int session_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct session *session = file->private_data;

	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	if (vma->vm_pgoff == PINION_MMAP_COUNTERS >> PAGE_SHIFT)
		return counters_mmap(session, vma);
	if (vma->vm_pgoff == PINION_MMAP_INFO >> PAGE_SHIFT)
		return info_mmap(vma);
	if (vma->vm_pgoff >= PINION_MMAP_WINDOW >> PAGE_SHIFT)
		return window_mmap(session, vma);
	return -EINVAL;
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

/* Under session->lock: the lane is the device's, through the member there is or @fresh. *@joined: @fresh it was. */
static int bind(struct session *session, struct lane *lane, struct member *fresh, unsigned int nr, bool *joined)
{
	struct queue *queue = fresh->queue;
	struct member *member;
	int ret = 0;

	mutex_lock(&queue->lock);
	if (queue->gone)
		ret = -ESTALE;
	else if (queue->nr_lanes >= QUEUE_LANES_MAX)
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

int session_attach(struct call *call)
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

static bool handle_ok(const struct pinion_handle *args)
{
	return !args->flags && !args->reserved && !args->out_units;
}

int session_detach(struct call *call)
{
	struct session *session = call->session;
	struct lane *lane;
	int ret = 0;

	if (!handle_ok(&call->handle))
		return -EINVAL;
	mutex_lock(&session->lock);
	lane = lane_of(session, call->handle.handle);
	if (IS_ERR(lane))
		ret = PTR_ERR(lane);
	else
		call->handle.out_units = lane_drop(session, lane);
	mutex_unlock(&session->lock);
	return ret;
}

int session_reset(struct call *call)
{
	struct session *session = call->session;
	struct queue *queue;
	struct lane *lane;
	int ret = 0;

	if (!handle_ok(&call->handle))
		return -EINVAL;
	mutex_lock(&session->lock);
	lane = lane_of(session, call->handle.handle);
	if (IS_ERR(lane)) {
		mutex_unlock(&session->lock);
		return PTR_ERR(lane);
	}
	queue = lane->member->queue;
	mutex_lock(&queue->lock);
	if (queue->gone) {
		ret = -ESTALE;
	} else {
		info_bump();
		call->handle.out_units = count_forget(lane->member);
		queue_show(queue);
		info_bump();
		wait_settle(queue);
	}
	mutex_unlock(&queue->lock);
	mutex_unlock(&session->lock);
	return ret;
}

int session_kick(struct call *call)
{
	struct session *session = call->session;
	struct lane *lane;
	int ret = 0;

	if (!handle_ok(&call->handle))
		return -EINVAL;
	mutex_lock(&session->lock);
	lane = lane_of(session, call->handle.handle);
	if (IS_ERR(lane))
		ret = PTR_ERR(lane);
	else if (READ_ONCE(lane->member->queue->gone))
		ret = -ESTALE;
	else
		wait_kick(lane->member->queue);
	mutex_unlock(&session->lock);
	return ret;
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

int session_count(struct session *session, u32 handle, s32 ops, s64 cost, u32 *parity)
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

int session_add(struct call *call)
{
	struct pinion_add *args = &call->add;

	if (args->flags || args->reserved || args->out_parity || args->reserved_out)
		return -EINVAL;
	args->out_parity = args->parity;
	return session_count(call->session, args->handle, args->ops, args->cost, &args->out_parity);
}
