/* SPDX-License-Identifier: MIT */
/* deadline: an absolute CLOCK_MONOTONIC deadline in ns as the C library wants it. One before the clock began is past. */
#ifndef PINION_LIB_DEADLINE_H
#define PINION_LIB_DEADLINE_H

#include <stdint.h>
#include <time.h>

static inline struct timespec deadline_timespec(int64_t ns)
{
	struct timespec ts = { 0 };

	if (ns > 0) {
		ts.tv_sec = ns / 1000000000;
		ts.tv_nsec = ns % 1000000000;
	}
	return ts;
}

static inline int64_t deadline_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

#endif
