/* SPDX-License-Identifier: MIT */
/* type: how a tensor's elements are stored. Codes below 256 are ggml's; the others exist only in safetensors files. */
#ifndef PINION_TYPE_H
#define PINION_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pinion_type {
	PINION_TYPE_F32 = 0,
	PINION_TYPE_F16 = 1,
	PINION_TYPE_Q4_0 = 2,
	PINION_TYPE_Q4_1 = 3,
	PINION_TYPE_Q5_0 = 6,
	PINION_TYPE_Q5_1 = 7,
	PINION_TYPE_Q8_0 = 8,
	PINION_TYPE_Q8_1 = 9,
	PINION_TYPE_Q2_K = 10,
	PINION_TYPE_Q3_K = 11,
	PINION_TYPE_Q4_K = 12,
	PINION_TYPE_Q5_K = 13,
	PINION_TYPE_Q6_K = 14,
	PINION_TYPE_Q8_K = 15,
	PINION_TYPE_IQ2_XXS = 16,
	PINION_TYPE_IQ2_XS = 17,
	PINION_TYPE_IQ3_XXS = 18,
	PINION_TYPE_IQ1_S = 19,
	PINION_TYPE_IQ4_NL = 20,
	PINION_TYPE_IQ3_S = 21,
	PINION_TYPE_IQ2_S = 22,
	PINION_TYPE_IQ4_XS = 23,
	PINION_TYPE_I8 = 24,
	PINION_TYPE_I16 = 25,
	PINION_TYPE_I32 = 26,
	PINION_TYPE_I64 = 27,
	PINION_TYPE_F64 = 28,
	PINION_TYPE_IQ1_M = 29,
	PINION_TYPE_BF16 = 30,
	PINION_TYPE_TQ1_0 = 34,
	PINION_TYPE_TQ2_0 = 35,
	PINION_TYPE_MXFP4 = 39,
	PINION_TYPE_NVFP4 = 40,
	PINION_TYPE_Q1_0 = 41,
	PINION_TYPE_Q2_0 = 42,
	PINION_TYPE_BOOL = 256,
	PINION_TYPE_U8,
	PINION_TYPE_U16,
	PINION_TYPE_U32,
	PINION_TYPE_U64,
	PINION_TYPE_F8_E4M3,
	PINION_TYPE_F8_E5M2,
	PINION_TYPE_F8_E8M0,
};

struct pinion_type_info {
	uint32_t type;
	const char *name;	/* ggml's name in lower case; safetensors' likewise */
	uint32_t block_elems;	/* elements of one block; a row is a whole number of blocks */
	uint32_t block_bytes;
	bool quantized;
};

/* What is known of @type; NULL when it is not a type. Static. */
const struct pinion_type_info *pinion_type_info(uint32_t type);

/* Bytes of @elems elements: -EINVAL unknown type or not a whole number of blocks; -EOVERFLOW. */
int pinion_type_bytes(uint32_t type, uint64_t elems, uint64_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
