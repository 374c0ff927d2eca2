// SPDX-License-Identifier: GPL-2.0-only
/* buffer: the calls about buffers. */
#include <linux/ctype.h>
#include <uapi/linux/dma-buf.h>
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/pid_namespace.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "call.h"
#include "fault.h"
#include "pages.h"
#include "pin.h"
#include "slice.h"
#include "table.h"

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
	struct dma_buf *dmabuf = slice_new(call->opener->payer, pages, first, nr, rights);

	if (!IS_ERR(dmabuf)) {
		show_name(dmabuf, pages->name);
		call->dmabuf = dmabuf;
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
	pages = pages_alloc(call->opener->payer, args);
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
	pages = args->flags & PINION_PIN_FD ? pin_memfd(call->opener->payer, args, &rights) :
					      pin_range(call->opener->payer, args);
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
	bytes = fault_here() ? NULL : kcalloc(nr, sizeof(*bytes), GFP_KERNEL_ACCOUNT);
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

/* Rows gathered at once, under the table's lock; copied out without it. */
#define ROWS_BYTES PAGE_SIZE
#define ROWS (ROWS_BYTES / sizeof(struct pinion_list_buffer))

struct gather {
	const struct call *call;
	struct pinion_list_buffer *row;
	unsigned int nr, most;
	u64 cursor;
	struct pinion_list_buffer *others; /* NULL: rows of other users are rows */
};

static bool gather_row(struct slice *slice, void *data)
{
	struct gather *g = data;
	struct pinion_list_buffer *row;
	bool mine = uid_eq(payer_uid(slice->payer), payer_uid(g->call->opener->payer));

	if (g->others && !mine) {
		g->cursor = slice->id;
		return false;
	}
	if (g->nr == g->most)
		return true;
	g->cursor = slice->id;
	row = &g->row[g->nr++];
	*row = (struct pinion_list_buffer){
		.id = slice->id,
		.pages_id = slice->pages->id,
		.offset = (u64)slice->first << PAGE_SHIFT,
		.bytes = (u64)slice->nr << PAGE_SHIFT,
		.pages_bytes = (u64)pages_nr(slice->pages) << PAGE_SHIFT,
		.huge_bytes = pages_huge_bytes(slice->pages),
		.made_ns = slice->made_ns,
		.uid = from_kuid_munged(current_user_ns(), payer_uid(slice->payer)),
		.pid = pid_nr_ns(slice->maker, task_active_pid_ns(current)),
		.kind = slice->pages->ops->kind,
		.rights = slice->rights,
		.buffers = 1,
		.attachments = slice_attachments(slice),
	};
	strscpy(row->name, slice->pages->name, sizeof(row->name));
	return false;
}

/* What the others hold, all of it, as one row: from the accounts, which do not count shared pages twice. */
static bool others_row(const struct call *call, struct pinion_list_buffer *row)
{
	struct payer_use use;

	payer_use(call->opener->payer, &use);
	*row = (struct pinion_list_buffer){
		.bytes = use.bytes - use.user_bytes,
		.pages_bytes = use.bytes - use.user_bytes,
		.uid = PINION_UID_OTHERS,
		.buffers = use.buffers - use.user_buffers,
	};
	return row->buffers || row->bytes;
}

/* Rows of the caller's size: what it does not know is cut off, what we do not know is zero. */
static int copy_rows(const struct pinion_list *args, const struct pinion_list_buffer *row, unsigned int nr, unsigned int done)
{
	char __user *to = (char __user *)(unsigned long)args->rows + (size_t)done * args->row_size;
	size_t part = min_t(size_t, args->row_size, sizeof(*row));
	unsigned int i;

	for (i = 0; i < nr; i++, to += args->row_size) {
		if (fault_here() || copy_to_user(to, &row[i], part) ||
		    (args->row_size > part && clear_user(to + part, args->row_size - part)))
			return -EFAULT;
	}
	return 0;
}

int buffer_list(struct call *call)
{
	struct pinion_list *args = &call->list;
	struct pinion_list_buffer others;
	struct gather g = { .call = call, .cursor = args->cursor, .others = call_writes(call) ? NULL : &others };
	unsigned int done = 0;
	int ret = 0;

	if (args->kind != PINION_LIST_BUFFERS || args->reserved || !args->count ||
	    args->row_size < sizeof(struct pinion_list_buffer))
		return -EINVAL;
	if (args->row_size > PAGE_SIZE)
		return -E2BIG;
	g.row = fault_here() ? NULL : kmalloc(ROWS_BYTES, GFP_KERNEL_ACCOUNT);
	if (!g.row)
		return -ENOMEM;
	do {
		g.nr = 0;
		g.most = min_t(unsigned int, args->count - done, ROWS);
		table_walk(g.cursor, gather_row, &g);
		ret = copy_rows(args, g.row, g.nr, done);
		done += g.nr;
	} while (!ret && g.nr == ROWS && done < args->count && !fatal_signal_pending(current));
	/* The row of others ends the walk, also where it is the one row that a call has room for. */
	if (!ret && g.others && done < args->count && args->cursor != U64_MAX && others_row(call, &others)) {
		ret = copy_rows(args, &others, 1, done);
		done++;
		g.cursor = U64_MAX;
	}
	kfree(g.row);
	args->cursor = g.cursor;
	args->out_count = done;
	return ret;
}
