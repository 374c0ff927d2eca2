/* SPDX-License-Identifier: MIT */
#include "decode.h"

#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/type.h>

static void (*const decoders[])(const void *src, float *dst, uint64_t blocks) = {
	[PINION_TYPE_F32] = f32_decode,
	[PINION_TYPE_F16] = f16_decode,
	[PINION_TYPE_Q4_0] = q4_0_decode,
	[PINION_TYPE_Q4_1] = q4_1_decode,
	[PINION_TYPE_Q5_0] = q5_0_decode,
	[PINION_TYPE_Q5_1] = q5_1_decode,
	[PINION_TYPE_Q8_0] = q8_0_decode,
	[PINION_TYPE_Q2_K] = q2_k_decode,
	[PINION_TYPE_Q3_K] = q3_k_decode,
	[PINION_TYPE_Q4_K] = q4_k_decode,
	[PINION_TYPE_Q5_K] = q5_k_decode,
	[PINION_TYPE_Q6_K] = q6_k_decode,
	[PINION_TYPE_BF16] = bf16_decode,
};

bool quant_can_decode(uint32_t type)
{
	return type < sizeof(decoders) / sizeof(decoders[0]) && decoders[type];
}

int quant_decode(uint32_t type, const void *src, float *dst, uint64_t elems)
{
	const struct pinion_type_info *info = pinion_type_info(type);
	uint64_t bytes;
	int ret;

	if (!info)
		return fail(EOPNOTSUPP, "cannot decode type %" PRIu32 ", which is not the code of a type", type);
	if (!quant_can_decode(type))
		return fail(EOPNOTSUPP, "cannot decode %s; what can be is f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0 "
			    "and q2_K to q6_K", info->name);
	ret = pinion_type_bytes(type, elems, &bytes);
	if (ret)
		return ret;
	/* No decoded format is wider than a float, so that this bounds the blocks as well. */
	if (__builtin_mul_overflow(elems, (uint64_t)sizeof(*dst), &bytes) || bytes > PTRDIFF_MAX)
		return fail(EOVERFLOW, "%" PRIu64 " elements of %s make more floats than an address space holds", elems,
			    info->name);
	decoders[type](src, dst, elems / info->block_elems);
	return 0;
}
