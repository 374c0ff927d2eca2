/* SPDX-License-Identifier: MIT */
/* truth: the ghosts. What really pends, what a flush must wait for, and what a reading may say. */
#ifndef PINION_MODEL_TRUTH_H
#define PINION_MODEL_TRUTH_H

#include "model_state.h"

void truth_setup(void);
void truth_start(struct state *s);

/* What a store will mean when it reaches memory. */
__u8 truth_tag(const struct state *s, unsigned int t, const struct op *op);
void truth_stored(struct state *s, const struct op *op);
void truth_loaded(struct state *s, unsigned int t, const struct op *op);

/* What holds at every moment. */
void truth_check(const struct state *s);

/* Whose units these are: the incarnation that is alive, 0 when none is. */
unsigned int truth_alive(const struct state *s);
void truth_killed(struct state *s);

void truth_flush_begin(struct state *s);
void truth_flush_agreed(struct state *s);
void truth_flush_end(struct state *s);
void truth_flush_over(struct state *s);
/* Flushes above @from, to @to, are said to be over. */
void truth_covered(struct state *s, unsigned int from, unsigned int to);
/* The unit is one of those that never end as long as the flush is where it is. */
int truth_held(const struct state *s, unsigned int unit);

/* Called after every move; takes the truth where the reading is between two passes. */
void truth_watch(struct state *s);
void truth_read(struct state *s, struct pinion_sum sum);
void truth_read_begin(struct state *s);

#endif
