/* SPDX-License-Identifier: MIT */
/* pick: select a device and claim what the work needs on it, in one step, tried again where another was faster. */
#ifndef PINION_PICK_H
#define PINION_PICK_H

#include <pinion/reservation.h>
#include <pinion/select.h>
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
	bool require; /* each of keys must be there; otherwise one that is not is passed over where another will do */
};

/* What became of a device that was to be picked from. */
struct pinion_pick_row {
	char key[PINION_KEY_MAX + 1]; /* of the device; one that is too long to be any's is cut */
	int err;		      /* -errno: it is not there, or refused the claim; 0: it was there and not asked, or gave */
	enum pinion_reason reason;    /* where err is 0: CHOSEN, or why another was better */
	char why[512];		      /* a sentence, or what the policy saw of it */
};

/*
 * Picks by @want->policy, with pinion_select(), and claims; tries the next best where that is refused. Devices that tie are
 * taken in turn, which begins at another one for each context. The caller owns *@out; where it is: its info.
 * Errors: -ENOSPC, -EBUSY no device has it (the sentence lists each and why); -ENOENT no such device, or none at all, or all
 * were removed meanwhile; -ENODATA none has a budget or capacity to claim from; -EAGAIN 1024 claims stand; -EINVAL;
 * -ETIMEDOUT (see pinion_device_find()); where no key is a device's, or with @want->require one is not, what
 * pinion_device_find() says of the first such. Safe from any thread.
 */
int pinion_pick(struct pinion_context *ctx, const struct pinion_want *want, struct pinion_reservation **out);

/*
 * pinion_pick(), and what became of each device: of those that are not there, then those that refused, as they were asked, then
 * all others. *@n: how many there are, of which the first @room are in @rows (the caller's; NULL with 0). Both are set where the
 * pick fails too, as far as it came. -ENOMEM besides. Safe from any thread.
 */
int pinion_pick_explain(struct pinion_context *ctx, const struct pinion_want *want, struct pinion_pick_row *rows, size_t room,
			size_t *n, struct pinion_reservation **out);

const char *pinion_policy_name(enum pinion_policy policy); /* "chained", "least-inflight", "fit"; NULL: none */

/* -EINVAL: no policy is called so. */
int pinion_policy_parse(const char *name, enum pinion_policy *out);

#ifdef __cplusplus
}
#endif
#endif
