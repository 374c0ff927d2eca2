/* SPDX-License-Identifier: MIT */
/*
 * process: tells the process that made an object from a forked child of it, without a system call.
 *
 * One page of the process is wiped by the kernel at fork (MADV_WIPEONFORK), whichever way the fork is made. It holds a
 * random number; every context keeps the number it was made under. In a child the page reads 0, or the child's own number
 * once the child has opened a context itself.
 */
#ifndef PINION_LIB_PROCESS_H
#define PINION_LIB_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

struct process_mark {
	const uint64_t *now; /* the page's word */
	uint64_t made;	     /* what it read when the object was made */
};

/* Fills @mark for an object made now. -ENOMEM; -EOPNOTSUPP a kernel without MADV_WIPEONFORK (before 4.14). */
int process_mark(struct process_mark *mark);

static inline bool process_is_maker(const struct process_mark *mark)
{
	return __builtin_expect(__atomic_load_n(mark->now, __ATOMIC_RELAXED) == mark->made, 1);
}

/* -EOWNERDEAD with its sentence. */
int process_fail(const char *what);

#endif
