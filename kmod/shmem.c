// SPDX-License-Identifier: GPL-2.0-only
/*
 * shmem: backing for kernels before 6.5, whose io_uring registers shmem mappings and not ours. A mapping is one of a
 * read-only clone of the file, so that nobody can punch holes under the pages (MADV_REMOVE is EBADF); the price is small
 * pages, and that the mapping holds the file and not the buffer: the descriptor must stay open while it is mapped.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/pagevec.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>

#include "fault.h"
#include "pages.h"
#include "trace.h"

/* Off the list that is never looked at, where the mapping's flag has put them; then the references. */
static void let_go(struct folio_batch *batch)
{
	unsigned int i;

	check_move_unevictable_folios(batch);
	for (i = 0; i < folio_batch_count(batch); i++)
		folio_put(batch->folios[i]);
	folio_batch_init(batch);
	cond_resched();
}

/* A mapping may live on: from here on it is ordinary, swappable shared memory. */
static void shmem_release(struct pages *pages)
{
	unsigned long i;
	struct folio_batch batch;

	if (pages->file)
		mapping_clear_unevictable(pages->file->f_mapping);
	folio_batch_init(&batch);
	for (i = 0; i < layout_chunks(&pages->layout); i++) {
		/* A device may have written, which no page table tells; a clean page is dropped and not swapped. */
		set_page_dirty_lock(pages->chunk[i]);
		if (!folio_batch_add(&batch, page_folio(pages->chunk[i])))
			let_go(&batch);
	}
	let_go(&batch);
	if (pages->map_file)
		fput(pages->map_file);
	if (pages->file)
		fput(pages->file);
}

static const struct pages_ops shmem_ops = {
	.kind = PINION_KIND_SHMEM,
	.release = shmem_release,
	.mappable = true,
};

static int fill(struct pages *pages, unsigned long nr)
{
	gfp_t gfp = GFP_USER | __GFP_NOWARN | __GFP_RETRY_MAYFAIL;
	struct page *page;
	unsigned long i;
	int ret;

	for (i = 0; i < nr; i++) {
		ret = pages_pause();
		if (ret)
			return ret;
		page = fault_here() ? ERR_PTR(-ENOMEM) : shmem_read_mapping_page_gfp(pages->file->f_mapping, i, gfp);
		if (IS_ERR(page))
			return PTR_ERR(page);
		pages_add(pages, page, LAYOUT_KINDS - 1);
	}
	return 0;
}

static int open_files(struct pages *pages, u64 bytes)
{
	struct file *file = fault_here() ? ERR_PTR(-ENOMEM) : shmem_file_setup("pinion", bytes, VM_NORESERVE);

	if (IS_ERR(file))
		return PTR_ERR(file);
	pages->file = file;
	mapping_set_unevictable(file->f_mapping);
	file = fault_here() ? ERR_PTR(-ENFILE) : dentry_open(&pages->file->f_path, O_RDONLY | O_LARGEFILE, current_cred());
	if (IS_ERR(file))
		return PTR_ERR(file);
	pages->map_file = file;
	pages->map_pages = 1;
	return 0;
}

struct pages *pages_alloc_shmem(struct payer *payer, const struct pinion_alloc *args, u64 bytes)
{
	unsigned long nr = bytes >> PAGE_SHIFT;
	struct pages *pages;
	int ret;

	pages = pages_new(payer, &shmem_ops, bytes, nr, args->name);
	if (IS_ERR(pages))
		return pages;
	pages->flags = args->flags;
	ret = open_files(pages, bytes);
	if (!ret)
		ret = fill(pages, nr);
	if (ret) {
		pages_put(pages);
		return ERR_PTR(ret == -ENOSPC ? -ENOMEM : ret);
	}
	trace_pinion_pages_alloc(pages);
	return pages;
}
