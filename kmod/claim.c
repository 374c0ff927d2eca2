// SPDX-License-Identifier: GPL-2.0-only
#include "claim.h"

#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "call.h"
#include "fault.h"
#include "pages.h"
#include "queue.h"
#include "table.h"
#include "wait.h"

static void claim_free(struct claim *claim)
{
	table_remove(&table_claims, claim->id);
	put_pid(claim->maker);
	payer_remove(claim->payer, PAYER_CLAIMS);
	payer_put(claim->payer);
	queue_put(claim->queue);
	kfree(claim);
}

/* Under queue->lock: the claim stands, or it does so no more. */
static void claim_move(struct claim *claim, bool stands)
{
	struct queue *queue = claim->queue;

	lockdep_assert_held(&queue->lock);
	if (stands) {
		list_add_tail(&claim->node, &queue->claims);
		queue->nr_claims++;
		queue->claimed_bytes += claim->bytes;
		queue->claimed_units += claim->units;
	} else {
		list_del(&claim->node);
		queue->nr_claims--;
		queue->claimed_bytes -= claim->bytes;
		queue->claimed_units -= claim->units;
	}
	if (claim->flags & PINION_RESERVE_EXCLUSIVE)
		queue->exclusive = stands;
	queue->past++;
	queue_show(queue);
	wait_settle(queue);
}

static int claim_release(struct inode *inode, struct file *file)
{
	struct claim *claim = file->private_data;

	mutex_lock(&claim->queue->lock);
	/* Not where the file was made and the claim then refused. */
	if (!list_empty(&claim->node))
		claim_move(claim, false);
	mutex_unlock(&claim->queue->lock);
	claim_free(claim);
	return 0;
}

static void claim_fdinfo(struct seq_file *m, struct file *file)
{
	const struct claim *claim = file->private_data;

	seq_printf(m, "pinion-device:\t%u\n", claim->queue->index);
	seq_printf(m, "pinion-key:\t%s\n", claim->queue->key);
	seq_printf(m, "pinion-bytes:\t%llu\n", claim->bytes);
	seq_printf(m, "pinion-units:\t%u\n", claim->units);
	seq_printf(m, "pinion-exclusive:\t%d\n", !!(claim->flags & PINION_RESERVE_EXCLUSIVE));
}

static const struct file_operations claim_fops = {
	.owner = THIS_MODULE,
	.release = claim_release,
	.show_fdinfo = claim_fdinfo,
	.llseek = noop_llseek,
};

/* The tighter of two bounds of which 0 is none. */
static u64 tighter(u64 a, u64 b)
{
	return !a ? b : !b ? a : min(a, b);
}

/* Whether so much more fits under @most, of which 0 says that there is nothing to claim from. */
static int fits(u64 want, u64 have, u64 most)
{
	if (!want)
		return 0;
	if (!most)
		return -ENODATA;
	return want > most || have > most - want ? -ENOSPC : 0;
}

/* Under queue->lock. */
static int check(const struct queue *queue, const struct pinion_reserve *args)
{
	int ret;

	lockdep_assert_held(&queue->lock);
	if (queue->gone)
		return -ESTALE;
	if (queue->exclusive || (args->flags & PINION_RESERVE_EXCLUSIVE && queue->nr_claims))
		return -EBUSY;
	ret = fits(args->bytes, queue->claimed_bytes, tighter(queue->budget, args->most_bytes));
	return ret ?: fits(args->units, queue->claimed_units, tighter(queue->capacity, args->most_units));
}

/* Uses up the queue's reference, also when it fails. */
static struct claim *claim_new(struct session *session, struct queue *queue, const struct pinion_reserve *args)
{
	struct claim *claim = fault_here() ? NULL : kzalloc(sizeof(*claim), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	int ret = -ENOMEM;

	if (!claim)
		goto err_queue;
	ret = payer_add(session->payer, PAYER_CLAIMS);
	if (ret)
		goto err_free;
	ret = table_reserve(&table_claims, &claim->id);
	if (ret)
		goto err_user;
	INIT_LIST_HEAD(&claim->node);
	claim->queue = queue;
	claim->payer = payer_ref(session->payer);
	claim->session = session->id;
	claim->bytes = args->bytes;
	claim->units = args->units;
	claim->flags = args->flags;
	claim->maker = get_task_pid(current, PIDTYPE_TGID);
	claim->made_ns = ktime_get_boottime_ns();
	return claim;

err_user:
	payer_remove(session->payer, PAYER_CLAIMS);
err_free:
	kfree(claim);
err_queue:
	queue_put(queue);
	return ERR_PTR(ret);
}

/* Its file, before it stands: what cannot be undone comes last. */
static struct file *claim_file(struct claim *claim)
{
	struct file *file = ERR_PTR(-ENOMEM);

	if (!call_headroom())
		file = fault_here() ? ERR_PTR(-ENFILE) : anon_inode_getfile("[pinion-claim]", &claim_fops, claim, O_RDONLY);
	if (IS_ERR(file))
		claim_free(claim);
	return file;
}

int claim_reserve(struct call *call)
{
	struct pinion_reserve *args = &call->reserve;
	struct claim *claim;
	struct queue *queue;
	int ret;

	if (args->flags & ~PINION_RESERVE_EXCLUSIVE || !args->generation || args->fd ||
	    !(args->flags || args->bytes || args->units))
		return -EINVAL;
	ret = call_reserve_fd(call);
	if (ret)
		return ret;
	queue = queue_find(args->index, args->generation);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	claim = claim_new(call->session, queue, args);
	if (IS_ERR(claim))
		return PTR_ERR(claim);
	call->made = claim_file(claim);
	if (IS_ERR(call->made)) {
		ret = PTR_ERR(call->made);
		call->made = NULL;
		return ret;
	}
	mutex_lock(&queue->lock);
	ret = check(queue, args);
	if (!ret)
		claim_move(claim, true);
	mutex_unlock(&queue->lock);
	if (ret)
		return ret;
	table_publish(&table_claims, claim->id, claim);
	args->fd = call->fd;
	return 0;
}

int claim_info(struct call *call)
{
	struct pinion_reserve *args = &call->reserve;
	const struct claim *claim;
	struct file *file;
	int ret = -EINVAL;

	if (args->flags || args->index || args->units || args->generation || args->bytes || args->most_bytes || args->most_units)
		return -EINVAL;
	file = fget(args->fd);
	if (!file)
		return -EBADF;
	if (file->f_op == &claim_fops) {
		claim = file->private_data;
		args->flags = claim->flags;
		args->index = claim->queue->index;
		args->units = claim->units;
		args->generation = claim->queue->generation;
		args->bytes = claim->bytes;
		ret = 0;
	}
	fput(file);
	return ret;
}

bool claim_others(const struct queue *queue, const struct session *but)
{
	const struct claim *claim;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry(claim, &queue->claims, node)
		if (claim->session != but->id)
			return true;
	return false;
}
