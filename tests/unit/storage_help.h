/* SPDX-License-Identifier: MIT */
/* What the tests of storages share: what is open and mapped, how a file is, what a refusal says, processes. */
#ifndef PINION_TEST_STORAGE_HELP_H
#define PINION_TEST_STORAGE_HELP_H

#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BOTH (PINION_READ | PINION_WRITE)
#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

/* That error, and a sentence with that phrase. */
#define ck_refused(expr, err, phrase)                                                                               \
	do {                                                                                                        \
		int ck_refused_ret = (expr);                                                                        \
		ck_assert_msg(ck_refused_ret == -(err) && strstr(pinion_error(), phrase),                           \
			      "%s: %d (%s), not %d \"%s\"", #expr, ck_refused_ret, pinion_error(), -(err), phrase); \
	} while (0)

/* The same, when the threads of holders have noticed that connections ended: no more than @want. */
static inline unsigned int fds_settled(unsigned int want)
{
	unsigned int n = fds_open();

	for (int i = 0; i < 2000 && n > want; i++) {
		usleep(10000);
		n = fds_open();
	}
	return n;
}

/* Mappings of shared memory and of files in the test's folder. */
static inline unsigned int maps_open(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[PATH_MAX + 128];
	unsigned int n = 0;

	while (fgets(line, sizeof(line), f))
		n += strstr(line, test_tmp()) || strstr(line, "/memfd:") || strstr(line, "/dev/shm/");
	fclose(f);
	return n;
}

/* A folder of the test's own; a fixture makes it. */
static char folder[PATH_MAX - 64];

static inline void fresh_folder(void)
{
	snprintf(folder, sizeof(folder), "%s/t-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(folder));
}

static inline const char *in_tmp(const char *name)
{
	static char path[4][PATH_MAX + 256];
	static unsigned int turn;

	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", folder, name);
	return path[turn];
}

/* What must be the same of a file that was left alone. */
struct file_state {
	struct stat st;
	uint64_t sum;
};

static inline struct file_state file_state(const char *path)
{
	struct file_state state = { .sum = 1469598103934665603u };
	FILE *f;
	int c;

	if (lstat(path, &state.st))
		memset(&state.st, 0, sizeof(state.st));
	if (!S_ISREG(state.st.st_mode))
		return state;
	f = fopen(path, "r");
	while (f && (c = getc(f)) != EOF)
		state.sum = (state.sum ^ c) * 1099511628211u;
	if (f)
		fclose(f);
	return state;
}

#define ck_file_as_it_was(path, before)                                                   \
	do {                                                                              \
		struct file_state ck_now = file_state(path);                              \
		ck_assert_uint_eq(ck_now.st.st_ino, (before).st.st_ino);                  \
		ck_assert_uint_eq(ck_now.st.st_mode, (before).st.st_mode);                \
		ck_assert_uint_eq(ck_now.st.st_size, (before).st.st_size);                \
		ck_assert_uint_eq(ck_now.st.st_blocks, (before).st.st_blocks);            \
		ck_assert_uint_eq(ck_now.st.st_nlink, (before).st.st_nlink);              \
		ck_assert_int_eq(ck_now.st.st_mtim.tv_sec, (before).st.st_mtim.tv_sec);   \
		ck_assert_int_eq(ck_now.st.st_mtim.tv_nsec, (before).st.st_mtim.tv_nsec); \
		ck_assert_uint_eq(ck_now.sum, (before).sum);                              \
	} while (0)

static inline void make_file(const char *path, const void *data, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, data, bytes), bytes);
	close(fd);
}

static inline unsigned int files_in(const char *path)
{
	DIR *d = opendir(path);
	unsigned int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static inline int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* In a child: leaves with @code unless @cond. */
#define child_needs(cond, code)                                            \
	do {                                                               \
		if (!(cond)) {                                             \
			printf("child: %s (%s)\n", #cond, pinion_error()); \
			fflush(stdout);                                    \
			_exit(code);                                       \
		}                                                          \
	} while (0)

static inline void *view_data(const struct pinion_storage *st, uint32_t rights)
{
	struct pinion_view view;

	ck_ok(pinion_storage_view(st, rights, &view));
	return view.data;
}

static inline const char *described(const struct pinion_storage *st)
{
	static char text[PATH_MAX + 512];

	pinion_storage_describe(st, text, sizeof(text));
	return text;
}

static inline struct pinion_storage_info info_of(const struct pinion_storage *st)
{
	struct pinion_storage_info info = { .size = sizeof(info) };

	ck_ok(pinion_storage_info(st, &info));
	return info;
}

#endif
