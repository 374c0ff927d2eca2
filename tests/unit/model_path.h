/* SPDX-License-Identifier: MIT */
/* path: the moves from the first moment to the one that is looked at, and how they read. */
#ifndef PINION_MODEL_PATH_H
#define PINION_MODEL_PATH_H

#include "model_state.h"

enum move_kind { MOVE_STEP, MOVE_DRAIN, MOVE_BEGIN, MOVE_END, MOVE_FLUSH, MOVE_LOCK, MOVE_DIE, MOVE_KILL };

struct move {
	__u8 kind;
	__u8 thread;
	__u8 unit;
};

void path_clear(void);
void path_push(const struct state *s, const struct move *move);
void path_pop(void);
unsigned int path_length(void);
void path_print(void);

const char *property_name(enum property p);

#endif
