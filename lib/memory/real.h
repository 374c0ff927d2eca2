/* SPDX-License-Identifier: MIT */
/*
 * real: the floats that C has no type for. Each narrows from a double, which holds every float exactly, so that there
 * is one rounding and no more; and widens to a float. With integers, so that the bits are the same on every CPU and in
 * every rounding mode.
 *
 * A NaN keeps its sign; in f16 and bf16 also the upper part of its payload, and becomes quiet.
 */
#ifndef PINION_LIB_REAL_H
#define PINION_LIB_REAL_H

#include "../quant/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define DOUBLE_FRACTION 52
#define DOUBLE_BIAS	1023

static inline uint64_t real_bits(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float float_of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/*
 * The magnitude of a number as the code of a format with @fraction bits of fraction, a bias of @bias and subnormals: to
 * the nearest, ties to the even code. A carry out of the fraction moves into the exponent as it should. The code of
 * what is too large is one that the format does not have for numbers; infinity's is larger than any.
 */
static inline uint32_t real_narrow(uint64_t bits, int fraction, int bias)
{
	int exponent = (int)(bits >> DOUBLE_FRACTION & 0x7ff) - DOUBLE_BIAS + bias;
	uint64_t significand = (bits & ((UINT64_C(1) << DOUBLE_FRACTION) - 1)) | UINT64_C(1) << DOUBLE_FRACTION;
	int shift = DOUBLE_FRACTION - fraction;
	uint64_t kept, rest, half;

	if (exponent < 1) {
		shift += 1 - exponent;
		exponent = 1;
	}
	/* Below half of the least subnormal. A double's own subnormals and zero come here too. */
	if (shift > DOUBLE_FRACTION + 1)
		return 0;
	kept = significand >> shift;
	rest = significand & ((UINT64_C(1) << shift) - 1);
	half = UINT64_C(1) << (shift - 1);
	kept += rest > half || (rest == half && (kept & 1));
	/* The leading one, which a subnormal does not have, counts as the last unit of the exponent. */
	return ((uint32_t)(exponent - 1) << fraction) + (uint32_t)kept;
}

static inline uint16_t real_f16(double value)
{
	uint64_t bits = real_bits(value);
	uint32_t sign = bits >> 48 & 0x8000;
	uint32_t code;

	if (isnan(value))
		return sign | 0x7e00 | (bits >> 42 & 0x1ff);
	code = real_narrow(bits, 10, 15);
	return sign | (code < 0x7c00 ? code : 0x7c00);
}

static inline uint16_t real_bf16(double value)
{
	uint64_t bits = real_bits(value);
	uint32_t sign = bits >> 48 & 0x8000;
	uint32_t code;

	if (isnan(value))
		return sign | 0x7fc0 | (bits >> 45 & 0x3f);
	code = real_narrow(bits, 7, 127);
	return sign | (code < 0x7f80 ? code : 0x7f80);
}

/* The last code is NaN and there is no infinity: what rounds to beyond 448 has no better place. */
static inline uint8_t real_f8e4m3(double value)
{
	uint64_t bits = real_bits(value);
	uint32_t sign = bits >> 56 & 0x80;
	uint32_t code;

	if (isnan(value))
		return sign | 0x7f;
	code = real_narrow(bits, 3, 7);
	return sign | (code < 0x7f ? code : 0x7f);
}

static inline uint8_t real_f8e5m2(double value)
{
	uint64_t bits = real_bits(value);
	uint32_t sign = bits >> 56 & 0x80;
	uint32_t code;

	if (isnan(value))
		return sign | 0x7e;
	code = real_narrow(bits, 2, 15);
	return sign | (code < 0x7c ? code : 0x7c);
}

/*
 * The nearest power of two. The one halfway between two of them is the upper: its significand, 1 and no fraction, is
 * odd one exponent lower.
 */
static inline uint8_t real_f8e8m0(double value)
{
	const uint64_t half = UINT64_C(1) << (DOUBLE_FRACTION - 1);
	int code;

	if (isnan(value) || value <= 0)
		return 0xff;
	code = (int)((real_bits(value) + half) >> DOUBLE_FRACTION) - DOUBLE_BIAS + 127;
	return code < 0 ? 0 : code < 0xff ? code : 0xff;
}

static inline float bf16_float(uint16_t code)
{
	return float_of_bits((uint32_t)code << 16);
}

static inline float f8e4m3_float(uint8_t code)
{
	uint32_t sign = (code & 0x80u) << 24;
	uint32_t exponent = code >> 3 & 0xf;
	uint32_t fraction = code & 7;

	if ((code & 0x7f) == 0x7f)
		return float_of_bits(sign | 0x7fc00000);
	if (!exponent)
		return sign ? -(float)fraction / 512 : (float)fraction / 512;
	return float_of_bits(sign | (exponent + 127 - 7) << 23 | fraction << 20);
}

/* The upper half of an f16. */
static inline float f8e5m2_float(uint8_t code)
{
	return half_float((uint16_t)(code << 8));
}

static inline float f8e8m0_float(uint8_t code)
{
	if (code == 0xff)
		return float_of_bits(0x7fc00000);
	/* The least is a subnormal float. */
	return float_of_bits(code ? (uint32_t)code << 23 : 0x400000);
}

#endif
