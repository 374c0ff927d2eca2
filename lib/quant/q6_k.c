/* SPDX-License-Identifier: MIT */
/*
 * q6_K: 256 elements in 210 bytes, in 16 groups of 16, each with a scale. The first half of ql and of qh has elements
 * 0..127, the second half 128..255; of such 128 elements:
 *
 *	ql[64]		bits 3..0: byte j has element j in its low nibble and element 64 + j in its high one
 *	qh[32]		bits 5, 4: byte j has elements j, 32 + j, 64 + j and 96 + j, the first in its lowest bits
 *
 * and after both halves of both:
 *
 *	scales[16]	of each group, signed
 *	d		half, the scale of the scales
 *
 *	element = d * scale * (quant - 32)
 */
#include "decode.h"

#include "half.h"

struct q6_k_block {
	uint8_t ql[128];
	uint8_t qh[64];
	int8_t scales[16];
	uint16_t d;
};
_Static_assert(sizeof(struct q6_k_block) == 210, "q6_K block");

static void decode_block(const struct q6_k_block *b, float *dst)
{
	float d = half_float(b->d);

	for (unsigned int g = 0; g < 16; g++, dst += 16) {
		const uint8_t *low = b->ql + g / 8 * 64 + g % 4 * 16;
		const uint8_t *high = b->qh + g / 8 * 32 + g % 2 * 16;
		unsigned int low_shift = g % 8 / 4 * 4, high_shift = g % 8 / 2 * 2;
		float scale = d * (float)b->scales[g];

		for (unsigned int i = 0; i < 16; i++) {
			int quant = (low[i] >> low_shift & 0x0f) | (high[i] >> high_shift & 3) << 4;

			dst[i] = scale * (float)(quant - 32);
		}
	}
}

void q6_k_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;
	struct q6_k_block b;

	for (; blocks; blocks--, p += sizeof(b), dst += 256) {
		memcpy(&b, p, sizeof(b));
		decode_block(&b, dst);
	}
}
