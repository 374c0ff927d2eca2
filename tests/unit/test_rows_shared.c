/* SPDX-License-Identifier: MIT */
/*
 * Contract 1.1, 1.2 and 1.8, what test_storage.c and test_storage_shared.c do not state: every dtype shared by path, what
 * a claim opens, how much is mapped, the order in which a storage is taken down, and storages that change threads.
 */
#include "storage_help.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct pinion_storage *create(const char *name, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_create(in_tmp(name), dtype, n, NULL, &st));
	return st;
}

static struct pinion_storage *open_it(const char *name, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_open(in_tmp(name), dtype, n, NULL, &st));
	return st;
}

/* ---- dtypes ------------------------------------------------------------------------------------------------------ */

/* The typed accessors, each as what it makes of a view: NULL for another dtype. */
static void *access_by(enum pinion_dtype dtype, const struct pinion_view *view)
{
	switch (dtype) {
	case PINION_DTYPE_U8:
		return pinion_view_u8(view);
	case PINION_DTYPE_I8:
		return pinion_view_i8(view);
	case PINION_DTYPE_U32:
		return pinion_view_u32(view);
	case PINION_DTYPE_I16:
		return pinion_view_i16(view);
	case PINION_DTYPE_I32:
		return pinion_view_i32(view);
	case PINION_DTYPE_I64:
		return pinion_view_i64(view);
	case PINION_DTYPE_BF16:
		return pinion_view_bf16(view);
	case PINION_DTYPE_F16:
		return pinion_view_f16(view);
	case PINION_DTYPE_F32:
		return pinion_view_f32(view);
	case PINION_DTYPE_F64:
		return pinion_view_f64(view);
	case PINION_DTYPE_F8E4M3:
		return pinion_view_f8e4m3(view);
	case PINION_DTYPE_F8E5M2:
		return pinion_view_f8e5m2(view);
	case PINION_DTYPE_F8E8M0:
		return pinion_view_f8e8m0(view);
	case PINION_DTYPE_BOOL:
		return pinion_view_bool(view);
	default:
		return NULL;
	}
}

static bool is_packed(enum pinion_dtype dtype)
{
	return dtype == PINION_DTYPE_F6E2M3 || dtype == PINION_DTYPE_F6E3M2 || dtype == PINION_DTYPE_F4;
}

#define ELEMENTS 5

/* Tag, length, own accessor, and no other's. */
static void check_view(const struct pinion_storage *st, enum pinion_dtype dtype, void **data)
{
	struct pinion_view view, again;

	ck_ok(pinion_storage_view(st, BOTH, &view));
	ck_assert_int_eq(view.dtype, dtype);
	ck_assert_uint_eq(pinion_view_elements(&view), ELEMENTS);
	ck_assert_uint_eq(view.bytes, ELEMENTS * pinion_dtype_bytes(dtype));
	for (int other = 1; other <= PINION_DTYPE_BOOL; other++)
		ck_assert_ptr_eq(access_by(other, &view), other == (int)dtype ? view.data : NULL);
	/* No copy: it is the same memory each time. */
	ck_ok(pinion_storage_view(st, PINION_READ, &again));
	ck_assert_ptr_eq(again.data, view.data);
	*data = view.data;
}

START_TEST(every_dtype_shared_by_path)
{
	enum pinion_dtype dtype = (enum pinion_dtype)_i;
	struct pinion_storage *st = NULL, *sibling, *own = NULL;
	uint64_t bytes = ELEMENTS * pinion_dtype_bytes(dtype);
	struct pinion_view view;
	unsigned char *data[2];

	if (is_packed(dtype)) {
		ck_refused(pinion_storage_create(in_tmp("a"), dtype, ELEMENTS, NULL, &st), EOPNOTSUPP, "dtype has zero size");
		ck_refused(pinion_storage_open(in_tmp("a"), dtype, ELEMENTS, NULL, &st), EOPNOTSUPP, "dtype has zero size");
		ck_assert_int_eq(access(in_tmp("a"), F_OK), -1);
		ck_assert_ptr_null(st);
		return;
	}
	st = create("a", dtype, ELEMENTS);
	sibling = open_it("a", dtype, ELEMENTS);
	ck_assert_int_eq(pinion_storage_dtype(sibling), dtype);
	ck_assert_uint_eq(pinion_storage_elements(sibling), ELEMENTS);
	ck_assert_uint_eq(pinion_storage_len_bytes(sibling), bytes);
	ck_assert_uint_eq(file_state(in_tmp("a")).st.st_size, bytes);
	if (dtype == PINION_DTYPE_F8E6M2) {
		ck_refused(pinion_storage_view(sibling, PINION_READ, &view), EOPNOTSUPP, "f8e6m2");
		ck_refused(pinion_storage_view(sibling, BOTH, &view), EOPNOTSUPP, "f8e6m2");
	} else {
		check_view(st, dtype, (void **)&data[0]);
		check_view(sibling, dtype, (void **)&data[1]);
		for (uint64_t i = 0; i < bytes; i++)
			ck_assert_uint_eq(data[1][i], 0);
		for (uint64_t i = 0; i < bytes; i++)
			data[0][i] = i & 1;
		ck_assert_mem_eq(data[1], data[0], bytes);
		/* Owning copies. */
		ck_ok(pinion_storage_into_owned(sibling, &own));
		data[0][0] = 1;
		check_view(own, dtype, (void **)&data[1]);
		for (uint64_t i = 0; i < bytes; i++)
			ck_assert_uint_eq(data[1][i], i & 1);
		sibling = own;
	}
	pinion_storage_free(sibling);
	pinion_storage_free(st);
}
END_TEST

/* Nothing in the file says what it holds, unless it has a header. */
START_TEST(a_claim_of_another_dtype_is_accepted)
{
	static const float values[] = { 1, -2, 0.5f, 0 };
	static const int32_t bits[] = { 0x3f800000, (int32_t)0xc0000000, 0x3f000000, 0 };
	static const uint16_t halves[] = { 0, 0x3f80, 0, 0xc000, 0, 0x3f00, 0, 0 };
	static const struct {
		enum pinion_dtype dtype;
		uint64_t n;
	} claims[] = {
		{ PINION_DTYPE_I32, 4 }, { PINION_DTYPE_BF16, 8 }, { PINION_DTYPE_I16, 8 },	{ PINION_DTYPE_U8, 16 },
		{ PINION_DTYPE_I64, 2 }, { PINION_DTYPE_F64, 1 },  { PINION_DTYPE_F8E6M2, 16 }, { PINION_DTYPE_BOOL, 16 }
	};
	struct pinion_storage *st = create("a", PINION_DTYPE_F32, 4), *other, *none = NULL;

	memcpy(view_data(st, BOTH), values, sizeof(values));
	for (size_t i = 0; i < COUNT(claims); i++) {
		other = open_it("a", claims[i].dtype, claims[i].n);
		ck_assert_int_eq(pinion_storage_dtype(other), claims[i].dtype);
		if (i == 0)
			ck_assert_mem_eq(view_data(other, PINION_READ), bits, sizeof(bits));
		if (i == 1)
			ck_assert_mem_eq(view_data(other, PINION_READ), halves, sizeof(halves));
		pinion_storage_free(other);
		/* One more than the file has room for, and half of one more. */
		ck_refused(pinion_storage_open(in_tmp("a"), claims[i].dtype,
					       sizeof(values) / pinion_dtype_bytes(claims[i].dtype) + 1, NULL, &none),
			   EBADMSG, "too small");
	}
	ck_assert_ptr_null(none);
	pinion_storage_free(st);
}
END_TEST

/* A storage is never empty: 0 elements are refused for any dtype, by both calls. */
START_TEST(no_storage_is_empty)
{
	struct pinion_storage *st = NULL;

	for (int dtype = 1; dtype <= PINION_DTYPE_BOOL; dtype++) {
		int err = is_packed(dtype) ? EOPNOTSUPP : EINVAL;
		const char *phrase = is_packed(dtype) ? "dtype has zero size" : "zero-length";

		ck_refused(pinion_storage_create(in_tmp("a"), dtype, 0, NULL, &st), err, phrase);
		ck_refused(pinion_storage_open(in_tmp("a"), dtype, 0, NULL, &st), err, phrase);
	}
	ck_assert_int_eq(access(in_tmp("a"), F_OK), -1);
	ck_assert_ptr_null(st);
}
END_TEST

/* n * size, to the last element that can be. */
START_TEST(the_word_limit_to_the_element)
{
	struct pinion_storage *st = NULL;

	make_file(in_tmp("a"), "precious", 8);
	for (int dtype = 1; dtype <= PINION_DTYPE_BOOL; dtype++) {
		uint64_t size = pinion_dtype_bytes(dtype), most;

		if (is_packed(dtype))
			continue;
		most = INT64_MAX / size;
		ck_refused(pinion_storage_open(in_tmp("a"), dtype, most, NULL, &st), EBADMSG, "too small");
		ck_refused(pinion_storage_open(in_tmp("a"), dtype, most + 1, NULL, &st), EOVERFLOW, "elem_count overflow");
		ck_refused(pinion_storage_create(in_tmp("b"), dtype, most + 1, NULL, &st), EOVERFLOW, "elem_count overflow");
		ck_refused(pinion_storage_open(in_tmp("a"), dtype, UINT64_MAX, NULL, &st), EOVERFLOW, "elem_count overflow");
		/* The product that wraps to something small. */
		if (size > 1)
			ck_refused(pinion_storage_open(in_tmp("a"), dtype, UINT64_MAX / size + 1, NULL, &st), EOVERFLOW,
				   "elem_count overflow");
	}
	ck_assert_ptr_null(st);
	ck_assert_int_eq(access(in_tmp("b"), F_OK), -1);
}
END_TEST

/* ---- the mapping ------------------------------------------------------------------------------------------------- */

/* Bytes of the process's mappings of the file, by its number: one that was made without a name is shown without one. */
static uint64_t mapped_bytes(const char *name)
{
	unsigned long from, to, number, ours = file_state(in_tmp(name)).st.st_ino;
	FILE *f = fopen("/proc/self/maps", "r");
	char line[PATH_MAX + 128];
	uint64_t sum = 0;

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &number) == 3 && number == ours &&
		    strstr(line, test_tmp()))
			sum += to - from;
	fclose(f);
	return sum;
}

START_TEST(what_is_mapped_is_what_was_asked_for)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	struct pinion_storage *st = create("a", PINION_DTYPE_U8, 5 * page), *front;

	ck_assert_uint_eq(mapped_bytes("a"), 5 * page);
	pinion_storage_free(st);
	ck_assert_uint_eq(mapped_bytes("a"), 0);
	/* Of a longer file the front, and no more of it. */
	front = open_it("a", PINION_DTYPE_F64, page / 8 + 1);
	ck_assert_uint_eq(mapped_bytes("a"), 2 * page);
	ck_assert_uint_eq(file_state(in_tmp("a")).st.st_size, 5 * page);
	pinion_storage_free(front);
	ck_assert_uint_eq(mapped_bytes("a"), 0);
}
END_TEST

/* Set: while descriptors of it are closed, the mappings of this file are counted. */
static const char *watched;
static unsigned int closings, mapped_at_closing;

static bool leads_to(int fd, const char *name)
{
	struct stat a, b;

	return !fstat(fd, &a) && !stat(in_tmp(name), &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

int close(int fd)
{
	const char *name = watched;

	if (name) {
		watched = NULL;
		if (leads_to(fd, name)) {
			closings++;
			mapped_at_closing += mapped_bytes(name) != 0;
		}
		watched = name;
	}
	return (int)syscall(SYS_close, fd);
}

/* And what is let go of is let go of whole. */
START_TEST(the_mapping_goes_before_the_descriptor)
{
	struct pinion_storage *st, *own = NULL;
	unsigned int fds = fds_open();

	st = create("a", PINION_DTYPE_F32, 4);
	ck_assert_uint_gt(mapped_bytes("a"), 0);
	watched = "a";
	pinion_storage_free(st);
	watched = NULL;
	st = open_it("a", PINION_DTYPE_F32, 4);
	watched = "a";
	ck_ok(pinion_storage_into_owned(st, &own));
	watched = NULL;
	ck_assert_uint_eq(closings, 2);
	ck_assert_uint_eq(mapped_at_closing, 0);
	pinion_storage_free(own);
	ck_assert_uint_eq(mapped_bytes("a"), 0);
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_int_eq(access(in_tmp("a"), F_OK), 0);
}
END_TEST

START_TEST(handles_come_and_go_and_the_pages_stay)
{
	struct pinion_storage *producer = create("a", PINION_DTYPE_F64, 2), *consumer, *late;
	double *p = view_data(producer, BOTH);
	const double *q;

	consumer = open_it("a", PINION_DTYPE_F64, 2);
	q = view_data(consumer, PINION_READ);
	p[0] = 1.5;
	pinion_storage_free(producer);
	ck_assert(q[0] == 1.5 && q[1] == 0);
	late = open_it("a", PINION_DTYPE_F64, 2);
	((double *)view_data(late, BOTH))[1] = 2.5;
	ck_assert(q[1] == 2.5);
	/* Without its name too, for those who have it. */
	ck_assert_int_eq(unlink(in_tmp("a")), 0);
	((double *)view_data(late, BOTH))[0] = 3.5;
	ck_assert(q[0] == 3.5);
	pinion_storage_free(late);
	ck_assert(q[0] == 3.5 && q[1] == 2.5);
	pinion_storage_free(consumer);
}
END_TEST

START_TEST(the_text_shows_dtype_elements_and_bytes)
{
	static const struct {
		enum pinion_dtype dtype;
		uint64_t n;
		const char *begin;
	} rows[] = {
		{ PINION_DTYPE_F32, 4, "shared f32[4] 16 bytes" },
		{ PINION_DTYPE_BOOL, 7, "shared bool[7] 7 bytes" },
		{ PINION_DTYPE_F8E6M2, 3, "shared f8e6m2[3] 3 bytes" },
		{ PINION_DTYPE_I64, 9, "shared i64[9] 72 bytes" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct pinion_storage *st = create("a", rows[i].dtype, rows[i].n);

		ck_assert_msg(!strncmp(described(st), rows[i].begin, strlen(rows[i].begin)), "%s", described(st));
		pinion_storage_free(st);
		unlink(in_tmp("a"));
	}
}
END_TEST

/* ---- 1.2: between threads ---------------------------------------------------------------------------------------- */

#define MOVED 1000

static struct pinion_context *ctx;

static int make(int kind, struct pinion_storage **out)
{
	struct pinion_mapping *map = NULL;
	int ret = -EINVAL;

	switch (kind) {
	case 0:
		return pinion_storage_owned(PINION_DTYPE_F32, MOVED, out);
	case 1:
		return pinion_storage_pinned(ctx, PINION_DTYPE_F32, MOVED, NULL, out);
	case 2:
		return pinion_storage_create(in_tmp("moved"), PINION_DTYPE_F32, MOVED, NULL, out);
	case 3:
		return pinion_storage_create_named(ctx, "moved", PINION_DTYPE_F32, MOVED, NULL, out);
	default:
		if (!pinion_mapping_open(in_tmp("mapped"), &map))
			ret = pinion_storage_mmapped(map, PINION_DTYPE_F32, 0, MOVED, out);
		pinion_mapping_unref(map);
		return ret;
	}
}

#define KINDS 5

/* Threads that do one thing each, one after the other. */
struct relay {
	int kind;
	struct pinion_storage *st;
	bool failed;
};

static void *in_the_first(void *arg)
{
	struct relay *r = arg;
	struct pinion_view view;

	r->failed |= make(r->kind, &r->st) != 0;
	if (!r->failed && !pinion_storage_view(r->st, BOTH, &view))
		for (int i = 0; i < MOVED; i++)
			pinion_view_f32(&view)[i] = (float)i;
	return NULL;
}

static void *in_the_second(void *arg)
{
	struct relay *r = arg;
	struct pinion_view view;

	r->failed |= pinion_storage_len_bytes(r->st) != MOVED * sizeof(float) || pinion_storage_view(r->st, PINION_READ, &view) ||
		     pinion_storage_describe(r->st, NULL, 0) <= 0;
	for (int i = 0; !r->failed && i < MOVED; i++)
		r->failed |= pinion_view_f32(&view)[i] != (float)i;
	return NULL;
}

static void *in_the_third(void *arg)
{
	struct relay *r = arg;

	pinion_storage_free(r->st);
	return NULL;
}

static void run(void *(*body)(void *), struct relay *r, int threads)
{
	pthread_t thread[4];

	for (int i = 0; i < threads; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, body, r), 0);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	ck_assert_msg(!r->failed, "kind %d", r->kind);
}

/* Made in one, read in four at once, freed in another. */
START_TEST(a_storage_may_change_threads)
{
	float values[MOVED];
	struct relay r = { .kind = _i };
	unsigned int maps;

	for (int i = 0; i < MOVED; i++)
		values[i] = (float)i;
	make_file(in_tmp("mapped"), values, sizeof(values));
	ck_ok(pinion_open(NULL, &ctx));
	maps = maps_open();
	run(in_the_first, &r, 1);
	run(in_the_second, &r, 4);
	run(in_the_third, &r, 1);
	ck_assert_uint_eq(maps_open(), maps);
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_shared");
	TCase *rows = tcase_create("rows"), *mapping = tcase_create("mapping"), *threads = tcase_create("threads");

	tcase_add_checked_fixture(rows, fresh_folder, NULL);
	tcase_add_loop_test(rows, every_dtype_shared_by_path, PINION_DTYPE_U8, PINION_DTYPE_BOOL + 1);
	tcase_add_test(rows, a_claim_of_another_dtype_is_accepted);
	tcase_add_test(rows, no_storage_is_empty);
	tcase_add_test(rows, the_word_limit_to_the_element);
	tcase_add_test(rows, the_text_shows_dtype_elements_and_bytes);
	suite_add_tcase(s, rows);
	tcase_add_checked_fixture(mapping, fresh_folder, NULL);
	tcase_add_test(mapping, what_is_mapped_is_what_was_asked_for);
	tcase_add_test(mapping, the_mapping_goes_before_the_descriptor);
	tcase_add_test(mapping, handles_come_and_go_and_the_pages_stay);
	suite_add_tcase(s, mapping);
	tcase_add_checked_fixture(threads, fresh_folder, NULL);
	tcase_add_loop_test(threads, a_storage_may_change_threads, 0, KINDS);
	suite_add_tcase(s, threads);
	return s;
}

PINION_TEST_MAIN(suite)
