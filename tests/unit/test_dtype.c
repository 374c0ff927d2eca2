/* SPDX-License-Identifier: MIT */
/* dtype: the 18 rows of the table, what sizes it gives and refuses, and numbers as scalars. */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pinion/context.h>
#include <pinion/dtype.h>
#include <pinion/type.h>

#define CODES 1024 /* tried one by one; well beyond the last dtype */

enum kind {
	NEITHER,
	INTEGER,
	FLOAT,
};

static const struct {
	const char *name;
	size_t bytes;
	enum kind kind;
} contract[] = {
	{ "u8", 1, INTEGER },	 { "i8", 1, INTEGER },	 { "u32", 4, INTEGER },	  { "i16", 2, INTEGER },
	{ "i32", 4, INTEGER },	 { "i64", 8, INTEGER },	 { "bf16", 2, FLOAT },	  { "f16", 2, FLOAT },
	{ "f32", 4, FLOAT },	 { "f64", 8, FLOAT },	 { "f8e4m3", 1, FLOAT },  { "f8e5m2", 1, FLOAT },
	{ "f6e2m3", 0, FLOAT },	 { "f6e3m2", 0, FLOAT }, { "f4", 0, FLOAT },	  { "f8e8m0", 1, FLOAT },
	{ "f8e6m2", 1, FLOAT },	 { "bool", 1, NEITHER },
};

#define DTYPES (sizeof(contract) / sizeof(contract[0]))

static void says(const char *word)
{
	ck_assert_msg(strstr(pinion_error(), word) != NULL, "\"%s\" does not say %s", pinion_error(), word);
}

START_TEST(table_is_the_contracts)
{
	ck_assert_uint_eq(DTYPES, 18);
	ck_assert_uint_eq(PINION_DTYPE_BOOL, DTYPES);
	for (unsigned int i = 0; i < DTYPES; i++) {
		enum pinion_dtype dtype = (enum pinion_dtype)(i + 1);

		ck_assert_str_eq(pinion_dtype_name(dtype), contract[i].name);
		ck_assert_uint_eq(pinion_dtype_bytes(dtype), contract[i].bytes);
		ck_assert_int_eq(pinion_dtype_is_integer(dtype), contract[i].kind == INTEGER);
		ck_assert_int_eq(pinion_dtype_is_float(dtype), contract[i].kind == FLOAT);
		ck_assert_int_eq(pinion_dtype_is_packed(dtype), !contract[i].bytes);
	}
}
END_TEST

START_TEST(no_other_code)
{
	static const uint32_t far[] = { 1u << 16, INT32_MAX, 1u << 31, UINT32_MAX };

	for (uint32_t i = 0; i < CODES + sizeof(far) / sizeof(far[0]); i++) {
		enum pinion_dtype dtype = (enum pinion_dtype)(i < CODES ? i : far[i - CODES]);
		struct pinion_scalar scalar;
		uint64_t bytes;
		uint32_t type;

		if (i > 0 && i <= DTYPES)
			continue;
		ck_assert_ptr_null(pinion_dtype_name(dtype));
		ck_assert_uint_eq(pinion_dtype_bytes(dtype), 0);
		ck_assert(!pinion_dtype_is_integer(dtype) && !pinion_dtype_is_float(dtype));
		ck_assert(!pinion_dtype_is_packed(dtype));
		ck_assert_int_eq(pinion_dtype_size(dtype, 0, &bytes), -EINVAL);
		says("is not a dtype");
		ck_assert_int_eq(pinion_dtype_to_type(dtype, &type), -EINVAL);
		ck_assert_int_eq(pinion_dtype_scalar(dtype, 1, &scalar), -EINVAL);
	}
}
END_TEST

START_TEST(parses_its_own_names)
{
	for (unsigned int i = 0; i < DTYPES; i++) {
		enum pinion_dtype dtype;

		ck_ok(pinion_dtype_parse(contract[i].name, &dtype));
		ck_assert_uint_eq(dtype, i + 1);
	}
}
END_TEST

START_TEST(parses_nothing_else)
{
	static const char *const none[] = { "",	   " ",	  "f",	   "F32", "f32 ",    " f32",	 "f322", "u16",
					    "u64", "f8", "float", "?",	  "f8_e4m3", "f8e4m3fn", "q4_0", "bool8" };

	for (unsigned int i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		enum pinion_dtype dtype = PINION_DTYPE_I16;
		char sentence[64];

		ck_assert_int_eq(pinion_dtype_parse(none[i], &dtype), -EINVAL);
		snprintf(sentence, sizeof(sentence), "cannot parse '%s' as a dtype", none[i]);
		ck_assert_str_eq(pinion_error(), sentence);
		ck_assert_uint_eq(dtype, PINION_DTYPE_I16);
	}
}
END_TEST

START_TEST(sizes)
{
	for (unsigned int i = 0; i < DTYPES; i++) {
		enum pinion_dtype dtype = (enum pinion_dtype)(i + 1);
		uint64_t bytes = 0x5a5a, most;

		if (!contract[i].bytes)
			continue;
		most = UINT64_MAX / contract[i].bytes;
		ck_ok(pinion_dtype_size(dtype, 0, &bytes));
		ck_assert_uint_eq(bytes, 0);
		ck_ok(pinion_dtype_size(dtype, 7, &bytes));
		ck_assert_uint_eq(bytes, 7 * contract[i].bytes);
		ck_ok(pinion_dtype_size(dtype, most, &bytes));
		ck_assert_uint_eq(bytes, most * contract[i].bytes);
		if (contract[i].bytes == 1)
			continue;
		bytes = 0x5a5a;
		ck_assert_int_eq(pinion_dtype_size(dtype, most + 1, &bytes), -EOVERFLOW);
		says("elem_count overflow");
		says(contract[i].name);
		ck_assert_uint_eq(bytes, 0x5a5a);
	}
}
END_TEST

/* Size 0 comes before everything: n * 0 is 0 for any n and would be a region of no bytes. */
START_TEST(sub_byte_dtypes_have_no_size)
{
	static const uint64_t counts[] = { 0, 1, 2, UINT64_MAX };

	for (unsigned int i = 0; i < DTYPES; i++) {
		for (unsigned int n = 0; n < 4 && !contract[i].bytes; n++) {
			uint64_t bytes = 0x5a5a;

			ck_assert_int_eq(pinion_dtype_size((enum pinion_dtype)(i + 1), counts[n], &bytes), -EOPNOTSUPP);
			says("dtype has zero size");
			says(contract[i].name);
			ck_assert_uint_eq(bytes, 0x5a5a);
		}
	}
}
END_TEST

static const struct {
	uint32_t type;
	enum pinion_dtype dtype;
} mapping[] = {
	{ PINION_TYPE_F32, PINION_DTYPE_F32 },	     { PINION_TYPE_F16, PINION_DTYPE_F16 },
	{ PINION_TYPE_I8, PINION_DTYPE_I8 },	     { PINION_TYPE_I16, PINION_DTYPE_I16 },
	{ PINION_TYPE_I32, PINION_DTYPE_I32 },	     { PINION_TYPE_I64, PINION_DTYPE_I64 },
	{ PINION_TYPE_F64, PINION_DTYPE_F64 },	     { PINION_TYPE_BF16, PINION_DTYPE_BF16 },
	{ PINION_TYPE_BOOL, PINION_DTYPE_BOOL },     { PINION_TYPE_U8, PINION_DTYPE_U8 },
	{ PINION_TYPE_U32, PINION_DTYPE_U32 },	     { PINION_TYPE_F8_E4M3, PINION_DTYPE_F8E4M3 },
	{ PINION_TYPE_F8_E5M2, PINION_DTYPE_F8E5M2 }, { PINION_TYPE_F8_E8M0, PINION_DTYPE_F8E8M0 },
};

#define MAPPED (sizeof(mapping) / sizeof(mapping[0]))

START_TEST(types_of_files_map_to_dtypes_and_back)
{
	for (unsigned int i = 0; i < MAPPED; i++) {
		enum pinion_dtype dtype;
		uint32_t type;

		ck_ok(pinion_dtype_of_type(mapping[i].type, &dtype));
		ck_assert_uint_eq(dtype, mapping[i].dtype);
		ck_ok(pinion_dtype_to_type(mapping[i].dtype, &type));
		ck_assert_uint_eq(type, mapping[i].type);
		ck_assert_uint_eq(pinion_type_info(type)->block_bytes, pinion_dtype_bytes(dtype));
	}
}
END_TEST

START_TEST(types_without_a_dtype)
{
	unsigned int mapped = 0;

	for (uint32_t type = 0; type < CODES; type++) {
		const struct pinion_type_info *info = pinion_type_info(type);
		enum pinion_dtype dtype = PINION_DTYPE_I16;
		int ret = pinion_dtype_of_type(type, &dtype);

		mapped += !ret;
		if (!ret)
			continue;
		ck_assert_uint_eq(dtype, PINION_DTYPE_I16);
		ck_assert_int_eq(ret, info ? -EOPNOTSUPP : -EINVAL);
		if (info)
			says(info->name);
		if (info && info->quantized)
			says("block format");
	}
	ck_assert_uint_eq(mapped, MAPPED);
	ck_assert_int_eq(pinion_dtype_of_type(UINT32_MAX, &(enum pinion_dtype){ 0 }), -EINVAL);
	ck_assert_int_eq(pinion_dtype_of_type(PINION_TYPE_U16, &(enum pinion_dtype){ 0 }), -EOPNOTSUPP);
	ck_assert_int_eq(pinion_dtype_of_type(PINION_TYPE_U64, &(enum pinion_dtype){ 0 }), -EOPNOTSUPP);
}
END_TEST

START_TEST(dtypes_without_a_type)
{
	static const enum pinion_dtype none[] = { PINION_DTYPE_F6E2M3, PINION_DTYPE_F6E3M2, PINION_DTYPE_F4,
						  PINION_DTYPE_F8E6M2 };

	ck_assert_uint_eq(MAPPED + sizeof(none) / sizeof(none[0]), DTYPES);
	for (unsigned int i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		uint32_t type = 77;

		ck_assert_int_eq(pinion_dtype_to_type(none[i], &type), -EOPNOTSUPP);
		says(pinion_dtype_name(none[i]));
		ck_assert_uint_eq(type, 77);
	}
}
END_TEST

/* The scalar, of whose 8 bytes those beyond the element are 0. */
static struct pinion_scalar scalar_of(enum pinion_dtype dtype, double value)
{
	static const uint8_t zeros[8];
	struct pinion_scalar scalar;

	memset(&scalar, 0xa5, sizeof(scalar));
	ck_ok(pinion_dtype_scalar(dtype, value, &scalar));
	ck_assert_uint_eq(scalar.dtype, dtype);
	ck_assert_mem_eq(scalar.bytes + pinion_dtype_bytes(dtype), zeros, 8 - pinion_dtype_bytes(dtype));
	return scalar;
}

static void scalar_refused(enum pinion_dtype dtype, double value, int err, const char *word)
{
	struct pinion_scalar scalar, before;

	memset(&scalar, 0x5a, sizeof(scalar));
	before = scalar;
	ck_assert_msg(pinion_dtype_scalar(dtype, value, &scalar) == err, "%s of %g", pinion_dtype_name(dtype), value);
	says(word);
	ck_assert_mem_eq(&scalar, &before, sizeof(scalar));
}

START_TEST(scalars_of_integers)
{
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_U8, 255).u8, 255);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_U8, 300).u8, 255);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_U8, -1).u8, 0);
	ck_assert_int_eq(scalar_of(PINION_DTYPE_I8, -128).i8, -128);
	ck_assert_int_eq(scalar_of(PINION_DTYPE_I8, -2.9).i8, -2);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_U32, 4e9).u32, 4000000000u);
	ck_assert_int_eq(scalar_of(PINION_DTYPE_I16, INFINITY).i16, INT16_MAX);
	ck_assert_int_eq(scalar_of(PINION_DTYPE_I32, -INFINITY).i32, INT32_MIN);
	ck_assert_int_eq(scalar_of(PINION_DTYPE_I64, 1e18).i64, INT64_C(1000000000000000000));
	ck_assert_int_eq(scalar_of(PINION_DTYPE_I64, NAN).i64, 0);
}
END_TEST

START_TEST(scalars_of_floats)
{
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_BF16, 1).half, 0x3f80);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F16, -2).half, 0xc000);
	ck_assert(scalar_of(PINION_DTYPE_F32, 0.1).f32 == 0.1f);
	ck_assert(scalar_of(PINION_DTYPE_F64, 0.1).f64 == 0.1);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E4M3, 448).u8, 0x7e);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E5M2, -1).u8, 0xbc);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_BOOL, 0).u8, 0);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_BOOL, -0.5).u8, 1);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_BOOL, NAN).u8, 1);
}
END_TEST

START_TEST(zero_and_one)
{
	for (unsigned int i = 1; i <= DTYPES; i++) {
		enum pinion_dtype dtype = (enum pinion_dtype)i;
		static const uint8_t zeros[8];

		if (pinion_dtype_is_packed(dtype) || dtype == PINION_DTYPE_F8E6M2)
			continue;
		scalar_of(dtype, 1);
		if (dtype != PINION_DTYPE_F8E8M0)
			ck_assert_mem_eq(scalar_of(dtype, 0).bytes, zeros, 8);
	}
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, 1).u8, 127);
	scalar_refused(PINION_DTYPE_F8E8M0, 0, -EINVAL, "f8e8m0 has no zero");
	scalar_refused(PINION_DTYPE_F8E8M0, -0.0, -EINVAL, "f8e8m0 has no zero");
	scalar_refused(PINION_DTYPE_F8E6M2, 0, -EOPNOTSUPP, "f8e6m2 has no zero");
	scalar_refused(PINION_DTYPE_F8E6M2, 1, -EOPNOTSUPP, "f8e6m2 has no one");
	scalar_refused(PINION_DTYPE_F8E6M2, 2, -EOPNOTSUPP, "f8e6m2 cannot represent 2");
}
END_TEST

START_TEST(packed_dtypes_have_no_scalars)
{
	static const double values[] = { 0, 1, -3.5, NAN };

	for (unsigned int i = 0; i < 4; i++) {
		scalar_refused(PINION_DTYPE_F4, values[i], -EOPNOTSUPP, "packed element: f4");
		scalar_refused(PINION_DTYPE_F6E2M3, values[i], -EOPNOTSUPP, "packed element: f6e2m3");
		scalar_refused(PINION_DTYPE_F6E3M2, values[i], -EOPNOTSUPP, "packed element: f6e3m2");
	}
}
END_TEST

/* The contract's formula as it stands; its rounding is half away from zero. */
START_TEST(exponent_scalar_is_round_log2)
{
	uint64_t state = 1;

	for (unsigned int i = 0; i < 100000; i++) {
		double value, x;

		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		value = ldexp(1 + (double)(state >> 12) / (double)(UINT64_C(1) << 52), (int)(state % 300) - 150);
		x = round(log2(value)) + 127;
		if (x < 0 || x > 254)
			scalar_refused(PINION_DTYPE_F8E8M0, value, -EINVAL, "f8e8m0 cannot represent");
		else
			ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, value).u8, (unsigned int)x);
	}
}
END_TEST

START_TEST(exponent_scalar_edges)
{
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, 0x1p-127).u8, 0);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, 0x1p127).u8, 254);

	/* Halfway on the logarithmic scale, not at 1.5, where pinion_f32_to_f8e8m0() goes up. */
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, 1.4142135623730949).u8, 127);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, 1.4142135623730951).u8, 128);
	ck_assert_uint_eq(pinion_f32_to_f8e8m0(1.45f), 127);
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, 0.7071067811865476 * 0x1p-127).u8, 0);
	scalar_refused(PINION_DTYPE_F8E8M0, 0.70710678118654 * 0x1p-127, -EINVAL, "X would be -1");
	ck_assert_uint_eq(scalar_of(PINION_DTYPE_F8E8M0, 1.4142135623730949 * 0x1p127).u8, 254);
	scalar_refused(PINION_DTYPE_F8E8M0, 1.4142135623730951 * 0x1p127, -EINVAL, "X would be 255");

	scalar_refused(PINION_DTYPE_F8E8M0, -1, -EINVAL, "finite number over 0");
	scalar_refused(PINION_DTYPE_F8E8M0, NAN, -EINVAL, "finite number over 0");
	scalar_refused(PINION_DTYPE_F8E8M0, INFINITY, -EINVAL, "finite number over 0");
	scalar_refused(PINION_DTYPE_F8E8M0, 0x1p-1074, -EINVAL, "f8e8m0 cannot represent");
}
END_TEST

static Suite *dtype_suite(void)
{
	Suite *s = suite_create("dtype");
	TCase *tc = tcase_create("dtype");

	tcase_add_test(tc, table_is_the_contracts);
	tcase_add_test(tc, no_other_code);
	tcase_add_test(tc, parses_its_own_names);
	tcase_add_test(tc, parses_nothing_else);
	tcase_add_test(tc, sizes);
	tcase_add_test(tc, sub_byte_dtypes_have_no_size);
	tcase_add_test(tc, types_of_files_map_to_dtypes_and_back);
	tcase_add_test(tc, types_without_a_dtype);
	tcase_add_test(tc, dtypes_without_a_type);
	tcase_add_test(tc, scalars_of_integers);
	tcase_add_test(tc, scalars_of_floats);
	tcase_add_test(tc, zero_and_one);
	tcase_add_test(tc, packed_dtypes_have_no_scalars);
	tcase_add_test(tc, exponent_scalar_is_round_log2);
	tcase_add_test(tc, exponent_scalar_edges);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(dtype_suite)
