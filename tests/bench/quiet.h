/* SPDX-License-Identifier: MIT */
/* quiet: a thread that others disturb less, two threads side by side, and a thread that may make no system call. */
#ifndef PINION_BENCH_QUIET_H
#define PINION_BENCH_QUIET_H

#include <stdbool.h>
#include <stdint.h>

/* Real-time priority where it is permitted; for loops of milliseconds. */
bool quiet_begin(void);
void quiet_end(void);

/* Does @arg's thing @n times. */
typedef void (*loop_fn)(void *arg, uint64_t n);

/* @loop on one thread: nanoseconds for each of @n. */
double loop_alone(loop_fn loop, void *arg, uint64_t n);

/* Whether there are two processors for two threads. */
bool loop_can_pair(void);

/* @loop on two threads at once, each on its own processor, each @n times: nanoseconds for each of @n, the two's mean.
 */
int loop_paired(loop_fn loop, void *arg, uint64_t n, double *ns);

/*
 * Runs @loop on a thread to which every system call but read, write and exit is death. *@silent: it lived. Call it in a
 * child process: the thread ends without the library hearing of it.
 */
int loop_silent(loop_fn loop, void *arg, uint64_t n, bool *silent);

#endif
