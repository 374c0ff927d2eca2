/* SPDX-License-Identifier: MIT */
/*
 * half: IEEE binary16 to float: sign, 5 bits of exponent biased by 15, 10 bits of fraction. Exact for every value, and
 * with integers only, so that a CPU without the conversion instruction gives the same bits as one that has it. A
 * signalling NaN becomes quiet and keeps its sign and payload, as the instruction and IEEE 754 have it.
 */
#ifndef PINION_LIB_HALF_H
#define PINION_LIB_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_float_bits(uint16_t half)
{
	uint32_t sign = (half & 0x8000u) << 16;
	uint32_t exponent = half >> 10 & 0x1f;
	uint32_t fraction = half & 0x3ff;

	if (exponent == 0x1f)
		return sign | 0x7f800000 | fraction << 13 | (fraction ? 0x400000 : 0);
	if (!exponent && fraction) {
		/* Normal as a float: the leading one moves out of the fraction, where it is implied. */
		uint32_t shift = __builtin_clz(fraction) - 21;

		return sign | (127 - 14 - shift) << 23 | (fraction << shift & 0x3ff) << 13;
	}
	if (!exponent)
		return sign;
	return sign | (exponent + 127 - 15) << 23 | fraction << 13;
}

static inline float half_float(uint16_t half)
{
	uint32_t bits = half_float_bits(half);
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

#endif
