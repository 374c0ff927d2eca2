/* SPDX-License-Identifier: MIT */
/*
 * q4_1: 32 elements in 20 bytes.
 *
 *	d	half, the scale
 *	m	half, what a quant of 0 stands for
 *	qs[16]	4 bits of each element: qs[i] has element i in its low nibble and element 16 + i in its high one
 *
 *	element = d * quant + m
 */
#include "decode.h"

#include "half.h"

struct q4_1_block {
	uint16_t d;
	uint16_t m;
	uint8_t qs[16];
};
_Static_assert(sizeof(struct q4_1_block) == 20, "q4_1 block");

void q4_1_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;

	for (; blocks; blocks--, p += sizeof(struct q4_1_block), dst += 32) {
		struct q4_1_block b;
		float d, m;

		memcpy(&b, p, sizeof(b));
		d = half_float(b.d);
		m = half_float(b.m);
		for (unsigned int i = 0; i < 16; i++) {
			dst[i] = d * (float)(b.qs[i] & 0x0f) + m;
			dst[16 + i] = d * (float)(b.qs[i] >> 4) + m;
		}
	}
}
