/* SPDX-License-Identifier: MIT */
/* turns: whose turn it is among candidates that tie, kept for each set apart. */
#ifndef PINION_LIB_TURNS_H
#define PINION_LIB_TURNS_H

#include <stdint.h>

#define TURNS 16 /* sets that are told apart */

/* All zero at first. Any thread may use it at any time. */
struct turns {
	struct {
		uint64_t mark; /* of the set, never 0; set once */
		uint64_t next;
	} of[TURNS];
	uint64_t rest; /* of the sets that came when there was no place left */
};

/*
 * The next turn of the set with that mark: 0, 1, 2 and so on. Where there is no place for it the turns are as good as drawn by lot,
 * so that sets which are used in alternation still come out even in the long run.
 */
uint64_t turns_take(struct turns *turns, uint64_t mark);

#endif
