/* SPDX-License-Identifier: MIT */
/* device: what the calls on a device ask first. */
#ifndef PINION_LIB_DEVICE_H
#define PINION_LIB_DEVICE_H

#include "../work/account.h"
#include "registry.h"

static inline int device_check(const struct pinion_device *dev)
{
	return process_is_maker(&dev->mark) ? 0 : process_fail("device");
}

/* pinion_device_would_fit(), for calls from within the library that do not go by way of the table of its exported symbols. */
enum pinion_fit device_fit(struct pinion_device *dev, uint64_t bytes);

#define DEVICE_SIGNALS 8

/* What some devices that have a queue, of any contexts, say to a selector; the members from fit on are the answers. */
struct device_signals {
	size_t n; /* from 1 on */
	struct pinion_device *dev[DEVICE_SIGNALS];
	uint64_t bytes[DEVICE_SIGNALS];
	enum pinion_fit fit[DEVICE_SIGNALS];
	uint32_t pending[DEVICE_SIGNALS];
	bool has_pending[DEVICE_SIGNALS];
};

/*
 * What pinion_device_would_fit() and the pinion_device_pending() of every process say of each, from one reading of the counts and
 * at most one look at the clock for all claims. A device that is gone, or was another process's, has no signal.
 */
void device_signals_ask(struct device_signals *s, bool fit, bool pending);

/* Handles on all devices, one a call, from *@place 0 on; -ENOENT without a sentence: that was all. */
int device_next(struct pinion_context *ctx, uint32_t *place, struct pinion_device **out);

static inline int device_pending_all(struct pinion_device *dev, uint32_t *n)
{
	const struct counts_device *at = &dev->at;
	int ret = device_check(dev);

	return ret ? ret : counts_pending(dev->counts, &at, 1, n);
}

#endif
