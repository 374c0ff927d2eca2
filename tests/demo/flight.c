/* SPDX-License-Identifier: MIT */
#include "flight.h"

#include <inttypes.h>
#include <pinion/context.h>
#include <stdio.h>

#define KIB 1024.0

static int read_one(struct pinion_device *dev, struct flight_on *on)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	int ret = pinion_device_users(dev, on->user, FLIGHT_ROWS, &on->users);

	if (!ret)
		ret = pinion_device_info(dev, &info);
	if (on->users > FLIGHT_ROWS)
		on->users = FLIGHT_ROWS;
	on->claims = info.claims;
	on->reserved_units = info.reserved_units;
	on->reserved = info.reserved;
	return ret;
}

int flight_read(const struct route *route, struct flight *out)
{
	int64_t start = pinion_deadline_in(0);
	uint32_t pending[ROUTE_DEVICES];
	int ret = 0;

	*out = (struct flight){ 0 };
	for (unsigned int i = 0; !ret && i < ROUTE_DEVICES; i++)
		ret = read_one(route->dev[i], &out->on[i]);
	if (!ret)
		ret = pinion_devices_pending(route->dev, ROUTE_DEVICES, PINION_SCOPE_ALL, pending);
	for (unsigned int i = 0; !ret && i < ROUTE_DEVICES; i++) {
		out->on[i].total = pending[i];
		out->total += pending[i];
	}
	out->took_ns = pinion_deadline_in(0) - start;
	return ret;
}

const struct pinion_device_user *flight_of(const struct flight_on *on, pid_t pid)
{
	for (size_t i = 0; pid && i < on->users; i++)
		if (on->user[i].pid == pid)
			return &on->user[i];
	return NULL;
}

/* Devices follow the members, since what is claimed there is theirs. */
void flight_table(const struct flight *f, const struct member *m, size_t members, bool again)
{
	const char *clear = again ? "\033[K" : "";

	if (again)
		printf("\033[%zuA", members + ROUTE_DEVICES + 2);
	printf("  %-10s %-12s %8s %11s %11s %7s %6s %12s%s\n", "", "DEVICE", "PID", "IN FLIGHT", "SUBMITTED", "CLAIMS", "UNITS",
	       "KIB CLAIMED", clear);
	for (size_t i = 0; i < members; i++) {
		const struct claim *c = &m[i].claim;
		const struct pinion_device_user *user = flight_of(&f->on[c->device], m[i].pid);

		if (user)
			printf("  %-10s %-12s %8d %11" PRIu64 " %11" PRIu64 " %7s %6" PRIu32 " %12.1f%s\n", m[i].name,
			       route_key(c->device), m[i].pid, user->pending, user->submitted, "", c->units, c->bytes / KIB,
			       clear);
		else
			printf("  %-10s %-12s %8s %11s %11s %7s %6s %12s%s\n", m[i].name, "-", "-", "-", "-", "", "-", "-",
			       clear);
	}
	for (unsigned int i = 0; i < ROUTE_DEVICES; i++)
		printf("  %-10s %-12s %8s %11" PRIu32 " %11s %7" PRIu32 " %6" PRIu32 " %12.1f%s\n", "", route_key(i), "",
		       f->on[i].total, "", f->on[i].claims, f->on[i].reserved_units, f->on[i].reserved / KIB, clear);
	printf("  %-10s %-12s %8s %11" PRIu32 "%s\n", "total", "", "", f->total, clear);
	fflush(stdout);
}

void flight_line(const struct flight *f, const struct member *m, size_t members)
{
	for (unsigned int d = 0; d < ROUTE_DEVICES; d++) {
		printf("  %s %2" PRIu32 ":", route_key(d), f->on[d].total);
		for (size_t i = 0; i < members; i++) {
			const struct pinion_device_user *user = flight_of(&f->on[d], m[i].pid);

			if (user || m[i].claim.device == d)
				printf(" %s %2" PRIu64, m[i].name, user ? user->pending : 0);
		}
		printf(";");
	}
	printf("  total %2" PRIu32 "\n", f->total);
	fflush(stdout);
}
