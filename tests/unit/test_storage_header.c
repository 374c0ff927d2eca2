/* SPDX-License-Identifier: MIT */
/* The header of a shared storage: a wrong dtype is an error, and a header that lies is found out. */
#include "storage_help.h"

#include "memory/storage_header.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct pinion_storage_opts with_header = { .size = sizeof(with_header), .header = true };

static struct pinion_storage *create(const char *path, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_create(path, dtype, n, &with_header, &st));
	return st;
}

START_TEST(a_header_says_what_is_there)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .header = true, .rank = 2, .shape = { 2, 3 } };
	struct pinion_storage *st = NULL, *b = NULL;
	struct pinion_storage_info info;
	struct pinion_view view;

	ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_I16, 6, &opts, &st));
	((int16_t *)view_data(st, BOTH))[5] = 5;
	ck_ok(pinion_storage_open(in_tmp("a"), PINION_DTYPE_I16, 6, &with_header, &b));
	ck_ok(pinion_storage_view(b, PINION_READ, &view));
	ck_assert(view.rank == 2 && view.shape[0] == 2 && view.shape[1] == 3);
	ck_assert_int_eq(pinion_view_i16(&view)[5], 5);
	ck_assert_uint_eq((uintptr_t)view.data % 4096, 0);
	info = info_of(b);
	ck_assert(info.header && info.generation == 1 && info.sequence == 0 && info.bytes == 12);
	ck_assert_ptr_nonnull(
		strstr(described(b), "shared i16[2,3] 12 bytes, read and write, header generation 1, at /"));
	pinion_storage_free(b);
	ck_ok(pinion_storage_open(in_tmp("a"), PINION_DTYPE_I16, 6, &opts, &b));
	pinion_storage_free(b);
	pinion_storage_free(st);
	/* Header, elements, and no more than the last word filled up. */
	ck_assert_uint_eq(file_state(in_tmp("a")).st.st_size, 4096 + 16);
}
END_TEST

START_TEST(what_is_not_the_headers_is_refused_and_both_are_named)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .header = true, .rank = 2, .shape = { 3, 4 } };
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 12), *none = NULL;
	struct file_state before = file_state(in_tmp("a"));

	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_I32, 12, &with_header, &none), EBADMSG,
		   "says f32[12], i32[12] was");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_BF16, 24, &with_header, &none), EBADMSG,
		   "says f32[12], bf16[24] was");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 13, &with_header, &none), EBADMSG,
		   "says f32[12], f32[13] was");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 11, &with_header, &none), EBADMSG,
		   "says f32[12], f32[11] was");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 12, &opts, &none), EBADMSG,
		   "says f32[12], f32[3,4] was");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 12, NULL, &none), EBADMSG, "has a header");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_U8, 4108, NULL, &none), EBADMSG, "has a header");
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_I32, 12, &with_header, &none), EEXIST,
		   "says f32[12], i32[12] was");
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_F32, 12, &opts, &none), EEXIST,
		   "says f32[12], f32[3,4] was");
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U8, 4096 + 48, NULL, &none), EEXIST, "has a header");
	ck_assert_ptr_null(none);
	ck_file_as_it_was(in_tmp("a"), before);
	pinion_storage_free(st);
}
END_TEST

START_TEST(creating_again_counts_the_generation)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 3), *again;
	float *p = view_data(st, BOTH);

	p[0] = p[1] = p[2] = 1;
	again = create(in_tmp("a"), PINION_DTYPE_F32, 3);
	ck_assert(p[0] == 0 && p[1] == 0 && p[2] == 0);
	ck_assert_uint_eq(info_of(st).generation, 2);
	ck_assert_uint_eq(info_of(st).sequence, 2);
	ck_assert_ptr_nonnull(strstr(described(st), "generation 2"));
	pinion_storage_free(again);
	pinion_storage_free(st);
}
END_TEST

/* Writes @header over that of @path, whose file is as long as it was. */
static void forge(const char *path, const struct storage_header *header)
{
	int fd = open(path, O_WRONLY);

	ck_assert_int_eq(pwrite(fd, header, sizeof(*header), 0), sizeof(*header));
	close(fd);
}

#define WORD(member, number)                                                                                  \
	{                                                                                                     \
		offsetof(struct storage_header, member), sizeof(((struct storage_header *)0)->member), number \
	}

/* What is written over a good header of f32[12]. */
static const struct {
	size_t at, bytes;
	uint64_t value;
} lie[][3] = {
	{ WORD(magic, 0) },
	{ WORD(magic, STORAGE_MAGIC + 1) },
	{ WORD(version, STORAGE_VERSION + 1) },
	{ WORD(header_bytes, 8192) },
	{ WORD(dtype, 0) },
	{ WORD(dtype, PINION_DTYPE_F4) },
	{ WORD(dtype, UINT32_MAX) },
	{ WORD(rank, 0) },
	{ WORD(rank, PINION_RANK_MAX + 1) },
	{ WORD(rank, UINT32_MAX) },
	{ WORD(shape[0], 13) },
	{ WORD(elements, 13) },
	{ WORD(elements, UINT64_MAX), WORD(shape[0], UINT64_MAX) },
	{ WORD(bytes, 49) },
	{ WORD(rank, 2), WORD(shape[0], UINT64_C(1) << 63), WORD(shape[1], 2) },
};

START_TEST(a_header_that_lies_is_found_out)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 12);
	const struct storage_header good = *st->header;
	unsigned int fds = fds_open(), maps = maps_open();
	struct pinion_storage *none = NULL;

	for (unsigned int i = 0; i < COUNT(lie); i++) {
		struct storage_header bad = good;

		for (int word = 0; word < 3 && lie[i][word].bytes; word++)
			memcpy((char *)&bad + lie[i][word].at, &lie[i][word].value, lie[i][word].bytes);
		forge(in_tmp("a"), &bad);
		ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 12, &with_header, &none), EBADMSG,
			   "header");
		ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_F32, 12, &with_header, &none), EEXIST,
			   "header");
	}
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_uint_eq(maps_open(), maps);
	forge(in_tmp("a"), &good);
	pinion_storage_free(st);
	ck_ok(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 12, &with_header, &st));
	pinion_storage_free(st);
}
END_TEST

START_TEST(a_version_of_the_future_is_named)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 12), *none = NULL;
	struct storage_header bad = *st->header;

	bad.version = 7;
	forge(in_tmp("a"), &bad);
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 12, &with_header, &none), EBADMSG,
		   "is version 7 with");
	pinion_storage_free(st);
}
END_TEST

START_TEST(a_file_cut_short_is_too_small)
{
	static const off_t bytes[] = { 0, 1, 4095, 4096, 4096 + 47 };
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 12);

	pinion_storage_free(st);
	for (int i = COUNT(bytes); i--;) {
		struct pinion_storage *none = NULL;
		struct file_state before;

		ck_assert_int_eq(truncate(in_tmp("a"), bytes[i]), 0);
		before = file_state(in_tmp("a"));
		ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 12, &with_header, &none), EBADMSG,
			   "too small");
		ck_file_as_it_was(in_tmp("a"), before);
		ck_assert_ptr_null(none);
	}
}
END_TEST

START_TEST(a_longer_file_is_opened)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 12);

	((float *)view_data(st, BOTH))[11] = 11;
	pinion_storage_free(st);
	ck_assert_int_eq(truncate(in_tmp("a"), 1 << 20), 0);
	ck_ok(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 12, &with_header, &st));
	ck_assert(((float *)view_data(st, PINION_READ))[11] == 11);
	pinion_storage_free(st);
}
END_TEST

START_TEST(every_shape_comes_back)
{
	struct pinion_storage_opts opts = {
		.size = sizeof(opts), .header = true, .replace = true, .shape = { 1, 2, 1, 3, 1, 5, 7, 1 }
	};

	for (opts.rank = 1; opts.rank <= PINION_RANK_MAX; opts.rank++) {
		struct pinion_storage *st = NULL;
		struct pinion_storage_info info;
		uint64_t n = 1;

		for (uint32_t axis = 0; axis < opts.rank; axis++)
			n *= opts.shape[axis];
		ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U8, n, &opts, &st));
		pinion_storage_free(st);
		ck_ok(pinion_storage_open(in_tmp("a"), PINION_DTYPE_U8, n, &with_header, &st));
		info = info_of(st);
		ck_assert_uint_eq(info.rank, opts.rank);
		ck_assert_int_eq(memcmp(info.shape, opts.shape, info.rank * sizeof(info.shape[0])), 0);
		pinion_storage_free(st);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("storage_header");
	TCase *header = tcase_create("header");

	tcase_add_checked_fixture(header, fresh_folder, NULL);
	tcase_add_test(header, a_header_says_what_is_there);
	tcase_add_test(header, what_is_not_the_headers_is_refused_and_both_are_named);
	tcase_add_test(header, creating_again_counts_the_generation);
	tcase_add_test(header, a_header_that_lies_is_found_out);
	tcase_add_test(header, a_version_of_the_future_is_named);
	tcase_add_test(header, a_file_cut_short_is_too_small);
	tcase_add_test(header, a_longer_file_is_opened);
	tcase_add_test(header, every_shape_comes_back);
	suite_add_tcase(s, header);
	return s;
}

PINION_TEST_MAIN(suite)
