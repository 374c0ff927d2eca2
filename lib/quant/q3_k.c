/* SPDX-License-Identifier: MIT */
/*
 * q3_K: 256 elements in 110 bytes, in 16 groups of 16, each with a scale.
 *
 *	hmask[32]	bit 2 of each element: bit r of byte j is that of element 32 * r + j
 *	qs[64]		bits 1..0 of each element. The first 32 bytes have elements 0..127, the others 128..255. Of such
 *			32 bytes, byte j has elements j, 32 + j, 64 + j and 96 + j, the first in its lowest bits
 *	scales[12]	16 scales of 6 bits. Bits 3..0: of scale k in the low nibble of byte k, of scale 8 + k in the
 *			high nibble of byte k, k in 0..7. Bits 5, 4: byte 8 + k has those of scales k, 4 + k, 8 + k and
 *			12 + k, the first in its lowest bits, k in 0..3
 *	d		half, the scale of the scales
 *
 *	element = d * (scale - 32) * (quant - 4)
 */
#include "decode.h"

#include "half.h"

struct q3_k_block {
	uint8_t hmask[32];
	uint8_t qs[64];
	uint8_t scales[12];
	uint16_t d;
};
_Static_assert(sizeof(struct q3_k_block) == 110, "q3_K block");

static int group_scale(const uint8_t scales[12], unsigned int g)
{
	unsigned int low = scales[g % 8] >> g / 8 * 4 & 0x0f;
	unsigned int high = scales[8 + g % 4] >> g / 4 * 2 & 3;

	return (int)(high << 4 | low) - 32;
}

static void decode_block(const struct q3_k_block *b, float *dst)
{
	float d = half_float(b->d);

	for (unsigned int g = 0; g < 16; g++, dst += 16) {
		const uint8_t *q = b->qs + g / 8 * 32 + g % 2 * 16;
		const uint8_t *h = b->hmask + g % 2 * 16;
		unsigned int shift = g % 8 / 2 * 2;
		float scale = d * (float)group_scale(b->scales, g);

		for (unsigned int i = 0; i < 16; i++) {
			int quant = (q[i] >> shift & 3) | (h[i] >> g / 2 & 1) << 2;

			dst[i] = scale * (float)(quant - 4);
		}
	}
}

void q3_k_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;
	struct q3_k_block b;

	for (; blocks; blocks--, p += sizeof(b), dst += 256) {
		memcpy(&b, p, sizeof(b));
		decode_block(&b, dst);
	}
}
