/* SPDX-License-Identifier: MIT */
/* array: the inside of an array. */
#ifndef PINION_LIB_ARRAY_H
#define PINION_LIB_ARRAY_H

#include <pinion/array.h>

#include "device.h"

/* Memory with its arrays counted, which may be of several devices that share it. */
struct array_store {
	const struct backend_device *backend; /* that made it */
	struct backend_memory memory;
	uint32_t refs;
};

struct pinion_array {
	struct pinion_device *dev;
	struct array_store *store;
	struct pinion_view whole;
};

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
