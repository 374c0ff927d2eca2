/* SPDX-License-Identifier: MIT */
/*
 * What every unit test shares, over libcheck. Each test program ends with PINION_TEST_MAIN(suite function). A test that
 * cannot run here says SKIP("reason") and must be named in tests/skips. tests/run adds the counts up.
 */
#ifndef PINION_TEST_HARNESS_H
#define PINION_TEST_HARNESS_H

#include <check.h>
#undef fail /* an old name of ck_abort_msg(); the library has a function of this name */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sanitizer.h"

/* Built with the address sanitizer: freed memory is kept for a while, and mlock() does nothing. */
#define SANITIZED ADDRESS_SANITIZED

/*
 * libcheck notes each assertion that holds, for the one after which a test died; millions of them took most of some tests' time.
 * So after the first ten thousand of a thread it is one of a thousand: what such a test died after is only nearly known.
 */
#define _mark_point(file, line) test_mark(file, line)
void test_mark(const char *file, int line);

/* In a START_TEST body: records the skip and leaves the test. */
#define SKIP(...)                                                                         \
	do {                                                                              \
		printf("SKIP %.*s: ", (int)(strlen(__func__) - strlen("_fn")), __func__); \
		printf(__VA_ARGS__);                                                      \
		printf("\n");                                                             \
		fflush(stdout);                                                           \
		return;                                                                   \
	} while (0)

/* 0, or the test fails with the library's sentence. */
#define ck_ok(expr)                                                                             \
	do {                                                                                    \
		int ck_ok_ret = (expr);                                                         \
		ck_assert_msg(ck_ok_ret == 0, "%s: %d (%s)", #expr, ck_ok_ret, pinion_error()); \
	} while (0)

/* Open descriptors of this process, and some that counting them takes, the same each time. */
unsigned int fds_open(void);

/*
 * Waits until no other thread of this process computes or is about to: what they were told to begin has begun, as far as it goes
 * by itself. A sleep of any length would only hope so, on a busy machine.
 */
void test_threads_rest(void);

/*
 * Every fork of a test: with the address sanitizer one for which the other threads rest, a holder's or a stream's, because its
 * allocator does not survive a fork in the middle of it. Where one never rests it is (fork)().
 */
pid_t test_fork(void);
#define fork() test_fork()

/* The folder of test data in the source tree, and ../shared when it is there (NULL otherwise). */
const char *test_data(void);
const char *test_shared(void);

/* A fresh private folder, removed when the test program ends; $PINION_DIR points into it. */
const char *test_tmp(void);

/*
 * $PINION_TEST_SCALE: percent, 100 where it is not set. Below 100, for slow machines, loops over test_rounds() get shorter and
 * every time limit longer by as much; above it, what is random gets larger where a test says so.
 */
unsigned int test_scale(void);

/* By how many times a time limit is longer, with a scale below 100; else 1. */
unsigned int test_slower(void);

/* @rounds, or less: the test's own number is the most, 1 the least. Under ASan it is a fifth, and with a scale of 500 all. */
unsigned int test_rounds(unsigned int rounds);

#define PINION_TEST_MAIN(suite)         \
	int main(void)                  \
	{                               \
		return test_run(suite); \
	}

int test_run(Suite *(*make)(void));

#endif
