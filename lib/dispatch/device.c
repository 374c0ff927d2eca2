/* SPDX-License-Identifier: MIT */
#include <pinion/device.h>

#include "../provider/counts_ops.h"
#include "device.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct backend_device *backend_of(const char *key)
{
	const struct backend_device *backend = registry_find(key);

	return backend ? backend : &registry_nobody;
}

/* The context's handle for the device of that key at a place in the table, made when there is none of that generation yet. */
static int handle(struct pinion_context *ctx, const struct counts_device *at, const char *key, struct pinion_device **out)
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
			snprintf(dev->key, sizeof(dev->key), "%s", key);
			dev->backend = backend_of(dev->key);
			dev->budget = dev->backend == &registry_nobody ? at->budget : 0;
			/* As fit_is_tight() has it; claims on the module are not in a table that is read here. */
			dev->comfort = at->entry ? dev->budget / 4 * 3 : 0;
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
	const struct backend_device *backend;
	struct counts_device at;
	int ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&own, sizeof(own), opts, "pinion_device_opts");
	if (!ret && !key)
		ret = fail(EINVAL, "a device needs a key");
	if (!ret)
		ret = registry_reserved(key);
	if (ret)
		return ret;
	/* What a backend says of its own device is not the caller's to choose. */
	backend = registry_find(key);
	if (backend)
		own.capacity = backend->desc.caps.slot_capacity;
	ret = ctx->counts->ops->device_add(ctx->counts, key, &own, !backend || own.capacity, &at);
	return ret ? ret : handle(ctx, &at, key, out);
}

PINION_API int pinion_device_find(struct pinion_context *ctx, const char *key, struct pinion_device **out)
{
	struct counts_device at;
	int why, ret = context_check(ctx);

	if (ret)
		return ret;
	if (!key)
		return fail(EINVAL, "a device is found by its key");
	if (registry_find(key))
		return pinion_device_add(ctx, key, NULL, out);
	ret = ctx->counts->ops->device_find(ctx->counts, key, &at);
	if (!ret)
		return handle(ctx, &at, key, out);
	why = registry_why_not(key);
	return why ? why : ret;
}

PINION_API int pinion_device_at(struct pinion_context *ctx, size_t i, struct pinion_device **out)
{
	struct counts_device at;
	char key[PINION_KEY_MAX + 1];
	int ret = context_check(ctx);

	if (!ret)
		ret = ctx->counts->ops->device_at(ctx->counts, i < UINT32_MAX ? i : UINT32_MAX, &at, key);
	return ret ? ret : handle(ctx, &at, key, out);
}

int device_next(struct pinion_context *ctx, uint32_t *place, struct pinion_device **out)
{
	struct counts_device at;
	char key[PINION_KEY_MAX + 1];
	int ret = ctx->counts->ops->device_next(ctx->counts, place, &at, key);

	return ret ? ret : handle(ctx, &at, key, out);
}

PINION_API int pinion_device_remove(struct pinion_device *dev)
{
	int ret = device_check(dev);

	return ret ? ret : dev->counts->ops->device_remove(dev->counts, &dev->at);
}

PINION_API const char *pinion_device_key(const struct pinion_device *dev)
{
	return device_check(dev) ? "" : dev->key;
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
		ret = dev[i]->counts->ops->pending_mine(dev[i]->counts, &dev[i]->at, &pending[i]);
	return ret;
}

PINION_API int pinion_device_pending(struct pinion_device *dev, enum pinion_scope scope, uint32_t *n)
{
	int ret;

	if (scope == PINION_SCOPE_ALL)
		return device_pending_all(dev, n);
	ret = device_check(dev);
	return ret ? ret : dev->counts->ops->pending_mine(dev->counts, &dev->at, n);
}

static void add_claims(struct pinion_device *dev, struct pinion_device_info *info)
{
	struct claims_sum sum;

	dev->counts->ops->claims(dev->counts, &dev->at, &sum);
	info->claims = sum.count;
	info->reserved = sum.bytes;
	info->reserved_units = sum.units;
}

PINION_API int pinion_device_info(struct pinion_device *dev, struct pinion_device_info *info)
{
	struct pinion_device_info own = { .size = sizeof(own) };
	int ret = device_check(dev);

	if (!ret)
		ret = dev->counts->ops->info(dev->counts, &dev->at, &own);
	if (!ret) {
		memcpy(own.key, dev->key, sizeof(own.key));
		add_claims(dev, &own);
	}
	return ret ? ret : opts_out(info, &own, sizeof(own), "pinion_device_info");
}

PINION_API int pinion_device_users(struct pinion_device *dev, struct pinion_device_user *rows, size_t cap, size_t *n)
{
	int ret = device_check(dev);

	return ret ? ret : dev->counts->ops->users(dev->counts, &dev->at, rows, cap, n);
}

PINION_API int pinion_device_flush(struct pinion_device *dev, enum pinion_scope scope, int64_t deadline_ns, uint64_t *lost)
{
	int ret = device_check(dev);

	return ret ? ret : dev->counts->ops->flush(dev->counts, &dev->at, scope == PINION_SCOPE_MINE, deadline_ns, lost);
}
