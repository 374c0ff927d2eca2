/* SPDX-License-Identifier: MIT */
#include <pinion/signal.h>

#include "device.h"

#include <errno.h>
#include <string.h>

static inline enum pinion_fit fit(uint64_t available, uint64_t total, uint64_t size)
{
	if (size > available)
		return PINION_FIT_NO;
	if (!total)
		return PINION_FIT_UNKNOWN;
	return fit_is_tight(fit_less(total, available - size), total) ? PINION_FIT_TIGHT : PINION_FIT_COMFORTABLE;
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

PINION_API int pinion_device_available(struct pinion_device *dev, uint64_t *bytes)
{
	struct claims_now now = claims_now();
	int ret = signal_check(dev);

	if (ret)
		return ret;
	if (!dev->budget)
		return dev->backend->ops.available(dev->backend, bytes);
	*bytes = fit_less(dev->budget, device_claimed(dev, &now));
	return 0;
}

PINION_API int pinion_device_total(struct pinion_device *dev, uint64_t *bytes)
{
	int ret = signal_check(dev);

	if (ret)
		return ret;
	if (!dev->budget)
		return dev->backend->ops.total(dev->backend, bytes);
	*bytes = dev->budget;
	return 0;
}

static __attribute__((noinline)) enum pinion_fit would_fit_budget(struct pinion_device *dev, uint64_t bytes)
{
	struct claims_now now = claims_now();

	return fit_budget(dev->budget, device_claimed(dev, &now), bytes);
}

COUNTER_HOT enum pinion_fit device_fit(struct pinion_device *dev, uint64_t bytes)
{
	if (signal_check(dev))
		return PINION_FIT_UNKNOWN;
	return dev->budget ? would_fit_budget(dev, bytes) : dev->backend->ops.would_fit(dev->backend, bytes);
}

PINION_API enum pinion_fit pinion_device_would_fit(struct pinion_device *dev, uint64_t bytes)
{
	return device_fit(dev, bytes);
}

/* ---- of several devices in one reading ----------------------------------------------------------------------------- */

/* A device whose handle is not this process's has nothing behind it that could be read. */
static bool is_there(const struct pinion_device *dev)
{
	return process_is_maker(&dev->mark) && counts_device_current(&dev->at);
}

void device_signals_weigh(struct device_signals *s, size_t i)
{
	s->fit[i] = device_fit_now(s->dev[i], s->bytes[i], &s->now);
	s->uneasy |= s->fit[i] ^ PINION_FIT_COMFORTABLE;
}

void device_signals_ask_singly(struct device_signals *s, size_t n, bool fit, bool pending)
{
	for (size_t i = 0; i < n; i++) {
		const struct counts_device *at = &s->dev[i]->at;

		s->fit[i] = fit && is_there(s->dev[i]) ? device_fit(s->dev[i], s->bytes[i]) : PINION_FIT_UNKNOWN;
		s->has_pending[i] = pending && is_there(s->dev[i]) && !counts_pending(s->dev[i]->counts, &at, 1, &s->pending[i]);
	}
}

PINION_API int pinion_device_capacity(struct pinion_device *dev, uint32_t *n)
{
	int ret = signal_check(dev);

	if (!ret && !dev->at.has_queue)
		ret = fail(ENODATA, "device '%s' is synchronous: it has no queue", dev->key);
	if (!ret)
		*n = dev->at.capacity;
	return ret;
}

PINION_API int pinion_device_pinned(struct pinion_device *dev, uint64_t *left, uint64_t *limit)
{
	int ret = signal_check(dev);

	return ret ? ret : dev->backend->ops.pinned(dev->backend, left, limit);
}
