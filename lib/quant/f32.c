/* SPDX-License-Identifier: MIT */
/* f32: IEEE binary32, 1 element in 4 bytes. */
#include "decode.h"

#include <string.h>

void f32_decode(const void *src, float *dst, uint64_t blocks)
{
	/* Nothing may come with null pointers, which memcpy() does not take even then. */
	if (blocks)
		memcpy(dst, src, blocks * sizeof(*dst));
}
