/* SPDX-License-Identifier: MIT */
/* Files in memory, on kernels that know such as are never executed and on those that do not. */
#include "index_files.h"

#include "machine/memfile.h"

#include <pinion/pinion.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NOEXEC_SEAL 0x0008u
#define SEAL_EXEC   0x0020

static bool is_old;	   /* as if this kernel knew no NOEXEC_SEAL */
static int refusal;	   /* it refuses any, with this number */
static unsigned int calls; /* of those that were made, */
static unsigned int plain; /* so many without it */

int memfd_create(const char *name, unsigned int flags)
{
	calls++;
	plain += !(flags & NOEXEC_SEAL);
	if (refusal || (is_old && (flags & NOEXEC_SEAL))) {
		errno = refusal ? refusal : EINVAL;
		return -1;
	}
	return (int)syscall(SYS_memfd_create, name, flags);
}

static void setup(void)
{
	is_old = false;
	refusal = 0;
	calls = plain = 0;
}

static void expect_sealable(int fd)
{
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
}

/* Whether this machine's kernel knows it. */
static bool has_noexec(void)
{
	int fd = (int)syscall(SYS_memfd_create, "probe", MFD_CLOEXEC | NOEXEC_SEAL);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

START_TEST(a_file_in_memory_is_never_executed)
{
	struct stat st;
	int fd;

	if (!has_noexec())
		SKIP("this kernel has no files in memory that are never executed");
	fd = memfile_create("test", 0);
	expect_sealable(fd);
	ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & SEAL_EXEC, SEAL_EXEC);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0111, 0);
	ck_assert_int_eq(fchmod(fd, 0700), -1);
	close(fd);
	ck_assert_uint_eq(calls, 1);
}
END_TEST

START_TEST(an_old_kernel_makes_one_as_any)
{
	int fd;

	is_old = true;
	fd = memfile_create("test", 0);
	expect_sealable(fd);
	close(fd);
	ck_assert_uint_eq(calls, 2);
}
END_TEST

START_TEST(another_refusal_is_no_old_kernel)
{
	refusal = EMFILE;
	ck_assert_int_eq(memfile_create("test", 0), -EMFILE);
	ck_assert_uint_eq(calls, 1);
	refusal = EINVAL;
	ck_assert_int_eq(memfile_create("test", 0), -EINVAL);
}
END_TEST

/* A buffer, and the index that is handed to those who attach. */
START_TEST(whatever_the_library_makes_is_such_a_file)
{
	static const struct part parts[] = { { 5000, true } };
	struct pinion_open_opts memfd = { .size = sizeof(memfd), .ground = "memfd" };
	struct pinion_context *ctx;
	struct pinion_holder *h;
	struct pinion_model *m;
	struct file f = { 0 };

	ck_ok(pinion_open(&memfd, &ctx));
	put_parts(&f, parts, LENGTH(parts), 0);
	for (int i = 0; i < 2; i++) {
		setup();
		is_old = i;
		ck_ok(pinion_model_load_named(ctx, "memory", save(&f), NULL, &h, &m));
		ck_assert_uint_ge(calls, 2);
		ck_assert_uint_eq(plain, i || !has_noexec() ? calls / 2 : 0);
		pinion_holder_free(h);
		pinion_model_free(m);
	}
	pinion_close(ctx);
	free(f.data);
}
END_TEST

static void limit_files(rlim_t bytes)
{
	struct rlimit lim;

	getrlimit(RLIMIT_FSIZE, &lim);
	lim.rlim_cur = bytes;
	setrlimit(RLIMIT_FSIZE, &lim);
}

/* Of @call under a limit of @bytes; the checks write to a file themselves, so there are none inside. */
#define EXPECT_TOO_LARGE(bytes, call, what)                                                \
	do {                                                                               \
		int ret_;                                                                  \
		limit_files(bytes);                                                        \
		ret_ = (call);                                                             \
		limit_files(RLIM_INFINITY);                                                \
		ck_assert_msg(ret_ == -EFBIG, #call ": %d (%s)", ret_, pinion_error());    \
		ck_assert_msg(strstr(pinion_error(), what) != NULL, "%s", pinion_error()); \
		ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_FILE_SIZE);          \
	} while (0)

/* The test's process has the signal's default, which is death. */
START_TEST(a_small_limit_of_files_is_an_error_and_no_signal)
{
	static const struct part parts[] = { { 5000, true } };
	struct pinion_open_opts memfd = { .size = sizeof(memfd), .ground = "memfd" }, fresh = memfd;
	struct pinion_holder *h = NULL;
	struct pinion_model *m = NULL;
	struct pinion_storage *st = NULL;
	struct pinion_buffer *buf = NULL;
	struct pinion_context *ctx, *other = NULL;
	char dir[PATH_MAX], path[PATH_MAX];
	struct file f = { 0 };
	const char *model;

	snprintf(dir, sizeof(dir), "%s/fresh", test_tmp());
	snprintf(path, sizeof(path), "%s/storage", test_tmp());
	fresh.dir = dir;
	put_parts(&f, parts, LENGTH(parts), 0);
	model = save(&f);
	ck_ok(pinion_open(&memfd, &ctx));
	EXPECT_TOO_LARGE(4096, pinion_open(&fresh, &other), "the counter file");
	EXPECT_TOO_LARGE(4096, pinion_buffer_alloc(ctx, 4097, NULL, &buf), "needs a file of 8192 bytes, RLIMIT_FSIZE is 4096");
	EXPECT_TOO_LARGE(4096, pinion_model_load(ctx, model, NULL, &m), "the buffer");
	EXPECT_TOO_LARGE(4096, pinion_storage_create(path, PINION_DTYPE_U8, 4097, NULL, &st), "the storage");
	EXPECT_TOO_LARGE(4096, pinion_storage_create_named(ctx, "s", PINION_DTYPE_U8, 4097, NULL, &st), "the buffer");
	EXPECT_TOO_LARGE(0, pinion_holder_open(ctx, "m", model, &h), "the record of a name");
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_ok(pinion_model_load(ctx, model, NULL, &m));
	ck_ok(pinion_holder_open(ctx, "m", model, &h));
	EXPECT_TOO_LARGE(100, pinion_holder_publish(h, m), "the index");
	ck_assert(!other && !st && !buf);
	pinion_holder_free(h);
	pinion_model_free(m);
	pinion_close(ctx);
	free(f.data);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("memfile");
	TCase *c = tcase_create("memfile");

	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, a_file_in_memory_is_never_executed);
	tcase_add_test(c, an_old_kernel_makes_one_as_any);
	tcase_add_test(c, another_refusal_is_no_old_kernel);
	tcase_add_test(c, whatever_the_library_makes_is_such_a_file);
	tcase_add_test(c, a_small_limit_of_files_is_an_error_and_no_signal);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(suite)
