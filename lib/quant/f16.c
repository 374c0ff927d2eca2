/* SPDX-License-Identifier: MIT */
/* f16: IEEE binary16, 1 element in 2 bytes. */
#include "decode.h"

#include "half.h"

void f16_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;

	for (uint64_t i = 0; i < blocks; i++) {
		uint16_t half;
		uint32_t bits;

		memcpy(&half, p + i * sizeof(half), sizeof(half));
		bits = half_float_bits(half);
		memcpy(&dst[i], &bits, sizeof(bits));
	}
}
