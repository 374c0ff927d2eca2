/* SPDX-License-Identifier: MIT */
/* The table of ops and that of abilities, against lists written down a second time, and the parsers. */
#include "harness.h"

#include <errno.h>
#include <pinion/context.h>
#include <pinion/op.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Contract 2.13, in the order of the enumeration. */
static const char op_texts[] =
	/* binary and unary */
	"matmul add sub mul div relu neg sqr sqrt recip abs tanh exp log sin cos sigmoid silu gelu step "
	"clamp powi powi_backward maximum minimum eq ne lt le gt ge floor ceil round sign erf gelu_erf pow "
	"rsqrt rem affine where cast "
	/* reductions */
	"sum_reduce max_reduce min_reduce mean_reduce reduce_sum_to reduce_max_to reduce_max_to_backward "
	"argmax_dim argmin_dim cumsum "
	/* shapes and indices */
	"flip roll pad pad_backward triu tril masked_fill concat index_select gather index_add scatter_add "
	"non_zero_indices write_slice write_slice_rotating write_slice_doff copy "
	/* networks */
	"conv2d conv_transpose2d fused_linear flash_attn flash_attn_backward_q flash_attn_backward_k "
	"flash_attn_backward_v paged_attn rope softmax_last_dim softmax_last_dim_backward "
	"log_softmax_last_dim log_softmax_last_dim_backward rms_norm_last_dim rms_norm_last_dim_backward "
	"layer_norm_last_dim layer_norm_last_dim_backward fused_softmax_cross_entropy causal_conv1d "
	"selective_scan ssd_chunk_scan qmatmul nf4_matmul runtime_fused "
	/* in place */
	"relu_inplace silu_inplace gelu_inplace tanh_inplace sigmoid_inplace neg_inplace abs_inplace "
	"sqr_inplace sqrt_inplace rsqrt_inplace recip_inplace exp_inplace log_inplace sin_inplace "
	"cos_inplace sign_inplace floor_inplace ceil_inplace round_inplace erf_inplace gelu_erf_inplace "
	"clamp_inplace powi_inplace inplace_affine ";

static const char ability_texts[] =
	"allocate upload download clone strided_copy copy_to matmul unary binary affine powf cast reduce "
	"softmax index_select gather rms_norm concat rope add_assign_scaled rms_norm_backward "
	"layer_norm_backward softmax_backward matmul_q4_0 matmul_q4_k_m matmul_q8_0 quantize_q8_0 "
	"dequantize_q8_0 dequantize_q4_0 dequantize_q4_k_m ";

START_TEST(every_op_has_its_text_and_is_found_by_it)
{
	char *texts = strdup(op_texts), *rest = texts, *text;
	enum pinion_op code = 1, op;

	for (; (text = strtok_r(rest, " ", &rest)); code++) {
		ck_assert_str_eq(pinion_op_name(code), text);
		op = 0;
		ck_ok(pinion_op_parse(text, &op));
		ck_assert_int_eq(op, code);
	}
	ck_assert_int_eq(code - 1, 118);
	ck_assert_int_eq(code - 1, PINION_OP_LAST);
	free(texts);
}
END_TEST

START_TEST(every_ability_has_its_text_and_is_found_by_it)
{
	char *texts = strdup(ability_texts), *rest = texts, *text;
	enum pinion_ability code = 1, ability;

	for (; (text = strtok_r(rest, " ", &rest)); code++) {
		ck_assert_str_eq(pinion_ability_name(code), text);
		ability = 0;
		ck_ok(pinion_ability_parse(text, &ability));
		ck_assert_int_eq(ability, code);
	}
	ck_assert_int_eq(code - 1, 30);
	ck_assert_int_eq(code - 1, PINION_ABILITY_LAST);
	free(texts);
}
END_TEST

START_TEST(members_are_what_their_names_say)
{
	/* Where text and name differ, and the ends of each group. */
	ck_assert_str_eq(pinion_op_name(PINION_OP_MATMUL), "matmul");
	ck_assert_str_eq(pinion_op_name(PINION_OP_EQ), "eq");
	ck_assert_str_eq(pinion_op_name(PINION_OP_GE), "ge");
	ck_assert_str_eq(pinion_op_name(PINION_OP_CAST), "cast");
	ck_assert_str_eq(pinion_op_name(PINION_OP_SUM_REDUCE), "sum_reduce");
	ck_assert_str_eq(pinion_op_name(PINION_OP_CUMSUM), "cumsum");
	ck_assert_str_eq(pinion_op_name(PINION_OP_FLIP), "flip");
	ck_assert_str_eq(pinion_op_name(PINION_OP_COPY), "copy");
	ck_assert_str_eq(pinion_op_name(PINION_OP_CONV2D), "conv2d");
	ck_assert_str_eq(pinion_op_name(PINION_OP_RUNTIME_FUSED), "runtime_fused");
	ck_assert_str_eq(pinion_op_name(PINION_OP_RELU_INPLACE), "relu_inplace");
	ck_assert_str_eq(pinion_op_name(PINION_OP_INPLACE_AFFINE), "inplace_affine");
	ck_assert_str_eq(pinion_ability_name(PINION_ABILITY_SOFTMAX_BACKWARD), "softmax_backward");
	ck_assert_str_eq(pinion_ability_name(PINION_ABILITY_DEQUANTIZE_Q4_K_M), "dequantize_q4_k_m");
}
END_TEST

START_TEST(what_is_no_code_has_no_text)
{
	ck_assert_ptr_null(pinion_op_name((enum pinion_op)0));
	ck_assert_ptr_null(pinion_op_name((enum pinion_op)(PINION_OP_LAST + 1)));
	ck_assert_ptr_null(pinion_op_name((enum pinion_op) - 1));
	ck_assert_ptr_null(pinion_ability_name((enum pinion_ability)0));
	ck_assert_ptr_null(pinion_ability_name((enum pinion_ability)(PINION_ABILITY_LAST + 1)));
	ck_assert_ptr_null(pinion_ability_name((enum pinion_ability) - 1));
}
END_TEST

START_TEST(what_is_no_text_is_refused_and_leaves_the_result)
{
	static const char *const texts[] = { "",    "MatMul",  "MATMUL", "matmul ", " matmul",
					     "mat", "matmul2", "relu_",	 "in_place" };
	enum pinion_op op = PINION_OP_ROPE;
	enum pinion_ability ability = PINION_ABILITY_ROPE;

	for (unsigned int i = 0; i < COUNT(texts); i++) {
		ck_assert_int_eq(pinion_op_parse(texts[i], &op), -EINVAL);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "as an op"));
		ck_assert_ptr_nonnull(strstr(pinion_error(), texts[i]));
		ck_assert_int_eq(pinion_ability_parse(texts[i], &ability), -EINVAL);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "as an ability"));
	}
	ck_assert_int_eq(op, PINION_OP_ROPE);
	ck_assert_int_eq(ability, PINION_ABILITY_ROPE);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("op");
	TCase *texts = tcase_create("texts");

	tcase_add_test(texts, every_op_has_its_text_and_is_found_by_it);
	tcase_add_test(texts, every_ability_has_its_text_and_is_found_by_it);
	tcase_add_test(texts, members_are_what_their_names_say);
	tcase_add_test(texts, what_is_no_code_has_no_text);
	tcase_add_test(texts, what_is_no_text_is_refused_and_leaves_the_result);
	suite_add_tcase(s, texts);
	return s;
}

PINION_TEST_MAIN(suite)
