/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <errno.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * The reader and the hand-over of slots are compiled here once more, with primitives that stop where the test wants a
 * reading or a hand-over to be caught in the middle. The library's other parts use them, because these come first.
 */
#define PINION_COUNTERS_PRIMITIVES
enum moment { AT_LOAD, AT_STORE, AT_FENCE };
static void reach(enum moment moment, const void *word);
#define pinion_load(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define pinion_load_acquire(p) (reach(AT_LOAD, p), __atomic_load_n(p, __ATOMIC_ACQUIRE))
#define pinion_store(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define pinion_store_release(p, v) (__atomic_store_n(p, v, __ATOMIC_RELEASE), reach(AT_STORE, p))
#define pinion_fence() (__atomic_thread_fence(__ATOMIC_SEQ_CST), reach(AT_FENCE, NULL))
#include "../../lib/provider/counter_read.c"
#include "../../lib/provider/counter_slot.c"

#include "work/account.h"

static _Thread_local void (*on_reach)(enum moment moment, const void *word);

static void reach(enum moment moment, const void *word)
{
	if (on_reach)
		on_reach(moment, word);
}

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

static uint32_t pending(struct pinion_device *dev, enum pinion_scope scope)
{
	uint32_t n = UINT32_MAX;

	ck_ok(pinion_device_pending(dev, scope, &n));
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

/* A counter file of this test alone: others have filled the table of the shared one. */
static void own_dir(void)
{
	static char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s/dir-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(dir));
	setenv("PINION_DIR", dir, 1);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

START_TEST(keys_that_are_none_are_refused)
{
	static const char *const bad[] = { "", " ", "a b", "a\tb", "a\n", "\x7f", "\x01", "\xc3\xa4", "a\xff" };
	struct pinion_context *ctx = context();
	struct pinion_device *dev = (void *)1;
	char key[200];

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(pinion_device_add(ctx, bad[i], NULL, &dev), -EINVAL);
		ck_assert_int_eq(pinion_device_find(ctx, bad[i], &dev), -EINVAL);
	}
	ck_assert_int_eq(pinion_device_add(ctx, NULL, NULL, &dev), -EINVAL);
	ck_assert_int_eq(pinion_device_find(ctx, NULL, &dev), -EINVAL);
	memset(key, 'k', sizeof(key));
	key[199] = 0;
	ck_assert_int_eq(pinion_device_add(ctx, key, NULL, &dev), -EINVAL);
	key[PINION_KEY_MAX + 1] = 0;
	ck_assert_int_eq(pinion_device_add(ctx, key, NULL, &dev), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "63"));
	ck_assert_ptr_eq(dev, (void *)1);
	key[PINION_KEY_MAX] = 0;
	ck_ok(pinion_device_add(ctx, key, NULL, &dev));
	ck_assert_str_eq(pinion_device_key(dev), key);
	ck_assert_str_eq(info_of(dev).key, key);
	key[PINION_KEY_MAX - 1] = 0;
	ck_assert_int_eq(pinion_device_find(ctx, key, &dev), -ENOENT);
	pinion_close(ctx);
}
END_TEST

START_TEST(the_values_of_who_came_first_win)
{
	struct pinion_device_opts first = { .size = sizeof(first), .capacity = 7, .budget = 1000 };
	struct pinion_device_opts other = { .size = sizeof(other), .capacity = 8, .budget = 2000 };
	struct pinion_context *ctx = context(), *ctx2 = context();
	struct pinion_device *dev, *dev2, *again;

	ck_ok(pinion_device_add(ctx, "first", &first, &dev));
	ck_ok(pinion_device_add(ctx2, "first", &other, &dev2));
	ck_ok(pinion_device_find(ctx, "first", &again));
	ck_assert_ptr_eq(dev, again);
	ck_assert_ptr_ne(dev, dev2);
	ck_assert_uint_eq(info_of(dev2).capacity, 7);
	ck_assert_uint_eq(info_of(dev2).budget, 1000);
	ck_assert_uint_eq(info_of(dev).generation, info_of(dev2).generation);
	other.size = 0;
	ck_assert_int_eq(pinion_device_add(ctx, "second", &other, &dev), -EINVAL);
	pinion_close(ctx);
	pinion_close(ctx2);
}
END_TEST

START_TEST(hostio_is_always_there)
{
	struct pinion_context *ctx;
	struct pinion_device *dev;

	own_dir();
	ctx = context();
	ck_assert_int_eq(pinion_device_at(ctx, 0, &dev), -ENOENT);
	ck_ok(pinion_device_find(ctx, "hostio", &dev));
	ck_assert_str_eq(pinion_device_key(dev), "hostio");
	ck_assert_uint_gt(info_of(dev).capacity, 0);
	ck_assert_int_eq(pinion_device_find(ctx, "hostio2", &dev), -ENOENT);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "hostio2"));
	pinion_close(ctx);
}
END_TEST

START_TEST(info_obeys_the_size_rules)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "sizes");
	struct {
		struct pinion_device_info known;
		uint64_t later;
	} info = { .known.size = sizeof(info) };

	ck_ok(pinion_device_info(dev, &info.known));
	info.later = 1;
	ck_assert_int_eq(pinion_device_info(dev, &info.known), -E2BIG);
	info.known.size = 0;
	ck_assert_int_eq(pinion_device_info(dev, &info.known), -EINVAL);
	pinion_close(ctx);
}
END_TEST

/* ---- the table --------------------------------------------------------------------------------------------------- */

START_TEST(the_table_holds_sixty_four_devices_in_use)
{
	struct pinion_context *ctx[4];
	struct pinion_ticket ticket[64] = { 0 };
	struct pinion_device *dev[64], *more = NULL;
	char key[32];
	size_t n;

	own_dir();
	setenv("PINION_GROUND", "memfd", 1); /* whose table is the directory's alone */
	for (int i = 0; i < 4; i++)
		ctx[i] = context();
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "dev-%d", i);
		dev[i] = device(ctx[i / 16], key);
		ck_ok(pinion_work_begin(dev[i], 1, &ticket[i]));
	}
	for (n = 0; !pinion_device_at(ctx[0], n, &more); n++)
		ck_assert_ptr_nonnull(strstr(pinion_device_key(more), "dev-"));
	ck_assert_uint_eq(n, 64);
	ck_assert_int_eq(pinion_device_at(ctx[0], SIZE_MAX, &more), -ENOENT);
	ck_assert_int_eq(pinion_device_at(ctx[0], (size_t)1 << 32, &more), -ENOENT);
	ck_assert_int_eq(pinion_device_add(ctx[0], "one-more", NULL, &more), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "64"));
	for (int i = 0; i < 64; i++) {
		ck_assert_uint_eq(pending(dev[i], PINION_SCOPE_ALL), 1);
		ck_ok(pinion_work_end(&ticket[i]));
	}
	/* A device that nobody living counts on gives way. */
	pinion_close(ctx[3]);
	ck_ok(pinion_device_add(ctx[0], "one-more", NULL, &more));
	ck_assert_uint_eq(pending(more, PINION_SCOPE_ALL), 0);
	for (int i = 0; i < 3; i++)
		pinion_close(ctx[i]);
}
END_TEST

/* Of what nobody counts on or has claimed, the one that nobody made use of for the longest; a handle alone keeps nothing. */
START_TEST(what_is_idle_the_longest_gives_way)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 100 };
	struct pinion_reserve_opts claim = { .size = sizeof(claim), .bytes = 1 };
	struct pinion_reservation *r;
	struct pinion_ticket ticket = { 0 };
	struct pinion_context *ctx;
	struct pinion_device *dev[64], *found = NULL;
	char key[32];

	own_dir();
	setenv("PINION_GROUND", "memfd", 1); /* the module drops no device for another */
	ctx = context();
	for (int i = 0; i < 64; i++) {
		snprintf(key, sizeof(key), "dev-%d", i);
		ck_ok(pinion_device_add(ctx, key, &opts, &dev[i]));
	}
	/* Use: 0 is found, 1 is added again, 2 was claimed, 3 is counted on, 4 is claimed. 5 is idle the longest, then 6. */
	ck_ok(pinion_device_find(ctx, "dev-0", &found));
	ck_ok(pinion_device_add(ctx, "dev-1", NULL, &found));
	ck_ok(pinion_device_reserve(dev[2], &claim, &r));
	pinion_reservation_free(r);
	ck_ok(pinion_work_begin(dev[3], 1, &ticket));
	ck_ok(pinion_work_end(&ticket));
	ck_ok(pinion_device_reserve(dev[4], &claim, &r));
	for (int more = 0; more < 2; more++) {
		snprintf(key, sizeof(key), "more-%d", more);
		ck_ok(pinion_device_add(ctx, key, NULL, &found));
	}
	for (int i = 0; i < 64; i++) {
		struct pinion_device_info info = { .size = sizeof(info) };

		ck_assert_int_eq(pinion_device_info(dev[i], &info), i == 5 || i == 6 ? -ESTALE : 0);
	}
	/* When all were, what is in use is left: all but two that are counted on or claimed. */
	for (int more = 2; more < 200; more++) {
		snprintf(key, sizeof(key), "more-%d", more);
		ck_ok(pinion_device_add(ctx, key, NULL, &found));
	}
	ck_ok(pinion_device_find(ctx, "dev-3", &found));
	ck_ok(pinion_device_find(ctx, "dev-4", &found));
	ck_assert_int_eq(pinion_device_find(ctx, "dev-0", &found), -ENOENT);
	pinion_reservation_free(r);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_device_added_anew_is_another_one)
{
	struct pinion_context *ctx = context();
	struct pinion_device *old = device(ctx, "anew"), *new, *found = NULL;
	struct pinion_ticket in_old = { 0 }, ticket = { 0 };
	struct pinion_device_info info = { .size = sizeof(info) };
	struct pinion_device_user row;
	uint64_t generation = info_of(old).generation;
	uint32_t n;
	size_t rows;

	ck_ok(pinion_work_begin(old, 1, &in_old));
	ck_ok(pinion_device_remove(old));
	ck_assert_int_eq(pinion_device_find(ctx, "anew", &found), -ENOENT);
	new = device(ctx, "anew");
	ck_assert_ptr_ne(old, new);
	ck_assert_uint_ne(info_of(new).generation, generation);
	ck_assert_int_eq(pinion_device_remove(old), -ESTALE);
	ck_assert_int_eq(pinion_device_pending(old, PINION_SCOPE_ALL, &n), -ESTALE);
	ck_assert_int_eq(pinion_device_pending(old, PINION_SCOPE_MINE, &n), -ESTALE);
	ck_assert_int_eq(pinion_device_info(old, &info), -ESTALE);
	ck_assert_int_eq(pinion_device_users(old, &row, 1, &rows), -ESTALE);
	ck_assert_int_eq(pinion_device_flush(old, PINION_SCOPE_ALL, 0, NULL), -ESTALE);
	ck_assert_int_eq(pinion_work_begin(old, 1, &ticket), -ESTALE);
	ck_assert_uint_eq(pending(new, PINION_SCOPE_ALL), 0);
	ck_ok(pinion_work_begin(new, 1, &ticket));
	pinion_work_end(&in_old);
	ck_assert_uint_eq(pending(new, PINION_SCOPE_ALL), 1);
	ck_assert_uint_eq(info_of(new).submitted, 1);
	ck_ok(pinion_work_end(&ticket));
	ck_assert_uint_eq(pending(new, PINION_SCOPE_ALL), 0);
	pinion_close(ctx);
}
END_TEST

START_TEST(removing_and_adding_does_not_use_a_context_up)
{
	struct pinion_context *ctx = context();

	for (int i = 0; i < 200; i++) {
		struct pinion_device *dev = device(ctx, "again");
		struct pinion_ticket ticket = { 0 };

		ck_ok(pinion_work_begin(dev, 1, &ticket));
		ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 1);
		ck_ok(pinion_work_end(&ticket));
		ck_ok(pinion_device_remove(dev));
	}
	pinion_close(ctx);
}
END_TEST

/* ---- two processes ----------------------------------------------------------------------------------------------- */

/* A process that begins @units on @key and says so; it ends them at 'e', exits at 'q', and answers each with '.'. */
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

		if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, key, NULL, &dev))
			_exit(1);
		for (int i = 0; i < units; i++)
			if (pinion_work_begin(dev, 10, &ticket[i]))
				_exit(2);
		while (write(ends[1], ".", 1) == 1 && read(ends[1], &c, 1) == 1 && c != 'q')
			for (int i = 0; c == 'e' && i < units; i++)
				if (pinion_work_end(&ticket[i]))
					_exit(3);
		pinion_close(ctx);
		_exit(0);
	}
	close(ends[1]);
	*sock = ends[0];
	ck_assert_int_eq(read(*sock, &c, 1), 1);
	return pid;
}

static void tell(int sock, char what)
{
	ck_assert_int_eq(write(sock, &what, 1), 1);
	if (what != 'q')
		ck_assert_int_eq(read(sock, &what, 1), 1);
}

START_TEST(both_scopes_over_two_processes)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "scopes");
	struct pinion_ticket ticket = { 0 };
	struct pinion_device_info info;
	struct pinion_device_user rows[4];
	size_t n;
	int sock;
	pid_t pid = worker("scopes", 5, &sock);

	ck_ok(pinion_work_begin(dev, 3, &ticket));
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 6);
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_MINE), 1);
	info = info_of(dev);
	ck_assert_uint_eq(info.pending_low, 6);
	ck_assert_uint_eq(info.pending_high, 6);
	ck_assert_uint_eq(info.pending_cost, 53);
	ck_assert_uint_eq(info.sessions, 2);
	ck_assert_uint_eq(info.shared_lanes, 0);
	ck_assert_uint_eq(info.submitted, 6);
	ck_ok(pinion_device_users(dev, rows, 4, &n));
	ck_assert_uint_eq(n, 2);
	for (int i = 0; i < 2; i++) {
		ck_assert_uint_eq(rows[i].pending, rows[i].pid == pid ? 5 : 1);
		ck_assert(rows[i].pid == pid || rows[i].pid == getpid());
		ck_assert_uint_eq(rows[i].uid, getuid());
		ck_assert_str_eq(rows[i].comm, "test_device");
		ck_assert_uint_gt(rows[i].since_ns, 0);
	}
	ck_ok(pinion_device_users(dev, NULL, 0, &n));
	ck_assert_uint_eq(n, 2);
	tell(sock, 'e');
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 1);
	ck_ok(pinion_work_end(&ticket));
	tell(sock, 'q');
	ck_assert_int_eq(reap(pid), 0);
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 0);
	ck_assert_uint_eq(info_of(dev).submitted, 6);
	ck_assert_uint_eq(info_of(dev).reclaimed, 0);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_device_that_another_process_counts_on_is_not_removed)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev = device(ctx, "busy");
	struct pinion_ticket ticket = { 0 };
	int sock;
	pid_t pid = worker("busy", 1, &sock);

	ck_ok(pinion_work_begin(dev, 1, &ticket));
	ck_assert_int_eq(pinion_device_remove(dev), -EBUSY);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "busy"));
	tell(sock, 'e');
	ck_assert_int_eq(pinion_device_remove(dev), -EBUSY);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_ok(pinion_device_remove(dev));
	pinion_close(ctx);
}
END_TEST

START_TEST(what_a_killed_process_had_in_flight_is_reclaimed)
{
	struct pinion_context *ctx = context(), *next[3];
	struct pinion_device *dev = device(ctx, "reclaimed");

	for (int i = 1; i <= 3; i++) {
		int sock;
		pid_t pid = worker("reclaimed", 5, &sock);

		ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 5);
		kill(pid, SIGKILL);
		ck_assert_int_eq(reap(pid), -SIGKILL);
		ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 0);
		ck_assert_uint_eq(info_of(dev).pending_cost, 0);
		ck_assert_uint_eq(info_of(dev).reclaimed, 5 * i);
		ck_assert_uint_eq(info_of(dev).sessions, 0);
		/* The slot is taken over: the figure stays, no unit comes back. */
		next[i - 1] = context();
		ck_assert_uint_eq(info_of(dev).reclaimed, 5 * i);
		ck_assert_uint_eq(info_of(dev).submitted, 5 * i);
		ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 0);
		ck_assert_uint_eq(pending(device(next[i - 1], "reclaimed"), PINION_SCOPE_MINE), 0);
	}
	for (int i = 0; i < 3; i++)
		pinion_close(next[i]);
	pinion_close(ctx);
}
END_TEST

START_TEST(closing_gives_up_what_is_in_flight)
{
	struct pinion_context *ctx = context(), *other = context();
	struct pinion_device *dev = device(ctx, "given-up");
	struct pinion_ticket ticket[2] = { 0 };

	ck_ok(pinion_work_begin(device(other, "given-up"), 1, &ticket[0]));
	ck_ok(pinion_work_begin(device(other, "given-up"), 1, &ticket[1]));
	ck_ok(pinion_work_end(&ticket[1]));
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 1);
	pinion_close(other);
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 0);
	ck_assert_uint_eq(info_of(dev).reclaimed, 1);
	pinion_close(ctx);
}
END_TEST

/* ---- many contexts ----------------------------------------------------------------------------------------------- */

START_TEST(three_hundred_contexts_count_at_once)
{
	static struct pinion_context *ctx[300];
	static struct pinion_ticket ticket[300];
	static struct pinion_device_user rows[300];
	struct pinion_device *dev = NULL;
	struct rlimit files;
	size_t n;

	/* A context has four descriptors where it stands on the module. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	own_dir();
	for (int i = 0; i < 300; i++) {
		ctx[i] = context();
		dev = device(ctx[i], "crowd");
		ck_ok(pinion_work_begin(dev, 2, &ticket[i]));
		ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), i + 1);
	}
	ck_ok(pinion_device_users(dev, rows, 300, &n));
	ck_assert_uint_eq(n, 300);
	for (int i = 0; i < 300; i++)
		ck_assert_uint_eq(rows[i].pending, 1);
	ck_assert_uint_eq(info_of(dev).pending_cost, 600);
	for (int i = 0; i < 299; i++) {
		ck_ok(pinion_work_end(&ticket[i]));
		pinion_close(ctx[i]);
	}
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 1);
	ck_ok(pinion_work_end(&ticket[299]));
	ck_assert_uint_eq(pending(dev, PINION_SCOPE_ALL), 0);
	pinion_close(ctx[299]);
}
END_TEST

START_TEST(the_slots_run_out_with_a_sentence)
{
	static struct pinion_context *ctx[COUNTER_SLOTS + 1];
	struct pinion_context *more = NULL;
	struct rlimit files;
	unsigned int n;
	int ret = 0;

	/* A context has two descriptors, or four. */
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	own_dir();
	for (n = 0; n <= COUNTER_SLOTS && !ret; n++)
		ret = pinion_open(NULL, &ctx[n]);
	if (ret == -EMFILE)
		SKIP("RLIMIT_NOFILE allows only %u contexts", n - 1);
	ck_assert_uint_eq(n, COUNTER_SLOTS + 1);
	ck_assert_int_eq(ret, -EAGAIN);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "1024"));
	pinion_close(ctx[500]);
	ck_ok(pinion_open(NULL, &more));
	ctx[500] = more;
	for (n = 0; n < COUNTER_SLOTS; n++)
		pinion_close(ctx[n]);
}
END_TEST

/* ---- a reading caught in the middle ------------------------------------------------------------------------------ */

static struct pinion_device *caught_dev;
static struct pinion_ticket kept, passed;

/* Whether a reading of this context looks at a lane there. */
static bool is_lane(const void *word)
{
	const struct counter_file *f = caught_dev->counts->file;
	const struct pinion_counter_page *own = caught_dev->counts->page;

	if (caught_dev->counts->kmod)
		return (const char *)word >= (const char *)own && (const char *)word < (const char *)(own + 1);
	return (const char *)word >= (const char *)f->page && (const char *)word < (const char *)(f + 1);
}

static void *begin_on_a_new_lane(void *arg)
{
	(void)arg;
	return pinion_work_begin(caught_dev, 1, &passed) ? (void *)1 : NULL;
}

/* Before the reading's first look at a lane: a unit begins on a lane that the reading does not know and ends here. */
static void attach_during_reading(enum moment moment, const void *word)
{
	pthread_t thread;

	if (moment != AT_LOAD || !is_lane(word))
		return;
	on_reach = NULL;
	ck_assert_int_eq(pthread_create(&thread, NULL, begin_on_a_new_lane, NULL), 0);
	pthread_join(thread, NULL);
	ck_ok(pinion_work_end(&passed));
}

START_TEST(a_lane_that_is_attached_during_a_reading_hides_no_unit)
{
	struct pinion_context *ctx = context();
	struct pinion_device_info info = { .size = sizeof(info) };
	uint32_t n;

	for (int scope = 0; scope < 3; scope++) {
		char key[32];

		snprintf(key, sizeof(key), "attached-%d", scope);
		caught_dev = device(ctx, key);
		/* The others are a call there, and a look at lanes of one's own. */
		if (caught_dev->counts->kmod && scope != PINION_SCOPE_ALL)
			continue;
		memset(&kept, 0, sizeof(kept));
		memset(&passed, 0, sizeof(passed));
		ck_ok(pinion_work_begin(caught_dev, 1, &kept));
		on_reach = attach_during_reading;
		/* `kept` is in flight all the time. */
		if (scope < 2) {
			ck_ok(pinion_device_pending(caught_dev, scope, &n));
			ck_assert_uint_ge(n, 1);
		} else {
			ck_ok(pinion_device_info(caught_dev, &info));
			ck_assert_uint_ge(info.pending_high, 1);
		}
		ck_assert(on_reach == NULL);
		ck_ok(pinion_work_end(&kept));
	}
	pinion_close(ctx);
}
END_TEST

static sem_t caught, go_on, was_read;
static pthread_t reader;
static uint32_t read_n;
static int fences;
static const void *first_lane_retired;

static void stop_before_lanes(enum moment moment, const void *word)
{
	if (moment != AT_LOAD || !is_lane(word))
		return;
	on_reach = NULL;
	sem_post(&caught);
	sem_wait(&go_on);
}

static void *read_caught(void *arg)
{
	void *failed;

	(void)arg;
	on_reach = stop_before_lanes;
	failed = pinion_device_pending(caught_dev, PINION_SCOPE_ALL, &read_n) ? (void *)1 : NULL;
	sem_post(&was_read);
	return failed;
}

static void wait_a_little(sem_t *sem)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 1;
	sem_timedwait(sem, &until);
}

/*
 * In the context that closes: a reading begins when the roster was bumped once, and goes on when the first lane is
 * retired and the second is not yet. It must not take the half for a whole; it may wait until all is done.
 */
static void close_slowly(enum moment moment, const void *word)
{
	if (moment == AT_FENCE && ++fences == 1) {
		ck_assert_int_eq(pthread_create(&reader, NULL, read_caught, NULL), 0);
		sem_wait(&caught);
	} else if (moment == AT_STORE && word == first_lane_retired) {
		on_reach = NULL;
		sem_post(&go_on);
		wait_a_little(&was_read);
	}
}

static void *end_passed(void *arg)
{
	(void)arg;
	return pinion_work_end(&passed) ? (void *)1 : NULL;
}

START_TEST(a_context_that_closes_hides_no_unit_of_another)
{
	struct pinion_ticket lost = { 0 };
	struct pinion_context *ctx, *closing;
	struct pinion_device *theirs;
	struct counts *c;
	pthread_t thread;
	void *failed;

	own_dir();
	setenv("PINION_GROUND", "memfd", 1); /* the hand-over is that of the file */
	ctx = context();
	closing = context();
	theirs = device(closing, "closing");
	sem_init(&caught, 0, 0);
	sem_init(&go_on, 0, 0);
	sem_init(&was_read, 0, 0);
	caught_dev = device(ctx, "closing");
	memset(&kept, 0, sizeof(kept));
	memset(&passed, 0, sizeof(passed));
	ck_ok(pinion_work_begin(caught_dev, 1, &kept));
	/* First lane of the one that closes: two begun, none ended; the second: none begun, one ended. */
	ck_ok(pinion_work_begin(theirs, 1, &lost));
	c = theirs->counts;
	first_lane_retired = &c->file->page[c->slot].lane[__builtin_ctzll(c->file->lanes[theirs->at.index][c->slot])]
				      .completed[0].ops;
	ck_ok(pinion_work_begin(theirs, 1, &passed));
	ck_assert_int_eq(pthread_create(&thread, NULL, end_passed, NULL), 0);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
	on_reach = close_slowly;
	pinion_close(closing);
	on_reach = NULL;
	sem_post(&go_on);
	pthread_join(reader, &failed);
	ck_assert_ptr_null(failed);
	ck_assert_uint_ge(read_n, 1);
	ck_ok(pinion_work_end(&kept));
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("device");
	TCase *keys = tcase_create("keys"), *table = tcase_create("table"), *two = tcase_create("two processes"),
	      *many = tcase_create("many"), *middle = tcase_create("caught");

	tcase_add_test(keys, keys_that_are_none_are_refused);
	tcase_add_test(keys, the_values_of_who_came_first_win);
	tcase_add_test(keys, hostio_is_always_there);
	tcase_add_test(keys, info_obeys_the_size_rules);
	suite_add_tcase(s, keys);
	tcase_set_timeout(table, 30);
	tcase_add_test(table, the_table_holds_sixty_four_devices_in_use);
	tcase_add_test(table, what_is_idle_the_longest_gives_way);
	tcase_add_test(table, a_device_added_anew_is_another_one);
	tcase_add_test(table, removing_and_adding_does_not_use_a_context_up);
	suite_add_tcase(s, table);
	tcase_set_timeout(two, 30);
	tcase_add_test(two, both_scopes_over_two_processes);
	tcase_add_test(two, a_device_that_another_process_counts_on_is_not_removed);
	tcase_add_test(two, what_a_killed_process_had_in_flight_is_reclaimed);
	tcase_add_test(two, closing_gives_up_what_is_in_flight);
	suite_add_tcase(s, two);
	tcase_set_timeout(many, 60);
	tcase_add_test(many, three_hundred_contexts_count_at_once);
	tcase_add_test(many, the_slots_run_out_with_a_sentence);
	suite_add_tcase(s, many);
	tcase_set_timeout(middle, 30);
	tcase_add_test(middle, a_lane_that_is_attached_during_a_reading_hides_no_unit);
	tcase_add_test(middle, a_context_that_closes_hides_no_unit_of_another);
	suite_add_tcase(s, middle);
	return s;
}

PINION_TEST_MAIN(suite)
