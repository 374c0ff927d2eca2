// SPDX-License-Identifier: GPL-2.0-only
#include "table.h"

#include "fault.h"
#include "pages.h"

struct table table_slices = TABLE_INIT(table_slices);
struct table table_sessions = TABLE_INIT(table_sessions);
struct table table_members = TABLE_INIT(table_members);
struct table table_claims = TABLE_INIT(table_claims);
struct table table_watches = TABLE_INIT(table_watches);

int table_reserve(struct table *table, u64 *id)
{
	*id = atomic_long_inc_return(&table->next);
	return fault_here() ? -ENOMEM : xa_reserve(&table->rows, *id, GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
}

void table_publish(struct table *table, u64 id, void *object)
{
	/* The node is there since table_reserve(). */
	WARN_ON_ONCE(xa_err(xa_store(&table->rows, id, object, 0)));
}

void table_remove(struct table *table, u64 id)
{
	mutex_lock(&table->lock);
	xa_erase(&table->rows, id);
	mutex_unlock(&table->lock);
}

void *table_find(struct table *table, u64 id)
{
	void *object = NULL;

	mutex_lock(&table->lock);
	if (id <= ULONG_MAX)
		object = xa_load(&table->rows, id);
	if (!object)
		mutex_unlock(&table->lock);
	return object;
}

void table_found(struct table *table)
{
	mutex_unlock(&table->lock);
}

void table_walk(struct table *table, u64 after, bool (*each)(void *object, void *data), void *data)
{
	unsigned long id;
	void *object;

	if (after >= ULONG_MAX)
		return;
	mutex_lock(&table->lock);
	xa_for_each_start(&table->rows, id, object, after + 1)
		if (each(object, data))
			break;
	mutex_unlock(&table->lock);
}

static void exit_one(struct table *table)
{
	WARN_ON(!xa_empty(&table->rows));
	xa_destroy(&table->rows);
}

void table_exit(void)
{
	exit_one(&table_slices);
	exit_one(&table_sessions);
	exit_one(&table_members);
	exit_one(&table_claims);
	exit_one(&table_watches);
}
