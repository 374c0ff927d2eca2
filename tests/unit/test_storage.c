/* SPDX-License-Identifier: MIT */
/* Storages of one process, and what all kinds have in common: the contract's table of host storages, row by row. */
#include "storage_help.h"

#include <stdlib.h>

static struct pinion_context *ctx;

static void setup(void)
{
	fresh_folder();
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static const enum pinion_dtype sized[] = {
	PINION_DTYPE_U8,     PINION_DTYPE_I8,	  PINION_DTYPE_U32,    PINION_DTYPE_I16,    PINION_DTYPE_I32,
	PINION_DTYPE_I64,    PINION_DTYPE_BF16,	  PINION_DTYPE_F16,    PINION_DTYPE_F32,    PINION_DTYPE_F64,
	PINION_DTYPE_F8E4M3, PINION_DTYPE_F8E5M2, PINION_DTYPE_F8E8M0, PINION_DTYPE_F8E6M2, PINION_DTYPE_BOOL,
};
static const enum pinion_dtype packed[] = { PINION_DTYPE_F6E2M3, PINION_DTYPE_F6E3M2, PINION_DTYPE_F4 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Every way to make a storage that needs no file. */
enum way { OWNED, ADOPTED, MMAPPED, PINNED, OVER, REMOTE, WAYS };

static struct pinion_mapping *some_map;
static struct pinion_buffer *some_buf;
static uint64_t some_memory[64];

static void release_nothing(void *arg, void *data)
{
	(void)arg;
	(void)data;
}

static int make(enum way way, enum pinion_dtype dtype, uint64_t n, struct pinion_storage **out)
{
	switch (way) {
	case OWNED:
		return pinion_storage_owned(dtype, n, out);
	case ADOPTED:
		return pinion_storage_adopt(some_memory, dtype, n, release_nothing, NULL, out);
	case MMAPPED:
		return pinion_storage_mmapped(some_map, dtype, 0, n, out);
	case PINNED:
		return pinion_storage_pinned(ctx, dtype, n, NULL, out);
	case OVER:
		return pinion_storage_over(some_buf, BOTH, dtype, 0, n, out);
	default:
		return pinion_storage_remote(ctx, "there", dtype, n, out);
	}
}

static void setup_ways(void)
{
	setup();
	make_file(in_tmp("ways"), some_memory, sizeof(some_memory));
	ck_ok(pinion_mapping_open(in_tmp("ways"), &some_map));
	ck_ok(pinion_buffer_alloc(ctx, sizeof(some_memory), NULL, &some_buf));
}

static void teardown_ways(void)
{
	pinion_buffer_unref(some_buf);
	pinion_mapping_unref(some_map);
	teardown();
}

/* ---- what all have in common ------------------------------------------------------------------------------------- */

START_TEST(a_dtype_without_a_size_is_refused_first)
{
	struct pinion_storage *st = (void *)1;

	for (int way = 0; way < WAYS; way++) {
		for (unsigned int i = 0; i < COUNT(packed); i++) {
			ck_refused(make(way, packed[i], 4, &st), EOPNOTSUPP, "dtype has zero size");
			ck_refused(make(way, packed[i], 0, &st), EOPNOTSUPP, "dtype has zero size");
			ck_refused(make(way, packed[i], UINT64_MAX, &st), EOPNOTSUPP, "dtype has zero size");
		}
		ck_refused(make(way, 0, 4, &st), EINVAL, "not a dtype");
		ck_refused(make(way, 99, 4, &st), EINVAL, "not a dtype");
	}
	ck_assert_ptr_eq(st, (void *)1);
}
END_TEST

START_TEST(more_elements_than_can_be_overflow)
{
	struct pinion_storage *st = (void *)1;

	for (int way = 0; way < WAYS; way++) {
		ck_refused(make(way, PINION_DTYPE_F32, UINT64_MAX / 4 + 1, &st), EOVERFLOW, "elem_count overflow");
		ck_refused(make(way, PINION_DTYPE_F64, UINT64_MAX, &st), EOVERFLOW, "elem_count overflow");
		ck_refused(make(way, PINION_DTYPE_U8, UINT64_MAX, &st), EOVERFLOW, "elem_count overflow");
		ck_refused(make(way, PINION_DTYPE_I16, UINT64_C(1) << 62, &st), EOVERFLOW, "elem_count overflow");
	}
	ck_assert_ptr_eq(st, (void *)1);
}
END_TEST

START_TEST(what_is_too_much_and_no_overflow_is_refused)
{
	struct pinion_storage *st = (void *)1;

	/* The address sanitizer ends the program instead. */
	if (!SANITIZED)
		ck_assert_int_eq(make(OWNED, PINION_DTYPE_F32, UINT64_C(1) << 60, &st), -ENOMEM);
	ck_assert_int_eq(make(PINNED, PINION_DTYPE_F32, UINT64_C(1) << 59, &st), -ENOMEM);
	ck_refused(make(MMAPPED, PINION_DTYPE_F32, UINT64_C(1) << 60, &st), EINVAL, "out of bounds");
	ck_refused(make(OVER, PINION_DTYPE_F32, UINT64_C(1) << 60, &st), EINVAL, "out of bounds");
	ck_assert_ptr_eq(st, (void *)1);
}
END_TEST

START_TEST(every_kind_answers_for_every_dtype)
{
	for (int way = 0; way < REMOTE; way++) {
		for (unsigned int i = 0; i < COUNT(sized); i++) {
			struct pinion_storage *st = NULL;
			struct pinion_storage_info info;
			struct pinion_view view;

			ck_ok(make(way, sized[i], 5, &st));
			ck_assert_int_eq(pinion_storage_dtype(st), sized[i]);
			ck_assert_uint_eq(pinion_storage_elements(st), 5);
			ck_assert_uint_eq(pinion_storage_len_bytes(st), 5 * pinion_dtype_bytes(sized[i]));
			info = info_of(st);
			ck_assert_int_eq(info.kind, pinion_storage_kind(st));
			ck_assert_int_eq(info.dtype, sized[i]);
			ck_assert_uint_eq(info.rank, 1);
			ck_assert_uint_eq(info.shape[0], 5);
			ck_assert_uint_eq(info.elements, 5);
			ck_assert_uint_eq(info.bytes, 5 * pinion_dtype_bytes(sized[i]));
			ck_assert_uint_eq(info.rights, way == MMAPPED ? PINION_READ : BOTH);
			ck_assert(!info.header && !info.generation && !info.sequence && !info.unlinked);
			ck_assert_str_ne(info.hold_why,
					 way == PINNED || way == OVER ? "there is no buffer to hold" : "");
			if (sized[i] == PINION_DTYPE_F8E6M2) {
				ck_refused(pinion_storage_view(st, PINION_READ, &view), EOPNOTSUPP, "f8e6m2");
			} else {
				ck_ok(pinion_storage_view(st, PINION_READ, &view));
				ck_assert_int_eq(view.dtype, sized[i]);
				ck_assert_uint_eq(pinion_view_elements(&view), 5);
				ck_assert(pinion_view_is_contiguous(&view));
			}
			pinion_storage_free(st);
		}
	}
}
END_TEST

START_TEST(no_elements_are_an_array_too)
{
	for (int way = 0; way < REMOTE; way++) {
		struct pinion_storage *st = NULL, *own = NULL;
		struct pinion_view view;

		ck_ok(make(way, PINION_DTYPE_F64, 0, &st));
		ck_assert_uint_eq(pinion_storage_elements(st), 0);
		ck_assert_uint_eq(pinion_storage_len_bytes(st), 0);
		ck_ok(pinion_storage_view(st, PINION_READ, &view));
		ck_assert_uint_eq(pinion_view_elements(&view), 0);
		ck_assert_int_gt(pinion_storage_describe(st, NULL, 0), 0);
		ck_ok(pinion_storage_into_owned(st, &own));
		ck_assert_int_eq(pinion_storage_kind(own), PINION_STORAGE_OWNED);
		ck_assert_uint_eq(pinion_storage_elements(own), 0);
		pinion_storage_free(own);
	}
}
END_TEST

START_TEST(a_view_of_another_dtype_has_no_elements_to_give)
{
	struct pinion_storage *st = NULL;
	struct pinion_view view;

	ck_ok(pinion_storage_owned(PINION_DTYPE_F32, 4, &st));
	ck_ok(pinion_storage_view(st, BOTH, &view));
	ck_assert_ptr_null(pinion_view_f64(&view));
	ck_assert_ptr_null(pinion_view_i32(&view));
	ck_assert_ptr_null(pinion_view_u8(&view));
	ck_assert_ptr_nonnull(pinion_view_f32(&view));
	ck_refused(pinion_storage_view(st, 0, &view), EINVAL, "PINION_READ");
	ck_refused(pinion_storage_view(st, PINION_WRITE, &view), EINVAL, "PINION_READ");
	ck_refused(pinion_storage_view(st, 8, &view), EINVAL, "PINION_READ");
	pinion_storage_free(st);
	pinion_storage_free(NULL);
}
END_TEST

START_TEST(what_has_no_header_has_no_sequence)
{
	for (int way = 0; way < REMOTE; way++) {
		struct pinion_storage *st = NULL;
		uint64_t sequence = 7;
		char c = 0;

		ck_ok(make(way, PINION_DTYPE_U8, 4, &st));
		ck_refused(pinion_storage_write_begin(st, 0, NULL), EOPNOTSUPP, "no header");
		ck_assert_int_eq(pinion_storage_write_end(st), -EINVAL);
		ck_refused(pinion_storage_read_begin(st, 0, &sequence), EOPNOTSUPP, "no header");
		ck_refused(pinion_storage_store(st, 0, &c, 1), EOPNOTSUPP, "no header");
		ck_refused(pinion_storage_load(st, 0, &c, 1, 0), EOPNOTSUPP, "no header");
		ck_assert_uint_eq(sequence, 7);
		pinion_storage_free(st);
	}
}
END_TEST

START_TEST(descriptions_are_cut_and_counted)
{
	static const char *const begin[] = { "owned f32[6] 24 bytes, read and write",
					     "owned f32[6] 24 bytes, read and write, handed in",
					     "mmapped f32[6] 24 bytes, read-only, at byte 0 of 512 of /",
					     "pinned f32[6] 24 bytes, read and write, at byte 0 of a buffer of ",
					     "pinned f32[6] 24 bytes, read and write, at byte 0 of a buffer of " };

	for (int way = 0; way < REMOTE; way++) {
		char text[PATH_MAX + 256], cut[16];
		struct pinion_storage *st = NULL;
		int len;

		ck_ok(make(way, PINION_DTYPE_F32, 6, &st));
		len = pinion_storage_describe(st, text, sizeof(text));
		ck_assert_uint_eq(len, strlen(text));
		ck_assert_msg(!strncmp(text, begin[way], strlen(begin[way])), "%s", text);
		ck_assert_int_eq(pinion_storage_describe(st, NULL, 0), len);
		ck_assert_int_eq(pinion_storage_describe(st, cut, sizeof(cut)), len);
		ck_assert_uint_eq(strlen(cut), sizeof(cut) - 1);
		ck_assert_int_eq(strncmp(cut, text, sizeof(cut) - 1), 0);
		pinion_storage_free(st);
	}
}
END_TEST

START_TEST(an_info_of_another_length_is_served)
{
	struct pinion_storage_info info = { .size = offsetof(struct pinion_storage_info, rights) };
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_owned(PINION_DTYPE_I16, 3, &st));
	info.rights = 77;
	ck_ok(pinion_storage_info(st, &info));
	ck_assert_int_eq(info.dtype, PINION_DTYPE_I16);
	ck_assert_uint_eq(info.rights, 77);
	info.size = 0;
	ck_assert_int_eq(pinion_storage_info(st, &info), -EINVAL);
	pinion_storage_free(st);
}
END_TEST

/* ---- owned ------------------------------------------------------------------------------------------------------- */

START_TEST(owned_elements_are_zero_and_aligned)
{
	for (unsigned int i = 0; i < COUNT(sized); i++) {
		struct pinion_storage *st = NULL;
		const char *p;

		if (sized[i] == PINION_DTYPE_F8E6M2)
			continue;
		ck_ok(pinion_storage_owned(sized[i], 1001, &st));
		p = view_data(st, BOTH);
		ck_assert_uint_eq((uintptr_t)p % 64, 0);
		for (uint64_t b = 0; b < pinion_storage_len_bytes(st); b++)
			ck_assert_int_eq(p[b], 0);
		pinion_storage_free(st);
	}
}
END_TEST

START_TEST(owning_what_is_owned_copies_nothing)
{
	struct pinion_storage *st = NULL, *own = NULL;
	float *data, *mine = malloc(4 * sizeof(*mine));

	ck_ok(pinion_storage_owned(PINION_DTYPE_F32, 1 << 20, &st));
	data = view_data(st, BOTH);
	data[9] = 9;
	ck_ok(pinion_storage_into_owned(st, &own));
	ck_assert_ptr_eq(own, st);
	ck_assert_ptr_eq(view_data(own, BOTH), data);
	ck_assert_int_eq(data[9], 9);
	pinion_storage_free(own);

	for (int i = 0; i < 4; i++)
		mine[i] = i;
	ck_ok(pinion_storage_adopt(mine, PINION_DTYPE_F32, 4, NULL, NULL, &st));
	ck_assert_ptr_eq(view_data(st, BOTH), mine);
	ck_ok(pinion_storage_into_owned(st, &own));
	ck_assert_ptr_eq(own, st);
	ck_assert_ptr_eq(view_data(own, BOTH), mine);
	pinion_storage_free(own);
}
END_TEST

START_TEST(owning_works_where_a_view_does_not)
{
	struct pinion_storage *st = NULL, *own = NULL;

	ck_ok(pinion_storage_owned(PINION_DTYPE_F8E6M2, 4, &st));
	ck_ok(pinion_storage_into_owned(st, &own));
	ck_assert_ptr_eq(own, st);
	pinion_storage_free(own);
	/* The others are viewed to be copied. */
	ck_ok(pinion_storage_pinned(ctx, PINION_DTYPE_F8E6M2, 4, NULL, &st));
	own = NULL;
	ck_refused(pinion_storage_into_owned(st, &own), EOPNOTSUPP, "f8e6m2");
	ck_assert_ptr_null(own);
	ck_assert_uint_eq(pinion_storage_elements(st), 4);
	pinion_storage_free(st);
}
END_TEST

static void *released[2];

static void note_release(void *arg, void *data)
{
	released[0] = arg;
	released[1] = data;
}

START_TEST(what_is_handed_in_goes_back_the_way_that_was_said)
{
	double memory[3] = { 1, 2, 3 };
	struct pinion_storage *st = NULL;
	int tag;

	ck_ok(pinion_storage_adopt(memory, PINION_DTYPE_F64, 3, note_release, &tag, &st));
	ck_assert_ptr_eq(view_data(st, BOTH), memory);
	ck_assert_ptr_null(released[0]);
	pinion_storage_free(st);
	ck_assert_ptr_eq(released[0], &tag);
	ck_assert_ptr_eq(released[1], memory);
}
END_TEST

START_TEST(what_is_not_taken_over_stays_the_callers)
{
	_Alignas(8) char memory[64];
	struct pinion_storage *st = NULL;

	released[0] = NULL;
	for (int off = 1; off < 8; off++)
		ck_refused(pinion_storage_adopt(memory + off, PINION_DTYPE_F64, 3, note_release, memory, &st), EINVAL,
			   "not aligned to");
	ck_refused(pinion_storage_adopt(memory + 2, PINION_DTYPE_F32, 3, note_release, memory, &st), EINVAL,
		   "not aligned to");
	ck_refused(pinion_storage_adopt(NULL, PINION_DTYPE_U8, 1, note_release, memory, &st), EINVAL, "NULL");
	ck_assert_ptr_null(released[0]);
	ck_assert_ptr_null(st);
	ck_ok(pinion_storage_adopt(memory + 1, PINION_DTYPE_BOOL, 3, note_release, memory, &st));
	pinion_storage_free(st);
	ck_ok(pinion_storage_adopt(NULL, PINION_DTYPE_F64, 0, NULL, NULL, &st));
	pinion_storage_free(st);
}
END_TEST

/* ---- mmapped ----------------------------------------------------------------------------------------------------- */

START_TEST(f32_round_trip_through_a_file)
{
	const float values[] = { 1.5f, -2.25f, 3, 4 };
	struct pinion_mapping *map = NULL;
	struct pinion_storage *st = NULL;
	struct pinion_view view;

	make_file(in_tmp("f32"), values, sizeof(values));
	ck_ok(pinion_mapping_open(in_tmp("f32"), &map));
	ck_assert_uint_eq(pinion_mapping_bytes(map), sizeof(values));
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_F32, 0, 4, &st));
	ck_assert_int_eq(pinion_storage_kind(st), PINION_STORAGE_MMAPPED);
	ck_ok(pinion_storage_view(st, PINION_READ, &view));
	ck_assert_int_eq(memcmp(pinion_view_f32(&view), values, sizeof(values)), 0);
	ck_refused(pinion_storage_view(st, BOTH, &view), EPERM, "read-only");
	pinion_storage_free(st);
	pinion_mapping_unref(map);
}
END_TEST

START_TEST(windows_are_checked_in_order)
{
	const float values[2] = { 1, 2 };
	struct pinion_mapping *map = NULL;
	struct pinion_storage *st = NULL;

	make_file(in_tmp("two"), values, sizeof(values));
	ck_ok(pinion_mapping_open(in_tmp("two"), &map));
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, 1, 1, &st), EINVAL, "not aligned to");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, 0, 3, &st), EINVAL, "out of bounds");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, 8, 1, &st), EINVAL, "out of bounds");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, 12, 0, &st), EINVAL, "out of bounds");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_U8, 9, 0, &st), EINVAL, "out of bounds");
	/* Dtype, then alignment, then the product, then the sum, then the end. */
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F4, 1, UINT64_MAX, &st), EOPNOTSUPP, "dtype has zero size");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, 1, UINT64_MAX, &st), EINVAL, "not aligned to");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, 4, UINT64_MAX, &st), EOVERFLOW, "elem_count overflow");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, UINT64_MAX - 3, 1, &st), EOVERFLOW, "byte offset");
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_F32, UINT64_MAX - 3, 0, &st), EINVAL, "out of bounds");
	ck_assert_ptr_null(st);
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_F32, 8, 0, &st));
	pinion_storage_free(st);
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_U8, 7, 1, &st));
	pinion_storage_free(st);
	pinion_mapping_unref(map);
}
END_TEST

START_TEST(two_views_on_one_mapping)
{
	const float values[] = { 1, 2, 3, 4 };
	struct pinion_storage *a = NULL, *b = NULL, *own = NULL;
	struct pinion_mapping *map = NULL;
	unsigned int maps = maps_open();
	const float *low, *high;

	make_file(in_tmp("four"), values, sizeof(values));
	ck_ok(pinion_mapping_open(in_tmp("four"), &map));
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_F32, 0, 2, &a));
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_F32, 8, 2, &b));
	ck_assert_uint_eq(maps_open(), maps + 1);
	ck_assert_ptr_eq(pinion_mapping_ref(map), map);
	pinion_mapping_unref(map);
	pinion_mapping_unref(map);
	pinion_mapping_unref(NULL);
	low = view_data(a, PINION_READ);
	high = view_data(b, PINION_READ);
	ck_assert(low[0] == 1 && low[1] == 2 && high[0] == 3 && high[1] == 4);
	ck_assert_ptr_eq(low + 2, high);
	pinion_storage_free(a);
	ck_assert(high[1] == 4);
	/* A copy: the last storage of the mapping is gone, and the mapping with it. */
	ck_ok(pinion_storage_into_owned(b, &own));
	ck_assert_uint_eq(maps_open(), maps);
	low = view_data(own, BOTH);
	ck_assert(low[0] == 3 && low[1] == 4 && low != high);
	pinion_storage_free(own);
}
END_TEST

START_TEST(a_mapping_of_a_descriptor_outlives_it)
{
	const int64_t values[] = { -1, 0, INT64_MAX };
	struct pinion_mapping *map = NULL, *none = NULL;
	struct pinion_storage *st = NULL;
	int fd;

	make_file(in_tmp("i64"), values, sizeof(values));
	fd = open(in_tmp("i64"), O_RDONLY);
	ck_ok(pinion_mapping_open_fd(fd, &map));
	close(fd);
	ck_refused(pinion_mapping_open_fd(fd, &none), EBADF, "descriptor");
	fd = open(in_tmp("i64"), O_WRONLY);
	ck_assert_int_eq(pinion_mapping_open_fd(fd, &none), -EACCES);
	close(fd);
	ck_assert_ptr_null(none);
	unlink(in_tmp("i64"));
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_I64, 0, 3, &st));
	pinion_mapping_unref(map);
	ck_assert_int_eq(memcmp(view_data(st, PINION_READ), values, sizeof(values)), 0);
	ck_assert_ptr_nonnull(strstr(described(st), "of a descriptor's file"));
	pinion_storage_free(st);
}
END_TEST

START_TEST(an_empty_file_has_room_for_nothing)
{
	struct pinion_mapping *map = NULL;
	struct pinion_storage *st = NULL;

	make_file(in_tmp("empty"), "", 0);
	ck_ok(pinion_mapping_open(in_tmp("empty"), &map));
	ck_assert_uint_eq(pinion_mapping_bytes(map), 0);
	ck_refused(pinion_storage_mmapped(map, PINION_DTYPE_U8, 0, 1, &st), EINVAL, "out of bounds");
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_U8, 0, 0, &st));
	pinion_storage_free(st);
	pinion_mapping_unref(map);
}
END_TEST

START_TEST(what_is_no_file_is_not_mapped)
{
	struct pinion_mapping *map = NULL;
	unsigned int fds = fds_open();

	ck_assert_int_eq(mkfifo(in_tmp("fifo"), 0600), 0);
	ck_refused(pinion_mapping_open(folder, &map), EINVAL, "a directory");
	ck_refused(pinion_mapping_open(in_tmp("fifo"), &map), EINVAL, "a FIFO");
	ck_refused(pinion_mapping_open("/dev/zero", &map), EINVAL, "a device");
	ck_refused(pinion_mapping_open(in_tmp("nowhere"), &map), ENOENT, "nowhere");
	ck_refused(pinion_mapping_open("", &map), ENOENT, "opening");
	ck_assert_ptr_null(map);
	ck_assert_uint_eq(fds_open(), fds);
	/* Weights are often reached by links. */
	make_file(in_tmp("target"), "abcd", 4);
	ck_assert_int_eq(symlink("target", in_tmp("link")), 0);
	ck_ok(pinion_mapping_open(in_tmp("link"), &map));
	ck_assert_uint_eq(pinion_mapping_bytes(map), 4);
	pinion_mapping_unref(map);
	ck_assert_uint_eq(fds_open(), fds);
}
END_TEST

static void store_into(volatile char *p)
{
	*p = 1;
}

START_TEST(a_mapping_cannot_be_written)
{
	struct pinion_mapping *map = NULL;
	struct pinion_storage *st = NULL;
	pid_t pid;

	make_file(in_tmp("ro"), "abcd", 4);
	ck_ok(pinion_mapping_open(in_tmp("ro"), &map));
	ck_ok(pinion_storage_mmapped(map, PINION_DTYPE_U8, 0, 4, &st));
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		store_into(view_data(st, PINION_READ));
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), -SIGSEGV);
	pinion_storage_free(st);
	pinion_mapping_unref(map);
}
END_TEST

/* ---- pinned ------------------------------------------------------------------------------------------------------ */

START_TEST(pinned_elements_are_zero_and_written)
{
	struct pinion_storage *st = NULL;
	struct pinion_view view;
	float *p;

	ck_ok(pinion_storage_pinned(ctx, PINION_DTYPE_F32, 64, NULL, &st));
	ck_assert_int_eq(pinion_storage_kind(st), PINION_STORAGE_PINNED);
	ck_ok(pinion_storage_view(st, BOTH, &view));
	p = pinion_view_f32(&view);
	for (int i = 0; i < 64; i++)
		ck_assert(p[i] == 0);
	for (int i = 0; i < 8; i++)
		p[i] = i * 0.5f;
	ck_ok(pinion_storage_view(st, PINION_READ, &view));
	for (int i = 0; i < 8; i++)
		ck_assert(pinion_view_f32(&view)[i] == i * 0.5f);
	pinion_storage_free(st);
}
END_TEST

START_TEST(pinned_memory_says_how_it_is_held)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts),
					   .hold = PINION_HOLD_NONE,
					   .pages = PINION_PAGES_SMALL };
	struct pinion_storage *st = NULL;
	struct pinion_buffer *buf = NULL;
	uint64_t offset = 9;

	ck_ok(pinion_storage_pinned(ctx, PINION_DTYPE_I32, 4, &opts, &st));
	ck_assert_int_eq(info_of(st).hold, PINION_HOLD_NONE);
	ck_assert_str_eq(info_of(st).hold_why, "not asked for");
	ck_assert_ptr_nonnull(strstr(described(st), "unlocked"));
	ck_ok(pinion_storage_buffer(st, &buf, &offset));
	ck_assert_uint_eq(offset, 0);
	ck_assert_uint_eq(pinion_buffer_size(buf), 4096);
	pinion_storage_free(st);
	ck_ok(pinion_storage_pinned(ctx, PINION_DTYPE_I32, 4, NULL, &st));
	ck_ok(pinion_storage_buffer(st, &buf, &offset));
	ck_assert_int_eq(info_of(st).hold < PINION_HOLD_REGISTERED, *info_of(st).hold_why != 0);
	pinion_storage_free(st);
	opts.pages = 17;
	ck_assert_int_eq(pinion_storage_pinned(ctx, PINION_DTYPE_I32, 4, &opts, &st), -EINVAL);
	/* Nothing is needed, and nothing is made. */
	ck_ok(pinion_storage_pinned(ctx, PINION_DTYPE_I32, 0, NULL, &st));
	ck_assert_int_eq(pinion_storage_buffer(st, &buf, &offset), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(described(st), "without a buffer"));
	pinion_storage_free(st);
	ck_ok(pinion_storage_owned(PINION_DTYPE_I32, 1, &st));
	ck_refused(pinion_storage_buffer(st, &buf, &offset), EOPNOTSUPP, "owned");
	pinion_storage_free(st);
}
END_TEST

START_TEST(owning_what_is_pinned_copies_and_lets_go)
{
	struct pinion_storage *st = NULL, *own = NULL;
	unsigned int fds = fds_open(), maps = maps_open();
	int32_t *p, *q;

	ck_ok(pinion_storage_pinned(ctx, PINION_DTYPE_I32, 3, NULL, &st));
	p = view_data(st, BOTH);
	p[0] = -1;
	p[2] = 1;
	ck_ok(pinion_storage_into_owned(st, &own));
	q = view_data(own, BOTH);
	ck_assert_ptr_ne(p, q);
	ck_assert(q[0] == -1 && q[1] == 0 && q[2] == 1);
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_uint_eq(maps_open(), maps);
	pinion_storage_free(own);
}
END_TEST

START_TEST(a_part_of_a_buffer_is_a_storage)
{
	struct pinion_storage *low = NULL, *high = NULL, *reader = NULL, *st = NULL;
	struct pinion_buffer *buf = NULL, *same = NULL;
	uint64_t size, offset;
	char *p;

	ck_ok(pinion_buffer_alloc(ctx, 4096, NULL, &buf));
	size = pinion_buffer_size(buf);
	ck_ok(pinion_storage_over(buf, BOTH, PINION_DTYPE_F32, 0, 2, &low));
	ck_ok(pinion_storage_over(buf, BOTH, PINION_DTYPE_F32, 8, 2, &high));
	ck_ok(pinion_storage_over(buf, PINION_READ, PINION_DTYPE_U8, 0, size, &reader));
	ck_refused(pinion_storage_over(buf, BOTH, PINION_DTYPE_F32, 2, 2, &st), EINVAL, "not aligned to");
	ck_refused(pinion_storage_over(buf, BOTH, PINION_DTYPE_F32, size, 1, &st), EINVAL, "out of bounds");
	ck_refused(pinion_storage_over(buf, BOTH, PINION_DTYPE_F32, 0, size / 4 + 1, &st), EINVAL, "out of bounds");
	ck_refused(pinion_storage_over(buf, PINION_WRITE, PINION_DTYPE_F32, 0, 1, &st), EINVAL, "PINION_READ");
	ck_ok(pinion_storage_buffer(high, &same, &offset));
	ck_assert_ptr_eq(same, buf);
	ck_assert_uint_eq(offset, 8);
	((float *)view_data(low, BOTH))[1] = 1;
	((float *)view_data(high, BOTH))[0] = 2;
	p = view_data(reader, PINION_READ);
	ck_assert(((float *)p)[1] == 1 && ((float *)p)[2] == 2);
	ck_assert_int_eq(mprotect(p, 4096, PROT_READ), 0);
	pinion_storage_free(low);
	ck_ok(pinion_buffer_seal(buf));
	ck_ok(pinion_storage_over(buf, BOTH, PINION_DTYPE_F32, 0, 0, &st));
	pinion_storage_free(st);
	pinion_storage_free(high);
	ck_assert_int_eq(pinion_storage_over(buf, BOTH, PINION_DTYPE_F32, 0, 1, &st), -EPERM);
	pinion_buffer_unref(buf);
	ck_assert(((float *)p)[1] == 1);
	pinion_storage_free(reader);
}
END_TEST

/* ---- remote ------------------------------------------------------------------------------------------------------ */

START_TEST(remote_is_not_built)
{
	struct pinion_storage *st = NULL;

	ck_refused(pinion_storage_remote(ctx, "ucx://there/kv", PINION_DTYPE_F32, 4, &st), EOPNOTSUPP, "not built");
	ck_refused(pinion_storage_remote(ctx, NULL, PINION_DTYPE_F32, 0, &st), EOPNOTSUPP, "not built");
	ck_assert_ptr_null(st);
}
END_TEST

START_TEST(thousands_leave_nothing)
{
	unsigned int fds = 0, maps = 0, n = test_rounds(2000);

	for (unsigned int i = 0; i < n; i++) {
		struct pinion_storage *st = NULL, *own = NULL;

		ck_ok(make(i % REMOTE, PINION_DTYPE_U8, i % 500, &st));
		if (i % 3)
			ck_ok(pinion_storage_into_owned(st, &own));
		pinion_storage_free(own ? own : st);
		/* The mapping that a buffer is born with goes with its first user. */
		if (i == 10) {
			fds = fds_open();
			maps = maps_open();
		}
	}
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_uint_eq(maps_open(), maps);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("storage");
	TCase *common = tcase_create("common"), *owned = tcase_create("owned"), *mmapped = tcase_create("mmapped");
	TCase *pinned = tcase_create("pinned");

	tcase_add_checked_fixture(common, setup_ways, teardown_ways);
	tcase_add_test(common, a_dtype_without_a_size_is_refused_first);
	tcase_add_test(common, more_elements_than_can_be_overflow);
	tcase_add_test(common, what_is_too_much_and_no_overflow_is_refused);
	tcase_add_test(common, every_kind_answers_for_every_dtype);
	tcase_add_test(common, no_elements_are_an_array_too);
	tcase_add_test(common, a_view_of_another_dtype_has_no_elements_to_give);
	tcase_add_test(common, what_has_no_header_has_no_sequence);
	tcase_add_test(common, descriptions_are_cut_and_counted);
	tcase_add_test(common, an_info_of_another_length_is_served);
	tcase_add_test(common, thousands_leave_nothing);
	suite_add_tcase(s, common);
	tcase_add_checked_fixture(owned, setup, teardown);
	tcase_add_test(owned, owned_elements_are_zero_and_aligned);
	tcase_add_test(owned, owning_what_is_owned_copies_nothing);
	tcase_add_test(owned, owning_works_where_a_view_does_not);
	tcase_add_test(owned, what_is_handed_in_goes_back_the_way_that_was_said);
	tcase_add_test(owned, what_is_not_taken_over_stays_the_callers);
	suite_add_tcase(s, owned);
	tcase_add_checked_fixture(mmapped, fresh_folder, NULL);
	tcase_add_test(mmapped, f32_round_trip_through_a_file);
	tcase_add_test(mmapped, windows_are_checked_in_order);
	tcase_add_test(mmapped, two_views_on_one_mapping);
	tcase_add_test(mmapped, a_mapping_of_a_descriptor_outlives_it);
	tcase_add_test(mmapped, an_empty_file_has_room_for_nothing);
	tcase_add_test(mmapped, what_is_no_file_is_not_mapped);
	tcase_add_test(mmapped, a_mapping_cannot_be_written);
	suite_add_tcase(s, mmapped);
	tcase_add_checked_fixture(pinned, setup, teardown);
	tcase_add_test(pinned, pinned_elements_are_zero_and_written);
	tcase_add_test(pinned, pinned_memory_says_how_it_is_held);
	tcase_add_test(pinned, owning_what_is_pinned_copies_and_lets_go);
	tcase_add_test(pinned, a_part_of_a_buffer_is_a_storage);
	tcase_add_test(pinned, remote_is_not_built);
	suite_add_tcase(s, pinned);
	return s;
}

PINION_TEST_MAIN(suite)
