/* SPDX-License-Identifier: MIT */
#include <pinion/signal.h>

#include "device.h"

#include <errno.h>

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Only near the bound does it take the division, which is slow, to tell what the contract's formula gives. */
static inline bool is_tight(uint64_t used, uint64_t total)
{
	if (used <= total / 4 * 3)
		return false;
	if (used > total - total / 8)
		return true;
	return (double)used / (double)total > 0.85;
}

static inline enum pinion_fit fit(uint64_t available, uint64_t total, uint64_t size)
{
	if (size > available)
		return PINION_FIT_NO;
	if (!total)
		return PINION_FIT_UNKNOWN;
	return is_tight(less(total, available - size), total) ? PINION_FIT_TIGHT : PINION_FIT_COMFORTABLE;
}

PINION_API enum pinion_fit pinion_fit_of(const uint64_t *available, const uint64_t *total, uint64_t size)
{
	return available ? fit(*available, total ? *total : 0, size) : PINION_FIT_UNKNOWN;
}

PINION_API const char *pinion_fit_name(enum pinion_fit fit)
{
	static const char *const name[] = { [PINION_FIT_UNKNOWN] = "unknown",
					    [PINION_FIT_COMFORTABLE] = "comfortable",
					    [PINION_FIT_TIGHT] = "tight",
					    [PINION_FIT_NO] = "does not fit" };

	return (unsigned int)fit < sizeof(name) / sizeof(*name) ? name[fit] : NULL;
}

static __attribute__((noinline, cold)) int refuse(const struct pinion_device *dev)
{
	if (!process_is_maker(&dev->mark))
		return process_fail("device");
	return fail(ESTALE, "the device with generation %llu was removed; find it again by its key",
		    (unsigned long long)dev->at.generation);
}

/* A device that is gone has no signals, whatever the memory behind it has. */
static inline int signal_check(const struct pinion_device *dev)
{
	return process_is_maker(&dev->mark) && counts_device_current(&dev->at) ? 0 : refuse(dev);
}

/*
 * A device that nobody describes has no memory that could be measured. Where it has a budget, that is what its users
 * agreed to take for it, and their claims are what is in use.
 */
static bool has_budget(const struct pinion_device *dev)
{
	return dev->backend == &registry_nobody && dev->at.entry->budget;
}

static uint64_t budget_left(struct pinion_device *dev)
{
	return less(dev->at.entry->budget, counts_claimed(dev->counts, &dev->at, &dev->claimed));
}

PINION_API int pinion_device_available(struct pinion_device *dev, uint64_t *bytes)
{
	int ret = signal_check(dev);

	if (ret)
		return ret;
	if (!has_budget(dev))
		return dev->backend->ops.available(dev->backend, bytes);
	*bytes = budget_left(dev);
	return 0;
}

PINION_API int pinion_device_total(struct pinion_device *dev, uint64_t *bytes)
{
	int ret = signal_check(dev);

	if (ret)
		return ret;
	if (!has_budget(dev))
		return dev->backend->ops.total(dev->backend, bytes);
	*bytes = dev->at.entry->budget;
	return 0;
}

enum pinion_fit device_fit(struct pinion_device *dev, uint64_t bytes)
{
	if (signal_check(dev))
		return PINION_FIT_UNKNOWN;
	if (!has_budget(dev))
		return dev->backend->ops.would_fit(dev->backend, bytes);
	return fit(budget_left(dev), dev->at.entry->budget, bytes);
}

PINION_API enum pinion_fit pinion_device_would_fit(struct pinion_device *dev, uint64_t bytes)
{
	return device_fit(dev, bytes);
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
