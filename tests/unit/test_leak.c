/* SPDX-License-Identifier: MIT */
/* leak: what dead holders left is found, shown and removed; what lives, and what is not pinion's, is left alone. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct seen {
	unsigned int n;
	struct pinion_leak leak[16];
	int stop;
};

static int note(void *arg, const struct pinion_leak *leak)
{
	struct seen *seen = arg;

	ck_assert_uint_lt(seen->n, 16);
	seen->leak[seen->n++] = *leak;
	return seen->stop;
}

static struct pinion_context *ctx;

/* All tests have one directory: what the one before left is removed. */
static void set_up(void)
{
	struct seen seen = { 0 };

	test_tmp();
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_leak_list(ctx, true, note, &seen));
}

static void tear_down(void)
{
	pinion_close(ctx);
}

/* A process that holds @name, or publishes it, until it is killed. */
static pid_t holder(const char *name)
{
	struct pinion_context *own;
	struct pinion_storage *st;
	int fd[2];
	pid_t pid;
	char byte;

	ck_assert_int_eq(pipe2(fd, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		if (!pinion_open(NULL, &own) && !pinion_storage_create_named(own, name, PINION_DTYPE_U8, 4096, NULL, &st) &&
		    write(fd[1], "y", 1) == 1)
			for (;;)
				pause();
		_exit(1);
	}
	close(fd[1]);
	ck_assert_int_eq(read(fd[0], &byte, 1), 1);
	close(fd[0]);
	return pid;
}

static void kill_and_reap(pid_t pid)
{
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void put(const char *name)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	char path[4096];
	int fd;

	ck_ok(pinion_context_info(ctx, &info));
	snprintf(path, sizeof(path), "%s/%s", info.dir, name);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	close(fd);
}

static int is_there(const char *name)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	char path[4096];

	ck_ok(pinion_context_info(ctx, &info));
	snprintf(path, sizeof(path), "%s/%s", info.dir, name);
	return !access(path, F_OK);
}

START_TEST(nothing_leaks_at_first)
{
	struct seen seen = { 0 };

	ck_ok(pinion_leak_list(ctx, false, note, &seen));
	ck_assert_uint_eq(seen.n, 0);
}
END_TEST

START_TEST(the_dead_are_found_and_the_living_left_alone)
{
	pid_t dead = holder("dead"), living = holder("living");
	struct seen seen = { 0 }, again = { 0 };

	kill_and_reap(dead);
	put("stray.sock");
	put("half.new");
	put("mine.txt");
	put(".hidden");
	ck_ok(pinion_leak_list(ctx, false, note, &seen));
	/* In the order of the alphabet; then what lives and nobody uses. */
	ck_assert_uint_eq(seen.n, 4);
	ck_assert_str_eq(seen.leak[0].kind, "name");
	ck_assert_str_eq(seen.leak[0].what, "dead");
	ck_assert_int_eq(seen.leak[0].pid, dead);
	ck_assert(seen.leak[0].removable);
	ck_assert_str_eq(seen.leak[1].kind, "file");
	ck_assert_str_eq(seen.leak[1].what, "half.new");
	ck_assert_uint_eq(seen.leak[1].bytes, 1);
	ck_assert_str_eq(seen.leak[2].what, "stray.sock");
	ck_assert_str_eq(seen.leak[3].kind, "unused");
	ck_assert_str_eq(seen.leak[3].what, "living");
	ck_assert_int_eq(seen.leak[3].pid, living);
	ck_assert(!seen.leak[3].removable);
	/* A look changes nothing. */
	ck_assert(is_there("dead.name") && is_there("stray.sock") && is_there("half.new"));
	ck_ok(pinion_leak_list(ctx, true, note, &again));
	ck_assert_uint_eq(again.n, 4);
	ck_assert(!is_there("dead.name") && !is_there("dead.sock") && !is_there("stray.sock") && !is_there("half.new"));
	ck_assert(is_there("living.name") && is_there("living.sock") && is_there("mine.txt") && is_there(".hidden"));
	seen.n = 0;
	ck_ok(pinion_leak_list(ctx, true, note, &seen));
	ck_assert_uint_eq(seen.n, 1);
	kill_and_reap(living);
}
END_TEST

START_TEST(a_stopped_holder_is_silent)
{
	pid_t pid = holder("stopped");
	struct seen seen = { 0 };
	int status;

	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_ok(pinion_leak_list(ctx, true, note, &seen));
	ck_assert_uint_eq(seen.n, 1);
	ck_assert_str_eq(seen.leak[0].kind, "silent");
	ck_assert_int_eq(seen.leak[0].pid, pid);
	ck_assert(is_there("stopped.name"));
	kill_and_reap(pid);
}
END_TEST

START_TEST(the_walk_ends_when_told)
{
	struct seen seen = { .stop = 77 };

	put("a.sock");
	put("b.sock");
	ck_assert_int_eq(pinion_leak_list(ctx, false, note, &seen), 77);
	ck_assert_uint_eq(seen.n, 1);
}
END_TEST

START_TEST(a_child_is_refused)
{
	struct seen seen = { 0 };
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(pinion_leak_list(ctx, true, note, &seen) == -EOWNERDEAD && !seen.n ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

static Suite *make(void)
{
	Suite *s = suite_create("leak");
	TCase *t = tcase_create("leak");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, set_up, tear_down);
	tcase_add_test(t, nothing_leaks_at_first);
	tcase_add_test(t, the_dead_are_found_and_the_living_left_alone);
	tcase_add_test(t, a_stopped_holder_is_silent);
	tcase_add_test(t, the_walk_ends_when_told);
	tcase_add_test(t, a_child_is_refused);
	suite_add_tcase(s, t);
	return s;
}

PINION_TEST_MAIN(make)
