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

/*
 * Claims are compiled here once more, so that a process can be killed or stopped in the middle of one: when it has locked its
 * row, and nothing is written there. The library's other parts use them, because these come first.
 */
static off_t seek_row(int fd, off_t offset, int whence);
#define lseek seek_row
#include "../../lib/provider/counter_claim.c"
#undef lseek

#include "../context.h"
#include "memory/share.h"

#define BUDGET (UINT64_C(1) << 30)

static int at_row; /* the signal that this process gets there; 0: none */

static off_t seek_row(int fd, off_t offset, int whence)
{
	if (at_row && whence == SEEK_SET)
		raise(at_row);
	return lseek(fd, offset, whence);
}

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

/* What is caught in the middle of a change to the counter file. */
static void setup_file(void)
{
	setenv("PINION_GROUND", "memfd", 1);
	setup();
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
	char line[128];

	ck_ok(reserve(1, 0, false, &a));
	ck_assert_int_eq(reserve(0, 0, true, &none), -EBUSY);
	pinion_reservation_free(a);
	ck_ok(reserve(0, 0, true, &a));
	ck_assert_int_eq(reserve(1, 0, false, &none), -EBUSY);
	ck_assert_int_eq(reserve(0, 0, true, &none), -EBUSY);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "exclusively by process"));
	pinion_reservation_describe(a, line, sizeof(line));
	ck_assert_str_eq(line, "reservation of 0 bytes and 0 units on res-test, exclusive");
	pinion_reservation_free(a);
	ck_ok(reserve(1, 0, false, &a));
	pinion_reservation_describe(a, line, sizeof(line));
	ck_assert_str_eq(line, "reservation of 1 bytes and 0 units on res-test");
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

/* Adopts what it gets, says so, and waits to be killed. */
static void take_over(int sock)
{
	struct pinion_context *own;
	struct pinion_reservation *r;
	unsigned int n;
	char byte;
	int fd;

	if (pinion_open(NULL, &own) || share_recv(sock, &byte, 1, &fd, 1, &n) != 1 || n != 1)
		_exit(1);
	if (pinion_reservation_adopt(own, fd, &r) || close(fd) || write(sock, "x", 1) != 1)
		_exit(2);
	pause();
	_exit(0);
}

static void reap_killed(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
}

/* From the one who made it to another: the death of the first leaves it, that of the last frees it. */
START_TEST(the_last_holders_death_frees_it_at_once)
{
	for (unsigned int i = 0; i < test_rounds(50); i++) {
		int sock[2], fd;
		unsigned int n;
		char byte;
		pid_t first, last;

		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
		first = fork();
		if (first == 0)
			hand_over(sock[1]);
		ck_assert_int_eq(share_recv(sock[0], &byte, 1, &fd, 1, &n), 1);
		close(sock[0]);
		close(sock[1]);
		ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
		last = fork();
		if (last == 0) {
			close(fd);
			take_over(sock[1]);
		}
		ck_ok(share_send(sock[0], "x", 1, &fd, 1));
		close(fd);
		ck_assert_int_eq(read(sock[0], &byte, 1), 1);
		ck_assert_uint_eq(reserved(NULL), BUDGET / 2);
		reap_killed(first);
		ck_assert_uint_eq(reserved(NULL), BUDGET / 2);
		reap_killed(last);
		ck_assert_uint_eq(reserved(NULL), 0);
		close(sock[0]);
		close(sock[1]);
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
	char line[128];
	int null;

	ck_ok(pinion_device_add(ctx, "res-gone", &opts, &gone));
	ck_ok(reserve_on(gone, BUDGET, 0, false, &r));
	/* While it stands the device does too. So it is closed behind the library. */
	ck_assert_int_eq(pinion_device_remove(gone), -EBUSY);
	null = open("/dev/null", O_RDWR);
	ck_assert_int_eq(dup2(null, pinion_reservation_fd(r)), pinion_reservation_fd(r));
	close(null);
	ck_ok(pinion_device_remove(gone));
	ck_assert_int_eq(pinion_reservation_info(r, &info), -ESTALE);
	ck_assert_int_eq(pinion_reservation_device(r, &again), -ESTALE);
	pinion_reservation_describe(r, line, sizeof(line));
	ck_assert_str_eq(line, "reservation of a device that is gone");
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
		int ret;

		snprintf(other, sizeof(other), "res-crowd-%d", i);
		ret = pinion_device_add(ctx, other, NULL, &found);
		/* The module drops no device for another. */
		if (ret && !(ret == -ENOSPC && ctx->counts->kmod))
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

/* Who made it is not who holds it: neither the maker nor anybody else gets the budget a second time. */
START_TEST(a_device_whose_claim_was_passed_on_is_not_removed_by_its_maker)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = BUDGET };
	struct pinion_reservation *r, *none = NULL;
	struct pinion_device *passed;
	int sock[2], fd;
	char byte;
	pid_t pid;

	ck_ok(pinion_device_add(ctx, "res-passed", &opts, &passed));
	ck_ok(reserve_on(passed, BUDGET, 0, false, &r));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	pid = fork();
	if (pid == 0) {
		close(pinion_reservation_fd(r));
		take_over(sock[1]);
	}
	fd = pinion_reservation_fd(r);
	ck_ok(share_send(sock[0], "x", 1, &fd, 1));
	ck_assert_int_eq(read(sock[0], &byte, 1), 1);
	/* Both have it. */
	ck_assert_int_eq(pinion_device_remove(passed), -EBUSY);
	pinion_reservation_free(r);
	/* The other one alone. */
	ck_assert_int_eq(pinion_device_remove(passed), -EBUSY);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "claims stand on device 'res-passed'"));
	ck_assert_int_eq(reserve_on(passed, 1, 0, false, &none), -ENOSPC);
	reap_killed(pid);
	ck_ok(pinion_device_remove(passed));
}
END_TEST

/* ---- a process that dies or stops in the middle of a claim --------------------------------------------------------- */

#define ROWS 8

/* In another process: locks rows that are free or were never used, as one does that was killed and is not all gone. */
static void keep_rows(int sock)
{
	int fd = open_description(ctx->counts);
	char byte;

	for (uint32_t k = 0; k < ROWS; k++)
		if (hold(fd, k))
			_exit(1);
	if (write(sock, "x", 1) != 1 || read(sock, &byte, 1) != 1)
		_exit(2);
	_exit(0);
}

START_TEST(rows_of_who_is_not_all_gone_are_passed_over)
{
	struct pinion_reservation *r[ROWS];
	uint32_t claims, used;
	int sock[2], status;
	char byte;
	pid_t pid;

	/* Some of the rows were used, and some were not. */
	for (int i = 0; i < ROWS / 2; i++)
		ck_ok(reserve(1, 0, false, &r[i]));
	for (int i = 0; i < ROWS / 2; i++)
		pinion_reservation_free(r[i]);
	/* Who makes a claim clears the row first, and locks it then. */
	for (uint32_t k = 0; k < ctx->counts->file->head.claims_used; k++)
		ctx->counts->file->claim[k].generation = 0;
	ck_assert_uint_lt(ctx->counts->file->head.claims_used, ROWS);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	pid = fork();
	if (pid == 0)
		keep_rows(sock[1]);
	ck_assert_int_eq(read(sock[0], &byte, 1), 1);
	for (int i = 0; i < ROWS; i++)
		ck_ok(reserve(1, 0, false, &r[i]));
	ck_assert_uint_eq(reserved(&claims), ROWS);
	ck_assert_uint_eq(claims, ROWS);
	for (int i = 0; i < ROWS; i++)
		pinion_reservation_free(r[i]);
	ck_assert_int_eq(write(sock[0], "x", 1), 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	/* And are used when it is gone. */
	used = ctx->counts->file->head.claims_used;
	ck_assert_uint_eq(used, 2 * ROWS);
	for (int i = 0; i < ROWS; i++)
		ck_ok(reserve(1, 0, false, &r[i]));
	ck_assert_uint_eq(ctx->counts->file->head.claims_used, used);
	for (uint32_t k = 0; k < ROWS; k++)
		ck_assert_uint_ne(ctx->counts->file->claim[k].generation, 0);
	for (int i = 0; i < ROWS; i++)
		pinion_reservation_free(r[i]);
}
END_TEST

#define HEFT (UINT64_C(128) << 20) /* what a victim has in memory, so that its end takes a while */

static void claim_and_get(int sig)
{
	struct pinion_context *own;
	struct pinion_device *d;
	struct pinion_reservation *r;
	char *heft = malloc(HEFT);

	if (!heft || open_device(&own, &d))
		_exit(1);
	memset(heft, 1, HEFT);
	at_row = sig;
	reserve_on(d, 1, 0, false, &r);
	at_row = 0;
	pinion_close(own);
	_exit(0);
}

/* Until the victim can be waited for others have its lock already, and its files are still open. */
START_TEST(a_claim_is_made_while_one_that_was_killed_over_another_goes)
{
	for (unsigned int i = 0; i < test_rounds(10); i++) {
		pid_t pid = fork(), gone;

		if (pid == 0)
			claim_and_get(SIGKILL);
		do {
			struct pinion_reservation *r;

			gone = waitpid(pid, NULL, WNOHANG);
			ck_ok(reserve(1, 0, false, &r));
			pinion_reservation_free(r);
		} while (!gone);
		ck_assert_int_eq(gone, pid);
		ck_assert_uint_eq(reserved(NULL), 0);
	}
}
END_TEST

static pid_t stopped_claimer(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		claim_and_get(SIGSTOP);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	return pid;
}

/* It cannot be got past, but it is said, and by which process, and everything goes on with it. */
START_TEST(who_waits_for_a_stopped_process_is_told_which)
{
	struct pinion_context *other, *none = (void *)1;
	struct pinion_reservation *r = (void *)1;
	struct pinion_device *d = (void *)1;
	struct pinion_device_info info = { .size = sizeof(info) };
	struct pinion_ticket ticket = { 0 };
	char cure[64];
	uint32_t n;
	int status;
	pid_t pid;

	ck_ok(pinion_open(NULL, &other));
	pid = stopped_claimer();
	snprintf(cure, sizeof(cure), "kill -CONT %d", pid);
	ck_assert_int_eq(pinion_open(NULL, &none), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(pinion_error(), cure));
	ck_assert_ptr_nonnull(strstr(pinion_error(), "(test_reservatio)"));
	ck_assert_ptr_eq(none, (void *)1);
	ck_assert_int_eq(reserve(1, 0, false, &r), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(pinion_error(), cure));
	ck_assert_ptr_eq(r, (void *)1);
	ck_assert_int_eq(pinion_device_find(ctx, "res-test", &d), -ETIMEDOUT);
	ck_assert_int_eq(pinion_device_add(ctx, "res-test", NULL, &d), -ETIMEDOUT);
	ck_assert_int_eq(pinion_device_at(ctx, 0, &d), -ETIMEDOUT);
	ck_assert_int_eq(pinion_device_remove(dev), -ETIMEDOUT);
	ck_assert_int_eq(pinion_work_begin(dev, 1, &ticket), -ETIMEDOUT);
	ck_assert_ptr_eq(d, (void *)1);
	/* Who only looks does not wait. */
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	ck_ok(pinion_device_info(dev, &info));
	pinion_close(other);
	kill(pid, SIGCONT);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_ok(pinion_open(NULL, &other));
	ck_ok(reserve(1, 0, false, &r));
	ck_ok(pinion_work_begin(dev, 1, &ticket));
	ck_ok(pinion_work_end(&ticket));
	pinion_reservation_free(r);
	pinion_close(other);
}
END_TEST

/* A lock that changes hands is waited for as long as it takes. It is not let go here, or the other might get it at once. */
START_TEST(a_lock_that_others_get_is_waited_for)
{
	struct pinion_context *other, *own;
	int status, sock[2];
	char byte;
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sock), 0);
	pid = fork();
	if (pid == 0) {
		if (pinion_open(NULL, &own))
			_exit(1);
		if (counter_lock(own->counts) || write(sock[1], "x", 1) != 1)
			_exit(2);
		for (int turn = 0; turn < 64; turn++) {
			usleep(50000);
			__atomic_add_fetch(&own->counts->file->head.turns, 1, __ATOMIC_RELAXED);
		}
		counter_unlock(own->counts);
		_exit(0);
	}
	ck_assert_int_eq(read(sock[0], &byte, 1), 1);
	ck_ok(pinion_open(NULL, &other));
	pinion_close(other);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
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
	TCase *tc = tcase_create("reservation"), *file = tcase_create("file");

	/* First, while few rows of the file were ever used. */
	tcase_set_timeout(file, 60);
	tcase_add_checked_fixture(file, setup_file, teardown);
	tcase_add_test(file, rows_of_who_is_not_all_gone_are_passed_over);
	tcase_add_test(file, a_claim_is_made_while_one_that_was_killed_over_another_goes);
	tcase_add_test(file, who_waits_for_a_stopped_process_is_told_which);
	tcase_add_test(file, a_lock_that_others_get_is_waited_for);
	suite_add_tcase(s, file);
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
	tcase_add_test(tc, a_device_whose_claim_was_passed_on_is_not_removed_by_its_maker);
	tcase_add_test(tc, a_thousand_claims_and_one_more);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(reservation_suite)
