// SPDX-License-Identifier: GPL-2.0-only
#include "queue.h"

#include <linux/capability.h>
#include <linux/ctype.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/xarray.h>

#include "call.h"
#include "claim.h"
#include "count.h"
#include "fault.h"
#include "info.h"
#include "pages.h"
#include "session.h"
#include "wait.h"

static DEFINE_MUTEX(queues_lock);
static struct xarray queues = XARRAY_INIT(queues, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
static u64 last_generation; /* under queues_lock */

/* ---- life ---------------------------------------------------------------------------------------------------------- */

static struct queue *queue_new(struct payer *payer, const struct pinion_dev *args)
{
	struct queue *queue = fault_here() ? NULL : kzalloc(sizeof(*queue), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	int ret;

	if (!queue)
		return ERR_PTR(-ENOMEM);
	ret = payer_add(payer, PAYER_DEVICES);
	if (ret) {
		kfree(queue);
		return ERR_PTR(ret);
	}
	kref_init(&queue->refs);
	mutex_init(&queue->lock);
	INIT_LIST_HEAD(&queue->members);
	INIT_LIST_HEAD(&queue->claims);
	wait_init(queue);
	queue->payer = payer_ref(payer);
	queue->uid = payer_uid(payer);
	queue->flags = args->flags;
	queue->cost_unit = args->cost_unit;
	queue->capacity = args->capacity;
	queue->budget = args->budget;
	memcpy(queue->key, args->key, sizeof(queue->key));
	return queue;
}

static void queue_free(struct queue *queue)
{
	wait_exit(queue);
	/* Not charged any more where it was removed: who still refers to it must not use up its user's limit. */
	if (!queue->gone)
		payer_remove(queue->payer, PAYER_DEVICES);
	payer_put(queue->payer);
	kfree(queue);
}

/* Under queues_lock. */
static void take_out(struct queue *queue)
{
	lockdep_assert_held(&queues_lock);
	xa_erase(&queues, queue->index);
	info_bump();
	memset(info_line(queue->index), 0, sizeof(struct pinion_info_device));
	info_bump();
}

static void queue_release(struct kref *refs)
{
	struct queue *queue = container_of(refs, struct queue, refs);

	if (!queue->gone)
		take_out(queue);
	mutex_unlock(&queues_lock);
	queue_free(queue);
}

void queue_put(struct queue *queue)
{
	kref_put_mutex(&queue->refs, queue_release, &queues_lock);
}

struct queue *queue_ref(struct queue *queue)
{
	kref_get(&queue->refs);
	return queue;
}

void queue_show(const struct queue *queue)
{
	struct pinion_info_device *line = info_line(queue->index);

	lockdep_assert_held(&queue->lock);
	if (queue->gone)
		return;
	WRITE_ONCE(line->budget, queue->budget);
	WRITE_ONCE(line->claimed_bytes, queue->exclusive ? U64_MAX : queue->claimed_bytes);
	WRITE_ONCE(line->claimed_units, min_t(u64, queue->claimed_units, U32_MAX));
	WRITE_ONCE(line->claims, queue->nr_claims);
	WRITE_ONCE(line->capacity, queue->capacity);
	WRITE_ONCE(line->reclaimed, queue->reclaimed);
	WRITE_ONCE(line->retired, queue->retired);
	WRITE_ONCE(line->sessions, queue->nr_members);
	WRITE_ONCE(line->held, queue->nr_held);
	WRITE_ONCE(line->flags, queue->flags);
	/* Who sees the generation sees the rest. */
	smp_store_release(&line->generation, queue->generation);
}

/* ---- looking up ---------------------------------------------------------------------------------------------------- */

/* Under queues_lock: who is in the table has a reference that is not the last, or its release waits for the lock. */
static struct queue *grab(struct queue *queue)
{
	return queue && kref_get_unless_zero(&queue->refs) ? queue : NULL;
}

struct queue *queue_find(u32 index, u64 generation)
{
	struct queue *queue;

	mutex_lock(&queues_lock);
	queue = grab(xa_load(&queues, index));
	mutex_unlock(&queues_lock);
	if (!queue)
		return ERR_PTR(generation ? -ESTALE : -ENOENT);
	if (!generation || queue->generation == generation)
		return queue;
	queue_put(queue);
	return ERR_PTR(-ESTALE);
}

struct queue *queue_next(u32 from)
{
	struct queue *queue, *found = NULL;
	unsigned long index;

	mutex_lock(&queues_lock);
	xa_for_each_start(&queues, index, queue, from) {
		found = grab(queue);
		if (found)
			break;
	}
	mutex_unlock(&queues_lock);
	return found;
}

/* Under queues_lock. */
static struct queue *find_key(const char *key)
{
	struct queue *queue, *found;
	unsigned long index;

	lockdep_assert_held(&queues_lock);
	xa_for_each(&queues, index, queue) {
		if (strcmp(queue->key, key))
			continue;
		found = grab(queue);
		if (found)
			return found;
	}
	return NULL;
}

static bool key_ok(const char *key)
{
	size_t len = strnlen(key, PINION_KEY_BYTES), i;

	for (i = 0; i < len; i++)
		if (!isascii(key[i]) || !isgraph(key[i]))
			return false;
	return len && len < PINION_KEY_BYTES && !memchr_inv(key + len, 0, PINION_KEY_BYTES - len);
}

bool queue_is_own(const struct queue *queue, const struct call *call)
{
	return uid_eq(queue->uid, payer_uid(call->session->payer)) ||
	       file_ns_capable(call->file, &init_user_ns, CAP_SYS_ADMIN);
}

/* ---- what an open file has added ----------------------------------------------------------------------------------- */

struct add {
	struct list_head node; /* session->adds, under session->lock */
	struct queue *queue;
};

/*
 * What the open has added becomes @add, whose reference on its queue is used up, beside the rest; NULL: nothing more. An open
 * file has each device once, and none that is gone.
 */
static void keep_add(struct session *session, struct add *add)
{
	struct add *one, *next;
	LIST_HEAD(dropped);

	mutex_lock(&session->lock);
	list_for_each_entry_safe(one, next, &session->adds, node)
		if ((add && one->queue == add->queue) || READ_ONCE(one->queue->gone))
			list_move(&one->node, &dropped);
	if (add)
		list_add(&add->node, &session->adds);
	mutex_unlock(&session->lock);
	list_for_each_entry_safe(one, next, &dropped, node) {
		queue_put(one->queue);
		kfree(one);
	}
}

void queue_release_adds(struct session *session)
{
	struct add *one, *next;

	list_for_each_entry_safe(one, next, &session->adds, node) {
		queue_put(one->queue);
		kfree(one);
	}
}

/* ---- the calls ----------------------------------------------------------------------------------------------------- */

static void tell(struct pinion_dev *args, struct queue *queue)
{
	*args = (struct pinion_dev){
		.size = args->size,
		.flags = queue->flags,
		.by = args->by,
		.set = args->set,
		.generation = queue->generation,
		.index = queue->index,
		.cost_unit = queue->cost_unit,
		.uid = from_kuid_munged(current_user_ns(), queue->uid),
	};
	memcpy(args->key, queue->key, sizeof(args->key));
	mutex_lock(&queue->lock);
	args->budget = queue->budget;
	args->capacity = queue->capacity;
	mutex_unlock(&queue->lock);
}

/* Under queues_lock: @fresh gets an index and is in the table. */
static int publish(struct queue *fresh)
{
	int ret;

	lockdep_assert_held(&queues_lock);
	ret = fault_here() ? -ENOMEM : xa_alloc(&queues, &fresh->index, fresh, XA_LIMIT(0, QUEUES_MAX - 1),
						GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (ret)
		return ret == -EBUSY ? -ENOSPC : ret;
	fresh->generation = ++last_generation;
	mutex_lock(&fresh->lock);
	info_bump();
	queue_show(fresh);
	info_bump();
	mutex_unlock(&fresh->lock);
	return 0;
}

/* The device of the key, @fresh or another; with a reference. */
static struct queue *add_or_find(struct queue *fresh)
{
	struct queue *queue;
	int ret = 0;

	mutex_lock(&queues_lock);
	queue = find_key(fresh->key);
	if (!queue) {
		ret = publish(fresh);
		queue = ret ? ERR_PTR(ret) : fresh;
	}
	mutex_unlock(&queues_lock);
	return queue;
}

int queue_add(struct call *call)
{
	struct pinion_dev *args = &call->dev;
	struct queue *fresh, *queue;
	u32 created, unit = args->cost_unit;
	struct add *add;
	int ret;

	if (args->flags & ~PINION_DEV_FLAGS || !key_ok(args->key) || args->by || args->set || args->generation || args->index ||
	    args->uid)
		return -EINVAL;
	add = fault_here() ? NULL : kmalloc(sizeof(*add), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (!add)
		return -ENOMEM;
	fresh = queue_new(call->session->payer, args);
	if (IS_ERR(fresh)) {
		ret = PTR_ERR(fresh);
		/* Who may add no more may still find. */
		mutex_lock(&queues_lock);
		queue = ret == -ENOSPC ? find_key(args->key) : NULL;
		mutex_unlock(&queues_lock);
		fresh = NULL;
	} else {
		queue = add_or_find(fresh);
		ret = PTR_ERR_OR_ZERO(queue);
		if (queue != fresh)
			queue_free(fresh);
	}
	if (IS_ERR_OR_NULL(queue)) {
		kfree(add);
		return ret;
	}
	if (queue != fresh && queue->cost_unit != unit) {
		queue_put(queue);
		kfree(add);
		return -EEXIST;
	}
	created = queue == fresh ? PINION_DEV_CREATED : 0;
	tell(args, queue);
	args->flags |= created;
	add->queue = queue;
	keep_add(call->session, add);
	return 0;
}

int queue_get(struct call *call)
{
	struct pinion_dev *args = &call->dev;
	struct queue *queue;

	if (args->flags || args->set || args->uid || args->by > PINION_BY_NEXT)
		return -EINVAL;
	if (args->by == PINION_BY_KEY) {
		if (!key_ok(args->key))
			return -EINVAL;
		mutex_lock(&queues_lock);
		queue = find_key(args->key);
		mutex_unlock(&queues_lock);
		if (queue && args->generation && queue->generation != args->generation) {
			queue_put(queue);
			return -ESTALE;
		}
	} else if (args->by == PINION_BY_INDEX) {
		queue = queue_find(args->index, args->generation);
	} else {
		if (args->generation)
			return -EINVAL;
		queue = queue_next(args->index);
	}
	if (IS_ERR_OR_NULL(queue))
		return queue ? PTR_ERR(queue) : -ENOENT;
	tell(args, queue);
	queue_put(queue);
	return 0;
}

/* What is not for DEV_SET to change is 0, or what DEV_GET has put there. */
static bool as_told(const struct pinion_dev *args, const struct queue *queue)
{
	return (!args->flags || args->flags == queue->flags) &&
	       (!args->uid || args->uid == from_kuid_munged(current_user_ns(), queue->uid));
}

int queue_set(struct call *call)
{
	struct pinion_dev *args = &call->dev;
	struct queue *queue;
	int ret = 0;

	if (args->flags & ~PINION_DEV_FLAGS || args->by > PINION_BY_NEXT || !args->set ||
	    args->set & ~(PINION_SET_CAPACITY | PINION_SET_BUDGET) || !args->generation)
		return -EINVAL;
	queue = queue_find(args->index, args->generation);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	if (!as_told(args, queue))
		ret = -EINVAL;
	else if (!queue_is_own(queue, call))
		ret = -EPERM;
	if (!ret) {
		mutex_lock(&queue->lock);
		if (queue->gone) {
			mutex_unlock(&queue->lock);
			queue_put(queue);
			return -ESTALE;
		}
		if (args->set & PINION_SET_CAPACITY)
			queue->capacity = args->capacity;
		if (args->set & PINION_SET_BUDGET)
			queue->budget = args->budget;
		queue->past++;
		queue_show(queue);
		wait_settle(queue);
		mutex_unlock(&queue->lock);
		tell(args, queue);
	}
	queue_put(queue);
	return ret;
}

/* Under queue->lock: whether others than the open of the call refer to it. */
static bool in_use(const struct queue *queue, const struct session *but)
{
	return count_others(queue, but) || claim_others(queue, but) || wait_others(queue, but);
}

int queue_del(struct call *call)
{
	struct pinion_dev_del *args = &call->del;
	struct queue *queue;
	int ret = 0;

	if (args->flags & ~PINION_DEL_FORCE || args->reserved || !args->generation)
		return -EINVAL;
	queue = queue_find(args->index, args->generation);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	mutex_lock(&queues_lock);
	mutex_lock(&queue->lock);
	if (queue->gone)
		ret = -ESTALE;
	else if (!queue_is_own(queue, call))
		ret = -EPERM;
	else if (!(args->flags & PINION_DEL_FORCE) && in_use(queue, call->session))
		ret = -EBUSY;
	if (!ret) {
		take_out(queue);
		WRITE_ONCE(queue->gone, true);
		payer_remove(queue->payer, PAYER_DEVICES);
		wait_settle(queue);
	}
	mutex_unlock(&queue->lock);
	mutex_unlock(&queues_lock);
	queue_put(queue);
	if (!ret)
		keep_add(call->session, NULL);
	return ret;
}

void queue_exit(void)
{
	WARN_ON(!xa_empty(&queues));
	xa_destroy(&queues);
}
