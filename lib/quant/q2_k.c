/* SPDX-License-Identifier: MIT */
/*
 * q2_K: 256 elements in 84 bytes, in 16 groups of 16, each with a scale and a minimum.
 *
 *	scales[16]	of group g: the scale in the low nibble, the minimum in the high one
 *	qs[64]		2 bits of each element. The first 32 bytes have elements 0..127, the others 128..255. Of such 32
 *			bytes, byte j has elements j, 32 + j, 64 + j and 96 + j, the first in its lowest bits
 *	d		half, the scale of the scales
 *	dmin		half, the scale of the minima
 *
 *	element = d * scale * quant - dmin * min
 */
#include "decode.h"

#include "half.h"

struct q2_k_block {
	uint8_t scales[16];
	uint8_t qs[64];
	uint16_t d;
	uint16_t dmin;
};
_Static_assert(sizeof(struct q2_k_block) == 84, "q2_K block");

static void decode_block(const struct q2_k_block *b, float *dst)
{
	float d = half_float(b->d), dmin = half_float(b->dmin);

	for (unsigned int g = 0; g < 16; g++, dst += 16) {
		const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16;
		unsigned int shift = g % 8 / 2 * 2;
		float scale = d * (float)(b->scales[g] & 0x0f);
		float min = dmin * (float)(b->scales[g] >> 4);

		for (unsigned int i = 0; i < 16; i++)
			dst[i] = scale * (float)(q[i] >> shift & 3) - min;
	}
}

void q2_k_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;
	struct q2_k_block b;

	for (; blocks; blocks--, p += sizeof(b), dst += 256) {
		memcpy(&b, p, sizeof(b));
		decode_block(&b, dst);
	}
}
