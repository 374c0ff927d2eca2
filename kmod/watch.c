// SPDX-License-Identifier: GPL-2.0-only
/* watch: a wait as a descriptor. */
#include "watch.h"

#include <linux/anon_inodes.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/pid.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "call.h"
#include "fault.h"
#include "pages.h"
#include "table.h"

static void watch_free(struct watch *watch)
{
	table_remove(&table_watches, watch->id);
	put_pid(watch->maker);
	wait_unmake(&watch->waiter);
	kfree(watch);
}

static int watch_release(struct inode *inode, struct file *file)
{
	struct watch *watch = file->private_data;

	mutex_lock(&watch->waiter.queue->lock);
	wait_end(&watch->waiter);
	mutex_unlock(&watch->waiter.queue->lock);
	watch_free(watch);
	return 0;
}

/* Under queue->lock: has it come to hold? Nobody may sleep on it, and then it is looked at only here. */
static void ask(struct waiter *waiter)
{
	if (waiter->fired)
		return;
	waiter->asked = true;
	wait_settle(waiter->queue);
	waiter->asked = false;
}

static __poll_t watch_poll(struct file *file, struct poll_table_struct *table)
{
	struct watch *watch = file->private_data;
	struct waiter *waiter = &watch->waiter;
	__poll_t mask = 0;

	poll_wait(file, &waiter->head, table);
	mutex_lock(&waiter->queue->lock);
	ask(waiter);
	if (waiter->fired)
		mask = EPOLLIN | EPOLLRDNORM | (waiter->status ? EPOLLERR | EPOLLHUP : 0);
	mutex_unlock(&waiter->queue->lock);
	return mask;
}

/* What it has seen, if anything. */
static bool peek(struct waiter *waiter, struct pinion_event *event)
{
	bool fired;

	mutex_lock(&waiter->queue->lock);
	ask(waiter);
	fired = waiter->fired;
	*event = (struct pinion_event){
		.status = waiter->status,
		.high = waiter->high,
		.lost = waiter->lost,
		.cookie = waiter->cookie,
	};
	mutex_unlock(&waiter->queue->lock);
	return fired;
}

/* Until it has seen something. Asleep, it is waited for: so it is settled once more before that. */
static int sleep_for(struct waiter *waiter, struct pinion_event *event)
{
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	int ret = 0;

	add_wait_queue(&waiter->head, &wait);
	while (!peek(waiter, event)) {
		if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		}
		wait_woken(&wait, TASK_INTERRUPTIBLE | TASK_FREEZABLE, MAX_SCHEDULE_TIMEOUT);
	}
	remove_wait_queue(&waiter->head, &wait);
	return ret;
}

/* It starts anew when the reader has the event; not where the device is gone: that stays. */
static ssize_t watch_read(struct file *file, char __user *to, size_t bytes, loff_t *pos)
{
	struct watch *watch = file->private_data;
	struct waiter *waiter = &watch->waiter;
	struct pinion_event event;
	int ret;

	if (bytes < sizeof(event))
		return -EINVAL;
	if (file->f_flags & O_NONBLOCK)
		ret = mutex_trylock(&watch->read_lock) ? 0 : -EAGAIN;
	else
		ret = mutex_lock_interruptible(&watch->read_lock) ? -ERESTARTSYS : 0;
	if (ret)
		return ret;
	if (!peek(waiter, &event))
		ret = file->f_flags & O_NONBLOCK ? -EAGAIN : sleep_for(waiter, &event);
	if (!ret && (fault_here() || copy_to_user(to, &event, sizeof(event))))
		ret = -EFAULT;
	if (!ret && !event.status) {
		mutex_lock(&waiter->queue->lock);
		wait_again(waiter);
		/* Who stays on its head (an edge-triggered epoll, a multishot poll) does not ask again. */
		wait_settle(waiter->queue);
		mutex_unlock(&waiter->queue->lock);
	}
	mutex_unlock(&watch->read_lock);
	return ret ?: sizeof(event);
}

static void watch_fdinfo(struct seq_file *m, struct file *file)
{
	const struct waiter *waiter = &((struct watch *)file->private_data)->waiter;

	seq_printf(m, "pinion-device:\t%u\n", waiter->queue->index);
	seq_printf(m, "pinion-key:\t%s\n", waiter->queue->key);
	seq_printf(m, "pinion-cond:\t%u\n", waiter->cond);
	seq_printf(m, "pinion-fired:\t%d\n", READ_ONCE(waiter->fired));
}

static const struct file_operations watch_fops = {
	.owner = THIS_MODULE,
	.release = watch_release,
	.poll = watch_poll,
	.read = watch_read,
	.show_fdinfo = watch_fdinfo,
	.llseek = noop_llseek,
};

int watch_call(struct call *call)
{
	struct pinion_watch *args = &call->watch;
	struct pinion_wait wait = {
		.flags = args->flags,
		.index = args->index,
		.scope = args->scope,
		.generation = args->generation,
		.cond = args->cond,
		.reserved = args->reserved,
		.value = args->value,
	};
	struct watch *watch;
	struct file *file;
	int ret;

	if (args->reserved_out)
		return -EINVAL;
	ret = call_reserve_fd(call);
	if (ret)
		return ret;
	watch = fault_here() ? NULL : kzalloc(sizeof(*watch), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (!watch)
		return -ENOMEM;
	ret = wait_make(&watch->waiter, call->session, &wait);
	if (ret)
		goto err_free;
	mutex_init(&watch->read_lock);
	watch->waiter.polled = true;
	ret = table_reserve(&table_watches, &watch->id) ?: call_headroom();
	if (ret)
		goto err_waiter;
	file = fault_here() ? ERR_PTR(-ENFILE) : anon_inode_getfile("[pinion-watch]", &watch_fops, watch, O_RDONLY);
	if (IS_ERR(file)) {
		ret = PTR_ERR(file);
		goto err_waiter;
	}
	watch->maker = get_task_pid(current, PIDTYPE_TGID);
	watch->made_ns = ktime_get_boottime_ns();
	mutex_lock(&watch->waiter.queue->lock);
	wait_begin(&watch->waiter);
	/* A flush tells what begins from now on apart by showing it another parity, which is not left to the first look. */
	wait_settle(watch->waiter.queue);
	mutex_unlock(&watch->waiter.queue->lock);
	table_publish(&table_watches, watch->id, watch);
	args->fd = call->fd;
	call->made = file;
	return 0;

err_waiter:
	table_remove(&table_watches, watch->id);
	wait_unmake(&watch->waiter);
err_free:
	kfree(watch);
	return ret;
}
