/* SPDX-License-Identifier: MIT */
/* context: what an open context is made of. */
#ifndef PINION_LIB_CONTEXT_H
#define PINION_LIB_CONTEXT_H

#include <pinion/context.h>
#include <pthread.h>

#include "dispatch/turns.h"
#include "error.h"
#include "process.h"
#include "provider/provider.h"
#include "rundir.h"

struct pinion_context {
	const struct provider_ops *provider;
	struct kmod_device *device;   /* NULL on the memfd ground */
	char ground_why[SENTENCE_MAX]; /* why not the module; "" on it */
	struct process_mark mark;
	struct rundir dir;
	struct counts *counts;
	pthread_mutex_t lock;	       /* devices */
	struct pinion_device *devices; /* every handle given out; freed at close */
	struct turns pick_turns;       /* of the devices that tie in a pick */
};

static inline int context_check(const struct pinion_context *ctx)
{
	return process_is_maker(&ctx->mark) ? 0 : process_fail("context");
}

#endif
