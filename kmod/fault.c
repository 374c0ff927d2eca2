// SPDX-License-Identifier: GPL-2.0-only
/* fault: what tests ask of the module; compiled with PINION_FAULTS=y only. Each is a parameter of root's. */
#include "fault.h"

#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kernel.h>
#include <linux/ktime.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "queue.h"
#include "reading.h"

/* Of the steps that can fail, the one with this number, from 1 on, does; 0: none. Written by root, counted down by each. */
static int fail_nth;
module_param(fail_nth, int, 0600);
static atomic_t *const fail_left = (atomic_t *)&fail_nth;

bool fault_here(void)
{
	return atomic_read(fail_left) > 0 && atomic_dec_return(fail_left) == 0;
}

/* ---- a reading that stands still ----------------------------------------------------------------------------------- */

/* Before which of its passes, 2 or 3, a reading stops, until another number is written; 0: none. */
static int stop_pass;
module_param(stop_pass, int, 0600);
/* Before which one a reading stands still now; 0: none does. */
static int stopped_pass;
module_param(stopped_pass, int, 0400);

void fault_pass(int pass)
{
	if (READ_ONCE(stop_pass) != pass)
		return;
	WRITE_ONCE(stopped_pass, pass);
	while (READ_ONCE(stop_pass) == pass && !fatal_signal_pending(current))
		msleep(1);
	WRITE_ONCE(stopped_pass, 0);
}

/* ---- what a reading costs ------------------------------------------------------------------------------------------ */

/* "INDEX TIMES": that device is read so often, without a system call or a copy. Reads as the nanoseconds that it took. */
static u64 read_took_ns;

static int read_cost_set(const char *text, const struct kernel_param *param)
{
	struct pinion_reading row;
	unsigned int index, times, i;
	u64 from;

	if (sscanf(text, "%u %u", &index, &times) != 2)
		return -EINVAL;
	from = ktime_get_ns();
	for (i = 0; i < times; i++) {
		row = (struct pinion_reading){ .index = index };
		reading_row(NULL, &row);
		if (row.status)
			return row.status;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	read_took_ns = ktime_get_ns() - from;
	return 0;
}

static int read_cost_get(char *text, const struct kernel_param *param)
{
	return sprintf(text, "%llu\n", read_took_ns);
}

static const struct kernel_param_ops read_cost_ops = {
	.set = read_cost_set,
	.get = read_cost_get,
};
module_param_cb(read_cost, &read_cost_ops, NULL, 0600);
