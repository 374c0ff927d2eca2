/* SPDX-License-Identifier: MIT */
/*
 * account: a device as a context counts on it. The shared facts (key, generation, budget) are in the provider's table;
 * here is what this process needs to count: which of its lanes belong to the device and which thread has which.
 *
 * A thread gets a lane of its own for each device it touches, and keeps it until it ends; then the next thread may have
 * it. When few lanes are left, threads share one with atomic adds.
 */
#ifndef PINION_LIB_ACCOUNT_H
#define PINION_LIB_ACCOUNT_H

#include <pinion/work.h>
#include <stdbool.h>
#include <stdint.h>

#include "../context.h"

/* One lane as a thread uses it. */
struct lane_ref {
	uint64_t device_id; /* 0: empty */
	struct pinion_lane *lane;
	struct pinion_control *control;
	bool shared;
};

struct backend_device;

struct pinion_device {
	struct counts_device at;
	struct process_mark mark; /* the context's, a load nearer, as is what follows */
	struct counts *counts;
	uint64_t id; /* never given twice in a process, so that a thread's cache cannot mistake a freed device for another */
	struct pinion_context *ctx;
	const struct backend_device *backend; /* what it can do; the registry's, never NULL once handed out */
	/*
	 * A device that nobody describes has no memory that could be measured. Where it has a budget, that is what its users
	 * agreed to take for it, and their claims are what is in use. 0: its backend is asked.
	 */
	uint64_t budget;
	uint64_t comfort;		/* below it, with claims, a request fits comfortably; 0: that is to be asked */
	struct pinion_device *next;	/* in ctx->devices, under ctx->lock */
	struct pinion_device *live_next; /* in the list of all, under lane.c's lock */
	uint64_t lanes_idle;		/* lanes whose thread has ended, under lane.c's lock */
	uint32_t shared_lane;		/* PINION_LANES: none yet, under lane.c's lock */
	bool promised;			/* a lane is kept back to become the shared one, under lane.c's lock */
	struct claims_kept claimed;
	char key[PINION_KEY_MAX + 1]; /* its own, which the place in the table has only as long as the device is there */
};

/* A handle for @at, freed with account_free() when the context closes. */
int account_new(struct pinion_context *ctx, const struct counts_device *at, struct pinion_device **out);
void account_free(struct pinion_device *dev);

/* The calling thread's lane for @dev; the slow half of begin and end. */
int lane_find(struct pinion_device *dev, struct lane_ref *out);

/* The thread's cache, by device id. Direct-mapped; initial-exec, because begin and end are a few nanoseconds. */
#define LANE_CACHE 8
extern _Thread_local struct lane_ref lane_cache[LANE_CACHE] __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline int lane_get(struct pinion_device *dev, const struct lane_ref **out)
{
	struct lane_ref *ref = &lane_cache[dev->id % LANE_CACHE];

	if (__builtin_expect(ref->device_id != dev->id, 0)) {
		int ret = lane_find(dev, ref);

		if (ret)
			return ret;
	}
	*out = ref;
	return 0;
}

#endif
