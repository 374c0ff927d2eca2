/* SPDX-License-Identifier: MIT */
/* counts: begin and end of a unit, on one thread and on two; the proof that neither they nor totals call the kernel. */
#include "quiet.h"
#include "rows.h"

#include <errno.h>
#include <pinion/context.h>
#include <pinion/device.h>
#include <pinion/work.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIRS	     200000
#define PAIRS_SILENT 1000000

static _Alignas(128) uint64_t line[16]; /* the baseline's, with nothing else beside it */

/* ---- loops --------------------------------------------------------------------------------------------------- */

static void loop_units(void *arg, uint64_t n)
{
	struct pinion_ticket ticket = { 0 };

	while (n--) {
		pinion_work_begin(arg, 1, &ticket);
		pinion_work_end(&ticket);
	}
}

static void loop_totals(void *arg, uint64_t n)
{
	uint32_t pending;

	while (n--)
		pinion_device_pending(arg, PINION_SCOPE_ALL, &pending);
}

static void loop_getppid(void *arg, uint64_t n)
{
	(void)arg;
	while (n--)
		syscall(SYS_getppid);
}

/* As a pair of counts would be without lanes. */
static void loop_adds(void *arg, uint64_t n)
{
	uint64_t *word = arg;

	while (n--) {
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	}
}

/* ---- ways ---------------------------------------------------------------------------------------------------- */

struct loop {
	loop_fn run;
	void *arg;
};

static int way_alone(void *arg, struct sample *out)
{
	const struct loop *l = arg;

	out->of[TIME] = loop_alone(l->run, l->arg, PAIRS);
	return 0;
}

static int way_paired(void *arg, struct sample *out)
{
	const struct loop *l = arg;

	return loop_paired(l->run, l->arg, PAIRS, &out->of[TIME]);
}

/* ---- the proof ----------------------------------------------------------------------------------------------- */

enum answer { ANSWER_SILENT = 10, ANSWER_LOUD, ANSWER_BLIND };

/* In a child: whether @run on a device of its own makes no system call, and whether one would have been seen. */
static int ask_silent(loop_fn run)
{
	struct pinion_context *ctx;
	struct pinion_device *dev;
	bool silent, control;

	if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, "bench-silent", NULL, &dev))
		return 1;
	if (loop_silent(loop_getppid, NULL, 1, &control) || loop_silent(run, dev, PAIRS_SILENT, &silent))
		return 1;
	return control ? ANSWER_BLIND : silent ? ANSWER_SILENT : ANSWER_LOUD;
}

static void row_silent(struct rows *r, const char *name, loop_fn run)
{
	struct row row = { .name = name,
			   .against = "strict seccomp kills a getppid",
			   .unit = "calls",
			   .bar = BAR_PROOF,
			   .note = "one million under strict seccomp, in which any system call ends the thread" };
	int status = 0;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child == 0)
		_exit(ask_silent(run));
	if (child < 0 || waitpid(child, &status, 0) != child) {
		broke(errno, "a child for strict seccomp: %s", strerror(errno));
		table_broken(r->table, name);
	} else if (WIFEXITED(status) && WEXITSTATUS(status) == ANSWER_BLIND) {
		table_absent(r->table, name, "strict seccomp lets a getppid pass here");
	} else if (WIFEXITED(status) && (WEXITSTATUS(status) == ANSWER_SILENT || WEXITSTATUS(status) == ANSWER_LOUD)) {
		row.figure = WEXITSTATUS(status) == ANSWER_LOUD;
		table_row(r->table, &row);
	} else {
		broke(EPROTO, "the child under strict seccomp ended with status 0x%x", status);
		table_broken(r->table, name);
	}
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

/* The way @run against the line under @adds_run. The bar is the figure's, so it is @run that is in the round twice. */
static void row_units(struct rows *r, const char *name, const char *against, struct pinion_device *dev, way_fn run,
		      way_fn adds_run)
{
	struct loop units = { loop_units, dev }, adds = { loop_adds, line };
	unsigned int unit, base, again;
	struct row row = { .name = name, .against = against, .unit = "ns", .bar = BAR_FIGURE_MAX, .limit = 10 };
	struct trial t;
	double ns;

	trial_start(&t, ROUNDS_SHORT);
	unit = trial_add(&t, run, &units);
	base = trial_add(&t, adds_run, &adds);
	again = trial_add(&t, run, &units);
	if (trial_warm(&t, &ns) || trial_run(&t)) {
		table_broken(r->table, name);
		return;
	}
	row.figure = trial_figure(&t, unit, TIME).median;
	row.ratio = trial_ratio(&t, unit, base, TIME);
	row.same = trial_ratio(&t, again, unit, TIME);
	table_row(r->table, &row);
}

void rows_counts(struct rows *r)
{
	struct pinion_context *ctx;
	struct pinion_device *dev;
	bool quiet;
	int ret;

	table_section(r->table, "begin and end of a unit, which the bar is for together");
	row_silent(r, "begin + end, system calls", loop_units);
	row_silent(r, "totals, system calls", loop_totals);
	ret = pinion_open(NULL, &ctx);
	if (!ret)
		ret = pinion_device_add(ctx, "bench-counts", NULL, &dev);
	if (ret) {
		broke_pinion(ret, "a context with a device");
		table_broken(r->table, "begin + end");
		return;
	}
	quiet = quiet_begin();
	row_units(r, "begin + end, 1 thread", "2 fetch_add, line its own", dev, way_alone, way_alone);
	if (loop_can_pair()) {
		row_units(r, "begin + end, 1 thread", "2 fetch_add, line of 2 threads", dev, way_alone, way_paired);
		row_units(r, "begin + end, 2 threads, 1 device", "2 fetch_add, line of 2 threads", dev, way_paired,
			  way_paired);
	} else {
		table_absent(r->table, "begin + end, 2 threads, 1 device", "there is one processor");
	}
	if (quiet)
		quiet_end();
	pinion_close(ctx);
}
