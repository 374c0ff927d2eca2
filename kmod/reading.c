// SPDX-License-Identifier: GPL-2.0-only
#include "reading.h"

#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "call.h"
#include "count.h"
#include "fault.h"
#include "queue.h"

#define ROWS_MOST 256

static void read_queue(const struct session *session, struct queue *queue, struct pinion_reading *row)
{
	const struct member *own;
	struct totals totals;

	mutex_lock(&queue->lock);
	if (queue->gone) {
		*row = (struct pinion_reading){ .index = row->index, .status = -ESTALE, .generation = queue->generation };
		mutex_unlock(&queue->lock);
		return;
	}
	count_read(queue, &totals);
	own = count_of(queue, session);
	*row = (struct pinion_reading){
		.index = row->index,
		.status = queue->flags & PINION_DEV_SYNC ? -ENODATA : 0,
		.generation = queue->generation,
		.low = totals.low,
		.high = totals.high,
		.cost = totals.cost,
		.session_low = own ? own->sum.low : 0,
		.session_high = own ? own->sum.high : 0,
		.submitted = totals.submitted,
		.retired = queue->retired,
		.reclaimed = queue->reclaimed,
		.cookie = totals.cookie,
		.budget = queue->budget,
		.claimed_bytes = queue->exclusive ? U64_MAX : queue->claimed_bytes,
		.claimed_units = min_t(u64, queue->claimed_units, U32_MAX),
		.claims = queue->nr_claims,
		.capacity = queue->capacity,
		.flags = queue->flags,
		.sessions = queue->nr_members,
		.marked = totals.marked,
	};
	mutex_unlock(&queue->lock);
}

void reading_row(const struct session *session, struct pinion_reading *row)
{
	struct queue *queue = queue_find(row->index, row->generation);

	if (IS_ERR(queue)) {
		*row = (struct pinion_reading){ .index = row->index, .status = PTR_ERR(queue), .generation = row->generation };
		return;
	}
	read_queue(session, queue, row);
	queue_put(queue);
}

int reading_rows(struct session *session, const struct pinion_read *args)
{
	size_t part = min_t(size_t, args->row_size, sizeof(struct pinion_reading));
	char __user *at = (char __user *)(unsigned long)args->rows;
	struct pinion_reading row;
	u32 i;

	if (args->flags || !args->count || args->count > ROWS_MOST || args->row_size < sizeof(row))
		return -EINVAL;
	if (args->row_size > PAGE_SIZE)
		return -E2BIG;
	for (i = 0; i < args->count; i++, at += args->row_size) {
		if (fault_here() || copy_from_user(&row, at, offsetofend(struct pinion_reading, generation)))
			return -EFAULT;
		reading_row(session, &row);
		if (fault_here() || copy_to_user(at, &row, part) ||
		    (args->row_size > part && clear_user(at + part, args->row_size - part)))
			return -EFAULT;
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	return 0;
}

int reading_call(struct call *call)
{
	return reading_rows(call->session, &call->read);
}
