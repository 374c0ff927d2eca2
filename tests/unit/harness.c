/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <ftw.h>
#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static char tmp[PATH_MAX];

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

unsigned int test_rounds(unsigned int rounds)
{
	unsigned int percent = test_scale();
	uint64_t fewer = (uint64_t)rounds * percent / 100;

	if (percent >= 100)
		return rounds;
	return fewer ? fewer : 1;
}

/* libcheck multiplies each limit by this when it is set. */
static void scale_limits(void)
{
	char factor[16];

	if (test_scale() >= 100)
		return;
	snprintf(factor, sizeof(factor), "%u", 100 / test_scale());
	setenv("CK_TIMEOUT_MULTIPLIER", factor, 0);
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
