/* SPDX-License-Identifier: MIT */
/*
 * q8_0: 32 elements in 34 bytes.
 *
 *	d	half, the scale
 *	qs[32]	each element, signed
 *
 *	element = d * quant
 */
#include "decode.h"

#include "half.h"

struct q8_0_block {
	uint16_t d;
	int8_t qs[32];
};
_Static_assert(sizeof(struct q8_0_block) == 34, "q8_0 block");

void q8_0_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;

	for (; blocks; blocks--, p += sizeof(struct q8_0_block), dst += 32) {
		struct q8_0_block b;
		float d;

		memcpy(&b, p, sizeof(b));
		d = half_float(b.d);
		for (unsigned int i = 0; i < 32; i++)
			dst[i] = d * (float)b.qs[i];
	}
}
