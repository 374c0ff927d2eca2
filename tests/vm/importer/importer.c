// SPDX-License-Identifier: GPL-2.0-only
/*
 * An importer of dma-bufs that does in memory what a device would do by DMA. Its accesses go through the device's addresses
 * turned back into memory, so that with bounce buffers they see what a device would see.
 *
 * Locking: one mutex for each open file, over everything in it.
 */
#include <linux/dma-buf.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/fs.h>
#include <linux/iosys-map.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "importer.h"

static struct platform_device *devices[IMPORTER_DEVICES];

struct import {
	struct mutex lock;
	struct dma_buf_attachment *attach;
	struct dma_buf *dmabuf;
	struct sg_table *table;
	enum dma_data_direction direction;
	struct page *page; /* what is mapped of a device that has no buffer */
	bool dynamic;
};

static void move_notify(struct dma_buf_attachment *attach)
{
}

static const struct dma_buf_attach_ops dynamic_ops = {
	.move_notify = move_notify,
};

/* A dynamic importer holds the reservation itself; so do all of them since 6.2. */
static bool locks(const struct import *import)
{
	return import->dynamic || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0);
}

static int import_map(struct import *import)
{
	struct sg_table *table;

	if (!import->attach || import->table)
		return -EINVAL;
	if (locks(import))
		dma_resv_lock(import->dmabuf->resv, NULL);
	table = dma_buf_map_attachment(import->attach, import->direction);
	if (locks(import))
		dma_resv_unlock(import->dmabuf->resv);
	if (IS_ERR(table))
		return PTR_ERR(table);
	import->table = table;
	return 0;
}

static void import_unmap(struct import *import)
{
	if (!import->table)
		return;
	if (locks(import))
		dma_resv_lock(import->dmabuf->resv, NULL);
	dma_buf_unmap_attachment(import->attach, import->table, import->direction);
	if (locks(import))
		dma_resv_unlock(import->dmabuf->resv);
	import->table = NULL;
}

static void import_detach(struct import *import)
{
	import_unmap(import);
	if (import->attach)
		dma_buf_detach(import->dmabuf, import->attach);
	if (import->dmabuf)
		dma_buf_put(import->dmabuf);
	import->attach = NULL;
	import->dmabuf = NULL;
}

static int import_attach(struct import *import, void __user *arg)
{
	struct dma_buf_attachment *attach;
	struct importer_attach args;
	struct dma_buf *dmabuf;
	int ret;

	if (copy_from_user(&args, arg, sizeof(args)))
		return -EFAULT;
	if (import->dmabuf || args.device >= IMPORTER_DEVICES || args.flags & ~(IMPORTER_DYNAMIC | IMPORTER_LAZY) ||
	    args.direction < IMPORTER_TO_DEVICE || args.direction > IMPORTER_BOTH_WAYS)
		return -EINVAL;
	dmabuf = dma_buf_get(args.fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	import->dynamic = args.flags & IMPORTER_DYNAMIC;
	import->direction = args.direction == IMPORTER_TO_DEVICE   ? DMA_TO_DEVICE :
			    args.direction == IMPORTER_FROM_DEVICE ? DMA_FROM_DEVICE :
								     DMA_BIDIRECTIONAL;
	attach = dma_buf_dynamic_attach(dmabuf, &devices[args.device]->dev, import->dynamic ? &dynamic_ops : NULL, import);
	if (IS_ERR(attach)) {
		dma_buf_put(dmabuf);
		return PTR_ERR(attach);
	}
	import->dmabuf = dmabuf;
	import->attach = attach;
	ret = args.flags & IMPORTER_LAZY ? 0 : import_map(import);
	if (ret)
		import_detach(import);
	return ret;
}

static void *device_memory(struct import *import, dma_addr_t at)
{
	return phys_to_virt(dma_to_phys(import->attach->dev, at));
}

static int import_table(struct import *import, void __user *arg)
{
	struct importer_table out = { 0 };
	struct scatterlist *sg;
	unsigned int i;

	if (!import->table)
		return -EINVAL;
	out.table = (uintptr_t)import->table;
	out.max_mapping_bytes = min_t(u64, dma_max_mapping_size(import->attach->dev), dma_get_max_seg_size(import->attach->dev));
	out.pages_entries = import->table->orig_nents;
	out.device_entries = import->table->nents;
	/* Nothing but the device's side: a debug kernel hides the pages from importers. */
	for_each_sgtable_dma_sg(import->table, sg, i)
	{
		out.bytes += sg_dma_len(sg);
		out.most_bytes = max_t(u64, out.most_bytes, sg_dma_len(sg));
	}
	return copy_to_user(arg, &out, sizeof(out)) ? -EFAULT : 0;
}

/* A page at a time: a copy check takes an entry of several allocations for a copy past the first. */
static int copy(void *memory, char __user *data, u64 bytes, bool write)
{
	u64 at, part;

	for (at = 0; at < bytes; at += part) {
		part = min_t(u64, bytes - at, PAGE_SIZE - offset_in_page(memory + at));
		if (write ? copy_from_user(memory + at, data + at, part) : copy_to_user(data + at, memory + at, part))
			return -EFAULT;
	}
	return 0;
}

static int import_access(struct import *import, void __user *arg, bool write)
{
	struct importer_access args;
	struct scatterlist *sg;
	u64 at = 0, skip, part;
	unsigned int i;
	char __user *data;

	if (copy_from_user(&args, arg, sizeof(args)))
		return -EFAULT;
	if (!import->table)
		return -EINVAL;
	data = (char __user *)(uintptr_t)args.data;
	for_each_sgtable_dma_sg(import->table, sg, i)
	{
		void *memory = device_memory(import, sg_dma_address(sg));
		u64 length = sg_dma_len(sg);

		skip = args.offset > at ? args.offset - at : 0;
		at += length;
		if (skip >= length || !args.bytes)
			continue;
		part = min(length - skip, args.bytes);
		if (copy(memory + skip, data, part, write))
			return -EFAULT;
		data += part;
		args.offset += part;
		args.bytes -= part;
	}
	return args.bytes ? -EINVAL : 0;
}

static int import_vmap(struct import *import)
{
	struct iosys_map map;
	int ret;

	if (!import->dmabuf)
		return -EINVAL;
	if (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0))
		dma_resv_lock(import->dmabuf->resv, NULL);
	ret = dma_buf_vmap(import->dmabuf, &map);
	if (!ret)
		dma_buf_vunmap(import->dmabuf, &map);
	if (LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0))
		dma_resv_unlock(import->dmabuf->resv);
	return ret;
}

/* Twice puts the addresses back, which has to be done: what is unmapped must be what was mapped. */
static int import_spoil(struct import *import)
{
	struct scatterlist *sg;
	unsigned int i;

	if (!import->table)
		return -EINVAL;
	for_each_sgtable_dma_sg(import->table, sg, i) sg_dma_address(sg) ^= PAGE_SIZE;
	return 0;
}

static long importer_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct import *import = file->private_data;
	void __user *user = (void __user *)arg;
	long ret = 0;

	mutex_lock(&import->lock);
	switch (cmd) {
	case IMPORTER_ATTACH:
		ret = import_attach(import, user);
		break;
	case IMPORTER_MAP:
		ret = import_map(import);
		break;
	case IMPORTER_UNMAP:
		import_unmap(import);
		break;
	case IMPORTER_TABLE:
		ret = import_table(import, user);
		break;
	case IMPORTER_READ:
	case IMPORTER_WRITE:
		ret = import_access(import, user, cmd == IMPORTER_WRITE);
		break;
	case IMPORTER_VMAP:
		ret = import_vmap(import);
		break;
	case IMPORTER_SPOIL:
		ret = import_spoil(import);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&import->lock);
	return ret;
}

/* Takes no lock: mmap_lock is held, under which the others copy. The buffer is there from ATTACH to the last close. */
static int importer_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct import *import = file->private_data;

	if (import->dmabuf)
		return dma_buf_mmap(import->dmabuf, vma, vma->vm_pgoff);
	return vm_insert_page(vma, vma->vm_start, import->page);
}

static int importer_open(struct inode *inode, struct file *file)
{
	struct import *import = kzalloc(sizeof(*import), GFP_KERNEL);

	if (!import)
		return -ENOMEM;
	import->page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!import->page) {
		kfree(import);
		return -ENOMEM;
	}
	mutex_init(&import->lock);
	file->private_data = import;
	return 0;
}

static int importer_release(struct inode *inode, struct file *file)
{
	struct import *import = file->private_data;

	import_detach(import);
	mutex_destroy(&import->lock);
	put_page(import->page);
	kfree(import);
	return 0;
}

static const struct file_operations importer_fops = {
	.owner = THIS_MODULE,
	.open = importer_open,
	.release = importer_release,
	.unlocked_ioctl = importer_ioctl,
	.mmap = importer_mmap,
};

static struct miscdevice importer = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "pinion-importer",
	.mode = 0666,
	.fops = &importer_fops,
};

static void remove_devices(void)
{
	int i;

	for (i = 0; i < IMPORTER_DEVICES; i++)
		platform_device_unregister(devices[i]);
}

static int __init importer_init(void)
{
	const struct platform_device_info info = {
		.name = "pinion-importer",
		.dma_mask = DMA_BIT_MASK(64),
	};
	struct platform_device_info one;
	int i, ret;

	for (i = 0; i < IMPORTER_DEVICES; i++) {
		one = info;
		one.id = i;
		devices[i] = platform_device_register_full(&one);
		if (IS_ERR(devices[i])) {
			ret = PTR_ERR(devices[i]);
			devices[i] = NULL;
			goto err;
		}
	}
	/* The other says nothing, as many drivers do. */
	dma_set_max_seg_size(&devices[0]->dev, UINT_MAX);
	ret = misc_register(&importer);
	if (!ret)
		return 0;
err:
	remove_devices();
	return ret;
}

static void __exit importer_exit(void)
{
	misc_deregister(&importer);
	remove_devices();
}

module_init(importer_init);
module_exit(importer_exit);

MODULE_DESCRIPTION("an importer of dma-bufs for the tests of pinion");
MODULE_LICENSE("GPL");
MODULE_IMPORT_NS(DMA_BUF);
