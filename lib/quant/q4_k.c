/* SPDX-License-Identifier: MIT */
/*
 * q4_K: 256 elements in 144 bytes, in 8 groups of 32, each with a scale and a minimum.
 *
 *	d		half, the scale of the scales
 *	dmin		half, the scale of the minima
 *	scales[12]	the scales and minima of the groups, packed as kscale.h says
 *	qs[128]		4 bits of each element. Each 32 bytes have two groups: the first in the low nibbles, the second
 *			in the high ones
 *
 *	element = d * scale * quant - dmin * min
 */
#include "decode.h"

#include "half.h"
#include "kscale.h"

struct q4_k_block {
	uint16_t d;
	uint16_t dmin;
	uint8_t scales[KSCALE_BYTES];
	uint8_t qs[128];
};
_Static_assert(sizeof(struct q4_k_block) == 144, "q4_K block");

static void decode_block(const struct q4_k_block *b, float *dst)
{
	float d = half_float(b->d), dmin = half_float(b->dmin);
	uint8_t scales[8], mins[8];

	kscale_unpack(b->scales, scales, mins);
	for (unsigned int g = 0; g < 8; g++, dst += 32) {
		const uint8_t *q = b->qs + g / 2 * 32;
		unsigned int shift = g % 2 * 4;
		float scale = d * (float)scales[g];
		float min = dmin * (float)mins[g];

		for (unsigned int i = 0; i < 32; i++)
			dst[i] = scale * (float)(q[i] >> shift & 0x0f) - min;
	}
}

void q4_k_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;
	struct q4_k_block b;

	for (; blocks; blocks--, p += sizeof(b), dst += 256) {
		memcpy(&b, p, sizeof(b));
		decode_block(&b, dst);
	}
}
