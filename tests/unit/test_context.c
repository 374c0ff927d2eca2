/* SPDX-License-Identifier: MIT */
#include "harness.h"
#include "namespace.h"

#include "context.h"
#include "error.h"
#include "provider/counter_file.h"
#include "rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* A program may have more thread-local data than a small stack holds; a context must open in it all the same. */
static _Thread_local volatile char thread_data[256 << 10];

static struct pinion_context *context(void)
{
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	return ctx;
}

static struct pinion_context *context_in(const char *dir)
{
	struct pinion_open_opts opts = { .size = sizeof(opts), .dir = dir };
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(&opts, &ctx));
	return ctx;
}

static int try_in(const char *dir)
{
	struct pinion_open_opts opts = { .size = sizeof(opts), .dir = dir };
	struct pinion_context *ctx = NULL;
	int ret = pinion_open(&opts, &ctx);

	if (ret)
		ck_assert_ptr_null(ctx);
	else
		pinion_close(ctx);
	return ret;
}

/* A fresh directory of mode 0700 under the test's. */
static const char *fresh_dir(void)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/dir-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(path));
	return path;
}

/* The exit code, or -signal. */
static int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

START_TEST(options_without_a_size_are_refused)
{
	struct pinion_open_opts opts = { .size = 0 };
	struct pinion_context *ctx = (void *)1;

	ck_assert_int_eq(pinion_open(&opts, &ctx), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "size"));
	ck_assert_ptr_eq(ctx, (void *)1);
}
END_TEST

START_TEST(a_longer_struct_is_taken_when_its_tail_is_zero)
{
	struct {
		struct pinion_open_opts known;
		uint64_t later[4];
	} opts = { .known.size = sizeof(opts) };
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(&opts.known, &ctx));
	pinion_close(ctx);
	opts.later[3] = 1;
	ctx = NULL;
	ck_assert_int_eq(pinion_open(&opts.known, &ctx), -E2BIG);
	ck_assert_ptr_null(ctx);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "pinion_open_opts"));
}
END_TEST

START_TEST(info_fills_as_much_as_the_caller_has_room_for)
{
	struct {
		struct pinion_context_info known;
		uint64_t later[4];
	} info = { .known.size = sizeof(info) };
	struct pinion_context_info shorter = { .size = offsetof(struct pinion_context_info, dir), .dir = "untouched" };
	struct pinion_context *ctx = context();

	ck_ok(pinion_context_info(ctx, &info.known));
	ck_assert(!strcmp(info.known.ground, "memfd") || !strcmp(info.known.ground, "kmod"));
	ck_assert_str_eq(info.known.dir, test_tmp());
	ck_assert_uint_eq(info.known.page_size, sysconf(_SC_PAGESIZE));
	ck_assert_uint_eq(info.known.size, sizeof(info));
	ck_assert_str_ne(info.known.huge_why, "");
	info.later[0] = 7;
	ck_assert_int_eq(pinion_context_info(ctx, &info.known), -E2BIG);
	ck_ok(pinion_context_info(ctx, &shorter));
	ck_assert_str_eq(shorter.ground, info.known.ground);
	ck_assert_str_eq(shorter.dir, "untouched");
	shorter.size = 0;
	ck_assert_int_eq(pinion_context_info(ctx, &shorter), -EINVAL);
	pinion_close(ctx);
}
END_TEST

START_TEST(deadlines_saturate)
{
	int64_t now = pinion_deadline_in(0);

	ck_assert_int_gt(now, 0);
	ck_assert_int_ge(pinion_deadline_in(-1), now);
	ck_assert_int_ge(pinion_deadline_in(INT64_MIN), now);
	ck_assert_int_eq(pinion_deadline_in(INT64_MAX), PINION_FOREVER);
	ck_assert_int_ge(pinion_deadline_in(1000), now + 1000);
}
END_TEST

START_TEST(a_context_opens_beside_much_thread_local_data)
{
	thread_data[0] = 1;
	pinion_close(context());
}
END_TEST

/* ---- the runtime directory --------------------------------------------------------------------------------------- */

START_TEST(a_directory_open_to_others_is_refused)
{
	const char *dir = fresh_dir();

	for (int mode = 0701; mode <= 0777; mode++) {
		if (!(mode & 077))
			continue;
		ck_assert_int_eq(chmod(dir, mode), 0);
		ck_assert_int_eq(try_in(dir), -EPERM);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "0700"));
	}
	ck_assert_int_eq(chmod(dir, 0700), 0);
	ck_assert_int_eq(try_in(dir), 0);
}
END_TEST

START_TEST(what_clears_old_files_away_passes_the_directory_by)
{
	struct pinion_open_opts opts = { .size = sizeof(opts), .dir = fresh_dir() };
	struct pinion_context *one, *two;
	int fd = open(opts.dir, O_RDONLY | O_DIRECTORY);

	ck_ok(pinion_open(&opts, &one));
	ck_ok(pinion_open(&opts, &two));
	pinion_close(one);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), -1);
	ck_assert_int_eq(errno, EWOULDBLOCK);
	pinion_close(two);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	/* It holds nobody up. */
	ck_ok(pinion_open(&opts, &one));
	pinion_close(one);
	close(fd);
}
END_TEST

/* Who types what is said about /tmp or / must not close that to everybody. */
START_TEST(nobody_is_told_to_close_a_directory_that_others_use)
{
	static const char *const used[] = { "/", "/proc", "/dev" };
	char other[PATH_MAX];
	const char *dir = fresh_dir();

	/* Nothing is in it, or what the library left. */
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(chmod(dir, 0755), 0);
		ck_assert_int_eq(try_in(dir), -EPERM);
		ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DIR_MODE);
		ck_assert_int_eq(chmod(dir, 0700), 0);
		ck_assert_int_eq(try_in(dir), 0);
	}
	dir = fresh_dir();
	snprintf(other, sizeof(other), "%.4000s/other", dir);
	ck_assert_int_eq(mkdir(other, 0700), 0);
	ck_assert_int_eq(chmod(dir, 0755), 0);
	ck_assert_int_eq(try_in(dir), -EPERM);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DIR_OWNER);
	for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++) {
		ck_assert_int_eq(try_in(used[i]), -EPERM);
		ck_assert_msg(!strstr(pinion_error(), "chmod") && pinion_error_advice() == PINION_ADVICE_DIR_OWNER, "%s",
			      pinion_error());
	}
}
END_TEST

START_TEST(a_directory_behind_a_link_is_refused)
{
	char link[PATH_MAX];
	const char *dir = fresh_dir();
	int ret;

	snprintf(link, sizeof(link), "%.4000s.link", dir);
	ck_assert_int_eq(symlink(dir, link), 0);
	ret = try_in(link);
	ck_assert_msg(ret == -ELOOP || ret == -ENOTDIR, "%d", ret);
	ck_assert_ptr_nonnull(strstr(pinion_error(), link));
	ck_assert_msg(strstr(pinion_error(), "is a link, which is not followed") != NULL, "%s", pinion_error());
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DIR_PLACE);
	ck_assert_int_eq(unlink(link), 0);
	ck_assert_int_eq(symlink("/nowhere/at/all", link), 0);
	ck_assert_int_lt(try_in(link), 0);
}
END_TEST

START_TEST(a_file_in_place_of_the_directory_is_refused)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.4000s/file", fresh_dir());
	ck_assert_int_ge(open(path, O_CREAT | O_RDWR, 0700), 0);
	ck_assert_int_eq(try_in(path), -ENOTDIR);
	ck_assert_ptr_nonnull(strstr(pinion_error(), path));
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DIR_PLACE);
	snprintf(path, sizeof(path), "%.4000s/a/b", fresh_dir());
	ck_assert_int_eq(try_in(path), -ENOENT);
}
END_TEST

START_TEST(a_directory_of_someone_else_is_refused)
{
	const char *dir = geteuid() ? "/" : fresh_dir();
	char whose[32];
	struct stat st;

	if (!geteuid())
		ck_assert_int_eq(chown(dir, 65534, 65534), 0);
	ck_assert_int_eq(stat(dir, &st), 0);
	if (st.st_uid == geteuid())
		SKIP("the root of the file system is this user's");
	ck_assert_int_eq(try_in(dir), -EPERM);
	snprintf(whose, sizeof(whose), "belongs to uid %u", st.st_uid);
	ck_assert_ptr_nonnull(strstr(pinion_error(), whose));
}
END_TEST

START_TEST(a_long_path_is_refused)
{
	char *path = malloc(2 * PATH_MAX);

	memset(path, 'x', 2 * PATH_MAX - 1);
	path[0] = '/';
	path[2 * PATH_MAX - 1] = 0;
	ck_assert_int_eq(try_in(path), -ENAMETOOLONG);
	free(path);
}
END_TEST

static int dir_is(const char *want)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_context *ctx;
	int same;

	if (pinion_open(NULL, &ctx))
		return 0;
	same = !pinion_context_info(ctx, &info) && !strcmp(info.dir, want);
	pinion_close(ctx);
	return same;
}

START_TEST(what_was_named_comes_before_the_default_directories)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	char named[PATH_MAX], xdg[PATH_MAX], want[PATH_MAX + 8];
	struct pinion_context *ctx;
	struct stat st;

	snprintf(named, sizeof(named), "%s", fresh_dir());
	snprintf(xdg, sizeof(xdg), "%s", fresh_dir());
	snprintf(want, sizeof(want), "%s/pinion", xdg);
	setenv("XDG_RUNTIME_DIR", xdg, 1);
	setenv("PINION_DIR", named, 1);
	ctx = context_in(test_tmp());
	ck_ok(pinion_context_info(ctx, &info));
	ck_assert_str_eq(info.dir, test_tmp());
	pinion_close(ctx);
	ck_assert(dir_is(named));
	setenv("PINION_DIR", "", 1);
	ck_assert(dir_is(want));
	unsetenv("PINION_DIR");
	ck_assert(dir_is(want));
	ck_assert_int_eq(stat(want, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	/* A directory that was named is not passed over. */
	setenv("PINION_DIR", "/nowhere/at/all", 1);
	ctx = NULL;
	ck_assert_int_eq(pinion_open(NULL, &ctx), -ENOENT);
}
END_TEST

/* Where nothing of this machine's /run and /tmp is touched. */
static int defaults_in_private(void)
{
	char want[64];

	if (!namespace_of_mounts() || mount("tmpfs", "/run", "tmpfs", 0, "mode=755") ||
	    mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777"))
		return 77;
	unsetenv("PINION_DIR");
	setenv("XDG_RUNTIME_DIR", "/nowhere/at/all", 1);
	if (!dir_is("/run/pinion"))
		return 1;
	if (chmod("/run/pinion", 0755))
		return 2;
	snprintf(want, sizeof(want), "/tmp/pinion-%u", geteuid());
	if (!dir_is(want))
		return 3;
	setenv("XDG_RUNTIME_DIR", "relative", 1);
	return dir_is(want) ? 0 : 4;
}

START_TEST(the_default_directories_are_tried_in_order)
{
	pid_t pid;
	int ret;

	pid = fork();
	if (!pid)
		_exit(defaults_in_private());
	ret = reap(pid);
	if (ret == 77)
		SKIP("mount namespaces are refused here");
	ck_assert_int_eq(ret, 0);
}
END_TEST

/* One open, one device, one unit on a file system of so many pages: 0 it went, 1 an honest refusal, else the place. */
static int use_small(void)
{
	struct pinion_ticket ticket = { 0 };
	struct pinion_context *ctx = NULL;
	struct pinion_device *dev;
	uint32_t n;
	int ret = pinion_open(NULL, &ctx);

	if (ret)
		return ret == -ENOSPC && *pinion_error() ? 1 : 10;
	ret = pinion_device_add(ctx, "small", NULL, &dev);
	if (!ret) {
		if (pinion_work_begin(dev, 1, &ticket) || pinion_device_pending(dev, PINION_SCOPE_ALL, &n) || n != 1)
			return 11;
		if (pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL) != -ETIMEDOUT || pinion_work_end(&ticket))
			return 12;
	} else if (ret != -ENOSPC) {
		return 13;
	}
	pinion_close(ctx);
	return ret ? 1 : 0;
}

static int full_in_private(const char *dir, const char *what, int from, int to)
{
	int went = 0, refused = 0;

	if (!namespace_of_mounts())
		return 77;
	setenv("PINION_DIR", dir, 1);
	for (int i = from; i < to; i++) {
		char how[64];
		int ret;

		snprintf(how, sizeof(how), what, i);
		if (mount("tmpfs", dir, "tmpfs", 0, how))
			return 77;
		ret = use_small();
		if (ret > 1)
			return ret;
		*(ret ? &refused : &went) += 1;
		if (umount2(dir, MNT_DETACH))
			return 20;
	}
	return refused && went ? 0 : 21;
}

static bool full_check(const char *what, int from, int to)
{
	const char *dir = fresh_dir();
	pid_t pid = fork();
	int ret;

	if (!pid)
		_exit(full_in_private(dir, what, from, to));
	ret = reap(pid);
	if (ret == 77)
		return false;
	ck_assert_int_eq(ret, 0);
	return true;
}

START_TEST(a_full_file_system_is_an_error_and_no_signal)
{
	if (!full_check("mode=700,size=%dk,nr_inodes=100", 4, 400))
		SKIP("mounting is refused here");
}
END_TEST

START_TEST(a_file_system_without_inodes_is_an_error)
{
	if (!full_check("mode=700,size=1m,nr_inodes=%d", 1, 6))
		SKIP("mounting is refused here");
}
END_TEST

/* As many contexts and devices as the file system has room for, then an error and still no signal. */
static int fill_in_private(const char *dir)
{
	struct pinion_context *ctx[512];
	struct pinion_ticket ticket[512] = { 0 };
	struct pinion_device *dev;
	int n, ret = 0;

	if (!namespace_of_mounts() || mount("tmpfs", dir, "tmpfs", 0, "mode=700,size=300k"))
		return 77;
	setenv("PINION_DIR", dir, 1);
	for (n = 0; n < 512; n++) {
		ret = pinion_open(NULL, &ctx[n]);
		if (ret)
			break;
		ret = pinion_device_add(ctx[n], "full", NULL, &dev);
		if (ret || pinion_work_begin(dev, 1, &ticket[n]))
			return 1;
	}
	if (ret != -ENOSPC || n < 2)
		return 2;
	for (int d = 0; d < 64 && !ret; d++) {
		char key[16];

		snprintf(key, sizeof(key), "full-%d", d);
		ret = pinion_device_add(ctx[0], key, NULL, &dev);
	}
	if (ret != -ENOSPC)
		return 3;
	while (n--) {
		if (pinion_work_end(&ticket[n]))
			return 4;
		pinion_close(ctx[n]);
	}
	return 0;
}

START_TEST(a_file_system_that_fills_up_is_an_error_and_no_signal)
{
	const char *dir = fresh_dir();
	pid_t pid;
	int ret;

	pid = fork();
	if (!pid)
		_exit(fill_in_private(dir));
	ret = reap(pid);
	if (ret == 77)
		SKIP("mounting is refused here");
	ck_assert_int_eq(ret, 0);
}
END_TEST

#define MANY 500 /* signals in one open: it does not get on between them, because this machine has become slower */

static struct itimerval often;
static volatile unsigned int signals;

static void on_alarm(int sig)
{
	(void)sig;
	if (++signals % MANY || often.it_interval.tv_usec > 100000)
		return;
	often.it_interval.tv_usec *= 2;
	often.it_value = often.it_interval;
	setitimer(ITIMER_REAL, &often, NULL);
}

/*
 * How many microseconds lie between two signals: several fall into one open on any machine, yet an open moves on between
 * them. (On an emulated processor a fixed 20 us is less than a signal and the allocation that it interrupts need.)
 */
static long signal_interval(const char *dir)
{
	struct timespec from, to;
	long us;

	clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert_int_eq(try_in(dir), 0);
	clock_gettime(CLOCK_MONOTONIC, &to);
	us = (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
	return us / 4 < 20 ? 20 : us / 4;
}

START_TEST(signals_do_not_make_an_open_fail)
{
	struct itimerval never = { 0 };
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	char base[] = "/dev/shm/pinion-test-XXXXXX", path[64];
	int ret = 0;

	if (!mkdtemp(base))
		SKIP("/dev/shm is not writable");
	snprintf(path, sizeof(path), "%s/%s", base, COUNTER_NAME);
	often.it_interval.tv_usec = often.it_value.tv_usec = signal_interval(base);
	unlink(path);
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	for (int i = 0; i < 150 && !ret; i++) {
		signals = 0;
		ret = try_in(base);
		unlink(path);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	snprintf(path, sizeof(path), "%s/.lock", base);
	unlink(path);
	rmdir(base);
	ck_assert_msg(ret == 0, "%d: %s", ret, pinion_error());
}
END_TEST

/* What a process of a pid namespace of its own is told when it asks for the lock. */
static int locked_out(const char *path)
{
	struct rundir dir;
	int lock;
	pid_t pid = namespace_leave(CLONE_NEWPID) ? fork() : -1;

	if (pid < 0)
		return 77;
	if (!pid) {
		if (rundir_open(path, &dir) || rundir_lock(&dir, &lock) != -ETIMEDOUT)
			_exit(1);
		_exit(pinion_error_advice() == PINION_ADVICE_DIR_LOCKED && strstr(pinion_error(), "another pid namespace") ? 0 :
															     2);
	}
	return reap(pid);
}

/* Its pid is 0 there, and it is somebody all the same. */
START_TEST(a_stopped_process_of_another_pid_namespace_is_not_waited_for_for_ever)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const char *path = fresh_dir();
	char file[PATH_MAX + 8];
	int fd, ret;
	pid_t pid;

	snprintf(file, sizeof(file), "%s/.lock", path);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(fcntl(fd, F_SETLK, &lock), 0);
	pid = fork();
	if (!pid)
		_exit(locked_out(path));
	ret = reap(pid);
	close(fd);
	if (ret == 77)
		SKIP("no pid namespace can be made here");
	ck_assert_int_eq(ret, 0);
}
END_TEST

/* ---- the counter file -------------------------------------------------------------------------------------------- */

static int counter_fd(const char *dir, struct stat *st)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%.4000s/%s", dir, COUNTER_NAME);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	if (st)
		ck_assert_int_eq(fstat(fd, st), 0);
	return fd;
}

/* A counter file as a context leaves it, with @bytes at @off changed. */
static ino_t altered_file(const char *dir, off_t off, const void *data, size_t bytes)
{
	struct stat st;
	int fd;

	pinion_close(context_in(dir));
	fd = counter_fd(dir, &st);
	ck_assert_int_eq(pwrite(fd, data, bytes, off), bytes);
	close(fd);
	return st.st_ino;
}

START_TEST(the_counter_file_of_another_boot_is_replaced)
{
	struct counter_head head;
	const char *dir = fresh_dir();
	char boot[37] = "00000000-1111-2222-3333-444444444444";
	struct pinion_device *dev;
	struct pinion_context *ctx = context_in(dir);
	struct stat st;
	int fd;

	ck_ok(pinion_device_add(ctx, "of-the-earlier-boot", NULL, &dev));
	pinion_close(ctx);
	altered_file(dir, offsetof(struct counter_head, boot), boot, 36);
	ctx = context_in(dir);
	ck_assert_int_eq(pinion_device_find(ctx, "of-the-earlier-boot", &dev), -ENOENT);
	fd = counter_fd(dir, &st);
	ck_assert_int_eq(pread(fd, &head, sizeof(head), 0), sizeof(head));
	ck_assert_mem_ne(head.boot, boot, 36);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	close(fd);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_counter_file_of_another_layout_is_refused)
{
	const char *dir = fresh_dir();
	uint64_t bytes = sizeof(struct counter_file) + 4096;
	struct stat st;
	ino_t ino = altered_file(dir, offsetof(struct counter_head, bytes), &bytes, sizeof(bytes));

	ck_assert_int_eq(try_in(dir), -EPROTO);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "layout"));
	ck_assert_ptr_nonnull(strstr(pinion_error(), dir));
	close(counter_fd(dir, &st));
	ck_assert_uint_eq(st.st_ino, ino);
}
END_TEST

START_TEST(a_cut_counter_file_is_refused)
{
	const char *dir = fresh_dir();
	int fd;

	pinion_close(context_in(dir));
	fd = counter_fd(dir, NULL);
	ck_assert_int_eq(ftruncate(fd, 65536), 0);
	close(fd);
	ck_assert_int_eq(try_in(dir), -EPROTO);
}
END_TEST

START_TEST(a_counter_file_that_was_never_finished_is_replaced)
{
	const char *dir = fresh_dir();
	uint64_t none = 0;
	int fd;

	altered_file(dir, offsetof(struct counter_head, magic), &none, sizeof(none));
	ck_assert_int_eq(try_in(dir), 0);
	fd = counter_fd(dir, NULL);
	ck_assert_int_eq(ftruncate(fd, 10), 0);
	close(fd);
	ck_assert_int_eq(try_in(dir), 0);
}
END_TEST

START_TEST(something_else_in_place_of_the_counter_file_is_refused)
{
	const char *dir = fresh_dir();
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.4000s/%s", dir, COUNTER_NAME);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(try_in(dir), -EPERM);
	unlink(path);
	ck_assert_int_eq(symlink("/dev/null", path), 0);
	ck_assert_int_eq(try_in(dir), -ELOOP);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_lt(try_in(dir), 0);
}
END_TEST

START_TEST(twenty_contexts_live_in_one_process)
{
	struct pinion_context *ctx[20];
	struct pinion_ticket ticket[20] = { 0 };
	struct pinion_device *dev[20];
	uint32_t n;

	for (int i = 0; i < 20; i++) {
		ctx[i] = context();
		ck_ok(pinion_device_add(ctx[i], "twenty", NULL, &dev[i]));
		ck_ok(pinion_work_begin(dev[i], 1, &ticket[i]));
	}
	for (int i = 19; i >= 0; i--) {
		ck_ok(pinion_device_pending(dev[i], PINION_SCOPE_ALL, &n));
		ck_assert_uint_eq(n, i + 1);
		ck_ok(pinion_device_pending(dev[i], PINION_SCOPE_MINE, &n));
		ck_assert_uint_eq(n, 1);
		ck_ok(pinion_work_end(&ticket[i]));
		pinion_close(ctx[i]);
	}
}
END_TEST

START_TEST(opening_and_closing_leaves_nothing)
{
	unsigned int fds;

	pinion_close(context());
	fds = fds_open();
	for (int i = 0; i < 200; i++)
		pinion_close(context());
	try_in("/nowhere/at/all");
	try_in("/dev/null");
	ck_assert_uint_eq(fds_open(), fds);
	pinion_close(NULL);
}
END_TEST

START_TEST(the_runtime_directory_holds_the_counter_file_and_the_lock)
{
	const char *dir = fresh_dir();
	struct dirent *ent;
	DIR *d;

	pinion_close(context_in(dir));
	d = opendir(dir);
	while ((ent = readdir(d)))
		ck_assert_msg(strstr(". .. .lock " COUNTER_NAME, ent->d_name) != NULL, "%s", ent->d_name);
	closedir(d);
}
END_TEST

/* ---- fork -------------------------------------------------------------------------------------------------------- */

struct everything {
	struct pinion_context *ctx;
	struct pinion_device *dev;
	struct pinion_buffer *buf;
	struct pinion_stream *stream;
	struct pinion_ticket ticket;
	int sock[2];
};

static int no_call(void *arg)
{
	(void)arg;
	return 0;
}

static void make_everything(struct everything *e)
{
	memset(e, 0, sizeof(*e));
	e->ctx = context();
	ck_ok(pinion_device_add(e->ctx, "forked", NULL, &e->dev));
	ck_ok(pinion_buffer_alloc(e->ctx, 4096, NULL, &e->buf));
	ck_ok(pinion_stream_new(e->dev, NULL, &e->stream));
	ck_ok(pinion_work_begin(e->dev, 5, &e->ticket));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, e->sock), 0);
	/* The stream's thread is to be at rest, also for what forks by the bare system call. */
	ck_ok(pinion_stream_call(e->stream, no_call, NULL, NULL));
	ck_ok(pinion_stream_flush(e->stream, PINION_FOREVER));
	test_threads_rest();
}

#define DEAD(expr)                                                                                                     \
	do {                                                                                                           \
		at++;                                                                                                  \
		sentence_set("");                                                                                      \
		if ((expr) != -EOWNERDEAD || !strstr(pinion_error(), "fork"))                                          \
			return at;                                                                                     \
	} while (0)

/* In a child: every call of what the parent made is refused. The number of the first that is not, or 0. */
static int refused_everywhere(struct everything *e)
{
	struct pinion_context_info ci = { .size = sizeof(ci) };
	struct pinion_device_info di = { .size = sizeof(di) };
	struct pinion_stream_stats st = { .size = sizeof(st) };
	struct pinion_ticket fresh = { 0 };
	struct pinion_device_user row;
	struct pinion_stream *s;
	struct pinion_buffer *buf;
	struct pinion_device *dev;
	uint64_t lost;
	uint32_t n;
	size_t rows;
	int at = 0;

	DEAD(pinion_context_info(e->ctx, &ci));
	DEAD(pinion_device_find(e->ctx, "forked", &dev));
	DEAD(pinion_device_find(e->ctx, "hostio", &dev));
	DEAD(pinion_device_add(e->ctx, "forked", NULL, &dev));
	DEAD(pinion_device_at(e->ctx, 0, &dev));
	DEAD(pinion_device_remove(e->dev));
	DEAD(pinion_device_pending(e->dev, PINION_SCOPE_ALL, &n));
	DEAD(pinion_device_pending(e->dev, PINION_SCOPE_MINE, &n));
	DEAD(pinion_device_info(e->dev, &di));
	DEAD(pinion_device_users(e->dev, &row, 1, &rows));
	DEAD(pinion_device_flush(e->dev, PINION_SCOPE_ALL, 0, &lost));
	DEAD(pinion_work_begin(e->dev, 1, &fresh));
	DEAD(pinion_work_end(&e->ticket));
	DEAD(pinion_buffer_alloc(e->ctx, 4096, NULL, &buf));
	DEAD(pinion_buffer_recv(e->ctx, e->sock[0], &buf));
	DEAD(pinion_stream_new(e->dev, NULL, &s));
	DEAD(pinion_stream_read(e->stream, e->buf, 0, 0, 0, 1, NULL));
	DEAD(pinion_stream_call(e->stream, no_call, NULL, NULL));
	DEAD(pinion_stream_wait(e->stream, 1, 0));
	DEAD(pinion_stream_flush(e->stream, 0));
	DEAD(pinion_stream_stats(e->stream, &st));
	if (strcmp(pinion_device_key(e->dev), "") || pinion_stream_pending(e->stream))
		return 100;
	return 0;
}

/* A child that lets go of everything and makes its own. */
static int child_of_its_own(struct everything *e)
{
	struct pinion_context *ctx;
	struct pinion_device *dev;
	struct pinion_ticket ticket = { 0 };
	uint32_t n;
	int ret = refused_everywhere(e);

	if (ret)
		return ret;
	pinion_stream_free(e->stream);
	pinion_buffer_unref(e->buf);
	pinion_close(e->ctx);
	if (pinion_open(NULL, &ctx) || pinion_device_find(ctx, "forked", &dev) || pinion_work_begin(dev, 1, &ticket))
		return 101;
	if (pinion_device_pending(dev, PINION_SCOPE_ALL, &n) || n != 2)
		return 102;
	if (pinion_device_pending(dev, PINION_SCOPE_MINE, &n) || n != 1)
		return 104;
	if (pinion_work_end(&ticket))
		return 103;
	pinion_close(ctx);
	return 0;
}

static void parent_is_unchanged(struct everything *e)
{
	uint64_t seq;
	uint32_t n;

	ck_ok(pinion_device_pending(e->dev, PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 1);
	ck_ok(pinion_stream_call(e->stream, no_call, NULL, &seq));
	ck_ok(pinion_stream_wait(e->stream, seq, PINION_FOREVER));
	ck_ok(pinion_work_end(&e->ticket));
	ck_ok(pinion_device_pending(e->dev, PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 0);
	pinion_stream_free(e->stream);
	pinion_buffer_unref(e->buf);
	pinion_close(e->ctx);
}

START_TEST(a_forked_child_is_refused_and_touches_nothing)
{
	struct everything e;
	pid_t pid;

	make_everything(&e);
	pid = fork();
	if (!pid)
		_exit(child_of_its_own(&e));
	ck_assert_int_eq(reap(pid), 0);
	parent_is_unchanged(&e);
}
END_TEST

START_TEST(a_child_made_by_the_bare_system_call_is_refused)
{
	struct everything e;
	pid_t pid;

	make_everything(&e);
	pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!pid)
		_exit(refused_everywhere(&e));
	ck_assert_int_eq(reap(pid), 0);
	parent_is_unchanged(&e);
}
END_TEST

START_TEST(closing_in_a_child_leaves_the_parents_counts)
{
	struct pinion_ticket ticket[3] = { 0 };
	struct pinion_context *ctx = context();
	struct pinion_device *dev;
	uint32_t n;
	pid_t pid;

	ck_ok(pinion_device_add(ctx, "forked", NULL, &dev));
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_begin(dev, 1, &ticket[i]));
	pid = fork();
	if (!pid) {
		pinion_close(ctx);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 3);
	for (int i = 0; i < 3; i++)
		ck_ok(pinion_work_end(&ticket[i]));
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	ck_assert_uint_eq(n, 0);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_grandchild_of_a_child_with_its_own_context_is_refused_too)
{
	struct pinion_context *ctx = context();
	pid_t pid = fork();

	if (!pid) {
		struct pinion_context_info info = { .size = sizeof(info) };
		struct pinion_context *own;

		if (pinion_open(NULL, &own) || pinion_context_info(own, &info))
			_exit(1);
		pid = fork();
		if (!pid) {
			if (pinion_context_info(own, &info) != -EOWNERDEAD)
				_exit(2);
			if (pinion_context_info(ctx, &info) != -EOWNERDEAD)
				_exit(3);
			pinion_close(own);
			pinion_close(ctx);
			_exit(0);
		}
		_exit(reap(pid) || pinion_context_info(own, &info) || pinion_context_info(ctx, &info) != -EOWNERDEAD);
	}
	ck_assert_int_eq(reap(pid), 0);
	pinion_close(ctx);
}
END_TEST

static int count_buffer(void *arg, const struct pinion_module_buffer *buffer)
{
	(void)buffer;
	++*(unsigned int *)arg;
	return 0;
}

START_TEST(the_module_answers_or_says_why_not)
{
	struct pinion_module_info info = { .size = sizeof(info) };
	unsigned int buffers = 0;
	int ret = pinion_module_info(&info);

	if (access("/dev/pinion", F_OK)) {
		ck_assert_int_eq(ret, -ENODEV);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "modprobe pinion"));
		ck_assert_uint_eq(info.max_bytes, 0);
		ck_assert_int_eq(pinion_module_buffers(count_buffer, &buffers), -ENODEV);
		ck_assert_uint_eq(buffers, 0);
	} else if (!access("/dev/pinion", R_OK)) {
		ck_assert_int_eq(ret, 0);
		ck_assert_uint_gt(info.max_bytes, 0);
		ck_assert_int_eq(pinion_module_buffers(count_buffer, &buffers), 0);
	} else {
		ck_assert_int_eq(ret, -EACCES);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("context");
	TCase *sizes = tcase_create("sizes"), *dirs = tcase_create("directory"), *file = tcase_create("counter file"),
	      *forks = tcase_create("fork");

	tcase_add_test(sizes, the_module_answers_or_says_why_not);
	tcase_add_test(sizes, options_without_a_size_are_refused);
	tcase_add_test(sizes, a_longer_struct_is_taken_when_its_tail_is_zero);
	tcase_add_test(sizes, info_fills_as_much_as_the_caller_has_room_for);
	tcase_add_test(sizes, deadlines_saturate);
	tcase_add_test(sizes, a_context_opens_beside_much_thread_local_data);
	suite_add_tcase(s, sizes);
	tcase_set_timeout(dirs, 30);
	tcase_add_test(dirs, a_directory_open_to_others_is_refused);
	tcase_add_test(dirs, what_clears_old_files_away_passes_the_directory_by);
	tcase_add_test(dirs, nobody_is_told_to_close_a_directory_that_others_use);
	tcase_add_test(dirs, a_directory_behind_a_link_is_refused);
	tcase_add_test(dirs, a_file_in_place_of_the_directory_is_refused);
	tcase_add_test(dirs, a_directory_of_someone_else_is_refused);
	tcase_add_test(dirs, a_long_path_is_refused);
	tcase_add_test(dirs, what_was_named_comes_before_the_default_directories);
	tcase_add_test(dirs, the_default_directories_are_tried_in_order);
	tcase_add_test(dirs, a_full_file_system_is_an_error_and_no_signal);
	tcase_add_test(dirs, a_file_system_without_inodes_is_an_error);
	tcase_add_test(dirs, a_file_system_that_fills_up_is_an_error_and_no_signal);
	tcase_add_test(dirs, a_stopped_process_of_another_pid_namespace_is_not_waited_for_for_ever);
	tcase_add_test(dirs, signals_do_not_make_an_open_fail);
	suite_add_tcase(s, dirs);
	tcase_set_timeout(file, 30);
	tcase_add_test(file, the_counter_file_of_another_boot_is_replaced);
	tcase_add_test(file, a_counter_file_of_another_layout_is_refused);
	tcase_add_test(file, a_cut_counter_file_is_refused);
	tcase_add_test(file, a_counter_file_that_was_never_finished_is_replaced);
	tcase_add_test(file, something_else_in_place_of_the_counter_file_is_refused);
	tcase_add_test(file, twenty_contexts_live_in_one_process);
	tcase_add_test(file, opening_and_closing_leaves_nothing);
	tcase_add_test(file, the_runtime_directory_holds_the_counter_file_and_the_lock);
	suite_add_tcase(s, file);
	tcase_set_timeout(forks, 30);
	tcase_add_test(forks, a_forked_child_is_refused_and_touches_nothing);
	tcase_add_test(forks, a_child_made_by_the_bare_system_call_is_refused);
	tcase_add_test(forks, closing_in_a_child_leaves_the_parents_counts);
	tcase_add_test(forks, a_grandchild_of_a_child_with_its_own_context_is_refused_too);
	suite_add_tcase(s, forks);
	return s;
}

PINION_TEST_MAIN(suite)
