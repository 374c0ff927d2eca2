/* SPDX-License-Identifier: MIT */
#include "host.h"

#include "advice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const struct pinion_transfer host_transfers[1] = {
	{ .to = { PINION_BACKEND_CPU, 0 }, .path = PINION_PATH_SAME },
};

/* The kernel gives addresses for memory it does not have, and kills when it is written to. Small ones are not worth a
 * look. */
#define WORTH_A_LOOK (1u << 20)

static int check_room(const struct backend_device *dev, uint64_t bytes)
{
	uint64_t available;

	if (bytes < WORTH_A_LOOK || dev->ops.available(dev, &available) || bytes <= available)
		return 0;
	return fail_advise(ENOMEM, PINION_ADVICE_MEMORY, NULL,
			   "an array of %" PRIu64 " bytes does not fit: device '%s' has %" PRIu64 " left", bytes, dev->desc.key,
			   available);
}

static int host_alloc(const struct backend_device *dev, uint64_t bytes, bool zero, struct pinion_storage *out)
{
	uint64_t size;
	int ret = check_room(dev, bytes);

	if (ret)
		return ret;
	/* Whole units, and never none, because what may be 0 bytes has an address all the same. */
	if (__builtin_add_overflow(bytes, HOST_ALIGNMENT, &size))
		return fail(EOVERFLOW, "an array of %" PRIu64 " bytes is more than there can be", bytes);
	size -= size % HOST_ALIGNMENT;
	out->data = aligned_alloc(HOST_ALIGNMENT, size);
	if (!out->data)
		return fail(ENOMEM, "no memory for an array of %" PRIu64 " bytes", bytes);
	if (zero)
		memset(out->data, 0, bytes);
	return 0;
}

static void host_free(const struct backend_device *dev, struct pinion_storage *storage)
{
	(void)dev;
	free(storage->data);
}

static int host_fill(const struct backend_device *dev, const struct pinion_view *dst, const struct pinion_scalar *value)
{
	(void)dev;
	return pinion_view_fill(dst, value);
}

static int host_available(const struct backend_device *dev, uint64_t *bytes)
{
	(void)dev;
	return backend_host_available(bytes);
}

static int host_total(const struct backend_device *dev, uint64_t *bytes)
{
	(void)dev;
	return backend_host_total(bytes);
}

static int host_pinned(const struct backend_device *dev, uint64_t *left, uint64_t *limit)
{
	(void)dev;
	return backend_host_pinned(left, limit);
}

const struct backend_ops host_ops = {
	.alloc = host_alloc,
	.available = host_available,
	.fill = host_fill,
	.free = host_free,
	.pinned = host_pinned,
	.total = host_total,
};

int host_copy(const struct backend_call *call)
{
	return pinion_view_copy(&call->dst, &call->src[0]);
}

int host_cast(const struct backend_call *call)
{
	return pinion_view_cast(&call->dst, &call->src[0]);
}
