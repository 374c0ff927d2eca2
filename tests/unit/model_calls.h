/* SPDX-License-Identifier: MIT */
/* calls: the protocol's functions as the threads call them, right or wrong on purpose. */
#ifndef PINION_MODEL_CALLS_H
#define PINION_MODEL_CALLS_H

#include "model_state.h"

/* What a call comes to. */
struct outcome {
	__u32 word;
	__u32 lanes;
	int empty;
	int again;
	int asked; /* told to ask the module */
	int marked;
	struct pinion_sum sum;
	__u8 own[LANE_WORDS];
};

/*
 * Runs the call in which thread @t stands from its beginning. Returns the access that comes next, or none and @o;
 * @stale says that something it has loaded is different by now.
 */
struct op call_run(const struct state *s, unsigned int t, struct outcome *o, int *stale);

/* What pends in @parities of the first @lanes lanes, read as the protocol does or wrong on purpose. */
__s64 call_high(__u32 lanes, __u32 parities);
struct pinion_control *const *call_controls(void);

/* What a reading with these loads comes to. */
struct pinion_sum call_read_with(const struct state *s, const __u8 *log, unsigned int done);

#endif
