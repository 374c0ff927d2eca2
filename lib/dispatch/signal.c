/* SPDX-License-Identifier: MIT */
#include <pinion/signal.h>

#include "device.h"

#include <errno.h>

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

PINION_API enum pinion_fit pinion_fit_of(const uint64_t *available, const uint64_t *total, uint64_t size)
{
	uint64_t used;

	if (available && size > *available)
		return PINION_FIT_NO;
	if (!available || !total || !*total)
		return PINION_FIT_UNKNOWN;
	used = less(*total, less(*available, size));
	return (double)used / (double)*total > 0.85 ? PINION_FIT_TIGHT : PINION_FIT_COMFORTABLE;
}

PINION_API const char *pinion_fit_name(enum pinion_fit fit)
{
	static const char *const name[] = { [PINION_FIT_UNKNOWN] = "unknown",
					    [PINION_FIT_COMFORTABLE] = "comfortable",
					    [PINION_FIT_TIGHT] = "tight",
					    [PINION_FIT_NO] = "does not fit" };

	return (unsigned int)fit < sizeof(name) / sizeof(*name) ? name[fit] : NULL;
}

/* A device that is gone has no signals, whatever the memory behind it has. */
static int signal_check(const struct pinion_device *dev)
{
	int ret = device_check(dev);

	if (!ret && !counts_device_current(&dev->at))
		ret = fail(ESTALE, "the device with generation %llu was removed; find it again by its key",
			   (unsigned long long)dev->at.generation);
	return ret;
}

PINION_API int pinion_device_available(struct pinion_device *dev, uint64_t *bytes)
{
	int ret = signal_check(dev);

	return ret ? ret : dev->backend->ops.available(dev->backend, bytes);
}

PINION_API int pinion_device_total(struct pinion_device *dev, uint64_t *bytes)
{
	int ret = signal_check(dev);

	return ret ? ret : dev->backend->ops.total(dev->backend, bytes);
}

PINION_API enum pinion_fit pinion_device_would_fit(struct pinion_device *dev, uint64_t bytes)
{
	return signal_check(dev) ? PINION_FIT_UNKNOWN : dev->backend->ops.would_fit(dev->backend, bytes);
}

PINION_API int pinion_device_capacity(struct pinion_device *dev, uint32_t *n)
{
	int ret = signal_check(dev);

	if (!ret && !dev->at.entry->has_queue)
		ret = fail(ENODATA, "device '%s' is synchronous: it has no queue", dev->at.entry->key);
	if (!ret)
		*n = dev->at.entry->capacity;
	return ret;
}

PINION_API int pinion_device_pinned(struct pinion_device *dev, uint64_t *left, uint64_t *limit)
{
	int ret = signal_check(dev);

	return ret ? ret : dev->backend->ops.pinned(dev->backend, left, limit);
}
