/* SPDX-License-Identifier: MIT */
/* threads: which call each of them makes after which, and how they die. */
#ifndef PINION_MODEL_THREADS_H
#define PINION_MODEL_THREADS_H

#include "model_state.h"

/* Stands before the first access of the call. */
void thread_enter(struct thread *th, enum call call);

void threads_start(struct state *s);

/* Runs thread @t on to its next access that others can tell the time of. */
void thread_advance(struct state *s, unsigned int t);

/* The visible access at which thread @t stands can be made. */
int thread_ready(const struct state *s, unsigned int t);
void thread_step(struct state *s, unsigned int t);
void thread_drain(struct state *s, unsigned int t, unsigned int i);

/* What a writer that stands in no call may do. */
int thread_may_begin(const struct state *s, unsigned int t, unsigned int *unit);
int thread_may_end(const struct state *s, unsigned int t, unsigned int unit);
void thread_begin(struct state *s, unsigned int t, unsigned int unit);
void thread_end(struct state *s, unsigned int t, unsigned int unit);

int thread_may_flush(const struct state *s);
void thread_flush(struct state *s);

int thread_may_die(const struct state *s, unsigned int t);
void thread_die(struct state *s, unsigned int t);

int thread_may_kill(const struct state *s);
void thread_kill(struct state *s);

/* A word changed that the flusher may be waiting for. */
void threads_stored(struct state *s, unsigned int word);

/* Where nothing moves any more: everyone came to the end of what they wanted. */
void threads_over(const struct state *s);

#endif
