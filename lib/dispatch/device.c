/* SPDX-License-Identifier: MIT */
#include <pinion/device.h>

#include "../error.h"
#include "../work/account.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* The asynchronous host engine: its queue is the ring of a stream. */
#define HOSTIO_KEY "hostio"
#define HOSTIO_CAPACITY 64

static int device_check(const struct pinion_device *dev)
{
	return process_is_maker(&dev->mark) ? 0 : process_fail("device");
}

/* The context's handle for a place in the table, made when there is none of that generation yet. */
static int handle(struct pinion_context *ctx, const struct counts_device *at, struct pinion_device **out)
{
	struct pinion_device *dev;
	int ret = 0;

	pthread_mutex_lock(&ctx->lock);
	for (dev = ctx->devices; dev; dev = dev->next)
		if (dev->at.index == at->index && dev->at.generation == at->generation)
			break;
	if (!dev) {
		ret = account_new(ctx, at, &dev);
		if (!ret) {
			dev->next = ctx->devices;
			ctx->devices = dev;
		}
	}
	pthread_mutex_unlock(&ctx->lock);
	if (!ret)
		*out = dev;
	return ret;
}

PINION_API int pinion_device_add(struct pinion_context *ctx, const char *key, const struct pinion_device_opts *opts,
				 struct pinion_device **out)
{
	struct pinion_device_opts own = { .size = sizeof(own) };
	struct counts_device at;
	int ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&own, sizeof(own), opts, "pinion_device_opts");
	if (!ret && !key)
		ret = fail(EINVAL, "a device needs a key");
	if (!ret)
		ret = counts_device_add(ctx->counts, key, &own, true, &at);
	return ret ? ret : handle(ctx, &at, out);
}

PINION_API int pinion_device_find(struct pinion_context *ctx, const char *key, struct pinion_device **out)
{
	struct pinion_device_opts hostio = { .size = sizeof(hostio), .capacity = HOSTIO_CAPACITY };
	struct counts_device at;
	int ret = context_check(ctx);

	if (ret)
		return ret;
	if (!key)
		return fail(EINVAL, "a device is found by its key");
	if (!strcmp(key, HOSTIO_KEY))
		return pinion_device_add(ctx, key, &hostio, out);
	ret = counts_device_find(ctx->counts, key, &at);
	return ret ? ret : handle(ctx, &at, out);
}

PINION_API int pinion_device_at(struct pinion_context *ctx, size_t i, struct pinion_device **out)
{
	struct counts_device at;
	int ret = context_check(ctx);

	if (!ret)
		ret = counts_device_at(ctx->counts, i < COUNTER_DEVICES ? i : COUNTER_DEVICES, &at);
	return ret ? ret : handle(ctx, &at, out);
}

PINION_API int pinion_device_remove(struct pinion_device *dev)
{
	int ret = device_check(dev);

	return ret ? ret : counts_device_remove(dev->ctx->counts, &dev->at);
}

PINION_API const char *pinion_device_key(const struct pinion_device *dev)
{
	return device_check(dev) ? "" : dev->at.entry->key;
}

/* A handle begins with its place in the table, so an array of handles serves as one of places. */
_Static_assert(offsetof(struct pinion_device, at) == 0, "the place is first");

PINION_API int pinion_devices_pending(struct pinion_device *const *dev, size_t n, enum pinion_scope scope, uint32_t *pending)
{
	int ret;

	if (!n)
		return 0;
	ret = device_check(dev[0]);
	if (!ret && scope == PINION_SCOPE_ALL)
		return counts_pending(dev[0]->counts, (const struct counts_device *const *)dev, n, pending);
	for (size_t i = 0; !ret && i < n; i++)
		ret = counts_pending_mine(dev[i]->counts, &dev[i]->at, &pending[i]);
	return ret;
}

PINION_API int pinion_device_pending(struct pinion_device *dev, enum pinion_scope scope, uint32_t *n)
{
	return pinion_devices_pending(&dev, 1, scope, n);
}

PINION_API int pinion_device_info(struct pinion_device *dev, struct pinion_device_info *info)
{
	struct pinion_device_info own = { .size = sizeof(own) };
	int ret = device_check(dev);

	if (!ret)
		ret = counts_info(dev->ctx->counts, &dev->at, &own);
	return ret ? ret : opts_out(info, &own, sizeof(own), "pinion_device_info");
}

PINION_API int pinion_device_users(struct pinion_device *dev, struct pinion_device_user *rows, size_t cap, size_t *n)
{
	int ret = device_check(dev);

	return ret ? ret : counts_users(dev->ctx->counts, &dev->at, rows, cap, n);
}

PINION_API int pinion_device_flush(struct pinion_device *dev, enum pinion_scope scope, int64_t deadline_ns, uint64_t *lost)
{
	int ret = device_check(dev);

	return ret ? ret : counts_flush(dev->ctx->counts, &dev->at, scope == PINION_SCOPE_MINE, deadline_ns, lost);
}
