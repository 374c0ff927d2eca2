// SPDX-License-Identifier: GPL-2.0-only
/*
 * pin: a range of the caller's memory, for devices. Only memory that stays itself under a long-term pin: anonymous, shmem,
 * hugetlb. Pages of a file system would be written behind its back.
 */
#include "pin.h"

#include <linux/fs.h>
#include <linux/hugetlb_inline.h>
#include <linux/lockdep.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include "compat.h"
#include "fault.h"
#include "trace.h"

/* Pages pinned with mmap_lock held at once: the owner's other threads wait for it. */
#define PIN_BATCH 512UL

static void range_release(struct pages *pages)
{
	unsigned long nr = layout_chunks(&pages->layout), i, n;

	for (i = 0; i < nr; i += n) {
		n = min(nr - i, PIN_BATCH);
		unpin_user_pages_dirty_lock(pages->chunk + i, n, true);
		cond_resched();
	}
}

static const struct pages_ops range_ops = {
	.kind = PINION_KIND_RANGE,
	.release = range_release,
};

static int check_vma(const struct vm_area_struct *vma)
{
	const struct inode *inode = vma->vm_file ? file_inode(vma->vm_file) : NULL;
	/* Devices' nodes live in a tmpfs too; what a driver maps is not shared memory. */
	bool shmem = inode && S_ISREG(inode->i_mode) && inode->i_sb->s_magic == TMPFS_MAGIC;

	if (!vma_is_anonymous((struct vm_area_struct *)vma) && !shmem && !is_vm_hugetlb_page((struct vm_area_struct *)vma))
		return -EOPNOTSUPP;
	if (vma->vm_flags & (VM_IO | VM_PFNMAP))
		return -EOPNOTSUPP;
	return vma->vm_flags & VM_WRITE ? 0 : -EACCES;
}

/* The VMAs over [start, end), under the lock that the pins are then taken with. */
static int check_vmas(unsigned long start, unsigned long end)
{
	struct vm_area_struct *vma;
	int ret;

	lockdep_assert_held(&current->mm->mmap_lock);
	while (start < end) {
		vma = find_vma(current->mm, start);
		if (!vma || vma->vm_start > start)
			return -EFAULT;
		ret = check_vma(vma);
		if (ret)
			return ret;
		start = vma->vm_end;
	}
	return 0;
}

/*
 * Without faulting anything in: a fault that finds no memory calls the killer. An absent page, or one that a write would
 * still have to copy, is the caller's to populate.
 */
static long pin_batch(unsigned long start, unsigned long nr, struct page **page)
{
	long got;

	if (mmap_read_lock_killable(current->mm))
		return -EINTR;
	got = fault_here() ? -ENOMEM : check_vmas(start, start + (nr << PAGE_SHIFT));
	if (!got)
		got = compat_pin_user_pages(start, nr, FOLL_WRITE | FOLL_LONGTERM | FOLL_NOFAULT, page);
	if (got == -EFAULT && !check_vmas(start, start + (nr << PAGE_SHIFT)))
		got = -ENODATA;
	mmap_read_unlock(current->mm);
	return got ?: -ENODATA;
}

struct pages *pin_range(struct payer *payer, const struct pinion_pin *args)
{
	unsigned long nr = args->bytes >> PAGE_SHIFT, done = 0;
	struct pages *pages;
	long got;

	pages = pages_new(payer, &range_ops, args->bytes, nr, args->name);
	if (IS_ERR(pages))
		return pages;
	while (done < nr) {
		got = pages_pause();
		if (got)
			goto err;
		got = pin_batch(args->addr + (done << PAGE_SHIFT), min(nr - done, PIN_BATCH), pages->chunk + done);
		if (got < 0)
			goto err;
		done += got;
		pages->layout.chunks[LAYOUT_KINDS - 1] = done;
	}
	trace_pinion_pages_alloc(pages);
	return pages;
err:
	pages_put(pages);
	return ERR_PTR(got);
}
