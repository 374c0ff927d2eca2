// SPDX-License-Identifier: GPL-2.0-only
#include "table.h"

#include <linux/atomic.h>
#include <linux/mutex.h>
#include <linux/xarray.h>

#include "fault.h"
#include "slice.h"

static DEFINE_MUTEX(table_lock);
static struct xarray table = XARRAY_INIT(table, XA_FLAGS_ACCOUNT);
static atomic_long_t next_id = ATOMIC_LONG_INIT(0);

int table_reserve(struct slice *slice)
{
	/* Ids are not used again, so that a cursor of LIST stays in order. */
	slice->id = atomic_long_inc_return(&next_id);
	return fault_here() ? -ENOMEM : xa_reserve(&table, slice->id, GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
}

void table_publish(struct slice *slice)
{
	/* The node is there since table_reserve(). */
	WARN_ON_ONCE(xa_err(xa_store(&table, slice->id, slice, 0)));
}

void table_remove(struct slice *slice)
{
	mutex_lock(&table_lock);
	xa_erase(&table, slice->id);
	mutex_unlock(&table_lock);
}

void table_walk(u64 after, bool (*each)(struct slice *slice, void *data), void *data)
{
	struct slice *slice;
	unsigned long id;

	if (after >= ULONG_MAX)
		return;
	mutex_lock(&table_lock);
	xa_for_each_start(&table, id, slice, after + 1)
		if (each(slice, data))
			break;
	mutex_unlock(&table_lock);
}

void table_exit(void)
{
	WARN_ON(!xa_empty(&table));
	xa_destroy(&table);
}
