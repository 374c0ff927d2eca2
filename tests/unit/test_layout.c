/* SPDX-License-Identifier: MIT */
/* Where a load would put each tensor. */
#include "index_files.h"

START_TEST(layout_as_in_the_file)
{
	static const struct part parts[] = {{64, false}, {0, false}, {128, false}, {5, false}, {0, false}};
	struct index_block *b = LOAD_PARTS(parts, 0);

	ck_assert_uint_eq(b->moved_bytes, 0);
	ck_assert_uint_eq(b->buffer_bytes, index_shards(b)->data_offset % INDEX_BLOCK + 64 + 128 + 5);
	free(b);
}
END_TEST

START_TEST(layout_all_moved)
{
	static const struct part parts[] = {{64, true}, {0, false}, {257, true}, {1, true}};
	struct index_block *b = LOAD_PARTS(parts, 8);

	ck_assert_uint_eq(b->moved_bytes, 64 + 257 + 1);
	ck_assert_uint_eq(b->buffer_bytes, 256 + 512 + 1);
	free(b);
}
END_TEST

START_TEST(layout_runs)
{
	static const struct part parts[] = {
		{2 * MIB, false},		    /* a run, and with it what begins where it ends */
		{3, false},	  {MIB, true},	    /* askew, however long */
		{61, true},	  {MIB / 2, false}, /* a run of just 1 MiB, one without bytes amid */
		{0, false},	  {MIB / 2, false}, {1, false},
		{63, true},	  {MIB - 64, true}, /* a run that is too short */
		{7, true},
	};
	struct index_block *b = LOAD_PARTS(parts, 0);

	ck_assert_uint_eq(b->moved_bytes, MIB + 61 + 63 + MIB - 64 + 7);
	free(b);
}
END_TEST

START_TEST(layout_run_between_blocks)
{
	/* The run begins and ends inside blocks that also hold others, which are read elsewhere. */
	static const struct part parts[] = {{63, true},	 {1, true},   {MIB + 4096, false},
					    {65, false}, {100, true}, {3, true}};
	struct index_block *b = LOAD_PARTS(parts, 0);
	const struct index_tensor *t = index_tensors(b);

	/* t0 is at a multiple of 64 too, but its run is short: t1 breaks it. */
	ck_assert_uint_eq(t[2].offset % INDEX_BLOCK, t[2].file_offset % INDEX_BLOCK);
	ck_assert_uint_lt(t[2].offset, INDEX_BLOCK);
	ck_assert_uint_eq(t[0].offset % INDEX_BLOCK, 0);
	ck_assert_uint_ge(t[0].offset, t[3].offset + t[3].bytes);
	ck_assert_uint_eq(b->moved_bytes, 63 + 1 + 100 + 3);
	free(b);
}
END_TEST

/* Sizes at random, most of them multiples of 64, and what must hold of every layout. */
START_TEST(layout_random)
{
	struct part parts[60] = {0};
	unsigned int seed = _i + 1;
	struct file f = {0};
	uint64_t at = 0;

	for (unsigned int i = 0; i < LENGTH(parts); i++) {
		parts[i].bytes = (uint64_t)(rand_r(&seed) % 12000) * (rand_r(&seed) % 3 ? 64 : 1);
		if (rand_r(&seed) % 8 == 0)
			parts[i].bytes = (64 - at % 64) % 64;
		at += parts[i].bytes;
	}
	put_parts(&f, parts, LENGTH(parts), 0);
	free(file_loads(&f));
	free(f.data);
}
END_TEST

static Suite *layout_suite(void)
{
	Suite *suite = suite_create("layout");
	TCase *tcase = tcase_create("layout");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, layout_as_in_the_file);
	tcase_add_test(tcase, layout_all_moved);
	tcase_add_test(tcase, layout_runs);
	tcase_add_test(tcase, layout_run_between_blocks);
	tcase_add_loop_test(tcase, layout_random, 0, 40);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(layout_suite)
