/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Injected failures for kernels without fault injection: with PINION_FAULTS=y, the step number fail_nth of those taken from
 * now on fails. Every step that can fail for a reason outside the arguments (memory, a descriptor, a copy to the user, a
 * charge) asks fault_here(). Without PINION_FAULTS it is nothing.
 */
#ifndef PINION_FAULT_H
#define PINION_FAULT_H

#include <linux/types.h>

#ifdef PINION_FAULTS
bool fault_here(void);
#else
static inline bool fault_here(void)
{
	return false;
}
#endif

#endif
