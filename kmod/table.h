/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * table: every object of a kind by its id, for LIST. Made in two steps, so that nobody meets one that may still fail: a
 * reserved id shows nothing, publishing cannot fail. Ids are not used again, so that a cursor stays in order.
 *
 * Locking: table->lock keeps an object that was found alive; nothing that faults is done under it. It is outside of
 * queue->lock and pages->lock.
 */
#ifndef PINION_TABLE_H
#define PINION_TABLE_H

#include <linux/atomic.h>
#include <linux/mutex.h>
#include <linux/types.h>
#include <linux/xarray.h>

struct table {
	struct mutex lock;
	struct xarray rows;
	atomic_long_t next;
};

#define TABLE_INIT(name) { \
	.lock = __MUTEX_INITIALIZER(name.lock), \
	.rows = XARRAY_INIT(name.rows, XA_FLAGS_ACCOUNT), \
	.next = ATOMIC_LONG_INIT(0), \
}

extern struct table table_slices, table_sessions, table_members, table_claims, table_watches;

/* The object of that id with the table locked: table_found() lets it go. NULL: none, and nothing is locked. */
void *table_find(struct table *table, u64 id);
void table_found(struct table *table);
int table_reserve(struct table *table, u64 *id);
void table_publish(struct table *table, u64 id, void *object);
/* Published or reserved. */
void table_remove(struct table *table, u64 id);
/* Calls @each for published objects with ids above @after, in order, under the lock, until it returns true. */
void table_walk(struct table *table, u64 after, bool (*each)(void *object, void *data), void *data);
void table_exit(void);

#endif
