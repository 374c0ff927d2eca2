/* SPDX-License-Identifier: MIT */
/* array storage: memory of a device. Its bytes go up and down by the device that made it, whoever shares it. */
#include "array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device_storage {
	struct pinion_storage st;
	const struct backend_device *maker;
};

static const struct backend_device *maker_of(const struct pinion_storage *st)
{
	return ((const struct device_storage *)st)->maker;
}

static void device_close(struct pinion_storage *st)
{
	maker_of(st)->ops.free(maker_of(st), st);
	free(st);
}

static const char *device_place(const struct pinion_storage *st, struct pinion_location *location)
{
	*location = maker_of(st)->desc.caps.location;
	return maker_of(st)->desc.key;
}

static void device_where(const struct pinion_storage *st, char text[STORAGE_WHERE_TEXT])
{
	const struct backend_desc *desc = &maker_of(st)->desc;

	snprintf(text, STORAGE_WHERE_TEXT, ", of '%s' at %s %u", desc->key, pinion_backend_name(desc->caps.location.kind),
		 desc->caps.location.index);
}

static const struct storage_ops host_ops = {
	.name = "device",
	.close = device_close,
	.where = device_where,
	.device = device_place,
};

static const struct storage_ops away_ops = {
	.name = "device",
	.close = device_close,
	.where = device_where,
	.device = device_place,
	.download = array_storage_download,
};

int array_storage_new(const struct backend_device *dev, const struct storage_layout *layout, bool zero,
		      struct pinion_storage **out)
{
	bool on_host = dev->desc.caps.substrate == PINION_SUBSTRATE_HOST;
	struct device_storage *made = calloc(1, sizeof(*made));
	int ret;

	if (!made)
		return fail(ENOMEM, "no memory for a storage object");
	made->maker = dev;
	storage_init(&made->st, on_host ? &host_ops : &away_ops, PINION_STORAGE_DEVICE, layout, PINION_READ | PINION_WRITE, NULL);
	ret = dev->ops.alloc(dev, layout->bytes, zero, &made->st);
	if (ret)
		free(made);
	else
		*out = &made->st;
	return ret;
}

int array_storage_download(const struct pinion_storage *st, void *dst)
{
	const struct backend_device *dev = maker_of(st);

	if (!st->layout.bytes)
		return 0;
	if (st->ops->download)
		return dev->ops.download(dev, dst, st, 0, st->layout.bytes);
	memcpy(dst, st->data, st->layout.bytes);
	return 0;
}

int array_storage_upload(struct pinion_storage *st, const void *src)
{
	const struct backend_device *dev = maker_of(st);

	if (!st->layout.bytes)
		return 0;
	if (st->ops->download)
		return dev->ops.upload(dev, st, 0, src, st->layout.bytes);
	memcpy(st->data, src, st->layout.bytes);
	return 0;
}

int array_storage_copy(const struct pinion_storage *src, struct pinion_storage *dst)
{
	uint64_t bytes = src->layout.bytes;
	void *host;
	int ret;

	if (!src->ops->download)
		return array_storage_upload(dst, src->data);
	if (!dst->ops->download)
		return array_storage_download(src, dst->data);
	host = malloc(bytes ? bytes : 1);
	if (!host)
		return fail(ENOMEM, "no memory for the %" PRIu64 " bytes on their way from '%s' to '%s'", bytes,
			    maker_of(src)->desc.key, maker_of(dst)->desc.key);
	ret = array_storage_download(src, host);
	if (!ret)
		ret = array_storage_upload(dst, host);
	free(host);
	return ret;
}

PINION_API struct pinion_storage *pinion_array_storage(const struct pinion_array *array)
{
	return storage_ref(array->storage);
}
