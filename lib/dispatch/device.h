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

/*
 * pinion_device_would_fit() and the pinion_device_pending() of every process, for calls from within the library that do
 * not go by way of the table of its exported symbols: selectors make both for each candidate.
 */
enum pinion_fit device_fit(struct pinion_device *dev, uint64_t bytes);

/* Handles on all devices, one a call, from *@place 0 on; -ENOENT without a sentence: that was all. */
int device_next(struct pinion_context *ctx, uint32_t *place, struct pinion_device **out);

static inline int device_pending_all(struct pinion_device *dev, uint32_t *n)
{
	const struct counts_device *at = &dev->at;
	int ret = device_check(dev);

	return ret ? ret : counts_pending(dev->counts, &at, 1, n);
}

#endif
