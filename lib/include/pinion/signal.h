/* SPDX-License-Identifier: MIT */
/* signal: what a device's memory and queue are like now. "Cannot measure" is an answer, and is never 0. */
#ifndef PINION_SIGNAL_H
#define PINION_SIGNAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_device;

enum pinion_fit {
	PINION_FIT_UNKNOWN, /* cannot be told; ranks with COMFORTABLE */
	PINION_FIT_COMFORTABLE,
	PINION_FIT_TIGHT, /* fits, with more than 85 % in use afterwards */
	PINION_FIT_NO,
};

/*
 * Whether @size more bytes fit, in this order: more than *@available is NO, whatever the total; with both known and a
 * total above 0, TIGHT when (total - (available - size)) / total > 0.85, differences stopping at 0, else COMFORTABLE;
 * else UNKNOWN. NULL: not known.
 */
enum pinion_fit pinion_fit_of(const uint64_t *available, const uint64_t *total, uint64_t size);

const char *pinion_fit_name(enum pinion_fit fit);

/*
 * Bytes that a new allocation on the device could use now; its total. At most 100 ms old; hot well below a microsecond.
 * Of a device that was added by its key with a budget: what claims leave of the budget; the budget. A claim that is made
 * counts at once, one that another process gave up no longer than 20 ms.
 * -ENODATA: this device cannot measure it and has no budget. Safe from any thread.
 */
int pinion_device_available(struct pinion_device *dev, uint64_t *bytes);
int pinion_device_total(struct pinion_device *dev, uint64_t *bytes);

/* The device's own prediction where it has one, else pinion_fit_of() of the two figures above. */
enum pinion_fit pinion_device_would_fit(struct pinion_device *dev, uint64_t bytes);

/*
 * Units the device works on at once; 0: not known, which selectors read as 1. -ENODATA: synchronous, it has no queue
 * (and pending says so too).
 */
int pinion_device_capacity(struct pinion_device *dev, uint32_t *n);

/*
 * What may be pinned of the device's memory: *@limit in all, *@left of it. Of host memory on the memfd ground it is
 * what this process may lock (RLIMIT_MEMLOCK), which does not bind a process with CAP_IPC_LOCK. -ENODATA: no limit is
 * set. At most 100 ms old.
 */
int pinion_device_pinned(struct pinion_device *dev, uint64_t *left, uint64_t *limit);

#ifdef __cplusplus
}
#endif
#endif
