/* SPDX-License-Identifier: MIT */
/* work: one unit in flight on a device, counted where every process of the user can read it. */
#ifndef PINION_WORK_H
#define PINION_WORK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_device;

/* The caller's, plain memory; begin fills it, end empties it. One ticket is used by one thread at a time. */
struct pinion_ticket {
	struct pinion_device *device;
	uint64_t cost;
	uint32_t state;
	uint32_t reserved;
};

/*
 * Counts one unit of @cost up, before the caller makes the work visible to whoever does it. No system call; a few
 * nanoseconds once the thread has begun a unit on this device before. Errors: -EINVAL the ticket is in use; -ESTALE;
 * -EOWNERDEAD after fork; -EAGAIN no lane is left for a further device; -ETIMEDOUT as
 * pinion_device_find().
 * Zero a ticket before its first use.
 */
int pinion_work_begin(struct pinion_device *dev, uint64_t cost, struct pinion_ticket *ticket);

/* Counts the unit down; any thread of the process may. Errors: -EINVAL the ticket holds no unit (a second end). */
int pinion_work_end(struct pinion_ticket *ticket);

#ifdef __cplusplus
}
#endif
#endif
