/* SPDX-License-Identifier: MIT */
/*
 * What a guest program says: "ok N - name", "not ok N - name # why", "ok N - name # SKIP why". main() returns tap_end().
 * A program without a point, or that dies, has failed.
 */
#ifndef PINION_VM_TAP_H
#define PINION_VM_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

static int tap_points, tap_failed;

/* One point; the format says why when it does not hold. Returns ok, so that what builds on it can be left out. */
static __attribute__((format(printf, 3, 4), unused)) bool tap_ok(bool ok, const char *name, const char *why, ...)
{
	va_list args;

	printf("%sok %d - %s", ok ? "" : "not ", ++tap_points, name);
	if (!ok) {
		tap_failed++;
		printf(" # ");
		va_start(args, why);
		vprintf(why, args);
		va_end(args);
	}
	printf("\n");
	fflush(stdout);
	return ok;
}

/* The name must be in tests/skips, words joined by underscores. */
static __attribute__((format(printf, 2, 3), unused)) void tap_skip(const char *name, const char *why, ...)
{
	va_list args;

	printf("ok %d - %s # SKIP ", ++tap_points, name);
	va_start(args, why);
	vprintf(why, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

static __attribute__((unused)) int tap_end(void)
{
	return tap_failed || !tap_points;
}

#endif
