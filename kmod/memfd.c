// SPDX-License-Identifier: GPL-2.0-only
/*
 * memfd: pages of a memfd that cannot shrink. Mappings of the slice are mappings of the memfd; what its owner does to it
 * (punching holes) changes what later mappings show and never what we hold.
 */
#include <linux/file.h>
#include <linux/fcntl.h>
#include <linux/fs.h>
#include <linux/hugetlb.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/shmem_fs.h>
#include <linux/slab.h>

#include "compat.h"
#include "pin.h"
#include "trace.h"

static void memfd_release(struct pages *pages)
{
	compat_memfd_unpin(pages->chunk, layout_chunks(&pages->layout), pages->folio, pages->nr_folio,
			   pages->writes_denied);
	kvfree(pages->folio);
	if (pages->writes_denied)
		mapping_unmap_writable(pages->file->f_mapping);
	if (pages->file)
		fput(pages->file);
}

static bool is_shmem(const struct file *file)
{
	return S_ISREG(file_inode(file)->i_mode) && file_inode(file)->i_sb->s_magic == TMPFS_MAGIC;
}

static bool is_hugetlb(const struct file *file)
{
	return S_ISREG(file_inode(file)->i_mode) && file_inode(file)->i_sb->s_magic == HUGETLBFS_MAGIC;
}

/* Seals are added under the inode's lock. */
static unsigned int seals_of(const struct file *file)
{
#ifdef CONFIG_HUGETLBFS
	if (is_hugetlb(file))
		return HUGETLBFS_I(file_inode(file))->seals;
#endif
	return SHMEM_I(file_inode(file))->seals;
}

/*
 * F_SEAL_FUTURE_WRITE can be added to what we hold. It speaks of mappings that come later: one that races with it came
 * before. Kernels from 6.12 on ask for seals where they see a memfd's mmap, which ours is not.
 */
static bool memfd_write_sealed(const struct pages *pages)
{
	return seals_of(pages->file) & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}

static const struct pages_ops memfd_ops = {
	.kind = PINION_KIND_MEMFD,
	.mappable = true,
	.release = memfd_release,
	.write_sealed = memfd_write_sealed,
};

static int check_file(const struct pinion_pin *args, const struct file *file)
{
	unsigned int seals = seals_of(file);
	u64 have = i_size_read(file_inode(file));

	lockdep_assert_held(&file_inode(file)->i_rwsem);
	if (!(seals & F_SEAL_SHRINK))
		return -EINVAL;
	if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
		return -EPERM;
	return args->addr > have || args->bytes > have - args->addr ? -EINVAL : 0;
}

/* Reading a page of shmem says that it is broken. One of hugetlb stays in its file, so that nobody takes it for a hole, and is there. */
static int check_pages(const struct pages *pages, bool hugetlb)
{
	unsigned long i, nr = layout_chunks(&pages->layout);
	struct page *page;

	for (i = 0; i < nr; i++) {
		page = pages->chunk[i];
		if (PageHWPoison(hugetlb ? compound_head(page) : page))
			return -EIO;
		cond_resched();
	}
	return 0;
}

static int take(struct pages *pages, const struct pinion_pin *args, u32 *rights)
{
	unsigned long first = args->addr >> PAGE_SHIFT, nr = args->bytes >> PAGE_SHIFT;
	struct inode *inode = file_inode(pages->file);
	int ret;

	*rights = PINION_RIGHT_READ;
	/* Who handed the memfd to us may keep its lock for ever: a write from memory whose fault nobody answers. */
	if (down_read_killable(&inode->i_rwsem))
		return -EINTR;
	ret = check_file(args, pages->file);
	if (!ret && pages->file->f_mode & FMODE_WRITE) {
		*rights = PINION_RIGHTS;
		ret = mapping_map_writable(pages->file->f_mapping);
		pages->writes_denied = !ret;
	}
	if (!ret)
		ret = compat_memfd_pin(pages->file, is_hugetlb(pages->file), first, nr, pages->chunk, &pages->folio,
				       &pages->nr_folio, &pages->layout.chunks[LAYOUT_KINDS - 1]);
	if (!ret)
		ret = check_pages(pages, is_hugetlb(pages->file));
	inode_unlock_shared(inode);
	return ret;
}

struct pages *pin_memfd(struct payer *payer, const struct pinion_pin *args, u32 *rights)
{
	struct file *file = fget(args->fd);
	struct pages *pages;
	int ret;

	if (!file)
		return ERR_PTR(-EBADF);
	/* Mappings go through our descriptor, which can always be read. */
	ret = !is_shmem(file) && !is_hugetlb(file) ? -EOPNOTSUPP : file->f_mode & FMODE_READ ? 0 : -EACCES;
	if (ret) {
		fput(file);
		return ERR_PTR(ret);
	}
	pages = pages_new(payer, &memfd_ops, args->bytes, args->bytes >> PAGE_SHIFT, args->name);
	if (IS_ERR(pages)) {
		fput(file);
		return pages;
	}
	pages->file = file;
	pages->map_file = file;
	pages->map_first = args->addr >> PAGE_SHIFT;
	pages->map_pages = compat_file_page_pages(file, is_hugetlb(file));
	ret = take(pages, args, rights);
	if (ret) {
		pages_put(pages);
		return ERR_PTR(ret);
	}
	trace_pinion_pages_alloc(pages);
	return pages;
}
