/* SPDX-License-Identifier: MIT */
/*
 * kscale: the 8 scales and 8 minima of 6 bits each that q4_K and q5_K keep in 12 bytes, p[0..11]. For i in 0..3:
 *
 *	bits	7 6			5 4 3 2 1 0
 *	p[i]	scale[4 + i] bits 5, 4	scale[i]
 *	p[4+i]	min[4 + i] bits 5, 4	min[i]
 *
 *	bits	7 6 5 4			3 2 1 0
 *	p[8+i]	min[4 + i] bits 3..0	scale[4 + i] bits 3..0
 */
#ifndef PINION_LIB_KSCALE_H
#define PINION_LIB_KSCALE_H

#include <stdint.h>

#define KSCALE_BYTES 12

static inline void kscale_unpack(const uint8_t p[KSCALE_BYTES], uint8_t scale[8], uint8_t min[8])
{
	for (unsigned int i = 0; i < 4; i++) {
		scale[i] = p[i] & 0x3f;
		min[i] = p[4 + i] & 0x3f;
		scale[4 + i] = (p[i] >> 6) << 4 | (p[8 + i] & 0x0f);
		min[4 + i] = (p[4 + i] >> 6) << 4 | p[8 + i] >> 4;
	}
}

#endif
