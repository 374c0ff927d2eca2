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

/* ---- whether it fits ---- */

static inline uint64_t fit_less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Only near the bound does it take the division, which is slow, to tell what the contract's formula gives. */
static inline bool fit_is_tight(uint64_t used, uint64_t total)
{
	if (__builtin_expect(used <= total / 4 * 3, 1))
		return false;
	if (used > total - total / 8)
		return true;
	return (double)used / (double)total > 0.85;
}

/* For a device's budget, of which @claimed bytes are. */
static inline enum pinion_fit fit_budget(uint64_t budget, uint64_t claimed, uint64_t size)
{
	if (claimed > budget || size > budget - claimed)
		return size ? PINION_FIT_NO : PINION_FIT_TIGHT;
	return fit_is_tight(claimed + size, budget) ? PINION_FIT_TIGHT : PINION_FIT_COMFORTABLE;
}

static inline uint64_t device_claimed(struct pinion_device *dev, struct claims_now *now)
{
	return counts_claimed(dev->counts, &dev->at, &dev->claimed, now);
}

/* pinion_device_would_fit() of one that is there and this process's. */
static inline enum pinion_fit device_fit_now(struct pinion_device *dev, uint64_t bytes, struct claims_now *now)
{
	if (!dev->budget)
		return dev->backend->ops.would_fit(dev->backend, bytes);
	return fit_budget(dev->budget, device_claimed(dev, now), bytes);
}

/* pinion_device_would_fit(), for calls from within the library that do not go by way of the table of its exported symbols. */
enum pinion_fit device_fit(struct pinion_device *dev, uint64_t bytes);

/* ---- what some devices that have a queue, of any contexts, say to a selector ---- */

#define DEVICE_SIGNALS 8

/* Started, added to one by one, then asked; the members from fit on are the answers. */
struct device_signals {
	const struct counts *counts; /* of the first, where that is this process's; NULL */
	bool apart;		     /* they are not asked in one reading: for one signal only, or one is not of these counts */
	uint32_t uneasy;	     /* not 0: one of those whose fit is told does not fit comfortably */
	struct claims_now now;
	struct pinion_device *dev[DEVICE_SIGNALS];
	uint64_t bytes[DEVICE_SIGNALS];
	enum pinion_fit fit[DEVICE_SIGNALS];
	uint32_t pending[DEVICE_SIGNALS];
	bool has_pending[DEVICE_SIGNALS];
};

/* @both: for the fit and what is pending, which one reading answers. */
static inline void device_signals_start(struct device_signals *s, bool both)
{
	s->counts = NULL;
	s->apart = !both;
	s->uneasy = 0;
	s->now = claims_now();
	for (size_t i = 0; i < DEVICE_SIGNALS; i++)
		s->fit[i] = PINION_FIT_COMFORTABLE;
}

/*
 * The fit of the device at place @i where it is not to be told by one comparison. Apart: what is seldom needed is not among what
 * every selection fetches.
 */
void device_signals_weigh(struct device_signals *s, size_t i);

/* The device at place @i, whose fit is answered at once where it can be. */
static inline __attribute__((always_inline)) void device_signals_add(struct device_signals *s, size_t i,
								     struct pinion_device *dev, uint64_t bytes)
{
	s->dev[i] = dev;
	s->bytes[i] = bytes;
	if (__builtin_expect(dev->counts != s->counts, 0)) {
		if (i || s->apart || !process_is_maker(&dev->mark)) {
			s->apart = true;
			return;
		}
		s->counts = dev->counts;
	}
	if (__builtin_expect(bytes < dev->comfort, 1)) {
		uint32_t changes = claims_changes(&dev->at, &s->now);

		if (claims_none(&dev->claimed, changes))
			return;
		if (counts_claimed_kept(dev->counts, &dev->at, &dev->claimed, &s->now, changes) < dev->comfort - bytes)
			return;
	}
	device_signals_weigh(s, i);
}

/* For one of two signals, devices of several contexts, or where one is gone. */
void device_signals_ask_singly(struct device_signals *s, size_t n, bool fit, bool pending);

/*
 * What pinion_device_would_fit() and the pinion_device_pending() of every process say of each of the first @n, from one reading
 * of the counts and at most one look at the clock for all claims. True: each has both. Else has_pending says which are pending at
 * all: a device that is gone, or was another process's, has no signal.
 */
static inline bool device_signals_ask(struct device_signals *s, size_t n, bool fit, bool pending)
{
	/* That each is there shows in the reading of the counts. */
	if (!s->apart && !counts_pending(s->counts, (const struct counts_device *const *)s->dev, n, s->pending))
		return true;
	device_signals_ask_singly(s, n, fit, pending);
	return false;
}

/* Handles on all devices, one a call, from *@place 0 on; -ENOENT without a sentence: that was all. */
int device_next(struct pinion_context *ctx, uint32_t *place, struct pinion_device **out);

static inline int device_pending_all(struct pinion_device *dev, uint32_t *n)
{
	const struct counts_device *at = &dev->at;
	int ret = device_check(dev);

	return ret ? ret : counts_pending(dev->counts, &at, 1, n);
}

#endif
