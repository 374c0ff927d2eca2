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

#endif
