/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * table: every slice by its id. Made in two steps, so that nobody meets one that may still fail: a reserved id shows
 * nothing, publishing cannot fail.
 *
 * Locking: table_lock, a mutex, keeps a slice that was found alive; it is taken with nothing held but a dma-buf's last
 * reference, and nothing that faults is done under it.
 */
#ifndef PINION_TABLE_H
#define PINION_TABLE_H

#include <linux/types.h>

struct slice;

/* Gives @slice its id. */
int table_reserve(struct slice *slice);
void table_publish(struct slice *slice);
/* Published or reserved. */
void table_remove(struct slice *slice);
/* Calls @each for published slices with ids above @after, in order, under the lock, until it returns true. */
void table_walk(u64 after, bool (*each)(struct slice *slice, void *data), void *data);
void table_exit(void);

#endif
