/* SPDX-License-Identifier: MIT */
/*
 * route: the demo's devices, and the router that picks one of them for a worker and claims what the worker needs there.
 */
#ifndef PINION_DEMO_ROUTE_H
#define PINION_DEMO_ROUTE_H

#include <pinion/device.h>
#include <stdint.h>

#define ROUTE_DEVICES  2
#define ROUTE_CAPACITY 4
#define ROUTE_BUDGET   (UINT64_C(1) << 30)
#define ROUTE_UNITS    2 /* that a worker claims: half of a device, so that two workers are its fill */

struct pinion_context;
struct pinion_reservation;

struct route {
	struct pinion_context *ctx;
	struct pinion_device *dev[ROUTE_DEVICES];
};

/* Where one worker was sent and what was claimed for it there. */
struct claim {
	struct pinion_reservation *held; /* NULL: handed over */
	unsigned int device;
	uint64_t bytes;
	uint32_t units;
};

/* Adds the devices. 0 or -errno, with pinion_error(). */
int route_open(struct pinion_context *ctx, struct route *out);

const char *route_key(unsigned int device);

/* Picks a device with @bytes to spare and claims them. 0 or -errno, with pinion_error(). */
int route_pick(const struct route *route, uint64_t bytes, struct claim *out);

/* The descriptor to hand over, and the end of this process's hold on it. */
int route_fd(const struct claim *claim);
void route_let_go(struct claim *claim);

#endif
