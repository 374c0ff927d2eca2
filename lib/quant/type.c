/* SPDX-License-Identifier: MIT */
#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/type.h>
#include <stddef.h>

#define TYPE(code, text, elems, bytes, is_quantized)                                                                   \
	{                                                                                                              \
		.type = (code), .name = (text), .block_elems = (elems), .block_bytes = (bytes),                        \
		.quantized = (is_quantized),                                                                           \
	}
#define PLAIN(code, text, bytes) [PINION_TYPE_##code] = TYPE(PINION_TYPE_##code, text, 1, bytes, false)
#define QUANT(code, text, elems, bytes) [PINION_TYPE_##code] = TYPE(PINION_TYPE_##code, text, elems, bytes, true)
#define OTHER(code, text, bytes)                                                                                       \
	[PINION_TYPE_##code - PINION_TYPE_BOOL] = TYPE(PINION_TYPE_##code, text, 1, bytes, false)

/* Indexed by code. The gaps are codes that ggml has withdrawn or not given out: no name. */
static const struct pinion_type_info ggml[] = {
	PLAIN(F32, "f32", 4),
	PLAIN(F16, "f16", 2),
	QUANT(Q4_0, "q4_0", 32, 18),
	QUANT(Q4_1, "q4_1", 32, 20),
	QUANT(Q5_0, "q5_0", 32, 22),
	QUANT(Q5_1, "q5_1", 32, 24),
	QUANT(Q8_0, "q8_0", 32, 34),
	QUANT(Q8_1, "q8_1", 32, 36),
	QUANT(Q2_K, "q2_K", 256, 84),
	QUANT(Q3_K, "q3_K", 256, 110),
	QUANT(Q4_K, "q4_K", 256, 144),
	QUANT(Q5_K, "q5_K", 256, 176),
	QUANT(Q6_K, "q6_K", 256, 210),
	QUANT(Q8_K, "q8_K", 256, 292),
	QUANT(IQ2_XXS, "iq2_xxs", 256, 66),
	QUANT(IQ2_XS, "iq2_xs", 256, 74),
	QUANT(IQ3_XXS, "iq3_xxs", 256, 98),
	QUANT(IQ1_S, "iq1_s", 256, 50),
	QUANT(IQ4_NL, "iq4_nl", 32, 18),
	QUANT(IQ3_S, "iq3_s", 256, 110),
	QUANT(IQ2_S, "iq2_s", 256, 82),
	QUANT(IQ4_XS, "iq4_xs", 256, 136),
	PLAIN(I8, "i8", 1),
	PLAIN(I16, "i16", 2),
	PLAIN(I32, "i32", 4),
	PLAIN(I64, "i64", 8),
	PLAIN(F64, "f64", 8),
	QUANT(IQ1_M, "iq1_m", 256, 56),
	PLAIN(BF16, "bf16", 2),
	QUANT(TQ1_0, "tq1_0", 256, 54),
	QUANT(TQ2_0, "tq2_0", 256, 66),
	QUANT(MXFP4, "mxfp4", 32, 17),
	QUANT(NVFP4, "nvfp4", 64, 36),
	QUANT(Q1_0, "q1_0", 128, 18),
	QUANT(Q2_0, "q2_0", 64, 18),
};

/* Indexed by code less that of the first. */
static const struct pinion_type_info safetensors[] = {
	OTHER(BOOL, "bool", 1),
	OTHER(U8, "u8", 1),
	OTHER(U16, "u16", 2),
	OTHER(U32, "u32", 4),
	OTHER(U64, "u64", 8),
	OTHER(F8_E4M3, "f8_e4m3", 1),
	OTHER(F8_E5M2, "f8_e5m2", 1),
	OTHER(F8_E8M0, "f8_e8m0", 1),
};

PINION_API const struct pinion_type_info *pinion_type_info(uint32_t type)
{
	const struct pinion_type_info *info = NULL;

	if (type < sizeof(ggml) / sizeof(ggml[0]))
		info = &ggml[type];
	else if (type >= PINION_TYPE_BOOL && type - PINION_TYPE_BOOL < sizeof(safetensors) / sizeof(safetensors[0]))
		info = &safetensors[type - PINION_TYPE_BOOL];
	return info && info->name ? info : NULL;
}

PINION_API int pinion_type_bytes(uint32_t type, uint64_t elems, uint64_t *bytes)
{
	const struct pinion_type_info *info = pinion_type_info(type);
	uint64_t product;

	if (!info)
		return fail(EINVAL, "%" PRIu32 " is not the code of a type", type);
	if (elems % info->block_elems)
		return fail(EINVAL, "%" PRIu64 " elements of %s are not a whole number of its blocks of %" PRIu32,
			    elems, info->name, info->block_elems);
	if (__builtin_mul_overflow(elems / info->block_elems, (uint64_t)info->block_bytes, &product))
		return fail(EOVERFLOW, "%" PRIu64 " elements of %s take more bytes than 64 bits count", elems,
			    info->name);
	*bytes = product;
	return 0;
}
