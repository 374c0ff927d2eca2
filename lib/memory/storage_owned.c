/* SPDX-License-Identifier: MIT */
/* owned: an array in the process's own memory, made here or handed in. */
#include "../error.h"
#include "storage.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWNED_ALIGN 64

struct owned {
	struct pinion_storage st;
	void (*release)(void *arg, void *data); /* NULL: free() */
	void *arg;
};

static void owned_close(struct pinion_storage *st)
{
	struct owned *own = (struct owned *)st;

	if (own->release)
		own->release(own->arg, st->data);
	else
		free(st->data);
	free(own);
}

static void owned_where(const struct pinion_storage *st, char text[STORAGE_WHERE_TEXT])
{
	snprintf(text, STORAGE_WHERE_TEXT, "%s", ((const struct owned *)st)->release ? ", handed in" : "");
}

static const struct storage_ops owned_ops = {
	.name = "owned",
	.close = owned_close,
	.where = owned_where,
};

static struct owned *owned_over(const struct storage_layout *layout, void *data)
{
	struct owned *own = calloc(1, sizeof(*own));

	if (own)
		storage_init(&own->st, &owned_ops, PINION_STORAGE_OWNED, layout, PINION_READ | PINION_WRITE, data);
	else
		fail(ENOMEM, "no memory for a storage object");
	return own;
}

int storage_owned_new(const struct storage_layout *layout, struct pinion_storage **out)
{
	struct owned *own;
	void *data = NULL;
	int err = layout->bytes ? posix_memalign(&data, OWNED_ALIGN, layout->bytes) : 0;

	if (err)
		return fail(err, "no memory for %" PRIu64 " elements of %s, %" PRIu64 " bytes", layout->elements,
			    pinion_dtype_name(layout->dtype), layout->bytes);
	own = owned_over(layout, data);
	if (!own) {
		free(data);
		return -ENOMEM;
	}
	*out = &own->st;
	return 0;
}

PINION_API int pinion_storage_owned(enum pinion_dtype dtype, uint64_t n, struct pinion_storage **out)
{
	struct storage_layout layout;
	int ret = storage_layout(&layout, dtype, n, true);

	if (!ret)
		ret = storage_owned_new(&layout, out);
	if (!ret && layout.bytes)
		memset((*out)->data, 0, layout.bytes);
	return ret;
}

PINION_API int pinion_storage_adopt(void *data, enum pinion_dtype dtype, uint64_t n,
				    void (*release)(void *arg, void *data), void *arg, struct pinion_storage **out)
{
	struct storage_layout layout;
	struct owned *own;
	int ret = storage_layout(&layout, dtype, n, true);

	if (ret)
		return ret;
	if (!data && n)
		return fail(EINVAL, "%" PRIu64 " elements at NULL", n);
	if ((uintptr_t)data % pinion_dtype_bytes(dtype))
		return fail(EINVAL, "%p is not aligned to the %zu bytes of an element of %s", data,
			    pinion_dtype_bytes(dtype), pinion_dtype_name(dtype));
	own = owned_over(&layout, data);
	if (!own)
		return -ENOMEM;
	own->release = release;
	own->arg = arg;
	*out = &own->st;
	return 0;
}
