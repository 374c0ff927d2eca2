/* SPDX-License-Identifier: MIT */
/* Loads that are given up in the middle, by another thread or a signal: nothing of them is left, and the name is free at once. */
#include "ground.h"
#include "index_files.h"

#include <pinion/pinion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

static struct pinion_context *ctx;
static char path[PATH_MAX];

/* Tensors that stay and tensors that move, a hole each. */
static void setup(void)
{
	static const struct part parts[] = { { 63, true }, { 1, true }, { 48 * MIB, false }, { 5, false }, { 48 * MIB + 3, true }, { 7, true } };
	struct file f = { 0 };

	ck_ok(pinion_open(NULL, &ctx));
	put_parts(&f, parts, LENGTH(parts), 0);
	strcpy(path, save(&f));
	free(f.data);
}

static void teardown(void)
{
	pinion_close(ctx);
}

static unsigned int count_mappings(void)
{
	FILE *in = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512];

	while (fgets(line, sizeof(line), in))
		n += strstr(line, "memfd:pinion-model") || strstr(line, "pinion-staging");
	fclose(in);
	return n;
}

/* ---- who cancels --------------------------------------------------------------------------------------------------- */

static bool cancel;
static pthread_barrier_t asked, done;
static int64_t cancelled_ns;

/* The one who loads waits here until the other thread has had its way. */
static int ask_other(void *arg, uint64_t bytes, uint64_t total)
{
	unsigned int *calls = arg;

	ck_assert_uint_le(bytes, total);
	if ((*calls)++)
		return 0;
	pthread_barrier_wait(&asked);
	pthread_barrier_wait(&done);
	return 0;
}

static void *other_thread(void *arg)
{
	pthread_barrier_wait(&asked);
	cancelled_ns = pinion_deadline_in(0);
	__atomic_store_n(&cancel, true, __ATOMIC_RELAXED);
	pthread_barrier_wait(&done);
	return arg;
}

static void on_signal(int sig)
{
	(void)sig;
	cancelled_ns = pinion_deadline_in(0);
	__atomic_store_n(&cancel, true, __ATOMIC_RELAXED);
}

static int raise_it(void *arg, uint64_t bytes, uint64_t total)
{
	unsigned int *calls = arg;

	ck_assert_uint_le(bytes, total);
	if (!(*calls)++)
		raise(SIGINT);
	return 0;
}

static void expect_nothing(unsigned int fds)
{
	struct pinion_holder *h = NULL;
	struct pinion_device *dev;
	uint32_t pending;

	printf("cancelled, and gone %.1f ms later\n", (pinion_deadline_in(0) - cancelled_ns) / 1e6);
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_uint_eq(count_mappings(), 0);
	ck_ok(pinion_device_find(ctx, "hostio", &dev));
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending));
	ck_assert_uint_eq(pending, 0);
	ck_ok(pinion_holder_open(ctx, "cancelled", path, &h));
	pinion_holder_free(h);
}

static void load_cancelled(struct pinion_load_opts *opts, bool named)
{
	struct pinion_holder *h = NULL;
	struct pinion_model *m = NULL;
	unsigned int calls = 0;
	int ret;

	opts->size = sizeof(*opts);
	opts->cancel = &cancel;
	opts->progress_arg = &calls;
	ret = named ? pinion_model_load_named(ctx, "cancelled", path, opts, &h, &m) : pinion_model_load(ctx, path, opts, &m);
	ck_assert_msg(ret == -ECANCELED, "%d (%s)", ret, pinion_error());
	ck_assert_msg(strstr(pinion_error(), "cancelled") != NULL, "%s", pinion_error());
	ck_assert(!m && !h);
	/* Who cancelled is not asked for progress any more. */
	ck_assert_uint_eq(calls, 1);
}

START_TEST(another_thread_cancels_a_load_and_nothing_is_left)
{
	struct pinion_load_opts opts = { .io = _i % 3, .progress = ask_other, .hash = _i >= 3 };
	struct pinion_model *m;
	unsigned int fds;
	pthread_t thread;

	fds = fds_open();
	pthread_barrier_init(&asked, NULL, 2);
	pthread_barrier_init(&done, NULL, 2);
	ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
	load_cancelled(&opts, _i % 2);
	pthread_join(thread, NULL);
	expect_nothing(fds);
	/* What was given up can be had. */
	ck_ok(pinion_model_load(ctx, path, NULL, &m));
	pinion_model_free(m);
}
END_TEST

START_TEST(a_signal_cancels_a_load_and_nothing_is_left)
{
	struct pinion_load_opts opts = { .io = _i % 3, .progress = raise_it, .hash = _i >= 3 };
	unsigned int fds = fds_open();

	signal(SIGINT, on_signal);
	load_cancelled(&opts, true);
	expect_nothing(fds);
	signal(SIGINT, SIG_DFL);
}
END_TEST

/* ---- while the buffer is made -------------------------------------------------------------------------------------- */

/* In the page that nobody may read until the load first looks there: what happens then happens in that moment. */
static bool *guarded;
static uint64_t there, whole; /* then: bytes of the buffer that were present, and that it has */
static unsigned int read_calls;

static void measure_buffer(void)
{
	FILE *in = fopen("/proc/self/smaps", "r");
	unsigned long from, to, kb;
	bool here = false;
	char line[512];

	while (fgets(line, sizeof(line), in)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
			here = strstr(line, "memfd:pinion-model") != NULL;
			whole += here ? to - from : 0;
		} else if (here && sscanf(line, "Rss: %lu kB", &kb) == 1) {
			there += kb * 1024;
		}
	}
	fclose(in);
}

static void on_first_look(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_addr != guarded) {
		signal(sig, SIG_DFL);
		return;
	}
	mprotect(guarded, 4096, PROT_READ | PROT_WRITE);
	measure_buffer();
	cancelled_ns = pinion_deadline_in(0);
	*guarded = true;
}

static int count_calls(void *arg, uint64_t bytes, uint64_t total)
{
	(void)total;
	*(unsigned int *)arg += bytes != 0;
	return 0;
}

START_TEST(a_load_is_cancelled_while_its_pages_are_made)
{
	struct sigaction look = { .sa_sigaction = on_first_look, .sa_flags = SA_SIGINFO };
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = count_calls, .progress_arg = &read_calls };
	struct pinion_holder *h = NULL;
	struct pinion_model *m = NULL;
	unsigned int fds = fds_open();
	int ret;

	guarded = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(guarded, MAP_FAILED);
	opts.cancel = guarded;
	sigaction(SIGSEGV, &look, NULL);
	ret = _i ? pinion_model_load_named(ctx, "cancelled", path, &opts, &h, &m) : pinion_model_load(ctx, path, &opts, &m);
	signal(SIGSEGV, SIG_DFL);
	ck_assert_msg(ret == -ECANCELED, "%d (%s)", ret, pinion_error());
	ck_assert_msg(strstr(pinion_error(), "the load was cancelled while its buffer was made") != NULL, "%s", pinion_error());
	ck_assert(!m && !h);
	ck_assert_uint_eq(read_calls, 0);
	/* The module makes its memory in one call. */
	if (!on_module(ctx)) {
		ck_assert_uint_gt(there, 0);
		ck_assert_uint_lt(there, whole);
	}
	expect_nothing(fds);
	munmap(guarded, 4096);
}
END_TEST

/* ---- who waits ----------------------------------------------------------------------------------------------------- */

static int stay_here(void *arg, uint64_t bytes, uint64_t total)
{
	(void)bytes;
	(void)total;
	__atomic_store_n((int *)arg, 1, __ATOMIC_SEQ_CST);
	for (;;)
		pause();
	return 0;
}

static int cancel_second(void *arg, uint64_t bytes, uint64_t total)
{
	(void)bytes;
	(void)total;
	return ++*(int *)arg == 2;
}

START_TEST(who_waits_for_anothers_load_may_give_up)
{
	int *begun = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), calls = 0, status;
	struct pinion_load_opts first = { .size = sizeof(first), .progress = stay_here, .progress_arg = begun };
	struct pinion_load_opts second = { .size = sizeof(second), .progress = cancel_second, .progress_arg = &calls };
	struct pinion_context *own;
	struct pinion_holder *h = NULL;
	struct pinion_model *m = NULL;
	pid_t child = fork();

	if (!child) {
		if (!pinion_open(NULL, &own))
			pinion_model_load_named(own, "slow", path, &first, &h, &m);
		_exit(1);
	}
	while (!__atomic_load_n(begun, __ATOMIC_SEQ_CST))
		usleep(1000);
	ck_assert_int_eq(pinion_model_load_named(ctx, "slow", path, &second, &h, &m), -ECANCELED);
	ck_assert_int_eq(calls, 2);
	second = (struct pinion_load_opts){ .size = sizeof(second), .cancel = &(bool){ true } };
	ck_assert_int_eq(pinion_model_load_named(ctx, "slow", path, &second, &h, &m), -ECANCELED);
	ck_assert(!m && !h);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
}
END_TEST

/* ---- progress ------------------------------------------------------------------------------------------------------ */

struct seen {
	uint64_t last, total;
	unsigned int calls;
};

static int see(void *arg, uint64_t bytes, uint64_t total)
{
	struct seen *seen = arg;

	ck_assert_uint_ge(bytes, seen->last);
	ck_assert_uint_le(bytes, total);
	ck_assert(!seen->calls || total == seen->total);
	*seen = (struct seen){ bytes, total, seen->calls + 1 };
	/* So that there is time for another one. */
	usleep(20000);
	return 0;
}

START_TEST(progress_never_falls_and_never_passes_the_whole)
{
	struct seen seen = { 0 };
	struct pinion_load_opts opts = { .size = sizeof(opts), .progress = see, .progress_arg = &seen, .io = _i, .hash = true };
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_model *m;

	ck_ok(pinion_model_load(ctx, path, &opts, &m));
	ck_ok(pinion_model_info(m, &info));
	ck_assert_uint_eq(seen.total, info.tensor_bytes);
	ck_assert_uint_ge(seen.calls, 1);
	pinion_model_free(m);
}
END_TEST

static Suite *cancel_suite(void)
{
	Suite *suite = suite_create("cancel");
	TCase *tcase = tcase_create("cancel");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, another_thread_cancels_a_load_and_nothing_is_left, 0, 6);
	tcase_add_loop_test(tcase, a_signal_cancels_a_load_and_nothing_is_left, 0, 6);
	tcase_add_loop_test(tcase, a_load_is_cancelled_while_its_pages_are_made, 0, 2);
	tcase_add_test(tcase, who_waits_for_anothers_load_may_give_up);
	tcase_add_loop_test(tcase, progress_never_falls_and_never_passes_the_whole, 0, 3);
	suite_add_tcase(suite, tcase);
	return suite;
}

PINION_TEST_MAIN(cancel_suite)
