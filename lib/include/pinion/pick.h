/* SPDX-License-Identifier: MIT */
/* pick: select a device and claim what the work needs on it, in one step, tried again where another was faster. */
#ifndef PINION_PICK_H
#define PINION_PICK_H

#include <pinion/reservation.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;

enum pinion_policy {
	PINION_POLICY_CHAINED,	      /* where it fits, then where the queue is short */
	PINION_POLICY_LEAST_INFLIGHT, /* the fewest units in flight, however many the device can take */
	PINION_POLICY_FIT,	      /* where it fits comfortably, queues do not matter */
};

struct pinion_want {
	size_t size;
	uint64_t bytes; /* of the budget */
	uint32_t units; /* of the capacity */
	bool exclusive; /* the whole device */
	enum pinion_policy policy;
	const char *const *keys; /* the devices to pick from; NULL: all that have a queue */
	size_t key_count;
};

/*
 * Picks by @want->policy, with pinion_select(), and claims; tries the next best where that is refused. Devices that tie are
 * taken in turn, which begins at another one for each context. The caller owns *@out; where it is: its info.
 * Errors: -ENOSPC, -EBUSY no device has it (the sentence lists each and why); -ENOENT no such device, or none at all, or all
 * were removed meanwhile; -ENODATA none has a budget or capacity to claim from; -EAGAIN 1024 claims stand; -EINVAL;
 * -ETIMEDOUT (see pinion_device_find()). Safe from any thread.
 */
int pinion_pick(struct pinion_context *ctx, const struct pinion_want *want, struct pinion_reservation **out);

const char *pinion_policy_name(enum pinion_policy policy); /* "chained", "least-inflight", "fit"; NULL: none */

/* -EINVAL: no policy is called so. */
int pinion_policy_parse(const char *name, enum pinion_policy *out);

#ifdef __cplusplus
}
#endif
#endif
