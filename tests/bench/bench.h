/* SPDX-License-Identifier: MIT */
/*
 * bench: several ways to do one thing, measured in turns. A round is A B B A (with more ways A B C C B A), so that what
 * drifts while it runs falls on all of them alike; a round gives one ratio for each two ways. The A/A spread is that of
 * one way that is in the round twice: no margin narrower than it means anything.
 */
#ifndef PINION_BENCH_BENCH_H
#define PINION_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define ROUNDS	     15 /* the least that a claim rests on */
#define ROUNDS_SHORT 51 /* where one takes milliseconds */
#define ROUNDS_MAX   128
#define WAYS_MAX     8

enum measure { TIME, CPU, WHOLE, MEASURES };

/* Nanoseconds, per whatever the way says. */
struct sample {
	double of[MEASURES];
};

/* 0, or -errno with a sentence left by broke(). */
typedef int (*way_fn)(void *arg, struct sample *out);

struct trial {
	unsigned int rounds; /* at most ROUNDS_MAX */
	unsigned int ways;
	struct {
		way_fn run;
		void *arg;
	} way[WAYS_MAX];
	struct sample mean[ROUNDS_MAX][WAYS_MAX]; /* of the two in a round */
};

struct spread {
	double p10, median, p90;
};

void trial_start(struct trial *t, unsigned int rounds);

/* Adds a way; returns its number. */
unsigned int trial_add(struct trial *t, way_fn run, void *arg);

/* One round that counts for nothing; *@ns is how long it took. */
int trial_warm(struct trial *t, double *ns);
int trial_run(struct trial *t);

/* The median of @n runs of @way one after another, behind one that counts for nothing: for what takes microseconds. */
int repeat(way_fn way, void *arg, unsigned int n, struct sample *out);

struct spread trial_figure(const struct trial *t, unsigned int way, enum measure m);

/* Way @a's measure over way @b's, round by round. */
struct spread trial_ratio(const struct trial *t, unsigned int a, unsigned int b, enum measure m);
struct spread trial_mixed(const struct trial *t, unsigned int a, enum measure ma, unsigned int b, enum measure mb);

/* What could not be run and why; returns -@err. */
int broke(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same for a pinion call that returned @err, with pinion's own sentence. */
int broke_pinion(int err, const char *what);
const char *broke_why(void);

static inline double clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static inline double now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* CPU time of this thread, and of all threads of the process, those that the kernel runs for io_uring included. */
static inline double thread_cpu_ns(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static inline double process_cpu_ns(void)
{
	return clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
