/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "device.h"
#include "select.h"

#include <errno.h>
#include <pinion/device.h>

static int fail_unmeasured(void)
{
	return fail(ENODATA, "the device cannot measure its memory");
}

PINION_API int pinion_runtime_available(struct pinion_runtime *rt, uint64_t *bytes)
{
	return rt->ops->available ? rt->ops->available(rt, bytes) : fail_unmeasured();
}

PINION_API int pinion_runtime_total(struct pinion_runtime *rt, uint64_t *bytes)
{
	return rt->ops->total ? rt->ops->total(rt, bytes) : fail_unmeasured();
}

enum pinion_fit runtime_fit(struct pinion_runtime *rt, uint64_t bytes)
{
	uint64_t available, total;
	bool has_available = rt->ops->available && !rt->ops->available(rt, &available);
	bool has_total = rt->ops->total && !rt->ops->total(rt, &total);

	return pinion_fit_of(has_available ? &available : NULL, has_total ? &total : NULL, bytes);
}

PINION_API enum pinion_fit pinion_runtime_would_fit(struct pinion_runtime *rt, uint64_t bytes)
{
	return runtime_would_fit(rt, bytes);
}

PINION_API bool pinion_runtime_has_streams(const struct pinion_runtime *rt)
{
	return rt->ops->pending;
}

static int fail_synchronous(void)
{
	return fail(ENODATA, "the device is synchronous: it has no queue");
}

PINION_API int pinion_runtime_pending(struct pinion_runtime *rt, uint32_t *n)
{
	return rt->ops->pending ? rt->ops->pending(rt, n) : fail_synchronous();
}

PINION_API int pinion_runtime_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	return rt->ops->capacity ? rt->ops->capacity(rt, n) : fail_synchronous();
}

PINION_API int pinion_runtime_flush(struct pinion_runtime *rt, int64_t deadline_ns)
{
	return rt->ops->flush ? rt->ops->flush(rt, deadline_ns) : fail_synchronous();
}

PINION_API void pinion_runtime_free(struct pinion_runtime *rt)
{
	if (rt)
		runtime_free(rt);
}

/* ---- of a device ------------------------------------------------------------------------------------------------- */

/* The handle is the first member of its room. */
static struct pinion_device_runtime *room_of(struct pinion_runtime *rt)
{
	return (struct pinion_device_runtime *)rt;
}

static int device_available(struct pinion_runtime *rt, uint64_t *bytes)
{
	return pinion_device_available(room_of(rt)->device, bytes);
}

static int device_total(struct pinion_runtime *rt, uint64_t *bytes)
{
	return pinion_device_total(room_of(rt)->device, bytes);
}

static enum pinion_fit device_would_fit(struct pinion_runtime *rt, uint64_t bytes)
{
	return device_fit(room_of(rt)->device, bytes);
}

static int device_pending(struct pinion_runtime *rt, uint32_t *n)
{
	return device_pending_all(room_of(rt)->device, n);
}

static int device_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	*n = room_of(rt)->capacity;
	return 0;
}

static int device_flush(struct pinion_runtime *rt, int64_t deadline_ns)
{
	return pinion_device_flush(room_of(rt)->device, PINION_SCOPE_ALL, deadline_ns, NULL);
}

static const struct pinion_runtime_ops synchronous = {
	.available = device_available,
	.total = device_total,
	.would_fit = device_would_fit,
};

const struct pinion_runtime_ops runtime_queued = {
	.available = device_available,
	.total = device_total,
	.would_fit = device_would_fit,
	.pending = device_pending,
	.capacity = device_capacity,
	.flush = device_flush,
};

/* The capacity is fixed, and asking a synchronous device writes a sentence: it is asked once, not for each lookup. */
PINION_API struct pinion_runtime *pinion_runtime_of_device(struct pinion_device *device,
							   struct pinion_device_runtime *room)
{
	*room = (struct pinion_device_runtime){ .device = device };
	room->runtime.ops = pinion_device_capacity(device, &room->capacity) ? &synchronous : &runtime_queued;
	return &room->runtime;
}
