/* SPDX-License-Identifier: MIT */
/* Counts on the kernel module: what differs from those in the counter file. The rest is what every test of counts shows on both.
 */
#include "ground.h"
#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/pinion.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define OTHER_USER 1234

static struct pinion_context *ctx;

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static struct pinion_device *device(struct pinion_context *of, const char *key)
{
	struct pinion_device *dev = NULL;

	ck_ok(pinion_device_add(of, key, NULL, &dev));
	return dev;
}

static uint32_t pending(struct pinion_device *dev)
{
	uint32_t n = UINT32_MAX;

	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	return n;
}

/* ---- other processes ----------------------------------------------------------------------------------------------- */

struct other {
	pid_t pid;
	int told; /* a byte comes when it is so far */
	int go;	  /* a byte lets it go on */
};

static void tell(int fd)
{
	if (write(fd, "", 1) != 1)
		_exit(99);
}

/* Another user's process: in the device's group, with a runtime directory of its own. */
static bool become_other(void)
{
	char dir[] = "/tmp/other-XXXXXX";
	struct stat st;

	if (stat(PINION_DEVICE, &st) || !mkdtemp(dir) || chown(dir, OTHER_USER, OTHER_USER))
		return false;
	setenv("PINION_DIR", dir, 1);
	return !setgroups(1, &st.st_gid) && !setgid(OTHER_USER) && !setuid(OTHER_USER);
}

/* Begins @units on the device of @key, tells, waits, ends them and exits. */
static void work_until_told(const char *key, unsigned int units, int told, int go)
{
	struct pinion_ticket ticket[16] = { 0 };
	struct pinion_context *own;
	struct pinion_device *dev;
	char c;

	if (pinion_open(NULL, &own) || pinion_device_add(own, key, NULL, &dev))
		_exit(1);
	for (unsigned int i = 0; i < units; i++)
		if (pinion_work_begin(dev, 2, &ticket[i]))
			_exit(2);
	tell(told);
	if (read(go, &c, 1) < 0)
		_exit(3);
	for (unsigned int i = 0; i < units; i++)
		if (pinion_work_end(&ticket[i]))
			_exit(4);
	tell(told);
	_exit(0);
}

static struct other other_works(const char *key, unsigned int units, bool as_other_user)
{
	struct other o;
	int told[2], go[2];
	char c;

	ck_assert_int_eq(pipe2(told, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	o.pid = fork();
	ck_assert_int_ge(o.pid, 0);
	if (!o.pid) {
		close(told[0]);
		close(go[1]);
		if (as_other_user && !become_other())
			_exit(98);
		work_until_told(key, units, told[1], go[0]);
	}
	close(told[1]);
	close(go[0]);
	o.told = told[0];
	o.go = go[1];
	ck_assert_int_eq(read(o.told, &c, 1), 1);
	return o;
}

static int other_ends(struct other *o, bool killed)
{
	int status;

	/* Children that were made since have this end too, so that closing it says nothing. */
	if (killed)
		kill(o->pid, SIGKILL);
	else
		tell(o->go);
	close(o->go);
	ck_assert_int_eq(waitpid(o->pid, &status, 0), o->pid);
	close(o->told);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- totals -------------------------------------------------------------------------------------------------------- */

static void check_others_units(const char *key, bool as_other_user)
{
	struct pinion_device *dev = device(ctx, key);
	struct pinion_device_user user[4];
	struct pinion_ticket own = { 0 };
	struct other o = other_works(key, 3, as_other_user);
	uint32_t mine;
	size_t n;

	ck_assert_uint_eq(pending(dev), 3);
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_MINE, &mine));
	ck_assert_uint_eq(mine, 0);
	ck_ok(pinion_work_begin(dev, 1, &own));
	ck_assert_uint_eq(pending(dev), 4);
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_MINE, &mine));
	ck_assert_uint_eq(mine, 1);
	ck_ok(pinion_device_users(dev, user, 4, &n));
	ck_assert_uint_eq(n, 2);
	ck_assert_int_eq(user[0].pid, o.pid);
	ck_assert_uint_eq(user[0].uid, as_other_user ? OTHER_USER : geteuid());
	ck_assert_uint_eq(user[0].pending, 3);
	ck_assert_int_eq(user[1].pid, getpid());
	ck_assert_int_eq(pinion_device_remove(dev), -EBUSY);
	ck_assert_int_eq(other_ends(&o, true), -SIGKILL);
	ck_assert_uint_eq(pending(dev), 1);
	ck_ok(pinion_work_end(&own));
	ck_assert_uint_eq(pending(dev), 0);
	ck_ok(pinion_device_remove(dev));
}

START_TEST(units_of_another_process_count_until_it_is_dead)
{
	check_others_units("module-totals", false);
}
END_TEST

START_TEST(units_of_another_user_count_as_well)
{
	check_others_units("module-users", true);
}
END_TEST

/* Which no page shows. */
START_TEST(units_that_the_kernel_keeps_count_as_well)
{
	struct pinion_device *dev = device(ctx, "module-add"), *both[2] = { dev, device(ctx, "module-add-2") };
	struct pinion_dev get = { .size = sizeof(get), .key = "module-add" };
	struct pinion_attach attach = { .size = sizeof(attach), .max_inflight = 8, .completed_fd = -1 };
	struct pinion_add add = { .size = sizeof(add), .ops = 5, .parity = PINION_PARITY_NOW };
	struct pinion_ticket own = { 0 };
	uint32_t n[2];
	int fd = open(PINION_DEVICE, O_RDWR | O_CLOEXEC);

	ck_ok(pinion_work_begin(both[1], 1, &own));
	ck_assert_uint_eq(pending(dev), 0);
	ck_assert_int_eq(ioctl(fd, PINION_IOC_DEV_GET, &get), 0);
	attach.index = get.index;
	attach.generation = get.generation;
	ck_assert_int_eq(ioctl(fd, PINION_IOC_ATTACH, &attach), 0);
	ck_assert_uint_eq(pending(dev), 0);
	add.handle = attach.handle;
	ck_assert_int_eq(ioctl(fd, PINION_IOC_ADD, &add), 0);
	ck_assert_uint_eq(pending(dev), 5);
	ck_ok(pinion_devices_pending(both, 2, PINION_SCOPE_ALL, n));
	ck_assert_uint_eq(n[0], 5);
	ck_assert_uint_eq(n[1], 1);
	close(fd);
	ck_assert_uint_eq(pending(dev), 0);
	ck_ok(pinion_work_end(&own));
}
END_TEST

/* Sessions come and go under a thread that reads all the time: their pages are mapped and given up again under it. */
static struct pinion_device *churned;
static uint32_t stop, most;

static void *read_on(void *arg)
{
	uint32_t n;

	(void)arg;
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		if (pinion_device_pending(churned, PINION_SCOPE_ALL, &n))
			return (void *)1;
		__atomic_store_n(&most, n > most ? n : most, __ATOMIC_RELAXED);
		usleep(500);
	}
	return NULL;
}

START_TEST(sessions_that_come_and_go_are_read_as_they_are)
{
	uint32_t rounds = test_rounds(100);
	struct other o[4];
	pthread_t reader[2];
	void *failed;

	churned = device(ctx, "module-churn");
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&reader[i], NULL, read_on, NULL), 0);
	for (uint32_t r = 0; r < rounds; r++) {
		for (int i = 0; i < 4; i++)
			o[i] = other_works("module-churn", 2, false);
		ck_assert_uint_eq(pending(churned), 8);
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(other_ends(&o[i], i & 1), i & 1 ? -SIGKILL : 0);
		ck_assert_uint_eq(pending(churned), 0);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++) {
		pthread_join(reader[i], &failed);
		ck_assert_ptr_null(failed);
	}
	ck_assert_uint_le(most, 8);
}
END_TEST

/* ---- devices ------------------------------------------------------------------------------------------------------- */

START_TEST(a_device_lives_as_long_as_somebody_refers_to_it)
{
	struct other o = other_works("module-life", 0, false);
	struct pinion_device *found, *none, *again;
	struct pinion_ticket t = { 0 };
	uint32_t n;

	/* Who finds it keeps it. */
	ck_ok(pinion_device_find(ctx, "module-life", &found));
	ck_assert_int_eq(other_ends(&o, true), -SIGKILL);
	ck_ok(pinion_work_begin(found, 1, &t));
	ck_ok(pinion_work_end(&t));
	ck_ok(pinion_device_remove(found));
	ck_assert_int_eq(pinion_device_pending(found, PINION_SCOPE_ALL, &n), -ESTALE);
	ck_assert_int_eq(pinion_device_find(ctx, "module-life", &none), -ENOENT);
	/* Who lists it does not. */
	o = other_works("module-life", 1, false);
	for (size_t i = 0; !pinion_device_at(ctx, i, &again); i++)
		if (!strcmp(pinion_device_key(again), "module-life"))
			break;
	ck_assert_str_eq(pinion_device_key(again), "module-life");
	ck_assert_uint_eq(pending(again), 1);
	ck_assert_int_eq(other_ends(&o, false), 0);
	ck_assert_int_eq(pinion_device_pending(again, PINION_SCOPE_ALL, &n), -ESTALE);
	ck_assert_int_eq(pinion_work_begin(again, 1, &t), -ESTALE);
}
END_TEST

START_TEST(another_users_device_cannot_be_removed)
{
	struct other o = other_works("module-theirs", 0, true);
	struct pinion_device *found;
	int status;
	pid_t pid;

	ck_ok(pinion_device_find(ctx, "module-theirs", &found));
	/* Root may. A third one may not. */
	pid = fork();
	if (!pid) {
		struct pinion_context *own;
		struct pinion_device *dev;
		struct stat st;

		setenv("PINION_DIR", mkdtemp((char[]){ "/tmp/third-XXXXXX" }), 1);
		if (stat(PINION_DEVICE, &st) || chown(getenv("PINION_DIR"), 1235, 1235) || setgroups(1, &st.st_gid) ||
		    setgid(1235) || setuid(1235))
			_exit(98);
		if (pinion_open(NULL, &own) || pinion_device_find(own, "module-theirs", &dev))
			_exit(1);
		_exit(pinion_device_remove(dev) == -EPERM ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(other_ends(&o, false), 0);
	ck_ok(pinion_device_remove(found));
}
END_TEST

/* ---- flush --------------------------------------------------------------------------------------------------------- */

static void nothing(int signal)
{
	(void)signal;
}

START_TEST(a_flush_that_is_late_names_who_it_waited_for)
{
	struct pinion_device *dev = device(ctx, "module-flush");
	struct other o = other_works("module-flush", 3, false);
	char who[32];

	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, pinion_deadline_in(20000000), NULL), -ETIMEDOUT);
	snprintf(who, sizeof(who), "process %d", o.pid);
	ck_assert_ptr_nonnull(strstr(pinion_error(), who));
	ck_assert_int_eq(other_ends(&o, true), -SIGKILL);
	ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, pinion_deadline_in(0), NULL));
}
END_TEST

/* When the flush waits, and signals have come. */
static void *kill_later(void *arg)
{
	test_threads_rest();
	usleep(300000);
	kill(*(pid_t *)arg, SIGKILL);
	return NULL;
}

START_TEST(a_flush_goes_on_through_signals_and_says_what_was_lost)
{
	struct itimerval often = { .it_interval.tv_usec = 5000, .it_value.tv_usec = 5000 }, off = { 0 };
	struct sigaction act = { .sa_handler = nothing };
	struct pinion_device *dev = device(ctx, "module-signals");
	struct other o = other_works("module-signals", 3, false);
	uint64_t lost = 0;
	pthread_t killer;

	sigaction(SIGALRM, &act, NULL);
	ck_assert_int_eq(pthread_create(&killer, NULL, kill_later, &o.pid), 0);
	setitimer(ITIMER_REAL, &often, NULL);
	ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, PINION_FOREVER, &lost));
	setitimer(ITIMER_REAL, &off, NULL);
	ck_assert_uint_eq(lost, 3);
	pthread_join(killer, NULL);
	other_ends(&o, true);
}
END_TEST

/* ---- claims -------------------------------------------------------------------------------------------------------- */

START_TEST(an_exclusive_claim_takes_its_bytes_and_no_more)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 1000 };
	struct pinion_reserve_opts want = { .size = sizeof(want), .bytes = 400, .exclusive = true };
	struct pinion_device_info info = { .size = sizeof(info) };
	struct pinion_reservation *r;
	struct pinion_device *dev;
	uint64_t left;

	ck_ok(pinion_device_add(ctx, "module-claim", &opts, &dev));
	ck_ok(pinion_device_reserve(dev, &want, &r));
	ck_ok(pinion_device_available(dev, &left));
	ck_assert_uint_eq(left, 600);
	ck_ok(pinion_device_info(dev, &info));
	ck_assert_uint_eq(info.reserved, 400);
	ck_assert_uint_eq(info.claims, 1);
	pinion_reservation_free(r);
	ck_ok(pinion_device_available(dev, &left));
	ck_assert_uint_eq(left, 1000);
}
END_TEST

/* ---- both grounds -------------------------------------------------------------------------------------------------- */

START_TEST(who_counts_elsewhere_is_told)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_open_opts opts = { .size = sizeof(opts), .ground = "memfd" };
	struct pinion_context *apart;
	struct pinion_device *dev = device(ctx, "module-apart"), *theirs;
	struct pinion_ticket t = { 0 };

	ck_ok(pinion_context_info(ctx, &info));
	ck_assert_uint_eq(info.apart, 0);
	ck_ok(pinion_open(&opts, &apart));
	theirs = device(apart, "module-apart");
	ck_ok(pinion_work_begin(theirs, 1, &t));
	ck_assert_uint_eq(pending(theirs), 1);
	ck_assert_uint_eq(pending(dev), 0);
	ck_ok(pinion_context_info(ctx, &info));
	ck_assert_uint_eq(info.apart, 1);
	info.size = sizeof(info);
	ck_ok(pinion_context_info(apart, &info));
	ck_assert_str_eq(info.counts, "memfd");
	ck_assert_uint_eq(info.apart, 1);
	ck_ok(pinion_work_end(&t));
	pinion_close(apart);
}
END_TEST

/* What is said where there is nothing to show. */
START_TEST(counts_on_the_module)
{
	SKIP("no /dev/pinion that counts");
}
END_TEST

static void add_module(Suite *s)
{
	TCase *tc = tcase_create("module"), *churn = tcase_create("churn");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, units_of_another_process_count_until_it_is_dead);
	tcase_add_test(tc, units_of_another_user_count_as_well);
	tcase_add_test(tc, units_that_the_kernel_keeps_count_as_well);
	tcase_add_test(tc, a_device_lives_as_long_as_somebody_refers_to_it);
	tcase_add_test(tc, another_users_device_cannot_be_removed);
	tcase_add_test(tc, a_flush_that_is_late_names_who_it_waited_for);
	tcase_add_test(tc, a_flush_goes_on_through_signals_and_says_what_was_lost);
	tcase_add_test(tc, an_exclusive_claim_takes_its_bytes_and_no_more);
	tcase_add_test(tc, who_counts_elsewhere_is_told);
	suite_add_tcase(s, tc);
	tcase_set_timeout(churn, 120);
	tcase_add_checked_fixture(churn, setup, teardown);
	tcase_add_test(churn, sessions_that_come_and_go_are_read_as_they_are);
	suite_add_tcase(s, churn);
}

static void add_none(Suite *s)
{
	TCase *none = tcase_create("none");

	tcase_add_test(none, counts_on_the_module);
	suite_add_tcase(s, none);
}

static Suite *suite(void)
{
	Suite *s = suite_create("counts_module");

	if (counts_on_module() && !geteuid())
		add_module(s);
	else
		add_none(s);
	return s;
}

PINION_TEST_MAIN(suite)
