/* SPDX-License-Identifier: MIT */
/* bf16: the upper half of an IEEE binary32, 1 element in 2 bytes; a NaN keeps its bits. */
#include "decode.h"

#include <string.h>

void bf16_decode(const void *src, float *dst, uint64_t blocks)
{
	const uint8_t *p = src;

	for (uint64_t i = 0; i < blocks; i++) {
		uint16_t upper;
		uint32_t bits;

		memcpy(&upper, p + i * sizeof(upper), sizeof(upper));
		bits = (uint32_t)upper << 16;
		memcpy(&dst[i], &bits, sizeof(bits));
	}
}
