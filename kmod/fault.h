/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * fault: what tests ask of the module where it is built with PINION_FAULTS=y; else nothing.
 *
 * Injected failures, for kernels without fault injection: the step number fail_nth of those taken from now on fails. Every
 * step that can fail for a reason outside the arguments (memory, a descriptor, a copy to the user, a charge) asks fault_here().
 *
 * A reading that stands still between its passes (stop_pass, stopped_pass), for counts to move meanwhile; it sleeps with
 * queue->lock.
 *
 * What a reading costs (read_cost).
 */
#ifndef PINION_FAULT_H
#define PINION_FAULT_H

#include <linux/types.h>

#ifdef PINION_FAULTS
bool fault_here(void);
/* Before pass @pass of a reading. */
void fault_pass(int pass);
#else
static inline bool fault_here(void)
{
	return false;
}

static inline void fault_pass(int pass)
{
}
#endif

#endif
