/* SPDX-License-Identifier: MIT */
/* The sequence of a shared storage: no reader sees half a write, and no death keeps anybody waiting for ever. */
#include "namespace.h"
#include "storage_help.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>

#include "memory/storage_header.h"
#include "memory/storage_writer.h"

#define N 1000

static const struct pinion_storage_opts with_header = { .size = sizeof(with_header), .header = true };
static const struct pinion_storage_opts reader = { .size = sizeof(reader), .header = true, .rights = PINION_READ };

static struct pinion_storage *st;

/* What the processes of a test tell each other. */
static struct {
	volatile int go;
	volatile uint64_t reads, writes;
} * common;

static void setup(void)
{
	fresh_folder();
	ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U32, N, &with_header, &st));
	common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void teardown(void)
{
	pinion_storage_free(st);
	munmap(common, 4096);
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static struct pinion_storage *open_it(const struct pinion_storage_opts *opts)
{
	struct pinion_storage *other = NULL;

	child_needs(!pinion_storage_open(in_tmp("a"), PINION_DTYPE_U32, N, opts, &other), 100);
	return other;
}

/* For what comes, however busy the machine is: the test's own limit is shorter. */
static int64_t soon(void)
{
	return pinion_deadline_in(3600 * SECOND);
}

static void fill(struct pinion_storage *to, uint32_t value)
{
	uint32_t all[N];

	for (int i = 0; i < N; i++)
		all[i] = value;
	child_needs(!pinion_storage_store(to, 0, all, sizeof(all)), 101);
}

static bool uniform(const uint32_t *all)
{
	for (int i = 1; i < N; i++)
		if (all[i] != all[0])
			return false;
	return true;
}

/* ---- brackets ---------------------------------------------------------------------------------------------------- */

START_TEST(brackets_are_checked)
{
	struct pinion_storage *ro = open_it(&reader);
	uint64_t sequence = 99;
	char c = 'c';
	bool torn = true;

	ck_refused(pinion_storage_write_begin(ro, 0, NULL), EPERM, "read-only");
	ck_refused(pinion_storage_write_end(st), EINVAL, "no write");
	ck_refused(pinion_storage_store(st, 0, &c, 1), EINVAL, "no write");
	ck_ok(pinion_storage_write_begin(st, 0, &torn));
	ck_assert(!torn);
	ck_refused(pinion_storage_write_begin(st, 0, NULL), EBUSY, "already");
	ck_assert_uint_eq(info_of(st).sequence, 1);
	ck_refused(pinion_storage_read_begin(ro, 0, &sequence), ETIMEDOUT, "is writing");
	ck_refused(pinion_storage_read_begin(ro, INT64_MIN, &sequence), ETIMEDOUT, "is writing");
	ck_refused(pinion_storage_load(ro, 0, &c, 1, pinion_deadline_in(5 * MS)), ETIMEDOUT, "is writing");
	ck_refused(pinion_storage_store(st, 4 * N, &c, 1), EINVAL, "out of bounds");
	ck_refused(pinion_storage_store(st, UINT64_MAX, &c, 2), EINVAL, "out of bounds");
	ck_refused(pinion_storage_load(st, 1, &c, 4 * N, 0), EINVAL, "out of bounds");
	ck_ok(pinion_storage_store(st, 4 * N, NULL, 0));
	ck_ok(pinion_storage_store(st, 4 * N - 1, &c, 1));
	ck_ok(pinion_storage_write_end(st));
	ck_refused(pinion_storage_write_end(st), EINVAL, "no write");
	ck_assert_uint_eq(sequence, 99);
	ck_ok(pinion_storage_read_begin(ro, 0, &sequence));
	ck_assert_uint_eq(sequence, 2);
	ck_assert(!pinion_storage_read_retry(ro, sequence));
	ck_ok(pinion_storage_load(ro, 4 * N - 1, &c, 1, 0));
	ck_assert_int_eq(c, 'c');
	ck_ok(pinion_storage_write_begin(st, 0, NULL));
	ck_assert(pinion_storage_read_retry(ro, sequence));
	ck_ok(pinion_storage_write_end(st));
	ck_assert(pinion_storage_read_retry(ro, sequence));
	pinion_storage_free(ro);
}
END_TEST

START_TEST(copies_of_any_alignment_are_exact)
{
	unsigned char want[64], have[64], src[32];

	memset(want, 0xee, sizeof(want));
	ck_ok(pinion_storage_write_begin(st, 0, NULL));
	ck_ok(pinion_storage_store(st, 0, want, sizeof(want)));
	for (unsigned int offset = 0; offset < 24; offset++) {
		for (unsigned int bytes = 0; bytes <= 24; bytes++) {
			for (unsigned int i = 0; i < bytes; i++)
				want[offset + i] = src[i + 1] = offset * 7 + bytes * 3 + i;
			ck_ok(pinion_storage_store(st, offset, src + 1, bytes));
			memcpy(have, view_data(st, BOTH), sizeof(have));
			ck_assert_int_eq(memcmp(have, want, sizeof(want)), 0);
		}
	}
	ck_ok(pinion_storage_write_end(st));
	for (unsigned int offset = 0; offset < 24; offset++) {
		for (unsigned int bytes = 0; bytes <= 24; bytes++) {
			memset(have, 0x11, sizeof(have));
			ck_ok(pinion_storage_load(st, offset, have + 1, bytes, 0));
			ck_assert_int_eq(memcmp(have + 1, want + offset, bytes), 0);
			ck_assert(have[0] == 0x11 && have[1 + bytes] == 0x11);
		}
	}
}
END_TEST

/* ---- a writer in a loop ------------------------------------------------------------------------------------------ */

static void wait_for_a_reading(void)
{
	uint64_t reads = __atomic_load_n(&common->reads, __ATOMIC_RELAXED);

	while (!common->go && __atomic_load_n(&common->reads, __ATOMIC_RELAXED) == reads)
		sched_yield();
}

static void write_on(bool in_place)
{
	struct pinion_storage *own = open_it(&with_header);
	uint32_t *p = view_data(own, BOTH);

	for (uint32_t value = 1; !common->go; value++) {
		child_needs(!pinion_storage_write_begin(own, soon(), NULL), 1);
		if (in_place) {
			for (int i = 0; i < N; i++)
				p[i] = value;
		} else {
			fill(own, value);
		}
		child_needs(!pinion_storage_write_end(own), 2);
		/*
		 * Who writes without a rest lets nobody read. A short one now and then lets a reader in that is quick; on one that
		 * is not (ASan, a busy machine) the writer waits every 16th time.
		 */
		if (++common->writes % 16)
			for (volatile int pause = 0; pause < 2000; pause++)
				;
		else
			wait_for_a_reading();
	}
	_exit(0);
}

static void read_on(bool in_place)
{
	const struct pinion_storage *own = open_it(&reader);
	const uint32_t *p = view_data(own, PINION_READ);
	uint32_t all[N], last = 0;
	uint64_t sequence;

	while (!common->go) {
		if (in_place) {
			do {
				child_needs(!pinion_storage_read_begin(own, soon(), &sequence), 1);
				memcpy(all, p, sizeof(all));
			} while (pinion_storage_read_retry(own, sequence));
		} else {
			child_needs(!pinion_storage_load(own, 0, all, sizeof(all), soon()), 2);
		}
		child_needs(uniform(all), 3);
		child_needs(all[0] >= last, 4);
		last = all[0];
		__atomic_add_fetch(&common->reads, 1, __ATOMIC_RELAXED);
	}
	_exit(0);
}

static void race(bool in_place)
{
	siginfo_t ended = { 0 };
	pid_t pid[3];

	for (int i = 0; i < 3; i++) {
		pid[i] = child();
		if (!pid[i] && i == 0)
			write_on(in_place);
		if (!pid[i])
			read_on(in_place);
	}
	/* On a busy machine longer, until enough was seen to say something. Who met with something wrong is there no more. */
	usleep(400000);
	while ((common->reads <= 100 || common->writes <= 100) && waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
	       !ended.si_pid)
		usleep(10000);
	common->go = 1;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(reap(pid[i]), 0);
	ck_assert_uint_gt(common->reads, 100);
	ck_assert_uint_gt(common->writes, 100);
}

START_TEST(no_reader_of_another_process_sees_a_torn_copy)
{
	race(false);
}
END_TEST

START_TEST(no_reader_of_another_process_sees_a_torn_array_in_place)
{
	race(true);
}
END_TEST

static void *write_in_thread(void *arg)
{
	(void)arg;
	for (uint32_t value = test_rounds(3000); value; value--) {
		ck_ok(pinion_storage_write_begin(st, soon(), NULL));
		fill(st, value);
		ck_ok(pinion_storage_write_end(st));
	}
	common->go = 1;
	return NULL;
}

static void *read_in_thread(void *arg)
{
	uint32_t all[N];

	(void)arg;
	while (!common->go) {
		ck_ok(pinion_storage_load(st, 0, all, sizeof(all), soon()));
		ck_assert(uniform(all));
	}
	return NULL;
}

START_TEST(threads_share_one_storage_object)
{
	pthread_t thread[3];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, i ? read_in_thread : write_in_thread, NULL), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
}
END_TEST

START_TEST(writers_take_turns)
{
	uint32_t *p = view_data(st, BOTH), turns = test_rounds(500);
	pid_t pid[3];

	for (int i = 0; i < 3; i++) {
		struct pinion_storage *own;

		pid[i] = child();
		if (pid[i])
			continue;
		own = open_it(&with_header);
		for (uint32_t k = 0; k < turns; k++) {
			bool torn;

			child_needs(!pinion_storage_write_begin(own, soon(), &torn), 1);
			child_needs(!torn, 2);
			p[0] = p[0] + 1;
			for (volatile int pause = 0; pause < 200; pause++)
				;
			p[N - 1] = p[N - 1] + 1;
			child_needs(!pinion_storage_write_end(own), 3);
		}
		_exit(0);
	}
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(reap(pid[i]), 0);
	ck_assert_uint_eq(p[0], 3 * turns);
	ck_assert_uint_eq(p[N - 1], 3 * turns);
	ck_assert_uint_eq(info_of(st).sequence, 6 * turns);
}
END_TEST

static void *never_rest(void *arg)
{
	struct pinion_storage *own = arg;

	while (!common->go) {
		ck_ok(pinion_storage_write_begin(own, soon(), NULL));
		ck_ok(pinion_storage_write_end(own));
	}
	return NULL;
}

START_TEST(a_reader_of_a_writer_that_never_rests_keeps_its_deadline)
{
	struct pinion_storage *own = open_it(&reader);
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, never_rest, st), 0);
	for (int i = 0; i < 10; i++) {
		int64_t deadline = pinion_deadline_in(10 * MS);
		uint32_t all[N];
		int ret = pinion_storage_load(own, 0, all, sizeof(all), deadline);

		/* It ends, with what it was asked for or not before its time; the writer goes on until it has. */
		ck_assert(ret == 0 || (ret == -ETIMEDOUT && pinion_deadline_in(0) >= deadline));
	}
	common->go = 1;
	pthread_join(thread, NULL);
	pinion_storage_free(own);
}
END_TEST

/* ---- death ------------------------------------------------------------------------------------------------------- */

/* A child that is in the middle of a write, having written @value to the first half. */
static pid_t half_a_write(uint32_t value)
{
	struct pinion_storage *own;
	pid_t pid;

	common->go = 0;
	pid = child();
	if (pid) {
		while (!common->go)
			usleep(200);
		return pid;
	}
	own = open_it(&with_header);
	child_needs(!pinion_storage_write_begin(own, soon(), NULL), 1);
	for (int i = 0; i < N / 2; i++)
		child_needs(!pinion_storage_store(own, 4 * i, &value, 4), 2);
	common->go = 1;
	while (common->go != 2)
		usleep(200);
	for (int i = N / 2; i < N; i++)
		child_needs(!pinion_storage_store(own, 4 * i, &value, 4), 3);
	child_needs(!pinion_storage_write_end(own), 4);
	_exit(0);
}

/* The reader hears of the death long before its deadline, which is not within the test's time. */
static void hears_of_the_death(void)
{
	uint64_t sequence;

	ck_refused(pinion_storage_read_begin(st, soon(), &sequence), EOWNERDEAD, "died inside a write");
	ck_refused(pinion_storage_read_begin(st, 0, &sequence), EOWNERDEAD, "died inside a write");
}

static void writes_whole_again(uint32_t value)
{
	uint32_t all[N];
	bool torn = false;

	ck_ok(pinion_storage_write_begin(st, soon(), &torn));
	ck_assert(torn);
	fill(st, value);
	ck_ok(pinion_storage_write_end(st));
	ck_assert_uint_eq(info_of(st).sequence % 2, 0);
	ck_ok(pinion_storage_load(st, 0, all, sizeof(all), 0));
	ck_assert(uniform(all) && all[0] == value);
	ck_ok(pinion_storage_write_begin(st, 0, &torn));
	ck_assert(!torn);
	ck_ok(pinion_storage_write_end(st));
}

START_TEST(a_writer_that_was_killed_is_heard_of_and_replaced)
{
	uint64_t sequence;
	siginfo_t dead;
	pid_t pid;

	ck_ok(pinion_storage_read_begin(st, 0, &sequence));
	pid = half_a_write(7);
	ck_refused(pinion_storage_write_begin(st, pinion_deadline_in(20 * MS), NULL), ETIMEDOUT, "is writing");
	kill(pid, SIGKILL);
	/* Dead, and not waited for. */
	ck_assert_int_eq(waitid(P_PID, pid, &dead, WEXITED | WNOWAIT), 0);
	hears_of_the_death();
	ck_assert_int_eq(reap(pid), -SIGKILL);
	hears_of_the_death();
	/* Whoever began to read before the death reads again. */
	ck_assert(pinion_storage_read_retry(st, sequence));
	writes_whole_again(8);
}
END_TEST

START_TEST(owning_waits_for_a_whole_write)
{
	struct pinion_storage *own = NULL, *other = open_it(&with_header);
	pid_t pid = half_a_write(7);

	common->go = 2;
	ck_ok(pinion_storage_into_owned(other, &own));
	ck_assert(uniform(view_data(own, BOTH)));
	ck_assert_uint_eq(((uint32_t *)view_data(own, BOTH))[0], 7);
	pinion_storage_free(own);
	ck_assert_int_eq(reap(pid), 0);
	pid = half_a_write(8);
	kill(pid, SIGKILL);
	reap(pid);
	/* Refused, and the storage is the caller's as before. */
	other = open_it(&with_header);
	own = NULL;
	ck_assert_int_eq(pinion_storage_into_owned(other, &own), -EOWNERDEAD);
	ck_assert_ptr_null(own);
	ck_assert_uint_eq(pinion_storage_elements(other), N);
	pinion_storage_free(other);
}
END_TEST

START_TEST(a_writer_that_was_stopped_is_waited_for)
{
	uint64_t sequence;
	uint32_t all[N];
	pid_t pid = half_a_write(7);
	int64_t start;

	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	start = pinion_deadline_in(0);
	ck_refused(pinion_storage_read_begin(st, pinion_deadline_in(50 * MS), &sequence), ETIMEDOUT, "is writing");
	ck_assert_int_ge(pinion_deadline_in(0) - start, 50 * MS);
	ck_refused(pinion_storage_write_begin(st, pinion_deadline_in(50 * MS), NULL), ETIMEDOUT, "is writing");
	common->go = 2;
	kill(pid, SIGCONT);
	ck_ok(pinion_storage_load(st, 0, all, sizeof(all), soon()));
	ck_assert(uniform(all) && all[0] == 7);
	ck_assert_int_eq(reap(pid), 0);
}
END_TEST

START_TEST(writers_killed_at_any_moment_leave_no_torn_array)
{
	unsigned int inside = 0, outside = 0;
	uint32_t all[N];

	for (int round = 0; round < 60; round++) {
		pid_t pid = child();
		bool torn;
		int ret;

		if (!pid) {
			struct pinion_storage *own = open_it(&with_header);

			for (uint32_t value = 1;; value++) {
				child_needs(!pinion_storage_write_begin(own, soon(), NULL), 1);
				fill(own, value);
				child_needs(!pinion_storage_write_end(own), 2);
			}
		}
		usleep(2000 + round * 97 % 3000);
		kill(pid, SIGKILL);
		ck_assert_int_eq(reap(pid), -SIGKILL);
		ret = pinion_storage_load(st, 0, all, sizeof(all), soon());
		ck_assert_msg(!ret || ret == -EOWNERDEAD, "%d (%s)", ret, pinion_error());
		ck_assert(ret || uniform(all));
		ck_ok(pinion_storage_write_begin(st, soon(), &torn));
		ck_assert_int_eq(torn, ret != 0);
		fill(st, 0);
		ck_ok(pinion_storage_write_end(st));
		inside += torn;
		outside += !torn;
	}
	ck_assert_uint_eq(inside + outside, 60);
}
END_TEST

START_TEST(a_storage_freed_inside_a_write_is_a_death)
{
	struct pinion_storage *own = open_it(&with_header);

	ck_ok(pinion_storage_write_begin(own, 0, NULL));
	fill(own, 7);
	pinion_storage_free(own);
	hears_of_the_death();
	writes_whole_again(8);
}
END_TEST

START_TEST(creating_again_waits_for_a_writer_and_no_longer)
{
	struct pinion_storage *again = NULL;
	pid_t pid = half_a_write(7);

	ck_refused(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U32, N, &with_header, &again), ETIMEDOUT,
		   "is writing");
	ck_assert_ptr_null(again);
	kill(pid, SIGKILL);
	reap(pid);
	ck_ok(pinion_storage_create(in_tmp("a"), PINION_DTYPE_U32, N, &with_header, &again));
	ck_assert_uint_eq(info_of(st).sequence % 2, 0);
	ck_assert_uint_eq(((uint32_t *)view_data(st, PINION_READ))[0], 0);
	pinion_storage_free(again);
}
END_TEST

/* ---- forks ------------------------------------------------------------------------------------------------------- */

START_TEST(a_forked_child_does_not_end_its_parents_write)
{
	pid_t pid;

	ck_ok(pinion_storage_write_begin(st, 0, NULL));
	pid = child();
	if (!pid) {
		pinion_storage_free(st);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_assert_uint_eq(st->header->writer, writer_self());
	pid = child();
	if (!pid) {
		char c = 1;

		child_needs(pinion_storage_write_end(st) == -EOWNERDEAD, 1);
		child_needs(pinion_storage_store(st, 0, &c, 1) == -EINVAL, 2);
		child_needs(pinion_storage_write_begin(st, pinion_deadline_in(5 * MS), NULL) == -ETIMEDOUT, 3);
		child_needs(pinion_storage_write_end(st) == -EINVAL, 4);
		pinion_storage_free(st);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_assert_uint_eq(info_of(st).sequence, 1);
	fill(st, 3);
	ck_ok(pinion_storage_write_end(st));
	pid = child();
	if (!pid) {
		child_needs(!pinion_storage_write_begin(st, soon(), NULL), 5);
		fill(st, 4);
		child_needs(!pinion_storage_write_end(st), 6);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_assert_uint_eq(((uint32_t *)view_data(st, PINION_READ))[N - 1], 4);
	ck_assert_uint_eq(info_of(st).sequence, 4);
}
END_TEST

START_TEST(a_child_that_outlives_the_writer_does_not_keep_its_place)
{
	pid_t parent = child(), survivor;

	if (!parent) {
		struct pinion_storage *own = open_it(&with_header);

		child_needs(!pinion_storage_write_begin(own, soon(), NULL), 1);
		survivor = fork();
		if (!survivor) {
			common->go = 1;
			for (;;)
				pause();
		}
		common->writes = survivor;
		while (!common->go)
			usleep(200);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(reap(parent), -SIGKILL);
	hears_of_the_death();
	writes_whole_again(8);
	kill(common->writes, SIGKILL);
}
END_TEST

/* ---- who is dead ------------------------------------------------------------------------------------------------- */

START_TEST(a_process_is_told_from_another_with_its_id)
{
	uint64_t self = writer_self();

	ck_assert_uint_ne(self, 0);
	ck_assert_uint_eq(self, writer_self());
	ck_assert_int_eq(writer_pid(self), getpid());
	ck_assert(!writer_is_dead(self));
	ck_assert(writer_is_dead(self ^ UINT64_C(1) << 42));
	ck_assert(writer_is_dead(self ^ UINT64_C(1) << 63));
	/* In another pid namespace nobody can tell. */
	ck_assert(!writer_is_dead(self ^ UINT64_C(1) << 22));
	/* What a file may hold that somebody scribbled on. */
	st->header->sequence = 5;
	st->header->writer = self ^ UINT64_C(1) << 50;
	hears_of_the_death();
	writes_whole_again(1);
}
END_TEST

START_TEST(the_dead_of_another_pid_namespace_are_not_known_to_be)
{
	uint64_t sequence;
	pid_t pid;
	int ret;

	pid = fork();
	if (!pid) {
		if (!namespace_leave(CLONE_NEWPID))
			_exit(77);
		pid = fork();
		if (!pid) {
			struct pinion_storage *own = open_it(&with_header);

			child_needs(!pinion_storage_write_begin(own, soon(), NULL), 1);
			kill(getpid(), SIGKILL);
			_exit(0);
		}
		reap(pid);
		_exit(0);
	}
	ret = reap(pid);
	if (ret == 77)
		SKIP("needs a pid namespace of its own");
	ck_assert_int_eq(ret, 0);
	if (info_of(st).sequence % 2 == 0)
		SKIP("the first process of a pid namespace does not die here");
	ck_refused(pinion_storage_read_begin(st, pinion_deadline_in(20 * MS), &sequence), ETIMEDOUT, "is writing");
	ck_refused(pinion_storage_write_begin(st, pinion_deadline_in(20 * MS), NULL), ETIMEDOUT, "is writing");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("storage_sequence");
	TCase *brackets = tcase_create("brackets"), *race_case = tcase_create("race"), *death = tcase_create("death");

	tcase_add_checked_fixture(brackets, setup, teardown);
	tcase_add_test(brackets, brackets_are_checked);
	tcase_add_test(brackets, copies_of_any_alignment_are_exact);
	suite_add_tcase(s, brackets);
	tcase_set_timeout(race_case, 60);
	tcase_add_checked_fixture(race_case, setup, teardown);
	tcase_add_test(race_case, no_reader_of_another_process_sees_a_torn_copy);
	tcase_add_test(race_case, no_reader_of_another_process_sees_a_torn_array_in_place);
	tcase_add_test(race_case, threads_share_one_storage_object);
	tcase_add_test(race_case, writers_take_turns);
	tcase_add_test(race_case, a_reader_of_a_writer_that_never_rests_keeps_its_deadline);
	suite_add_tcase(s, race_case);
	tcase_set_timeout(death, 60);
	tcase_add_checked_fixture(death, setup, teardown);
	tcase_add_test(death, a_writer_that_was_killed_is_heard_of_and_replaced);
	tcase_add_test(death, owning_waits_for_a_whole_write);
	tcase_add_test(death, a_writer_that_was_stopped_is_waited_for);
	tcase_add_test(death, writers_killed_at_any_moment_leave_no_torn_array);
	tcase_add_test(death, a_storage_freed_inside_a_write_is_a_death);
	tcase_add_test(death, creating_again_waits_for_a_writer_and_no_longer);
	tcase_add_test(death, a_forked_child_does_not_end_its_parents_write);
	tcase_add_test(death, a_child_that_outlives_the_writer_does_not_keep_its_place);
	tcase_add_test(death, a_process_is_told_from_another_with_its_id);
	tcase_add_test(death, the_dead_of_another_pid_namespace_are_not_known_to_be);
	suite_add_tcase(s, death);
	return s;
}

PINION_TEST_MAIN(suite)
