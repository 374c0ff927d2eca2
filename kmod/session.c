// SPDX-License-Identifier: GPL-2.0-only
#include "session.h"

#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat.h"
#include "fault.h"
#include "info.h"
#include "lane.h"
#include "pages.h"
#include "queue.h"
#include "table.h"

static bool window_group;
module_param(window_group, bool, 0444);
MODULE_PARM_DESC(window_group, "who may open the device may map every user's counter pages, read-only; default no: one's own user's");

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
			lane_drop(session->lane[nr]);
	if (session->page) {
		info_bump();
		clear_page(page_address(session->page));
		info_bump();
	}
}

int session_need(struct session *session)
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

/* Who finds the page for a window has a reference before it is gone. */
void session_unneed(struct session *session)
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

static const struct vm_operations_struct counters_vm_ops = {
	.open = counters_opened,
	.close = counters_closed,
	.mremap = counters_stay,
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
 * Nobody may pin the page: it must be free of writers when its mapping is gone. VM_IO and VM_PFNMAP keep away those who look at
 * the mapping, a special entry those who look at the tables alone (get_user_pages_fast()). The mapping's file holds the page.
 * One page, so there is nothing to split; a child has none of it.
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
		ret = fault_here() ? -ENOMEM : remap_pfn_range(vma, vma->vm_start, page_to_pfn(session->page), PAGE_SIZE,
							       vma->vm_page_prot);
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
