/* SPDX-License-Identifier: MIT */
/*
 * Each call that a storage makes of the system fails once, one after the other: the error comes through, nothing stays
 * open or mapped, no file is left behind, and the file that is there is as it was. The calls are replaced below.
 */
#include "storage_help.h"

#include <stdarg.h>
#include <stddef.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

/* Of this thread: the threads of holders and contexts call what they like. */
static _Thread_local unsigned int calls, failing;
static _Thread_local bool without_tmpfile;
static _Thread_local unsigned int allocations;
static _Thread_local uint64_t bytes_free; /* what the file system says it has left; 0: the truth */

static bool fails(void)
{
	return failing && ++calls == failing;
}

static int refuse(void)
{
	errno = EIO;
	return -1;
}

#if !SANITIZED
void *__libc_calloc(size_t n, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *calloc(size_t n, size_t size)
{
	if (fails()) {
		errno = ENOMEM;
		return NULL;
	}
	return __libc_calloc(n, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
	if (fails())
		return ENOMEM;
	*out = __libc_memalign(align, size);
	return *out ? 0 : ENOMEM;
}
#endif

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	if (fails()) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);
}

int openat(int dir, const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0;
	va_end(ap);
	if (without_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = EOPNOTSUPP;
		return -1;
	}
	return fails() ? refuse() : (int)syscall(SYS_openat, dir, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, int) : 0;
	va_end(ap);
	/* What looks at the machine may fail as it likes. */
	if (strncmp(path, "/proc/", 6) && strncmp(path, "/sys/", 5) && fails())
		return refuse();
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int fstat(int fd, struct stat *st)
{
	return fails() ? refuse() : (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

int fstatat(int dir, const char *path, struct stat *st, int flags)
{
	return fails() ? refuse() : (int)syscall(SYS_newfstatat, dir, path, st, flags);
}

int posix_fallocate(int fd, off_t off, off_t len)
{
	allocations++;
	if (fails())
		return EIO;
	return syscall(SYS_fallocate, fd, 0, off, len) ? errno : 0;
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
	allocations++;
	return fails() ? refuse() : (int)syscall(SYS_fallocate, fd, mode, off, len);
}

int fstatvfs(int fd, struct statvfs *out)
{
	struct statfs fs;

	if (fails())
		return refuse();
	if (syscall(SYS_fstatfs, fd, &fs))
		return -1;
	*out = (struct statvfs){
		.f_frsize = fs.f_frsize, .f_blocks = fs.f_blocks, .f_bfree = fs.f_bfree, .f_bavail = fs.f_bavail
	};
	if (bytes_free) {
		out->f_frsize = 512;
		out->f_blocks = UINT64_C(1) << 40;
		out->f_bfree = out->f_bavail = bytes_free / 512;
	}
	return 0;
}

ssize_t pread(int fd, void *data, size_t len, off_t off)
{
	return fails() ? refuse() : syscall(SYS_pread64, fd, data, len, off);
}

ssize_t pwrite(int fd, const void *data, size_t len, off_t off)
{
	return fails() ? refuse() : syscall(SYS_pwrite64, fd, data, len, off);
}

int linkat(int dir, const char *path, int to_dir, const char *to, int flags)
{
	return fails() ? refuse() : (int)syscall(SYS_linkat, dir, path, to_dir, to, flags);
}

int renameat(int dir, const char *path, int to_dir, const char *to)
{
	return fails() ? refuse() : (int)syscall(SYS_renameat2, dir, path, to_dir, to, 0);
}

int fchmod(int fd, mode_t mode)
{
	return fails() ? refuse() : (int)syscall(SYS_fchmod, fd, mode);
}

int memfd_create(const char *name, unsigned int flags)
{
	return fails() ? refuse() : (int)syscall(SYS_memfd_create, name, flags);
}

int ftruncate(int fd, off_t len)
{
	return fails() ? refuse() : (int)syscall(SYS_ftruncate, fd, len);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static struct pinion_context *ctx;
static char path[PATH_MAX + 256];

static const struct pinion_storage_opts with_header = { .size = sizeof(with_header), .header = true };
static const struct pinion_storage_opts replacing = { .size = sizeof(replacing), .header = true, .replace = true };

static int create_plain(struct pinion_storage **out)
{
	return pinion_storage_create(path, PINION_DTYPE_U8, 5000, NULL, out);
}

static int create_with_header(struct pinion_storage **out)
{
	return pinion_storage_create(path, PINION_DTYPE_U8, 5000, &with_header, out);
}

static int replace(struct pinion_storage **out)
{
	return pinion_storage_create(path, PINION_DTYPE_U8, 100, &replacing, out);
}

static int open_plain(struct pinion_storage **out)
{
	return pinion_storage_open(path, PINION_DTYPE_U8, 100, NULL, out);
}

static int open_with_header(struct pinion_storage **out)
{
	return pinion_storage_open(path, PINION_DTYPE_U8, 5000, &with_header, out);
}

static int map_it(struct pinion_storage **out)
{
	struct pinion_mapping *map = NULL;
	int ret = pinion_mapping_open(path, &map);

	if (!ret)
		ret = pinion_storage_mmapped(map, PINION_DTYPE_U8, 8, 100, out);
	pinion_mapping_unref(map);
	return ret;
}

static int own_it(struct pinion_storage **out)
{
	struct pinion_storage *st = NULL;
	int ret = pinion_storage_open(path, PINION_DTYPE_U8, 5000, &with_header, &st);

	if (!ret)
		ret = pinion_storage_into_owned(st, out);
	if (ret)
		pinion_storage_free(st);
	return ret;
}

static int make_owned(struct pinion_storage **out)
{
	return pinion_storage_owned(PINION_DTYPE_U8, 5000, out);
}

static int make_pinned(struct pinion_storage **out)
{
	return pinion_storage_pinned(ctx, PINION_DTYPE_U8, 5000, NULL, out);
}

static int create_named(struct pinion_storage **out)
{
	return pinion_storage_create_named(ctx, "kv", PINION_DTYPE_U8, 5000, NULL, out);
}

static int open_named(struct pinion_storage **out)
{
	return pinion_storage_open_named(ctx, "held", PINION_DTYPE_U8, 5000, NULL, out);
}

/* Fails each call of @op in turn. Returns how many there are. */
static unsigned int sweep(int (*op)(struct pinion_storage **out), bool file_is_there)
{
	unsigned int nth;

	for (nth = 1; nth < 1000; nth++) {
		unsigned int fds = fds_open(), maps = maps_open(), files = files_in(folder), hit;
		struct file_state before = file_state(path);
		struct pinion_storage *st = NULL;
		int ret;

		calls = 0;
		failing = nth;
		ret = op(&st);
		hit = calls >= failing;
		failing = 0;
		if (!hit) {
			ck_ok(ret);
			pinion_storage_free(st);
			break;
		}
		/* Some calls only help. */
		if (!ret) {
			pinion_storage_free(st);
			st = NULL;
			if (!file_is_there)
				unlink(path);
			continue;
		}
		/* A thread without memory is -EAGAIN, and what cannot be looked at is no buffer. */
		ck_assert_msg(ret == -EIO || ret == -ENOMEM || (op == create_named && ret == -EAGAIN) ||
				      (op == open_named && ret == -EPROTO),
			      "call %u: %d (%s)", nth, ret, pinion_error());
		ck_assert_str_ne(pinion_error(), "");
		ck_assert_ptr_null(st);
		ck_assert_msg(fds_settled(fds) <= fds, "call %u: %u descriptors, not %u (%s)", nth, fds_open(), fds,
			      pinion_error());
		ck_assert_msg(maps_open() == maps, "call %u: %u mappings, not %u (%s)", nth, maps_open(), maps,
			      pinion_error());
		ck_assert_msg(files_in(folder) == files, "call %u: %u files, not %u (%s)", nth, files_in(folder), files,
			      pinion_error());
		ck_file_as_it_was(path, before);
	}
	ck_assert_uint_lt(nth, 1000);
	return nth - 1;
}

static void setup(void)
{
	fresh_folder();
	snprintf(path, sizeof(path), "%s", in_tmp("a"));
}

static void setup_context(void)
{
	setup();
	setenv("PINION_DIR", in_tmp("run"), 1);
	ck_assert_int_eq(mkdir(in_tmp("run"), 0700), 0);
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown_context(void)
{
	pinion_close(ctx);
}

static void make_it(int (*op)(struct pinion_storage **out))
{
	struct pinion_storage *st = NULL;

	ck_ok(op(&st));
	pinion_storage_free(st);
}

START_TEST(creating_survives_every_fault)
{
	for (int way = 0; way < 2; way++) {
		without_tmpfile = way;
		ck_assert_uint_ge(sweep(create_plain, false), 7);
		unlink(path);
		ck_assert_uint_ge(sweep(create_with_header, false), 8);
		unlink(path);
		ck_assert_uint_ge(sweep(replace, false), 8);
		unlink(path);
	}
}
END_TEST

START_TEST(replacing_survives_every_fault)
{
	for (int way = 0; way < 2; way++) {
		without_tmpfile = way;
		make_it(create_plain);
		ck_assert_uint_ge(sweep(replace, true), 8);
		unlink(path);
	}
}
END_TEST

START_TEST(a_file_system_without_nameless_files_serves_too)
{
	struct pinion_storage *st = NULL;

	without_tmpfile = true;
	ck_ok(create_with_header(&st));
	ck_assert_uint_eq(files_in(folder), 3);
	ck_assert_uint_eq(file_state(path).st.st_nlink, 1);
	pinion_storage_free(st);
	ck_ok(replace(&st));
	ck_assert_uint_eq(files_in(folder), 3);
	pinion_storage_free(st);
	ck_assert_int_eq(create_plain(&st), -EEXIST);
	ck_assert_uint_eq(files_in(folder), 3);
}
END_TEST

/* To tmpfs what was allocated and never written is a hole. Those are filled at each open, which changes the file's time. */
static void write_all_of_it(void)
{
	int fd = open(path, O_RDWR);
	char block[4096];
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	for (off_t at = 0; (n = pread(fd, block, sizeof(block), at)) > 0; at += n)
		ck_assert_int_eq(pwrite(fd, block, n, at), n);
	close(fd);
}

START_TEST(creating_over_survives_every_fault)
{
	make_it(create_with_header);
	write_all_of_it();
	ck_assert_uint_ge(sweep(create_with_header, true), 6);
	unlink(path);
	make_it(create_plain);
	write_all_of_it();
	ck_assert_uint_ge(sweep(create_plain, true), 6);
}
END_TEST

START_TEST(opening_survives_every_fault)
{
	int fd;

	make_it(create_with_header);
	ck_assert_uint_ge(sweep(open_with_header, true), 6);
	ck_assert_uint_ge(sweep(map_it, true), SANITIZED ? 3 : 5);
	ck_assert_uint_ge(sweep(own_it, true), 6);
	unlink(path);
	make_it(create_plain);
	ck_assert_uint_ge(sweep(open_plain, true), 6);
	/* A hole is filled. */
	fd = open(in_tmp("hole"), O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(ftruncate(fd, 5000), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s", in_tmp("hole"));
	ck_assert_uint_ge(sweep(open_plain, true), 7);
}
END_TEST

/* A try would take what there is from everyone for as long as it lasts, and then say that nothing is free. */
START_TEST(what_cannot_fit_takes_nothing)
{
	struct pinion_storage *st = NULL;
	unsigned int files = files_in(folder);
	int fd;

	bytes_free = 1 << 20;
	ck_refused(pinion_storage_create(path, PINION_DTYPE_U8, 3 << 20, NULL, &st), ENOSPC, "1048576 free");
	ck_refused(pinion_storage_create(path, PINION_DTYPE_U8, 3 << 20, &replacing, &st), ENOSPC, "1048576 free");
	ck_assert_uint_eq(files_in(folder), files);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(ftruncate(fd, 3 << 20), 0);
	ck_refused(pinion_storage_open(path, PINION_DTYPE_U8, 3 << 20, NULL, &st), ENOSPC, "1048576 free");
	ck_refused(pinion_storage_create(path, PINION_DTYPE_U8, 3 << 20, NULL, &st), ENOSPC, "3145728 bytes");
	ck_assert_uint_eq(allocations, 0);
	ck_assert_uint_eq(file_state(path).st.st_blocks, 0);
	ck_assert_ptr_null(st);
	/* Its own blocks are not asked for again, and its front may fit. */
	ck_assert_int_eq(syscall(SYS_fallocate, fd, 0, 0, 5 << 19), 0);
	close(fd);
	ck_ok(pinion_storage_open(path, PINION_DTYPE_U8, 3 << 20, NULL, &st));
	pinion_storage_free(st);
	unlink(path);
	ck_ok(pinion_storage_create(path, PINION_DTYPE_U8, 1 << 19, NULL, &st));
	pinion_storage_free(st);
	ck_assert_uint_eq(allocations, 2);
}
END_TEST

START_TEST(memory_survives_every_fault)
{
	if (!SANITIZED)
		ck_assert_uint_eq(sweep(make_owned, true), 2);
	ck_assert_uint_ge(sweep(make_pinned, true), 3);
}
END_TEST

START_TEST(names_survive_every_fault)
{
	struct pinion_storage *held = NULL;

	ck_assert_uint_ge(sweep(create_named, true), 3);
	ck_ok(pinion_storage_create_named(ctx, "held", PINION_DTYPE_U8, 5000, NULL, &held));
	ck_assert_uint_ge(sweep(open_named, true), 2);
	pinion_storage_free(held);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("storage_faults");
	TCase *files = tcase_create("files"), *memory = tcase_create("memory");

	tcase_set_timeout(files, 60);
	tcase_add_checked_fixture(files, setup, NULL);
	tcase_add_test(files, creating_survives_every_fault);
	tcase_add_test(files, replacing_survives_every_fault);
	tcase_add_test(files, a_file_system_without_nameless_files_serves_too);
	tcase_add_test(files, creating_over_survives_every_fault);
	tcase_add_test(files, opening_survives_every_fault);
	tcase_add_test(files, what_cannot_fit_takes_nothing);
	suite_add_tcase(s, files);
	tcase_set_timeout(memory, 60);
	tcase_add_checked_fixture(memory, setup_context, teardown_context);
	tcase_add_test(memory, memory_survives_every_fault);
	tcase_add_test(memory, names_survive_every_fault);
	suite_add_tcase(s, memory);
	return s;
}

PINION_TEST_MAIN(suite)
