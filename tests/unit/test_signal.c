/* SPDX-License-Identifier: MIT */
#include "harness.h"
#include "namespace.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <pinion/device.h>
#include <pinion/pinion.h>
#include <pinion/signal.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * The kept figures are compiled here once more, because the tests count their measurements and set them, and their clock. The
 * library's own part is not linked, because this one comes first.
 */
static int clock_of_test(clockid_t id, struct timespec *ts);
#define clock_gettime clock_of_test
#include "../../lib/dispatch/host_memory.c"
#undef clock_gettime
#include "../../lib/work/account.h"

static uint64_t measured, fake_available = 1000, fake_total = 10000;
static int fake_err;

static int fake_room(uint64_t value[2])
{
	__atomic_add_fetch(&measured, 1, __ATOMIC_RELAXED);
	value[0] = __atomic_load_n(&fake_available, __ATOMIC_RELAXED);
	value[1] = fake_total;
	return -fake_err;
}

static void fake(void)
{
	room.measure = fake_room;
}

static int64_t stands_at; /* atomic; 0: the clock goes on by itself */

static int clock_of_test(clockid_t id, struct timespec *ts)
{
	int64_t ns = __atomic_load_n(&stands_at, __ATOMIC_SEQ_CST);

	if (!ns)
		return clock_gettime(id, ts);
	*ts = (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
	return 0;
}

static struct pinion_context *ctx;

static struct pinion_device *find(const char *key)
{
	struct pinion_device *dev;

	if (!ctx)
		ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_find(ctx, key, &dev));
	return dev;
}

/* ---- would_fit: the contract's table
 * ------------------------------------------------------------------------------------ */

#define NONE (UINT64_MAX - 1) /* not known; no row means the number */
#define MAX  UINT64_MAX
#define MIB  (UINT64_C(1) << 20)

static const struct {
	uint64_t available, total, size;
	enum pinion_fit fit;
} rows[] = {
	{ 1000, 10000, 1001, PINION_FIT_NO },
	{ 80, 100, 10, PINION_FIT_COMFORTABLE },
	{ 20, 100, 10, PINION_FIT_TIGHT },
	{ NONE, 100, 10, PINION_FIT_UNKNOWN },
	{ 50, NONE, 10, PINION_FIT_UNKNOWN },
	{ NONE, NONE, 10, PINION_FIT_UNKNOWN },
	{ 0, 0, 0, PINION_FIT_UNKNOWN },
	{ 50, 100, 0, PINION_FIT_COMFORTABLE },
	{ 25, 100, 10, PINION_FIT_COMFORTABLE }, /* exactly 0.85 is not above it */
	{ 24, 100, 10, PINION_FIT_TIGHT },
	{ 50, NONE, 60, PINION_FIT_NO },
	{ 50, 0, 60, PINION_FIT_NO }, /* decided before the total is looked at */
	{ 50, 0, 10, PINION_FIT_UNKNOWN },
	{ 5, 100, 0, PINION_FIT_TIGHT },	  /* nothing more on a full device */
	{ 200, 100, 10, PINION_FIT_COMFORTABLE }, /* 100 - 190 is 0 */
	{ MAX, MAX, MAX, PINION_FIT_TIGHT },
	{ MAX, MAX, MIB, PINION_FIT_COMFORTABLE },
	{ 10, 100, 10, PINION_FIT_TIGHT }, /* what is just enough fits */
	{ 0, 100, 1, PINION_FIT_NO },	   /* known to be nothing, which is not unknown */
};

START_TEST(would_fit_is_the_contracts_table)
{
	const uint64_t *available = rows[_i].available == NONE ? NULL : &rows[_i].available;
	const uint64_t *total = rows[_i].total == NONE ? NULL : &rows[_i].total;

	ck_assert_int_eq(pinion_fit_of(available, total, rows[_i].size), rows[_i].fit);
}
END_TEST

/* Near the bound and far from it, with numbers of every length. */
START_TEST(would_fit_is_the_contracts_formula)
{
	uint64_t state = 0x9e3779b97f4a7c15, tight = 0, wrong = 0;

	for (int i = 0; i < 200000; i++) {
		uint64_t word[3], total, used, available;
		enum pinion_fit right;

		for (int k = 0; k < 3; k++) {
			state ^= state << 13;
			state ^= state >> 7;
			state ^= state << 17;
			word[k] = state;
		}
		total = (word[0] | 1) >> word[1] % 64;
		total += !total;
		used = word[2] % 2 ? (uint64_t)((double)total * 0.85) + word[1] % 7 - 3 : word[1] % total;
		used = used < total ? used : total;
		available = total - used;
		right = (double)used / (double)total > 0.85 ? PINION_FIT_TIGHT : PINION_FIT_COMFORTABLE;
		tight += right == PINION_FIT_TIGHT;
		wrong += pinion_fit_of(&available, &total, 0) != right;
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_gt(tight, 20000);
	ck_assert_uint_lt(tight, 180000);
}
END_TEST

START_TEST(fits_have_names)
{
	for (int fit = PINION_FIT_UNKNOWN; fit <= PINION_FIT_NO; fit++)
		ck_assert_ptr_nonnull(pinion_fit_name(fit));
	ck_assert_ptr_null(pinion_fit_name(PINION_FIT_NO + 1));
	ck_assert_ptr_null(pinion_fit_name(-1));
}
END_TEST

/* ---- figures that are kept
 * ------------------------------------------------------------------------------------------------ */

static void wait_ms(int ms)
{
	struct timespec ts = { .tv_nsec = ms * 1000000L };

	while (nanosleep(&ts, &ts))
		;
}

/* How often a figure may have been measured anew: not for 45 ms after it was, by a clock that may be 10 ms behind. */
static uint64_t renewals_since(int64_t begun)
{
	return (pinion_deadline_in(0) - begun) / 35000000;
}

START_TEST(figures_are_kept_and_no_more_than_100_ms_old)
{
	struct pinion_device *cpu = find("cpu");
	int64_t begun = pinion_deadline_in(0);
	uint64_t bytes;

	fake();
	ck_ok(pinion_device_available(cpu, &bytes));
	ck_assert_uint_eq(bytes, 1000);
	ck_assert_uint_eq(measured, 1);
	fake_available = 2000;
	for (int i = 0; i < 100; i++)
		ck_ok(pinion_device_available(cpu, &bytes));
	ck_assert_uint_le(measured, 2 + renewals_since(begun));
	wait_ms(100);
	ck_ok(pinion_device_available(cpu, &bytes));
	ck_assert_uint_eq(bytes, 2000);
	ck_assert_int_eq(pinion_device_would_fit(cpu, 2001), PINION_FIT_NO);
	ck_assert_int_eq(pinion_device_would_fit(cpu, 2000), PINION_FIT_TIGHT);
	ck_assert_int_eq(pinion_device_would_fit(find("hostio"), 2001), PINION_FIT_NO);
	pinion_close(ctx);
}
END_TEST

/* The thread that took it on to measure anew may be held up: then the others do not wait for it. */
START_TEST(figures_that_nobody_renews_are_not_used)
{
	struct pinion_device *cpu = find("cpu");
	uint64_t bytes;

	fake();
	ck_ok(pinion_device_available(cpu, &bytes));
	room.busy = 1;
	fake_available = 2000;
	wait_ms(60);
	ck_ok(pinion_device_available(cpu, &bytes));
	ck_assert_uint_le(measured, 2);
	wait_ms(50);
	ck_ok(pinion_device_available(cpu, &bytes));
	ck_assert_uint_eq(bytes, 2000);
	pinion_close(ctx);
}
END_TEST

/* Static: what was said once is said for ever. */
START_TEST(the_total_does_not_move)
{
	struct pinion_device *cpu = find("cpu");
	uint64_t bytes;

	fake();
	ck_ok(pinion_device_total(cpu, &bytes));
	ck_assert_uint_eq(bytes, 10000);
	fake_total = 1;
	wait_ms(110);
	ck_ok(pinion_device_available(cpu, &bytes));
	ck_ok(pinion_device_total(cpu, &bytes));
	ck_assert_uint_eq(bytes, 10000);
	pinion_close(ctx);
}
END_TEST

START_TEST(what_cannot_be_measured_is_no_figure)
{
	struct pinion_device *cpu = find("cpu");
	uint64_t bytes = 77;

	fake();
	fake_err = ENODATA;
	ck_assert_int_eq(pinion_device_available(cpu, &bytes), -ENODATA);
	ck_assert_int_eq(pinion_device_total(cpu, &bytes), -ENODATA);
	ck_assert_uint_eq(bytes, 77);
	ck_assert_int_eq(pinion_device_would_fit(cpu, 1), PINION_FIT_UNKNOWN);
	ck_assert_int_eq(pinion_device_would_fit(cpu, UINT64_MAX), PINION_FIT_UNKNOWN);
	fake_err = 0;
	wait_ms(110);
	ck_ok(pinion_device_total(cpu, &bytes));
	ck_assert_int_eq(pinion_device_would_fit(cpu, UINT64_MAX), PINION_FIT_NO);
	pinion_close(ctx);
}
END_TEST

#define THREADS 4
#define STEPS	10
#define READS	2000 /* of each thread in each step, or more */

static struct reader {
	pthread_t thread;
	uint64_t reads, wrong; /* atomic */
} readers[THREADS];

static bool read_enough; /* atomic */

/* The fakes' figures are whole thousands: a torn reading would be none. */
static void *read_on(void *arg)
{
	struct reader *r = arg;
	uint64_t bytes;

	while (!__atomic_load_n(&read_enough, __ATOMIC_ACQUIRE)) {
		if (pinion_device_available(find("cpu"), &bytes) || bytes % 1000)
			__atomic_add_fetch(&r->wrong, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&r->reads, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void wait_for_reads(uint64_t more)
{
	uint64_t until[THREADS];

	for (int i = 0; i < THREADS; i++)
		until[i] = __atomic_load_n(&readers[i].reads, __ATOMIC_RELAXED) + more;
	for (int i = 0; i < THREADS; i++)
		while (__atomic_load_n(&readers[i].reads, __ATOMIC_RELAXED) < until[i])
			usleep(100);
}

/*
 * By the test's clock, so that it is no matter how long a thread is kept from the processor; but for one that is kept from it
 * while it writes, in that step.
 */
START_TEST(any_number_of_threads_read_at_once)
{
	uint64_t before = 0, now;
	int calm = 0;

	find("cpu");
	fake();
	stands_at = 1000000000;
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
	for (int step = 1; step <= STEPS; step++) {
		/* The first time all may measure, and later whoever looked at the figures before the one did who took it on. */
		wait_for_reads(READS);
		now = __atomic_load_n(&measured, __ATOMIC_RELAXED);
		ck_assert_uint_gt(now, before);
		calm += now - before <= THREADS;
		before = now;
		__atomic_store_n(&fake_available, 1000 * (1 + step), __ATOMIC_RELAXED);
		__atomic_add_fetch(&stands_at, AGING_NS + 1, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&read_enough, true, __ATOMIC_RELEASE);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(readers[i].thread, NULL);
		ck_assert_uint_eq(readers[i].wrong, 0);
	}
	ck_assert_int_ge(calm, STEPS / 2);
	pinion_close(ctx);
}
END_TEST

static struct {
	struct pinion_device *cpu;
	unsigned int wrong;
	bool strict, done;
} hot;

/* Where seccomp is not to be had, or the clock is a system call, only what is read is counted. */
static bool may_be_strict(void)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		struct timespec ts;

		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
			_exit(1);
		clock_gettime(CLOCK_MONOTONIC, &ts);
		syscall(SYS_exit, 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status == 0;
}

/* Strict seccomp is the thread's alone, and ends it at any system call but exit and its like. */
static void *ask_under_seccomp(void *arg)
{
	if (hot.strict && prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return arg;
	for (int i = 0; i < 100000; i++) {
		hot.wrong += pinion_device_would_fit(hot.cpu, 1) != PINION_FIT_TIGHT;
		hot.wrong += pinion_device_would_fit(hot.cpu, 1001) != PINION_FIT_NO;
	}
	__atomic_store_n(&hot.done, true, __ATOMIC_RELEASE);
	syscall(SYS_exit, 0);
	return arg;
}

/* Between two measurements it reads no file and makes no system call. What it takes is a row of the benchmarks. */
START_TEST(would_fit_reads_nothing_and_calls_nothing_when_hot)
{
	pthread_t thread;

	hot.strict = may_be_strict();
	hot.cpu = find("cpu");
	fake();
	ck_assert_int_eq(pinion_device_would_fit(hot.cpu, 1), PINION_FIT_TIGHT);
	ck_assert_int_eq(pthread_create(&thread, NULL, ask_under_seccomp, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_msg(__atomic_load_n(&hot.done, __ATOMIC_ACQUIRE), "it was ended by a system call that it made");
	ck_assert_uint_eq(hot.wrong, 0);
	/* 45 ms lie between two of them: there is one in a great many, however slow the machine. */
	ck_assert_uint_le(measured, 1000);
	pinion_close(ctx);
}
END_TEST

/* In the child of a process that was writing them when it forked. */
START_TEST(a_child_has_figures_of_its_own)
{
	uint64_t bytes;
	int status;
	pid_t pid;

	fake();
	ck_ok(backend_host_available(&bytes));
	__atomic_add_fetch(&room.seq, 1, __ATOMIC_RELAXED);
	room.busy = 1;
	pid = fork();
	if (!pid) {
		int64_t begun = pinion_deadline_in(0);
		uint64_t before = measured;

		for (int i = 0; i < 10; i++)
			if (backend_host_available(&bytes))
				_exit(1);
		_exit(measured > before && measured <= before + 1 + renewals_since(begun) ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* ---- the machine's
 * ---------------------------------------------------------------------------------------------------------- */

START_TEST(the_cpus_figures_are_the_machines)
{
	long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
	struct pinion_device *cpu = find("cpu");
	uint64_t available, total;

	ck_ok(pinion_device_available(cpu, &available));
	ck_ok(pinion_device_total(cpu, &total));
	ck_assert_uint_gt(available, 0);
	ck_assert_uint_le(available, total);
	ck_assert_uint_le(total, (uint64_t)pages * size);
	pinion_close(ctx);
}
END_TEST

static void write_text(const char *dir, const char *name, const char *text)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static bool cover(const char *dir, const char *name, const char *target)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !mount(path, target, NULL, MS_BIND, NULL);
}

/* A file that ends in @last, after as many lines as there are where hundreds of containers run. */
static void write_behind(const char *dir, const char *name, const char *line, unsigned int lines, const char *last)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	for (unsigned int i = 0; i < lines; i++)
		fprintf(f, line, i, 200, 0);
	fputs(last, f);
	fclose(f);
}

/* A path as the kernel writes it in mountinfo. */
static const char *encoded(const char *path, char out[4096])
{
	char *to = out;

	for (; *path; path++)
		to += sprintf(to, strchr(" \t\n\\", *path) ? "\\%03o" : "%c", *path);
	return out;
}

/*
 * Two versions of the memory controller, in a mount namespace where the files that tell of them are the test's: the
 * limit is 64 MiB on the parent group, of which 40 are in use and 8 of those are page cache. Once alone, and once with a blank
 * and more in its path, behind 200 KiB of other mounts.
 */
START_TEST(the_cpus_figures_honour_cgroups)
{
	bool v2 = _i % 2 == 0, hidden = _i >= 2;
	char dir[2048], text[8192], name[4096];
	struct pinion_device *cpu;
	uint64_t available, total;

	snprintf(dir, sizeof(dir), hidden ? "%s/a c\\040gr\toup%d" : "%s/cgroup%d", test_tmp(), _i);
	mkdir(dir, 0700);
	snprintf(text, sizeof(text), "%s/a", dir);
	mkdir(text, 0700);
	snprintf(text, sizeof(text), "%s/a/b", dir);
	mkdir(text, 0700);
	write_text(dir, v2 ? "a/memory.max" : "a/memory.limit_in_bytes", "67108864\n");
	write_text(dir, v2 ? "a/memory.current" : "a/memory.usage_in_bytes", "41943040\n");
	write_text(dir, "a/memory.stat",
		   v2 ? "anon 1\ninactive_file 6291456\nactive_file 2097152\n" :
			"cache 1\ntotal_inactive_file 6291456\ntotal_active_file 2097152\n");
	write_text(dir, v2 ? "a/b/memory.max" : "a/b/memory.limit_in_bytes", v2 ? "max\n" : "9223372036854771712\n");
	write_text(dir, v2 ? "a/b/memory.current" : "a/b/memory.usage_in_bytes", "4096\n");
	snprintf(text, sizeof(text),
		 v2 ? "30 20 0:26 / %s rw - cgroup2 cgroup2 rw\n" : "30 20 0:26 / %s rw - cgroup cgroup rw,memory\n",
		 encoded(dir, name));
	write_behind(dir, "mountinfo", "31 20 0:27 / /other%u/%0*d rw - tmpfs tmpfs rw\n", hidden ? 1000 : 0, text);
	write_behind(dir, "groups", "%u:name=other:/%0*d\n", hidden ? 100 : 0, v2 ? "0::/a/b\n" : "5:cpu,memory:/a/b\n0::/\n");
	if (!namespace_of_mounts())
		SKIP("a mount namespace is refused");
	if (!cover(dir, "groups", "/proc/self/cgroup") || !cover(dir, "mountinfo", "/proc/self/mountinfo"))
		SKIP("mounting over /proc is refused");
	cpu = find("cpu");
	ck_ok(pinion_device_available(cpu, &available));
	ck_ok(pinion_device_total(cpu, &total));
	ck_assert_uint_eq(total, 64 * MIB);
	ck_assert_uint_eq(available, 32 * MIB);
	ck_assert_int_eq(pinion_device_would_fit(cpu, 32 * MIB + 1), PINION_FIT_NO);
	ck_assert_int_eq(pinion_device_would_fit(cpu, 32 * MIB), PINION_FIT_TIGHT);
	ck_assert_int_eq(pinion_device_would_fit(cpu, 8 * MIB), PINION_FIT_COMFORTABLE);
	pinion_close(ctx);
}
END_TEST

/* ---- what may be pinned
 * ------------------------------------------------------------------------------------------------------ */

START_TEST(the_pinned_limit_is_a_signal)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct pinion_device *cpu = find("cpu");
	uint64_t left, limit, before;
	struct rlimit lim;
	void *memory;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &lim), 0);
	if (lim.rlim_max < 4 * page)
		SKIP("RLIMIT_MEMLOCK is below four pages");
	lim.rlim_cur = 4 * page;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &lim), 0);
	ck_ok(pinion_device_pinned(cpu, &before, &limit));
	ck_assert_uint_eq(limit, 4 * page);
	ck_assert_uint_eq(before, limit);
	memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	/* The system call, because the address sanitizer's mlock() does nothing. */
	ck_assert_int_eq(syscall(SYS_mlock, memory, page), 0);
	wait_ms(110);
	ck_ok(pinion_device_pinned(cpu, &left, &limit));
	ck_assert_uint_eq(before - left, page);
	pinion_close(ctx);
}
END_TEST

START_TEST(no_pinned_limit_is_no_figure)
{
	struct rlimit lim = { RLIM_INFINITY, RLIM_INFINITY };
	struct pinion_device *cpu = find("cpu");
	uint64_t left = 77, limit = 77;

	if (setrlimit(RLIMIT_MEMLOCK, &lim))
		SKIP("RLIMIT_MEMLOCK cannot be lifted here");
	ck_assert_int_eq(pinion_device_pinned(cpu, &left, &limit), -ENODATA);
	ck_assert_uint_eq(left, 77);
	ck_assert_uint_eq(limit, 77);
	pinion_close(ctx);
}
END_TEST

/* ---- honesty
 * ----------------------------------------------------------------------------------------------------------------- */

START_TEST(a_synchronous_device_has_no_load_and_never_0)
{
	uint32_t n = 99;

	ck_assert_int_eq(pinion_device_pending(find("cpu"), PINION_SCOPE_MINE, &n), -ENODATA);
	ck_assert_int_eq(pinion_device_pending(find("cpu"), PINION_SCOPE_ALL, &n), -ENODATA);
	ck_assert_int_eq(pinion_device_capacity(find("cpu"), &n), -ENODATA);
	ck_assert_int_eq(pinion_device_pending(find("reference"), PINION_SCOPE_ALL, &n), -ENODATA);
	ck_assert_int_eq(pinion_device_capacity(find("reference"), &n), -ENODATA);
	ck_assert_uint_eq(n, 99);
	pinion_close(ctx);
}
END_TEST

/* The contract's handle with three of four in flight: through a device of one's own. */
START_TEST(a_device_with_a_queue_has_pending_capacity_and_flush)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 4 };
	struct pinion_ticket ticket[3];
	struct pinion_context *other;
	struct pinion_device *dev, *theirs;
	uint64_t bytes;
	uint32_t n;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_open(NULL, &other));
	ck_ok(pinion_device_add(ctx, "queue", &opts, &dev));
	ck_ok(pinion_device_find(other, "queue", &theirs));
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_begin(i ? dev : theirs, 1, &ticket[i]));
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 3);
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_MINE, &n));
	ck_assert_uint_eq(n, 2);
	ck_ok(pinion_device_capacity(dev, &n));
	ck_assert_uint_eq(n, 4);
	ck_assert_int_eq(pinion_device_available(dev, &bytes), -ENODATA);
	ck_assert_int_eq(pinion_device_total(dev, &bytes), -ENODATA);
	ck_assert_int_eq(pinion_device_would_fit(dev, UINT64_MAX), PINION_FIT_UNKNOWN);
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL), -ETIMEDOUT);
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_end(&ticket[i]));
	ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, PINION_FOREVER, NULL));
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 0);
	pinion_close(other);
	pinion_close(ctx);
}
END_TEST

static uint64_t available_of(struct pinion_device *dev)
{
	uint64_t bytes;

	ck_ok(pinion_device_available(dev, &bytes));
	return bytes;
}

/* What every way of asking says of a device that is added by its key: the budget less what any process claims of it. */
START_TEST(a_budget_is_the_memory_of_a_device_added_by_its_key)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 1000 * MIB };
	struct pinion_reserve_opts half = { .size = sizeof(half), .bytes = 500 * MIB };
	struct pinion_reservation *mine, *theirs;
	struct pinion_device_runtime handle;
	struct pinion_runtime *rt;
	struct pinion_context *other;
	struct pinion_device *dev, *there;
	uint64_t bytes;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_open(NULL, &other));
	ck_ok(pinion_device_add(ctx, "budget", &opts, &dev));
	ck_ok(pinion_device_find(other, "budget", &there));
	rt = pinion_runtime_of_device(dev, &handle);
	ck_assert_uint_eq(available_of(dev), 1000 * MIB);
	ck_assert_int_eq(pinion_device_would_fit(dev, 850 * MIB), PINION_FIT_COMFORTABLE);
	ck_assert_int_eq(pinion_device_would_fit(dev, 851 * MIB), PINION_FIT_TIGHT);
	ck_assert_int_eq(pinion_device_would_fit(dev, 1001 * MIB), PINION_FIT_NO);
	ck_ok(pinion_device_reserve(there, &half, &theirs));
	ck_assert_uint_eq(available_of(dev), 500 * MIB);
	ck_assert_int_eq(pinion_runtime_would_fit(rt, 501 * MIB), PINION_FIT_NO);
	ck_assert_int_eq(pinion_runtime_would_fit(rt, 500 * MIB), PINION_FIT_TIGHT);
	ck_assert_int_eq(pinion_runtime_would_fit(rt, 350 * MIB), PINION_FIT_COMFORTABLE);
	ck_ok(pinion_device_reserve(dev, &half, &mine));
	ck_assert_uint_eq(available_of(dev), 0);
	ck_assert_int_eq(pinion_device_would_fit(dev, 1), PINION_FIT_NO);
	ck_ok(pinion_runtime_total(rt, &bytes));
	ck_assert_uint_eq(bytes, 1000 * MIB);
	pinion_reservation_free(theirs);
	ck_assert_uint_eq(available_of(dev), 500 * MIB);
	pinion_reservation_free(mine);
	ck_assert_uint_eq(available_of(dev), 1000 * MIB);
	ck_ok(pinion_device_remove(dev));
	ck_assert_int_eq(pinion_device_available(dev, &bytes), -ESTALE);
	ck_assert_int_eq(pinion_device_would_fit(dev, 1), PINION_FIT_UNKNOWN);
	pinion_close(other);
	pinion_close(ctx);
}
END_TEST

/*
 * Who makes a claim may die before its making is said to be done, and leave it to a child that it forked. What was summed
 * while it was being made is not believed for long, even where that was nothing.
 */
START_TEST(a_claim_whose_maker_died_over_it_is_seen)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 1000 };
	struct pinion_reserve_opts want = { .size = sizeof(want), .bytes = 400 };
	struct pinion_reservation *claim;
	struct pinion_device *dev;
	uint32_t *claims;

	setenv("PINION_GROUND", "memfd", 1); /* whose claims are rows of a file */
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "orphan", &opts, &dev));
	claims = &dev->at.entry->claims;
	ck_assert_uint_eq(*claims % 2, 0);
	ck_assert_uint_eq(available_of(dev), 1000);
	/* It died before it wrote the row: nothing is claimed. And after it. */
	++*claims;
	ck_assert_uint_eq(available_of(dev), 1000);
	--*claims;
	ck_ok(pinion_device_reserve(dev, &want, &claim));
	ck_assert_uint_eq(*claims % 2, 0);
	--*claims;
	wait_ms(20);
	ck_assert_uint_eq(available_of(dev), 600);
	/* The next one heals it. */
	pinion_reservation_free(claim);
	ck_ok(pinion_device_reserve(dev, &want, &claim));
	ck_assert_uint_eq(*claims % 2, 0);
	ck_assert_uint_eq(available_of(dev), 600);
	pinion_reservation_free(claim);
	ck_assert_uint_eq(available_of(dev), 1000);
	pinion_close(ctx);
}
END_TEST

/* Claims are of what processes agreed on; memory that can be measured is what there is. */
START_TEST(a_budget_does_not_hide_the_memory_that_is_measured)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 50000 };
	struct pinion_device *cpu;
	uint64_t bytes;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "cpu", &opts, &cpu));
	fake();
	ck_assert_uint_eq(available_of(cpu), 1000);
	ck_ok(pinion_device_total(cpu, &bytes));
	ck_assert_uint_eq(bytes, 10000);
	pinion_close(ctx);
}
END_TEST

static const char *described(struct pinion_device *dev)
{
	static char text[256];

	ck_assert_int_lt(pinion_device_describe(dev, text, sizeof(text)), sizeof(text));
	return text;
}

START_TEST(devices_describe_themselves)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 4, .budget = 1000 };
	struct pinion_reserve_opts some = { .size = sizeof(some), .bytes = 300, .units = 2 };
	struct pinion_device *full, *bare, *cpu = find("cpu");
	struct pinion_reservation *claim;
	struct pinion_ticket ticket;
	char cut[12];

	fake();
	ck_ok(pinion_device_add(ctx, "full", &opts, &full));
	ck_ok(pinion_device_add(ctx, "bare", NULL, &bare));
	ck_ok(pinion_device_reserve(full, &some, &claim));
	ck_ok(pinion_work_begin(full, 1, &ticket));
	ck_assert_int_eq(pinion_device_reserve(bare, &some, NULL), -ENODATA);
	ck_assert_str_eq(described(full), "device 'full'; 300 of 1000 bytes of its budget are claimed; 1 in flight of 4, "
					  "2 units are claimed");
	ck_assert_str_eq(described(bare), "device 'bare'; its memory is not known; 0 in flight");
	ck_assert_str_eq(described(cpu), "device 'cpu'; 1000 of 10000 bytes are available; synchronous");
	/* A figure that there is not is no failure, and what failed before is still the last that did. */
	ck_assert_ptr_nonnull(strstr(pinion_error(), "'bare' has no budget"));
	ck_assert_int_eq(pinion_device_describe(bare, NULL, 0), strlen(described(bare)));
	ck_assert_int_eq(pinion_device_describe(bare, cut, sizeof(cut)), strlen(described(bare)));
	ck_assert_str_eq(cut, "device 'bar");
	ck_ok(pinion_work_end(&ticket));
	pinion_reservation_free(claim);
	ck_ok(pinion_device_remove(bare));
	ck_assert_str_eq(described(bare), "a device that is gone");
	pinion_close(ctx);
}
END_TEST

START_TEST(a_removed_device_has_no_signals)
{
	struct pinion_device *cpu = find("cpu");
	uint64_t bytes;
	uint32_t n;

	ck_ok(pinion_device_remove(cpu));
	ck_assert_int_eq(pinion_device_available(cpu, &bytes), -ESTALE);
	ck_assert_int_eq(pinion_device_total(cpu, &bytes), -ESTALE);
	ck_assert_int_eq(pinion_device_capacity(cpu, &n), -ESTALE);
	ck_assert_int_eq(pinion_device_pinned(cpu, &bytes, &bytes), -ESTALE);
	ck_assert_int_eq(pinion_device_would_fit(cpu, UINT64_MAX), PINION_FIT_UNKNOWN);
	ck_ok(pinion_device_available(find("cpu"), &bytes));
	pinion_close(ctx);
}
END_TEST

START_TEST(a_child_has_no_devices)
{
	struct pinion_device *cpu = find("cpu");
	uint64_t bytes;
	int status;
	pid_t pid;

	pid = fork();
	if (!pid)
		_exit(pinion_device_available(cpu, &bytes) == -EOWNERDEAD &&
				      pinion_device_total(cpu, &bytes) == -EOWNERDEAD &&
				      pinion_device_would_fit(cpu, UINT64_MAX) == PINION_FIT_UNKNOWN ?
			      0 :
			      1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	pinion_close(ctx);
}
END_TEST

static Suite *signal_suite(void)
{
	Suite *s = suite_create("signal");
	TCase *c = tcase_create("signal");

	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, would_fit_is_the_contracts_table, 0, sizeof(rows) / sizeof(*rows));
	tcase_add_test(c, would_fit_is_the_contracts_formula);
	tcase_add_test(c, fits_have_names);
	tcase_add_test(c, figures_are_kept_and_no_more_than_100_ms_old);
	tcase_add_test(c, figures_that_nobody_renews_are_not_used);
	tcase_add_test(c, the_total_does_not_move);
	tcase_add_test(c, what_cannot_be_measured_is_no_figure);
	tcase_add_test(c, any_number_of_threads_read_at_once);
	tcase_add_test(c, would_fit_reads_nothing_and_calls_nothing_when_hot);
	tcase_add_test(c, a_child_has_figures_of_its_own);
	tcase_add_test(c, the_cpus_figures_are_the_machines);
	tcase_add_loop_test(c, the_cpus_figures_honour_cgroups, 0, 4);
	tcase_add_test(c, the_pinned_limit_is_a_signal);
	tcase_add_test(c, no_pinned_limit_is_no_figure);
	tcase_add_test(c, a_synchronous_device_has_no_load_and_never_0);
	tcase_add_test(c, a_device_with_a_queue_has_pending_capacity_and_flush);
	tcase_add_test(c, a_budget_is_the_memory_of_a_device_added_by_its_key);
	tcase_add_test(c, a_claim_whose_maker_died_over_it_is_seen);
	tcase_add_test(c, a_budget_does_not_hide_the_memory_that_is_measured);
	tcase_add_test(c, devices_describe_themselves);
	tcase_add_test(c, a_removed_device_has_no_signals);
	tcase_add_test(c, a_child_has_no_devices);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(signal_suite)
