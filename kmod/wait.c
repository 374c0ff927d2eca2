// SPDX-License-Identifier: GPL-2.0-only
#include "wait.h"

#include <linux/ktime.h>
#include <linux/pid_namespace.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "call.h"
#include "compat.h"
#include "count.h"
#include "session.h"

#define TICK_LEAST_NS NSEC_PER_MSEC
#define TICK_MOST_NS (100 * NSEC_PER_MSEC)

/* ---- who waits for whom -------------------------------------------------------------------------------------------- */

static bool in_scope(const struct waiter *waiter, const struct member *member)
{
	switch (waiter->scope) {
	case PINION_SCOPE_SESSION:
		return member->session->id == waiter->session;
	case PINION_SCOPE_USER:
		return member->session->payer == waiter->payer;
	default:
		return true;
	}
}

/* A watch that nobody sleeps on costs nothing but its memory. */
static bool is_active(const struct waiter *waiter)
{
	return !waiter->fired && (!waiter->polled || wq_has_sleeper((wait_queue_head_t *)&waiter->head));
}

/* ---- flushes ------------------------------------------------------------------------------------------------------- */

/* As far as it goes now. */
static void flush_advance(struct member *member)
{
	u32 parities;
	int show;

	while ((parities = pinion_turn_asks(&member->turns))) {
		if (!pinion_turn_step(&member->turns, member->queue->flushes, count_high(member, parities) <= 0, &show))
			break;
		if (show)
			count_show_epoch(member);
	}
}

/* Who came later has covered it by coming. */
static bool flush_waits(const struct waiter *waiter, const struct member *member)
{
	return in_scope(waiter, member) && member->turns.covered < waiter->flush;
}

static void flush_begin(struct waiter *waiter)
{
	struct member *member;

	waiter->flush = ++waiter->queue->flushes;
	list_for_each_entry(member, &waiter->queue->members, node)
		if (in_scope(waiter, member))
			member->turns.wanted = waiter->flush;
}

void wait_joined(struct member *member)
{
	struct waiter *waiter;

	lockdep_assert_held(&member->queue->lock);
	list_for_each_entry(waiter, &member->queue->waiters, node)
		if (waiter->session == member->session->id)
			waiter->member = member;
}

void wait_left(struct member *member, u64 units)
{
	struct waiter *waiter;

	lockdep_assert_held(&member->queue->lock);
	list_for_each_entry(waiter, &member->queue->waiters, node) {
		if (waiter->member == member)
			waiter->member = NULL;
		if (!waiter->fired &&
		    (waiter->cond == PINION_COND_FLUSH ? flush_waits(waiter, member) : in_scope(waiter, member)))
			waiter->lost += units;
	}
}

/* ---- settling ------------------------------------------------------------------------------------------------------ */

/* What the sessions of a scope have in flight, and the last flush that all of them have covered. */
struct share {
	u64 high;
	u64 covered;
};

/* What a look finds. Waiters of a user stand together: what its sessions have is summed for the first and kept for the rest. */
struct sums {
	struct totals totals;
	struct share every;
	const struct payer *payer; /* whose user is; NULL: nobody's yet */
	struct share user;
};

static void share_add(struct share *share, const struct member *member)
{
	share->high += member->sum.high;
	share->covered = min(share->covered, member->turns.covered);
}

static struct share share_of(const struct waiter *waiter, struct sums *sums)
{
	struct share share = { .covered = U64_MAX };
	const struct member *member;

	if (waiter->scope == PINION_SCOPE_EVERY)
		return sums->every;
	if (waiter->scope == PINION_SCOPE_SESSION) {
		if (waiter->member)
			share_add(&share, waiter->member);
		return share;
	}
	if (sums->payer != waiter->payer) {
		list_for_each_entry(member, &waiter->queue->members, node)
			if (in_scope(waiter, member))
				share_add(&share, member);
		sums->user = share;
		sums->payer = waiter->payer;
	}
	return sums->user;
}

static bool holds(const struct waiter *waiter, const struct share *share, u64 cookie)
{
	switch (waiter->cond) {
	case PINION_COND_PENDING_LE:
		return share->high <= waiter->value;
	case PINION_COND_FLUSH:
		return share->covered >= waiter->flush;
	default:
		return cookie != waiter->value;
	}
}

static void fire(struct waiter *waiter, int status)
{
	waiter->fired = true;
	waiter->status = status;
	if (waiter->fire)
		waiter->fire(waiter);
	else
		wake_up_poll(&waiter->head, EPOLLIN | EPOLLRDNORM | (status ? EPOLLERR | EPOLLHUP : 0));
}

/* Whom it waits for most, of the waiter's own user. */
static void find_culprit(struct waiter *waiter)
{
	const struct member *member, *most = NULL;

	list_for_each_entry(member, &waiter->queue->members, node)
		if (in_scope(waiter, member) && member->session->payer == waiter->payer && member->sum.high > 0 &&
		    (!most || member->sum.high > most->sum.high))
			most = member;
	if (!most)
		return;
	waiter->culprit = get_pid(READ_ONCE(most->session->pid));
	waiter->culprit_units = min_t(s64, most->sum.high, S32_MAX);
}

static void look(struct waiter *waiter, struct sums *sums, s64 now)
{
	struct share share = share_of(waiter, sums);
	int status;

	if (waiter->queue->gone)
		status = -ESTALE;
	else if (holds(waiter, &share, sums->totals.cookie))
		status = 0;
	else if (now >= waiter->deadline_ns)
		status = -ETIMEDOUT;
	else
		return;
	waiter->high = share.high;
	waiter->cookie = sums->totals.cookie;
	if (status == -ETIMEDOUT)
		find_culprit(waiter);
	fire(waiter, status);
}

/* Users with a waiter: few; with more, some have the timer alone. */
#define PARTIES 16

struct parties {
	unsigned int nr;
	const struct payer *payer[PARTIES];
	s64 deadline_ns;
	bool any;
};

static bool is_party(const struct parties *parties, const struct payer *payer)
{
	unsigned int i;

	for (i = 0; i < parties->nr; i++)
		if (parties->payer[i] == payer)
			return true;
	return false;
}

static void find_parties(const struct queue *queue, struct parties *parties)
{
	const struct waiter *waiter;

	*parties = (struct parties){ .deadline_ns = S64_MAX };
	list_for_each_entry(waiter, &queue->waiters, node) {
		if (!is_active(waiter))
			continue;
		parties->any = true;
		parties->deadline_ns = min(parties->deadline_ns, waiter->deadline_ns);
		if (parties->nr < PARTIES && !is_party(parties, waiter->payer))
			parties->payer[parties->nr++] = waiter->payer;
	}
}

static void arm(struct queue *queue, const struct parties *parties)
{
	struct member *member;

	if (!queue->armed && !parties->any)
		return;
	list_for_each_entry(member, &queue->members, node) {
		bool armed = is_party(parties, member->session->payer);

		if (armed == member->armed)
			continue;
		count_show_armed(member, armed);
		/* An end that misses that is found by the timer's first look, which is soon. */
		if (armed)
			queue->tick_ns = 0;
	}
	queue->armed = parties->any;
}

/* The next look: soon while things move, seldom while they stand still, never while nobody waits. */
static void tick(struct queue *queue, const struct parties *parties, u64 cookie)
{
	s64 now, next;

	if (!parties->any) {
		hrtimer_try_to_cancel(&queue->timer);
		return;
	}
	if (cookie != queue->seen || !queue->tick_ns)
		queue->tick_ns = TICK_LEAST_NS;
	else if (queue->ticked)
		queue->tick_ns = min_t(u64, 2 * queue->tick_ns, TICK_MOST_NS);
	queue->seen = cookie;
	queue->ticked = false;
	now = ktime_get_ns();
	next = min_t(s64, now + queue->tick_ns, max(parties->deadline_ns, now));
	hrtimer_start(&queue->timer, ns_to_ktime(next), HRTIMER_MODE_ABS);
}

void wait_settle(struct queue *queue)
{
	struct waiter *waiter, *next;
	struct sums sums = { .every.covered = U64_MAX };
	struct parties parties;
	struct member *member;
	s64 now;

	lockdep_assert_held(&queue->lock);
	if (list_empty(&queue->waiters) && !queue->armed)
		return;
	find_parties(queue, &parties);
	arm(queue, &parties);
	/* Armed before looked at: an end that is not seen below sees that it is armed, or the timer does. */
	smp_mb();
	list_for_each_entry(member, &queue->members, node)
		flush_advance(member);
	count_read(queue, &sums.totals);
	list_for_each_entry(member, &queue->members, node)
		share_add(&sums.every, member);
	now = ktime_get_ns();
	list_for_each_entry_safe(waiter, next, &queue->waiters, node)
		if (is_active(waiter) || (!waiter->fired && (waiter->asked || queue->gone)))
			look(waiter, &sums, now);
	find_parties(queue, &parties);
	arm(queue, &parties);
	tick(queue, &parties, sums.totals.cookie);
}

void wait_kick(struct queue *queue)
{
	if (!mutex_trylock(&queue->lock)) {
		queue_work(system_unbound_wq, &queue->work);
		return;
	}
	wait_settle(queue);
	mutex_unlock(&queue->lock);
}

static void settle_work(struct work_struct *work)
{
	struct queue *queue = container_of(work, struct queue, work);

	mutex_lock(&queue->lock);
	queue->ticked = true;
	wait_settle(queue);
	mutex_unlock(&queue->lock);
}

static enum hrtimer_restart timer_fires(struct hrtimer *timer)
{
	struct queue *queue = container_of(timer, struct queue, timer);

	queue_work(system_unbound_wq, &queue->work);
	return HRTIMER_NORESTART;
}

void wait_init(struct queue *queue)
{
	INIT_LIST_HEAD(&queue->waiters);
	INIT_WORK(&queue->work, settle_work);
	compat_hrtimer_init(&queue->timer, timer_fires);
}

/* Nobody has the queue any more: no waiter, so the work starts no timer and the timer no work after this. */
void wait_exit(struct queue *queue)
{
	hrtimer_cancel(&queue->timer);
	cancel_work_sync(&queue->work);
	hrtimer_cancel(&queue->timer);
}

/* ---- a waiter's life ----------------------------------------------------------------------------------------------- */

int wait_make(struct waiter *waiter, struct session *session, const struct pinion_wait *args)
{
	struct queue *queue;
	int ret;

	if (args->flags || args->reserved || !args->generation || args->scope > PINION_SCOPE_EVERY ||
	    args->cond > PINION_COND_CHANGED || (args->cond == PINION_COND_FLUSH && args->value) ||
	    (args->cond == PINION_COND_CHANGED && args->scope != PINION_SCOPE_EVERY))
		return -EINVAL;
	queue = queue_find(args->index, args->generation);
	if (IS_ERR(queue))
		return PTR_ERR(queue);
	ret = queue->flags & PINION_DEV_SYNC && args->cond != PINION_COND_CHANGED ? -ENODATA :
										    payer_add(session->payer, PAYER_WATCHES);
	if (ret) {
		queue_put(queue);
		return ret;
	}
	*waiter = (struct waiter){
		.queue = queue,
		.payer = payer_ref(session->payer),
		.session = session->id,
		.scope = args->scope,
		.cond = args->cond,
		.value = args->value,
		.deadline_ns = S64_MAX,
	};
	init_waitqueue_head(&waiter->head);
	return 0;
}

void wait_unmake(struct waiter *waiter)
{
	payer_remove(waiter->payer, PAYER_WATCHES);
	payer_put(waiter->payer);
	put_pid(waiter->culprit);
	queue_put(waiter->queue);
}

/* Beside the others of its user. */
static void line_up(struct waiter *waiter)
{
	struct list_head *at = &waiter->queue->waiters;
	struct waiter *other;

	list_for_each_entry(other, &waiter->queue->waiters, node)
		if (other->payer == waiter->payer) {
			at = &other->node;
			break;
		}
	list_add_tail(&waiter->node, at);
}

void wait_begin(struct waiter *waiter)
{
	struct member *member;

	lockdep_assert_held(&waiter->queue->lock);
	line_up(waiter);
	list_for_each_entry(member, &waiter->queue->members, node)
		if (member->session->id == waiter->session)
			waiter->member = member;
	if (waiter->cond == PINION_COND_FLUSH)
		flush_begin(waiter);
	/* Whatever stood still before, this one has not waited yet. */
	waiter->queue->tick_ns = 0;
}

void wait_again(struct waiter *waiter)
{
	lockdep_assert_held(&waiter->queue->lock);
	waiter->fired = false;
	waiter->status = 0;
	waiter->lost = 0;
	if (waiter->cond == PINION_COND_FLUSH)
		flush_begin(waiter);
	if (waiter->cond == PINION_COND_CHANGED)
		waiter->value = waiter->cookie;
	waiter->queue->tick_ns = 0;
}

void wait_end(struct waiter *waiter)
{
	lockdep_assert_held(&waiter->queue->lock);
	list_del(&waiter->node);
	wait_settle(waiter->queue);
}

bool wait_others(const struct queue *queue, const struct session *but)
{
	const struct waiter *waiter;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry(waiter, &queue->waiters, node)
		if (waiter->session != but->id)
			return true;
	return false;
}

void wait_tell(const struct waiter *waiter, struct pinion_wait *args)
{
	args->high = waiter->high;
	args->lost = waiter->lost;
	args->cookie = waiter->cookie;
	args->culprit_pid = waiter->culprit ? pid_nr_ns(waiter->culprit, task_active_pid_ns(current)) : 0;
	args->culprit_units = waiter->culprit_units;
}

/* ---- WAIT ---------------------------------------------------------------------------------------------------------- */

/* -ETIMEDOUT, -ERESTARTSYS, or 0 when it fired. */
static int sleep_until(struct waiter *waiter, s64 deadline_ns)
{
	ktime_t deadline = ns_to_ktime(max_t(s64, deadline_ns, 0));
	DEFINE_WAIT(wait);
	int ret = 0;

	for (;;) {
		/* Frozen in here, it goes on where it was; by a signal, as of SIGSTOP, it would begin anew. */
		prepare_to_wait(&waiter->head, &wait, TASK_INTERRUPTIBLE | TASK_FREEZABLE);
		if (READ_ONCE(waiter->fired))
			break;
		if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		}
		if (ret)
			break;
		if (!schedule_hrtimeout_range(&deadline, 0, HRTIMER_MODE_ABS))
			ret = -ETIMEDOUT;
	}
	finish_wait(&waiter->head, &wait);
	return ret;
}

int wait_call(struct call *call)
{
	struct pinion_wait *args = &call->wait;
	struct waiter waiter;
	int ret;

	if (args->deadline_ns < 0)
		return -EINVAL;
	ret = wait_make(&waiter, call->session, args);
	if (ret)
		return ret;
	mutex_lock(&waiter.queue->lock);
	wait_begin(&waiter);
	wait_settle(waiter.queue);
	mutex_unlock(&waiter.queue->lock);
	ret = sleep_until(&waiter, args->deadline_ns);
	mutex_lock(&waiter.queue->lock);
	if (ret == -ETIMEDOUT && !waiter.fired) {
		/* Once more, with the deadline behind it. */
		waiter.deadline_ns = 0;
		wait_settle(waiter.queue);
	}
	if (waiter.fired)
		ret = waiter.status;
	wait_end(&waiter);
	mutex_unlock(&waiter.queue->lock);
	if (!ret || ret == -ETIMEDOUT)
		wait_tell(&waiter, args);
	wait_unmake(&waiter);
	return ret;
}
