/* SPDX-License-Identifier: MIT */
/* safetensors: what loads and what is refused, key by key. */
#include "index_files.h"

static const struct dtype {
	const char *name;
	uint32_t type;
	unsigned int bytes;
} dtypes[] = {
	{"F64", PINION_TYPE_F64, 8},	     {"F32", PINION_TYPE_F32, 4},	  {"F16", PINION_TYPE_F16, 2},
	{"BF16", PINION_TYPE_BF16, 2},	     {"I64", PINION_TYPE_I64, 8},	  {"I32", PINION_TYPE_I32, 4},
	{"I16", PINION_TYPE_I16, 2},	     {"I8", PINION_TYPE_I8, 1},		  {"U8", PINION_TYPE_U8, 1},
	{"U16", PINION_TYPE_U16, 2},	     {"U32", PINION_TYPE_U32, 4},	  {"U64", PINION_TYPE_U64, 8},
	{"BOOL", PINION_TYPE_BOOL, 1},	     {"F8_E4M3", PINION_TYPE_F8_E4M3, 1}, {"F8_E5M2", PINION_TYPE_F8_E5M2, 1},
	{"F8_E8M0", PINION_TYPE_F8_E8M0, 1},
};

START_TEST(safetensors_dtypes)
{
	const struct dtype *d = &dtypes[_i];
	struct file f = {0};
	struct index_block *b;
	char json[128];

	snprintf(json, sizeof(json), "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%u]}}", d->name,
		 3 * d->bytes);
	safetensors(&f, json, 3 * d->bytes);
	b = file_loads(&f);
	expect_tensor(b, "t", d->type, 3, 3 * d->bytes, f.bytes);
	ck_assert_uint_eq(b->format, INDEX_SAFETENSORS);
	ck_assert(index_shards(b)->version == 0 && index_shards(b)->alignment == 0);
	free(b);
	free(f.data);
}
END_TEST

#define ENTRY(name, dtype, shape, offsets)                                                                             \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

START_TEST(safetensors_forms)
{
	struct file f = {0};
	struct index_block *b;
	struct pinion_tensor t;

	safetensors(&f, "{}", 0);
	b = file_loads(&f);
	ck_assert_uint_eq(b->tensor_count, 0);
	ck_assert_uint_eq(b->buffer_bytes, 1);
	free(b);

	/* White space, escapes, metadata between, entries in another order than the data, keys in another order. */
	safetensors(&f,
		    "{\n\t\"\\u00e4\\\"\" : { \"data_offsets\" : [ 4 , 12 ] , \"shape\" : [ 2 , 1 ] ,"
		    " \"dtype\" : \"F32\" } ,"
		    "\"__metadata__\":{\"format\":\"pt\",\"\":\"a\\nb\"}," ENTRY("first", "F32", "", "0,4") "} \r\n",
		    12);
	b = file_loads(&f);
	ck_assert_uint_eq(b->tensor_count, 2);
	ck_assert_str_eq(index_string(b, index_tensors(b)[0].name), "first");
	index_describe(b, 0, &t);
	ck_assert(t.rank == 0 && t.bytes == 4 && t.shape[0] == 1);
	index_describe(b, index_find(b, "\xc3\xa4\""), &t);
	ck_assert(t.rank == 2 && t.shape[0] == 2 && t.shape[1] == 1 && t.bytes == 8);
	free(b);

	/* Tensors without bytes lie where others begin or end. */
	safetensors(&f,
		    "{" ENTRY("t", "U8", "2", "0,2") "," ENTRY("z", "U8", "0", "0,0") ","
		    ENTRY("e", "F32", "4,0", "2,2") "}",
		    2);
	b = file_loads(&f);
	ck_assert_uint_eq(b->tensor_count, 3);
	ck_assert_uint_eq(b->moved_bytes, 2);
	free(b);

	safetensors(&f, "{" ENTRY("t", "U8", "1,1,1,1,1,1,1,2", "0,2") "}", 2);
	b = file_loads(&f);
	ck_assert_uint_eq(index_tensors(b)->rank, 8);
	free(b);
	free(f.data);
}
END_TEST

static const struct {
	const char *json;
	uint64_t data;
	const char *why;
} bad_json[] = {
	{"{" ENTRY("a", "F4", "2", "0,1") "}", 1, "tensor 'a': dtype 'F4' is not known"},
	{"{" ENTRY("a", "f32", "1", "0,4") "}", 4, "tensor 'a': dtype 'f32' is not known"},
	{"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor 'a': its dtype must be a string"},
	{"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor 'a': its entry has no dtype"},
	{"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "tensor 'a': its entry has no shape"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor 'a': its entry has no data_offsets"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
	 "tensor 'a': its entry has the key 'x'"},
	{"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "duplicate object key"},
	{"{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, "tensor 'a': its shape must be a list"},
	{"{" ENTRY("a", "U8", "1,1,1,1,1,1,1,1,1", "0,1") "}", 1, "tensor 'a': its rank is 9, at most 8"},
	{"{" ENTRY("a", "U8", "-1", "0,1") "}", 1, "tensor 'a': its shape must hold integers from 0 up"},
	{"{" ENTRY("a", "U8", "1.0", "0,1") "}", 1, "tensor 'a': its shape must hold integers from 0 up"},
	{"{" ENTRY("a", "U8", "9223372036854775807,3", "0,1") "}", 1, "tensor 'a': its number of elements overflows"},
	{"{" ENTRY("a", "U64", "9223372036854775807", "0,1") "}", 1, "tensor 'a': its size in bytes overflows"},
	{"{" ENTRY("a", "U8", "9223372036854775808", "0,1") "}", 1, "too big integer"},
	{"{" ENTRY("a", "U8", "1", "0") "}", 1, "tensor 'a': its data_offsets must be a list of two"},
	{"{" ENTRY("a", "U8", "1", "0,1,2") "}", 1, "tensor 'a': its data_offsets must be a list of two"},
	{"{" ENTRY("a", "U8", "1", "0,null") "}", 1, "tensor 'a': its data_offsets must hold integers"},
	{"{" ENTRY("a", "U8", "1", "1,0") "}", 1, "tensor 'a': its data_offsets begin at 1 and end before that, at 0"},
	{"{" ENTRY("a", "U8", "2", "0,1") "}", 1,
	 "tensor 'a': its shape and dtype need 2 bytes, its data_offsets have 1"},
	{"{" ENTRY("a", "U8", "2", "0,2") "}", 1, "tensor 'a': needs 2 bytes at offset 61 of the file, which has 62"},
	{"{" ENTRY("a", "U8", "2", "9223372036854775805,9223372036854775807") "}", 1,
	 "tensor 'a': needs 2 bytes at offset"},
	{"{" ENTRY("a", "U8", "1", "0,1") "," ENTRY("b", "U8", "1", "2,3") "}", 3,
	 "no tensor has the bytes from offset 114 of the file to 115"},
	{"{" ENTRY("a", "U8", "1", "1,2") "}", 2, "no tensor has the bytes from offset 61 of the file to 62"},
	{"{" ENTRY("a", "U8", "1", "0,1") "}", 9, "no tensor has the bytes from offset 62 of the file to 70"},
	{"{" ENTRY("a", "U8", "2", "0,2") "," ENTRY("b", "U8", "0", "1,1") "}", 2,
	 "tensor 'b' begins at offset 114 of the file and overlaps tensor 'a', which ends at 115"},
	{"{}", 1, "no tensor has the bytes from offset 10 of the file to 11"},
	{"{" ENTRY("", "U8", "1", "0,1") "}", 1, "the length of its name is 0"},
	{"{" ENTRY("a\\nb", "U8", "1", "0,1") "}", 1, "tensor 'a?b': its name has a control character"},
	{"{" ENTRY("a\\u0000b", "U8", "1", "0,1") "}", 1, "\\u0000 is not allowed"},
	{"{" ENTRY("a\xff", "U8", "1", "0,1") "}", 1, "unable to decode byte 0xff"},
	{"{\"a\":7}", 1, "tensor 'a': the JSON has byte 0x37 at offset 13 of the file where its entry is needed"},
	{"{\"a\"}", 1, "where ':' is needed"},
	{"{7:8}", 1, "the header: the JSON has byte 0x37 at offset 9 of the file where a tensor's name is needed"},
	{"{" ENTRY("a", "U8", "1", "0,1") " ", 1, "the JSON ends at offset 61 of the file where ',' or '}' is needed"},
	{"{" ENTRY("a", "U8", "1", "0,1") ",}", 1, "where a tensor's name is needed"},
	{"{" ENTRY("a", "U8", "1", "0,1") "}x", 1, "where nothing but white space is needed"},
	{"{\"a\":{\"dtype\":\"U8\"", 1, "tensor 'a': its entry at offset"},
	{"{\"__metadata__\":7}", 0, "__metadata__: the JSON has byte 0x37"},
	{"{\"__metadata__\":{\"a\":7}}", 0,
	 "__metadata__: the JSON has byte 0x37 at offset 29 of the file where a string"},
	{"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "__metadata__: key 'a' is there twice"},
	{"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ is there twice"},
	{" {}", 0, "neither GGUF"},
	{"", 0, "neither GGUF"},
};

START_TEST(safetensors_refused)
{
	struct file f = {0};

	safetensors(&f, bad_json[_i].json, bad_json[_i].data);
	file_refused(&f, bad_json[_i].why);
	free(f.data);
}
END_TEST

/* What a parser would make a tree of many times the text's size is refused by the size of its text. */
START_TEST(safetensors_bounds)
{
	struct file f = {0};
	size_t begin;

	put_u64(&f, 0);
	put(&f, "{\"a\":{\"x\":[", 11);
	for (unsigned int i = 0; i < 4 * MIB / 3; i++)
		put(&f, "[],", 3);
	put(&f, "1]}}", 4);
	begin = f.bytes - 8;
	memcpy(f.data, &begin, 8);
	file_refused(&f, "tensor 'a': its entry at offset 13 of the file takes more than 16384 bytes");
	if (!SANITIZED) {
		long ns;

		ck_assert_int_le(refuse_kib(save(&f), &ns), 4096 + 4096);
	}

	f.bytes = 8;
	put(&f, "{\"", 2);
	for (unsigned int i = 0; i < 10000; i++)
		put(&f, "n", 1);
	put(&f, "\":{}}", 5);
	begin = f.bytes - 8;
	memcpy(f.data, &begin, 8);
	file_refused(&f, "the header: a tensor's name at offset 9 of the file takes more than 8192 bytes");

	f.bytes = 8;
	put(&f, "{\"a\":", 5);
	for (unsigned int i = 0; i < 10000; i++)
		put(&f, "{\"a\":", 5);
	begin = f.bytes - 8;
	memcpy(f.data, &begin, 8);
	file_refused(&f, "tensor 'a': its entry at offset");

	f.bytes = 0;
	put_u64(&f, 100000001);
	put(&f, "{}", 2);
	f.sparse = 100000009;
	file_refused(&f, "the header's length is 100000001, at most 100000000 is allowed");
	f.sparse--;
	file_refused(&f, "its JSON needs 100000001 bytes at offset 8, the file has 100000008");
	free(f.data);
}
END_TEST

static Suite *safetensors_suite(void)
{
	Suite *suite = suite_create("safetensors");
	TCase *tcase = tcase_create("safetensors");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, safetensors_dtypes, 0, LENGTH(dtypes));
	tcase_add_test(tcase, safetensors_forms);
	tcase_add_loop_test(tcase, safetensors_refused, 0, LENGTH(bad_json));
	tcase_add_test(tcase, safetensors_bounds);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(safetensors_suite)
