/* SPDX-License-Identifier: MIT */
/* The block that another process hands over: nothing in it is believed unseen. */
#include "index_files.h"

#include <stddef.h>

static struct index_block *sample_block(unsigned int which)
{
	static const struct part parts[] = {{MIB, false}, {3, false}, {0, false}, {100, true}};
	struct file f = {0};
	struct index_block *b;

	if (which == 0)
		return LOAD_PARTS(parts, 0);
	gguf(&f, 3, 3, 2);
	put_label(&f, "general.architecture", "arch");
	put_label(&f, "general.name", "name");
	put_tensor(&f, "b", PINION_TYPE_Q8_0, 64, 2, UINT64_C(32), UINT64_C(3));
	put_tensor(&f, "a", PINION_TYPE_F16, 0, 0);
	put_tensor(&f, "ba", PINION_TYPE_F32, 32, 1, UINT64_C(0));
	f.sparse = up(f.bytes, 32) + 64 + 3 * 34;
	b = file_loads(&f);
	free(f.data);
	return b;
}

/* index_check() of a copy that ends where its memory ends, so that a read past it is seen. */
static bool believed(const struct index_block *b, uint64_t bytes)
{
	struct index_block *copy = malloc(bytes ? bytes : 1);
	int ret;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, b, bytes);
	ret = index_check(copy, bytes);
	if (!ret)
		walk(copy);
	else
		ck_assert_int_eq(ret, -EPROTO);
	free(copy);
	return !ret;
}

START_TEST(check_any_byte)
{
	static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
	struct index_block *b = sample_block(_i);
	unsigned char *byte = (unsigned char *)b;
	uint64_t bytes = b->bytes;

	ck_assert(believed(b, bytes));
	for (uint64_t at = 0; at < bytes; at++) {
		unsigned char was = byte[at];

		for (unsigned int bit = 0; bit < 8; bit++) {
			byte[at] = was ^ 1u << bit;
			believed(b, bytes);
		}
		for (size_t i = 0; i < sizeof(values); i++) {
			byte[at] = values[i];
			believed(b, bytes);
		}
		byte[at] = was;
	}
	ck_assert(believed(b, bytes));
	free(b);
}
END_TEST

START_TEST(check_any_size)
{
	struct index_block *b = sample_block(_i);
	uint64_t whole = b->bytes;

	for (uint64_t bytes = 0; bytes < whole; bytes++) {
		b->bytes = whole;
		ck_assert(!believed(b, bytes));
		/* Shorter strings may be believed where they still end. */
		b->bytes = bytes;
		if (believed(b, bytes))
			ck_assert_uint_gt(bytes, b->strings);
	}
	free(b);
}
END_TEST

/* Several changes at once, mostly where they do not break the plainest checks. */
START_TEST(check_many_bytes)
{
	struct index_block *b = sample_block(_i), *changed;
	uint64_t bytes = b->bytes, first = offsetof(struct index_block, file_bytes);
	unsigned int seed = 1;

	changed = malloc(bytes);
	ck_assert_ptr_nonnull(changed);
	for (unsigned int round = 0; round < 50000; round++) {
		memcpy(changed, b, bytes);
		for (unsigned int n = rand_r(&seed) % 4 + 1; n; n--)
			((unsigned char *)changed)[first + rand_r(&seed) % (bytes - first)] = rand_r(&seed) >> 7;
		believed(changed, bytes);
	}
	free(changed);
	free(b);
}
END_TEST

#define OF_BLOCK(field, change, why)                                                                                   \
	{                                                                                                              \
		offsetof(struct index_block, field), sizeof(((struct index_block *)0)->field), change, why             \
	}
#define OF_SHARD(field, change, why)                                                                                   \
	{                                                                                                              \
		sizeof(struct index_block) + offsetof(struct index_shard, field),                                      \
			sizeof(((struct index_shard *)0)->field), change, why                                          \
	}
#define OF_TENSOR(field, change, why)                                                                                  \
	{                                                                                                              \
		sizeof(struct index_block) + sizeof(struct index_shard) + offsetof(struct index_tensor, field),        \
			sizeof(((struct index_tensor *)0)->field), change, why                                         \
	}

/* What is added to one field of the safetensors sample, whose first tensor is 1 MiB that is not moved. */
static const struct {
	size_t at, bytes;
	uint64_t add;
	const char *why;
} bad_field[] = {
	OF_BLOCK(magic, 1, "its magic"),
	OF_BLOCK(bytes, 1, "its size"),
	OF_BLOCK(bytes, -UINT64_C(1), "its size"),
	OF_BLOCK(format, 1, "format 3 is not known"),
	OF_BLOCK(format, -UINT64_C(1), "is not one of its format"),
	OF_BLOCK(shard_count, -UINT64_C(1), "it counts 0 files"),
	OF_BLOCK(shard_count, 1, "its parts"),
	OF_BLOCK(shard_count, INDEX_SHARDS_MAX, "it counts 65536 files"),
	OF_BLOCK(file_bytes, 1, "its files have 4 in"),
	OF_BLOCK(claimed_bytes, UINT64_C(1) << 63, "the bytes it claims"),
	OF_BLOCK(shards, 8, "its parts"),
	OF_SHARD(version, 3, "file 0: version 3 with alignment 0 is not one of its format"),
	OF_SHARD(alignment, 32, "is not one of its format"),
	OF_SHARD(reserved, 1, "file 0: its SHA-256 is none"),
	OF_SHARD(sha256[0], 'a', "file 0: its SHA-256 is none"),
	OF_SHARD(outside, 2, "file 0: its tensors"),
	OF_SHARD(first, 1, "file 0: its tensors are 4 from 1 on"),
	OF_SHARD(count, 1, "file 0: its tensors are 5 from 0 on"),
	OF_SHARD(count, -UINT64_C(1), "its files have 3 in"),
	OF_SHARD(name, UINT64_C(1) << 63, "file 0: its name is at"),
	OF_SHARD(name, 4096, "file 0: its name is at"),
	OF_SHARD(stamp.bytes, UINT64_C(1) << 63, "a file of 9223372036"),
	OF_SHARD(stamp.bytes, 1, "its files have 4 in"),
	OF_SHARD(data_offset, 64, "tensor 0: it is at"),
	OF_SHARD(data_offset, UINT64_C(1) << 40, "its data begins at"),
	OF_BLOCK(tensor_bytes, 1, "its tensors have 1048679 and 100"),
	OF_BLOCK(moved_bytes, 1, "its tensors have 1048679 and 100"),
	OF_BLOCK(buffer_bytes, UINT64_C(1) << 63, "its buffer has"),
	OF_BLOCK(buffer_bytes, -UINT64_C(1), "tensor 3: needs 100 bytes at offset"),
	OF_BLOCK(architecture, UINT64_C(1) << 63, "the architecture is at"),
	OF_BLOCK(architecture, -UINT64_C(1), "the architecture is at"),
	OF_BLOCK(architecture, 4096, "the architecture is at"),
	OF_BLOCK(model_name, UINT64_C(1) << 63, "the model's name is at"),
	OF_BLOCK(tensor_count, 1, "its parts for 5 tensors"),
	OF_BLOCK(tensor_count, -UINT64_C(1), "its parts for 3 tensors"),
	OF_BLOCK(tensor_count, UINT64_C(1) << 32, "it counts 4294967300 tensors"),
	OF_BLOCK(tensors, 8, "its parts"),
	OF_BLOCK(by_name, 4, "its parts"),
	OF_BLOCK(strings, 1, "its parts"),
	OF_TENSOR(name, UINT64_C(1) << 63, "tensor 0: its name of 2 bytes is at"),
	OF_TENSOR(name, 1, "tensor 0: its name has a control character"),
	OF_TENSOR(name, 3, "does not come after the one before it"),
	OF_TENSOR(name, 4096, "tensor 0: its name of 2 bytes is at"),
	OF_TENSOR(name_bytes, 1, "tensor 0: its name has a control character"),
	OF_TENSOR(name_bytes, -UINT64_C(1), "tensor 0: its name has a control character"),
	OF_TENSOR(name_bytes, -UINT64_C(2), "tensor 0: its name of 0 bytes"),
	OF_TENSOR(name_bytes, 1022, "tensor 0: its name of 1024 bytes"),
	OF_TENSOR(type, 1, "tensor 0: its shape needs 2097152 bytes, it has 1048576"),
	OF_TENSOR(type, 100, "tensor 0: type 357 is not known"),
	OF_TENSOR(type, PINION_TYPE_Q8_0 - PINION_TYPE_U8, "tensor 0: safetensors has no type q8_0"),
	OF_TENSOR(rank, 8, "tensor 0: its rank is 9, at most 8"),
	OF_TENSOR(rank, -UINT64_C(1), "tensor 0: dimension 0 beyond its rank is 1048576"),
	OF_TENSOR(shard, 1, "tensor 0: it is one of file 0, not of 1"),
	OF_TENSOR(reserved, 1, "tensor 0: it is one of file 0"),
	OF_TENSOR(moved, 1, "tensor 0: it cannot be at 320 of the buffer"),
	OF_TENSOR(moved, 2, "tensor 0: moved is 2"),
	OF_TENSOR(shape[0], 1, "tensor 0: its shape needs 1048577 bytes, it has 1048576"),
	OF_TENSOR(shape[0], UINT64_C(1) << 63, "tensor 0: its number of elements overflows"),
	OF_TENSOR(shape[1], 1, "tensor 0: dimension 1 beyond its rank is 2"),
	OF_TENSOR(shape[7], -UINT64_C(1), "tensor 0: dimension 7 beyond its rank is 0"),
	OF_TENSOR(bytes, 1, "tensor 0: its shape needs 1048576 bytes, it has 1048577"),
	OF_TENSOR(file_offset, 1, "tensor 0: it cannot be at"),
	OF_TENSOR(file_offset, INDEX_BLOCK, "tensor 0: needs 1048576 bytes at offset"),
	OF_TENSOR(file_offset, -(uint64_t)INDEX_BLOCK, "tensor 0: needs 1048576 bytes at offset"),
	OF_TENSOR(offset, 1, "tensor 0: it cannot be at"),
	OF_TENSOR(offset, UINT64_C(1) << 62, "tensor 0: needs 1048576 bytes at offset"),
	OF_TENSOR(offset, MIB, "tensor 0: needs 1048576 bytes at offset"),
};

START_TEST(check_one_field)
{
	struct index_block *b = sample_block(0);
	unsigned char *field = (unsigned char *)b + bad_field[_i].at;
	uint64_t bytes = b->bytes, value = 0;

	memcpy(&value, field, bad_field[_i].bytes);
	value += bad_field[_i].add;
	memcpy(field, &value, bad_field[_i].bytes);
	ck_assert_int_eq(index_check(b, bytes), -EPROTO);
	ck_assert_msg(strstr(pinion_error(), bad_field[_i].why) != NULL, "'%s' lacks '%s'", pinion_error(),
		      bad_field[_i].why);
	free(b);
}
END_TEST

START_TEST(check_name_order)
{
	struct index_block *b = sample_block(1);
	uint32_t *by_name = (uint32_t *)((char *)b + b->by_name), was = by_name[1];
	unsigned char *text = (unsigned char *)b;

	by_name[1] = 3;
	ck_assert_int_eq(index_check(b, b->bytes), -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "name 1 is of tensor 3 of 3"));
	by_name[1] = by_name[0];
	ck_assert_int_eq(index_check(b, b->bytes), -EPROTO);
	by_name[1] = by_name[2];
	by_name[2] = was;
	ck_assert_int_eq(index_check(b, b->bytes), -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "name 2 does not come after the one before it"));
	by_name[2] = by_name[1];
	by_name[1] = was;
	ck_ok(index_check(b, b->bytes));
	text[b->bytes - 1] = 'x';
	ck_assert_int_eq(index_check(b, b->bytes), -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "its last string does not end"));
	ck_assert_int_eq(index_check(text + 1, b->bytes - 1), -EPROTO);
	free(b);
}
END_TEST

static Suite *index_check_suite(void)
{
	Suite *suite = suite_create("index_check");
	TCase *tcase = tcase_create("index_check");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, check_any_byte, 0, 2);
	tcase_add_loop_test(tcase, check_any_size, 0, 2);
	tcase_add_loop_test(tcase, check_many_bytes, 0, 2);
	tcase_add_loop_test(tcase, check_one_field, 0, LENGTH(bad_field));
	tcase_add_test(tcase, check_name_order);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(index_check_suite)
