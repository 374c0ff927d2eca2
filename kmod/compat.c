// SPDX-License-Identifier: GPL-2.0-only
#include "compat.h"

#include <linux/hugetlb.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>

#include "fault.h"

unsigned long compat_file_page_pages(struct file *file, bool hugetlb)
{
#ifdef CONFIG_HUGETLBFS
	if (hugetlb)
		return 1UL << huge_page_order(hstate_file(file));
#endif
	return 1;
}

/* Page @index, present, by an allocation that fails where a fault would call the killer; with a reference. */
static struct page *shmem_page(struct file *file, unsigned long index)
{
	gfp_t gfp = mapping_gfp_mask(file->f_mapping) | __GFP_RETRY_MAYFAIL | __GFP_NOWARN;

	return fault_here() ? ERR_PTR(-ENOMEM) : shmem_read_mapping_page_gfp(file->f_mapping, index, gfp);
}

#ifdef PINION_HAS_MEMFD_PIN_FOLIOS

/* Pages taken at once; of hugetlb, none of which is ever swapped, more. */
#define PIN_BATCH 64UL
#define PIN_BATCH_HUGETLB (1UL << 18)

/*
 * Makes the pages present, up to @nr of them, all at once: where memory is short, reading one would swap out the one before.
 * The pins follow without a reference of ours on the pages, since some have to be moved for them. So between the two they can
 * be swapped out by others, for whom these are the youngest there are; then the pin reads them in as a fault does.
 */
static int populate(struct file *file, unsigned long first, unsigned long nr)
{
	struct page *page[PIN_BATCH];
	unsigned long done = 0;
	int ret = 0;

	while (done < nr) {
		page[done] = fatal_signal_pending(current) ? ERR_PTR(-EINTR) : shmem_page(file, first + done);
		ret = PTR_ERR_OR_ZERO(page[done]);
		if (ret)
			break;
		done++;
	}
	while (done)
		put_page(page[--done]);
	return ret;
}

/* The pages of @nr folios, the first from @offset bytes on, none past @end. */
static unsigned long spread(struct folio **folio, long nr, pgoff_t offset, struct page **page, unsigned long room)
{
	unsigned long done = 0, at = offset >> PAGE_SHIFT;
	long i;

	for (i = 0; i < nr; i++, at = 0)
		for (; at < folio_nr_pages(folio[i]) && done < room; at++)
			page[done++] = folio_page(folio[i], at);
	return done;
}

int compat_memfd_pin(struct file *file, bool hugetlb, unsigned long first, unsigned long nr, struct page **page,
		     struct folio ***folio, unsigned long *nr_folio, unsigned long *done)
{
	unsigned long batch;
	pgoff_t offset;
	long got;
	int ret;

	*folio = fault_here() ? NULL :
		 kvmalloc_array(nr, sizeof(**folio), GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	if (!*folio)
		return -ENOMEM;
	while (*done < nr) {
		if (fatal_signal_pending(current))
			return -EINTR;
		batch = min(nr - *done, hugetlb ? PIN_BATCH_HUGETLB : PIN_BATCH);
		ret = hugetlb ? 0 : populate(file, first + *done, batch);
		if (ret)
			return ret;
		got = fault_here() ? -ENOMEM :
		      memfd_pin_folios(file, (loff_t)(first + *done) << PAGE_SHIFT,
				       ((loff_t)(first + *done + batch) << PAGE_SHIFT) - 1, *folio + *nr_folio, batch, &offset);
		if (got <= 0)
			return got ?: -ENOMEM;
		*done += spread(*folio + *nr_folio, got, offset, page + *done, batch);
		*nr_folio += got;
		cond_resched();
	}
	return 0;
}

void compat_memfd_unpin(struct page **page, unsigned long nr, struct folio **folio, unsigned long nr_folio, bool dirty)
{
	unsigned long i, j, n;

	for (i = 0; i < nr_folio; i += n) {
		n = min(nr_folio - i, PIN_BATCH);
		for (j = i; dirty && j < i + n; j++) {
			folio_lock(folio[j]);
			folio_mark_dirty(folio[j]);
			folio_unlock(folio[j]);
		}
		unpin_folios(folio + i, n);
		cond_resched();
	}
}

#else

/* Single references: nothing moves the page out of a movable zone, as udmabuf of the same kernels does not. */
int compat_memfd_pin(struct file *file, bool hugetlb, unsigned long first, unsigned long nr, struct page **page,
		     struct folio ***folio, unsigned long *nr_folio, unsigned long *done)
{
	unsigned long unit = compat_file_page_pages(file, hugetlb), i;
	struct page *head;

	for (i = first; i < first + nr; i++) {
		if (fatal_signal_pending(current))
			return -EINTR;
		/* The index of a hugetlb file counts its own pages. */
		if (hugetlb)
			head = fault_here() ? ERR_PTR(-ENOMEM) : find_get_page(file->f_mapping, i / unit);
		else
			head = shmem_page(file, i);
		if (!head)
			return -ENODATA;
		if (IS_ERR(head))
			return PTR_ERR(head);
		page[(*done)++] = head + i % unit;
		cond_resched();
	}
	return 0;
}

void compat_memfd_unpin(struct page **page, unsigned long nr, struct folio **folio, unsigned long nr_folio, bool dirty)
{
	unsigned long i;

	for (i = 0; i < nr; i++) {
		if (dirty)
			set_page_dirty_lock(page[i]);
		put_page(page[i]);
		cond_resched();
	}
}

#endif
