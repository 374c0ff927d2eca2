/* SPDX-License-Identifier: MIT */
/*
 * q5_1: 32 elements in 24 bytes.
 *
 *	d	half, the scale
 *	m	half, what a quant of 0 stands for
 *	qh	bit 4 of each element: bit i is element i's
 *	qs[16]	bits 3..0 of each element: qs[i] has element i in its low nibble and element 16 + i in its high one
 *
 *	element = d * quant + m
 */
#include "decode.h"

#include "half.h"

struct q5_1_block {
	uint16_t d;
	uint16_t m;
	uint32_t qh;
	uint8_t qs[16];
};
_Static_assert(sizeof(struct q5_1_block) == 24, "q5_1 block");

void q5_1_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;

	for (; blocks; blocks--, p += sizeof(struct q5_1_block), dst += 32) {
		struct q5_1_block b;
		float d, m;

		memcpy(&b, p, sizeof(b));
		d = half_float(b.d);
		m = half_float(b.m);
		for (unsigned int i = 0; i < 16; i++) {
			int first = (b.qs[i] & 0x0f) | (b.qh >> i & 1) << 4;
			int second = b.qs[i] >> 4 | (b.qh >> (16 + i) & 1) << 4;

			dst[i] = d * (float)first + m;
			dst[16 + i] = d * (float)second + m;
		}
	}
}
