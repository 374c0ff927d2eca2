/* SPDX-License-Identifier: MIT */
/* ticket: one unit of work, counted up and down. These two functions are the hot path; `make bench` shows what they cost. */
#include "account.h"

#include "../error.h"
#include "../provider/counts_ops.h"

#include <errno.h>

/* The state of a ticket that holds a unit; its lowest bit is the unit's parity. Any other value holds none. */
#define BEGUN 0x50494e30u

static inline int is_begun(uint32_t state)
{
	return (state & ~1u) == BEGUN;
}

/* Several threads, one lane: the same protocol with atomic adds. */
static uint32_t shared_begin(const struct lane_ref *ref, uint64_t cost)
{
	uint32_t parity = pinion_load(&ref->control->epoch) & 1;
	struct pinion_count *c = &ref->lane->submitted[parity];

	__atomic_add_fetch(&c->cost, cost, __ATOMIC_RELAXED);
	__atomic_add_fetch(&c->ops, 1, __ATOMIC_RELAXED);
	return parity;
}

static uint32_t shared_end(const struct lane_ref *ref, uint32_t parity, uint64_t cost)
{
	struct pinion_count *c = &ref->lane->completed[parity];

	__atomic_add_fetch(&c->cost, cost, __ATOMIC_RELEASE);
	__atomic_add_fetch(&c->ops, 1, __ATOMIC_RELEASE);
	return pinion_load(&ref->control->armed);
}

/* Out of line, so that the hot path keeps no registers for it. */
static __attribute__((noinline, cold)) int refuse_begin(struct pinion_device *dev, const struct pinion_ticket *ticket)
{
	if (!process_is_maker(&dev->mark))
		return process_fail("device");
	if (is_begun(ticket->state))
		return fail(EINVAL, "the ticket already holds a unit; end it first, or zero it before its first use");
	return fail(ESTALE, "the device was removed; find it again by its key");
}

static __attribute__((noinline, cold)) int refuse_end(const struct pinion_ticket *ticket)
{
	if (!is_begun(ticket->state))
		return fail(EINVAL, "the ticket holds no unit: it was never begun or is ended already");
	return process_fail("ticket");
}

PINION_API int pinion_work_begin(struct pinion_device *dev, uint64_t cost, struct pinion_ticket *ticket)
{
	const struct lane_ref *ref;
	int ret;

	if (__builtin_expect(!process_is_maker(&dev->mark) || is_begun(ticket->state) ||
				     !counts_device_current(&dev->at),
			     0))
		return refuse_begin(dev, ticket);
	ret = lane_get(dev, &ref);
	if (__builtin_expect(ret, 0))
		return ret;
	ticket->state = BEGUN | (ref->shared ? shared_begin(ref, cost) : pinion_lane_begin(ref->control, ref->lane, cost));
	ticket->device = dev;
	ticket->cost = cost;
	return 0;
}

PINION_API int pinion_work_end(struct pinion_ticket *ticket)
{
	struct pinion_device *dev = ticket->device;
	const struct lane_ref *ref;
	uint32_t parity, armed;
	int ret;

	if (__builtin_expect(!is_begun(ticket->state) || !process_is_maker(&dev->mark), 0))
		return refuse_end(ticket);
	ret = lane_get(dev, &ref);
	if (__builtin_expect(ret, 0)) {
		/* The device was removed, and the unit with it; else there was no memory, and it can be ended yet. */
		if (ret == -ESTALE)
			ticket->state = 0;
		return ret;
	}
	parity = ticket->state & 1;
	ticket->state = 0;
	armed = ref->shared ? shared_end(ref, parity, ticket->cost) :
			      pinion_lane_end(ref->control, ref->lane, parity, ticket->cost);
	if (__builtin_expect(armed, 0))
		dev->counts->ops->wake(dev->counts, &dev->at, ref->lane);
	return 0;
}
