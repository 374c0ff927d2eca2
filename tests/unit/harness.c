/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <dirent.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

/* What only shows over very many rounds shows without a sanitizer; each round takes several times as long with one. */
#define SANITIZED_PART 5

static char tmp[PATH_MAX];

unsigned int fds_open(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Whether thread @task of this process, a number as /proc has it, runs, would run, or waits for a disk. */
static bool is_busy(const char *task)
{
	char path[64], line[512] = "";
	const char *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%.20s/stat", task);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	state = strrchr(line, ')');
	return state && (state[2] == 'R' || state[2] == 'D');
}

void test_threads_rest(void)
{
	bool busy = true;

	while (busy) {
		DIR *d = opendir("/proc/self/task");
		const struct dirent *ent;

		busy = false;
		while ((ent = readdir(d)))
			busy |= ent->d_name[0] != '.' && atoi(ent->d_name) != gettid() && is_busy(ent->d_name);
		closedir(d);
		usleep(busy ? 1000 : 0);
	}
}

pid_t test_fork(void)
{
	if (SANITIZED)
		test_threads_rest();
	return (fork)();
}

const char *test_data(void)
{
	return PINION_TEST_DATA;
}

const char *test_shared(void)
{
	static char path[PATH_MAX];
	const char *env = getenv("PINION_SHARED");

	snprintf(path, sizeof(path), "%s", env ? env : PINION_TEST_DATA "/../../shared");
	return access(path, R_OK) == 0 ? path : NULL;
}

const char *test_tmp(void)
{
	return tmp;
}

unsigned int test_scale(void)
{
	const char *env = getenv("PINION_TEST_SCALE");
	unsigned long percent = env ? strtoul(env, NULL, 10) : 0;

	return percent && percent <= 100000 ? percent : 100;
}

unsigned int test_slower(void)
{
	return test_scale() < 100 ? 100 / test_scale() : 1;
}

unsigned int test_rounds(unsigned int rounds)
{
	unsigned int percent = test_scale() / (SANITIZED ? SANITIZED_PART : 1);
	uint64_t fewer = (uint64_t)rounds * percent / 100;

	if (percent >= 100)
		return rounds;
	return fewer ? fewer : 1;
}

/*
 * libcheck multiplies each limit by this when it is set. The limits are for what never ends; what else the machine does may make
 * a test take several times as long.
 */
static void scale_limits(void)
{
	unsigned int slower = test_slower();
	char factor[16];

	snprintf(factor, sizeof(factor), "%u", 5 * slower);
	setenv("CK_TIMEOUT_MULTIPLIER", factor, 0);
	/* Where a case says none. libcheck's own is 4, which is little for a test that does little on a busy machine. */
	setenv("CK_DEFAULT_TIMEOUT", "12", 0);
}

void test_mark(const char *file, int line)
{
	static _Thread_local unsigned int marks;

	if (marks++ < 10000 || marks % 1000 == 0)
		(_mark_point)(file, line);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

int test_run(Suite *(*make)(void))
{
	const char *base = getenv("TMPDIR");
	SRunner *runner;
	int failed;

	snprintf(tmp, sizeof(tmp), "%s/pinion-test-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(tmp)) {
		perror(tmp);
		return 1;
	}
	setenv("PINION_DIR", tmp, 1);
	setvbuf(stdout, NULL, _IOLBF, 0);
	scale_limits();
	runner = srunner_create(make());
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	nftw(tmp, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return failed ? 1 : 0;
}
