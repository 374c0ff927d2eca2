/* SPDX-License-Identifier: MIT */
/* ground: on which one a test stands; what differs then is what the grounds promise differently. */
#ifndef PINION_TEST_GROUND_H
#define PINION_TEST_GROUND_H

#include <pinion/context.h>
#include <stdbool.h>

#include "harness.h"

/* Whether buffers come from the kernel module. */
static inline bool on_module(const struct pinion_context *ctx)
{
	struct pinion_context_info info = { .size = sizeof(info) };

	ck_ok(pinion_context_info(ctx, &info));
	return !strcmp(info.ground, "kmod");
}

/* Whether it counts what is in flight, asked before a test has a context. */
static inline bool counts_on_module(void)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_context *probe;
	bool module;

	if (pinion_open(NULL, &probe))
		return false;
	module = !pinion_context_info(probe, &info) && !strcmp(info.counts, "kmod");
	pinion_close(probe);
	return module;
}

#endif
