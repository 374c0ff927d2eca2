/* SPDX-License-Identifier: MIT */
#include "route.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <string.h>

static const char *const keys[ROUTE_DEVICES] = { "demo-cpu:0", "demo-cpu:1" };

int route_open(struct pinion_context *ctx, struct route *out)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = ROUTE_CAPACITY, .budget = ROUTE_BUDGET };
	int ret = 0;

	out->ctx = ctx;
	for (unsigned int i = 0; !ret && i < ROUTE_DEVICES; i++)
		ret = pinion_device_add(ctx, keys[i], &opts, &out->dev[i]);
	return ret;
}

const char *route_key(unsigned int device)
{
	return keys[device];
}

int route_pick(const struct route *route, uint64_t bytes, struct claim *out)
{
	struct pinion_want want = { .size = sizeof(want),
				    .bytes = bytes,
				    .units = ROUTE_UNITS,
				    .policy = PINION_POLICY_CHAINED,
				    .keys = keys,
				    .key_count = ROUTE_DEVICES };
	struct pinion_reservation_info info = { .size = sizeof(info) };
	int ret = pinion_pick(route->ctx, &want, &out->held);

	if (!ret)
		ret = pinion_reservation_info(out->held, &info);
	if (ret)
		return ret;
	out->device = 0;
	while (out->device < ROUTE_DEVICES - 1 && strcmp(info.key, keys[out->device]))
		out->device++;
	out->bytes = info.bytes;
	out->units = info.units;
	return 0;
}

int route_fd(const struct claim *claim)
{
	return pinion_reservation_fd(claim->held);
}

void route_let_go(struct claim *claim)
{
	pinion_reservation_free(claim->held);
	claim->held = NULL;
}
