/* SPDX-License-Identifier: MIT */
/*
 * Contract 6, 7.2 and 8.20 to 8.28: what can be wrong with a file or a wish, for each kind of storage, with its documented
 * error and the file as it was; and the rows that test_storage.c and its like do not state.
 */
#include "namespace.h"
#include "storage_help.h"

#include <sys/mount.h>
#include <sys/socket.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define UNPRIVILEGED 65534

static struct pinion_context *ctx;

static const struct pinion_storage_opts plain = { .size = sizeof(plain) };
static const struct pinion_storage_opts headed = { .size = sizeof(headed), .header = true };

static void setup(void)
{
	fresh_folder();
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

/* ---- files: what is asked for against what is there -------------------------------------------------------------- */

/* The ways to the elements of a file. */
enum way { MMAPPED, SHARED, HEADED, WAYS };

static const char *const way_names[] = { "mmapped", "shared", "shared with a header" };
static const float values[] = { 1, 2, 3, 4 };

/* A file of f32[4] as that way expects it. */
static void make_array(enum way way, const char *path)
{
	struct pinion_storage *st = NULL;

	if (way == MMAPPED) {
		make_file(path, values, sizeof(values));
		return;
	}
	ck_ok(pinion_storage_create(path, PINION_DTYPE_F32, 4, way == HEADED ? &headed : &plain, &st));
	memcpy(view_data(st, BOTH), values, sizeof(values));
	pinion_storage_free(st);
}

static int open_array(enum way way, const char *path, uint32_t rights, enum pinion_dtype dtype, uint64_t n,
		      struct pinion_storage **out)
{
	struct pinion_storage_opts opts = way == HEADED ? headed : plain;
	struct pinion_mapping *map = NULL;
	int ret;

	opts.rights = rights;
	if (way != MMAPPED)
		return pinion_storage_open(path, dtype, n, &opts, out);
	ret = pinion_mapping_open(path, &map);
	if (!ret)
		ret = pinion_storage_mmapped(map, dtype, 0, n, out);
	pinion_mapping_unref(map);
	return ret;
}

/* An error and words of its sentence; 0: it opens. */
struct outcome {
	int err;
	const char *phrase;
};

#define OPENS           \
	{               \
		0, NULL \
	}
#define BOUNDS                          \
	{                               \
		EINVAL, "out of bounds" \
	}
#define SMALL                        \
	{                            \
		EBADMSG, "too small" \
	}
#define OVERFLOWS                                \
	{                                        \
		EOVERFLOW, "elem_count overflow" \
	}
#define ZERO_SIZE                                 \
	{                                         \
		EOPNOTSUPP, "dtype has zero size" \
	}
#define NO_DTYPE                      \
	{                             \
		EINVAL, "not a dtype" \
	}
#define NO_LENGTH                     \
	{                             \
		EINVAL, "zero-length" \
	}
#define SAYS(is, was)                                               \
	{                                                           \
		EBADMSG, "says f32[" #is "], " was " was asked for" \
	}

static const struct {
	const char *name;
	int change; /* bytes more or fewer than the file had */
	enum pinion_dtype dtype;
	uint64_t n;
	struct outcome outcome[WAYS];
} wish_rows[] = {
	{ "as it was made", 0, PINION_DTYPE_F32, 4, { OPENS, OPENS, OPENS } },
	{ "truncated by a byte", -1, PINION_DTYPE_F32, 4, { BOUNDS, SMALL, SMALL } },
	{ "truncated by half", -8, PINION_DTYPE_F32, 4, { BOUNDS, SMALL, SMALL } },
	{ "truncated by all elements", -16, PINION_DTYPE_F32, 4, { BOUNDS, SMALL, SMALL } },
	{ "longer by a byte", 1, PINION_DTYPE_F32, 4, { OPENS, OPENS, OPENS } },
	{ "longer by pages", 10000, PINION_DTYPE_F32, 4, { OPENS, OPENS, OPENS } },
	{ "wrong size, one more", 0, PINION_DTYPE_F32, 5, { BOUNDS, SMALL, SAYS(4, "f32[5]") } },
	{ "wrong size, one fewer", 0, PINION_DTYPE_F32, 3, { OPENS, OPENS, SAYS(4, "f32[3]") } },
	{ "wrong dtype, as long", 0, PINION_DTYPE_I32, 4, { OPENS, OPENS, SAYS(4, "i32[4]") } },
	{ "wrong dtype, as many bytes", 0, PINION_DTYPE_F16, 8, { OPENS, OPENS, SAYS(4, "f16[8]") } },
	{ "wrong dtype, longer", 0, PINION_DTYPE_F64, 4, { BOUNDS, SMALL, SAYS(4, "f64[4]") } },
	{ "no dtype", 0, 99, 4, { NO_DTYPE, NO_DTYPE, NO_DTYPE } },
	{ "sub-byte dtype", 0, PINION_DTYPE_F4, 4, { ZERO_SIZE, ZERO_SIZE, ZERO_SIZE } },
	{ "sub-byte dtype, overflow", 0, PINION_DTYPE_F6E2M3, UINT64_MAX, { ZERO_SIZE, ZERO_SIZE, ZERO_SIZE } },
	{ "sub-byte dtype, zero length", 0, PINION_DTYPE_F6E3M2, 0, { ZERO_SIZE, ZERO_SIZE, ZERO_SIZE } },
	{ "zero length", 0, PINION_DTYPE_F32, 0, { OPENS, NO_LENGTH, NO_LENGTH } },
	{ "overflow", 0, PINION_DTYPE_F64, UINT64_MAX / 8 + 1, { OVERFLOWS, OVERFLOWS, OVERFLOWS } },
	{ "overflow of a signed size", 0, PINION_DTYPE_F16, UINT64_C(1) << 62, { OVERFLOWS, OVERFLOWS, OVERFLOWS } },
	{ "as large as can be", 0, PINION_DTYPE_U8, INT64_MAX, { BOUNDS, SMALL, OVERFLOWS } },
};

static void check_wish(enum way way, size_t row, const char *path, uint32_t rights)
{
	const struct outcome *outcome = &wish_rows[row].outcome[way];
	unsigned int fds = fds_open(), maps = maps_open();
	struct file_state before = file_state(path);
	struct pinion_storage *st = (void *)1;
	int ret = open_array(way, path, rights, wish_rows[row].dtype, wish_rows[row].n, &st);

	ck_assert_msg(ret == -outcome->err, "%s, %s: %d (%s)", way_names[way], wish_rows[row].name, ret, pinion_error());
	if (ret) {
		ck_assert_msg(strstr(pinion_error(), outcome->phrase), "%s, %s: \"%s\" does not say \"%s\"", way_names[way],
			      wish_rows[row].name, pinion_error(), outcome->phrase);
		ck_assert_ptr_eq(st, (void *)1);
	} else {
		if (wish_rows[row].n)
			ck_assert_mem_eq(view_data(st, PINION_READ), values, pinion_storage_len_bytes(st));
		pinion_storage_free(st);
	}
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_uint_eq(maps_open(), maps);
	/* Opening to write fills the blocks of a file that has holes; here there are none, but for the longer one. */
	if (ret || rights == PINION_READ)
		ck_file_as_it_was(path, before);
}

START_TEST(a_wish_that_is_not_what_is_there)
{
	enum way way = _i;

	for (size_t row = 0; row < COUNT(wish_rows); row++) {
		const char *path = in_tmp("array");
		struct stat st;

		unlink(path);
		make_array(way, path);
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_int_eq(truncate(path, st.st_size + wish_rows[row].change), 0);
		check_wish(way, row, path, PINION_READ);
		check_wish(way, row, path, BOTH);
	}
}
END_TEST

/* The file that is not there, or no longer: before it is looked for, the wish is checked, and nothing is made. */
START_TEST(a_file_that_was_unlinked)
{
	enum way way = _i;
	struct pinion_storage *st = NULL, *none = NULL;
	const char *path = in_tmp("array");
	unsigned int files;

	make_array(way, path);
	ck_ok(open_array(way, path, PINION_READ, PINION_DTYPE_F32, 4, &st));
	ck_assert_int_eq(unlink(path), 0);
	files = files_in(folder);
	ck_refused(open_array(way, path, PINION_READ, PINION_DTYPE_F32, 4, &none), ENOENT, "array");
	ck_refused(open_array(way, path, BOTH, PINION_DTYPE_F32, 4, &none), ENOENT, "array");
	for (size_t row = 0; way != MMAPPED && row < COUNT(wish_rows); row++) {
		const struct outcome *outcome = &wish_rows[row].outcome[way];

		if (outcome->err && outcome->err != EBADMSG)
			ck_refused(open_array(way, path, BOTH, wish_rows[row].dtype, wish_rows[row].n, &none), outcome->err,
				   outcome->phrase);
	}
	ck_assert_ptr_null(none);
	ck_assert_uint_eq(files_in(folder), files);
	/* Who has it keeps it; another of that name is another file. */
	make_array(way, path);
	ck_ok(open_array(way, path, PINION_READ, PINION_DTYPE_F32, 4, &none));
	ck_assert_ptr_ne(view_data(st, PINION_READ), view_data(none, PINION_READ));
	ck_assert_mem_eq(view_data(st, PINION_READ), values, sizeof(values));
	ck_assert_int_eq(info_of(st).unlinked, way != MMAPPED);
	ck_assert(!info_of(none).unlinked);
	pinion_storage_free(none);
	pinion_storage_free(st);
}
END_TEST

/* An empty file is one that was truncated as far as can be. */
START_TEST(an_empty_file)
{
	struct pinion_storage *st = NULL;
	struct file_state before;

	make_file(in_tmp("empty"), "", 0);
	before = file_state(in_tmp("empty"));
	ck_refused(open_array(MMAPPED, in_tmp("empty"), PINION_READ, PINION_DTYPE_F32, 4, &st), EINVAL, "out of bounds");
	for (enum way way = SHARED; way < WAYS; way++) {
		ck_refused(open_array(way, in_tmp("empty"), BOTH, PINION_DTYPE_F32, 4, &st), EBADMSG, "too small: 0 <");
		ck_refused(pinion_storage_create(in_tmp("empty"), PINION_DTYPE_F32, 4, way == HEADED ? &headed : NULL, &st),
			   EEXIST, "has 0 bytes");
	}
	ck_file_as_it_was(in_tmp("empty"), before);
	ck_assert_ptr_null(st);
}
END_TEST

/* Creating over a file that is not what would be made: 7.2's "create truncates a file that others have mapped". */
START_TEST(creating_over_what_is_there_cuts_nothing)
{
	static const struct {
		enum way there, way;
		enum pinion_dtype dtype;
		uint64_t n;
		const char *phrase; /* NULL: it is used and zeroed */
	} rows[] = {
		{ SHARED, SHARED, PINION_DTYPE_F32, 4, NULL },
		{ SHARED, SHARED, PINION_DTYPE_I16, 8, NULL }, /* a claim */
		{ SHARED, SHARED, PINION_DTYPE_F32, 3, "has 16 bytes, 12 are needed" },
		{ SHARED, SHARED, PINION_DTYPE_F32, 5, "has 16 bytes, 20 are needed" },
		{ SHARED, HEADED, PINION_DTYPE_F32, 4, "has 16 bytes, 4112 are needed" },
		{ HEADED, HEADED, PINION_DTYPE_F32, 4, NULL },
		{ HEADED, HEADED, PINION_DTYPE_F32, 3,
		  "says f32[4], f32[3] was" }, /* as many bytes: the last word is filled up */
		{ HEADED, HEADED, PINION_DTYPE_F32, 2, "has 4112 bytes, 4104 are needed" },
		{ HEADED, HEADED, PINION_DTYPE_F64, 2, "says f32[4], f64[2] was" },
		{ HEADED, SHARED, PINION_DTYPE_F32, 4, "has 4112 bytes, 16 are needed" },
		{ HEADED, SHARED, PINION_DTYPE_U8, 4112, "has a header" },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct pinion_storage_opts *opts = rows[i].way == HEADED ? &headed : &plain;
		struct pinion_storage *mapped = NULL, *st = NULL;
		const char *path = in_tmp("array");
		struct file_state before;

		unlink(path);
		make_array(rows[i].there, path);
		ck_ok(open_array(rows[i].there, path, PINION_READ, PINION_DTYPE_F32, 4, &mapped));
		before = file_state(path);
		if (rows[i].phrase) {
			ck_refused(pinion_storage_create(path, rows[i].dtype, rows[i].n, opts, &st), EEXIST, rows[i].phrase);
			ck_assert_ptr_null(st);
			ck_file_as_it_was(path, before);
			ck_assert_mem_eq(view_data(mapped, PINION_READ), values, sizeof(values));
		} else {
			ck_ok(pinion_storage_create(path, rows[i].dtype, rows[i].n, opts, &st));
			ck_assert_uint_eq(file_state(path).st.st_ino, before.st.st_ino);
			ck_assert_mem_eq(view_data(mapped, PINION_READ), ((float[]){ 0, 0, 0, 0 }), sizeof(values));
			pinion_storage_free(st);
		}
		pinion_storage_free(mapped);
	}
}
END_TEST

/* ---- what is no file --------------------------------------------------------------------------------------------- */

static void refuse_no_file(const char *path, const char *phrase)
{
	struct file_state before = file_state(path);
	struct pinion_storage *st = NULL;
	struct pinion_mapping *map = NULL;
	int fd;

	for (enum way way = MMAPPED; way < WAYS; way++) {
		ck_refused(open_array(way, path, PINION_READ, PINION_DTYPE_F32, 4, &st), EINVAL, phrase);
		ck_refused(open_array(way, path, BOTH, PINION_DTYPE_F32, 4, &st), EINVAL, phrase);
	}
	ck_refused(pinion_storage_create(path, PINION_DTYPE_F32, 4, &headed, &st), EINVAL, phrase);
	ck_refused(pinion_storage_create(path, PINION_DTYPE_F32, 4, &plain, &st), EINVAL, phrase);
	fd = open(path, O_RDONLY | O_NONBLOCK);
	ck_assert_int_ge(fd, 0);
	ck_refused(pinion_mapping_open_fd(fd, &map), EINVAL, phrase);
	close(fd);
	ck_file_as_it_was(path, before);
	ck_assert_ptr_null(st);
	ck_assert_ptr_null(map);
}

START_TEST(a_directory_or_a_fifo)
{
	unsigned int fds = fds_open();
	int socks[2], end[2];
	struct pinion_mapping *map = NULL;

	alarm(200); /* the open of a FIFO could wait for ever */
	ck_assert_int_eq(mkdir(in_tmp("dir"), 0700), 0);
	make_file(in_tmp("dir/inside"), "a", 1);
	refuse_no_file(in_tmp("dir"), "a directory");
	ck_assert_int_eq(mkfifo(in_tmp("fifo"), 0600), 0);
	refuse_no_file(in_tmp("fifo"), "a FIFO");
	/* Descriptors without a path. */
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, socks), 0);
	ck_assert_int_eq(pipe(end), 0);
	ck_refused(pinion_mapping_open_fd(socks[0], &map), EINVAL, "a socket");
	ck_refused(pinion_mapping_open_fd(end[0], &map), EINVAL, "a FIFO");
	for (int i = 0; i < 2; i++) {
		close(socks[i]);
		close(end[i]);
	}
	ck_assert_uint_eq(fds_open(), fds);
	alarm(0);
}
END_TEST

/* ---- read-only files --------------------------------------------------------------------------------------------- */

/* As a user whom the files' modes stop. */
static int without_rights(void)
{
	static const struct {
		const char *path;
		enum way way;
	} rows[] = { { "plain", SHARED }, { "headed", HEADED } };
	struct pinion_storage *st = NULL;

	child_needs(!chdir(folder), 1);
	child_needs(geteuid() || (!setgid(UNPRIVILEGED) && !setuid(UNPRIVILEGED)), 2);
	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct pinion_storage_opts *opts = rows[i].way == HEADED ? &headed : &plain;

		child_needs(open_array(rows[i].way, rows[i].path, BOTH, PINION_DTYPE_F32, 4, &st) == -EACCES, 3);
		child_needs(strstr(pinion_error(), rows[i].path), 4);
		child_needs(pinion_storage_create(rows[i].path, PINION_DTYPE_F32, 4, opts, &st) == -EACCES, 5);
		child_needs(!open_array(rows[i].way, rows[i].path, PINION_READ, PINION_DTYPE_F32, 4, &st), 6);
		child_needs(!memcmp(view_data(st, PINION_READ), values, sizeof(values)), 7);
		pinion_storage_free(st);
	}
	child_needs(!open_array(MMAPPED, "plain", PINION_READ, PINION_DTYPE_F32, 4, &st), 8);
	child_needs(!memcmp(view_data(st, PINION_READ), values, sizeof(values)), 9);
	pinion_storage_free(st);
	st = NULL;
	for (enum way way = MMAPPED; way < WAYS; way++) {
		child_needs(open_array(way, "closed", PINION_READ, PINION_DTYPE_F32, 4, &st) == -EACCES, 10);
		child_needs(strstr(pinion_error(), "closed"), 11);
	}
	child_needs(!st, 12);
	return 0;
}

START_TEST(a_read_only_file)
{
	static const char *const names[] = { "plain", "headed", "closed" };
	struct file_state before[3];
	pid_t pid;

	make_array(SHARED, in_tmp("plain"));
	make_array(HEADED, in_tmp("headed"));
	make_array(SHARED, in_tmp("closed"));
	ck_assert_int_eq(chmod(folder, 0755), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(chmod(in_tmp(names[i]), i == 2 ? 0 : 0444), 0);
		before[i] = file_state(in_tmp(names[i]));
	}
	pid = fork();
	if (!pid)
		_exit(without_rights());
	ck_assert_int_eq(reap(pid), 0);
	for (int i = 0; i < 3; i++)
		ck_file_as_it_was(in_tmp(names[i]), before[i]);
}
END_TEST

/* ---- storages without a file ------------------------------------------------------------------------------------- */

/* Windows in memory of 64 bytes: a mapping, and a buffer, whose size is that of its pages. */
static const struct {
	const char *name;
	enum pinion_dtype dtype;
	uint64_t offset, n;
	int err;
	const char *phrase;
} window_rows[] = {
	{ "all", PINION_DTYPE_F32, 0, 16, 0, NULL },
	{ "the last element", PINION_DTYPE_F64, 56, 1, 0, NULL },
	{ "none, at the end", PINION_DTYPE_F64, 64, 0, 0, NULL },
	{ "unaligned by one", PINION_DTYPE_F32, 1, 4, EINVAL, "byte offset 1 is not aligned to the 4 bytes of one f32" },
	{ "unaligned by half", PINION_DTYPE_F64, 4, 1, EINVAL, "not aligned to the 8 bytes of one f64" },
	{ "unaligned, no elements", PINION_DTYPE_I16, 3, 0, EINVAL, "not aligned to" },
	{ "unaligned, overflow", PINION_DTYPE_F32, 2, UINT64_MAX, EINVAL, "not aligned to" },
	{ "sub-byte, unaligned", PINION_DTYPE_F4, 1, 1, EOPNOTSUPP, "dtype has zero size" },
	{ "overflow of n x size", PINION_DTYPE_F32, 4, UINT64_MAX / 4 + 1, EOVERFLOW, "elem_count overflow" },
	{ "overflow of the end", PINION_DTYPE_U8, UINT64_MAX, 1, EOVERFLOW, "byte offset" },
};

START_TEST(windows_row_by_row)
{
	static const char bytes[64];
	struct pinion_mapping *map = NULL;
	struct pinion_buffer *buf = NULL;
	struct file_state before;
	uint64_t size;

	make_file(in_tmp("window"), bytes, sizeof(bytes));
	before = file_state(in_tmp("window"));
	ck_ok(pinion_mapping_open(in_tmp("window"), &map));
	ck_ok(pinion_buffer_alloc(ctx, sizeof(bytes), NULL, &buf));
	size = pinion_buffer_size(buf);
	for (size_t i = 0; i < COUNT(window_rows); i++) {
		/* In the buffer, as far from its end. */
		uint64_t offset = window_rows[i].offset, at = offset <= 64 && !window_rows[i].err ? size - 64 + offset : offset;

		for (int over = 0; over < 2; over++) {
			struct pinion_storage *st = NULL;
			int ret = over ? pinion_storage_over(buf, BOTH, window_rows[i].dtype, at, window_rows[i].n, &st) :
					 pinion_storage_mmapped(map, window_rows[i].dtype, offset, window_rows[i].n, &st);

			ck_assert_msg(ret == -window_rows[i].err, "%s: %d (%s)", window_rows[i].name, ret, pinion_error());
			if (ret)
				ck_assert_msg(strstr(pinion_error(), window_rows[i].phrase), "%s: %s", window_rows[i].name,
					      pinion_error());
			ck_assert_int_eq(!st, ret != 0);
			pinion_storage_free(st);
		}
	}
	pinion_buffer_unref(buf);
	pinion_mapping_unref(map);
	ck_file_as_it_was(in_tmp("window"), before);
}
END_TEST

/* The GPU driver's test, on memory that is pinned by other means; and the dtypes that it has no constructor for. */
START_TEST(pinned_zeros_report_their_dtype)
{
	static const enum pinion_dtype dtypes[] = { PINION_DTYPE_U8,   PINION_DTYPE_I32,    PINION_DTYPE_F16,
						    PINION_DTYPE_BF16, PINION_DTYPE_F64,    PINION_DTYPE_I8,
						    PINION_DTYPE_BOOL, PINION_DTYPE_F8E5M2, PINION_DTYPE_F8E8M0 };
	static const char zeros[32];

	for (size_t i = 0; i < COUNT(dtypes); i++) {
		struct pinion_storage *st = NULL;
		struct pinion_view view;

		ck_ok(pinion_storage_pinned(ctx, dtypes[i], 4, NULL, &st));
		ck_assert_int_eq(pinion_storage_dtype(st), dtypes[i]);
		ck_assert_uint_eq(pinion_storage_elements(st), 4);
		ck_ok(pinion_storage_view(st, BOTH, &view));
		ck_assert_int_eq(view.dtype, dtypes[i]);
		ck_assert_mem_eq(view.data, zeros, pinion_storage_len_bytes(st));
		pinion_storage_free(st);
	}
}
END_TEST

/* ---- dtypes that are stored and not viewed ----------------------------------------------------------------------- */

static int create_any(int kind, enum pinion_dtype dtype, struct pinion_storage **out)
{
	char name[32];

	snprintf(name, sizeof(name), "any-%s", pinion_dtype_name(dtype));
	return kind == 0 ? pinion_storage_owned(dtype, 4, out) :
	       kind == 1 ? pinion_storage_pinned(ctx, dtype, 4, NULL, out) :
	       kind == 2 ? pinion_storage_create(in_tmp(name), dtype, 4, &plain, out) :
	       kind == 3 ? pinion_storage_create(in_tmp(strcat(name, "-h")), dtype, 4, &headed, out) :
			   pinion_storage_create_named(ctx, name, dtype, 4, NULL, out);
}

START_TEST(what_can_be_created_and_what_of_it_viewed)
{
	for (int kind = 0; kind < 5; kind++)
		for (enum pinion_dtype dtype = PINION_DTYPE_U8; dtype <= PINION_DTYPE_BOOL; dtype++) {
			struct pinion_storage *st = NULL, *own = NULL;
			struct pinion_view view;

			if (pinion_dtype_is_packed(dtype)) {
				ck_refused(create_any(kind, dtype, &st), EOPNOTSUPP, "dtype has zero size");
				continue;
			}
			ck_ok(create_any(kind, dtype, &st));
			ck_assert_uint_eq(pinion_storage_len_bytes(st), 4 * pinion_dtype_bytes(dtype));
			if (dtype == PINION_DTYPE_F8E6M2) {
				ck_refused(pinion_storage_view(st, PINION_READ, &view), EOPNOTSUPP, "f8e6m2");
				pinion_storage_free(st);
				continue;
			}
			ck_ok(pinion_storage_view(st, BOTH, &view));
			/* Bool is bytes under a tag of its own. */
			ck_assert_int_eq(pinion_view_u8(&view) != NULL, dtype == PINION_DTYPE_U8);
			ck_assert_int_eq(pinion_view_bool(&view) != NULL, dtype == PINION_DTYPE_BOOL);
			ck_assert_int_eq(pinion_view_f8e5m2(&view) != NULL, dtype == PINION_DTYPE_F8E5M2);
			/* "Into copies, except for the owned storage." */
			*(uint8_t *)view.data = 1;
			ck_ok(pinion_storage_into_owned(st, &own));
			ck_assert_int_eq(view_data(own, BOTH) == view.data, kind == 0);
			ck_assert_uint_eq(*(uint8_t *)view_data(own, BOTH), 1);
			pinion_storage_free(own);
		}
}
END_TEST

/* ---- names: their records are files too -------------------------------------------------------------------------- */

enum damage { UNTOUCHED, LONGER, READ_ONLY, CUT, EMPTY, UNLINKED, DIRECTORY, FIFO, LINK, GARBAGE, DAMAGES };

static void damage(enum damage how, const char *path)
{
	static const char garbage[256] = "not a record";
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	if (how == LONGER)
		ck_assert_int_eq(truncate(path, st.st_size + 100), 0);
	if (how == READ_ONLY)
		ck_assert_int_eq(chmod(path, 0400), 0);
	if (how == CUT)
		ck_assert_int_eq(truncate(path, st.st_size - 1), 0);
	if (how == EMPTY)
		ck_assert_int_eq(truncate(path, 0), 0);
	if (how >= UNLINKED)
		ck_assert_int_eq(unlink(path), 0);
	if (how == DIRECTORY)
		ck_assert_int_eq(mkdir(path, 0700), 0);
	if (how == FIFO)
		ck_assert_int_eq(mkfifo(path, 0600), 0);
	if (how == LINK)
		ck_assert_int_eq(symlink("/dev/zero", path), 0);
	if (how == GARBAGE)
		make_file(path, garbage, st.st_size);
}

START_TEST(a_name_whose_record_is_none_is_nobodys)
{
	char path[PATH_MAX], name[32];

	alarm(200);
	for (enum damage how = UNTOUCHED; how < DAMAGES; how++) {
		struct pinion_storage *st = NULL, *other = NULL;
		struct file_state before;

		snprintf(name, sizeof(name), "damaged-%d", how);
		snprintf(path, sizeof(path), "%s/%s.name", getenv("PINION_DIR"), name);
		ck_ok(pinion_storage_create_named(ctx, name, PINION_DTYPE_F32, 4, NULL, &st));
		damage(how, path);
		before = file_state(path);
		if (how <= READ_ONLY) {
			ck_ok(pinion_storage_open_named(ctx, name, PINION_DTYPE_F32, 4, NULL, &other));
			pinion_storage_free(other);
		} else {
			ck_refused(pinion_storage_open_named(ctx, name, PINION_DTYPE_F32, 4, NULL, &other), ENOENT, name);
			ck_assert_ptr_null(other);
		}
		ck_file_as_it_was(path, before);
		/* The memory is its creator's, whatever is done to the record. */
		((float *)view_data(st, BOTH))[3] = 4;
		pinion_storage_free(st);
		ck_assert(how == DIRECTORY ? !rmdir(path) : unlink(path) == (how > READ_ONLY && how != UNLINKED ? 0 : -1));
	}
	alarm(0);
}
END_TEST

/* ---- 6: the CPU's runtime signals -------------------------------------------------------------------------------- */

#define KB UINT64_C(1024)

static const struct {
	const char *text;	   /* of /proc/meminfo */
	uint64_t available, total; /* 0: neither is known */
} meminfo_rows[] = {
	{ "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable: 300 kB\nBuffers: 7 kB\nCached: 50 kB\n", 300 * KB, 9000 * KB },
	{ "MemTotal: 9000 kB\nMemFree: 100 kB\nBuffers: 7 kB\nCached: 50 kB\nSwapCached: 3 kB\n", 157 * KB, 9000 * KB },
	{ "SwapCached: 3 kB\nCached: 50 kB\nBuffers: 7 kB\nMemFree: 100 kB\nMemTotal: 9000 kB\n", 157 * KB, 9000 * KB },
	{ "MemTotal: 9000 kB\nMemFree: 100 kB\n", 100 * KB, 9000 * KB },
	{ "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable: 0 kB\nBuffers: 7 kB\nCached: 50 kB\n", 0, 9000 * KB },
	{ "MemFree: 100 kB\nMemAvailable: 300 kB\n", 0, 0 },
	{ "MemTotal: 9000 kB\n", 0, 0 },
	{ "", 0, 0 },
};

static void write_text(const char *path, const char *text)
{
	make_file(path, text, strlen(text));
}

/* In a mount namespace where the files that tell of memory are the test's. "Both or neither." */
START_TEST(meminfo_row_by_row)
{
	struct pinion_device *cpu = NULL;
	uint64_t available = 77, total = 77;
	bool known = meminfo_rows[_i].total;

	pinion_close(ctx);
	ctx = NULL;
	write_text(in_tmp("meminfo"), meminfo_rows[_i].text);
	write_text(in_tmp("groups"), "0::/\n");
	write_text(in_tmp("mountinfo"), "\n");
	if (!namespace_of_mounts())
		SKIP("a mount namespace is refused");
	if (mount(in_tmp("meminfo"), "/proc/meminfo", NULL, MS_BIND, NULL) ||
	    mount(in_tmp("groups"), "/proc/self/cgroup", NULL, MS_BIND, NULL) ||
	    mount(in_tmp("mountinfo"), "/proc/self/mountinfo", NULL, MS_BIND, NULL))
		SKIP("mounting over /proc is refused");
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_find(ctx, "cpu", &cpu));
	ck_assert_int_eq(pinion_device_available(cpu, &available), known ? 0 : -ENODATA);
	ck_assert_int_eq(pinion_device_total(cpu, &total), known ? 0 : -ENODATA);
	ck_assert_uint_eq(available, known ? meminfo_rows[_i].available : 77);
	ck_assert_uint_eq(total, known ? meminfo_rows[_i].total : 77);
	ck_assert_int_eq(pinion_device_would_fit(cpu, 1),
			 !known ? PINION_FIT_UNKNOWN : available ? PINION_FIT_TIGHT : PINION_FIT_NO);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_storage");
	TCase *tc = tcase_create("rows");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, a_wish_that_is_not_what_is_there, 0, WAYS);
	tcase_add_loop_test(tc, a_file_that_was_unlinked, 0, WAYS);
	tcase_add_test(tc, an_empty_file);
	tcase_add_test(tc, creating_over_what_is_there_cuts_nothing);
	tcase_add_test(tc, a_directory_or_a_fifo);
	tcase_add_test(tc, a_read_only_file);
	tcase_add_test(tc, windows_row_by_row);
	tcase_add_test(tc, pinned_zeros_report_their_dtype);
	tcase_add_test(tc, what_can_be_created_and_what_of_it_viewed);
	tcase_add_test(tc, a_name_whose_record_is_none_is_nobodys);
	tcase_add_loop_test(tc, meminfo_row_by_row, 0, COUNT(meminfo_rows));
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(suite)
