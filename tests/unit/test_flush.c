/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The flush is compiled here once more, with a store that can be caught (see test_device.c) and a sleep that is one's own. */
#define PINION_COUNTERS_PRIMITIVES
static void reach_store(void);
#define pinion_load(p)		   __atomic_load_n(p, __ATOMIC_RELAXED)
#define pinion_load_acquire(p)	   __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define pinion_store(p, v)	   (reach_store(), __atomic_store_n(p, v, __ATOMIC_RELAXED))
#define pinion_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define pinion_fence()		   __atomic_thread_fence(__ATOMIC_SEQ_CST)
#define syscall(nr, at, op, value, ts, ...) futex_call(at, op, value, ts)
static long futex_call(uint32_t *at, int op, uint32_t value, const struct timespec *ts);
#include "../../lib/provider/counter_flush.c"
#undef syscall

static _Thread_local void (*on_store)(void);
static bool woken_only; /* a flush sleeps until it is woken, however long */

static long futex_call(uint32_t *at, int op, uint32_t value, const struct timespec *ts)
{
	return syscall(SYS_futex, at, op, value, woken_only ? NULL : ts, NULL, 0);
}

static void reach_store(void)
{
	if (on_store)
		on_store();
}

#define MS   INT64_C(1000000)
#define SOON pinion_deadline_in(3600000 * MS) /* for what comes, however busy the machine is: the test's own limit is shorter */

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

static int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* A flush in a thread of its own. */
struct flusher {
	struct pinion_device *dev;
	enum pinion_scope scope;
	int64_t deadline;
	uint64_t lost;
	int ret;
	bool done;
	pthread_t thread;
};

static void *flush_main(void *arg)
{
	struct flusher *f = arg;

	f->ret = pinion_device_flush(f->dev, f->scope, f->deadline, &f->lost);
	__atomic_store_n(&f->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* It waits, or is over, when this returns. */
static void flush_start(struct flusher *f, struct pinion_device *dev, enum pinion_scope scope)
{
	*f = (struct flusher){ .dev = dev, .scope = scope, .deadline = SOON, .lost = UINT64_MAX };
	ck_assert_int_eq(pthread_create(&f->thread, NULL, flush_main, f), 0);
	test_threads_rest();
}

static int flush_join(struct flusher *f)
{
	pthread_join(f->thread, NULL);
	return f->ret;
}

/* A process that has begun @units on @key, ends as many as it is sent bytes, and answers each; it exits at the end. */
static pid_t worker(const char *key, int units, int *sock)
{
	int ends[2];
	pid_t pid;
	char c;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
	pid = fork();
	if (!pid) {
		struct pinion_ticket ticket[64] = { 0 };
		struct pinion_context *ctx;
		struct pinion_device *dev;

		close(ends[0]);
		if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, key, NULL, &dev))
			_exit(1);
		for (int i = 0; i < units; i++)
			if (pinion_work_begin(dev, 1, &ticket[i]))
				_exit(2);
		for (int i = 0; write(ends[1], ".", 1) == 1 && read(ends[1], &c, 1) == 1; i++)
			if (pinion_work_end(&ticket[i]))
				_exit(3);
		_exit(0);
	}
	close(ends[1]);
	*sock = ends[0];
	ck_assert_int_eq(read(*sock, &c, 1), 1);
	return pid;
}

static void end_one(int sock)
{
	char c = 'e';

	ck_assert_int_eq(write(sock, &c, 1), 1);
	ck_assert_int_eq(read(sock, &c, 1), 1);
}

/* ---- what a flush waits for -------------------------------------------------------------------------------------- */

START_TEST(a_flush_of_nothing_returns_at_once)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "nothing");
	struct pinion_ticket ticket = { 0 };
	uint64_t lost = 7;

	ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL));
	ck_ok(pinion_device_flush(dev, PINION_SCOPE_MINE, 0, &lost));
	ck_assert_uint_eq(lost, 0);
	ck_ok(pinion_work_begin(dev, 1, &ticket));
	ck_ok(pinion_work_end(&ticket));
	for (int i = 0; i < 10; i++)
		ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL));
	pinion_close(ctx);
}
END_TEST

START_TEST(a_deadline_passes_with_what_is_in_flight)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "deadline");
	struct pinion_ticket ticket[2] = { 0 };
	uint64_t lost = 7;

	ck_ok(pinion_work_begin(dev, 1, &ticket[0]));
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_MINE, 0, &lost), -ETIMEDOUT);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "in flight"));
	ck_assert_uint_eq(lost, 7);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, pinion_deadline_in(20 * MS), NULL), -ETIMEDOUT);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, -1, NULL), -ETIMEDOUT);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, INT64_MIN, NULL), -ETIMEDOUT);
	/* A flush that gave up leaves units in both parities; none is forgotten by the next. */
	ck_ok(pinion_work_begin(dev, 1, &ticket[1]));
	ck_ok(pinion_work_end(&ticket[0]));
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL), -ETIMEDOUT);
	ck_ok(pinion_work_end(&ticket[1]));
	ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL));
	pinion_close(ctx);
}
END_TEST

START_TEST(a_deadline_passes_while_another_flush_waits)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "two-flushes");
	struct pinion_ticket ticket = { 0 };
	struct flusher f;

	ck_ok(pinion_work_begin(dev, 1, &ticket));
	flush_start(&f, dev, PINION_SCOPE_ALL);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL), -ETIMEDOUT);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, -1, NULL), -ETIMEDOUT);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_MINE, pinion_deadline_in(20 * MS), NULL), -ETIMEDOUT);
	ck_ok(pinion_work_end(&ticket));
	ck_ok(flush_join(&f));
	ck_assert_uint_eq(f.lost, 0);
	pinion_close(ctx);
}
END_TEST

struct stream_of_work {
	struct pinion_device *dev;
	bool stop;
	uint64_t units;
};

/* At least one unit is in flight from the first to the last moment. */
static void *keep_coming(void *arg)
{
	struct stream_of_work *w = arg;
	struct pinion_ticket ticket[2] = { 0 };

	ck_ok(pinion_work_begin(w->dev, 1, &ticket[0]));
	while (!__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		ck_ok(pinion_work_begin(w->dev, 1, &ticket[(w->units + 1) & 1]));
		ck_ok(pinion_work_end(&ticket[w->units & 1]));
		__atomic_add_fetch(&w->units, 1, __ATOMIC_RELAXED);
	}
	ck_ok(pinion_work_end(&ticket[w->units & 1]));
	return NULL;
}

START_TEST(a_flush_returns_although_new_work_keeps_coming)
{
	struct pinion_context *ctx = context();
	struct stream_of_work w = { .dev = device(ctx, "keeps-coming") };
	pthread_t thread;
	uint64_t before;

	ck_assert_int_eq(pthread_create(&thread, NULL, keep_coming, &w), 0);
	while (!__atomic_load_n(&w.units, __ATOMIC_RELAXED))
		usleep(100);
	for (int i = 0; i < 20; i++) {
		uint32_t n;

		ck_ok(pinion_device_pending(w.dev, PINION_SCOPE_ALL, &n));
		ck_assert_uint_ge(n, 1);
		ck_ok(pinion_device_flush(w.dev, i & 1 ? PINION_SCOPE_ALL : PINION_SCOPE_MINE, SOON, NULL));
	}
	before = __atomic_load_n(&w.units, __ATOMIC_RELAXED);
	while (__atomic_load_n(&w.units, __ATOMIC_RELAXED) == before)
		usleep(100);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	pinion_close(ctx);
}
END_TEST

/* A, B and C before the flush, D and E after it; the first of all is the last to end, and more keeps coming. */
START_TEST(what_ends_out_of_order_does_not_end_a_flush)
{
	enum { A, B, C, D, E, ALL };
	static const int order[] = { D, E, B, C };
	struct pinion_context *ctx = context();
	struct stream_of_work w = { .dev = device(ctx, "out-of-order") };
	struct pinion_ticket ticket[ALL] = { 0 };
	struct flusher f;
	pthread_t thread;
	uint32_t n;

	for (int i = A; i <= C; i++)
		ck_ok(pinion_work_begin(w.dev, 1, &ticket[i]));
	flush_start(&f, w.dev, _i ? PINION_SCOPE_ALL : PINION_SCOPE_MINE);
	for (int i = D; i <= E; i++)
		ck_ok(pinion_work_begin(w.dev, 1, &ticket[i]));
	ck_assert_int_eq(pthread_create(&thread, NULL, keep_coming, &w), 0);
	while (!__atomic_load_n(&w.units, __ATOMIC_RELAXED))
		usleep(100);
	for (int i = 0; i < 4; i++) {
		ck_ok(pinion_work_end(&ticket[order[i]]));
		usleep(20000);
		ck_assert_msg(!__atomic_load_n(&f.done, __ATOMIC_ACQUIRE), "the flush ended before A did, after %c",
			      'A' + order[i]);
	}
	ck_ok(pinion_work_end(&ticket[A]));
	ck_ok(flush_join(&f));
	ck_assert_uint_eq(f.lost, 0);
	ck_ok(pinion_device_pending(w.dev, PINION_SCOPE_ALL, &n));
	ck_assert_uint_ge(n, 1);
	__atomic_store_n(&w.stop, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ck_ok(pinion_device_flush(w.dev, PINION_SCOPE_ALL, 0, NULL));
	pinion_close(ctx);
}
END_TEST

/* ---- random schedules against a model ---------------------------------------------------------------------------- */

#define UNITS	20000
#define FLUSHES 10 /* at least */

/* The model: what was submitted before a flush began must be marked done when it returns. */
struct model {
	struct pinion_device *dev;
	struct pinion_ticket ticket[UNITS];
	bool done[UNITS];
	uint32_t submitted; /* all below are begun */
	uint32_t flushes;
	int failed;
	pthread_mutex_t lock;
	uint32_t open[64]; /* begun and not yet taken by who completes */
	uint32_t n_open;
	bool finished;
};

static void *completes(void *arg)
{
	static int threads;
	struct model *m = arg;
	unsigned int seed = 1 + __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);

	for (;;) {
		uint32_t at, unit;

		pthread_mutex_lock(&m->lock);
		if (!m->n_open) {
			bool finished = __atomic_load_n(&m->finished, __ATOMIC_ACQUIRE);

			pthread_mutex_unlock(&m->lock);
			if (finished)
				return NULL;
			sched_yield();
			continue;
		}
		at = rand_r(&seed) % m->n_open;
		unit = m->open[at];
		m->open[at] = m->open[--m->n_open];
		pthread_mutex_unlock(&m->lock);
		if (rand_r(&seed) % 16 == 0)
			usleep(rand_r(&seed) % 300);
		__atomic_store_n(&m->done[unit], true, __ATOMIC_RELEASE);
		if (pinion_work_end(&m->ticket[unit]))
			m->failed = 1;
	}
}

static void *flushes(void *arg)
{
	struct model *m = arg;

	while (!__atomic_load_n(&m->finished, __ATOMIC_ACQUIRE)) {
		uint32_t before = __atomic_load_n(&m->submitted, __ATOMIC_ACQUIRE);

		if (pinion_device_flush(m->dev,
					__atomic_load_n(&m->flushes, __ATOMIC_RELAXED) & 1 ? PINION_SCOPE_ALL : PINION_SCOPE_MINE,
					SOON, NULL))
			m->failed = 2;
		for (uint32_t i = 0; i < before; i++)
			if (!__atomic_load_n(&m->done[i], __ATOMIC_ACQUIRE))
				m->failed = 3;
		__atomic_add_fetch(&m->flushes, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

START_TEST(a_flush_never_returns_before_what_came_earlier_is_done)
{
	static struct model m = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct pinion_context *ctx = context();
	pthread_t thread[5];
	unsigned int seed = 99;
	uint32_t unit = 0;

	m.dev = device(ctx, "model");
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(pthread_create(&thread[i], NULL, i < 3 ? completes : flushes, &m), 0);
	while (unit < UNITS) {
		bool room;

		pthread_mutex_lock(&m.lock);
		room = m.n_open < 64;
		if (room) {
			ck_ok(pinion_work_begin(m.dev, 1, &m.ticket[unit]));
			m.open[m.n_open++] = unit++;
			__atomic_store_n(&m.submitted, unit, __ATOMIC_RELEASE);
		}
		pthread_mutex_unlock(&m.lock);
		if (!room || rand_r(&seed) % 64 == 0)
			usleep(rand_r(&seed) % 200);
		/* Threads that flush may get little of a busy machine. */
		while (__atomic_load_n(&m.flushes, __ATOMIC_RELAXED) < unit / (UNITS / FLUSHES))
			usleep(100);
	}
	__atomic_store_n(&m.finished, true, __ATOMIC_RELEASE);
	for (int i = 0; i < 5; i++)
		pthread_join(thread[i], NULL);
	ck_assert_int_eq(m.failed, 0);
	ck_assert_uint_ge(m.flushes, FLUSHES);
	ck_ok(pinion_device_flush(m.dev, PINION_SCOPE_ALL, 0, NULL));
	pinion_close(ctx);
}
END_TEST

/* ---- a lane that comes in the middle ----------------------------------------------------------------------------- */

static struct pinion_device *caught_dev;
static struct pinion_ticket kept, passed;
static int stores, catch_at;

static void *begin_passed(void *arg)
{
	(void)arg;
	return pinion_work_begin(caught_dev, 1, &passed) ? (void *)1 : NULL;
}

/* At the wanted store of the flush: a unit begins on a lane the flush has not seen, and ends on one it has. */
static void attach_during_flush(void)
{
	pthread_t thread;

	if (++stores != catch_at)
		return;
	on_store = NULL;
	ck_assert_int_eq(pthread_create(&thread, NULL, begin_passed, NULL), 0);
	pthread_join(thread, NULL);
	ck_ok(pinion_work_end(&passed));
}

START_TEST(a_lane_that_is_attached_during_a_flush_hides_no_unit)
{
	struct pinion_context *ctx;
	char key[32];

	setenv("PINION_GROUND", "memfd", 1); /* the module's flush is in the kernel */
	ctx = context();
	for (catch_at = 1; catch_at <= 8; catch_at++) {
		int ret;

		snprintf(key, sizeof(key), "attached-%d", catch_at);
		caught_dev = device(ctx, key);
		memset(&kept, 0, sizeof(kept));
		memset(&passed, 0, sizeof(passed));
		ck_ok(pinion_work_begin(caught_dev, 1, &kept));
		stores = 0;
		on_store = attach_during_flush;
		ret = pinion_device_flush(caught_dev, PINION_SCOPE_MINE, pinion_deadline_in(5 * MS), NULL);
		on_store = NULL;
		ck_assert_msg(ret == -ETIMEDOUT, "%d with a unit in flight, caught at store %d", ret, catch_at);
		ck_ok(pinion_work_end(&kept));
		ck_ok(pinion_device_flush(caught_dev, PINION_SCOPE_MINE, 0, NULL));
		ck_ok(pinion_device_remove(caught_dev));
		if (stores < catch_at)
			break;
	}
	ck_assert_int_ge(catch_at, 4);
	pinion_close(ctx);
}
END_TEST

/* ---- scopes and death -------------------------------------------------------------------------------------------- */

START_TEST(mine_returns_while_another_process_never_completes)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "never");
	struct pinion_ticket ticket = { 0 };
	struct flusher f;
	uint64_t lost = 7;
	int sock;
	pid_t pid = worker("never", 2, &sock);

	ck_ok(pinion_work_begin(dev, 1, &ticket));
	ck_ok(pinion_work_end(&ticket));
	ck_ok(pinion_device_flush(dev, PINION_SCOPE_MINE, SOON, &lost));
	ck_assert_uint_eq(lost, 0);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, pinion_deadline_in(50 * MS), &lost), -ETIMEDOUT);
	flush_start(&f, dev, PINION_SCOPE_ALL);
	end_one(sock);
	usleep(50000);
	ck_assert(!__atomic_load_n(&f.done, __ATOMIC_ACQUIRE));
	end_one(sock);
	ck_ok(flush_join(&f));
	ck_assert_uint_eq(f.lost, 0);
	close(sock);
	ck_assert_int_eq(reap(pid), 0);
	pinion_close(ctx);
}
END_TEST

START_TEST(an_owner_that_is_killed_while_it_is_flushed_is_lost)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "owner-killed");
	struct flusher f;
	int sock;
	pid_t pid = worker("owner-killed", 5, &sock);

	end_one(sock);
	flush_start(&f, dev, PINION_SCOPE_ALL);
	ck_assert(!__atomic_load_n(&f.done, __ATOMIC_ACQUIRE));
	end_one(sock);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_ok(flush_join(&f));
	ck_assert_uint_eq(f.lost, 3);
	pinion_close(ctx);
}
END_TEST

START_TEST(what_is_lost_is_said_although_the_slot_was_taken_over)
{
	struct pinion_context *ctx = context(), *next;
	struct pinion_device *dev = device(ctx, "taken-over");
	struct pinion_ticket ticket = { 0 };
	struct flusher f;
	int sock;
	pid_t pid = worker("taken-over", 5, &sock);

	flush_start(&f, dev, PINION_SCOPE_ALL);
	/* So that the flush sleeps long. */
	usleep(300000);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	next = context();
	ck_ok(pinion_work_begin(device(next, "taken-over"), 1, &ticket));
	ck_ok(flush_join(&f));
	ck_assert_uint_eq(f.lost, 5);
	ck_ok(pinion_work_end(&ticket));
	pinion_close(next);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_flush_after_one_that_gave_up_says_all_that_is_lost)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "gave-up");
	struct flusher f;
	int first, second;
	pid_t pid = worker("gave-up", 3, &first), other = worker("gave-up", 2, &second);

	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL), -ETIMEDOUT);
	flush_start(&f, dev, PINION_SCOPE_ALL);
	kill(pid, SIGKILL);
	kill(other, SIGKILL);
	reap(pid);
	reap(other);
	close(first);
	close(second);
	ck_ok(flush_join(&f));
	/* It waits for the first; the second may be dead before it comes there. */
	ck_assert_msg(f.lost == 3 || f.lost == 5, "%llu", (unsigned long long)f.lost);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_flusher_that_is_killed_does_not_block_the_next)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "flusher-killed");
	struct pinion_ticket old = { 0 }, ticket = { 0 };

	for (int i = 0; i < 20; i++) {
		struct flusher f;
		pid_t pid;
		char c;
		int ready[2];

		ck_ok(pinion_work_begin(dev, 1, &old));
		ck_assert_int_eq(pipe(ready), 0);
		pid = fork();
		if (!pid) {
			struct pinion_context *own;
			struct pinion_device *same;

			if (pinion_open(NULL, &own) || pinion_device_find(own, "flusher-killed", &same) ||
			    write(ready[1], "r", 1) != 1)
				_exit(1);
			_exit(pinion_device_flush(same, PINION_SCOPE_ALL, PINION_FOREVER, NULL) ? 2 : 3);
		}
		ck_assert_int_eq(read(ready[0], &c, 1), 1);
		usleep(i * 500);
		kill(pid, SIGKILL);
		ck_assert_int_eq(reap(pid), -SIGKILL);
		ck_ok(pinion_work_begin(dev, 1, &ticket));
		ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_MINE, 0, NULL), -ETIMEDOUT);
		flush_start(&f, dev, PINION_SCOPE_ALL);
		ck_ok(pinion_work_end(&old));
		usleep(1000);
		ck_assert(!__atomic_load_n(&f.done, __ATOMIC_ACQUIRE));
		ck_ok(pinion_work_end(&ticket));
		ck_ok(flush_join(&f));
		ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL));
		close(ready[0]);
		close(ready[1]);
	}
	pinion_close(ctx);
}
END_TEST

START_TEST(removing_a_device_ends_its_flush)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "removed");
	struct pinion_ticket ticket = { 0 };
	struct flusher f;

	ck_ok(pinion_work_begin(dev, 1, &ticket));
	flush_start(&f, dev, PINION_SCOPE_ALL);
	ck_ok(pinion_device_remove(dev));
	ck_assert_int_eq(flush_join(&f), -ESTALE);
	pinion_close(ctx);
}
END_TEST

START_TEST(the_end_of_the_last_unit_wakes_who_flushes)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "wakes");

	woken_only = true;
	for (int i = 0; i < 10; i++) {
		struct pinion_ticket ticket = { 0 };
		struct flusher f;

		ck_ok(pinion_work_begin(dev, 1, &ticket));
		flush_start(&f, dev, i & 1 ? PINION_SCOPE_ALL : PINION_SCOPE_MINE);
		ck_ok(pinion_work_end(&ticket));
		ck_ok(flush_join(&f));
	}
	woken_only = false;
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("flush");
	TCase *waits = tcase_create("waits"), *model = tcase_create("model"), *death = tcase_create("death");

	tcase_set_timeout(waits, 30);
	tcase_add_test(waits, a_flush_of_nothing_returns_at_once);
	tcase_add_test(waits, a_deadline_passes_with_what_is_in_flight);
	tcase_add_test(waits, a_deadline_passes_while_another_flush_waits);
	tcase_add_test(waits, a_flush_returns_although_new_work_keeps_coming);
	tcase_add_loop_test(waits, what_ends_out_of_order_does_not_end_a_flush, 0, 2);
	tcase_add_test(waits, the_end_of_the_last_unit_wakes_who_flushes);
	suite_add_tcase(s, waits);
	tcase_set_timeout(model, 60);
	tcase_add_test(model, a_flush_never_returns_before_what_came_earlier_is_done);
	tcase_add_test(model, a_lane_that_is_attached_during_a_flush_hides_no_unit);
	suite_add_tcase(s, model);
	tcase_set_timeout(death, 30);
	tcase_add_test(death, mine_returns_while_another_process_never_completes);
	tcase_add_test(death, an_owner_that_is_killed_while_it_is_flushed_is_lost);
	tcase_add_test(death, what_is_lost_is_said_although_the_slot_was_taken_over);
	tcase_add_test(death, a_flush_after_one_that_gave_up_says_all_that_is_lost);
	tcase_add_test(death, a_flusher_that_is_killed_does_not_block_the_next);
	tcase_add_test(death, removing_a_device_ends_its_flush);
	suite_add_tcase(s, death);
	return s;
}

PINION_TEST_MAIN(suite)
