/* SPDX-License-Identifier: MIT */
/* Claims on a device: all or nothing between processes, held by a descriptor wherever it goes, gone with the last one. */
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <pinion/reservation.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/share.h"

#define BUDGET (UINT64_C(1) << 30)

static struct pinion_context *ctx;
static struct pinion_device *dev;

static int open_device(struct pinion_context **c, struct pinion_device **d)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = BUDGET, .capacity = 8 };
	int ret = pinion_open(NULL, c);

	return ret ? ret : pinion_device_add(*c, "res-test", &opts, d);
}

static void setup(void)
{
	ck_ok(open_device(&ctx, &dev));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static int reserve_on(struct pinion_device *d, uint64_t bytes, uint32_t units, bool exclusive, struct pinion_reservation **r)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .bytes = bytes, .units = units, .exclusive = exclusive };

	return pinion_device_reserve(d, &opts, r);
}

static int reserve(uint64_t bytes, uint32_t units, bool exclusive, struct pinion_reservation **r)
{
	return reserve_on(dev, bytes, units, exclusive, r);
}

static uint64_t reserved(uint32_t *claims)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	ck_ok(pinion_device_info(dev, &info));
	if (claims)
		*claims = info.claims;
	return info.reserved;
}

START_TEST(what_is_left_can_be_claimed_and_no_more)
{
	struct pinion_reservation *a, *b, *none = NULL;

	ck_ok(reserve(BUDGET / 4 * 3, 0, false, &a));
	ck_assert_uint_eq(reserved(NULL), BUDGET / 4 * 3);
	ck_assert_int_eq(reserve(BUDGET / 4 + 1, 0, false, &none), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "268435456 of 1073741824 bytes left, 268435457 are asked for"));
	ck_assert_ptr_null(none);
	ck_ok(reserve(BUDGET / 4, 0, false, &b));
	ck_assert_int_eq(reserve(1, 0, false, &none), -ENOSPC);
	pinion_reservation_free(a);
	ck_assert_uint_eq(reserved(NULL), BUDGET / 4);
	pinion_reservation_free(b);
	ck_assert_uint_eq(reserved(NULL), 0);
	ck_assert_int_eq(reserve(UINT64_MAX, 0, false, &none), -ENOSPC);
	ck_assert_int_eq(reserve(0, 0, false, &none), -EINVAL);
}
END_TEST

START_TEST(units_of_the_capacity_likewise)
{
	struct pinion_reservation *a, *none = NULL;

	ck_ok(reserve(0, 7, false, &a));
	ck_assert_int_eq(reserve(0, 2, false, &none), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "1 of 8 units left, 2 are asked for"));
	ck_assert_int_eq(reserve(0, UINT32_MAX, false, &none), -ENOSPC);
	pinion_reservation_free(a);
	ck_ok(reserve(0, 8, false, &a));
	pinion_reservation_free(a);
}
END_TEST

START_TEST(an_exclusive_claim_stands_alone)
{
	struct pinion_reservation *a, *none = NULL;

	ck_ok(reserve(1, 0, false, &a));
	ck_assert_int_eq(reserve(0, 0, true, &none), -EBUSY);
	pinion_reservation_free(a);
	ck_ok(reserve(0, 0, true, &a));
	ck_assert_int_eq(reserve(1, 0, false, &none), -EBUSY);
	ck_assert_int_eq(reserve(0, 0, true, &none), -EBUSY);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "exclusively by process"));
	pinion_reservation_free(a);
	ck_ok(reserve(1, 0, false, &a));
	pinion_reservation_free(a);
}
END_TEST

START_TEST(a_device_without_a_budget_says_so)
{
	struct pinion_device *bare;
	struct pinion_reservation *none = NULL;

	ck_ok(pinion_device_add(ctx, "res-bare", NULL, &bare));
	ck_assert_int_eq(reserve_on(bare, 1, 0, false, &none), -ENODATA);
	ck_assert_int_eq(reserve_on(bare, 0, 1, false, &none), -ENODATA);
	ck_ok(reserve_on(bare, 0, 0, true, &none));
	pinion_reservation_free(none);
}
END_TEST

struct race {
	volatile uint32_t go, wins, losses, done, over;
};

static void race_one(struct race *race, uint32_t rounds, bool exclusive)
{
	struct pinion_context *own;
	struct pinion_device *d;

	if (open_device(&own, &d))
		_exit(1);
	for (uint32_t round = 1; round <= rounds; round++) {
		struct pinion_reservation *r = NULL;
		int ret;

		while (race->go < round)
			sched_yield();
		ret = reserve_on(d, exclusive ? 0 : BUDGET / 4, 0, exclusive, &r);
		if (ret && ret != -ENOSPC && ret != -EBUSY)
			_exit(2);
		__atomic_add_fetch(ret ? &race->losses : &race->wins, 1, __ATOMIC_SEQ_CST);
		while (race->over < round)
			usleep(50);
		pinion_reservation_free(r);
		__atomic_add_fetch(&race->done, 1, __ATOMIC_SEQ_CST);
	}
	_exit(0);
}

static void run_race(uint32_t processes, uint32_t rounds, bool exclusive, uint32_t winners)
{
	struct race *race = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;

	for (uint32_t i = 0; i < processes; i++)
		if (fork() == 0)
			race_one(race, rounds, exclusive);
	for (uint32_t round = 1; round <= rounds; round++) {
		race->wins = race->losses = race->done = 0;
		race->go = round;
		while (race->wins + race->losses < processes)
			usleep(50);
		ck_assert_uint_eq(race->wins, winners);
		race->over = round;
		while (race->done < processes)
			usleep(50);
	}
	for (uint32_t i = 0; i < processes; i++) {
		wait(&status);
		ck_assert_int_eq(status, 0);
	}
}

START_TEST(eight_race_for_a_quarter_each_and_four_win_in_every_round)
{
	run_race(8, test_rounds(200), false, 4);
	ck_assert_uint_eq(reserved(NULL), 0);
}
END_TEST

START_TEST(of_those_who_want_it_exclusively_one_wins)
{
	run_race(4, test_rounds(100), true, 1);
}
END_TEST

/* Sends a claim to the parent and waits to be killed. */
static void hand_over(int sock)
{
	struct pinion_context *own;
	struct pinion_device *d;
	struct pinion_reservation *r;
	int fd;

	if (open_device(&own, &d) || reserve_on(d, BUDGET / 2, 1, false, &r))
		_exit(1);
	fd = pinion_reservation_fd(r);
	share_send(sock, "x", 1, &fd, 1);
	pause();
	_exit(0);
}

START_TEST(a_claim_that_was_passed_on_survives_its_first_holder)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_reservation *r;
	int sock[2], fd;
	unsigned int n;
	char byte, line[128];
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	pid = fork();
	if (pid == 0)
		hand_over(sock[1]);
	ck_assert_int_eq(share_recv(sock[0], &byte, 1, &fd, 1, &n), 1);
	ck_ok(pinion_reservation_adopt(ctx, fd, &r));
	close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_uint_eq(reserved(NULL), BUDGET / 2);
	ck_ok(pinion_reservation_info(r, &info));
	ck_assert_str_eq(info.key, "res-test");
	ck_assert_uint_eq(info.bytes, BUDGET / 2);
	ck_assert_uint_eq(info.units, 1);
	pinion_reservation_describe(r, line, sizeof(line));
	ck_assert_str_eq(line, "reservation of 536870912 bytes and 1 units on res-test");
	pinion_reservation_free(r);
	ck_assert_uint_eq(reserved(NULL), 0);
}
END_TEST

START_TEST(the_last_holders_death_frees_it_at_once)
{
	for (int i = 0; i < 50; i++) {
		int ready[2];
		char byte;
		pid_t pid;

		ck_assert_int_eq(pipe(ready), 0);
		pid = fork();
		if (pid == 0) {
			struct pinion_context *own;
			struct pinion_device *d;
			struct pinion_reservation *r;

			if (open_device(&own, &d) || reserve_on(d, BUDGET, 8, false, &r))
				_exit(1);
			if (write(ready[1], "x", 1) == 1)
				pause();
			_exit(0);
		}
		ck_assert_int_eq(read(ready[0], &byte, 1), 1);
		ck_assert_uint_eq(reserved(NULL), BUDGET);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		ck_assert_uint_eq(reserved(NULL), 0);
		close(ready[0]);
		close(ready[1]);
	}
}
END_TEST

START_TEST(what_is_no_claim_is_not_adopted)
{
	struct pinion_reservation *r = NULL, *a;
	int null = open("/dev/null", O_RDWR), fd;
	char path[64];

	ck_assert_int_eq(pinion_reservation_adopt(ctx, null, &r), -EINVAL);
	ck_assert_int_eq(pinion_reservation_adopt(ctx, -1, &r), -EINVAL);
	close(null);
	/* The same file, opened anew: no claim is behind it, wherever it is placed. */
	ck_ok(reserve(1, 0, false, &a));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pinion_reservation_fd(a));
	fd = open(path, O_RDWR);
	ck_assert_int_eq(pinion_reservation_adopt(ctx, fd, &r), -EINVAL);
	lseek(fd, lseek(pinion_reservation_fd(a), 0, SEEK_CUR), SEEK_SET);
	ck_assert_int_eq(pinion_reservation_adopt(ctx, fd, &r), -EINVAL);
	close(fd);
	pinion_reservation_free(a);
	ck_assert_ptr_null(r);
}
END_TEST

START_TEST(a_removed_device_leaves_the_claim_without_one)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = BUDGET };
	struct pinion_reservation *r, *none = NULL;
	struct pinion_device *gone, *again;

	ck_ok(pinion_device_add(ctx, "res-gone", &opts, &gone));
	ck_ok(reserve_on(gone, BUDGET, 0, false, &r));
	ck_ok(pinion_device_remove(gone));
	ck_assert_int_eq(pinion_reservation_info(r, &info), -ESTALE);
	ck_assert_int_eq(reserve_on(gone, 1, 0, false, &none), -ESTALE);
	ck_ok(pinion_device_add(ctx, "res-gone", &opts, &again));
	ck_ok(reserve_on(again, BUDGET, 0, false, &none));
	pinion_reservation_free(none);
	pinion_reservation_free(r);
}
END_TEST

/* In another process, so that the claim is not its own. Returns 0, or the step that went wrong. */
static int crowd_out(const char *key)
{
	struct pinion_device *found;
	char other[32];

	if (pinion_open(NULL, &ctx))
		return 1;
	for (int i = 0; i < 64; i++) {
		snprintf(other, sizeof(other), "res-crowd-%d", i);
		if (pinion_device_add(ctx, other, NULL, &found))
			return 2;
	}
	if (pinion_device_find(ctx, key, &found))
		return 3;
	return pinion_device_remove(found) == -EBUSY ? 0 : 4;
}

/* Else the same device could be added again and claimed a second time. */
START_TEST(a_device_that_is_claimed_stays)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = BUDGET };
	struct pinion_reservation *r;
	struct pinion_device *held;
	int status;
	pid_t pid;

	ck_ok(pinion_device_add(ctx, "res-held", &opts, &held));
	ck_ok(reserve_on(held, BUDGET, 0, true, &r));
	pid = fork();
	if (!pid)
		_exit(crowd_out("res-held"));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_ok(pinion_reservation_info(r, &info));
	pinion_reservation_free(r);
	ck_ok(pinion_device_remove(held));
}
END_TEST

START_TEST(a_thousand_claims_and_one_more)
{
	struct pinion_reservation *r[1024], *none = NULL;
	unsigned int n;

	for (n = 0; n < 1024; n++)
		if (reserve(1, 0, false, &r[n]))
			break;
	/* Fewer where a process may not have so many descriptors. */
	if (n == 1024)
		ck_assert_int_eq(reserve(1, 0, false, &none), -EAGAIN);
	ck_assert_uint_ge(n, 200);
	while (n)
		pinion_reservation_free(r[--n]);
	ck_assert_uint_eq(reserved(NULL), 0);
}
END_TEST

static Suite *reservation_suite(void)
{
	Suite *s = suite_create("reservation");
	TCase *tc = tcase_create("reservation");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_is_left_can_be_claimed_and_no_more);
	tcase_add_test(tc, units_of_the_capacity_likewise);
	tcase_add_test(tc, an_exclusive_claim_stands_alone);
	tcase_add_test(tc, a_device_without_a_budget_says_so);
	tcase_add_test(tc, eight_race_for_a_quarter_each_and_four_win_in_every_round);
	tcase_add_test(tc, of_those_who_want_it_exclusively_one_wins);
	tcase_add_test(tc, a_claim_that_was_passed_on_survives_its_first_holder);
	tcase_add_test(tc, the_last_holders_death_frees_it_at_once);
	tcase_add_test(tc, what_is_no_claim_is_not_adopted);
	tcase_add_test(tc, a_removed_device_leaves_the_claim_without_one);
	tcase_add_test(tc, a_device_that_is_claimed_stays);
	tcase_add_test(tc, a_thousand_claims_and_one_more);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(reservation_suite)
