// SPDX-License-Identifier: GPL-2.0-only
#include "info.h"

#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/pinion_counters.h>
#include <linux/spinlock.h>

#include "compat.h"
#include "queue.h"

static_assert(INFO_LINES == 1 + QUEUES_MAX);
static_assert(INFO_BYTES % PAGE_SIZE == 0);

static unsigned long info_pages;
static DEFINE_SPINLOCK(info_lock);

int info_init(void)
{
	struct pinion_info_head *head;

	info_pages = __get_free_pages(GFP_KERNEL | __GFP_ZERO | __GFP_COMP, get_order(INFO_BYTES));
	if (!info_pages)
		return -ENOMEM;
	head = (void *)info_pages;
	head->version = 1;
	head->devices = QUEUES_MAX;
	return 0;
}

void info_exit(void)
{
	free_pages(info_pages, get_order(INFO_BYTES));
}

struct pinion_info_device *info_line(u32 index)
{
	return (struct pinion_info_device *)info_pages + 1 + index;
}

void info_bump(void)
{
	struct pinion_info_head *head = (void *)info_pages;

	spin_lock(&info_lock);
	pinion_roster_bump(&head->roster);
	spin_unlock(&info_lock);
}

/* The pages stay for as long as the module, which the mapping's file holds. */
int info_mmap(struct vm_area_struct *vma)
{
	if (vma->vm_end - vma->vm_start > INFO_BYTES)
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EACCES;
	compat_vm_flags_mod(vma, VM_IO | VM_DONTEXPAND | VM_DONTDUMP, VM_MAYWRITE | VM_MAYEXEC);
	return remap_pfn_range(vma, vma->vm_start, page_to_pfn(virt_to_page((void *)info_pages)), vma->vm_end - vma->vm_start,
			       vma->vm_page_prot);
}
