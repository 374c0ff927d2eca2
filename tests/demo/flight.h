/* SPDX-License-Identifier: MIT */
/* flight: what is in flight and what is claimed on the demo's devices and whose it is, as this process reads it. */
#ifndef PINION_DEMO_FLIGHT_H
#define PINION_DEMO_FLIGHT_H

#include <pinion/device.h>
#include <stdbool.h>

#include "member.h"
#include "route.h"

#define FLIGHT_ROWS 32

/* One device. */
struct flight_on {
	struct pinion_device_user user[FLIGHT_ROWS];
	size_t users;
	uint32_t total; /* read by itself and not added up here */
	uint32_t claims;
	uint32_t reserved_units;
	uint64_t reserved;
};

struct flight {
	struct flight_on on[ROUTE_DEVICES];
	uint32_t total; /* of the devices */
	int64_t took_ns;
};

/* 0 or -errno, with pinion_error(). */
int flight_read(const struct route *route, struct flight *out);

/* The row of @pid on a device, NULL: it has none there. */
const struct pinion_device_user *flight_of(const struct flight_on *on, pid_t pid);

/* A table of several lines, painted over the one before where @again; or one line. */
void flight_table(const struct flight *f, const struct member *m, size_t members, bool again);
void flight_line(const struct flight *f, const struct member *m, size_t members);

#endif
