/* SPDX-License-Identifier: MIT */
/* kernel: what a device has kernels for. One table answers and dispatches, so that the answer cannot be wrong. */
#include "device.h"

#include <errno.h>

static const struct backend_kernel *look_up(const struct backend_device *dev, enum pinion_op op,
					    enum pinion_dtype dtype)
{
	for (size_t i = 0; i < dev->desc.kernel_count; i++)
		if (dev->desc.kernels[i].op == op && dev->desc.kernels[i].dtype == dtype)
			return &dev->desc.kernels[i];
	return NULL;
}

int kernel_find(const struct backend_device *dev, enum pinion_op op, enum pinion_dtype dtype,
		const struct backend_kernel **out)
{
	const struct backend_kernel *kernel = look_up(dev, op, dtype);
	const char *name = pinion_op_name(op), *of = pinion_dtype_name(dtype);

	if (!kernel)
		return fail(EOPNOTSUPP, "%s with results of %s not supported on device '%s'", name ? name : "no op",
			    of ? of : "no dtype", dev->desc.key);
	*out = kernel;
	return 0;
}

PINION_API bool pinion_device_supports(const struct pinion_device *dev, enum pinion_op op, enum pinion_dtype dtype)
{
	return look_up(dev->backend, op, dtype);
}

PINION_API bool pinion_device_supports_type(const struct pinion_device *dev, enum pinion_op op, uint32_t type)
{
	const struct backend_desc *desc = &dev->backend->desc;

	for (size_t i = 0; i < desc->quant_kernel_count; i++)
		if (desc->quant_kernels[i].op == op && desc->quant_kernels[i].type == type)
			return true;
	return false;
}

PINION_API const struct pinion_caps *pinion_device_caps(const struct pinion_device *dev)
{
	if (!dev->backend->backend) {
		fail(ENODATA, "the device was added by its key alone: nobody knows what it can do");
		return NULL;
	}
	return &dev->backend->desc.caps;
}
