/* SPDX-License-Identifier: GPL-2.0-only */
/* The differences between kernels, in one place. Each is found by a probe (Kbuild, probe/), not by a version. */
#ifndef PINION_COMPAT_H
#define PINION_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/mm.h>

static inline void compat_vm_flags_mod(struct vm_area_struct *vma, unsigned long set, unsigned long clear)
{
#ifdef PINION_HAS_VM_FLAGS_SET
	vm_flags_mod(vma, set, clear);
#else
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
#endif
}

static inline void compat_hrtimer_init(struct hrtimer *timer, enum hrtimer_restart (*fires)(struct hrtimer *timer))
{
#ifdef PINION_HAS_HRTIMER_SETUP
	hrtimer_setup(timer, fires, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
#else
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	timer->function = fires;
#endif
}

/* mmap_lock is held for reading. */
static inline long compat_pin_user_pages(unsigned long start, unsigned long nr, unsigned int flags, struct page **pages)
{
#ifdef PINION_HAS_PIN_USER_PAGES_VMAS
	return pin_user_pages(start, nr, flags, pages, NULL);
#else
	return pin_user_pages(start, nr, flags, pages);
#endif
}

/* io_uring registers only anonymous, shmem and hugetlb memory: changed in the release that took the VMAs from the pins. */
#ifdef PINION_HAS_PIN_USER_PAGES_VMAS
#define COMPAT_NEEDS_SHMEM 1
#else
#define COMPAT_NEEDS_SHMEM 0
#endif

/* Whether io_uring cancels a command that waits. */
#if defined(PINION_HAS_URING_CANCEL) && defined(CONFIG_IO_URING)
#define COMPAT_CANCELS_URING 1
#else
#define COMPAT_CANCELS_URING 0
#endif

/* Whether PIN of a hugetlb memfd allocates what is absent. */
#ifdef PINION_HAS_MEMFD_PIN_FOLIOS
#define COMPAT_PINS_HUGETLB 1
#else
#define COMPAT_PINS_HUGETLB 0
#endif

/*
 * Takes the pages @first to @first + @nr of a memfd whose inode is locked; what was taken before a failure is in *@done,
 * *@folio and *@nr_folio and stays the caller's, for compat_memfd_unpin(). -ENODATA: an absent page of a hugetlb memfd.
 */
int compat_memfd_pin(struct file *file, bool hugetlb, unsigned long first, unsigned long nr, struct page **page,
		     struct folio ***folio, unsigned long *nr_folio, unsigned long *done);
/* @dirty: a device may have written, which no page table tells; a clean page of shmem is dropped and not swapped. */
void compat_memfd_unpin(struct page **page, unsigned long nr, struct folio **folio, unsigned long nr_folio, bool dirty);

/* Pages of 4 KiB in the page that a file's mappings are made of. */
unsigned long compat_file_page_pages(struct file *file, bool hugetlb);

#endif
