/* SPDX-License-Identifier: MIT */
/* defaults: what a backend does that leaves an op out. */
#include "registry.h"

#include <errno.h>
#include <string.h>

static int refuse(const struct backend_device *dev, const char *op)
{
	return fail(EOPNOTSUPP, "%s not supported on this backend (device '%s')", op, dev->desc.key);
}

static int unmeasured(const struct backend_device *dev, const char *what)
{
	return fail(ENODATA, "device '%s' cannot measure %s", dev->desc.key, what);
}

static int no_alloc(const struct backend_device *dev, uint64_t bytes, bool zero, struct pinion_storage *out)
{
	(void)bytes;
	(void)zero;
	(void)out;
	return refuse(dev, "alloc");
}

static int no_available(const struct backend_device *dev, uint64_t *bytes)
{
	(void)bytes;
	return unmeasured(dev, "the memory it has left");
}

static int no_copy_to(const struct backend_copy *copy)
{
	return refuse(copy->from, "copy_to");
}

static int no_dequantize_f16(const struct backend_device *dev, const struct backend_quant *q, uint64_t elements,
			     struct pinion_storage *out)
{
	(void)q;
	(void)elements;
	(void)out;
	return refuse(dev, "dequantize_f16");
}

static int no_device_ptr(const struct backend_device *dev, const struct backend_quant *q, uint64_t *address)
{
	(void)q;
	(void)address;
	return refuse(dev, "device_ptr");
}

static int no_download(const struct backend_device *dev, void *dst, const struct pinion_storage *src, uint64_t off,
		       uint64_t bytes)
{
	(void)dst;
	(void)src;
	(void)off;
	(void)bytes;
	return refuse(dev, "download");
}

static int no_fill(const struct backend_device *dev, const struct pinion_view *dst, const struct pinion_scalar *value)
{
	(void)dst;
	(void)value;
	return refuse(dev, "fill");
}

static void nothing_to_free(const struct backend_device *dev, struct pinion_storage *storage)
{
	(void)dev;
	(void)storage;
}

static int no_indexed_moe_forward(const struct backend_device *dev, const struct backend_moe *moe)
{
	(void)moe;
	return refuse(dev, "indexed_moe_forward");
}

static int no_pinned(const struct backend_device *dev, uint64_t *left, uint64_t *limit)
{
	(void)left;
	(void)limit;
	return fail(ENODATA, "device '%s' has no limit for pinned memory", dev->desc.key);
}

static int no_total(const struct backend_device *dev, uint64_t *bytes)
{
	(void)bytes;
	return unmeasured(dev, "its memory");
}

static int no_upload(const struct backend_device *dev, struct pinion_storage *dst, uint64_t off, const void *src,
		     uint64_t bytes)
{
	(void)dst;
	(void)off;
	(void)src;
	(void)bytes;
	return refuse(dev, "upload");
}

static enum pinion_fit derived_fit(const struct backend_device *dev, uint64_t bytes)
{
	uint64_t available, total;
	/* A default's answer is known, and its sentence would cost a selector more than the rest of its choice. */
	bool has_available = dev->ops.available != no_available && !dev->ops.available(dev, &available);
	bool has_total = dev->ops.total != no_total && !dev->ops.total(dev, &total);

	return pinion_fit_of(has_available ? &available : NULL, has_total ? &total : NULL, bytes);
}

/* By position, so that the compiler warns of an op that has none. */
#define DEFAULTS                                                                                                       \
	{                                                                                                              \
		no_alloc, no_available, no_copy_to, no_dequantize_f16, no_device_ptr, no_download, no_fill,            \
			nothing_to_free, no_indexed_moe_forward, no_pinned, no_total, no_upload, derived_fit,          \
	}

const struct backend_ops backend_defaults = DEFAULTS;

/* The table is nothing but function pointers, so it is merged as a list of them. */
#define OPS (sizeof(struct backend_ops) / sizeof(void (*)(void)))
_Static_assert(sizeof(struct backend_ops) % sizeof(void (*)(void)) == 0, "ops are function pointers");

struct backend_ops backend_ops_complete(const struct backend_ops *own)
{
	void (*op[OPS])(void), (*other[OPS])(void);
	struct backend_ops complete;

	memcpy(op, own, sizeof(op));
	memcpy(other, &backend_defaults, sizeof(other));
	for (size_t i = 0; i < OPS; i++)
		if (!op[i])
			op[i] = other[i];
	memcpy(&complete, op, sizeof(complete));
	return complete;
}

const struct backend_device registry_nobody = {
	.desc = { .key = "added by its key alone" },
	.ops = DEFAULTS,
};
