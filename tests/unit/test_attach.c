/* SPDX-License-Identifier: MIT */
/* Names, holders and those who attach: whatever dies, nobody waits for it, sees half of it or is kept from its name. */
#include "harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memory/name.h"
#include "memory/share.h"
#include "model/index.h"

#define SECOND INT64_C(1000000000)
/* For what comes, however busy the machine is: the test's own limit is shorter. */
#define EVER (3600 * SECOND)

static struct pinion_context *ctx;
static char path[PATH_MAX];

/* A safetensors file with one tensor "w" of @bytes, which hold 0x5a. */
static void make_file(uint64_t bytes)
{
	char header[256], block[65536];
	uint64_t len;
	FILE *f;

	len = snprintf(header, sizeof(header), "{\"w\":{\"dtype\":\"U8\",\"shape\":[%lu],\"data_offsets\":[0,%lu]}}", bytes, bytes);
	snprintf(path, sizeof(path), "%s/w.safetensors", test_tmp());
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fwrite(&len, 8, 1, f);
	fwrite(header, len, 1, f);
	memset(block, 0x5a, sizeof(block));
	for (; bytes; bytes -= bytes < sizeof(block) ? bytes : sizeof(block))
		fwrite(block, 1, bytes < sizeof(block) ? bytes : sizeof(block), f);
	fclose(f);
}

static void setup(void)
{
	make_file(3 << 20);
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

/* ---- a holder in a process of its own ------------------------------------------------------------------------------ */

enum stage { TAKEN, LOADED, READY };

struct shared {
	volatile int stage; /* 1 + enum stage that was reached */
	volatile int go_on; /* stages the holder may enter */
	volatile int forked;
};

static struct shared *shared;

static void reach(enum stage stage)
{
	shared->stage = 1 + stage;
	while (shared->go_on <= (int)stage)
		usleep(200);
}

static void holder_process(const char *name)
{
	struct pinion_context *own;
	struct pinion_holder *h;
	struct pinion_model *m;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (pinion_open(NULL, &own) || pinion_holder_open(own, name, path, &h))
		_exit(1);
	reach(TAKEN);
	if (pinion_model_load(own, path, NULL, &m))
		_exit(2);
	reach(LOADED);
	if (pinion_holder_publish(h, m))
		_exit(3);
	shared->stage = 1 + READY;
	if (pinion_holder_wait(h, PINION_FOREVER))
		_exit(4);
	pinion_holder_free(h);
	pinion_model_free(m);
	pinion_close(own);
	_exit(0);
}

/* Starts a holder that stops at @stage until shared->go_on is raised. */
static pid_t start_holder(const char *name, enum stage stage)
{
	pid_t pid;

	if (!shared)
		shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared->stage = 0;
	shared->go_on = stage;
	pid = fork();
	if (pid == 0)
		holder_process(name);
	while (shared->stage < 1 + (int)stage)
		usleep(200);
	return pid;
}

static void kill_and_reap(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void stop(pid_t pid)
{
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
}

/* With @wait_ns 0 a holder that has nothing to give yet says so, and one that says nothing is waited for as usual. */
static int attach(const char *name, int64_t wait_ns, struct pinion_model **m)
{
	struct pinion_attach_opts opts = { .size = sizeof(opts), .deadline_ns = wait_ns ? pinion_deadline_in(wait_ns) : 0 };

	return pinion_model_attach(ctx, name, &opts, m);
}

/* Fills the queue before the socket of "m", whose holder takes nobody in, with clients that have gone. */
static void fill_queue(void)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock, err = 0;

	ck_ok(pinion_context_info(ctx, &info));
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/m.sock", info.dir);
	while (!err) {
		sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		ck_assert_int_ge(sock, 0);
		if (connect(sock, (struct sockaddr *)&addr, sizeof(addr)))
			err = errno;
		close(sock);
	}
	ck_assert_int_eq(err, EAGAIN);
}

/* Kills @pid while its caller waits. */
static pid_t kill_in_a_moment(pid_t pid)
{
	pid_t killer = fork();

	if (killer)
		return killer;
	usleep(200000);
	kill(pid, SIGKILL);
	_exit(0);
}

static int count_names(void *arg, const struct pinion_name_info *info)
{
	(void)info;
	++*(int *)arg;
	return 0;
}

static int names(void)
{
	int n = 0;

	ck_ok(pinion_name_list(ctx, count_names, &n));
	return n;
}

static int files(void)
{
	DIR *d = opendir(test_tmp());
	struct dirent *e;
	int n = 0;

	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && !strstr(e->d_name, "safetensors") && !strstr(e->d_name, "counters");
	closedir(d);
	return n;
}

static bool is_whole(const struct pinion_model *m)
{
	struct pinion_tensor t;

	if (pinion_model_tensor(m, "w", &t))
		return false;
	for (uint64_t i = 0; i < t.bytes; i++)
		if (((const unsigned char *)t.data)[i] != 0x5a)
			return false;
	return true;
}

/* ---- tests --------------------------------------------------------------------------------------------------------- */

START_TEST(attach_load_show_remove)
{
	pid_t pid = start_holder("m", READY);
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_name_user user[4];
	struct pinion_model *m;
	size_t n;

	ck_ok(attach("m", EVER, &m));
	ck_assert(is_whole(m));
	ck_ok(pinion_name_show(ctx, "m", &info, user, 4, &n));
	ck_assert_str_eq(info.state, "ready");
	ck_assert_str_eq(info.path, path);
	ck_assert_int_eq(info.pid, pid);
	ck_assert_uint_eq(n, 1);
	ck_assert_int_eq(user[0].pid, getpid());
	ck_assert_int_eq(pinion_name_remove(ctx, "m"), -EBUSY);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "pid"));
	pinion_model_free(m);
	while (pinion_name_remove(ctx, "m") == -EBUSY)
		usleep(1000);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(attach("m", 0, &m), -ENOENT);
	ck_assert_int_eq(names(), 0);
	ck_assert_int_eq(files(), 0);
}
END_TEST

START_TEST(an_attached_model_outlives_its_holder)
{
	pid_t pid = start_holder("m", READY);
	struct pinion_model *m;

	ck_ok(attach("m", EVER, &m));
	kill_and_reap(pid);
	ck_assert(is_whole(m));
	ck_assert_int_eq(names(), 0);
	pinion_model_free(m);
}
END_TEST

START_TEST(a_name_of_a_killed_holder_is_free_at_once)
{
	for (int i = test_rounds(30); i; i--) {
		enum stage stage = i % 3;
		pid_t pid = start_holder("m", stage);
		struct pinion_model *m;

		kill_and_reap(pid);
		ck_assert_int_eq(attach("m", EVER, &m), -ENOENT);
		pid = start_holder("m", READY);
		ck_ok(attach("m", EVER, &m));
		ck_assert(is_whole(m));
		pinion_model_free(m);
		kill_and_reap(pid);
	}
	ck_assert_int_eq(names(), 0);
	ck_assert_int_eq(files(), 0);
}
END_TEST

START_TEST(a_living_holder_keeps_its_name)
{
	pid_t pid = start_holder("m", LOADED);
	struct pinion_holder *h;
	char want[64];

	ck_assert_int_eq(pinion_holder_open(ctx, "m", path, &h), -EEXIST);
	snprintf(want, sizeof(want), "process %d", pid);
	ck_assert_ptr_nonnull(strstr(pinion_error(), want));
	kill_and_reap(pid);
	ck_ok(pinion_holder_open(ctx, "m", path, &h));
	pinion_holder_free(h);
}
END_TEST

/* A name that no other process of this machine has: what the kernel lists of sockets tells no directories apart. */
static const char *own_name(const char *of)
{
	static char name[PINION_NAME_MAX + 1];

	snprintf(name, sizeof(name), "%s-%d", of, getpid());
	return name;
}

/* Sockets at @name's path: the holder's own and those of its connections. */
static int sockets_of(const char *name)
{
	char line[512], want[PINION_NAME_MAX + 8];
	FILE *f = fopen("/proc/net/unix", "r");
	int n = 0;

	ck_assert_ptr_nonnull(f);
	snprintf(want, sizeof(want), "/%s.sock\n", name);
	while (fgets(line, sizeof(line), f))
		n += strlen(line) > strlen(want) && !strcmp(line + strlen(line) - strlen(want), want);
	fclose(f);
	return n;
}

static void await_sockets(const char *name, int n)
{
	while (sockets_of(name) != n)
		usleep(1000);
}

START_TEST(nobody_sees_half_loaded_data_and_waiters_of_a_killed_loader_get_an_error)
{
	const char *half = own_name("half");

	for (int stage = TAKEN; stage <= LOADED; stage++) {
		pid_t pid = start_holder(half, stage), waiter;
		struct pinion_model *m;
		int status;

		ck_assert_int_eq(attach(half, 0, &m), -EBUSY);
		await_sockets(half, 1);
		waiter = fork();
		if (waiter == 0) {
			struct pinion_context *own;
			struct pinion_attach_opts opts = { .size = sizeof(opts), .deadline_ns = pinion_deadline_in(EVER) };

			if (pinion_open(NULL, &own))
				_exit(1);
			_exit(pinion_model_attach(own, half, &opts, &m) == -EPIPE ? 0 : 2);
		}
		await_sockets(half, 2);
		kill_and_reap(pid);
		/* Long before its deadline, which is not within the test's time. */
		waitpid(waiter, &status, 0);
		ck_assert_int_eq(status, 0);
		ck_assert_int_eq(names(), 0);
	}
}
END_TEST

START_TEST(a_child_that_a_holder_forked_neither_keeps_the_name_nor_hangs_a_waiter)
{
	struct pinion_model *m;
	struct pinion_holder *h;
	pid_t pid, child, killer;

	if (!shared)
		shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shared->forked = 0;
	pid = fork();
	if (pid == 0) {
		struct pinion_context *own;

		if (pinion_open(NULL, &own) || pinion_holder_open(own, "m", path, &h))
			_exit(1);
		child = fork();
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, 0);
			pause();
		}
		shared->forked = child;
		pause();
	}
	while (!shared->forked)
		usleep(200);
	stop(pid);
	ck_assert_int_eq(attach("m", SECOND / 5, &m), -ETIMEDOUT);
	/* Nor who cannot even connect, to a socket that the child keeps open. */
	fill_queue();
	killer = kill_in_a_moment(pid);
	ck_assert_int_eq(attach("m", EVER, &m), -ENOENT);
	waitpid(killer, NULL, 0);
	waitpid(pid, NULL, 0);
	ck_assert_int_eq(attach("m", EVER, &m), -ENOENT);
	ck_ok(pinion_holder_open(ctx, "m", path, &h));
	pinion_holder_free(h);
	kill(shared->forked, SIGKILL);
}
END_TEST

START_TEST(waiters_get_the_model_when_it_is_ready)
{
	const char *name = own_name("awaited");
	pid_t pid = start_holder(name, TAKEN), waiter[8];
	int status;

	await_sockets(name, 1);

	for (int i = 0; i < 8; i++) {
		waiter[i] = fork();
		if (waiter[i] == 0) {
			struct pinion_attach_opts opts = { .size = sizeof(opts), .deadline_ns = PINION_FOREVER };
			struct pinion_context *own;
			struct pinion_model *m;

			if (pinion_open(NULL, &own) || pinion_model_attach(own, name, &opts, &m))
				_exit(1);
			_exit(is_whole(m) ? 0 : 2);
		}
	}
	await_sockets(name, 1 + 8);
	shared->go_on = READY;
	for (int i = 0; i < 8; i++) {
		waitpid(waiter[i], &status, 0);
		ck_assert_int_eq(status, 0);
	}
	kill_and_reap(pid);
}
END_TEST

START_TEST(two_loaders_of_one_name_one_wins)
{
	struct pinion_holder *h;
	int wins, status;

	if (!shared)
		shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int round = test_rounds(20); round; round--) {
		shared->go_on = shared->forked = 0;
		for (int i = 0; i < 4; i++) {
			if (fork() == 0) {
				struct pinion_context *own;
				int ret;

				if (pinion_open(NULL, &own))
					_exit(3);
				while (!shared->go_on)
					sched_yield();
				ret = pinion_holder_open(own, "m", path, &h);
				if (ret && ret != -EEXIST)
					_exit(4);
				__atomic_add_fetch(&shared->forked, 1, __ATOMIC_SEQ_CST);
				while (shared->go_on == 1)
					usleep(100);
				_exit(ret ? 1 : 0);
			}
		}
		shared->go_on = 1;
		/* Nobody leaves before everybody has tried. */
		while (shared->forked < 4)
			usleep(200);
		shared->go_on = 2;
		wins = 0;
		for (int i = 0; i < 4; i++) {
			wait(&status);
			ck_assert(WIFEXITED(status) && WEXITSTATUS(status) < 2);
			wins += WEXITSTATUS(status) == 0;
		}
		ck_assert_int_eq(wins, 1);
	}
}
END_TEST

/* What was opened for writing, but is sealed. Closes it. */
static void no_writer_of_memfd(int fd)
{
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	close(fd);
}

START_TEST(a_worker_cannot_write_into_the_weights)
{
	pid_t pid = start_holder("m", READY);
	struct pinion_model *m;
	struct pinion_tensor t;
	char link[64];
	void *addr;
	int fd, again;
	bool slice;

	ck_ok(attach("m", EVER, &m));
	ck_ok(pinion_model_tensor(m, "w", &t));
	ck_assert_int_eq(pinion_buffer_map(pinion_model_buffer(m), PINION_READ | PINION_WRITE, &addr), -EPERM);
	fd = pinion_buffer_export(pinion_model_buffer(m));
	ck_assert_int_ge(fd, 0);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	/* A slice of the module's has no right to write, and no file that could be opened anew. */
	slice = errno == EACCES;
	ck_assert(slice || errno == EPERM);
	addr = (void *)((uintptr_t)t.data & ~(uintptr_t)4095);
	ck_assert_int_eq(mprotect(addr, 4096, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(errno, EACCES);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	again = open(link, O_RDWR);
	ck_assert_int_eq(again >= 0, !slice);
	if (!slice)
		no_writer_of_memfd(again);
	ck_assert_int_eq(madvise(addr, 4096, MADV_REMOVE), -1);
	ck_assert(is_whole(m));
	close(fd);
	pinion_model_free(m);
	kill_and_reap(pid);
}
END_TEST

START_TEST(two_hundred_attachers_at_once)
{
	pid_t pid = start_holder("m", READY);
	struct pinion_name_info info = { .size = sizeof(info) };
	unsigned int crowd = test_rounds(200);
	int status, failures = 0, stay[2];
	size_t n = 0;
	char c;

	ck_assert_int_eq(pipe(stay), 0);
	for (unsigned int i = 0; i < crowd; i++) {
		if (fork() == 0) {
			struct pinion_attach_opts opts = { .size = sizeof(opts), .deadline_ns = PINION_FOREVER };
			struct pinion_context *own;
			struct pinion_model *m;

			close(stay[1]);
			/* Of so many at once some wait for longer than a silent holder is waited for. */
			if (pinion_open(NULL, &own) || pinion_model_attach(own, "m", &opts, &m))
				_exit(1);
			/* Asleep: so many that look again and again would leave the holder no CPU. */
			_exit(read(stay[0], &c, 1) ? 2 : 0);
		}
	}
	while (n < crowd) {
		ck_ok(pinion_name_show(ctx, "m", &info, NULL, 0, &n));
		usleep(n < crowd ? 10000 : 0);
	}
	ck_assert_uint_eq(n, crowd);
	close(stay[1]);
	for (unsigned int i = 0; i < crowd; i++) {
		wait(&status);
		failures += status != 0;
	}
	ck_assert_int_eq(failures, 0);
	kill_and_reap(pid);
}
END_TEST

/* A client that waits for the load, for as long as the socket is open. */
static int waiting_client(const char *name)
{
	struct name_request req = { .magic = NAME_MAGIC, .op = NAME_ATTACH, .wait = 1 };
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	ck_assert_int_lt(snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s.sock", test_tmp(), name),
			 (int)sizeof(addr.sun_path));
	ck_assert_int_ge(sock, 0);
	ck_assert_int_eq(connect(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(send(sock, &req, sizeof(req), 0), sizeof(req));
	return sock;
}

/* One more is told why, and whoever asks about the name is answered. */
START_TEST(a_holder_that_serves_as_many_as_it_can_says_so)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	static int sock[4096];
	struct pinion_holder *h;
	struct pinion_model *m = NULL;
	struct rlimit files;
	int ret;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	if (files.rlim_max < 10000 || setrlimit(RLIMIT_NOFILE, &files))
		SKIP("RLIMIT_NOFILE is %llu", (unsigned long long)files.rlim_max);
	ck_ok(pinion_holder_open(ctx, "full", path, &h));
	for (int i = 0; i < 4096; i++)
		sock[i] = waiting_client("full");
	ck_assert_int_eq(attach("full", EVER, &m), -EAGAIN);
	ck_assert_msg(strstr(pinion_error(), "serves 4096 processes") != NULL, "%s", pinion_error());
	/* One that got too little of the machine to answer in time is asked again, within the test's. */
	do {
		info.size = sizeof(info);
		ck_ok(pinion_name_show(ctx, "full", &info, NULL, 0, NULL));
	} while (!strcmp(info.state, "not answering"));
	ck_assert_str_eq(info.state, "loading");
	close(sock[0]);
	while ((ret = attach("full", 0, &m)) == -EAGAIN || ret == -ETIMEDOUT)
		usleep(1000);
	ck_assert_int_eq(ret, -EBUSY);
	ck_assert_ptr_null(m);
	for (int i = 1; i < 4096; i++)
		close(sock[i]);
	pinion_holder_free(h);
}
END_TEST

START_TEST(a_stopped_holder_is_listed_as_not_answering)
{
	pid_t pid = start_holder("m", READY);
	struct pinion_name_info info = { .size = sizeof(info) };

	stop(pid);
	ck_ok(pinion_name_show(ctx, "m", &info, NULL, 0, NULL));
	ck_assert_str_eq(info.state, "not answering");
	ck_assert_int_eq(info.pid, pid);
	kill_and_reap(pid);
}
END_TEST

START_TEST(a_full_queue_before_a_stopped_holder_hangs_nobody)
{
	pid_t pid = start_holder("m", READY), killer;
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_model *m = NULL;

	stop(pid);
	fill_queue();
	ck_ok(pinion_name_show(ctx, "m", &info, NULL, 0, NULL));
	ck_assert_str_eq(info.state, "not answering");
	ck_assert_int_eq(pinion_name_remove(ctx, "m"), -ETIMEDOUT);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NAME_SILENT);
	ck_assert_int_eq(attach("m", SECOND / 4, &m), -ETIMEDOUT);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NAME_SILENT);
	/* Its death ends a wait for it. */
	killer = kill_in_a_moment(pid);
	ck_assert_int_eq(attach("m", EVER, &m), -ENOENT);
	waitpid(killer, NULL, 0);
	waitpid(pid, NULL, 0);
	ck_assert_ptr_null(m);
}
END_TEST

START_TEST(who_gave_up_removing_a_name_does_not_remove_it_later)
{
	pid_t pid = start_holder("m", READY);
	struct pinion_model *m;

	stop(pid);
	ck_assert_int_eq(pinion_name_remove(ctx, "m"), -ETIMEDOUT);
	kill(pid, SIGCONT);
	/* It is served after that request. */
	ck_ok(attach("m", EVER, &m));
	ck_assert(is_whole(m));
	pinion_model_free(m);
	ck_ok(pinion_name_remove(ctx, "m"));
	kill_and_reap(pid);
}
END_TEST

START_TEST(a_load_under_the_name_of_a_stopped_holder_ends)
{
	struct pinion_holder *h = NULL;
	struct pinion_model *m = NULL;
	pid_t pid = start_holder("m", TAKEN);

	stop(pid);
	ck_assert_int_eq(pinion_model_load_named(ctx, "m", path, NULL, &h, &m), -ETIMEDOUT);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_NAME_SILENT);
	ck_assert(!h && !m);
	kill_and_reap(pid);
	ck_ok(pinion_model_load_named(ctx, "m", path, NULL, &h, &m));
	ck_assert_ptr_nonnull(h);
	pinion_holder_free(h);
	pinion_model_free(m);
}
END_TEST

START_TEST(bad_names_are_refused)
{
	static const char *const bad[] = { "", ".", "..", ".hidden", "-x", "a/b", "a b", "a\nb", "\xc3\xa4",
					   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	struct pinion_holder *h;
	struct pinion_model *m;

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ck_assert_int_eq(pinion_holder_open(ctx, bad[i], path, &h), -EINVAL);
		ck_assert_int_eq(pinion_model_attach(ctx, bad[i], NULL, &m), -EINVAL);
		ck_assert_int_eq(pinion_name_remove(ctx, bad[i]), -EINVAL);
	}
	ck_assert_int_eq(pinion_holder_open(ctx, NULL, path, &h), -EINVAL);
}
END_TEST

/* ---- a hostile holder ---------------------------------------------------------------------------------------------- */

static int sealed_memfd(const void *data, size_t bytes, size_t size, int seals)
{
	int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_eq(ftruncate(fd, size), 0);
	if (bytes)
		ck_assert_int_eq(pwrite(fd, data, bytes, 0), (ssize_t)bytes);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

/* Answers one client, which asks for @op, with @answer and @fds; the name is this context's own. */
static int ask_fake(enum name_op op, const void *answer, size_t bytes, const int *fds, unsigned int nfds)
{
	struct name_record record = { .magic = NAME_MAGIC, .slot = ctx->counts->slot, .generation = ctx->counts->slot_generation,
				      .pid = getpid() };
	struct pinion_model *m = NULL;
	int sock, ret, status;
	pid_t pid;

	ck_ok(name_take(ctx, "fake", &record, &sock));
	pid = fork();
	if (pid == 0) {
		struct name_request req;
		int client = accept(sock, NULL, NULL);

		if (read(client, &req, sizeof(req)) != sizeof(req))
			_exit(1);
		share_send(client, answer, bytes, fds, nfds);
		_exit(0);
	}
	close(sock);
	ret = op == NAME_REMOVE ? pinion_name_remove(ctx, "fake") : attach("fake", EVER, &m);
	ck_assert_ptr_null(m);
	waitpid(pid, &status, 0);
	name_release(ctx, "fake", &record);
	return ret;
}

static int attach_to_fake(const void *answer, size_t bytes, const int *fds, unsigned int nfds)
{
	return ask_fake(NAME_ATTACH, answer, bytes, fds, nfds);
}

START_TEST(what_a_hostile_holder_sends_is_refused_and_leaks_nothing)
{
	const int size_seals = F_SEAL_SHRINK | F_SEAL_GROW, all_seals = size_seals | F_SEAL_WRITE | F_SEAL_SEAL;
	struct name_answer good = { .magic = NAME_MAGIC, .bytes = 8192, .index_bytes = 4096, .page_size = 4096 };
	struct name_answer bad;
	char junk[4096];
	unsigned int before;
	int fds[2];

	memset(junk, 0xff, sizeof(junk));
	before = fds_open();
	for (int i = 0; i < 8; i++) {
		fds[0] = sealed_memfd(NULL, 0, 8192, i == 0 ? F_SEAL_GROW : i == 1 ? size_seals : all_seals);
		fds[1] = sealed_memfd(junk, sizeof(junk), 4096, i == 2 ? size_seals : all_seals);
		bad = good;
		bad.magic += i == 3;
		bad.bytes += i == 4;
		bad.index_bytes += i == 5;
		bad.page_size -= i == 6;
		ck_assert_int_eq(attach_to_fake(&bad, i == 7 ? 12 : sizeof(bad), fds, 2), -EPROTO);
		close(fds[0]);
		close(fds[1]);
	}
	fds[0] = fds[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(attach_to_fake(&good, sizeof(good), fds, 2), -EPROTO);
	ck_assert_int_eq(attach_to_fake(&good, sizeof(good), fds, 1), -EPROTO);
	ck_assert_int_eq(attach_to_fake(&good, sizeof(good), fds, 0), -EPROTO);
	/* An empty packet is the end of the connection, whatever comes with it. */
	ck_assert_int_lt(attach_to_fake(&good, 0, fds, 2), 0);
	close(fds[0]);
	ck_assert_uint_eq(fds_open(), before);
}
END_TEST

START_TEST(a_refusal_is_an_error_number_with_a_sentence)
{
	static const int32_t none[] = { INT32_MIN, -4096, 1, INT32_MAX };
	static const enum name_op ops[] = { NAME_ATTACH, NAME_REMOVE };
	struct name_answer answer = { .magic = NAME_MAGIC, .err = -EBUSY, .sentence = "not now" };

	for (unsigned int i = 0; i < 2; i++) {
		answer.err = -EBUSY;
		ck_assert_int_eq(ask_fake(ops[i], &answer, sizeof(answer), NULL, 0), -EBUSY);
		ck_assert_str_eq(pinion_error(), "not now");
		for (unsigned int j = 0; j < sizeof(none) / sizeof(*none); j++) {
			answer.err = none[j];
			ck_assert_int_eq(ask_fake(ops[i], &answer, sizeof(answer), NULL, 0), -EPROTO);
		}
	}
	answer = (struct name_answer){ .magic = NAME_MAGIC, .err = -EBUSY };
	ck_assert_int_eq(ask_fake(NAME_REMOVE, &answer, sizeof(answer), NULL, 0), -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "an answer of"));
}
END_TEST

START_TEST(a_hostile_client_does_not_disturb_the_holder)
{
	pid_t pid = start_holder("m", READY);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct pinion_model *m;
	char junk[70000];
	int sock;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/m.sock", test_tmp());
	for (int i = 0; i < 300; i++) {
		struct name_request req = { .magic = i % 3 ? NAME_MAGIC : 1, .op = i % 7 };

		sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(connect(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
		memset(junk, i, sizeof(junk));
		/* REMOVE is an honest request. */
		if (req.op != NAME_REMOVE)
			send(sock, i % 2 ? (void *)&req : junk, i % 2 ? sizeof(req) : (size_t)(i * 200), MSG_NOSIGNAL);
		if (i % 5)
			close(sock);
	}
	ck_ok(attach("m", EVER, &m));
	ck_assert(is_whole(m));
	pinion_model_free(m);
	kill_and_reap(pid);
}
END_TEST

static Suite *attach_suite(void)
{
	Suite *s = suite_create("attach");
	TCase *tc = tcase_create("attach");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, attach_load_show_remove);
	tcase_add_test(tc, an_attached_model_outlives_its_holder);
	tcase_add_test(tc, a_name_of_a_killed_holder_is_free_at_once);
	tcase_add_test(tc, a_living_holder_keeps_its_name);
	tcase_add_test(tc, nobody_sees_half_loaded_data_and_waiters_of_a_killed_loader_get_an_error);
	tcase_add_test(tc, a_child_that_a_holder_forked_neither_keeps_the_name_nor_hangs_a_waiter);
	tcase_add_test(tc, waiters_get_the_model_when_it_is_ready);
	tcase_add_test(tc, two_loaders_of_one_name_one_wins);
	tcase_add_test(tc, a_worker_cannot_write_into_the_weights);
	tcase_add_test(tc, two_hundred_attachers_at_once);
	tcase_add_test(tc, a_holder_that_serves_as_many_as_it_can_says_so);
	tcase_add_test(tc, a_stopped_holder_is_listed_as_not_answering);
	tcase_add_test(tc, a_full_queue_before_a_stopped_holder_hangs_nobody);
	tcase_add_test(tc, who_gave_up_removing_a_name_does_not_remove_it_later);
	tcase_add_test(tc, a_load_under_the_name_of_a_stopped_holder_ends);
	tcase_add_test(tc, bad_names_are_refused);
	tcase_add_test(tc, what_a_hostile_holder_sends_is_refused_and_leaks_nothing);
	tcase_add_test(tc, a_refusal_is_an_error_number_with_a_sentence);
	tcase_add_test(tc, a_hostile_client_does_not_disturb_the_holder);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(attach_suite)
