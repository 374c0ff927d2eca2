/* SPDX-License-Identifier: MIT */
/*
 * q4_0: 32 elements in 18 bytes.
 *
 *	d	half, the scale
 *	qs[16]	4 bits of each element: qs[i] has element i in its low nibble and element 16 + i in its high one
 *
 *	element = d * (quant - 8)
 */
#include "decode.h"

#include "half.h"

struct q4_0_block {
	uint16_t d;
	uint8_t qs[16];
};
_Static_assert(sizeof(struct q4_0_block) == 18, "q4_0 block");

void q4_0_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;

	for (; blocks; blocks--, p += sizeof(struct q4_0_block), dst += 32) {
		struct q4_0_block b;
		float d;

		memcpy(&b, p, sizeof(b));
		d = half_float(b.d);
		for (unsigned int i = 0; i < 16; i++) {
			dst[i] = d * (float)((b.qs[i] & 0x0f) - 8);
			dst[16 + i] = d * (float)((b.qs[i] >> 4) - 8);
		}
	}
}
