/* SPDX-License-Identifier: MIT */
/* Storages shared by path: the contract's rows, and that nothing that is refused is touched. */
#include "namespace.h"
#include "storage_help.h"

#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define UNPRIVILEGED 65534

static struct pinion_storage *create(const char *path, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_create(path, dtype, n, NULL, &st));
	return st;
}

static struct pinion_storage *open_it(const char *path, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_storage *st = NULL;

	ck_ok(pinion_storage_open(path, dtype, n, NULL, &st));
	return st;
}

static const struct pinion_storage_opts with_header = { .size = sizeof(with_header), .header = true };
static const struct pinion_storage_opts reader = { .size = sizeof(reader), .rights = PINION_READ };
static const struct pinion_storage_opts replacing = { .size = sizeof(replacing), .replace = true };

/* ---- the contract's own tests ------------------------------------------------------------------------------------ */

START_TEST(create_then_open)
{
	const float values[] = { 1, 2, 3, 4 };
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 4);
	struct pinion_view view;

	ck_ok(pinion_storage_view(st, BOTH, &view));
	memcpy(pinion_view_f32(&view), values, sizeof(values));
	pinion_storage_free(st);
	st = open_it(in_tmp("a"), PINION_DTYPE_F32, 4);
	ck_ok(pinion_storage_view(st, PINION_READ, &view));
	ck_assert_int_eq(memcmp(pinion_view_f32(&view), values, sizeof(values)), 0);
	pinion_storage_free(st);
	ck_assert_uint_eq(file_state(in_tmp("a")).st.st_size, sizeof(values));
}
END_TEST

START_TEST(a_sibling_sees_writes)
{
	struct pinion_storage *a = create(in_tmp("a"), PINION_DTYPE_F64, 2),
			      *b = open_it(in_tmp("a"), PINION_DTYPE_F64, 2);
	double *p = view_data(a, BOTH);
	const double *q = view_data(b, PINION_READ);
	pid_t pid;

	ck_assert(q[0] == 0 && q[1] == 0);
	p[0] = 1.5;
	p[1] = 2.5;
	ck_assert(q[0] == 1.5 && q[1] == 2.5);
	pid = fork();
	if (!pid) {
		struct pinion_storage *c;
		struct pinion_view view;

		child_needs(!pinion_storage_open(in_tmp("a"), PINION_DTYPE_F64, 2, NULL, &c), 1);
		child_needs(!pinion_storage_view(c, BOTH, &view), 2);
		child_needs(pinion_view_f64(&view)[1] == 2.5, 3);
		pinion_view_f64(&view)[1] = 7;
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_assert(p[1] == 7 && q[1] == 7);
	pinion_storage_free(a);
	pinion_storage_free(b);
}
END_TEST

START_TEST(too_small_is_refused)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 2), *none = NULL;
	struct file_state before = file_state(in_tmp("a"));

	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 100, NULL, &none), EBADMSG, "too small: 8 < 400");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 3, NULL, &none), EBADMSG, "too small");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 2, &with_header, &none), EBADMSG, "too small");
	ck_assert_ptr_null(none);
	ck_file_as_it_was(in_tmp("a"), before);
	pinion_storage_free(st);
}
END_TEST

START_TEST(zero_length_is_refused_before_the_file_is_touched)
{
	struct pinion_storage *st = NULL;
	struct file_state before;

	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_F32, 0, NULL, &st), EINVAL, "zero-length");
	ck_assert_int_eq(access(in_tmp("a"), F_OK), -1);
	make_file(in_tmp("a"), "precious", 8);
	before = file_state(in_tmp("a"));
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_F32, 0, NULL, &st), EINVAL, "zero-length");
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_F32, 0, &replacing, &st), EINVAL, "zero-length");
	ck_refused(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 0, NULL, &st), EINVAL, "zero-length");
	ck_refused(pinion_storage_open(in_tmp("no/where"), PINION_DTYPE_F32, 0, NULL, &st), EINVAL, "zero-length");
	ck_file_as_it_was(in_tmp("a"), before);
	ck_assert_ptr_null(st);
}
END_TEST

START_TEST(into_owned_is_a_copy)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_I32, 3), *again, *own = NULL;
	int32_t *p = view_data(st, BOTH);

	p[0] = -1;
	p[2] = 1;
	again = open_it(in_tmp("a"), PINION_DTYPE_I32, 3);
	ck_ok(pinion_storage_into_owned(st, &own));
	((int32_t *)view_data(again, BOTH))[1] = 5;
	p = view_data(own, PINION_READ);
	ck_assert(p[0] == -1 && p[1] == 0 && p[2] == 1);
	ck_assert_int_eq(pinion_storage_kind(own), PINION_STORAGE_OWNED);
	pinion_storage_free(own);
	pinion_storage_free(again);
}
END_TEST

/* ---- checks, and their order ------------------------------------------------------------------------------------- */

START_TEST(a_wish_that_cannot_be_is_refused_before_any_file)
{
	static const struct {
		enum pinion_dtype dtype;
		uint64_t n;
		int err;
		const char *phrase;
	} row[] = {
		{ PINION_DTYPE_F4, 4, EOPNOTSUPP, "dtype has zero size" },
		{ PINION_DTYPE_F6E2M3, 0, EOPNOTSUPP, "dtype has zero size" },
		{ PINION_DTYPE_F6E3M2, UINT64_MAX, EOPNOTSUPP, "dtype has zero size" },
		{ 77, 4, EINVAL, "not a dtype" },
		{ PINION_DTYPE_F32, UINT64_MAX / 4 + 1, EOVERFLOW, "elem_count overflow" },
		{ PINION_DTYPE_F32, UINT64_MAX, EOVERFLOW, "elem_count overflow" },
		{ PINION_DTYPE_U8, UINT64_MAX, EOVERFLOW, "elem_count overflow" },
		{ PINION_DTYPE_U8, (uint64_t)INT64_MAX + 1, EOVERFLOW, "elem_count overflow" },
		{ PINION_DTYPE_F64, UINT64_C(1) << 60, EOVERFLOW, "elem_count overflow" },
	};
	struct pinion_storage *st = NULL;
	struct file_state before;

	make_file(in_tmp("a"), "precious", 8);
	before = file_state(in_tmp("a"));
	for (unsigned int i = 0; i < COUNT(row); i++) {
		ck_refused(pinion_storage_create(in_tmp("a"), row[i].dtype, row[i].n, &replacing, &st), row[i].err,
			   row[i].phrase);
		ck_refused(pinion_storage_create(in_tmp("b"), row[i].dtype, row[i].n, NULL, &st), row[i].err,
			   row[i].phrase);
		ck_refused(pinion_storage_open(in_tmp("b"), row[i].dtype, row[i].n, NULL, &st), row[i].err,
			   row[i].phrase);
	}
	/* With a header there is a little less room. */
	ck_refused(pinion_storage_create(in_tmp("b"), PINION_DTYPE_U8, INT64_MAX, &with_header, &st), EOVERFLOW,
		   "elem_count overflow");
	ck_file_as_it_was(in_tmp("a"), before);
	ck_assert_int_eq(access(in_tmp("b"), F_OK), -1);
	ck_assert_ptr_null(st);
}
END_TEST

START_TEST(options_are_checked_before_any_file)
{
	struct pinion_buffer_opts buffer = { .size = sizeof(buffer) };
	const struct {
		struct pinion_storage_opts opts;
		int create, open; /* 0: not tried */
		const char *phrase;
	} row[] = {
		{ { .size = 1 }, EINVAL, EINVAL, "size" },
		{ { .size = sizeof(row[0].opts), .rights = 4 }, EINVAL, EINVAL, "rights" },
		{ { .size = sizeof(row[0].opts), .rights = PINION_WRITE }, EINVAL, EINVAL, "rights" },
		{ { .size = sizeof(row[0].opts), .rights = PINION_READ }, EINVAL, 0, "PINION_WRITE" },
		{ { .size = sizeof(row[0].opts), .mode = 01777 }, EINVAL, EINVAL, "mode" },
		{ { .size = sizeof(row[0].opts), .mode = 0644 }, 0, EINVAL, "mode" },
		{ { .size = sizeof(row[0].opts), .replace = true }, 0, EINVAL, "replace" },
		{ { .size = sizeof(row[0].opts), .deadline_ns = 1 }, EINVAL, EINVAL, "deadline_ns" },
		{ { .size = sizeof(row[0].opts), .buffer = &buffer }, EINVAL, EINVAL, "buffer" },
		{ { .size = sizeof(row[0].opts), .rank = 9 }, EINVAL, EINVAL, "rank" },
		{ { .size = sizeof(row[0].opts), .rank = 2, .shape = { 2, 3 } },
		  EINVAL,
		  EINVAL,
		  "6 elements, 4 were asked" },
		{ { .size = sizeof(row[0].opts), .rank = 2, .shape = { 1ull << 40, 1ull << 40 } },
		  EOVERFLOW,
		  EOVERFLOW,
		  "overflow" },
		{ { .size = sizeof(row[0].opts), .rank = 1 }, EINVAL, EINVAL, "0 elements" },
	};
	struct pinion_storage *st = NULL;

	for (unsigned int i = 0; i < COUNT(row); i++) {
		if (row[i].create)
			ck_refused(pinion_storage_create(in_tmp("no/where"), PINION_DTYPE_F32, 4, &row[i].opts, &st),
				   row[i].create, row[i].phrase);
		if (row[i].open)
			ck_refused(pinion_storage_open(in_tmp("no/where"), PINION_DTYPE_F32, 4, &row[i].opts, &st),
				   row[i].open, row[i].phrase);
	}
	ck_assert_ptr_null(st);
}
END_TEST

START_TEST(a_path_that_leads_nowhere_is_refused)
{
	struct pinion_storage *st = NULL;
	char path[PATH_MAX + 64];

	ck_refused(pinion_storage_open(in_tmp("missing"), PINION_DTYPE_F32, 4, NULL, &st), ENOENT, "missing");
	ck_refused(pinion_storage_open(in_tmp("no/where"), PINION_DTYPE_F32, 4, NULL, &st), ENOENT, "folder");
	ck_refused(pinion_storage_create(in_tmp("no/where"), PINION_DTYPE_F32, 4, NULL, &st), ENOENT, "folder");
	ck_refused(pinion_storage_create("", PINION_DTYPE_F32, 4, NULL, &st), EINVAL, "directory");
	ck_refused(pinion_storage_create(in_tmp(""), PINION_DTYPE_F32, 4, NULL, &st), EINVAL, "directory");
	ck_refused(pinion_storage_create(in_tmp("."), PINION_DTYPE_F32, 4, NULL, &st), EINVAL, "directory");
	ck_refused(pinion_storage_open(in_tmp(".."), PINION_DTYPE_F32, 4, NULL, &st), EINVAL, "directory");
	make_file(in_tmp("file"), "a", 1);
	ck_refused(pinion_storage_create(in_tmp("file/b"), PINION_DTYPE_F32, 4, NULL, &st), ENOTDIR, "folder");
	memset(path, 'x', sizeof(path));
	path[300] = 0;
	ck_refused(pinion_storage_create(path, PINION_DTYPE_F32, 4, NULL, &st), ENAMETOOLONG, "xxx");
	ck_refused(pinion_storage_open(path, PINION_DTYPE_F32, 4, NULL, &st), ENAMETOOLONG, "xxx");
	path[300] = 'x';
	path[sizeof(path) - 1] = 0;
	ck_assert_int_eq(pinion_storage_create(path, PINION_DTYPE_F32, 4, NULL, &st), -ENAMETOOLONG);
	ck_assert_ptr_null(st);
}
END_TEST

/* Refused by all calls with @err and @phrase, and as it was. */
static void refuse_kind(const char *path, int err, const char *phrase)
{
	struct file_state before = file_state(path);
	struct pinion_storage *st = NULL;

	ck_refused(pinion_storage_create(path, PINION_DTYPE_F32, 4, NULL, &st), err, phrase);
	ck_refused(pinion_storage_create(path, PINION_DTYPE_F32, 4, &replacing, &st), err, phrase);
	ck_refused(pinion_storage_open(path, PINION_DTYPE_F32, 4, NULL, &st), err, phrase);
	ck_refused(pinion_storage_open(path, PINION_DTYPE_F32, 4, &reader, &st), err, phrase);
	ck_file_as_it_was(path, before);
	ck_assert_ptr_null(st);
}

START_TEST(what_is_no_file_is_refused)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	unsigned int fds = fds_open();
	struct file_state before;
	int sock;

	alarm(100); /* the open of a FIFO could wait for ever */
	ck_assert_int_eq(mkfifo(in_tmp("fifo"), 0600), 0);
	refuse_kind(in_tmp("fifo"), EINVAL, "a FIFO");
	ck_assert_int_eq(mkdir(in_tmp("dir"), 0700), 0);
	refuse_kind(in_tmp("dir"), EINVAL, "a directory");
	sock = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", in_tmp("sock"));
	ck_assert_int_eq(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	refuse_kind(in_tmp("sock"), EINVAL, "a socket");
	close(sock);
	refuse_kind("/dev/null", EINVAL, "a device");
	refuse_kind("/dev/zero", EINVAL, "a device");

	make_file(in_tmp("target"), "0123456789abcdef", 16);
	before = file_state(in_tmp("target"));
	ck_assert_int_eq(symlink("target", in_tmp("link")), 0);
	refuse_kind(in_tmp("link"), ELOOP, "link");
	ck_file_as_it_was(in_tmp("target"), before);
	ck_assert_int_eq(symlink("fresh", in_tmp("dangling")), 0);
	refuse_kind(in_tmp("dangling"), ELOOP, "link");
	ck_assert_int_eq(access(in_tmp("fresh"), F_OK), -1);
	ck_assert_uint_eq(fds_open(), fds);
	alarm(0);
}
END_TEST

/* ---- the claim, and what it opens -------------------------------------------------------------------------------- */

START_TEST(a_longer_file_is_opened_at_its_front)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_U8, 8), *front;
	unsigned char *p = view_data(st, BOTH);

	for (int i = 0; i < 8; i++)
		p[i] = i;
	front = open_it(in_tmp("a"), PINION_DTYPE_U8, 3);
	ck_assert_uint_eq(pinion_storage_len_bytes(front), 3);
	ck_assert_int_eq(memcmp(view_data(front, BOTH), p, 3), 0);
	pinion_storage_free(front);
	/* Without a header the dtype is a claim. */
	front = open_it(in_tmp("a"), PINION_DTYPE_I16, 4);
	ck_assert_int_eq(((int16_t *)view_data(front, BOTH))[1], 0x0302);
	pinion_storage_free(front);
	pinion_storage_free(st);
}
END_TEST

START_TEST(a_slice_of_another_dtype_is_nothing)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F32, 4);
	struct pinion_view view;

	ck_ok(pinion_storage_view(st, BOTH, &view));
	ck_assert_ptr_null(pinion_view_u8(&view));
	ck_assert_ptr_null(pinion_view_f64(&view));
	ck_assert_ptr_nonnull(pinion_view_f32(&view));
	pinion_storage_free(st);
	st = create(in_tmp("b"), PINION_DTYPE_BOOL, 4);
	ck_ok(pinion_storage_view(st, BOTH, &view));
	ck_assert_ptr_null(pinion_view_u8(&view));
	ck_assert_ptr_nonnull(pinion_view_bool(&view));
	pinion_storage_free(st);
}
END_TEST

START_TEST(f8e6m2_is_stored_and_not_viewed)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_F8E6M2, 4), *own = NULL;
	struct pinion_view view;

	ck_refused(pinion_storage_view(st, PINION_READ, &view), EOPNOTSUPP, "f8e6m2");
	ck_refused(pinion_storage_into_owned(st, &own), EOPNOTSUPP, "f8e6m2");
	pinion_storage_free(st);
	st = open_it(in_tmp("a"), PINION_DTYPE_F8E6M2, 4);
	ck_assert_uint_eq(pinion_storage_len_bytes(st), 4);
	pinion_storage_free(st);
	/* f8e5m2, which the contract stores and cannot view for want of a tag, has one here. */
	st = create(in_tmp("b"), PINION_DTYPE_F8E5M2, 4);
	ck_ok(pinion_storage_view(st, BOTH, &view));
	ck_assert_ptr_nonnull(pinion_view_f8e5m2(&view));
	pinion_storage_free(st);
}
END_TEST

START_TEST(the_shape_is_the_views)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .rank = 3, .shape = { 2, 1, 3 } };
	struct pinion_storage *st = NULL;
	struct pinion_view view;

	ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_F32, 6, &opts, &st));
	ck_ok(pinion_storage_view(st, BOTH, &view));
	ck_assert_uint_eq(view.rank, 3);
	ck_assert(view.shape[0] == 2 && view.shape[1] == 1 && view.shape[2] == 3 && view.stride[0] == 3);
	ck_assert_msg(!strncmp(described(st), "shared f32[2,1,3] 24 bytes, read and write, at /", 48), "%s",
		      described(st));
	ck_assert_ptr_nonnull(strstr(described(st), in_tmp("a")));
	pinion_storage_free(st);
	ck_ok(pinion_storage_open(in_tmp("a"), PINION_DTYPE_F32, 6, &reader, &st));
	ck_assert_uint_eq(info_of(st).rank, 1);
	ck_assert_msg(!strncmp(described(st), "shared f32[6] 24 bytes, read-only, at /", 39), "%s", described(st));
	ck_assert_ptr_null(strstr(described(st), "unlinked"));
	ck_assert_int_eq(unlink(in_tmp("a")), 0);
	ck_assert_ptr_nonnull(strstr(described(st), ", unlinked"));
	pinion_storage_free(st);
}
END_TEST

static void store_into(volatile char *p)
{
	*p = 1;
}

START_TEST(a_reader_cannot_write)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_U8, 4), *ro = NULL;
	struct file_state before = file_state(in_tmp("a"));
	struct pinion_view view;
	pid_t pid;

	ck_ok(pinion_storage_open(in_tmp("a"), PINION_DTYPE_U8, 4, &reader, &ro));
	ck_assert_uint_eq(info_of(ro).rights, PINION_READ);
	ck_refused(pinion_storage_view(ro, BOTH, &view), EPERM, "read-only");
	pid = fork();
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		store_into(view_data(ro, PINION_READ));
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), -SIGSEGV);
	pinion_storage_free(ro);
	ck_file_as_it_was(in_tmp("a"), before);
	pinion_storage_free(st);
}
END_TEST

/* ---- the file's life --------------------------------------------------------------------------------------------- */

START_TEST(the_file_outlives_the_storage_and_the_memory_the_name)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_I32, 2);
	int32_t *p = view_data(st, BOTH);

	p[1] = 42;
	ck_assert(!info_of(st).unlinked);
	pinion_storage_free(st);
	ck_assert_int_eq(access(in_tmp("a"), F_OK), 0);
	st = open_it(in_tmp("a"), PINION_DTYPE_I32, 2);
	ck_assert_int_eq(unlink(in_tmp("a")), 0);
	ck_assert(info_of(st).unlinked);
	p = view_data(st, BOTH);
	ck_assert_int_eq(p[1], 42);
	p[0] = 1;
	ck_assert_int_eq(p[0], 1);
	pinion_storage_free(st);
	ck_assert_int_eq(access(in_tmp("a"), F_OK), -1);
}
END_TEST

/* The path does not lead there any more, although the file has a name. */
START_TEST(a_file_of_another_name_is_unlinked)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_I32, 2), *other;

	ck_assert_int_eq(link(in_tmp("a"), in_tmp("b")), 0);
	ck_assert(!info_of(st).unlinked);
	ck_assert_int_eq(unlink(in_tmp("a")), 0);
	ck_assert(info_of(st).unlinked);
	ck_assert_ptr_nonnull(strstr(described(st), ", unlinked"));
	/* Back again. */
	ck_assert_int_eq(rename(in_tmp("b"), in_tmp("a")), 0);
	ck_assert(!info_of(st).unlinked);
	ck_assert_int_eq(rename(in_tmp("a"), in_tmp("b")), 0);
	ck_assert(info_of(st).unlinked);
	/* Another file at the path, a link to this one, and no folder. */
	other = create(in_tmp("a"), PINION_DTYPE_I32, 2);
	ck_assert(info_of(st).unlinked && !info_of(other).unlinked);
	pinion_storage_free(other);
	ck_assert_int_eq(unlink(in_tmp("a")), 0);
	ck_assert_int_eq(symlink(in_tmp("b"), in_tmp("a")), 0);
	ck_assert(info_of(st).unlinked);
	pinion_storage_free(st);
	ck_assert_int_eq(mkdir(in_tmp("folder"), 0700), 0);
	st = create(in_tmp("folder/a"), PINION_DTYPE_I32, 2);
	ck_assert_int_eq(rename(in_tmp("folder"), in_tmp("elsewhere")), 0);
	ck_assert(info_of(st).unlinked);
	pinion_storage_free(st);
}
END_TEST

START_TEST(a_path_from_here_leads_there_from_elsewhere)
{
	struct pinion_storage *st;

	ck_assert_int_eq(chdir(folder), 0);
	st = create("a", PINION_DTYPE_I32, 2);
	ck_assert_int_eq(chdir("/"), 0);
	ck_assert(!info_of(st).unlinked);
	ck_assert_ptr_nonnull(strstr(described(st), in_tmp("a")));
	ck_assert_int_eq(unlink(in_tmp("a")), 0);
	ck_assert(info_of(st).unlinked);
	pinion_storage_free(st);
}
END_TEST

START_TEST(what_is_there_with_that_size_is_zeroed_in_place)
{
	struct pinion_storage *old = create(in_tmp("a"), PINION_DTYPE_I32, 2), *st;
	struct file_state before = file_state(in_tmp("a"));
	int32_t *p = view_data(old, BOTH);

	p[0] = p[1] = 42;
	st = create(in_tmp("a"), PINION_DTYPE_I32, 2);
	ck_assert(p[0] == 0 && p[1] == 0);
	((int32_t *)view_data(st, BOTH))[1] = 7;
	ck_assert_int_eq(p[1], 7);
	ck_assert_uint_eq(file_state(in_tmp("a")).st.st_ino, before.st.st_ino);
	ck_assert(!info_of(old).unlinked);
	pinion_storage_free(st);
	/* The same bytes as another dtype: a claim, as at any opening. */
	st = create(in_tmp("a"), PINION_DTYPE_I64, 1);
	ck_assert_int_eq(p[1], 0);
	pinion_storage_free(st);
	pinion_storage_free(old);
}
END_TEST

START_TEST(what_is_there_with_another_size_is_neither_cut_nor_grown)
{
	struct pinion_storage *old = create(in_tmp("a"), PINION_DTYPE_I32, 2048), *st = NULL;
	struct file_state before;
	int32_t *p = view_data(old, BOTH);

	p[0] = p[2047] = 42;
	before = file_state(in_tmp("a"));
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_I32, 1, NULL, &st), EEXIST,
		   "has 8192 bytes, 4 are needed");
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_I32, 4096, NULL, &st), EEXIST, "opts.replace");
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_I32, 2048, &with_header, &st), EEXIST, "8192 bytes");
	/* The same size, and no header. */
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_I32, 1024, &with_header, &st), EEXIST,
		   "does not begin with the header");
	ck_assert_ptr_null(st);
	ck_file_as_it_was(in_tmp("a"), before);
	ck_assert(p[0] == 42 && p[2047] == 42);
	pinion_storage_free(old);
}
END_TEST

START_TEST(replacing_makes_a_new_file_and_leaves_the_old_memory)
{
	struct pinion_storage *old = create(in_tmp("a"), PINION_DTYPE_I32, 2048), *st = NULL;
	struct file_state before = file_state(in_tmp("a"));
	int32_t *p = view_data(old, BOTH);
	unsigned int files = files_in(folder);

	p[2047] = 42;
	ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U8, 3, &replacing, &st));
	ck_assert_uint_ne(file_state(in_tmp("a")).st.st_ino, before.st.st_ino);
	ck_assert_uint_eq(file_state(in_tmp("a")).st.st_size, 3);
	ck_assert_int_eq(p[2047], 42);
	ck_assert(info_of(old).unlinked && !info_of(st).unlinked);
	ck_assert_uint_eq(files_in(folder), files);
	pinion_storage_free(st);
	/* Where there is nothing to replace, too. */
	ck_ok(pinion_storage_create(in_tmp("b"), PINION_DTYPE_U8, 3, &replacing, &st));
	pinion_storage_free(st);
	ck_assert_uint_eq(files_in(folder), files + 1);
	pinion_storage_free(old);
}
END_TEST

START_TEST(permissions_are_what_was_said)
{
	static const uint32_t mode[] = { 0, 0600, 0640, 0666, 0444, 0777 };
	struct pinion_storage_opts opts = { .size = sizeof(opts), .replace = true };
	mode_t old = umask(077);

	for (unsigned int i = 0; i < COUNT(mode); i++) {
		struct pinion_storage *st = NULL;

		umask(i & 1 ? 0 : 0777);
		opts.mode = mode[i];
		ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U8, 3, &opts, &st));
		ck_assert_uint_eq(file_state(in_tmp("a")).st.st_mode & 07777, mode[i] ? mode[i] : 0600);
		pinion_storage_free(st);
	}
	umask(old);
}
END_TEST

START_TEST(another_users_file_is_not_taken_over)
{
	struct pinion_storage *st = NULL;
	struct file_state before;

	if (geteuid())
		SKIP("needs to become another user");
	make_file(in_tmp("a"), "data", 4);
	ck_assert_int_eq(chown(in_tmp("a"), UNPRIVILEGED, UNPRIVILEGED), 0);
	before = file_state(in_tmp("a"));
	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U8, 4, NULL, &st), EPERM, "belongs to user 65534");
	ck_assert_ptr_null(st);
	ck_file_as_it_was(in_tmp("a"), before);
	ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U8, 4, &replacing, &st));
	ck_assert_uint_eq(file_state(in_tmp("a")).st.st_uid, geteuid());
	pinion_storage_free(st);
}
END_TEST

/* As a user whom the modes stop. */
static int without_rights(const char *dir)
{
	struct pinion_storage *st = NULL;
	struct pinion_view view;

	child_needs(!chdir(dir), 1);
	child_needs(geteuid() || (!setgid(UNPRIVILEGED) && !setuid(UNPRIVILEGED)), 2);
	child_needs(pinion_storage_open("0444", PINION_DTYPE_U8, 4, NULL, &st) == -EACCES, 3);
	child_needs(pinion_storage_create("0444", PINION_DTYPE_U8, 4, NULL, &st) == -EACCES, 4);
	child_needs(pinion_storage_create("0444", PINION_DTYPE_U8, 4, &replacing, &st) == -EACCES, 5);
	child_needs(pinion_storage_create("new", PINION_DTYPE_U8, 4, NULL, &st) == -EACCES, 6);
	child_needs(pinion_storage_open("closed", PINION_DTYPE_U8, 4, &reader, &st) == -EACCES, 7);
	child_needs(pinion_storage_open("0444", PINION_DTYPE_U8, 4, &reader, &st) == 0, 8);
	child_needs(!pinion_storage_view(st, PINION_READ, &view) && !memcmp(view.data, "data", 4), 9);
	pinion_storage_free(st);
	return 0;
}

START_TEST(permissions_are_kept)
{
	struct file_state before[2];
	unsigned int files;
	char dir[PATH_MAX];
	pid_t pid;

	snprintf(dir, sizeof(dir), "%s", in_tmp("shown"));
	ck_assert_int_eq(mkdir(dir, 0755), 0);
	make_file(in_tmp("shown/0444"), "data", 4);
	make_file(in_tmp("shown/closed"), "data", 4);
	chmod(in_tmp("shown/0444"), 0444);
	before[0] = file_state(in_tmp("shown/0444"));
	before[1] = file_state(in_tmp("shown/closed"));
	files = files_in(dir);
	chmod(in_tmp("shown/closed"), 0);
	chmod(dir, 0555);
	pid = fork();
	if (!pid)
		_exit(without_rights(dir));
	ck_assert_int_eq(reap(pid), 0);
	chmod(dir, 0755);
	chmod(in_tmp("shown/closed"), 0600);
	ck_file_as_it_was(in_tmp("shown/0444"), before[0]);
	ck_file_as_it_was(in_tmp("shown/closed"), before[1]);
	ck_assert_uint_eq(files_in(dir), files);
}
END_TEST

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

START_TEST(every_block_is_there)
{
	struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_U8, 300000);
	int fd;

	ck_assert_uint_ge(file_state(in_tmp("a")).st.st_blocks * UINT64_C(512), 300000);
	pinion_storage_free(st);
	/* Another program made this one, with a hole. */
	fd = open(in_tmp("b"), O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(ftruncate(fd, 400000), 0);
	close(fd);
	ck_ok(pinion_storage_open(in_tmp("b"), PINION_DTYPE_U8, 300000, &reader, &st));
	ck_assert_uint_eq(file_state(in_tmp("b")).st.st_blocks, 0);
	pinion_storage_free(st);
	st = open_it(in_tmp("b"), PINION_DTYPE_U8, 300000);
	ck_assert_uint_ge(file_state(in_tmp("b")).st.st_blocks * UINT64_C(512), 300000);
	ck_assert_uint_eq(file_state(in_tmp("b")).st.st_size, 400000);
	pinion_storage_free(st);
}
END_TEST

/* On a file system of 256 KiB. */
static int on_a_small_file_system(const char *dir)
{
	struct pinion_storage *st = NULL, *more = NULL;
	char path[PATH_MAX];
	unsigned int files;
	int fd;

	if (!namespace_of_mounts() || mount("small", dir, "tmpfs", 0, "size=262144"))
		return 77;
	child_needs(!chdir(dir), 1);
	files = files_in(".");
	snprintf(path, sizeof(path), "%s/a", dir);
	child_needs(pinion_storage_create("a", PINION_DTYPE_U8, 1 << 20, NULL, &st) == -ENOSPC, 2);
	child_needs(strstr(pinion_error(), "262144 free"), 3);
	child_needs(pinion_storage_create("a", PINION_DTYPE_U8, 1 << 20, &replacing, &st) == -ENOSPC, 4);
	child_needs(files_in(".") == files && !st, 5);
	child_needs(!pinion_storage_create(path, PINION_DTYPE_U8, 1 << 17, &with_header, &st), 6);
	child_needs(pinion_storage_create("b", PINION_DTYPE_U8, 1 << 17, NULL, &more) == -ENOSPC, 7);
	memset(view_data(st, BOTH), 1, 1 << 17);
	/* A hole that cannot be filled is an error of the call and not a bus fault later. */
	fd = open("hole", O_RDWR | O_CREAT, 0600);
	child_needs(fd >= 0 && !ftruncate(fd, 1 << 18), 8);
	child_needs(pinion_storage_open("hole", PINION_DTYPE_U8, 1 << 18, NULL, &more) == -ENOSPC, 9);
	child_needs(pinion_storage_create("hole", PINION_DTYPE_U8, 1 << 18, NULL, &more) == -ENOSPC, 10);
	close(fd);
	unlink("hole");
	pinion_storage_free(st);
	child_needs(!mount(NULL, dir, NULL, MS_REMOUNT | MS_RDONLY, NULL), 11);
	child_needs(!chdir(dir), 12);
	child_needs(pinion_storage_open("a", PINION_DTYPE_U8, 1 << 17, &with_header, &st) == -EROFS, 13);
	child_needs(pinion_storage_create("a", PINION_DTYPE_U8, 1 << 17, &with_header, &st) == -EROFS, 14);
	child_needs(pinion_storage_create("n", PINION_DTYPE_U8, 1 << 17, NULL, &st) == -EROFS, 15);
	child_needs(!pinion_storage_open("a", PINION_DTYPE_U8, 1 << 17,
					 &(struct pinion_storage_opts){
						 .size = sizeof(reader), .rights = PINION_READ, .header = true },
					 &st),
		    16);
	child_needs(((char *)view_data(st, PINION_READ))[(1 << 17) - 1] == 1, 17);
	return 0;
}

START_TEST(a_full_file_system_is_an_error_and_a_read_only_one_is_read)
{
	pid_t pid;
	int ret;

	ck_assert_int_eq(mkdir(in_tmp("small"), 0700), 0);
	pid = fork();
	if (!pid)
		_exit(on_a_small_file_system(in_tmp("small")));
	ret = reap(pid);
	if (ret == 77)
		SKIP("needs a mount namespace of its own");
	ck_assert_int_eq(ret, 0);
}
END_TEST

#define LIMIT (64 << 20)

/* The memory controller's two versions. */
static const struct {
	const char *mount, *limit;
} groups[] = {
	{ "/sys/fs/cgroup", "memory.max" },
	{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
};

static bool write_text(const char *folder_name, const char *name, const char *text)
{
	char path[PATH_MAX];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder_name, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text);
}

/* A group of LIMIT bytes; NULL where none can be had. */
static const char *make_group(void)
{
	static char group[64];
	char text[32];

	snprintf(text, sizeof(text), "%d", LIMIT);
	for (unsigned int i = 0; i < COUNT(groups); i++) {
		/* Of this process alone: what another has in it would be missing here. */
		snprintf(group, sizeof(group), "%s/pinion-sparse-%d", groups[i].mount, getpid());
		if (mkdir(group, 0755) && errno != EEXIST)
			continue;
		if (write_text(group, groups[i].limit, text))
			return group;
		rmdir(group);
	}
	return NULL;
}

static void sparse_file(const char *path, off_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	child_needs(fd >= 0 && !ftruncate(fd, bytes), 1);
	close(fd);
}

/* What is too much for the group is refused; what is there already, or fits, is no need. */
static void open_sparse_files(const char *group, const char *path)
{
	struct pinion_storage *st = NULL;

	child_needs(write_text(group, "cgroup.procs", "0"), 2);
	sparse_file(path, 2 * LIMIT);
	child_needs(pinion_storage_open(path, PINION_DTYPE_U8, 2 * LIMIT, NULL, &st) == -ENOMEM, 3);
	child_needs(strstr(pinion_error(), group), 4);
	child_needs(pinion_storage_create(path, PINION_DTYPE_U8, 2 * LIMIT, NULL, &st) == -ENOMEM, 5);
	child_needs(file_state(path).st.st_blocks == 0 && !st, 6);
	child_needs(!pinion_storage_open(path, PINION_DTYPE_U8, LIMIT / 4, NULL, &st), 7);
	pinion_storage_free(st);
	unlink(path);
	for (int i = 0; i < 2; i++) {
		child_needs(!pinion_storage_create(path, PINION_DTYPE_U8, LIMIT / 4 * 3, NULL, &st), 8);
		pinion_storage_free(st);
		st = NULL;
	}
	_exit(0);
}

/* The kernel kills who fills a hole that its group has no memory for. */
START_TEST(a_sparse_file_is_no_reason_to_be_killed)
{
	const char *group;
	char path[64];
	pid_t pid;
	int ret;

	snprintf(path, sizeof(path), "/dev/shm/pinion-sparse-%d", getpid());
	if (access("/dev/shm", W_OK))
		SKIP("/dev/shm cannot be written");
	group = make_group();
	if (!group)
		SKIP("no control group with a memory limit can be made");
	pid = fork();
	if (!pid)
		open_sparse_files(group, path);
	ret = reap(pid);
	unlink(path);
	/* A dead member may be counted for a moment. */
	for (int i = 0; i < 200 && rmdir(group) && errno == EBUSY; i++)
		usleep(100000);
	ck_assert_int_eq(ret, 0);
}
END_TEST

/* ---- many at once ------------------------------------------------------------------------------------------------ */

static void create_again_and_again(const char *path, const volatile bool *stop)
{
	struct pinion_storage_opts opts = with_header;
	struct pinion_storage *st = NULL;

	for (unsigned int i = 0; !*stop; i++) {
		opts.replace = i & 1;
		child_needs(!pinion_storage_create(path, PINION_DTYPE_U8, 5000, &opts, &st), 1);
		pinion_storage_free(st);
		if (i % 3 == 0)
			unlink(path);
	}
	_exit(0);
}

START_TEST(nobody_sees_half_a_file)
{
	volatile bool *stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int64_t until = pinion_deadline_in(SECOND / 2);
	unsigned int seen = 0, files = files_in(folder);
	pid_t pid[2];

	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (!pid[i])
			create_again_and_again(in_tmp("a"), stop);
	}
	/* On a busy machine longer, until there was a file. */
	while (pinion_deadline_in(0) < until || !seen) {
		struct pinion_storage *st = NULL;
		int ret = pinion_storage_open(in_tmp("a"), PINION_DTYPE_U8, 5000, &with_header, &st);

		ck_assert_msg(!ret || ret == -ENOENT, "%d (%s)", ret, pinion_error());
		seen += !ret;
		pinion_storage_free(st);
	}
	*stop = true;
	ck_assert_int_eq(reap(pid[0]), 0);
	ck_assert_int_eq(reap(pid[1]), 0);
	unlink(in_tmp("a"));
	ck_assert_uint_eq(files_in(folder), files);
}
END_TEST

START_TEST(creators_that_meet_share_one_file)
{
	uint64_t *joined = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[3];

	for (int round = 0; round < 50; round++) {
		struct pinion_storage *st;

		*joined = 0;
		for (int i = 0; i < 3; i++) {
			pid[i] = fork();
			if (pid[i])
				continue;
			child_needs(!pinion_storage_create(in_tmp("a"), PINION_DTYPE_U8, 3, NULL, &st), 1);
			__atomic_add_fetch(joined, 1, __ATOMIC_SEQ_CST);
			while (__atomic_load_n(joined, __ATOMIC_SEQ_CST) < 3)
				usleep(100);
			((char *)view_data(st, BOTH))[i] = 1 + i;
			pinion_storage_free(st);
			_exit(0);
		}
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(reap(pid[i]), 0);
		st = open_it(in_tmp("a"), PINION_DTYPE_U8, 3);
		ck_assert_int_eq(memcmp(view_data(st, PINION_READ), "\1\2\3", 3), 0);
		pinion_storage_free(st);
		unlink(in_tmp("a"));
	}
}
END_TEST

START_TEST(a_thousand_leave_nothing)
{
	unsigned int fds = fds_open(), maps = maps_open();

	for (unsigned int i = test_rounds(1000); i; i--) {
		struct pinion_storage *st = create(in_tmp("a"), PINION_DTYPE_U8, 5000), *own = NULL;
		struct pinion_storage *again = open_it(in_tmp("a"), PINION_DTYPE_F32, 1250);

		if (i % 3)
			ck_ok(pinion_storage_into_owned(st, &own));
		pinion_storage_free(again);
		pinion_storage_free(own ? own : st);
		if (i % 7 == 0)
			unlink(in_tmp("a"));
	}
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_uint_eq(maps_open(), maps);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("storage_shared");
	TCase *rows = tcase_create("rows"), *refused = tcase_create("refused"), *life = tcase_create("life");
	TCase *many = tcase_create("many");

	tcase_add_checked_fixture(rows, fresh_folder, NULL);
	tcase_add_test(rows, create_then_open);
	tcase_add_test(rows, a_sibling_sees_writes);
	tcase_add_test(rows, too_small_is_refused);
	tcase_add_test(rows, zero_length_is_refused_before_the_file_is_touched);
	tcase_add_test(rows, into_owned_is_a_copy);
	tcase_add_test(rows, a_longer_file_is_opened_at_its_front);
	tcase_add_test(rows, a_slice_of_another_dtype_is_nothing);
	tcase_add_test(rows, f8e6m2_is_stored_and_not_viewed);
	tcase_add_test(rows, the_shape_is_the_views);
	suite_add_tcase(s, rows);
	tcase_set_timeout(refused, 30);
	tcase_add_checked_fixture(refused, fresh_folder, NULL);
	tcase_add_test(refused, a_wish_that_cannot_be_is_refused_before_any_file);
	tcase_add_test(refused, options_are_checked_before_any_file);
	tcase_add_test(refused, a_path_that_leads_nowhere_is_refused);
	tcase_add_test(refused, what_is_no_file_is_refused);
	tcase_add_test(refused, a_reader_cannot_write);
	suite_add_tcase(s, refused);
	tcase_set_timeout(life, 30);
	tcase_add_checked_fixture(life, fresh_folder, NULL);
	tcase_add_test(life, the_file_outlives_the_storage_and_the_memory_the_name);
	tcase_add_test(life, a_file_of_another_name_is_unlinked);
	tcase_add_test(life, a_path_from_here_leads_there_from_elsewhere);
	tcase_add_test(life, what_is_there_with_that_size_is_zeroed_in_place);
	tcase_add_test(life, what_is_there_with_another_size_is_neither_cut_nor_grown);
	tcase_add_test(life, replacing_makes_a_new_file_and_leaves_the_old_memory);
	tcase_add_test(life, permissions_are_what_was_said);
	tcase_add_test(life, permissions_are_kept);
	tcase_add_test(life, another_users_file_is_not_taken_over);
	tcase_add_test(life, every_block_is_there);
	tcase_add_test(life, a_full_file_system_is_an_error_and_a_read_only_one_is_read);
	tcase_add_test(life, a_sparse_file_is_no_reason_to_be_killed);
	suite_add_tcase(s, life);
	tcase_set_timeout(many, 30);
	tcase_add_checked_fixture(many, fresh_folder, NULL);
	tcase_add_test(many, nobody_sees_half_a_file);
	tcase_add_test(many, creators_that_meet_share_one_file);
	tcase_add_test(many, a_thousand_leave_nothing);
	suite_add_tcase(s, many);
	return s;
}

PINION_TEST_MAIN(suite)
