/* SPDX-License-Identifier: MIT */
/* flight: what is in flight on the demo's device and whose it is, as this process reads it. */
#ifndef PINION_DEMO_FLIGHT_H
#define PINION_DEMO_FLIGHT_H

#include <pinion/device.h>
#include <stdbool.h>

#include "member.h"

#define FLIGHT_ROWS 32

struct flight {
	struct pinion_device_user user[FLIGHT_ROWS];
	size_t users;
	uint32_t total; /* of the device, read by itself and not added up here */
	int64_t took_ns;
};

/* 0 or -errno, with pinion_error(). */
int flight_read(struct pinion_device *dev, struct flight *out);

/* The row of @pid, NULL: it has none. */
const struct pinion_device_user *flight_of(const struct flight *f, pid_t pid);

/* A table of several lines, painted over the one before where @again; or one line. */
void flight_table(const struct flight *f, const struct member *m, size_t members, bool again);
void flight_line(const struct flight *f, const struct member *m, size_t members);

#endif
