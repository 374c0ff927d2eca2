/* SPDX-License-Identifier: MIT */
#include "flight.h"

#include <inttypes.h>
#include <pinion/context.h>
#include <stdio.h>

int flight_read(struct pinion_device *dev, struct flight *out)
{
	int64_t start = pinion_deadline_in(0);
	int ret = pinion_device_users(dev, out->user, FLIGHT_ROWS, &out->users);

	if (!ret)
		ret = pinion_device_pending(dev, PINION_SCOPE_ALL, &out->total);
	out->took_ns = pinion_deadline_in(0) - start;
	if (out->users > FLIGHT_ROWS)
		out->users = FLIGHT_ROWS;
	return ret;
}

const struct pinion_device_user *flight_of(const struct flight *f, pid_t pid)
{
	for (size_t i = 0; pid && i < f->users; i++)
		if (f->user[i].pid == pid)
			return &f->user[i];
	return NULL;
}

void flight_table(const struct flight *f, const struct member *m, size_t members, bool again)
{
	const char *clear = again ? "\033[K" : "";

	if (again)
		printf("\033[%zuA", members + 2);
	printf("  %-10s %10s %11s %11s%s\n", "", "PID", "IN FLIGHT", "SUBMITTED", clear);
	for (size_t i = 0; i < members; i++) {
		const struct pinion_device_user *user = flight_of(f, m[i].pid);

		if (user)
			printf("  %-10s %10d %11" PRIu64 " %11" PRIu64 "%s\n", m[i].name, m[i].pid, user->pending,
			       user->submitted, clear);
		else
			printf("  %-10s %10s %11s %11s%s\n", m[i].name, "-", "-", "-", clear);
	}
	printf("  %-10s %10s %11" PRIu32 "%s\n", "total", "", f->total, clear);
	fflush(stdout);
}

void flight_line(const struct flight *f, const struct member *m, size_t members)
{
	for (size_t i = 0; i < members; i++) {
		const struct pinion_device_user *user = flight_of(f, m[i].pid);

		printf("  %s (pid %d) %2" PRIu64, m[i].name, m[i].pid, user ? user->pending : 0);
	}
	printf("  total %2" PRIu32 "\n", f->total);
	fflush(stdout);
}
