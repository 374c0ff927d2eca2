/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * info: the page that shows every device's claims and limits to whoever maps it, written by the module alone.
 *
 * Locking: a line is written under the lock of its queue, or under queues_lock while nobody else has the queue; the head under
 * a spinlock of its own, which is innermost.
 */
#ifndef PINION_INFO_H
#define PINION_INFO_H

#include <linux/mm_types.h>
#include <linux/pinion.h>

#define INFO_LINES (1 + 255)
#define INFO_BYTES (INFO_LINES * 64)

int info_init(void);
void info_exit(void);
struct pinion_info_device *info_line(u32 index);
/* Before and after lanes change hands. */
void info_bump(void);
int info_mmap(struct vm_area_struct *vma);

#endif
