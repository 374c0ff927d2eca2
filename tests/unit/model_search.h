/* SPDX-License-Identifier: MIT */
/* search: every schedule of one world, each moment once. */
#ifndef PINION_MODEL_SEARCH_H
#define PINION_MODEL_SEARCH_H

#include "model_state.h"

struct search_result {
	enum property broken;
	__u64 moments; /* different ones */
	__u64 moves;
	double schedules; /* from the first moment to a last one; a flusher that looks again in vain is one step */
	unsigned int longest;
	unsigned int reached;
};

/* The first moment of a world. */
void search_setup(const struct config *cfg, struct state *s);

/* Stops at the first broken property; path_print() then shows the schedule that led there. */
struct search_result search(const struct config *cfg);

#endif
