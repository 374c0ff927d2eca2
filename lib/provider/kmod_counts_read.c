/* SPDX-License-Identifier: MIT */
/* kmod counts read: what is in flight on the module's devices, by calls. */
#include "kmod_counts.h"

#include "../error.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

int kmod_read(const struct counts *c, const struct counts_device *dev, struct pinion_reading *row)
{
	struct pinion_read args = { .size = sizeof(args), .rows = (uintptr_t)row, .count = 1, .row_size = sizeof(*row) };
	int ret;

	*row = (struct pinion_reading){ .index = dev->index, .generation = dev->generation };
	ret = kmod_call(c, PINION_IOC_READ, &args);
	return ret ? ret : row->status;
}

static int read_failed(const struct counts *c, const struct counts_device *dev, int err)
{
	if (err == ESTALE || err == ENOENT)
		return kmod_stale(dev);
	if (err == ENODATA)
		return fail(ENODATA, "device '%s' is synchronous: it has no queue", kmod_key(c, dev).s);
	return fail_errno(err, "reading the counts of '%s'", kmod_key(c, dev).s);
}

#define ROWS 16 /* of a call; stacks may be small */

static uint32_t pending_of(uint64_t high)
{
	return high > UINT32_MAX ? UINT32_MAX : high;
}

/* Up to ROWS devices; *@rows the rows. How many are well, from the first on. */
static size_t read_some(const struct counts *c, const struct counts_device *const *dev, size_t n,
			struct pinion_reading rows[ROWS], uint32_t *pending)
{
	struct pinion_read args = { .size = sizeof(args), .rows = (uintptr_t)rows, .count = n, .row_size = sizeof(rows[0]) };
	size_t i;
	int ret;

	for (i = 0; i < n; i++) {
		rows[i].index = dev[i]->index;
		rows[i].generation = dev[i]->generation;
	}
	ret = kmod_call(c, PINION_IOC_READ, &args);
	if (ret)
		rows[0].status = ret;
	for (i = 0; i < n && !rows[i].status; i++)
		pending[i] = pending_of(rows[i].high);
	return i;
}

size_t kmod_read_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending)
{
	struct pinion_reading rows[ROWS];
	size_t read = read_some(c, dev, n < ROWS ? n : ROWS, rows, pending);

	if (read)
		return read;
	pending[0] = 0;
	return 1;
}

int kmod_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending)
{
	struct pinion_reading rows[ROWS];

	while (n) {
		size_t some = n < ROWS ? n : ROWS, read = read_some(c, dev, some, rows, pending);

		if (read < some)
			return read_failed(c, dev[read], -rows[read].status);
		dev += some;
		pending += some;
		n -= some;
	}
	return 0;
}

/* ---- this context -------------------------------------------------------------------------------------------------- */

static uint32_t own_lanes(const struct counts *c, const struct counts_device *dev, const struct pinion_lane **lane)
{
	uint32_t n = 0;

	for (uint32_t l = 0; l < PINION_LANES; l++)
		if (__atomic_load_n(&c->kmod->lane[l].generation, __ATOMIC_ACQUIRE) == dev->generation)
			lane[n++] = &c->page->lane[l];
	return n;
}

/* From the page: nothing else of this context counts. */
int kmod_pending_mine(const struct counts *c, const struct counts_device *dev, uint32_t *pending)
{
	const struct pinion_lane *lane[PINION_LANES];
	int64_t high;
	__u64 moves;

	if (!counts_device_current(dev))
		return kmod_stale(dev);
	if (!dev->has_queue)
		return read_failed(c, dev, ENODATA);
	do {
		moves = pinion_load_acquire(&c->kmod->moves);
		high = pinion_lanes_high(lane, own_lanes(c, dev, lane), PINION_BOTH);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (pinion_load_acquire(&c->kmod->moves) != moves);
	if (!counts_device_current(dev))
		return kmod_stale(dev);
	*pending = high < 0 ? 0 : high > UINT32_MAX ? UINT32_MAX : high;
	return 0;
}

static bool shares_lane(const struct counts *c, const struct counts_device *dev)
{
	for (uint32_t l = 0; l < PINION_LANES; l++)
		if (__atomic_load_n(&c->kmod->lane[l].generation, __ATOMIC_ACQUIRE) == dev->generation && c->kmod->lane[l].shared)
			return true;
	return false;
}

/* ---- everybody ----------------------------------------------------------------------------------------------------- */

/* A device without a queue has all but counts. */
int kmod_device_info(const struct counts *c, const struct counts_device *dev, struct pinion_device_info *info)
{
	struct pinion_reading row;
	int ret = kmod_read(c, dev, &row);

	if (ret && ret != -ENODATA)
		return read_failed(c, dev, -ret);
	info->generation = dev->generation;
	info->capacity = dev->capacity;
	info->budget = dev->budget;
	info->pending_low = row.low;
	info->pending_high = row.high;
	info->pending_cost = row.cost;
	info->submitted = row.submitted + row.retired;
	info->reclaimed = row.reclaimed;
	info->sessions = row.sessions;
	/* Of others the module does not know. */
	info->shared_lanes = shares_lane(c, dev);
	return 0;
}

int kmod_list(const struct counts *c, uint32_t kind, size_t row_size, void (*fn)(void *arg, const void *row), void *arg)
{
	_Alignas(8) char rows[4096]; /* stacks may be small */
	struct pinion_list args = { .size = sizeof(args),
				    .kind = kind,
				    .rows = (uintptr_t)rows,
				    .count = sizeof(rows) / row_size,
				    .row_size = row_size };
	int ret;

	do {
		ret = kmod_call(c, PINION_IOC_LIST, &args);
		for (uint32_t i = 0; !ret && i < args.out_count; i++)
			fn(arg, rows + i * row_size);
	} while (!ret && args.out_count == args.count);
	return ret;
}

struct users {
	const struct counts_device *dev;
	struct pinion_device_user *rows;
	size_t cap, n;
};

static void note_user(void *arg, const void *row)
{
	const struct pinion_list_session *session = row;
	struct users *users = arg;
	struct pinion_device_user *user;

	if (session->generation != users->dev->generation || !session->lanes)
		return;
	user = users->n++ < users->cap ? &users->rows[users->n - 1] : NULL;
	if (!user)
		return;
	user->pid = session->pid;
	user->uid = session->uid;
	memcpy(user->comm, session->comm, sizeof(user->comm));
	user->comm[sizeof(user->comm) - 1] = 0;
	user->since_ns = session->since_ns;
	user->pending = session->high;
	user->submitted = session->submitted;
}

int kmod_device_users(const struct counts *c, const struct counts_device *dev, struct pinion_device_user *rows, size_t cap,
		      size_t *n)
{
	struct users users = { .dev = dev, .rows = rows, .cap = cap };
	int ret;

	if (!counts_device_current(dev))
		return kmod_stale(dev);
	ret = kmod_list(c, PINION_LIST_SESSIONS, sizeof(struct pinion_list_session), note_user, &users);
	if (ret)
		return fail_errno(-ret, "listing who counts on '%s'", kmod_key(c, dev).s);
	*n = users.n;
	return 0;
}
