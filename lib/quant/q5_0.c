/* SPDX-License-Identifier: MIT */
/*
 * q5_0: 32 elements in 22 bytes.
 *
 *	d	half, the scale
 *	qh[4]	bit 4 of each element: as one little-endian number, bit i is element i's
 *	qs[16]	bits 3..0 of each element: qs[i] has element i in its low nibble and element 16 + i in its high one
 *
 *	element = d * (quant - 16)
 */
#include "decode.h"

#include "half.h"

struct q5_0_block {
	uint16_t d;
	uint8_t qh[4]; /* as bytes, because a number would be padded to a multiple of 4 */
	uint8_t qs[16];
};
_Static_assert(sizeof(struct q5_0_block) == 22, "q5_0 block");

void q5_0_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;

	for (; blocks; blocks--, p += sizeof(struct q5_0_block), dst += 32) {
		struct q5_0_block b;
		uint32_t high;
		float d;

		memcpy(&b, p, sizeof(b));
		memcpy(&high, b.qh, sizeof(high));
		d = half_float(b.d);
		for (unsigned int i = 0; i < 16; i++) {
			int first = (b.qs[i] & 0x0f) | (high >> i & 1) << 4;
			int second = b.qs[i] >> 4 | (high >> (16 + i) & 1) << 4;

			dst[i] = d * (float)(first - 16);
			dst[16 + i] = d * (float)(second - 16);
		}
	}
}
