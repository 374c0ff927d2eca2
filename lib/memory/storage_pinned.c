/* SPDX-License-Identifier: MIT */
/* pinned: an array in a buffer, which is held in RAM as well as it can be. */
#include "../context.h"
#include "../error.h"
#include "storage.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct pinned {
	struct pinion_storage st;
	struct pinion_buffer *buf; /* NULL: no elements and none needed */
	uint64_t offset;
};

static void pinned_close(struct pinion_storage *st)
{
	struct pinned *pin = (struct pinned *)st;

	if (st->data)
		pinion_buffer_unmap(pin->buf, st->rights);
	pinion_buffer_unref(pin->buf);
	free(pin);
}

static void pinned_where(const struct pinion_storage *st, char text[STORAGE_WHERE_TEXT])
{
	const struct pinned *pin = (const struct pinned *)st;

	if (pin->buf)
		snprintf(text, STORAGE_WHERE_TEXT, ", at byte %" PRIu64 " of a buffer of %" PRIu64, pin->offset,
			 pinion_buffer_size(pin->buf));
	else
		snprintf(text, STORAGE_WHERE_TEXT, ", without a buffer");
}

static struct pinion_buffer *pinned_buffer(const struct pinion_storage *st, uint64_t *offset)
{
	const struct pinned *pin = (const struct pinned *)st;

	*offset = pin->offset;
	return pin->buf;
}

static const struct storage_ops pinned_ops = {
	.name = "pinned",
	.close = pinned_close,
	.where = pinned_where,
	.buffer = pinned_buffer,
};

/* Takes over the reference to @buf on success. */
static int pinned_new(struct pinion_buffer *buf, uint32_t rights, const struct storage_layout *layout, uint64_t offset,
		      struct pinion_storage **out)
{
	struct pinned *pin = calloc(1, sizeof(*pin));
	void *addr = NULL;
	int ret = 0;

	if (!pin)
		return fail(ENOMEM, "no memory for a storage object");
	if (layout->bytes)
		ret = pinion_buffer_map(buf, rights, &addr);
	if (ret) {
		free(pin);
		return ret;
	}
	pin->buf = buf;
	pin->offset = offset;
	storage_init(&pin->st, &pinned_ops, PINION_STORAGE_PINNED, layout, rights, addr ? (char *)addr + offset : NULL);
	*out = &pin->st;
	return 0;
}

PINION_API int pinion_storage_pinned(struct pinion_context *ctx, enum pinion_dtype dtype, uint64_t n,
				     const struct pinion_buffer_opts *opts, struct pinion_storage **out)
{
	struct storage_layout layout;
	struct pinion_buffer *buf = NULL;
	int ret = storage_layout(&layout, dtype, n, true);

	if (!ret)
		ret = context_check(ctx);
	if (!ret && n)
		ret = pinion_buffer_alloc(ctx, layout.bytes, opts, &buf);
	if (ret)
		return ret;
	ret = pinned_new(buf, PINION_READ | PINION_WRITE, &layout, 0, out);
	if (ret)
		pinion_buffer_unref(buf);
	return ret;
}

PINION_API int pinion_storage_over(struct pinion_buffer *buf, uint32_t rights, enum pinion_dtype dtype, uint64_t offset,
				   uint64_t n, struct pinion_storage **out)
{
	struct storage_layout layout;
	int ret;

	assert(buf);
	ret = storage_window(&layout, dtype, offset, n, pinion_buffer_size(buf));
	if (!ret && rights != PINION_READ && rights != (PINION_READ | PINION_WRITE))
		ret = fail(EINVAL, "rights are PINION_READ or PINION_READ | PINION_WRITE, not 0x%" PRIx32, rights);
	if (ret)
		return ret;
	ret = pinned_new(pinion_buffer_ref(buf), rights, &layout, offset, out);
	if (ret)
		pinion_buffer_unref(buf);
	return ret;
}
