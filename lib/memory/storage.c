/* SPDX-License-Identifier: MIT */
#include "storage.h"

#include "../error.h"
#include "buffer.h"
#include "storage_header.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <stdio.h>
#include <string.h>

#define BOTH (PINION_READ | PINION_WRITE)

/* ---- layouts ----------------------------------------------------------------------------------------------------- */

static int too_many(const struct storage_layout *layout)
{
	return fail(EOVERFLOW, "elem_count overflow: %" PRIu64 " elements of %s are more than an address space holds",
		    layout->elements, pinion_dtype_name(layout->dtype));
}

int storage_layout(struct storage_layout *layout, enum pinion_dtype dtype, uint64_t n, bool empty_ok)
{
	int ret;

	*layout = (struct storage_layout){ .dtype = dtype, .elements = n };
	ret = pinion_dtype_size(dtype, n, &layout->bytes);
	if (ret)
		return ret;
	if (layout->bytes > INT64_MAX)
		return too_many(layout);
	if (!n && !empty_ok)
		return fail(EINVAL, "zero-length storages cannot be shared: it needs at least 1 element");
	layout->total = layout->bytes;
	return 0;
}

int storage_layout_shape(struct storage_layout *layout, const struct pinion_storage_opts *opts)
{
	uint64_t product = 1;

	if (opts->rank > PINION_RANK_MAX)
		return fail(EINVAL, "pinion_storage_opts.rank is %" PRIu32 ", over %d", opts->rank, PINION_RANK_MAX);
	layout->rank = opts->rank;
	memcpy(layout->shape, opts->shape, layout->rank * sizeof(layout->shape[0]));
	for (uint32_t axis = 0; axis < layout->rank; axis++)
		if (__builtin_mul_overflow(product, layout->shape[axis], &product))
			return fail(EOVERFLOW, "elem_count overflow: the shape's product is more than 64 bits count");
	if (layout->rank && product != layout->elements)
		return fail(EINVAL, "the shape has %" PRIu64 " elements, %" PRIu64 " were asked for", product,
			    layout->elements);
	return 0;
}

int storage_layout_header(struct storage_layout *layout)
{
	uint64_t whole;

	/* Loads and stores move whole words. */
	if (__builtin_add_overflow(layout->bytes, sizeof(uint64_t) - 1, &whole) ||
	    __builtin_add_overflow(whole & ~(sizeof(uint64_t) - 1), STORAGE_HEADER_BYTES, &layout->total) ||
	    layout->total > INT64_MAX)
		return too_many(layout);
	layout->offset = STORAGE_HEADER_BYTES;
	return 0;
}

void storage_shape_text(const struct storage_layout *layout, char text[STORAGE_SHAPE_TEXT])
{
	int at = snprintf(text, STORAGE_SHAPE_TEXT, "%s[", pinion_dtype_name(layout->dtype));

	for (uint32_t axis = 0; axis < layout->rank; axis++)
		at += snprintf(text + at, STORAGE_SHAPE_TEXT - at, "%s%" PRIu64, axis ? "," : "", layout->shape[axis]);
	if (!layout->rank)
		at += snprintf(text + at, STORAGE_SHAPE_TEXT - at, "%" PRIu64, layout->elements);
	snprintf(text + at, STORAGE_SHAPE_TEXT - at, "]");
}

int storage_opts(struct pinion_storage_opts *own, const struct pinion_storage_opts *user)
{
	int ret;

	*own = (struct pinion_storage_opts){ .size = sizeof(*own) };
	ret = opts_in(own, sizeof(*own), user, "pinion_storage_opts");
	if (ret)
		return ret;
	if (!own->rights)
		own->rights = BOTH;
	if (own->rights != PINION_READ && own->rights != BOTH)
		return fail(EINVAL, "pinion_storage_opts.rights are PINION_READ, or with PINION_WRITE, not 0x%x",
			    own->rights);
	if (own->mode & ~0777u)
		return fail(EINVAL, "pinion_storage_opts.mode is 0%" PRIo32 ", not permissions", own->mode);
	return 0;
}

int storage_window(struct storage_layout *layout, enum pinion_dtype dtype, uint64_t offset, uint64_t n, uint64_t room)
{
	uint64_t size, end;
	int ret = pinion_dtype_size(dtype, 1, &size);

	if (ret)
		return ret;
	if (offset % size)
		return fail(EINVAL, "byte offset %" PRIu64 " is not aligned to the %" PRIu64 " bytes of one %s", offset,
			    size, pinion_dtype_name(dtype));
	ret = storage_layout(layout, dtype, n, true);
	if (ret)
		return ret;
	if (__builtin_add_overflow(offset, layout->bytes, &end))
		return fail(EOVERFLOW, "byte offset %" PRIu64 " and %" PRIu64 " bytes are more than 64 bits count",
			    offset, layout->bytes);
	if (end > room)
		return fail(EINVAL, "out of bounds: bytes %" PRIu64 " to %" PRIu64 " of memory that has %" PRIu64,
			    offset, end, room);
	return 0;
}

void storage_init(struct pinion_storage *st, const struct storage_ops *ops, enum pinion_storage_kind kind,
		  const struct storage_layout *layout, uint32_t rights, void *base)
{
	st->ops = ops;
	st->kind = kind;
	st->rights = rights;
	st->layout = *layout;
	if (!layout->rank) {
		st->layout.rank = 1;
		st->layout.shape[0] = layout->elements;
	}
	st->header = layout->offset ? base : NULL;
	st->data = base ? (char *)base + layout->offset : NULL;
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

struct pinion_storage *storage_ref(struct pinion_storage *st)
{
	__atomic_add_fetch(&st->sharers, 1, __ATOMIC_RELAXED);
	return st;
}

PINION_API void pinion_storage_free(struct pinion_storage *st)
{
	if (!st || __atomic_fetch_sub(&st->sharers, 1, __ATOMIC_ACQ_REL))
		return;
	storage_leave(st);
	st->ops->close(st);
}

PINION_API enum pinion_storage_kind pinion_storage_kind(const struct pinion_storage *st)
{
	assert(st);
	return st->kind;
}

PINION_API enum pinion_dtype pinion_storage_dtype(const struct pinion_storage *st)
{
	assert(st);
	return st->layout.dtype;
}

PINION_API uint64_t pinion_storage_elements(const struct pinion_storage *st)
{
	assert(st);
	return st->layout.elements;
}

PINION_API uint64_t pinion_storage_len_bytes(const struct pinion_storage *st)
{
	assert(st);
	return st->layout.bytes;
}

static struct pinion_buffer *buffer_of(const struct pinion_storage *st, uint64_t *offset)
{
	return st->ops->buffer ? st->ops->buffer(st, offset) : NULL;
}

static uint64_t generation_of(const struct pinion_storage *st)
{
	return __atomic_load_n(&st->header->generation, __ATOMIC_ACQUIRE);
}

/* How the pages are held, and why not better. */
static enum pinion_hold hold_of(const struct pinion_storage *st, const char **why)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	uint64_t offset;
	struct pinion_buffer *buf = buffer_of(st, &offset);

	*why = "there is no buffer to hold";
	if (!buf || pinion_buffer_info(buf, &info))
		return PINION_HOLD_NONE;
	*why = info.hold_why;
	return info.hold;
}

PINION_API int pinion_storage_info(const struct pinion_storage *st, struct pinion_storage_info *info)
{
	struct pinion_storage_info own = { .size = sizeof(own) };

	assert(st);
	own.kind = st->kind;
	own.dtype = st->layout.dtype;
	own.rights = st->rights;
	own.rank = st->layout.rank;
	memcpy(own.shape, st->layout.shape, own.rank * sizeof(own.shape[0]));
	own.elements = st->layout.elements;
	own.bytes = st->layout.bytes;
	own.header = st->header != NULL;
	if (st->header) {
		own.generation = generation_of(st);
		own.sequence = __atomic_load_n(&st->header->sequence, __ATOMIC_ACQUIRE);
	}
	own.unlinked = st->ops->unlinked && st->ops->unlinked(st);
	own.hold = hold_of(st, &own.hold_why);
	own.location = (struct pinion_location){ PINION_BACKEND_CPU, 0 };
	own.device = st->ops->device ? st->ops->device(st, &own.location) : NULL;
	return opts_out(info, &own, sizeof(own), "pinion_storage_info");
}

PINION_API int pinion_storage_describe(const struct pinion_storage *st, char *buf, size_t size)
{
	char shape[STORAGE_SHAPE_TEXT], where[STORAGE_WHERE_TEXT], header[48] = "";
	enum pinion_hold hold;
	const char *why;

	assert(st);
	hold = hold_of(st, &why);
	storage_shape_text(&st->layout, shape);
	st->ops->where(st, where);
	if (st->header)
		snprintf(header, sizeof(header), ", header generation %" PRIu64, generation_of(st));
	return snprintf(buf, size, "%s %s %" PRIu64 " bytes, %s%s%s%s%s", st->ops->name, shape, st->layout.bytes,
			st->rights & PINION_WRITE ? "read and write" : "read-only", header, where,
			st->ops->buffer ? ", " : "", st->ops->buffer ? buffer_hold_name(hold) : "");
}

PINION_API int pinion_storage_buffer(const struct pinion_storage *st, struct pinion_buffer **buf, uint64_t *offset)
{
	struct pinion_buffer *found;
	uint64_t at;

	assert(st);
	found = buffer_of(st, &at);
	if (!found)
		return fail(EOPNOTSUPP, "there is no buffer behind the storage: %s", st->ops->name);
	*buf = found;
	*offset = at;
	return 0;
}

PINION_API int pinion_storage_view(const struct pinion_storage *st, uint32_t rights, struct pinion_view *view)
{
	assert(st);
	if (rights != PINION_READ && rights != BOTH)
		return fail(EINVAL, "a view is PINION_READ or PINION_READ | PINION_WRITE, not 0x%" PRIx32, rights);
	if (rights & ~st->rights)
		return fail(EPERM, "the storage is read-only: %s", st->ops->name);
	if (st->ops->download)
		return fail(EOPNOTSUPP, "the host cannot follow the addresses of a device's memory: copy it down first");
	return pinion_view_init(view, st->data, st->layout.bytes, st->layout.dtype, st->layout.rank, st->layout.shape,
				NULL, 0);
}

static int copy_elements(const struct pinion_storage *st, void *dst)
{
	if (st->ops->download)
		return st->ops->download(st, dst);
	if (st->header)
		return pinion_storage_load(st, 0, dst, st->layout.bytes, pinion_deadline_in(STORAGE_PATIENCE_NS));
	if (st->layout.bytes)
		memcpy(dst, st->data, st->layout.bytes);
	return 0;
}

PINION_API int pinion_storage_into_owned(struct pinion_storage *st, struct pinion_storage **out)
{
	struct storage_layout layout;
	struct pinion_storage *own;
	struct pinion_view view;
	int ret = 0;

	assert(st);
	if (st->kind == PINION_STORAGE_OWNED) {
		*out = st;
		return 0;
	}
	/* What a device has is no view here, but has been one there. */
	if (!st->ops->download)
		ret = pinion_storage_view(st, PINION_READ, &view);
	if (ret)
		return ret;
	layout = st->layout;
	layout.offset = 0;
	layout.total = layout.bytes;
	ret = storage_owned_new(&layout, &own);
	if (ret)
		return ret;
	ret = copy_elements(st, own->data);
	if (ret) {
		pinion_storage_free(own);
		return ret;
	}
	pinion_storage_free(st);
	*out = own;
	return 0;
}
