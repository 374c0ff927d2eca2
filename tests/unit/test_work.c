/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include "work/account.h"

#include <errno.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct pinion_context *context(void)
{
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	return ctx;
}

static struct pinion_device *device(struct pinion_context *ctx, const char *key)
{
	struct pinion_device *dev = NULL;

	ck_ok(pinion_device_add(ctx, key, NULL, &dev));
	return dev;
}

static uint32_t pending(struct pinion_device *dev)
{
	uint32_t n = UINT32_MAX;

	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	return n;
}

static struct pinion_device_info info_of(struct pinion_device *dev)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	ck_ok(pinion_device_info(dev, &info));
	return info;
}

static int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void own_dir(void)
{
	static char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s/dir-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(dir));
	setenv("PINION_DIR", dir, 1);
}

/* ---- tickets ----------------------------------------------------------------------------------------------------- */

START_TEST(a_unit_is_counted_up_and_down)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "unit");
	struct pinion_ticket ticket[3] = { 0 };

	ck_assert_uint_eq(pending(dev), 0);
	for (int i = 0; i < 3; i++) {
		ck_ok(pinion_work_begin(dev, 100 << i, &ticket[i]));
		ck_assert_uint_eq(pending(dev), i + 1);
	}
	ck_assert_uint_eq(info_of(dev).pending_cost, 700);
	ck_ok(pinion_work_end(&ticket[1]));
	ck_assert_uint_eq(pending(dev), 2);
	ck_assert_uint_eq(info_of(dev).pending_cost, 500);
	ck_ok(pinion_work_end(&ticket[0]));
	ck_ok(pinion_work_end(&ticket[2]));
	ck_assert_uint_eq(pending(dev), 0);
	ck_assert_uint_eq(info_of(dev).pending_cost, 0);
	ck_assert_uint_eq(info_of(dev).submitted, 3);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_second_end_is_refused_and_counts_nothing)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "second-end");
	struct pinion_ticket ticket = { 0 }, other = { 0 }, never = { 0 };

	ck_ok(pinion_work_begin(dev, 1, &other));
	ck_ok(pinion_work_begin(dev, 1, &ticket));
	ck_ok(pinion_work_end(&ticket));
	ck_assert_int_eq(pinion_work_end(&ticket), -EINVAL);
	ck_assert_int_eq(pinion_work_end(&ticket), -EINVAL);
	ck_assert_str_ne(pinion_error(), "");
	ck_assert_int_eq(pinion_work_end(&never), -EINVAL);
	ck_assert_uint_eq(pending(dev), 1);
	ck_ok(pinion_work_end(&other));
	pinion_close(ctx);
}
END_TEST

START_TEST(a_ticket_holds_one_unit)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "begun-twice"), *dev2 = device(ctx, "begun-twice-2");
	struct pinion_ticket ticket = { 0 };

	ck_ok(pinion_work_begin(dev, 1, &ticket));
	ck_assert_int_eq(pinion_work_begin(dev, 1, &ticket), -EINVAL);
	ck_assert_int_eq(pinion_work_begin(dev2, 1, &ticket), -EINVAL);
	ck_assert_uint_eq(pending(dev), 1);
	ck_assert_uint_eq(pending(dev2), 0);
	ck_ok(pinion_work_end(&ticket));
	ck_ok(pinion_work_begin(dev2, 1, &ticket));
	ck_assert_uint_eq(pending(dev), 0);
	ck_assert_uint_eq(pending(dev2), 1);
	ck_ok(pinion_work_end(&ticket));
	pinion_close(ctx);
}
END_TEST

START_TEST(costs_wrap_without_harm)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "costs");
	struct pinion_ticket a = { 0 }, b = { 0 };

	for (int i = 0; i < 10; i++) {
		ck_ok(pinion_work_begin(dev, UINT64_MAX / 3, &a));
		ck_ok(pinion_work_begin(dev, 5, &b));
		ck_ok(pinion_work_end(&a));
		ck_assert_uint_eq(info_of(dev).pending_cost, 5);
		ck_ok(pinion_work_end(&b));
		ck_assert_uint_eq(info_of(dev).pending_cost, 0);
	}
	pinion_close(ctx);
}
END_TEST

/* ---- threads ----------------------------------------------------------------------------------------------------- */

static void *end_it(void *ticket)
{
	return pinion_work_end(ticket) ? (void *)1 : NULL;
}

static void in_thread(void *(*fn)(void *), void *arg)
{
	pthread_t thread;
	void *failed;

	ck_assert_int_eq(pthread_create(&thread, NULL, fn, arg), 0);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
}

START_TEST(another_thread_may_end_a_unit)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "other-thread");

	for (int i = 0; i < 100; i++) {
		struct pinion_ticket ticket = { 0 };

		ck_ok(pinion_work_begin(dev, 3, &ticket));
		in_thread(end_it, &ticket);
		ck_assert_uint_eq(pending(dev), 0);
		ck_assert_uint_eq(info_of(dev).pending_cost, 0);
		ck_assert_int_eq(pinion_work_end(&ticket), -EINVAL);
	}
	pinion_close(ctx);
}
END_TEST

static void *one_unit(void *dev)
{
	struct pinion_ticket ticket = { 0 };

	return pinion_work_begin(dev, 1, &ticket) || pinion_work_end(&ticket) ? (void *)1 : NULL;
}

START_TEST(a_thread_that_ends_gives_its_lane_back)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "lanes");
	uint32_t before = counts_lanes_free(ctx->counts), rounds = test_rounds(1000);

	for (uint32_t i = 0; i < rounds; i++)
		in_thread(one_unit, dev);
	ck_assert_uint_ge(counts_lanes_free(ctx->counts) + 2, before);
	ck_assert_uint_eq(pending(dev), 0);
	ck_assert_uint_eq(info_of(dev).submitted, rounds);
	ck_assert_uint_eq(info_of(dev).shared_lanes, 0);
	pinion_close(ctx);
}
END_TEST

struct crowd {
	struct pinion_device *dev;
	pthread_barrier_t begun, seen;
	struct pinion_ticket left[100];
	int next;
	int failed;
};

static void *in_crowd(void *arg)
{
	struct crowd *c = arg;
	int me = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED);
	struct pinion_ticket ticket[2] = { 0 };

	for (int i = 0; i < 500; i++)
		if (pinion_work_begin(c->dev, 2, &ticket[0]) || pinion_work_end(&ticket[0]))
			c->failed = 1;
	if (pinion_work_begin(c->dev, 1, &ticket[0]) || pinion_work_begin(c->dev, 1, &ticket[1]) ||
	    pinion_work_begin(c->dev, 1, &c->left[me]))
		c->failed = 2;
	pthread_barrier_wait(&c->begun);
	pthread_barrier_wait(&c->seen);
	if (pinion_work_end(&ticket[1]) || pinion_work_end(&ticket[0]))
		c->failed = 3;
	return NULL;
}

START_TEST(a_hundred_threads_at_once_are_counted_exactly)
{
	static struct crowd c;
	struct pinion_context *ctx = context();
	pthread_t thread[100];

	c.dev = device(ctx, "crowd");
	pthread_barrier_init(&c.begun, NULL, 101);
	pthread_barrier_init(&c.seen, NULL, 101);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, in_crowd, &c), 0);
	pthread_barrier_wait(&c.begun);
	ck_assert_uint_eq(pending(c.dev), 300);
	ck_assert_uint_eq(info_of(c.dev).pending_low, 300);
	ck_assert_uint_eq(info_of(c.dev).pending_cost, 300);
	ck_assert_uint_eq(info_of(c.dev).submitted, 100 * 503);
	ck_assert_uint_eq(info_of(c.dev).shared_lanes, 1);
	ck_assert_uint_eq(info_of(c.dev).sessions, 1);
	/* The crowd on one device does not shut out the next one. */
	in_thread(one_unit, device(ctx, "beside-the-crowd"));
	pthread_barrier_wait(&c.seen);
	for (int i = 0; i < 100; i++)
		pthread_join(thread[i], NULL);
	ck_assert_int_eq(c.failed, 0);
	ck_assert_uint_eq(pending(c.dev), 100);
	for (int i = 0; i < 100; i++)
		ck_ok(pinion_work_end(&c.left[i]));
	ck_assert_uint_eq(pending(c.dev), 0);
	ck_assert_uint_eq(info_of(c.dev).pending_cost, 0);
	pinion_close(ctx);
}
END_TEST

struct many {
	struct pinion_device *dev[64];
	struct pinion_ticket ticket[64];
	int n;
};

static void *end_many(void *arg)
{
	struct many *m = arg;
	void *failed = NULL;

	for (int i = 0; i < m->n; i++)
		if (pinion_work_end(&m->ticket[i]))
			failed = m;
	return failed;
}

static void *count_on_many(void *arg)
{
	struct many *m = arg;
	struct pinion_ticket ticket = { 0 };

	for (int i = 0; i < m->n; i++)
		if (pinion_work_begin(m->dev[i], 1, &ticket) || pinion_work_end(&ticket))
			return m;
	return NULL;
}

START_TEST(a_context_counts_on_many_devices_and_then_says_no)
{
	static struct many m;
	struct pinion_context *ctx;
	char key[32];
	int ret = 0;

	own_dir();
	ctx = context();
	for (m.n = 0; m.n < 64; m.n++) {
		snprintf(key, sizeof(key), "many-%d", m.n);
		m.dev[m.n] = device(ctx, key);
		ret = pinion_work_begin(m.dev[m.n], 1, &m.ticket[m.n]);
		if (ret)
			break;
	}
	ck_assert_int_eq(ret, -EAGAIN);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "56"));
	ck_assert_int_ge(m.n, 24);
	in_thread(count_on_many, &m);
	for (int i = 0; i < m.n; i++)
		ck_assert_uint_eq(pending(m.dev[i]), 1);
	in_thread(end_many, &m);
	for (int i = 0; i < m.n; i++)
		ck_assert_uint_eq(pending(m.dev[i]), 0);
	pinion_close(ctx);
}
END_TEST

static pthread_key_t late_key;

/* Runs while the thread ends, after and before the library's own destructor. */
static void late_unit(void *dev)
{
	static _Thread_local int again;

	ck_assert_ptr_null(one_unit(dev));
	if (again++ < 2)
		pthread_setspecific(late_key, dev);
}

static void *ends_late(void *dev)
{
	pthread_setspecific(late_key, dev);
	return one_unit(dev);
}

START_TEST(a_unit_may_be_counted_while_its_thread_ends)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "late");
	uint32_t before = counts_lanes_free(ctx->counts);

	ck_assert_int_eq(pthread_key_create(&late_key, late_unit), 0);
	for (int i = 0; i < 200; i++)
		in_thread(ends_late, dev);
	ck_assert_uint_eq(pending(dev), 0);
	ck_assert_uint_eq(info_of(dev).submitted, 800);
	ck_assert_uint_ge(counts_lanes_free(ctx->counts) + 4, before);
	pinion_close(ctx);
}
END_TEST

/* Of CPU time: what else runs is little to it. */
static double cycles_ns(int n)
{
	struct timespec a, b;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
	for (int i = 0; i < n; i++) {
		struct pinion_context *ctx = context();

		ck_assert_ptr_null(one_unit(device(ctx, "cycles")));
		pinion_close(ctx);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
	return ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n;
}

/* The least of ten: the machine takes something from one of them, what is slower is so each time. */
static double least_cycles_ns(void)
{
	double least = cycles_ns(50);

	for (int i = 0; i < 9; i++) {
		double ns = cycles_ns(50);

		least = ns < least ? ns : least;
	}
	return least;
}

START_TEST(contexts_that_come_and_go_do_not_slow_the_thread_down)
{
	double first, last;

	cycles_ns(100);
	first = least_cycles_ns();
	cycles_ns(2000);
	last = least_cycles_ns();
	ck_assert_msg(last < 10 * first, "%.0f ns at first, %.0f at last", first, last);
}
END_TEST

/* ---- death ------------------------------------------------------------------------------------------------------- */

#define WORKERS 8
#define ROUNDS 20000
#define IN_FLIGHT 4

static void hammer(unsigned int seed)
{
	struct pinion_ticket ticket[IN_FLIGHT] = { 0 };
	struct pinion_context *ctx;
	struct pinion_device *dev;

	if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, "hammer", NULL, &dev))
		_exit(1);
	for (int i = 0; i < ROUNDS; i++) {
		struct pinion_ticket *t = &ticket[rand_r(&seed) % IN_FLIGHT];

		if (t->state ? pinion_work_end(t) : pinion_work_begin(dev, 1, t))
			_exit(2);
	}
	for (int i = 0; i < IN_FLIGHT; i++)
		if (ticket[i].state && pinion_work_end(&ticket[i]))
			_exit(3);
	pinion_close(ctx);
	_exit(0);
}

START_TEST(killed_at_random_the_counts_stay_within_what_can_be_in_flight)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "hammer");
	unsigned int seed = 20, killed = 0, reads = 0;
	struct pinion_device_info info;
	pid_t pid[WORKERS];
	int left = WORKERS;

	for (int i = 0; i < WORKERS; i++) {
		pid[i] = fork();
		if (!pid[i])
			hammer(i + 1);
	}
	while (left) {
		int status, victim = rand_r(&seed) % WORKERS;
		pid_t gone = waitpid(-1, &status, WNOHANG);

		info = info_of(dev);
		reads++;
		ck_assert_uint_le(info.pending_low, info.pending_high);
		ck_assert_uint_le(info.pending_high, WORKERS * IN_FLIGHT);
		ck_assert_uint_le(pending(dev), WORKERS * IN_FLIGHT);
		if (gone > 0) {
			ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
			for (int i = 0; i < WORKERS; i++)
				if (pid[i] == gone)
					pid[i] = 0;
			left--;
		}
		/* Each one killed is followed by another, so that slots change hands in the middle of it. */
		if (reads % 50 == 0 && pid[victim] && killed < 20) {
			kill(pid[victim], SIGKILL);
			ck_assert_int_le(reap(pid[victim]), 0);
			killed++;
			pid[victim] = fork();
			if (!pid[victim])
				hammer(100 + killed);
		}
	}
	info = info_of(dev);
	ck_assert_uint_eq(info.pending_low, 0);
	ck_assert_uint_eq(info.pending_high, 0);
	ck_assert_uint_eq(info.pending_cost, 0);
	ck_assert_uint_le(info.reclaimed, killed * IN_FLIGHT);
	ck_assert_uint_eq(pending(dev), 0);
	pinion_close(ctx);
}
END_TEST

/* Begins @units and tells @ready; then lives on. */
static struct pinion_device *begin_and_tell(int units, int ready)
{
	static struct pinion_ticket ticket[16];
	struct pinion_context *ctx;
	struct pinion_device *dev;

	if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, "dying", NULL, &dev))
		_exit(1);
	for (int i = 0; i < units; i++)
		if (pinion_work_begin(dev, 1, &ticket[i]))
			_exit(2);
	if (ready >= 0 && write(ready, "r", 1) != 1)
		_exit(3);
	return dev;
}

START_TEST(a_prefork_parents_share_is_gone_when_it_is_reaped)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "dying");
	int gone = 0, rounds = test_rounds(300);

	for (int i = 0; i < rounds; i++) {
		pid_t parent, child;
		int end[2];

		ck_assert_int_eq(pipe(end), 0);
		parent = fork();
		if (!parent) {
			begin_and_tell(5, -1);
			child = fork();
			if (!child)
				for (;;)
					pause();
			if (write(end[1], &child, sizeof(child)) != sizeof(child))
				_exit(1);
			for (;;)
				pause();
		}
		ck_assert_int_eq(read(end[0], &child, sizeof(child)), sizeof(child));
		ck_assert_uint_eq(pending(dev), 5);
		kill(parent, SIGKILL);
		ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
		gone += pending(dev) == 0;
		ck_assert_int_eq(kill(child, 0), 0);
		kill(child, SIGKILL);
		close(end[0]);
		close(end[1]);
	}
	ck_assert_int_eq(gone, rounds);
	ck_assert_uint_eq(info_of(dev).reclaimed, 5 * rounds);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_process_that_executes_another_program_is_out)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "dying");
	int ready[2], back[2];
	uint64_t reclaimed = info_of(dev).reclaimed;
	char c;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	ck_assert_int_eq(pipe(back), 0);
	pid = fork();
	if (!pid) {
		begin_and_tell(3, ready[1]);
		dup2(back[0], 0);
		dup2(ready[1], 1);
		if (read(back[0], &c, 1) != 1)
			_exit(4);
		execl("/bin/sh", "sh", "-c", "echo; read x", NULL);
		_exit(5);
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ck_assert_uint_eq(pending(dev), 3);
	ck_assert_int_eq(write(back[1], "g", 1), 1);
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	ck_assert_uint_eq(pending(dev), 0);
	ck_assert_uint_eq(info_of(dev).sessions, 0);
	ck_assert_uint_eq(info_of(dev).reclaimed, reclaimed + 3);
	ck_assert_int_eq(write(back[1], "\n", 1), 1);
	ck_assert_int_eq(reap(pid), 0);
	pinion_close(ctx);
}
END_TEST

static void *exit_when_told(void *arg)
{
	char c;

	_exit(read(*(int *)arg, &c, 1) == 1 ? 0 : 2);
}

/* Until the first thread of process @pid has ended and the process has not. */
static void wait_for_first_thread(pid_t pid)
{
	char path[64], line[512], *end = NULL;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	do {
		FILE *f = fopen(path, "r");

		ck_assert_ptr_nonnull(f);
		ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
		fclose(f);
		end = strrchr(line, ')');
		ck_assert_ptr_nonnull(end);
	} while (end[2] != 'Z' && !usleep(1000));
}

START_TEST(a_process_lives_on_without_its_first_thread)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "dying");
	int end[2];
	pid_t pid;

	ck_assert_int_eq(pipe(end), 0);
	pid = fork();
	if (!pid) {
		pthread_t thread;

		begin_and_tell(2, -1);
		pthread_create(&thread, NULL, exit_when_told, &end[0]);
		pthread_exit(NULL);
	}
	wait_for_first_thread(pid);
	ck_assert_uint_eq(pending(dev), 2);
	ck_assert_int_eq(write(end[1], "x", 1), 1);
	ck_assert_int_eq(reap(pid), 0);
	ck_assert_uint_eq(pending(dev), 0);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_slot_that_changes_hands_shows_no_phantom_units)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "dying");

	for (int i = 0; i < 100; i++) {
		int ready[2], units = i % 7;
		struct pinion_context *next;
		struct pinion_device *same;
		struct pinion_ticket ticket = { 0 };
		pid_t pid;
		char c;

		ck_assert_int_eq(pipe(ready), 0);
		pid = fork();
		if (!pid) {
			begin_and_tell(units, ready[1]);
			for (;;)
				pause();
		}
		ck_assert_int_eq(read(ready[0], &c, 1), 1);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		next = context();
		same = device(next, "dying");
		ck_assert_uint_eq(pending(dev), 0);
		ck_ok(pinion_work_begin(same, 1, &ticket));
		ck_assert_uint_eq(pending(dev), 1);
		ck_assert_uint_eq(info_of(dev).pending_cost, 1);
		ck_ok(pinion_work_end(&ticket));
		ck_assert_uint_eq(pending(dev), 0);
		pinion_close(next);
		close(ready[0]);
		close(ready[1]);
	}
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("work");
	TCase *ticket = tcase_create("ticket"), *threads = tcase_create("threads"), *death = tcase_create("death");

	tcase_add_test(ticket, a_unit_is_counted_up_and_down);
	tcase_add_test(ticket, a_second_end_is_refused_and_counts_nothing);
	tcase_add_test(ticket, a_ticket_holds_one_unit);
	tcase_add_test(ticket, costs_wrap_without_harm);
	suite_add_tcase(s, ticket);
	tcase_set_timeout(threads, 60);
	tcase_add_test(threads, another_thread_may_end_a_unit);
	tcase_add_test(threads, a_thread_that_ends_gives_its_lane_back);
	tcase_add_test(threads, a_hundred_threads_at_once_are_counted_exactly);
	tcase_add_test(threads, a_context_counts_on_many_devices_and_then_says_no);
	tcase_add_test(threads, a_unit_may_be_counted_while_its_thread_ends);
	tcase_add_test(threads, contexts_that_come_and_go_do_not_slow_the_thread_down);
	suite_add_tcase(s, threads);
	tcase_set_timeout(death, 60);
	tcase_add_test(death, killed_at_random_the_counts_stay_within_what_can_be_in_flight);
	tcase_add_test(death, a_prefork_parents_share_is_gone_when_it_is_reaped);
	tcase_add_test(death, a_process_that_executes_another_program_is_out);
	tcase_add_test(death, a_process_lives_on_without_its_first_thread);
	tcase_add_test(death, a_slot_that_changes_hands_shows_no_phantom_units);
	suite_add_tcase(s, death);
	return s;
}

PINION_TEST_MAIN(suite)
