// SPDX-License-Identifier: GPL-2.0-only
/* buffer: the calls about buffers. */
#include <linux/ctype.h>
#include <uapi/linux/dma-buf.h>
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "call.h"
#include "fault.h"
#include "pages.h"
#include "pin.h"
#include "slice.h"

/* Terminated and printable, so that it can be shown anywhere; what is behind the end is zero. */
static bool name_ok(const char *name)
{
	size_t len = strnlen(name, PINION_NAME_BYTES), i;

	for (i = 0; i < len; i++)
		if (!isascii(name[i]) || !isprint(name[i]))
			return false;
	return len < PINION_NAME_BYTES && !memchr_inv(name + len, 0, PINION_NAME_BYTES - len);
}

/* The name shows in the dma-buf's own fdinfo too; without memory for that it does not. */
static void show_name(struct dma_buf *dmabuf, const char *name)
{
	char *copy = *name ? kstrndup(name, DMA_BUF_NAME_LEN - 1, GFP_KERNEL_ACCOUNT | GFP_MAYFAIL) : NULL;

	spin_lock(&dmabuf->name_lock);
	dmabuf->name = copy;
	spin_unlock(&dmabuf->name_lock);
}

/* A slice over @pages becomes the call's dma-buf; the caller's reference of @pages is used up. */
static int export(struct call *call, struct pages *pages, unsigned long first, unsigned long nr, u32 rights)
{
	struct dma_buf *dmabuf = slice_new(call->session->payer, pages, first, nr, rights);

	if (!IS_ERR(dmabuf)) {
		show_name(dmabuf, pages->name);
		call->made = dmabuf->file;
	}
	pages_put(pages);
	return PTR_ERR_OR_ZERO(dmabuf);
}

int buffer_alloc(struct call *call)
{
	struct pinion_alloc *args = &call->alloc;
	struct pages *pages;
	int ret;

	if (!name_ok(args->name) || args->reserved_out)
		return -EINVAL;
	ret = call_reserve_fd(call);
	if (ret)
		return ret;
	pages = pages_alloc(call->session->payer, args);
	if (IS_ERR(pages))
		return PTR_ERR(pages);
	args->fd = call->fd;
	args->out_bytes = (u64)pages_nr(pages) << PAGE_SHIFT;
	args->out_huge_bytes = pages_huge_bytes(pages);
	return export(call, pages, 0, pages_nr(pages), PINION_RIGHTS);
}

/* Page-aligned, not empty, and its end is a number. */
static bool range_ok(u64 offset, u64 bytes)
{
	return bytes && !((offset | bytes) & ~PAGE_MASK) && offset + bytes > offset && bytes <= PINION_MAX_BUFFER_BYTES;
}

int buffer_slice(struct call *call)
{
	struct pinion_slice *args = &call->slice;
	u64 have;
	struct dma_buf *dmabuf;
	struct slice *of;
	int ret;

	if (args->flags || args->reserved || args->rights & ~PINION_RIGHTS ||
	    !range_ok(args->offset, args->length))
		return -EINVAL;
	dmabuf = dma_buf_get(args->fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	of = slice_of(dmabuf);
	have = of ? (u64)of->nr << PAGE_SHIFT : 0;
	ret = -EINVAL;
	if (!of || args->offset >= have || args->length > have - args->offset)
		goto out;
	ret = -EACCES;
	if (args->rights & ~of->rights & ~PINION_RIGHT_READ)
		goto out;
	ret = call_reserve_fd(call);
	if (ret)
		goto out;
	args->out_fd = call->fd;
	ret = export(call, pages_get(of->pages), of->first + (args->offset >> PAGE_SHIFT), args->length >> PAGE_SHIFT,
		     args->rights | PINION_RIGHT_READ);
out:
	dma_buf_put(dmabuf);
	return ret;
}

int buffer_pin(struct call *call)
{
	struct pinion_pin *args = &call->pin;
	u32 rights = PINION_RIGHTS;
	struct pages *pages;
	int ret;

	if (args->flags & ~PINION_PIN_FLAGS || args->reserved || !name_ok(args->name) ||
	    !range_ok(args->addr, args->bytes) || (!(args->flags & PINION_PIN_FD) && args->fd != -1))
		return -EINVAL;
	if (!(args->flags & PINION_PIN_FD) && !access_ok((void __user *)(unsigned long)args->addr, args->bytes))
		return -EFAULT;
	ret = call_reserve_fd(call);
	if (ret)
		return ret;
	pages = args->flags & PINION_PIN_FD ? pin_memfd(call->session->payer, args, &rights) :
					      pin_range(call->session->payer, args);
	if (IS_ERR(pages))
		return PTR_ERR(pages);
	args->out_fd = call->fd;
	args->out_rights = rights;
	return export(call, pages, 0, pages_nr(pages), rights);
}

/* ---- looking ------------------------------------------------------------------------------------------------------- */

static int copy_nodes(const struct pages *pages, const struct pinion_bufinfo *args)
{
	unsigned int nr = min_t(unsigned int, args->nr_nodes, nr_node_ids);
	u64 *bytes;
	int ret = 0;

	if (!nr)
		return 0;
	bytes = fault_here() ? NULL : kcalloc(nr, sizeof(*bytes), GFP_KERNEL_ACCOUNT | GFP_MAYFAIL);
	if (!bytes)
		return -ENOMEM;
	pages_nodes(pages, bytes, nr);
	if (fault_here() || copy_to_user((void __user *)(unsigned long)args->nodes, bytes, nr * sizeof(*bytes)))
		ret = -EFAULT;
	kfree(bytes);
	return ret;
}

int buffer_info(struct call *call)
{
	struct pinion_bufinfo *args = &call->bufinfo;
	struct dma_buf *dmabuf;
	struct slice *slice;
	int ret;

	if (args->flags || (args->nr_nodes && args->node_size != sizeof(u64)))
		return -EINVAL;
	dmabuf = dma_buf_get(args->fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	slice = slice_of(dmabuf);
	ret = slice ? copy_nodes(slice->pages, args) : -EINVAL;
	if (!ret) {
		args->nr_nodes = nr_node_ids;
		args->kind = slice->pages->ops->kind;
		args->rights = slice->rights;
		args->attachments = slice_attachments(slice);
		args->id = slice->id;
		args->pages_id = slice->pages->id;
		args->offset = (u64)slice->first << PAGE_SHIFT;
		args->bytes = (u64)slice->nr << PAGE_SHIFT;
		args->pages_bytes = (u64)pages_nr(slice->pages) << PAGE_SHIFT;
		args->huge_bytes = pages_huge_bytes(slice->pages);
		args->alloc_flags = slice->pages->flags;
		strscpy_pad(args->name, slice->pages->name, sizeof(args->name));
	}
	dma_buf_put(dmabuf);
	return ret;
}
