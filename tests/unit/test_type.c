/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <pinion/type.h>

#define CODES 1024 /* tried one by one; well beyond the last type */

struct row {
	uint32_t code, block_elems, block_bytes, quantized;
	char name[32];
};

/* The rows of golden/ggml-types.tsv. */
static unsigned int rows_read(struct row *rows, unsigned int room)
{
	FILE *f = fopen(PINION_TEST_DATA "/golden/ggml-types.tsv", "r");
	unsigned int n = 0;
	char line[256];

	ck_assert_msg(f != NULL, "golden/ggml-types.tsv cannot be opened");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	ck_assert_str_eq(line, "code\tname\telements_per_block\tbytes_per_block\tquantized\n");
	while (fgets(line, sizeof(line), f)) {
		struct row *r = &rows[n++];

		ck_assert_uint_le(n, room);
		ck_assert_msg(sscanf(line, "%" SCNu32 "\t%31s\t%" SCNu32 "\t%" SCNu32 "\t%" SCNu32, &r->code, r->name,
				     &r->block_elems, &r->block_bytes, &r->quantized) == 5, "not a row: %s", line);
	}
	fclose(f);
	return n;
}

static void info_check(const struct row *r)
{
	const struct pinion_type_info *info = pinion_type_info(r->code);

	ck_assert_msg(info != NULL, "no type has code %" PRIu32 " (%s)", r->code, r->name);
	ck_assert_uint_eq(info->type, r->code);
	ck_assert_str_eq(info->name, r->name);
	ck_assert_uint_eq(info->block_elems, r->block_elems);
	ck_assert_uint_eq(info->block_bytes, r->block_bytes);
	ck_assert_uint_eq(info->quantized, r->quantized);
}

START_TEST(table_is_ggmls)
{
	struct row rows[64];
	unsigned int n = rows_read(rows, 64);

	ck_assert_uint_eq(n, 35);
	for (unsigned int i = 0; i < n; i++)
		info_check(&rows[i]);
}
END_TEST

static const struct row safetensors[] = {
	{ 256, 1, 1, 0, "bool" }, { 257, 1, 1, 0, "u8" }, { 258, 1, 2, 0, "u16" }, { 259, 1, 4, 0, "u32" },
	{ 260, 1, 8, 0, "u64" }, { 261, 1, 1, 0, "f8_e4m3" }, { 262, 1, 1, 0, "f8_e5m2" }, { 263, 1, 1, 0, "f8_e8m0" },
};

START_TEST(safetensors_types)
{
	for (unsigned int i = 0; i < sizeof(safetensors) / sizeof(safetensors[0]); i++)
		info_check(&safetensors[i]);
}
END_TEST

START_TEST(no_other_code)
{
	static const uint32_t none[] = { 4, 5, 31, 32, 33, 36, 37, 38, 43, 255, 264, 1 << 16, INT32_MAX, UINT32_MAX };
	unsigned int n = 0;

	for (uint32_t code = 0; code < CODES; code++)
		n += pinion_type_info(code) != NULL;
	ck_assert_uint_eq(n, 35 + 8);
	for (unsigned int i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		ck_assert_ptr_null(pinion_type_info(none[i]));
}
END_TEST

START_TEST(names_are_distinct)
{
	for (uint32_t a = 0; a < CODES; a++)
		for (uint32_t b = a + 1; pinion_type_info(a) && b < CODES; b++)
			if (pinion_type_info(b))
				ck_assert_str_ne(pinion_type_info(a)->name, pinion_type_info(b)->name);
}
END_TEST

START_TEST(bytes_of_whole_blocks)
{
	uint64_t bytes = 1;

	ck_ok(pinion_type_bytes(PINION_TYPE_Q6_K, 0, &bytes));
	ck_assert_uint_eq(bytes, 0);
	ck_ok(pinion_type_bytes(PINION_TYPE_Q6_K, 2048 * 256, &bytes));
	ck_assert_uint_eq(bytes, 2048 * 210);
	ck_ok(pinion_type_bytes(PINION_TYPE_Q4_0, 32, &bytes));
	ck_assert_uint_eq(bytes, 18);
	ck_ok(pinion_type_bytes(PINION_TYPE_F16, 7, &bytes));
	ck_assert_uint_eq(bytes, 14);
	ck_ok(pinion_type_bytes(PINION_TYPE_U64, 3, &bytes));
	ck_assert_uint_eq(bytes, 24);
}
END_TEST

static void bytes_refused(uint32_t type, uint64_t elems, int err, const char *word)
{
	uint64_t bytes = 0x5a5a;

	ck_assert_int_eq(pinion_type_bytes(type, elems, &bytes), err);
	ck_assert_uint_eq(bytes, 0x5a5a);
	ck_assert_msg(strstr(pinion_error(), word) != NULL, "\"%s\" does not say %s", pinion_error(), word);
}

START_TEST(bytes_of_unknown_type)
{
	bytes_refused(4, 32, -EINVAL, "4");
	bytes_refused(UINT32_MAX, 0, -EINVAL, "4294967295");
}
END_TEST

START_TEST(bytes_of_partial_block)
{
	bytes_refused(PINION_TYPE_Q4_0, 31, -EINVAL, "q4_0");
	bytes_refused(PINION_TYPE_Q4_0, 33, -EINVAL, "q4_0");
	bytes_refused(PINION_TYPE_Q2_K, 128, -EINVAL, "q2_K");
	bytes_refused(PINION_TYPE_NVFP4, 32, -EINVAL, "nvfp4");
	bytes_refused(PINION_TYPE_Q8_0, UINT64_MAX, -EINVAL, "q8_0");
}
END_TEST

START_TEST(bytes_overflow)
{
	uint64_t bytes, last = UINT64_MAX / 34;

	ck_ok(pinion_type_bytes(PINION_TYPE_U8, UINT64_MAX, &bytes));
	ck_assert_uint_eq(bytes, UINT64_MAX);
	bytes_refused(PINION_TYPE_U16, UINT64_C(1) << 63, -EOVERFLOW, "u16");
	ck_ok(pinion_type_bytes(PINION_TYPE_F64, (UINT64_C(1) << 61) - 1, &bytes));
	ck_assert_uint_eq(bytes, UINT64_MAX - 7);
	bytes_refused(PINION_TYPE_F64, UINT64_C(1) << 61, -EOVERFLOW, "f64");

	/* q8_0 is the quantized type whose blocks have more bytes than elements. */
	ck_ok(pinion_type_bytes(PINION_TYPE_Q8_0, last * 32, &bytes));
	ck_assert_uint_eq(bytes, last * 34);
	bytes_refused(PINION_TYPE_Q8_0, (last + 1) * 32, -EOVERFLOW, "q8_0");

	/* The quotient comes before the product, so that what fits is not refused. */
	ck_ok(pinion_type_bytes(PINION_TYPE_Q4_0, UINT64_C(1) << 63, &bytes));
	ck_assert_uint_eq(bytes, (UINT64_C(1) << 58) * 18);
}
END_TEST

static Suite *type_suite(void)
{
	Suite *s = suite_create("type");
	TCase *tc = tcase_create("type");

	tcase_add_test(tc, table_is_ggmls);
	tcase_add_test(tc, safetensors_types);
	tcase_add_test(tc, no_other_code);
	tcase_add_test(tc, names_are_distinct);
	tcase_add_test(tc, bytes_of_whole_blocks);
	tcase_add_test(tc, bytes_of_unknown_type);
	tcase_add_test(tc, bytes_of_partial_block);
	tcase_add_test(tc, bytes_overflow);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(type_suite)
