// SPDX-License-Identifier: GPL-2.0-only
#include "slice.h"

#include <linux/dma-mapping.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/pagemap.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "call.h"
#include "compat.h"
#include "fault.h"
#include "table.h"
#include "trace.h"

/* ---- devices ------------------------------------------------------------------------------------------------------- */

/* One mapping by one device, with a table of its own: importers edit the addresses in place. */
struct mapping {
	struct list_head node; /* pages->mappings, under pages->lock */
	struct sg_table table;
	struct device *dev;
	enum dma_data_direction dir;
};

/* Whether from now on nobody begins to write, neither by a mapping nor by a device's, whatever the slice's rights. */
static bool write_sealed(const struct slice *slice)
{
	const struct pages_ops *ops = slice->pages->ops;

	return ops->write_sealed && ops->write_sealed(slice->pages);
}

static unsigned long most_pages(struct device *dev)
{
	/* What a bounce buffer maps at once, and what the device takes: 64 KiB where its driver does not say. */
	size_t most = min_t(size_t, dma_max_mapping_size(dev), dma_get_max_seg_size(dev)) >> PAGE_SHIFT;

	return clamp_t(size_t, most, 1, UINT_MAX >> PAGE_SHIFT);
}

static int table_fill(const struct slice *slice, unsigned long most, struct sg_table *table)
{
	unsigned long end = slice->first + slice->nr, index, run;
	struct scatterlist *sg;
	unsigned int entries = 0;
	struct page *page;
	int ret;

	for (index = slice->first; index < end; index += pages_run(slice->pages, index, end, most, &page)) {
		entries++;
		cond_resched();
	}
	ret = fault_here() ? -ENOMEM : sg_alloc_table(table, entries, GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN);
	if (ret)
		return ret;
	sg = table->sgl;
	for (index = slice->first; index < end; index += run, sg = sg_next(sg)) {
		run = pages_run(slice->pages, index, end, most, &page);
		sg_set_page(sg, page, run << PAGE_SHIFT, 0);
		cond_resched();
	}
	return 0;
}

/*
 * Several devices map the same pages, which is what this attribute is for: without it the kernel's checker takes the second for a
 * mistake. So each mapping is synchronised here, when it is made and when it goes. Both under the lock that lists it: an access
 * of the CPU that begins or ends between the two would not find the mapping, and its bytes or the device's would miss each other.
 */
#define MAP_ATTRS DMA_ATTR_SKIP_CPU_SYNC

static struct sg_table *slice_map_dma(struct dma_buf_attachment *attach, enum dma_data_direction dir)
{
	struct slice *slice = attach->dmabuf->priv;
	struct mapping *mapping;
	int ret;

	if (dir != DMA_TO_DEVICE && !(slice->rights & PINION_RIGHT_DMA_RW))
		return ERR_PTR(-EACCES);
	if (dir != DMA_TO_DEVICE && write_sealed(slice))
		return ERR_PTR(-EPERM);
	mapping = fault_here() ? NULL : kzalloc(sizeof(*mapping), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (!mapping)
		return ERR_PTR(-ENOMEM);
	mapping->dev = attach->dev;
	mapping->dir = dir;
	ret = table_fill(slice, most_pages(attach->dev), &mapping->table);
	if (ret)
		goto err_free;
	ret = dma_map_sgtable(attach->dev, &mapping->table, dir, MAP_ATTRS);
	if (ret)
		goto err_table;
	mutex_lock(&slice->pages->lock);
	dma_sync_sgtable_for_device(attach->dev, &mapping->table, dir);
	list_add(&mapping->node, &slice->pages->mappings);
	slice->pages->nr_mappings++;
	mutex_unlock(&slice->pages->lock);
	trace_pinion_slice_map(slice, mapping->table.orig_nents, dir);
	return &mapping->table;

err_table:
	sg_free_table(&mapping->table);
err_free:
	kfree(mapping);
	return ERR_PTR(ret);
}

static void slice_unmap_dma(struct dma_buf_attachment *attach, struct sg_table *table, enum dma_data_direction dir)
{
	struct mapping *mapping = container_of(table, struct mapping, table);
	struct slice *slice = attach->dmabuf->priv;

	mutex_lock(&slice->pages->lock);
	dma_sync_sgtable_for_cpu(attach->dev, table, dir);
	list_del(&mapping->node);
	slice->pages->nr_mappings--;
	mutex_unlock(&slice->pages->lock);
	trace_pinion_slice_unmap(slice, table->orig_nents, dir);
	dma_unmap_sgtable(attach->dev, table, dir, MAP_ATTRS);
	sg_free_table(table);
	kfree(mapping);
}

unsigned int slice_attachments(struct slice *slice)
{
	unsigned int nr;

	mutex_lock(&slice->pages->lock);
	nr = slice->pages->nr_mappings;
	mutex_unlock(&slice->pages->lock);
	return nr;
}

/*
 * The CPU's accesses are to memory, whatever slice they go through: every device's mapping of the pages is synchronised.
 * A device that may write has to be taken from before the CPU looks, even if the CPU only means to write: what it leaves
 * alone goes back to the device at the end.
 */
static int slice_begin_cpu(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct slice *slice = dmabuf->priv;
	struct mapping *mapping;
	long ret;

	/* The core waits for fences after this, which is too late for what is taken from a device below. */
	ret = dma_resv_wait_timeout(dmabuf->resv, dma_resv_usage_rw(dir != DMA_FROM_DEVICE), true, MAX_SCHEDULE_TIMEOUT);
	if (ret < 0)
		return ret;
	mutex_lock(&slice->pages->lock);
	list_for_each_entry(mapping, &slice->pages->mappings, node)
		dma_sync_sgtable_for_cpu(mapping->dev, &mapping->table, mapping->dir);
	mutex_unlock(&slice->pages->lock);
	return 0;
}

static int slice_end_cpu(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct slice *slice = dmabuf->priv;
	bool wrote = dir != DMA_FROM_DEVICE && slice->rights & PINION_RIGHT_WRITE;
	struct mapping *mapping;

	mutex_lock(&slice->pages->lock);
	list_for_each_entry(mapping, &slice->pages->mappings, node)
		/*
		 * A CPU that only read has nothing for a device that may have written meanwhile. Nor has one that cannot write,
		 * whatever it says: it would undo by a bounce buffer what the device wrote.
		 */
		if (mapping->dir != DMA_BIDIRECTIONAL || wrote)
			dma_sync_sgtable_for_device(mapping->dev, &mapping->table, mapping->dir);
	mutex_unlock(&slice->pages->lock);
	return 0;
}

/* ---- mappings of processes ----------------------------------------------------------------------------------------- */

/*
 * Pages are handed out with a reference and the core maps them, a huge chunk as one entry where address and index agree.
 * So get_user_pages() takes them for what they are; nothing here is VM_IO, VM_PFNMAP or VM_MIXEDMAP (with which a huge
 * entry would be zapped without its reference). The core holds the slice's file through the vma.
 */
static vm_fault_t slice_fault(struct vm_fault *vmf)
{
	const struct slice *slice = vmf->vma->vm_private_data;
	struct page *page;

	if (vmf->pgoff < slice->first || vmf->pgoff - slice->first >= slice->nr)
		return VM_FAULT_SIGBUS;
	page = pages_page(slice->pages, slice->first + array_index_nospec(vmf->pgoff - slice->first, slice->nr));
	if (unlikely(PageHWPoison(page)))
		return VM_FAULT_HWPOISON;
	get_page(page);
	vmf->page = page;
	return 0;
}

static const struct vm_operations_struct slice_vm_ops = {
	.fault = slice_fault,
};

/* To the file whose pages these are. Its own mmap cannot refuse what our address was chosen without knowing: we do. */
static int hand_over(struct pages *pages, struct vm_area_struct *vma)
{
	unsigned long unit = pages->map_pages << PAGE_SHIFT;

	vma->vm_pgoff += pages->map_first;
	if (vma->vm_start % unit || vma->vm_end % unit || vma->vm_pgoff % pages->map_pages)
		return -EINVAL;
	vma_set_file(vma, pages->map_file);
	return call_mmap(pages->map_file, vma);
}

/*
 * Whether the slice shows all that its mapping's file has. A mapping that is handed over belongs to that file, and while it is
 * shared, remap_file_pages() moves it to any other place there and asks nobody else.
 */
static bool shows_all(const struct slice *slice)
{
	const struct pages *pages = slice->pages;

	if (!pages->map_file)
		return true;
	return !pages->map_first && !slice->first && slice->nr << PAGE_SHIFT == i_size_read(file_inode(pages->map_file));
}

static bool may_write(const struct slice *slice)
{
	return slice->rights & PINION_RIGHT_WRITE && shows_all(slice);
}

static int slice_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct slice *slice = dmabuf->priv;
	const struct pages_ops *ops = slice->pages->ops;
	unsigned long clear = VM_MAYEXEC;
	bool sealed;

	/* VM_SHARED is cleared on a descriptor opened read-only, VM_MAYSHARE tells a private mapping, which would copy. */
	if (!(vma->vm_flags & VM_MAYSHARE) || vma->vm_pgoff > slice->nr || vma_pages(vma) > slice->nr - vma->vm_pgoff)
		return -EINVAL;
	if (!ops->mappable)
		return -ENXIO;
	if (vma->vm_flags & VM_EXEC)
		return -EACCES;
	sealed = write_sealed(slice);
	if (sealed || !may_write(slice)) {
		if (vma->vm_flags & VM_WRITE)
			return may_write(slice) ? -EPERM : -EACCES;
		/* An importer's own file may be open for writing; as a read-only open of ours, it must never become writable. */
		clear |= VM_MAYWRITE | VM_SHARED;
	}
	/* Cannot grow past the slice by mremap(); RAM that is shown in no core dump twice. */
	compat_vm_flags_mod(vma, VM_DONTEXPAND | VM_DONTDUMP, clear);
	/* Always relative to the pages: where index and address agree, a 2 MiB entry shows what belongs there. */
	vma->vm_pgoff += slice->first;
	if (slice->pages->map_file)
		return hand_over(slice->pages, vma);
	vma->vm_private_data = slice;
	vma->vm_ops = &slice_vm_ops;
	return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------------------- */

static void slice_free(struct slice *slice)
{
	table_remove(&table_slices, slice->id);
	payer_remove(slice->payer, PAYER_BUFFERS);
	payer_put(slice->payer);
	put_pid(slice->maker);
	pages_put(slice->pages);
	kfree(slice);
}

static void slice_release(struct dma_buf *dmabuf)
{
	struct slice *slice = dmabuf->priv;

	trace_pinion_slice_free(slice);
	slice_free(slice);
}

static const struct dma_buf_ops slice_ops = {
	.map_dma_buf = slice_map_dma,
	.unmap_dma_buf = slice_unmap_dma,
	.begin_cpu_access = slice_begin_cpu,
	.end_cpu_access = slice_end_cpu,
	.mmap = slice_mmap,
	.release = slice_release,
};

static struct slice *slice_make(struct payer *payer, struct pages *pages, unsigned long first, unsigned long nr, u32 rights)
{
	struct slice *slice = fault_here() ? NULL : kzalloc(sizeof(*slice), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	int ret;

	if (!slice)
		return ERR_PTR(-ENOMEM);
	ret = payer_add(payer, PAYER_BUFFERS);
	if (ret)
		goto err_free;
	ret = table_reserve(&table_slices, &slice->id);
	if (ret)
		goto err_user;
	slice->payer = payer_ref(payer);
	slice->pages = pages_get(pages);
	slice->maker = get_task_pid(current, PIDTYPE_TGID);
	slice->first = first;
	slice->nr = nr;
	slice->rights = rights | PINION_RIGHT_READ;
	slice->made_ns = ktime_get_ns();
	return slice;

err_user:
	payer_remove(payer, PAYER_BUFFERS);
err_free:
	kfree(slice);
	return ERR_PTR(ret);
}

struct dma_buf *slice_new(struct payer *payer, struct pages *pages, unsigned long first, unsigned long nr, u32 rights)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dmabuf;
	struct slice *slice;

	slice = slice_make(payer, pages, first, nr, rights);
	if (IS_ERR(slice))
		return ERR_CAST(slice);
	if (call_headroom()) {
		slice_free(slice);
		return ERR_PTR(-ENOMEM);
	}
	info.ops = &slice_ops;
	info.size = nr << PAGE_SHIFT;
	info.flags = (rights & PINION_RIGHT_WRITE ? O_RDWR : O_RDONLY) | O_CLOEXEC;
	info.resv = &pages->resv;
	info.priv = slice;
	dmabuf = fault_here() ? ERR_PTR(-ENOMEM) : dma_buf_export(&info);
	if (IS_ERR(dmabuf)) {
		slice_free(slice);
		return dmabuf;
	}
	/* From here on the dma-buf owns the slice. The pages never migrate: keep NUMA balancing from trying, again and again. */
	mapping_set_gfp_mask(dmabuf->file->f_mapping, GFP_USER | __GFP_DMA);
	table_publish(&table_slices, slice->id, slice);
	trace_pinion_slice_new(slice);
	return dmabuf;
}

struct slice *slice_of(const struct dma_buf *dmabuf)
{
	return dmabuf->ops == &slice_ops ? dmabuf->priv : NULL;
}
