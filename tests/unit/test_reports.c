/* SPDX-License-Identifier: MIT */
/*
 * What people reported of shared and pinned memory made by others, tried on buffers; the row is that of user-needs, section 5.
 * Elsewhere: rows 1, 11 and 17 in test_buffer.c, 14, 29 and 40 in test_pages.c.
 */
#include "ground.h"
#include "group.h"
#include "harness.h"
#include "namespace.h"
#include "plain_user.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MIB    (UINT64_C(1) << 20)
#define BOTH   (PINION_READ | PINION_WRITE)
#define NOBODY 65534

static char home[PATH_MAX]; /* a folder that anybody may use */

static struct pinion_context *context(void)
{
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	return ctx;
}

static int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* kB of the buffer's pages, 2 MiB, that a process has for its own, shared out among all who have them mapped. */
static uint64_t share_kb(pid_t pid)
{
	unsigned long from, to, pss, sum = 0;
	bool ours = false;
	char path[64], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			ours = strstr(line, "memfd:pinion") || strstr(line, "dmabuf");
		if (ours && sscanf(line, "Pss: %lu kB", &pss) == 1)
			sum += pss;
	}
	fclose(f);
	return sum;
}

static unsigned int map_lines(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	int c;

	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* Byte @i of what is written in these tests. */
static unsigned char byte_at(uint64_t i)
{
	return (unsigned char)(i * 131 + (i >> 12));
}

static void pattern(unsigned char *p, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		p[i] = byte_at(i);
}

static bool has_pattern(const unsigned char *p, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i++)
		if (p[i] != byte_at(i))
			return false;
	return true;
}

/* A file of @bytes in home, for everybody to read. */
static int make_file(const char *name, uint64_t bytes)
{
	unsigned char *text = malloc(bytes);
	char path[PATH_MAX + 32];
	int fd;

	pattern(text, bytes);
	snprintf(path, sizeof(path), "%s/%s", home, name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
	free(text);
	return fd;
}

static void setup(void)
{
	snprintf(home, sizeof(home), "%s/home-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(home));
	ck_assert(plain_own(home));
}

/* Becomes an ordinary user who may lock @memlock bytes, with a runtime directory of its own. */
static bool become_ordinary(uint64_t memlock)
{
	struct rlimit lim = { memlock, memlock };

	/* The user may not come through what is above. */
	return !chdir(home) && !setenv("PINION_DIR", ".", 1) && !setrlimit(RLIMIT_MEMLOCK, &lim) && plain_become();
}

/* ---- limits of locked memory ------------------------------------------------------------------------------------- */

static bool read_into(struct pinion_stream *s, struct pinion_buffer *buf, int file, uint64_t bytes)
{
	void *addr;
	bool right;

	if (pinion_stream_read(s, buf, 0, file, 0, bytes, NULL) || pinion_stream_flush(s, PINION_FOREVER) ||
	    pinion_buffer_map(buf, PINION_READ, &addr))
		return false;
	right = has_pattern(addr, bytes);
	pinion_buffer_unmap(buf, PINION_READ);
	return right;
}

static int reads_with_little_memlock(int file)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *ctx;
	struct pinion_device *dev;
	struct pinion_stream *s;
	struct pinion_buffer *buf;

	if (!become_ordinary(65536) || pinion_open(NULL, &ctx))
		return 1;
	if (pinion_buffer_alloc(ctx, MIB, NULL, &buf) || pinion_buffer_info(buf, &info))
		return 2;
	if (info.hold != PINION_HOLD_NONE || !strstr(info.hold_why, "RLIMIT_MEMLOCK is 64 KiB"))
		return 3;
	if (pinion_device_find(ctx, "hostio", &dev) || pinion_stream_new(dev, NULL, &s))
		return 4;
	return read_into(s, buf, file, MIB) ? 0 : 5;
}

/* liburing#365 */
START_TEST(row_8_a_plain_user_with_memlock_of_64_KiB_reads_a_file_into_a_larger_buffer)
{
	int file = make_file("row8", MIB);
	pid_t pid;

	if (SANITIZED)
		SKIP("the address sanitizer makes mlock() do nothing");
	pid = fork();
	if (!pid)
		_exit(reads_with_little_memlock(file));
	ck_assert_int_eq(reap(pid), 0);
	close(file);
}
END_TEST

static int three_streams_on_half_a_limit(int file)
{
	struct pinion_context *ctx;
	struct pinion_device *dev;
	struct pinion_stream *s[3];
	struct pinion_buffer *buf;

	if (!become_ordinary(MIB) || pinion_open(NULL, &ctx) || pinion_device_find(ctx, "hostio", &dev))
		return 1;
	if (pinion_buffer_alloc(ctx, MIB / 2, NULL, &buf))
		return 2;
	for (int i = 0; i < 3; i++)
		if (pinion_stream_new(dev, NULL, &s[i]))
			return 10 + i;
	for (int i = 0; i < 3; i++)
		if (!read_into(s[i], buf, file, MIB / 2))
			return 20 + i;
	for (int i = 0; i < 3; i++)
		pinion_stream_free(s[i]);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	return 0;
}

/* liburing#171: what is registered is charged once for each ring, and for a while after its owner is gone. */
START_TEST(row_9_half_of_memlock_in_one_buffer_serves_three_streams_and_the_next_process)
{
	int file = make_file("row9", MIB / 2);

	for (int i = 0; i < 4; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(three_streams_on_half_a_limit(file));
		ck_assert_int_eq(reap(pid), 0);
	}
	close(file);
}
END_TEST

/* ---- limits of memory ---------------------------------------------------------------------------------------------- */

static char limit_file[GROUP_PATH + 64];

/* In a group with 256 MiB, most of it page cache. */
static int in_a_group_full_of_cache(const char *group)
{
	struct pinion_buffer *buf = NULL;
	struct pinion_context *ctx;
	char path[] = "/var/tmp/pinion-cache-XXXXXX", *part = calloc(1, MIB);
	int fd = mkstemp(path), err = 0;

	(void)group;
	if (fd < 0)
		return 77;
	if (!part)
		return 1;
	unlink(path);
	for (int i = 0; i < 200 && !err; i++)
		err = write(fd, part, MIB) != (ssize_t)MIB;
	if (err || fsync(fd) || pinion_open(NULL, &ctx))
		return 2;
	if (pinion_buffer_alloc(ctx, 128 * MIB, NULL, &buf))
		return fprintf(stderr, "%s\n", pinion_error()), 3;
	pinion_buffer_unref(buf);
	buf = NULL;
	if (pinion_buffer_alloc(ctx, 512 * MIB, NULL, &buf) != -ENOMEM || buf)
		return 4;
	if (!strstr(pinion_error(), limit_file) || !strstr(pinion_error(), "needs 536870912 bytes") ||
	    !strstr(pinion_error(), "is 268435456 of which"))
		return fprintf(stderr, "%s\n", pinion_error()), 5;
	return 0;
}

/* kekzl/imp#2070, ComfyUI#15927 */
START_TEST(row_15_a_cgroup_full_of_page_cache_gives_it_up_and_is_named_when_it_is_short)
{
	char group[GROUP_PATH];
	int ret;

	if (!group_of_memory("268435456", group, limit_file))
		SKIP("no control group that limits memory can be made");
	setenv("PINION_GROUND", "memfd", 1); /* on the module the kernel answers, and test_buffer.c asks it */
	ret = group_run(group, in_a_group_full_of_cache);
	if (ret == 77)
		SKIP("there is no /var/tmp, which is on a disk most often");
	ck_assert_int_eq(ret, 0);
}
END_TEST

static int on_a_tiny_tmpfs(void)
{
	struct pinion_storage *st = NULL;
	struct pinion_buffer *buf;
	struct pinion_context *ctx;
	char dir[64];
	void *addr;
	int ret;

	/* The runtime directory is elsewhere; what programs share, and the folder of temporary files, is tiny. */
	if (!namespace_of_mounts())
		return 77;
	if (mount("tiny", "/dev/shm", "tmpfs", 0, "size=64k"))
		return 77;
	if (pinion_open(NULL, &ctx))
		return 1;
	ret = pinion_storage_create("/dev/shm/kv", PINION_DTYPE_F32, MIB / 4, NULL, &st);
	if (ret != -ENOSPC || st || !access("/dev/shm/kv", F_OK))
		return 2;
	/* A buffer is not a file of it. */
	if (pinion_buffer_alloc(ctx, MIB, NULL, &buf) || pinion_buffer_map(buf, BOTH, &addr))
		return 3;
	memset(addr, 1, MIB);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	/* With the runtime directory there, everything fits or the open says what is full. */
	snprintf(dir, sizeof(dir), "/dev/shm/run");
	setenv("PINION_DIR", dir, 1);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return ret == -ENOSPC && *pinion_error() ? 0 : 4;
	if (pinion_buffer_alloc(ctx, MIB, NULL, &buf) || pinion_buffer_map(buf, BOTH, &addr))
		return 5;
	memset(addr, 1, MIB);
	return 0;
}

/* mongo-c-driver#1244, mxl#300: sizing succeeded, and the first touch was a bus fault. */
START_TEST(row_20_a_tmpfs_of_64_KiB_is_an_error_at_creation_and_no_signal)
{
	pid_t pid;
	int ret;

	pid = fork();
	if (!pid)
		_exit(on_a_tiny_tmpfs());
	ret = reap(pid);
	if (ret == 77)
		SKIP("mounting is refused here");
	ck_assert_int_eq(ret, 0);
}
END_TEST

/* ---- life ---------------------------------------------------------------------------------------------------------- */

/* triton-server#3207: memory that was given back while it was being read into. */
START_TEST(row_16_a_buffer_that_is_given_back_during_a_read_is_read_into_to_the_end)
{
	struct pinion_context *ctx = context();
	const uint64_t bytes = 32 * MIB;
	int file = make_file("row16", bytes);
	struct pinion_device *dev;

	ck_ok(pinion_device_find(ctx, "hostio", &dev));
	for (unsigned int i = test_rounds(10); i; i--) {
		struct pinion_buffer *buf = NULL, *twin = NULL;
		struct pinion_stream *s;
		void *addr;

		ck_ok(pinion_stream_new(dev, NULL, &s));
		ck_ok(pinion_buffer_alloc(ctx, bytes, NULL, &buf));
		ck_ok(pinion_buffer_slice(buf, 0, bytes, BOTH, &twin));
		ck_ok(pinion_stream_read(s, buf, 0, file, 0, bytes, NULL));
		pinion_buffer_unref(buf);
		ck_ok(pinion_stream_flush(s, PINION_FOREVER));
		ck_ok(pinion_buffer_map(twin, PINION_READ, &addr));
		ck_assert(has_pattern(addr, bytes));
		pinion_buffer_unref(twin);
		pinion_stream_free(s);
	}
	close(file);
	pinion_close(ctx);
}
END_TEST

/* Mooncake#3660: registrations split mappings until there are too many. */
START_TEST(row_18_thousands_of_registrations_of_varying_sizes_leave_no_mappings)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = PINION_PAGES_SMALL };
	struct pinion_context *ctx = context();
	struct pinion_buffer *kept[32] = { NULL };
	unsigned int before = map_lines(), most = 0, n = test_rounds(SANITIZED ? 2000 : 7000);

	for (unsigned int i = 0; i < n; i++) {
		struct pinion_buffer **slot = &kept[i * 7 % 32];

		pinion_buffer_unref(*slot);
		*slot = NULL;
		ck_ok(pinion_buffer_alloc(ctx, 4096 * (1 + i * 2654435761u % 61), &opts, slot));
		if (i % 500 == 499 && map_lines() > most)
			most = map_lines();
	}
	/* Each that is kept has one mapping. */
	ck_assert_uint_le(most, before + 32 * 2 + (SANITIZED ? 200 : 8));
	for (unsigned int i = 0; i < 32; i++)
		pinion_buffer_unref(kept[i]);
	ck_assert_uint_le(map_lines(), before + (SANITIZED ? 200 : 8));
	pinion_close(ctx);
}
END_TEST

static int receive(int sock, struct pinion_context **ctx, struct pinion_buffer **buf, uint32_t rights, void **addr)
{
	return pinion_open(NULL, ctx) || pinion_buffer_recv(*ctx, sock, buf) || pinion_buffer_map(*buf, rights, addr);
}

enum end { BY_RETURN, BY_EXIT, BY_ABORT, BY_KILL, ENDS };

static void read_and_end(int sock, enum end end)
{
	struct pinion_context *ctx;
	struct pinion_buffer *buf;
	struct rlimit none = { 0, 0 };
	void *addr;

	if (receive(sock, &ctx, &buf, PINION_READ, &addr) || !has_pattern(addr, MIB))
		_exit(1);
	if (end == BY_RETURN) {
		pinion_buffer_unref(buf);
		pinion_close(ctx);
	}
	setrlimit(RLIMIT_CORE, &none);
	signal(SIGABRT, SIG_DFL);
	if (end == BY_ABORT)
		abort();
	if (end == BY_KILL)
		kill(getpid(), SIGKILL);
	_exit(0);
}

/* cpython#82300 */
START_TEST(row_19_a_readers_end_of_any_kind_takes_nothing_from_the_others)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	int sock[2];
	void *addr;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	ck_ok(pinion_buffer_alloc(ctx, MIB, NULL, &buf));
	ck_ok(pinion_buffer_map(buf, BOTH, &addr));
	pattern(addr, MIB);
	for (enum end end = BY_RETURN; end <= ENDS; end++) {
		pid_t pid = fork();
		int want = end == BY_ABORT ? -SIGABRT : end == BY_KILL ? -SIGKILL : 0;

		/* The last one is new, and all the others are gone. */
		if (!pid)
			read_and_end(sock[1], end);
		ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
		ck_assert_int_eq(reap(pid), want);
		ck_assert(has_pattern(addr, MIB));
	}
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	close(sock[0]);
	close(sock[1]);
}
END_TEST

/* Attached, says so, and stays until it is told to go; then the memory must still be there, whoever made it. */
static void attach_and_wait(int sock, int ready, int go)
{
	struct pinion_context *ctx;
	struct pinion_buffer *buf;
	void *addr;
	char c;

	if (receive(sock, &ctx, &buf, PINION_READ, &addr) || !has_pattern(addr, 2 * MIB) || write(ready, "r", 1) != 1)
		_exit(1);
	if (read(go, &c, 1) != 0)
		_exit(2);
	_exit(has_pattern(addr, 2 * MIB) ? 0 : 3);
}

START_TEST(two_hundred_and_fifty_six_attach_to_one_copy_which_outlives_its_maker)
{
	unsigned int n = test_rounds(256);
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	int sock[2], ready[2], go[2];
	uint64_t shares = 0;
	pid_t pid[256];
	void *addr;
	char c;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	ck_ok(pinion_buffer_alloc(ctx, 2 * MIB, NULL, &buf));
	ck_ok(pinion_buffer_map(buf, BOTH, &addr));
	pattern(addr, 2 * MIB);
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	for (unsigned int i = 0; i < n; i++) {
		pid[i] = fork();
		if (!pid[i]) {
			close(go[1]);
			pinion_buffer_unref(buf); /* theirs comes by the socket */
			attach_and_wait(sock[1], ready[1], go[0]);
		}
		ck_ok(pinion_buffer_send(buf, sock[0], PINION_READ));
		ck_assert_int_eq(read(ready[0], &c, 1), 1);
	}
	pinion_buffer_unref(buf);
	/* All the shares together are one copy, but for what each is rounded by. */
	for (unsigned int i = 0; i < n; i++)
		shares += share_kb(pid[i]);
	ck_assert_uint_le(shares, 2048 + n);
	ck_assert_uint_ge(shares, 2048 - 2 * n);
	close(go[1]);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_int_eq(reap(pid[i]), 0);
	close(sock[0]);
	close(sock[1]);
	close(ready[0]);
	close(ready[1]);
	close(go[0]);
	pinion_close(ctx);
}
END_TEST

static void make_send_and_stop(int sock)
{
	struct pinion_context *ctx;
	struct pinion_buffer *buf;
	void *addr;

	if (pinion_open(NULL, &ctx) || pinion_buffer_alloc(ctx, MIB, NULL, &buf) || pinion_buffer_map(buf, BOTH, &addr))
		_exit(1);
	pattern(addr, MIB);
	if (pinion_buffer_send(buf, sock, PINION_READ))
		_exit(2);
	raise(SIGSTOP);
	_exit(3);
}

/* ray#64627, vllm#27313, the part of buffers: one who is stopped with memory stops nobody else. */
START_TEST(row_27_a_stopped_maker_stops_nobody_and_its_death_takes_nothing)
{
	struct timeval little = { 0, 100000 };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL, *own = NULL, *none = (void *)1;
	int sock[2], status;
	void *addr;
	pid_t pid;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	pid = fork();
	if (!pid)
		make_send_and_stop(sock[1]);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	ck_ok(pinion_buffer_recv(ctx, sock[0], &buf));
	ck_ok(pinion_buffer_map(buf, PINION_READ, &addr));
	ck_assert(has_pattern(addr, MIB));
	/* Another of one's own, made meanwhile; and nothing more comes from the other, which is not waited for for ever. */
	ck_ok(pinion_buffer_alloc(ctx, MIB, NULL, &own));
	pinion_buffer_unref(own);
	setsockopt(sock[0], SOL_SOCKET, SO_RCVTIMEO, &little, sizeof(little));
	ck_assert_int_eq(pinion_buffer_recv(ctx, sock[0], &none), -EAGAIN);
	ck_assert_ptr_eq(none, (void *)1);
	kill(pid, SIGKILL);
	ck_assert_int_eq(reap(pid), -SIGKILL);
	ck_assert(has_pattern(addr, MIB));
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	close(sock[0]);
	close(sock[1]);
}
END_TEST

static int use_as_another_user(struct pinion_buffer *buf, int sock)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_buffer *part = NULL;
	unsigned char *w, *r;
	int fd;

	if (setgid(NOBODY) || setuid(NOBODY))
		return 1;
	if (pinion_buffer_map(buf, BOTH, (void **)&w) || pinion_buffer_map(buf, PINION_READ, (void **)&r))
		return 2;
	pattern(w, MIB);
	if (!has_pattern(r, MIB) || pinion_buffer_slice(buf, 4096, 4096, PINION_READ, &part) ||
	    pinion_buffer_map(part, PINION_READ, (void **)&r) || r[1] != byte_at(4097))
		return 3;
	pinion_buffer_unref(part);
	if (pinion_buffer_info(buf, &info) || (geteuid() != NOBODY))
		return 4;
	if (pinion_buffer_send(buf, sock, PINION_READ))
		return 5;
	fd = pinion_buffer_export(buf);
	if (fd < 0)
		return 6;
	close(fd);
	pinion_buffer_unref(buf);
	return 0;
}

START_TEST(a_process_that_becomes_another_user_keeps_its_buffers_and_hands_them_out)
{
	struct pinion_buffer *buf = NULL, *got = NULL;
	struct pinion_context *ctx;
	int sock[2];
	void *addr;
	pid_t pid;

	if (geteuid())
		SKIP("only root can become another user");
	ctx = context();
	if (on_module(ctx))
		SKIP("the module's slices are made by who may open its device");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	ck_ok(pinion_buffer_alloc(ctx, MIB, NULL, &buf));
	pid = fork();
	if (!pid)
		_exit(use_as_another_user(buf, sock[1]));
	ck_assert_int_eq(reap(pid), 0);
	/* It was handed out for reading, so it is sealed for us too. */
	ck_ok(pinion_buffer_recv(ctx, sock[0], &got));
	ck_ok(pinion_buffer_map(got, PINION_READ, &addr));
	ck_assert(has_pattern(addr, MIB));
	pinion_buffer_unref(got);
	ck_assert_int_eq(pinion_buffer_send(buf, sock[0], BOTH), -EOPNOTSUPP);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	close(sock[0]);
	close(sock[1]);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("reports");
	TCase *limits = tcase_create("limits"), *life = tcase_create("life");

	tcase_add_checked_fixture(limits, setup, NULL);
	tcase_set_timeout(limits, 60);
	tcase_add_test(limits, row_8_a_plain_user_with_memlock_of_64_KiB_reads_a_file_into_a_larger_buffer);
	tcase_add_test(limits, row_9_half_of_memlock_in_one_buffer_serves_three_streams_and_the_next_process);
	tcase_add_test(limits, row_15_a_cgroup_full_of_page_cache_gives_it_up_and_is_named_when_it_is_short);
	tcase_add_test(limits, row_20_a_tmpfs_of_64_KiB_is_an_error_at_creation_and_no_signal);
	suite_add_tcase(s, limits);
	tcase_add_checked_fixture(life, setup, NULL);
	tcase_set_timeout(life, 90);
	tcase_add_test(life, row_16_a_buffer_that_is_given_back_during_a_read_is_read_into_to_the_end);
	tcase_add_test(life, row_18_thousands_of_registrations_of_varying_sizes_leave_no_mappings);
	tcase_add_test(life, row_19_a_readers_end_of_any_kind_takes_nothing_from_the_others);
	tcase_add_test(life, two_hundred_and_fifty_six_attach_to_one_copy_which_outlives_its_maker);
	tcase_add_test(life, row_27_a_stopped_maker_stops_nobody_and_its_death_takes_nothing);
	tcase_add_test(life, a_process_that_becomes_another_user_keeps_its_buffers_and_hands_them_out);
	suite_add_tcase(s, life);
	return s;
}

PINION_TEST_MAIN(suite)
