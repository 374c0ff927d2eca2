/* SPDX-License-Identifier: MIT */
#include "../error.h"

#include <pinion/select.h>

#define DIGITS_MAX    18
#define DIGITS_STABLE 9 /* the same bits each time, but nobody says how many of them are right */

PINION_API struct pinion_precision pinion_precision_exact(void)
{
	return (struct pinion_precision){
		.bit_stable = true,
		.has_ulp = true,
		.has_relative = true,
		.has_absolute = true,
		.note = "exact reference",
	};
}

PINION_API struct pinion_precision pinion_precision_deterministic(void)
{
	return (struct pinion_precision){ .bit_stable = true, .note = "deterministic CPU primitive" };
}

PINION_API struct pinion_precision pinion_precision_unaudited(void)
{
	return (struct pinion_precision){ .note = "unaudited" };
}

PINION_API struct pinion_precision pinion_precision_none(const char *reason)
{
	return (struct pinion_precision){ .note = reason };
}

/*
 * floor(-log10(bound)) by comparison, because log10() of a power of ten may round to either side of a whole number. A
 * bound that is not a number promises nothing.
 */
static uint32_t digits_of(double bound)
{
	static const double power[DIGITS_MAX + 1] = { 1e0,   1e-1,  1e-2,  1e-3,  1e-4,	 1e-5,	1e-6,
						      1e-7,  1e-8,  1e-9,  1e-10, 1e-11, 1e-12, 1e-13,
						      1e-14, 1e-15, 1e-16, 1e-17, 1e-18 };
	uint32_t digits = 0;

	while (digits < DIGITS_MAX && bound <= power[digits + 1])
		digits++;
	return digits;
}

PINION_API uint32_t pinion_precision_digits(const struct pinion_precision *precision)
{
	if (precision->has_ulp && !precision->max_ulp)
		return DIGITS_MAX;
	if (precision->has_relative)
		return digits_of(precision->max_relative);
	return precision->bit_stable ? DIGITS_STABLE : 0;
}

PINION_API enum pinion_accuracy pinion_precision_accuracy(const struct pinion_precision *precision)
{
	if (!precision->has_ulp)
		return precision->bit_stable ? PINION_ACCURACY_STABLE : PINION_ACCURACY_UNBOUNDED;
	if (!precision->max_ulp)
		return PINION_ACCURACY_EXACT;
	return precision->max_ulp <= 2 ? PINION_ACCURACY_TIGHT : PINION_ACCURACY_LOOSE;
}
