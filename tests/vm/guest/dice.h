/* SPDX-License-Identifier: MIT */
/* Dice: a thread's own, so that a seed gives the same again. */
#ifndef PINION_VM_DICE_H
#define PINION_VM_DICE_H

#include <stdbool.h>
#include <stdint.h>

#define DICE __attribute__((unused)) static

static __thread uint64_t dice;

DICE uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* splitmix64: a number below @n. */
DICE uint64_t roll(uint64_t n)
{
	return mix(dice += 0x9e3779b97f4a7c15ULL) % n;
}

DICE bool one_in(uint64_t n)
{
	return !roll(n);
}

#define PICK(list) ((list)[roll(sizeof(list) / sizeof((list)[0]))])

#endif
