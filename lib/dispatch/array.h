/* SPDX-License-Identifier: MIT */
/* array: the inside of an array, and the storages that arrays are in. */
#ifndef PINION_LIB_ARRAY_H
#define PINION_LIB_ARRAY_H

#include <pinion/array.h>

#include "device.h"

struct pinion_array {
	struct pinion_device *dev;
	struct pinion_storage *storage; /* of @dev, or of one that shares with it */
	struct pinion_view whole;
};

/*
 * Memory of @dev. Its dtype and shape are those of the array it is made for, but that an array without axes is one axis
 * of one element. -errno of the device's alloc.
 */
int array_storage_new(const struct backend_device *dev, const struct storage_layout *layout, bool zero,
		      struct pinion_storage **out);

/* All its bytes, to and from host memory, by the device that made it. */
int array_storage_download(const struct pinion_storage *st, void *dst);
int array_storage_upload(struct pinion_storage *st, const void *src);

/* All bytes of @src to @dst, which has as many, through the host. */
int array_storage_copy(const struct pinion_storage *src, struct pinion_storage *dst);

/* What that was measured to take, in *@t. False: it cannot be measured, or not now, and *@t is as it was. */
bool transfer_probe(const struct backend_device *from, const struct backend_device *to, struct pinion_transfer *t);

/* A new array of the shape of @like, of any content. */
int array_like(struct pinion_device *dev, enum pinion_dtype dtype, const struct pinion_view *like,
	       struct pinion_array **out);

/* *@out: @layout, or the whole. -EINVAL it is of other memory. */
int array_layout(const struct pinion_array *array, const struct pinion_view *layout, struct pinion_view *out);

static inline bool array_on_host(const struct pinion_array *array)
{
	return array->dev->backend->desc.caps.substrate == PINION_SUBSTRATE_HOST;
}

bool backends_share(const struct backend_device *a, const struct backend_device *b);

#endif
