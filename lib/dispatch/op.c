/* SPDX-License-Identifier: MIT */
#include "../error.h"

#include <assert.h>
#include <errno.h>
#include <pinion/op.h>
#include <stddef.h>
#include <string.h>

static const char *const ops[] = {
	[PINION_OP_MATMUL] = "matmul",
	[PINION_OP_ADD] = "add",
	[PINION_OP_SUB] = "sub",
	[PINION_OP_MUL] = "mul",
	[PINION_OP_DIV] = "div",
	[PINION_OP_RELU] = "relu",
	[PINION_OP_NEG] = "neg",
	[PINION_OP_SQR] = "sqr",
	[PINION_OP_SQRT] = "sqrt",
	[PINION_OP_RECIP] = "recip",
	[PINION_OP_ABS] = "abs",
	[PINION_OP_TANH] = "tanh",
	[PINION_OP_EXP] = "exp",
	[PINION_OP_LOG] = "log",
	[PINION_OP_SIN] = "sin",
	[PINION_OP_COS] = "cos",
	[PINION_OP_SIGMOID] = "sigmoid",
	[PINION_OP_SILU] = "silu",
	[PINION_OP_GELU] = "gelu",
	[PINION_OP_STEP] = "step",
	[PINION_OP_CLAMP] = "clamp",
	[PINION_OP_POWI] = "powi",
	[PINION_OP_POWI_BACKWARD] = "powi_backward",
	[PINION_OP_MAXIMUM] = "maximum",
	[PINION_OP_MINIMUM] = "minimum",
	[PINION_OP_EQ] = "eq",
	[PINION_OP_NE] = "ne",
	[PINION_OP_LT] = "lt",
	[PINION_OP_LE] = "le",
	[PINION_OP_GT] = "gt",
	[PINION_OP_GE] = "ge",
	[PINION_OP_FLOOR] = "floor",
	[PINION_OP_CEIL] = "ceil",
	[PINION_OP_ROUND] = "round",
	[PINION_OP_SIGN] = "sign",
	[PINION_OP_ERF] = "erf",
	[PINION_OP_GELU_ERF] = "gelu_erf",
	[PINION_OP_POW] = "pow",
	[PINION_OP_RSQRT] = "rsqrt",
	[PINION_OP_REM] = "rem",
	[PINION_OP_AFFINE] = "affine",
	[PINION_OP_WHERE] = "where",
	[PINION_OP_CAST] = "cast",
	[PINION_OP_SUM_REDUCE] = "sum_reduce",
	[PINION_OP_MAX_REDUCE] = "max_reduce",
	[PINION_OP_MIN_REDUCE] = "min_reduce",
	[PINION_OP_MEAN_REDUCE] = "mean_reduce",
	[PINION_OP_REDUCE_SUM_TO] = "reduce_sum_to",
	[PINION_OP_REDUCE_MAX_TO] = "reduce_max_to",
	[PINION_OP_REDUCE_MAX_TO_BACKWARD] = "reduce_max_to_backward",
	[PINION_OP_ARGMAX_DIM] = "argmax_dim",
	[PINION_OP_ARGMIN_DIM] = "argmin_dim",
	[PINION_OP_CUMSUM] = "cumsum",
	[PINION_OP_FLIP] = "flip",
	[PINION_OP_ROLL] = "roll",
	[PINION_OP_PAD] = "pad",
	[PINION_OP_PAD_BACKWARD] = "pad_backward",
	[PINION_OP_TRIU] = "triu",
	[PINION_OP_TRIL] = "tril",
	[PINION_OP_MASKED_FILL] = "masked_fill",
	[PINION_OP_CONCAT] = "concat",
	[PINION_OP_INDEX_SELECT] = "index_select",
	[PINION_OP_GATHER] = "gather",
	[PINION_OP_INDEX_ADD] = "index_add",
	[PINION_OP_SCATTER_ADD] = "scatter_add",
	[PINION_OP_NON_ZERO_INDICES] = "non_zero_indices",
	[PINION_OP_WRITE_SLICE] = "write_slice",
	[PINION_OP_WRITE_SLICE_ROTATING] = "write_slice_rotating",
	[PINION_OP_WRITE_SLICE_DOFF] = "write_slice_doff",
	[PINION_OP_COPY] = "copy",
	[PINION_OP_CONV2D] = "conv2d",
	[PINION_OP_CONV_TRANSPOSE2D] = "conv_transpose2d",
	[PINION_OP_FUSED_LINEAR] = "fused_linear",
	[PINION_OP_FLASH_ATTN] = "flash_attn",
	[PINION_OP_FLASH_ATTN_BACKWARD_Q] = "flash_attn_backward_q",
	[PINION_OP_FLASH_ATTN_BACKWARD_K] = "flash_attn_backward_k",
	[PINION_OP_FLASH_ATTN_BACKWARD_V] = "flash_attn_backward_v",
	[PINION_OP_PAGED_ATTN] = "paged_attn",
	[PINION_OP_ROPE] = "rope",
	[PINION_OP_SOFTMAX_LAST_DIM] = "softmax_last_dim",
	[PINION_OP_SOFTMAX_LAST_DIM_BACKWARD] = "softmax_last_dim_backward",
	[PINION_OP_LOG_SOFTMAX_LAST_DIM] = "log_softmax_last_dim",
	[PINION_OP_LOG_SOFTMAX_LAST_DIM_BACKWARD] = "log_softmax_last_dim_backward",
	[PINION_OP_RMS_NORM_LAST_DIM] = "rms_norm_last_dim",
	[PINION_OP_RMS_NORM_LAST_DIM_BACKWARD] = "rms_norm_last_dim_backward",
	[PINION_OP_LAYER_NORM_LAST_DIM] = "layer_norm_last_dim",
	[PINION_OP_LAYER_NORM_LAST_DIM_BACKWARD] = "layer_norm_last_dim_backward",
	[PINION_OP_FUSED_SOFTMAX_CROSS_ENTROPY] = "fused_softmax_cross_entropy",
	[PINION_OP_CAUSAL_CONV1D] = "causal_conv1d",
	[PINION_OP_SELECTIVE_SCAN] = "selective_scan",
	[PINION_OP_SSD_CHUNK_SCAN] = "ssd_chunk_scan",
	[PINION_OP_QMATMUL] = "qmatmul",
	[PINION_OP_NF4_MATMUL] = "nf4_matmul",
	[PINION_OP_RUNTIME_FUSED] = "runtime_fused",
	[PINION_OP_RELU_INPLACE] = "relu_inplace",
	[PINION_OP_SILU_INPLACE] = "silu_inplace",
	[PINION_OP_GELU_INPLACE] = "gelu_inplace",
	[PINION_OP_TANH_INPLACE] = "tanh_inplace",
	[PINION_OP_SIGMOID_INPLACE] = "sigmoid_inplace",
	[PINION_OP_NEG_INPLACE] = "neg_inplace",
	[PINION_OP_ABS_INPLACE] = "abs_inplace",
	[PINION_OP_SQR_INPLACE] = "sqr_inplace",
	[PINION_OP_SQRT_INPLACE] = "sqrt_inplace",
	[PINION_OP_RSQRT_INPLACE] = "rsqrt_inplace",
	[PINION_OP_RECIP_INPLACE] = "recip_inplace",
	[PINION_OP_EXP_INPLACE] = "exp_inplace",
	[PINION_OP_LOG_INPLACE] = "log_inplace",
	[PINION_OP_SIN_INPLACE] = "sin_inplace",
	[PINION_OP_COS_INPLACE] = "cos_inplace",
	[PINION_OP_SIGN_INPLACE] = "sign_inplace",
	[PINION_OP_FLOOR_INPLACE] = "floor_inplace",
	[PINION_OP_CEIL_INPLACE] = "ceil_inplace",
	[PINION_OP_ROUND_INPLACE] = "round_inplace",
	[PINION_OP_ERF_INPLACE] = "erf_inplace",
	[PINION_OP_GELU_ERF_INPLACE] = "gelu_erf_inplace",
	[PINION_OP_CLAMP_INPLACE] = "clamp_inplace",
	[PINION_OP_POWI_INPLACE] = "powi_inplace",
	[PINION_OP_INPLACE_AFFINE] = "inplace_affine",
};

static const char *const abilities[] = {
	[PINION_ABILITY_ALLOCATE] = "allocate",
	[PINION_ABILITY_UPLOAD] = "upload",
	[PINION_ABILITY_DOWNLOAD] = "download",
	[PINION_ABILITY_CLONE] = "clone",
	[PINION_ABILITY_STRIDED_COPY] = "strided_copy",
	[PINION_ABILITY_COPY_TO] = "copy_to",
	[PINION_ABILITY_MATMUL] = "matmul",
	[PINION_ABILITY_UNARY] = "unary",
	[PINION_ABILITY_BINARY] = "binary",
	[PINION_ABILITY_AFFINE] = "affine",
	[PINION_ABILITY_POWF] = "powf",
	[PINION_ABILITY_CAST] = "cast",
	[PINION_ABILITY_REDUCE] = "reduce",
	[PINION_ABILITY_SOFTMAX] = "softmax",
	[PINION_ABILITY_INDEX_SELECT] = "index_select",
	[PINION_ABILITY_GATHER] = "gather",
	[PINION_ABILITY_RMS_NORM] = "rms_norm",
	[PINION_ABILITY_CONCAT] = "concat",
	[PINION_ABILITY_ROPE] = "rope",
	[PINION_ABILITY_ADD_ASSIGN_SCALED] = "add_assign_scaled",
	[PINION_ABILITY_RMS_NORM_BACKWARD] = "rms_norm_backward",
	[PINION_ABILITY_LAYER_NORM_BACKWARD] = "layer_norm_backward",
	[PINION_ABILITY_SOFTMAX_BACKWARD] = "softmax_backward",
	[PINION_ABILITY_MATMUL_Q4_0] = "matmul_q4_0",
	[PINION_ABILITY_MATMUL_Q4_K_M] = "matmul_q4_k_m",
	[PINION_ABILITY_MATMUL_Q8_0] = "matmul_q8_0",
	[PINION_ABILITY_QUANTIZE_Q8_0] = "quantize_q8_0",
	[PINION_ABILITY_DEQUANTIZE_Q8_0] = "dequantize_q8_0",
	[PINION_ABILITY_DEQUANTIZE_Q4_0] = "dequantize_q4_0",
	[PINION_ABILITY_DEQUANTIZE_Q4_K_M] = "dequantize_q4_k_m",
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

_Static_assert(COUNT(ops) == PINION_OP_LAST + 1, "the last op has a name");
_Static_assert(COUNT(abilities) == PINION_ABILITY_LAST + 1, "the last ability has a name");

/* The code of @text in @table, 0: none has that name. */
static unsigned int code_of(const char *const *table, unsigned int count, const char *text)
{
	for (unsigned int code = 1; code < count; code++)
		if (!strcmp(table[code], text))
			return code;
	return 0;
}

/* Through an unsigned type, because an enum from outside may hold anything; place 0 of the tables is empty. */
PINION_API const char *pinion_op_name(enum pinion_op op)
{
	return (unsigned int)op < COUNT(ops) ? ops[op] : NULL;
}

PINION_API int pinion_op_parse(const char *text, enum pinion_op *out)
{
	unsigned int code;

	assert(text);
	code = code_of(ops, COUNT(ops), text);
	if (!code)
		return fail(EINVAL, "cannot parse '%s' as an op", text);
	*out = (enum pinion_op)code;
	return 0;
}

PINION_API const char *pinion_ability_name(enum pinion_ability ability)
{
	return (unsigned int)ability < COUNT(abilities) ? abilities[ability] : NULL;
}

PINION_API int pinion_ability_parse(const char *text, enum pinion_ability *out)
{
	unsigned int code;

	assert(text);
	code = code_of(abilities, COUNT(abilities), text);
	if (!code)
		return fail(EINVAL, "cannot parse '%s' as an ability", text);
	*out = (enum pinion_ability)code;
	return 0;
}
