/* SPDX-License-Identifier: MIT */
/* GGUF: what loads and what is refused, field by field. */
#include "index_files.h"

START_TEST(gguf_head)
{
	struct file f = {0};
	struct index_block *b;

	for (uint32_t version = 2; version <= 3; version++) {
		gguf(&f, version, 1, 0);
		end_gguf(&f);
		b = file_loads(&f);
		ck_assert_uint_eq(index_shards(b)->version, version);
		expect_tensor(b, "t", PINION_TYPE_F32, 4, 16, 64);
		free(b);
	}
	gguf(&f, 1, 1, 0);
	end_gguf(&f);
	file_refused(&f, "version 1 of GGUF, only 2 and 3 are read");
	gguf(&f, 0, 1, 0);
	end_gguf(&f);
	file_refused(&f, "version 0 of GGUF");
	gguf(&f, __builtin_bswap32(3), __builtin_bswap64(1), 0);
	end_gguf(&f);
	file_refused(&f, "a big-endian GGUF file (version 3), only little-endian ones are read");
	memcpy(f.data, "FUGG", 4);
	file_refused(&f, "a big-endian GGUF file (magic 'FUGG')");
	gguf(&f, 3, 5, 0);
	put_zeros(&f, 32);
	file_refused(&f, "the tensor count is 5, of at least 8 bytes each; the file has 32 left, room for 4");
	gguf(&f, 3, 0, UINT64_MAX);
	put_zeros(&f, 32);
	file_refused(&f, "the key count is 18446744073709551615, of at least 13 bytes each; the file has 32 left");
	free(f.data);
}
END_TEST

/* Each type of value once, bare and in an array, and arrays in arrays as deep as is allowed. */
START_TEST(gguf_values_are_skipped)
{
	static const unsigned int bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
	struct file f = {0};
	struct index_block *b;

	gguf(&f, 3, 1, 12 + 12 + 1);
	for (uint32_t type = 0; type <= 12; type++) {
		if (type == 9)
			continue;
		put_key(&f, "bare", type);
		if (type == 8)
			put_string(&f, "text");
		else
			put_zeros(&f, bytes[type]);
		put_key(&f, "array", 9);
		put_u32(&f, type);
		put_u64(&f, 3);
		for (int i = 0; i < 3; i++)
			if (type == 8)
				put_string(&f, "three");
			else
				put_zeros(&f, bytes[type]);
	}
	put_key(&f, "deep", 9);
	for (int depth = 1; depth < 4; depth++) {
		put_u32(&f, 9);
		put_u64(&f, 1);
	}
	put_u32(&f, 8);
	put_u64(&f, 2);
	put_string(&f, "a");
	put_string(&f, "");
	end_gguf(&f);
	b = file_loads(&f);
	ck_assert_uint_eq(b->tensor_count, 1);
	free(b);
	free(f.data);
}
END_TEST

static void nested(struct file *f, int depth)
{
	gguf(f, 3, 0, 1);
	put_key(f, "deep", 9);
	for (int i = 1; i < depth; i++) {
		put_u32(f, 9);
		put_u64(f, 1);
	}
	put_u32(f, 0);
	put_u64(f, 0);
}

START_TEST(gguf_values_refused)
{
	struct file f = {0};

	nested(&f, 5);
	file_refused(&f, "key 'deep': arrays are nested more than 4 deep");
	nested(&f, 1000);
	file_refused(&f, "key 'deep': arrays are nested more than 4 deep");
	gguf(&f, 3, 0, 1);
	put_key(&f, "k", 13);
	put_u64(&f, 0);
	file_refused(&f, "key 'k': value type 13 is not known");
	gguf(&f, 3, 0, 1);
	put_key(&f, "k", 9);
	put_u32(&f, 13);
	put_u64(&f, 0);
	file_refused(&f, "key 'k': value type 13 is not known");
	gguf(&f, 3, 0, 1);
	put_key(&f, "k", 9);
	put_u32(&f, 10);
	put_u64(&f, 1ull << 61);
	file_refused(&f, "key 'k': the size of an array of 2305843009213693952 elements overflows");
	gguf(&f, 3, 0, 1);
	put_key(&f, "k", 9);
	put_u32(&f, 10);
	put_u64(&f, 2);
	put_u64(&f, 0);
	file_refused(&f, "key 'k': an array needs 16 bytes at offset 49, the file has 57");
	gguf(&f, 3, 0, 1);
	put_key(&f, "k", 9);
	put_u32(&f, 8);
	put_u64(&f, 1ull << 40);
	put_string(&f, "a");
	file_refused(&f, "key 'k': the length of a string needs 8 bytes at offset 58, the file has 58");
	gguf(&f, 3, 0, 1);
	put_key(&f, "k", 8);
	put_u64(&f, UINT64_MAX);
	file_refused(&f, "key 'k': a string needs 18446744073709551615 bytes at offset 45, the file has 45");
	gguf(&f, 3, 0, 1);
	put_u64(&f, 65536);
	put_zeros(&f, 70000);
	file_refused(&f, "key 0: the length of its name is 65536, at most 65535 is allowed");
	gguf(&f, 3, 0, 1);
	put_key(&f, "\033[2Jk\n", 99);
	put_u64(&f, 0);
	file_refused(&f, "key '?[2Jk?': value type 99");
	free(f.data);
}
END_TEST

/* A list of empty strings as long as a sparse file makes believe costs no more than the bound of a header. */
START_TEST(gguf_header_bound)
{
	struct file f = {0};

	gguf(&f, 3, 0, 1);
	put_key(&f, "k", 9);
	put_u32(&f, 8);
	put_u64(&f, 1ull << 40);
	f.sparse = 1ull << 40;
	file_refused(&f,
		     "key 'k': the length of a string needs 8 bytes at offset 268435449, a header may have 268435456");
	free(f.data);
}
END_TEST

START_TEST(gguf_alignment)
{
	static const uint32_t good[] = {8, 16, 32, 64, 4096, 8192, 1u << 20};
	static const uint32_t wrong[] = {0, 1, 3, 4, 24, 33, 1u << 21, 1u << 31, UINT32_MAX};
	struct file f = {0};
	struct index_block *b;
	char why[128];

	for (size_t i = 0; i < LENGTH(good); i++) {
		gguf(&f, 3, 1, 1);
		put_key_u32(&f, "general.alignment", good[i]);
		put_tensor(&f, "t", PINION_TYPE_F32, good[i], 1, UINT64_C(4));
		f.sparse = up(f.bytes, good[i]) + good[i] + 16;
		b = file_loads(&f);
		ck_assert_uint_eq(index_shards(b)->alignment, good[i]);
		expect_tensor(b, "t", PINION_TYPE_F32, 4, 16, f.sparse - 16);
		ck_assert_uint_eq(index_tensors(b)->offset % good[i], 0);
		free(b);
	}
	for (size_t i = 0; i < LENGTH(wrong); i++) {
		gguf(&f, 3, 1, 1);
		put_key_u32(&f, "general.alignment", wrong[i]);
		end_gguf(&f);
		snprintf(why, sizeof(why), "key 'general.alignment' is %" PRIu32 ", it must be a power of two",
			 wrong[i]);
		file_refused(&f, why);
	}
	gguf(&f, 3, 1, 1);
	put_key(&f, "general.alignment", 10);
	put_u64(&f, 32);
	end_gguf(&f);
	file_refused(&f, "key 'general.alignment' has value type 10, it must be a uint32 (4)");
	gguf(&f, 3, 1, 2);
	put_key_u32(&f, "general.alignment", 32);
	put_key_u32(&f, "general.alignment", 64);
	end_gguf(&f);
	file_refused(&f, "key 'general.alignment' is there twice");
	gguf(&f, 3, 1, 0);
	put_tensor(&f, "t", PINION_TYPE_F32, 16, 1, UINT64_C(4));
	put_zeros(&f, 128);
	file_refused(&f, "tensor 't': its offset 16 is not a multiple of general.alignment, 32");
	gguf(&f, 3, 1, 0);
	put_tensor(&f, "t", PINION_TYPE_F32, -UINT64_C(32), 1, UINT64_C(4));
	put_zeros(&f, 128);
	file_refused(&f, "tensor 't': its offset 18446744073709551584 overflows");
	free(f.data);
}
END_TEST

START_TEST(gguf_labels)
{
	char text[301];
	struct file f = {0};
	struct index_block *b;

	gguf(&f, 3, 1, 2);
	put_label(&f, "general.architecture", "llama");
	put_label(&f, "general.name", "A\tname\nof \xc3\xa4");
	end_gguf(&f);
	b = file_loads(&f);
	ck_assert_str_eq(index_string(b, b->architecture), "llama");
	ck_assert_str_eq(index_string(b, b->model_name), "A?name?of \xc3\xa4");
	free(b);

	memset(text, 'x', 300);
	text[300] = '\0';
	gguf(&f, 3, 1, 1);
	put_label(&f, "general.name", text);
	end_gguf(&f);
	b = file_loads(&f);
	ck_assert_uint_eq(strlen(index_string(b, b->model_name)), 255);
	ck_assert_str_eq(index_string(b, b->architecture), "");
	free(b);

	/* The cut falls into a character of four bytes, which then goes whole. */
	memcpy(text + 253, "\xf0\x9f\x98\x80", 4);
	gguf(&f, 3, 1, 1);
	put_label(&f, "general.name", text);
	end_gguf(&f);
	b = file_loads(&f);
	ck_assert_uint_eq(strlen(index_string(b, b->model_name)), 253);
	free(b);

	gguf(&f, 3, 1, 1);
	put_key_u32(&f, "general.name", 7);
	end_gguf(&f);
	file_refused(&f, "key 'general.name' has value type 4, it must be a string (8)");
	gguf(&f, 3, 1, 2);
	put_label(&f, "general.architecture", "a");
	put_label(&f, "general.architecture", "b");
	end_gguf(&f);
	file_refused(&f, "key 'general.architecture' is there twice");
	free(f.data);
}
END_TEST

START_TEST(gguf_names)
{
	char name[1025];
	struct file f = {0};
	struct index_block *b;

	memset(name, 'n', 1024);
	name[1024] = '\0';
	gguf(&f, 3, 1, 0);
	put_tensor(&f, name, PINION_TYPE_F32, 0, 1, UINT64_C(4));
	f.sparse = up(f.bytes, 32) + 16;
	file_refused(&f, "tensor 0: the length of its name is 1024, 1 to 1023 is allowed");
	name[1023] = '\0';
	gguf(&f, 3, 1, 0);
	put_tensor(&f, name, PINION_TYPE_F32, 0, 1, UINT64_C(4));
	f.sparse = up(f.bytes, 32) + 16;
	b = file_loads(&f);
	expect_tensor(b, name, PINION_TYPE_F32, 4, 16, f.sparse - 16);
	free(b);
	f.sparse--;
	file_refused(&f, "needs 16 bytes at offset 1088 of the file, which has 1103");

	gguf(&f, 3, 1, 0);
	put_tensor(&f, "", PINION_TYPE_F32, 0, 1, UINT64_C(4));
	put_zeros(&f, 64);
	file_refused(&f, "tensor 0: the length of its name is 0, 1 to 1023 is allowed");
	gguf(&f, 3, 1, 0);
	put_tensor(&f, "a\nb", PINION_TYPE_F32, 0, 1, UINT64_C(4));
	put_zeros(&f, 64);
	file_refused(&f, "tensor 'a?b': its name has a control character");
	f.data[24 + 8 + 1] = '\0';
	file_refused(&f, "tensor 'a?b': its name has a control character");
	gguf(&f, 3, 3, 0);
	put_tensor(&f, "same", PINION_TYPE_F32, 0, 1, UINT64_C(4));
	put_tensor(&f, "other", PINION_TYPE_F32, 32, 1, UINT64_C(4));
	put_tensor(&f, "same", PINION_TYPE_F32, 64, 1, UINT64_C(4));
	put_zeros(&f, 256);
	file_refused(&f, "tensor 'same' is there twice");
	free(f.data);
}
END_TEST

START_TEST(gguf_shapes)
{
	struct file f = {0};
	struct index_block *b;
	struct pinion_tensor t;

	gguf(&f, 3, 4, 0);
	put_tensor(&f, "scalar", PINION_TYPE_F32, 0, 0);
	put_tensor(&f, "four", PINION_TYPE_Q8_0, 32, 4, UINT64_C(32), UINT64_C(2), UINT64_C(1), UINT64_C(3));
	put_tensor(&f, "none", PINION_TYPE_Q8_0, 32, 2, UINT64_C(0), UINT64_C(1) << 62);
	put_tensor(&f, "nil", PINION_TYPE_F32, 64, 2, UINT64_C(7), UINT64_C(0));
	f.sparse = up(f.bytes, 32) + 32 + 6 * 34;
	b = file_loads(&f);
	index_describe(b, index_find(b, "scalar"), &t);
	ck_assert(t.rank == 0 && t.bytes == 4 && t.shape[0] == 1);
	index_describe(b, index_find(b, "four"), &t);
	ck_assert(t.rank == 4 && t.bytes == 6 * 34 && t.shape[0] == 32 && t.shape[1] == 2 && t.shape[2] == 1 &&
		  t.shape[3] == 3);
	index_describe(b, index_find(b, "none"), &t);
	ck_assert(t.rank == 2 && t.bytes == 0 && t.offset == 0);
	index_describe(b, index_find(b, "nil"), &t);
	ck_assert(t.rank == 2 && t.bytes == 0 && t.offset == 0);
	free(b);

	gguf(&f, 3, 1, 0);
	put_tensor(&f, "t", PINION_TYPE_F32, 0, 5, UINT64_C(1), UINT64_C(1), UINT64_C(1), UINT64_C(1), UINT64_C(1));
	put_zeros(&f, 64);
	file_refused(&f, "tensor 't': its rank is 5, at most 4 is allowed");
	gguf(&f, 3, 1, 0);
	put_tensor(&f, "t", PINION_TYPE_Q8_0, 0, 0);
	put_zeros(&f, 64);
	file_refused(&f, "tensor 't': its rows of 1 elements are not whole blocks of q8_0");
	/* 2^62 elements of eight bytes wrap; with a dimension of 0 no order of multiplying may. */
	gguf(&f, 3, 1, 0);
	put_tensor(&f, "t", PINION_TYPE_F64, 0, 1, UINT64_C(1) << 62);
	put_zeros(&f, 64);
	file_refused(&f, "tensor 't': its size in bytes overflows, shape [4611686018427387904] of f64");
	gguf(&f, 3, 1, 0);
	put_tensor(&f, "t", PINION_TYPE_F64, 0, 1, UINT64_C(1) << 60);
	put_zeros(&f, 64);
	file_refused(&f, "tensor 't': its size in bytes overflows");
	gguf(&f, 3, 1, 0);
	put_tensor(&f, "t", PINION_TYPE_F32, 0, 3, UINT64_C(0), UINT64_C(1) << 40, UINT64_C(1) << 40);
	put_zeros(&f, 64);
	file_refused(&f, "tensor 't': its number of elements overflows");
	free(f.data);
}
END_TEST

START_TEST(gguf_places)
{
	struct file f = {0};
	struct index_block *b;

	/* In the file in another order than in the header, with a hole between and bytes after the last. */
	gguf(&f, 3, 2, 0);
	put_tensor(&f, "late", PINION_TYPE_F32, 96, 1, UINT64_C(4));
	put_tensor(&f, "early", PINION_TYPE_F32, 0, 1, UINT64_C(4));
	pad(&f, 32);
	f.sparse = f.bytes + 4096;
	b = file_loads(&f);
	ck_assert_str_eq(index_string(b, index_tensors(b)[0].name), "early");
	ck_assert_uint_eq(b->buffer_bytes, index_shards(b)->data_offset + 96 + 16);
	ck_assert_uint_eq(b->tensor_bytes, 32);
	free(b);

	gguf(&f, 3, 2, 0);
	put_tensor(&f, "a", PINION_TYPE_F32, 32, 1, UINT64_C(4));
	put_tensor(&f, "b", PINION_TYPE_F32, 0, 1, UINT64_C(9));
	pad(&f, 32);
	put_zeros(&f, 256);
	file_refused(&f, "tensor 'a' begins at offset 128 of the file and overlaps tensor 'b', which ends at 132");

	/* Without tensors the file may end before the padding. */
	gguf(&f, 3, 0, 1);
	put_key_u32(&f, "k", 1);
	b = file_loads(&f);
	ck_assert_uint_eq(b->tensor_count, 0);
	ck_assert_uint_eq(index_shards(b)->data_offset, f.bytes);
	ck_assert_uint_eq(b->buffer_bytes, 1);
	free(b);
	free(f.data);
}
END_TEST

START_TEST(gguf_types)
{
	struct file f = {0};
	struct index_block *b;
	unsigned int known = 0;
	char why[64];

	for (uint32_t code = 0; code < 300; code++) {
		const struct pinion_type_info *type = code < PINION_TYPE_BOOL ? pinion_type_info(code) : NULL;
		uint64_t elements = type ? type->block_elems : 1;

		gguf(&f, 3, 1, 0);
		put_tensor(&f, "t", code, 0, 1, elements);
		f.sparse = 64 + (type ? type->block_bytes : 4);
		if (type) {
			b = file_loads(&f);
			expect_tensor(b, "t", code, elements, type->block_bytes, 64);
			free(b);
			known++;
		} else {
			snprintf(why, sizeof(why), "tensor 't': type %" PRIu32 " is not known", code);
			file_refused(&f, why);
		}
	}
	ck_assert_uint_eq(known, 35);
	free(f.data);
}
END_TEST

static Suite *gguf_suite(void)
{
	Suite *suite = suite_create("gguf");
	TCase *tcase = tcase_create("gguf");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, gguf_head);
	tcase_add_test(tcase, gguf_values_are_skipped);
	tcase_add_test(tcase, gguf_values_refused);
	tcase_add_test(tcase, gguf_header_bound);
	tcase_add_test(tcase, gguf_alignment);
	tcase_add_test(tcase, gguf_labels);
	tcase_add_test(tcase, gguf_names);
	tcase_add_test(tcase, gguf_shapes);
	tcase_add_test(tcase, gguf_places);
	tcase_add_test(tcase, gguf_types);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(gguf_suite)
