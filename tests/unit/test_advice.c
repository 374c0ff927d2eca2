/* SPDX-License-Identifier: MIT */
/* advice: the table is sound, its page is the table, sentences end in it, and why io_uring is refused is told apart by trying. */
#include "harness.h"

#include "advice.h"
#include "error.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What is left for the sentence itself when the longest advice ends it. */

static bool each(unsigned int i, struct pinion_advice_info *info)
{
	info->size = sizeof(*info);
	return !pinion_advice_info(i, info);
}

START_TEST(rows_are_sound)
{
	struct pinion_advice_info info, other;
	unsigned int n = 0;
	char line[512];

	for (unsigned int i = 1; each(i, &info); i++, n++) {
		ck_assert_msg(*info.id && *info.when && *info.line, "row %u", i);
		for (const char *c = info.id; *c; c++)
			ck_assert_msg(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '-', "%s", info.id);
		ck_assert_msg(isupper((unsigned char)info.when[0]) || info.when[0] == '/' || !strncmp(info.when, "io_uring", 8),
			      "%s", info.when);
		ck_assert_msg(info.when[strlen(info.when) - 1] == '.', "%s", info.when);
		ck_assert_msg(info.line[strlen(info.line) - 1] != '.', "%s", info.line);
		pinion_advice_line(i, NULL, line, sizeof(line));
		ck_assert_msg(!strpbrk(line, "{}") && strlen(line) + strlen(info.id) + SENTENCE_LEAST < SENTENCE_MAX, "%s: %s",
			      info.id, line);
		for (unsigned int j = 1; j < i; j++)
			ck_assert_msg(each(j, &other) && strcmp(other.id, info.id), "%s is there twice", info.id);
	}
	/* No hole in the table: a row that was forgotten would end every loop over it. */
	ck_assert_uint_eq(n, PINION_ADVICE_CGROUP_HUGE);
}
END_TEST

START_TEST(the_page_is_the_table)
{
	char path[512], section[1200], line[512], *page = calloc(1, 1 << 20), *at;
	struct pinion_advice_info info;
	unsigned int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/../Documentation/errors.md", test_data());
	f = fopen(path, "r");
	ck_assert_msg(f && fread(page, 1, (1 << 20) - 1, f) > 0, "%s", path);
	fclose(f);
	at = strstr(page, "\n## ");
	for (unsigned int i = 1; each(i, &info); i++, n++) {
		snprintf(section, sizeof(section), "\n## %s\n\n%s\n\n    %s\n", info.id, info.when,
			 pinion_advice_line(i, NULL, line, sizeof(line)));
		ck_assert_msg(at && !strncmp(at, section, strlen(section)),
			      "not as in the table, or not in its place: %s; ninja -C build errors", info.id);
		at += strlen(section);
	}
	ck_assert_msg(!*at, "the page says more than the table: %s", at);
	free(page);
}
END_TEST

START_TEST(a_line_takes_a_value)
{
	char out[256];

	ck_assert_str_eq(pinion_advice_line(PINION_ADVICE_SHM_SMALL, "123", out, sizeof(out)),
			 "as root: mount -o remount,size=123 /dev/shm; of a container: --shm-size 123");
	ck_assert_str_eq(pinion_advice_line(PINION_ADVICE_CGROUP, "9", out, sizeof(out)),
			 "as root: echo 9 > FILE; of a service: MemoryMax=9; of a container: --memory 9");
	ck_assert_str_eq(pinion_advice_line(PINION_ADVICE_DEVICE_UNKNOWN, NULL, out, sizeof(out)), "pinion devices --add KEY");
	ck_assert_str_eq(pinion_advice_line(PINION_ADVICE_DEVICE_UNKNOWN, "gpu:0", out, 10), "pinion de");
	ck_assert_str_eq(pinion_advice_line(PINION_ADVICE_DEVICE_UNKNOWN, "gpu:0", out, 25), "pinion devices --add gpu");
	ck_assert_str_eq(pinion_advice_line(PINION_ADVICE_NONE, NULL, out, sizeof(out)), "");
	ck_assert_str_eq(pinion_advice_line(9999, NULL, out, sizeof(out)), "");
}
END_TEST

START_TEST(rows_are_found_by_their_name)
{
	struct pinion_advice_info info = { .size = sizeof(info) };
	enum pinion_advice advice = PINION_ADVICE_NONE;

	ck_ok(pinion_advice_find("memlock", &advice));
	ck_assert_int_eq(advice, PINION_ADVICE_MEMLOCK);
	ck_assert_int_eq(pinion_advice_find("nonsense", &advice), -ENOENT);
	ck_assert_int_eq(advice, PINION_ADVICE_MEMLOCK);
	ck_assert_int_eq(pinion_advice_info(PINION_ADVICE_NONE, &info), -ENOENT);
	ck_assert_int_eq(pinion_advice_info(9999, &info), -ENOENT);
	info.size = 1;
	ck_assert_int_eq(pinion_advice_info(PINION_ADVICE_FORK, &info), -EINVAL);
}
END_TEST

START_TEST(sentences_end_in_their_advice)
{
	char lots[2 * SENTENCE_MAX];

	ck_assert_int_eq(fail(EINVAL, "it is 3"), -EINVAL);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NONE);
	ck_assert_str_eq(pinion_error(), "it is 3");
	/* Brackets that are nobody's. */
	fail(EINVAL, "a[0] is [memlocks]");
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NONE);
	ck_assert_int_eq(fail_advise(EBUSY, PINION_ADVICE_NAME_USED, "m", "'m' is attached by 1"), -EBUSY);
	ck_assert_str_eq(pinion_error(), "'m' is attached by 1; end them, or: pinion rm --when-unused m [name-used]");
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NAME_USED);
	/* Said again by somebody else it is not added to. */
	ck_assert_int_eq(fail(ENOMEM, "the third of it: %s", pinion_error()), -ENOMEM);
	ck_assert_str_eq(pinion_error(),
			 "the third of it: 'm' is attached by 1; end them, or: pinion rm --when-unused m [name-used]");
	memset(lots, 'x', sizeof(lots) - 1);
	lots[sizeof(lots) - 1] = 0;
	fail_advise(ENOMEM, PINION_ADVICE_MEMLOCK, NULL, "%s", lots);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_MEMLOCK);
	ck_assert_uint_eq(strlen(pinion_error()), SENTENCE_MAX - 1);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "xxx...; ulimit -l unlimited; for good"));
	/* Said again by somebody who has more to say. */
	fail(EBUSY, "before it: %s", pinion_error());
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_MEMLOCK);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "xxx...; ulimit -l unlimited; for good"));
	ck_assert_ptr_eq(strstr(pinion_error(), "before it: "), pinion_error());
	fail(EINVAL, "%s", lots);
	ck_assert_uint_eq(strlen(pinion_error()), SENTENCE_MAX - 1);
	ck_assert_str_eq(pinion_error() + SENTENCE_MAX - 5, "x...");
	fail_errno(ENOSPC, "%s", lots);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DISK_FULL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "No space left"));
}
END_TEST

static bool ends_in(const char *text, const char *end)
{
	return strlen(text) >= strlen(end) && !strcmp(text + strlen(text) - strlen(end), end);
}

/* The end of a sentence that is answered with the row of the directory's mode. */
static void tail_of(const char *value, char tail[2 * SENTENCE_MAX])
{
	char line[SENTENCE_MAX];

	snprintf(tail, 2 * SENTENCE_MAX, "; %s [dir-mode]",
		 pinion_advice_line(PINION_ADVICE_DIR_MODE, value, line, sizeof(line)));
}

/* Values and sentences of every length: each advice is whole, with the value or, where that leaves too little room, the word. */
START_TEST(no_advice_is_cut_in_the_middle)
{
	char value[700], text[700], with[2 * SENTENCE_MAX], without[2 * SENTENCE_MAX], small[64];

	tail_of(NULL, without);
	for (size_t n = 1; n < sizeof(value); n += 13) {
		memset(value, 'v', n);
		value[n] = 0;
		memset(text, 't', sizeof(text) - 1 - n);
		text[sizeof(text) - 1 - n] = 0;
		fail_advise(EPERM, PINION_ADVICE_DIR_MODE, value, "%s", text);
		tail_of(value, with);
		ck_assert_msg(ends_in(pinion_error(), n < 250 ? with :
						      n > 350 ? without :
								"[dir-mode]"),
			      "%zu: %s", n, pinion_error());
		ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DIR_MODE);
		ck_assert_msg(!strncmp(pinion_error(), text, strlen(text) < 100 ? strlen(text) : 100), "%zu: %s", n,
			      pinion_error());
		ck_assert_msg(strstr(pinion_error(), text) || strstr(pinion_error(), "t...; "), "%zu: %s", n, pinion_error());
	}
	/* Where the advice alone has no room it is seen that something is missing. */
	sentence_fit(small, sizeof(small), pinion_error());
	ck_assert_uint_eq(strlen(small), sizeof(small) - 1);
	ck_assert(ends_in(small, "..."));
}
END_TEST

START_TEST(numbers_that_mean_one_thing_are_explained)
{
	static const struct {
		int err;
		enum pinion_advice advice;
	} row[] = {
		{ ENOSPC, PINION_ADVICE_DISK_FULL },
		{ EDQUOT, PINION_ADVICE_DISK_QUOTA },
		{ EROFS, PINION_ADVICE_READ_ONLY },
		{ EFBIG, PINION_ADVICE_FILE_SIZE },
		{ EMFILE, PINION_ADVICE_OPEN_FILES },
		{ ENFILE, PINION_ADVICE_OPEN_FILES_ALL },
		{ ENOMEM, PINION_ADVICE_ADDRESS_SPACE },
		{ ENOSYS, PINION_ADVICE_KERNEL_OLD },
		{ EIO, PINION_ADVICE_NONE },
		{ EINVAL, PINION_ADVICE_NONE },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		ck_assert_int_eq(fail_errno(row[i].err, "doing it"), -row[i].err);
		ck_assert_int_eq(pinion_error_advice(), row[i].advice);
		ck_assert_ptr_nonnull(strstr(pinion_error(), strerrordesc_np(row[i].err)));
	}
	fail(ENOMEM, "no memory for a thing");
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_ADDRESS_SPACE);
	fail(ENOSPC, "a table is full");
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NONE);
	fail_thread(EAGAIN, "starting a thread");
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_THREADS);
}
END_TEST

/* What the library says where it is really refused. */
START_TEST(failures_of_the_library_have_their_advice)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_PINNED };
	struct pinion_open_opts memfd = { .size = sizeof(memfd), .ground = "memfd" };
	struct rlimit files;
	struct pinion_context *ctx, *other;
	struct pinion_device *dev;
	struct pinion_buffer *buf;

	test_tmp();
	ck_ok(pinion_open(&memfd, &ctx));
	ck_assert_int_eq(pinion_buffer_alloc(ctx, 1ull << 50, NULL, &buf), -ENOMEM);
	ck_assert_msg(pinion_error_advice() == PINION_ADVICE_MEMORY || pinion_error_advice() == PINION_ADVICE_CGROUP, "%s",
		      pinion_error());
	ck_assert_int_eq(pinion_buffer_alloc(ctx, 4096, &opts, &buf), -EOPNOTSUPP);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_MODULE_NEEDED);
	ck_assert_int_eq(pinion_device_find(ctx, "gpu:77", &dev), -ENOENT);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DEVICE_UNKNOWN);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "--add gpu:77 ["));
	ck_assert_int_eq(pinion_name_remove(ctx, "nobody"), -ENOENT);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NAME_UNKNOWN);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	ck_assert_int_eq(pinion_open(&memfd, &other), -EMFILE);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_OPEN_FILES);
	files.rlim_cur = files.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_child_is_told_to_open_a_context_of_its_own)
{
	struct pinion_context *ctx;
	struct pinion_device *dev;
	int status;
	pid_t pid;

	test_tmp();
	ck_ok(pinion_open(NULL, &ctx));
	pid = fork();
	if (!pid)
		_exit(pinion_device_find(ctx, "cpu", &dev) == -EOWNERDEAD && pinion_error_advice() == PINION_ADVICE_FORK ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	pinion_close(ctx);
}
END_TEST

/* A filter that answers @call with @err and allows everything else. */
static bool filter(int call, int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned int)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

static bool has_ring(void)
{
	struct io_uring_params params = { 0 };
	int fd = syscall(SYS_io_uring_setup, 1, &params);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

START_TEST(a_refused_ring_is_explained)
{
	static const int numbers[] = { EPERM, ENOSYS, EACCES };
	struct io_uring_params params = { 0 };
	int status;
	pid_t pid;

	if (!has_ring())
		SKIP("io_uring is not allowed here");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		pid = fork();
		if (!pid) {
			if (!filter(SYS_io_uring_setup, numbers[i]) || syscall(SYS_io_uring_setup, 1, &params) >= 0)
				_exit(2);
			_exit(pinion_advice_uring(errno) == PINION_ADVICE_URING_SECCOMP ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(status == 0, "%s: %d", strerrorname_np(numbers[i]), WEXITSTATUS(status));
	}
	/* Without a filter the same numbers mean something else. */
	ck_assert_int_eq(pinion_advice_uring(ENOSYS), PINION_ADVICE_URING_KERNEL);
	ck_assert_int_eq(pinion_advice_uring(ENOMEM), PINION_ADVICE_URING_MEMLOCK);
	ck_assert_int_eq(pinion_advice_uring(EMFILE), PINION_ADVICE_OPEN_FILES);
	ck_assert_int_eq(pinion_advice_uring(EPERM), PINION_ADVICE_URING_REFUSED);
}
END_TEST

static Suite *make(void)
{
	Suite *s = suite_create("advice");
	TCase *t = tcase_create("table");

	tcase_add_test(t, rows_are_sound);
	tcase_add_test(t, the_page_is_the_table);
	tcase_add_test(t, a_line_takes_a_value);
	tcase_add_test(t, rows_are_found_by_their_name);
	suite_add_tcase(s, t);
	t = tcase_create("sentences");
	tcase_add_test(t, sentences_end_in_their_advice);
	tcase_add_test(t, no_advice_is_cut_in_the_middle);
	tcase_add_test(t, numbers_that_mean_one_thing_are_explained);
	tcase_add_test(t, failures_of_the_library_have_their_advice);
	tcase_add_test(t, a_child_is_told_to_open_a_context_of_its_own);
	tcase_add_test(t, a_refused_ring_is_explained);
	suite_add_tcase(s, t);
	return s;
}

PINION_TEST_MAIN(make)
