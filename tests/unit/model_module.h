/* SPDX-License-Identifier: MIT */
/*
 * module: what the module does under a queue's lock (kmod/wait.c, kmod/count.c): turns, lanes that are bound and given back,
 * a session that has ended, and a reading over sessions.
 *
 * The lock is not a word: who needs it goes on when nobody is in the midst of what is done under it, and what the last one
 * stored under it has reached memory.
 */
#ifndef PINION_MODEL_MODULE_H
#define PINION_MODEL_MODULE_H

#include "model_calls.h"
#include "model_state.h"

void module_start(struct state *s);

/* The call of a thread in it; and what comes after, 0 where that is not the module's to say. */
void module_call(const struct state *s, const struct thread *th, struct outcome *o);
int module_go_on(struct state *s, unsigned int t, const struct outcome *o, int stale);

/* The access that comes next needs the lock, and somebody has it. */
int module_blocks(const struct state *s, unsigned int t);

/* A flush begins: a number for all, work for those who it is for. */
int module_may_flush(const struct state *s);
void module_flush(struct state *s);

/* Bit n: flush n + 1 waits for the unit. */
unsigned int module_waits(const struct state *s, unsigned int unit);

/* A lane is bound or given back by its living writer, or one of a killed owner's is about to be. */
int module_may_lock(const struct state *s, unsigned int t);
void module_lock(struct state *s, unsigned int t);

/* The owner was killed and its page is mapped no more. */
void module_killed(struct state *s);

/* Units in @parities of lanes that were given back; their cost. */
__s64 module_own(const struct state *s, __u32 parities);
__s64 module_own_cost(const struct state *s);

#endif
