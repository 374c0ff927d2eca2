// SPDX-License-Identifier: GPL-2.0-only
#include "list.h"

#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "call.h"
#include "claim.h"
#include "count.h"
#include "fault.h"
#include "pages.h"
#include "slice.h"
#include "table.h"
#include "watch.h"

/* One kind of rows. */
struct list_kind {
	struct table *table;
	size_t row_bytes;
	const struct payer *(*payer)(const void *object);
	u64 (*id)(const void *object);
	void (*fill)(void *object, const struct session *reader, void *row);
	/* What the others have, all of it, as one row: adds an object to it; NULL: the accounts say so. */
	void (*fold)(void *object, void *row);
};

union row {
	struct pinion_list_buffer buffer;
	struct pinion_list_session session;
	struct pinion_list_claim claim;
	struct pinion_list_watch watch;
};

/* As the reader's namespaces show them. */
static u32 uid_seen(const struct payer *payer)
{
	return from_kuid_munged(current_user_ns(), payer_uid(payer));
}

static s32 pid_seen(struct pid *pid)
{
	return pid_nr_ns(pid, task_active_pid_ns(current));
}

/* ---- buffers ------------------------------------------------------------------------------------------------------- */

static const struct payer *slice_payer(const void *object)
{
	return ((const struct slice *)object)->payer;
}

static u64 slice_id(const void *object)
{
	return ((const struct slice *)object)->id;
}

static void slice_fill(void *object, const struct session *reader, void *to)
{
	struct slice *slice = object;
	struct pinion_list_buffer *row = to;

	*row = (struct pinion_list_buffer){
		.id = slice->id,
		.pages_id = slice->pages->id,
		.offset = (u64)slice->first << PAGE_SHIFT,
		.bytes = (u64)slice->nr << PAGE_SHIFT,
		.pages_bytes = (u64)pages_nr(slice->pages) << PAGE_SHIFT,
		.huge_bytes = pages_huge_bytes(slice->pages),
		.made_ns = slice->made_ns,
		.uid = uid_seen(slice->payer),
		.pid = pid_seen(slice->maker),
		.kind = slice->pages->ops->kind,
		.rights = slice->rights,
		.buffers = 1,
		.attachments = slice_attachments(slice),
	};
	strscpy(row->name, slice->pages->name, sizeof(row->name));
}

/* From the accounts, which do not count shared pages twice. */
static bool slice_others(const struct call *call, struct pinion_list_buffer *row)
{
	struct payer_use use;

	payer_use(call->session->payer, &use);
	*row = (struct pinion_list_buffer){
		.bytes = use.bytes - use.user_bytes,
		.pages_bytes = use.bytes - use.user_bytes,
		.uid = PINION_UID_OTHERS,
		.buffers = use.all[PAYER_BUFFERS] - use.user[PAYER_BUFFERS],
	};
	return row->buffers || row->bytes;
}

/* ---- sessions ------------------------------------------------------------------------------------------------------ */

static const struct payer *member_payer(const void *object)
{
	return ((const struct member *)object)->session->payer;
}

static u64 member_id(const void *object)
{
	return ((const struct member *)object)->id;
}

static void member_fill(void *object, const struct session *reader, void *to)
{
	struct member *member = object;
	struct session *session = member->session;
	struct pinion_list_session *row = to;

	mutex_lock(&member->queue->lock);
	count_read_one(member);
	*row = (struct pinion_list_session){
		.id = member->id,
		.session = session->id,
		.generation = member->queue->generation,
		.lanes = member->lanes,
		.low = member->sum.low,
		.high = member->sum.high,
		.cost = member->sum.cost_high,
		.submitted = member->sum.submitted,
		.max_inflight = member->max_inflight,
		.since_ns = session->since_ns,
		.index = member->queue->index,
		.flags = (member->marked ? PINION_SESSION_MARKED : 0) | (member->held ? PINION_SESSION_HELD : 0) |
			 (READ_ONCE(session->state) == SESSION_MAPPED ? PINION_SESSION_MAPPED : 0) |
			 (session == reader ? PINION_SESSION_MINE : 0) | (member->elsewhere ? PINION_SESSION_DMA : 0),
		.uid = uid_seen(session->payer),
		.pid = pid_seen(session->pid),
		.sessions = 1,
	};
	mutex_unlock(&member->queue->lock);
	memcpy(row->comm, session->comm, sizeof(row->comm));
}

static void member_fold(void *object, void *to)
{
	struct pinion_list_session *row = to;
	union row one;

	member_fill(object, NULL, &one);
	row->low += one.session.low;
	row->high += one.session.high;
	row->cost += one.session.cost;
	row->submitted += one.session.submitted;
	row->sessions++;
	row->uid = PINION_UID_OTHERS;
}

/* ---- claims -------------------------------------------------------------------------------------------------------- */

static const struct payer *claim_payer(const void *object)
{
	return ((const struct claim *)object)->payer;
}

static u64 claim_id(const void *object)
{
	return ((const struct claim *)object)->id;
}

static void claim_fill(void *object, const struct session *reader, void *to)
{
	struct claim *claim = object;

	*(struct pinion_list_claim *)to = (struct pinion_list_claim){
		.id = claim->id,
		.generation = claim->queue->generation,
		.bytes = claim->bytes,
		.made_ns = claim->made_ns,
		.index = claim->queue->index,
		.units = claim->units,
		.flags = claim->flags,
		.uid = uid_seen(claim->payer),
		.pid = pid_seen(claim->maker),
		.claims = 1,
	};
}

static void claim_fold(void *object, void *to)
{
	const struct claim *claim = object;
	struct pinion_list_claim *row = to;

	row->bytes += claim->bytes;
	row->units += claim->units;
	row->claims++;
	row->uid = PINION_UID_OTHERS;
}

/* ---- watches ------------------------------------------------------------------------------------------------------- */

static const struct payer *watch_payer(const void *object)
{
	return ((const struct watch *)object)->waiter.payer;
}

static u64 watch_id(const void *object)
{
	return ((const struct watch *)object)->id;
}

static void watch_fill(void *object, const struct session *reader, void *to)
{
	struct watch *watch = object;
	u64 value;

	mutex_lock(&watch->waiter.queue->lock);
	value = watch->waiter.value;
	mutex_unlock(&watch->waiter.queue->lock);
	*(struct pinion_list_watch *)to = (struct pinion_list_watch){
		.id = watch->id,
		.generation = watch->waiter.queue->generation,
		.value = value,
		.made_ns = watch->made_ns,
		.index = watch->waiter.queue->index,
		.cond = watch->waiter.cond,
		.scope = watch->waiter.scope,
		.uid = uid_seen(watch->waiter.payer),
		.pid = pid_seen(watch->maker),
		.watches = 1,
	};
}

static void watch_fold(void *object, void *to)
{
	struct pinion_list_watch *row = to;

	row->watches++;
	row->uid = PINION_UID_OTHERS;
}

static const struct list_kind kinds[] = {
	[PINION_LIST_BUFFERS] = { &table_slices, sizeof(struct pinion_list_buffer), slice_payer, slice_id, slice_fill, NULL },
	[PINION_LIST_SESSIONS] = { &table_members, sizeof(struct pinion_list_session), member_payer, member_id, member_fill,
				   member_fold },
	[PINION_LIST_RESERVATIONS] = { &table_claims, sizeof(struct pinion_list_claim), claim_payer, claim_id, claim_fill,
				       claim_fold },
	[PINION_LIST_WATCHES] = { &table_watches, sizeof(struct pinion_list_watch), watch_payer, watch_id, watch_fill,
				  watch_fold },
};

/* ---- the call ------------------------------------------------------------------------------------------------------ */

/* Rows gathered at once, under the table's lock; copied out without it. */
#define ROWS_BYTES PAGE_SIZE

struct gather {
	const struct call *call;
	const struct list_kind *kind;
	void *rows;
	unsigned int nr, most;
	u64 cursor;
	bool fold; /* rows of other users are one, at the end */
	union row others;
};

static bool gather_row(void *object, void *data)
{
	struct gather *g = data;
	bool mine = g->kind->payer(object) == g->call->session->payer;

	if (g->fold && !mine) {
		g->cursor = g->kind->id(object);
		return false;
	}
	if (g->nr == g->most)
		return true;
	g->cursor = g->kind->id(object);
	g->kind->fill(object, g->call->session, g->rows + g->nr++ * g->kind->row_bytes);
	return false;
}

/* Rows of the caller's size: what it does not know is cut off, what we do not know is zero. */
static int copy_rows(const struct gather *g, const void *rows, unsigned int nr, unsigned int done)
{
	const struct pinion_list *args = &g->call->list;
	char __user *to = (char __user *)(unsigned long)args->rows + (size_t)done * args->row_size;
	size_t part = min_t(size_t, args->row_size, g->kind->row_bytes);
	unsigned int i;

	for (i = 0; i < nr; i++, to += args->row_size) {
		if (fault_here() || copy_to_user(to, rows + i * g->kind->row_bytes, part) ||
		    (args->row_size > part && clear_user(to + part, args->row_size - part)))
			return -EFAULT;
	}
	return 0;
}

static bool fold_row(void *object, void *data)
{
	struct gather *g = data;

	if (g->kind->payer(object) != g->call->session->payer) {
		g->kind->fold(object, &g->others);
		g->nr++;
	}
	return false;
}

/* What the others have, in all, wherever the call's cursor began. */
static bool others_row(struct gather *g)
{
	if (!g->kind->fold)
		return slice_others(g->call, &g->others.buffer);
	memset(&g->others, 0, sizeof(g->others));
	g->nr = 0;
	table_walk(g->kind->table, 0, fold_row, g);
	return g->nr;
}

static int list_rows(struct gather *g, unsigned int *done)
{
	const struct pinion_list *args = &g->call->list;
	unsigned int room = ROWS_BYTES / g->kind->row_bytes;
	int ret;

	do {
		g->nr = 0;
		g->most = min(args->count - *done, room);
		table_walk(g->kind->table, g->cursor, gather_row, g);
		ret = copy_rows(g, g->rows, g->nr, *done);
		*done += g->nr;
	} while (!ret && g->nr == room && *done < args->count && !fatal_signal_pending(current));
	/* The row of others ends the walk, also where it is the one row that a call has room for. */
	if (!ret && g->fold && *done < args->count && args->cursor != U64_MAX && others_row(g)) {
		ret = copy_rows(g, &g->others, 1, *done);
		(*done)++;
		g->cursor = U64_MAX;
	}
	return ret;
}

int list_call(struct call *call)
{
	struct pinion_list *args = &call->list;
	struct gather g = { .call = call, .cursor = args->cursor, .fold = !call_writes(call) };
	unsigned int done = 0;
	int ret;

	if (!args->kind || args->kind >= ARRAY_SIZE(kinds) || args->reserved || !args->count)
		return -EINVAL;
	g.kind = &kinds[array_index_nospec(args->kind, ARRAY_SIZE(kinds))];
	if (args->row_size < g.kind->row_bytes)
		return -EINVAL;
	if (args->row_size > PAGE_SIZE)
		return -E2BIG;
	g.rows = fault_here() ? NULL : kmalloc(ROWS_BYTES, GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (!g.rows)
		return -ENOMEM;
	ret = list_rows(&g, &done);
	kfree(g.rows);
	args->cursor = g.cursor;
	args->out_count = done;
	return ret;
}
