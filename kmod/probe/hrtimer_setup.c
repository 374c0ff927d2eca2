// SPDX-License-Identifier: GPL-2.0-only
// 6.13: a timer and its function in one call; the older two calls went later.
#include <linux/hrtimer.h>
void probe(struct hrtimer *timer, enum hrtimer_restart (*fires)(struct hrtimer *timer));
void probe(struct hrtimer *timer, enum hrtimer_restart (*fires)(struct hrtimer *timer))
{
	hrtimer_setup(timer, fires, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
}
