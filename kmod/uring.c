// SPDX-License-Identifier: GPL-2.0-only
#include "uring.h"

#include <linux/io_uring.h>
#ifdef PINION_HAS_URING_CMD_H
#include <linux/io_uring/cmd.h>
#endif
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "call.h"
#include "compat.h"
#include "fault.h"
#include "pages.h"
#include "reading.h"
#include "lane.h"
#include "session.h"
#include "wait.h"

/* The 16 bytes of a command; the entry is in memory that its owner may write meanwhile: each is read once. */
static const void *payload(const struct io_uring_cmd *cmd)
{
#ifdef PINION_HAS_URING_SQE
	return cmd->sqe->cmd;
#else
	return cmd->cmd;
#endif
}

/* Checks as of a call: size first, then what is known. */
static int copy_args(void *args, size_t bytes, const struct io_uring_cmd *cmd, void __user **user, u32 *size)
{
	const struct pinion_uring_call *call = payload(cmd);
	int ret;

	*user = (void __user *)(unsigned long)READ_ONCE(call->address);
	if (READ_ONCE(call->reserved))
		return -EINVAL;
	if (fault_here() || get_user(*size, (u32 __user *)*user))
		return -EFAULT;
	if (*size > PAGE_SIZE)
		return -E2BIG;
	if (*size < bytes)
		return -EINVAL;
	ret = copy_struct_from_user(args, bytes, *user, *size);
	*(u32 *)args = *size;
	return ret;
}

static int uring_add(struct session *session, const struct io_uring_cmd *cmd)
{
	const struct pinion_uring_add *add = payload(cmd);
	u32 parity = READ_ONCE(add->parity);

	/* There is no way back for the parity. */
	if (parity > 1)
		return -EINVAL;
	return lane_count(session, READ_ONCE(add->handle), READ_ONCE(add->ops), READ_ONCE(add->cost), &parity);
}

static int uring_read(struct session *session, const struct io_uring_cmd *cmd)
{
	struct pinion_read args;
	void __user *user;
	u32 size;
	int ret = copy_args(&args, sizeof(args), cmd, &user, &size);

	return ret ?: reading_rows(session, &args);
}

#ifdef PINION_HAS_URING_CANCEL

/* A command that waits. It is the waiter's; the command's own 32 bytes lead to it. */
struct uring_wait {
	struct waiter waiter;
	struct io_uring_cmd *cmd;
	struct pinion_wait args;
	void __user *user;
};

static struct uring_wait **wait_slot(struct io_uring_cmd *cmd)
{
	return io_uring_cmd_to_pdu(cmd, struct uring_wait *);
}

static void uring_wait_free(struct uring_wait *wait)
{
	wait_unmake(&wait->waiter);
	kfree(wait);
}

/* In the task of the command, or in a worker of the kernel's when that is gone. */
static void uring_wait_done(struct io_uring_cmd *cmd, unsigned int flags)
{
	struct uring_wait *wait = *wait_slot(cmd);
	struct waiter *waiter = &wait->waiter;
	int ret = waiter->status;

	mutex_lock(&waiter->queue->lock);
	wait_end(waiter);
	mutex_unlock(&waiter->queue->lock);
	if (!ret || ret == -ETIMEDOUT) {
		wait_tell(waiter, &wait->args);
		if (current->flags & (PF_EXITING | PF_KTHREAD))
			ret = -ECANCELED;
		else if (fault_here() || copy_to_user(wait->user, &wait->args, sizeof(wait->args)))
			ret = -EFAULT;
	}
	uring_wait_free(wait);
	io_uring_cmd_done(cmd, ret, 0, flags);
}

/* Under queue->lock. */
static void uring_wait_fire(struct waiter *waiter)
{
	io_uring_cmd_complete_in_task(container_of(waiter, struct uring_wait, waiter)->cmd, uring_wait_done);
}

/*
 * A cancel may come as soon as the command is marked, and the mark must be there before the waiter can fire, since the end of
 * the command takes it away. Until it waits it looks as if it had fired; a cancel that finds it so is tried again.
 */
static void uring_wait_start(struct uring_wait *wait, struct io_uring_cmd *cmd, unsigned int flags)
{
	struct queue *queue = queue_ref(wait->waiter.queue);

	wait->waiter.fired = true;
	io_uring_cmd_mark_cancelable(cmd, flags);
	mutex_lock(&queue->lock);
	wait->waiter.fired = false;
	wait_begin(&wait->waiter);
	wait_settle(queue);
	mutex_unlock(&queue->lock);
	/* From here on it may be gone. */
	queue_put(queue);
}

static int uring_wait(struct session *session, struct io_uring_cmd *cmd, unsigned int flags)
{
	struct uring_wait *wait = fault_here() ? NULL : kzalloc(sizeof(*wait), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	u32 size;
	int ret;

	if (!wait)
		return -ENOMEM;
	ret = copy_args(&wait->args, sizeof(wait->args), cmd, &wait->user, &size);
	if (!ret && wait->args.deadline_ns < 0)
		ret = -EINVAL;
	if (!ret)
		ret = wait_make(&wait->waiter, session, &wait->args);
	if (ret) {
		kfree(wait);
		return ret;
	}
	wait->cmd = cmd;
	wait->waiter.fire = uring_wait_fire;
	wait->waiter.deadline_ns = wait->args.deadline_ns;
	*wait_slot(cmd) = wait;
	uring_wait_start(wait, cmd, flags);
	return -EIOCBQUEUED;
}

/* Called by io_uring for a command that is marked, perhaps while it fires: then that ends it. */
static void uring_cancel(struct io_uring_cmd *cmd, unsigned int flags)
{
	struct uring_wait *wait = *wait_slot(cmd);
	struct queue *queue = queue_ref(wait->waiter.queue);
	bool mine;

	mutex_lock(&queue->lock);
	mine = !wait->waiter.fired;
	if (mine) {
		wait->waiter.fired = true;
		wait_end(&wait->waiter);
	}
	mutex_unlock(&queue->lock);
	queue_put(queue);
	if (!mine)
		return;
	uring_wait_free(wait);
	io_uring_cmd_done(cmd, -ECANCELED, 0, flags);
}

#else

static int uring_wait(struct session *session, struct io_uring_cmd *cmd, unsigned int flags)
{
	return -EOPNOTSUPP;
}

#endif

int uring_call(struct io_uring_cmd *cmd, unsigned int flags)
{
	struct file *file = cmd->file;
	struct session *session = file->private_data;

#ifdef PINION_HAS_URING_CANCEL
	if (flags & IO_URING_F_CANCEL) {
		uring_cancel(cmd, flags);
		return 0;
	}
#endif
	switch (cmd->cmd_op) {
	case PINION_URING_ADD:
		return file->f_mode & FMODE_WRITE ? uring_add(session, cmd) : -EACCES;
	case PINION_URING_READ:
		return uring_read(session, cmd);
	case PINION_URING_WAIT:
		return uring_wait(session, cmd, flags);
	default:
		return -ENOTTY;
	}
}
