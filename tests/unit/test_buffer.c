/* SPDX-License-Identifier: MIT */
#include "ground.h"
#include "harness.h"
#include "namespace.h"
#include "plain_user.h"

#include "memory/buffer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define BOTH (PINION_READ | PINION_WRITE)

static struct pinion_context *context(void)
{
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	return ctx;
}

static struct pinion_buffer *buffer(struct pinion_context *ctx, size_t size)
{
	struct pinion_buffer *buf = NULL;

	ck_ok(pinion_buffer_alloc(ctx, size, NULL, &buf));
	return buf;
}

static int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Bytes that a line of a /proc file names in kB. */
static uint64_t proc_kb(const char *path, const char *key)
{
	unsigned long long kb = 0;
	char line[256];
	FILE *f = fopen(path, "r");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			kb = strtoull(line + strlen(key) + 1, NULL, 10);
	fclose(f);
	return kb * 1024;
}

static unsigned int lines_of(const char *path)
{
	FILE *f = fopen(path, "r");
	unsigned int n = 0;
	int c;

	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

/* ---- size -------------------------------------------------------------------------------------------------------- */

START_TEST(a_size_is_rounded_to_the_page_in_use_and_no_further)
{
	static const uint64_t asked[] = { 1, 4095, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 135790592 };
	struct pinion_context *ctx = context();

	for (unsigned int i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		struct pinion_buffer_info info = { .size = sizeof(info) };
		struct pinion_buffer *buf = buffer(ctx, asked[i]);
		struct stat st;
		int fd;

		ck_ok(pinion_buffer_info(buf, &info));
		ck_assert_uint_eq(info.bytes, pinion_buffer_size(buf));
		ck_assert_uint_ge(info.bytes, asked[i]);
		ck_assert_uint_le(info.bytes, asked[i] + info.page_size - 1);
		ck_assert_uint_eq(info.bytes % info.page_size, 0);
		ck_assert_uint_eq(info.rights, BOTH);
		fd = pinion_buffer_export(buf);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_uint_eq(st.st_size, info.bytes);
		ck_assert_uint_eq(st.st_blocks * UINT64_C(512), info.bytes);
		close(fd);
		pinion_buffer_unref(buf);
	}
	pinion_close(ctx);
}
END_TEST

START_TEST(sizes_that_cannot_be_are_refused)
{
	static const uint64_t huge[] = { SIZE_MAX, SIZE_MAX - 4094, SIZE_MAX - 4095, UINT64_C(1) << 63, INT64_MAX };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = (void *)1;
	unsigned int fds = fds_open();

	ck_assert_int_eq(pinion_buffer_alloc(ctx, 0, NULL, &buf), -EINVAL);
	for (unsigned int i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
		ck_assert_int_eq(pinion_buffer_alloc(ctx, huge[i], NULL, &buf), -EOVERFLOW);
		ck_assert_str_ne(pinion_error(), "");
	}
	ck_assert_ptr_eq(buf, (void *)1);
	ck_assert_uint_eq(fds_open(), fds);
	pinion_close(ctx);
}
END_TEST

/*
 * The machine's memory: either figure shows what stays, and each moves for what else this machine does. So what did not come back
 * is tried again: it stays each time, while others do not take as much each time.
 */
struct memory {
	uint64_t available, shmem;
};

#define MEMORY_TRIES 10

static struct memory memory_now(void)
{
	return (struct memory){ proc_kb("/proc/meminfo", "MemAvailable"), proc_kb("/proc/meminfo", "Shmem") };
}

/* Whether all but @bytes is back, now or in a while: a ring that pins pages is undone a moment later. */
static bool memory_is_back(struct memory before, uint64_t bytes)
{
	for (int i = 0; i < 50; i++) {
		struct memory now = memory_now();

		if (now.available + bytes >= before.available || now.shmem <= before.shmem + bytes)
			return true;
		usleep(100000);
	}
	return false;
}

START_TEST(more_than_there_is_names_what_there_is)
{
	uint64_t total = proc_kb("/proc/meminfo", "MemTotal");
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	unsigned int fds = fds_open(), maps = lines_of("/proc/self/maps");
	bool back = false;

	for (int i = 0; i < MEMORY_TRIES && !back; i++) {
		struct memory before = memory_now();

		ck_assert_int_eq(pinion_buffer_alloc(ctx, total + MIB, NULL, &buf), -ENOMEM);
		ck_assert_ptr_nonnull(strstr(pinion_error(), on_module(ctx) ? "/parameters/max_user_bytes" : "MemAvailable"));
		ck_assert_int_eq(pinion_buffer_alloc(ctx, UINT64_C(1) << 62, NULL, &buf), -ENOMEM);
		ck_assert_ptr_null(buf);
		ck_assert_uint_eq(fds_open(), fds);
		ck_assert_uint_le(lines_of("/proc/self/maps"), maps + 2);
		back = memory_is_back(before, 64 * MIB);
	}
	ck_assert(back);
	pinion_close(ctx);
}
END_TEST

static char small_group[64]; /* of this process alone */

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
	close(fd);
	return ret;
}

/* In a group with 64 MiB. The number of what went wrong. */
static int in_a_small_group(void)
{
	struct pinion_context *ctx;
	struct pinion_buffer *buf = NULL;
	char file[96];
	int ret;

	snprintf(file, sizeof(file), "%s/cgroup.procs", small_group);
	if (write_text(file, "0"))
		return 1;
	if (pinion_open(NULL, &ctx))
		return 2;
	ret = pinion_buffer_alloc(ctx, 128 * MIB, NULL, &buf);
	if (ret != -ENOMEM || buf)
		return 3;
	snprintf(file, sizeof(file), "%s/memory.max", small_group);
	if (!strstr(pinion_error(), file))
		return 4;
	if (pinion_buffer_alloc(ctx, 16 * MIB, NULL, &buf))
		return 5;
	pinion_buffer_unref(buf);
	pinion_close(ctx);
	return 0;
}

START_TEST(a_cgroup_that_is_short_is_named_and_nobody_is_killed)
{
	char file[96];
	pid_t pid;
	int ret;

	snprintf(small_group, sizeof(small_group), "/sys/fs/cgroup/pinion-test-%d", getpid());
	snprintf(file, sizeof(file), "%s/memory.max", small_group);
	if (mkdir(small_group, 0755) && errno != EEXIST)
		SKIP("no control group can be made: %s", strerror(errno));
	if (write_text(file, "67108864")) {
		rmdir(small_group);
		SKIP("control groups of version 2 do not limit memory here");
	}
	pid = fork();
	if (!pid)
		_exit(in_a_small_group());
	ret = reap(pid);
	/* A dead member may be counted for a moment. */
	for (int i = 0; i < 200 && rmdir(small_group) && errno == EBUSY; i++)
		usleep(100000);
	ck_assert_int_eq(ret, 0);
}
END_TEST

START_TEST(options_are_checked)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = PINION_PAGES_1G + 1 };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	char label[512];

	ck_assert_int_eq(pinion_buffer_alloc(ctx, 1, &opts, &buf), -EINVAL);
	opts.pages = PINION_PAGES_AUTO;
	opts.hold = PINION_HOLD_PINNED + 1;
	ck_assert_int_eq(pinion_buffer_alloc(ctx, 1, &opts, &buf), -EINVAL);
	opts.size = 0;
	ck_assert_int_eq(pinion_buffer_alloc(ctx, 1, &opts, &buf), -EINVAL);
	opts = (struct pinion_buffer_opts){ .size = sizeof(opts), .label = label };
	memset(label, 'l', sizeof(label));
	label[511] = 0;
	ck_assert_int_eq(pinion_buffer_alloc(ctx, 1, &opts, &buf), -EINVAL);
	ck_assert_ptr_null(buf);
	label[100] = 0;
	ck_ok(pinion_buffer_alloc(ctx, 1, &opts, &buf));
	pinion_buffer_unref(buf);
	pinion_buffer_unref(NULL);
	pinion_close(ctx);
}
END_TEST

/* ---- pages and mappings ------------------------------------------------------------------------------------------ */

static bool is_zero(const char *p, size_t n)
{
	return n == 0 || (!p[0] && !memcmp(p, p + 1, n - 1));
}

START_TEST(every_page_is_present_and_zero)
{
	unsigned char present[3 * 256 + 1];
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, sizeof(present) * 4096);
	struct pinion_buffer_info info = { .size = sizeof(info) };
	/* Of the module's memory mincore() shows what is in this mapping, and the maker's is the writer. */
	uint32_t prot = on_module(ctx) ? BOTH : PINION_READ;
	void *addr;

	ck_ok(pinion_buffer_info(buf, &info));
	ck_ok(pinion_buffer_map(buf, prot, &addr));
	ck_assert_int_eq(mincore(addr, sizeof(present) * 4096, present), 0);
	for (unsigned int i = 0; i < sizeof(present); i++)
		ck_assert_msg(present[i] & 1, "page %u is not there", i);
	ck_assert(is_zero(addr, pinion_buffer_size(buf)));
	ck_assert_uint_eq((uintptr_t)addr % info.page_size, 0);
	ck_ok(pinion_buffer_unmap(buf, prot));
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(mappings_nest)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096);
	char *w1, *w2, *r1, *r2;

	ck_assert_int_eq(pinion_buffer_unmap(buf, PINION_READ), -EINVAL);
	ck_assert_int_eq(pinion_buffer_unmap(buf, BOTH), -EINVAL);
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w1));
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w2));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r1));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r2));
	ck_assert_ptr_eq(w1, w2);
	ck_assert_ptr_eq(r1, r2);
	ck_assert_ptr_ne(w1, r1);
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	ck_ok(pinion_buffer_unmap(buf, PINION_READ));
	w1[7] = 42;
	ck_assert_int_eq(r1[7], 42);
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	ck_assert_int_eq(r1[7], 42);
	ck_ok(pinion_buffer_unmap(buf, PINION_READ));
	ck_assert_int_eq(pinion_buffer_unmap(buf, BOTH), -EINVAL);
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r1));
	ck_assert_int_eq(r1[7], 42);
	ck_assert_int_eq(pinion_buffer_map(buf, 0, (void **)&r2), -EINVAL);
	ck_assert_int_eq(pinion_buffer_map(buf, PINION_WRITE, (void **)&r2), -EINVAL);
	ck_assert_int_eq(pinion_buffer_map(buf, 8 | BOTH, (void **)&r2), -EINVAL);
	ck_assert_int_eq(pinion_buffer_unmap(buf, 0), -EINVAL);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_buffer_outlives_its_context)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096);
	char *addr;

	pinion_close(ctx);
	ck_assert_ptr_eq(pinion_buffer_ref(buf), buf);
	pinion_buffer_unref(buf);
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&addr));
	addr[4095] = 1;
	ck_ok(pinion_buffer_seal(buf));
	pinion_buffer_unref(buf);
}
END_TEST

START_TEST(the_label_is_shown_in_maps)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .label = "weights-of-a-test" };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	char line[512];
	bool found = false;
	FILE *f;

	ck_ok(pinion_buffer_alloc(ctx, 4096, &opts, &buf));
	f = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), f))
		found |= strstr(line, "weights-of-a-test") != NULL;
	fclose(f);
	ck_assert(found);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(mappings_are_valid_in_a_forked_child)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, MIB);
	volatile char *w, *r;
	pid_t pid;

	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r));
	w[0] = 1;
	pid = fork();
	if (!pid) {
		void *again;

		if (r[0] != 1)
			_exit(1);
		w[MIB - 1] = 2;
		if (pinion_buffer_map(buf, BOTH, &again) || again != w)
			_exit(2);
		pinion_buffer_unref(buf);
		_exit(0);
	}
	ck_assert_int_eq(reap(pid), 0);
	ck_assert_int_eq(r[MIB - 1], 2);
	w[1] = 3;
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(ten_thousand_buffers_leave_nothing)
{
	struct pinion_context *ctx = context();
	unsigned int fds = 0, maps = 0, n = test_rounds(10000);
	uint64_t rss = 0;

	for (unsigned int i = 0; i < n; i++) {
		struct pinion_buffer *buf = buffer(ctx, 65536);
		char *addr;

		ck_ok(pinion_buffer_map(buf, i & 1 ? PINION_READ : BOTH, (void **)&addr));
		if (!(i & 1))
			addr[0] = 1;
		if (i % 3)
			ck_ok(pinion_buffer_unmap(buf, i & 1 ? PINION_READ : BOTH));
		pinion_buffer_unref(buf);
		if (i == n / 10) {
			rss = proc_kb("/proc/self/status", "VmRSS");
			maps = lines_of("/proc/self/maps");
			fds = fds_open();
		}
	}
	ck_assert_uint_eq(fds_open(), fds);
	ck_assert_uint_le(lines_of("/proc/self/maps"), maps + (SANITIZED ? 100 : 2));
	ck_assert_uint_le(proc_kb("/proc/self/status", "VmRSS"), rss + (SANITIZED ? 512 : 2) * MIB);
	pinion_close(ctx);
}
END_TEST

/* In a pid namespace of its own, which has the setting. */
static int without_executable_files(void)
{
	int ret, fd = open("/proc/sys/vm/memfd_noexec", O_WRONLY);
	struct pinion_context *ctx;
	struct pinion_buffer *buf;

	if (fd < 0 || write(fd, "2", 1) != 1)
		return 77;
	close(fd);
	if (pinion_open(NULL, &ctx))
		return 1;
	ret = pinion_buffer_alloc(ctx, 4096, NULL, &buf);
	return -ret;
}

START_TEST(a_buffer_may_be_made_where_memory_files_must_not_be_executable)
{
	pid_t pid;
	int ret;

	pid = fork();
	if (!pid) {
		if (!namespace_leave(CLONE_NEWPID | CLONE_NEWNS))
			_exit(77);
		pid = fork();
		_exit(pid ? reap(pid) : without_executable_files());
	}
	ret = reap(pid);
	if (ret == 77)
		SKIP("vm.memfd_noexec cannot be set here");
	ck_assert_int_eq(ret, 0);
}
END_TEST

/* ---- seal -------------------------------------------------------------------------------------------------------- */

/* A slice of the module's has no right to write, and no file that could be opened anew. */
static void no_writer_of_slice(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ck_assert_int_eq(open(path, O_RDWR), -1);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_RDWR), 0);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
}

static void no_writer_of(int fd, bool slice)
{
	char path[64];
	void *p;
	int again;

	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_eq(p, MAP_FAILED);
	ck_assert_int_eq(errno, slice ? EACCES : EPERM);
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(mprotect(p, 4096, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(errno, EACCES);
	munmap(p, 4096);
	if (slice) {
		no_writer_of_slice(fd);
		return;
	}
	ck_assert_int_eq(pwrite(fd, "x", 1, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(fd, 1 << 30), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	ck_assert_int_eq(errno, EPERM);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR);
	ck_assert_int_ge(again, 0);
	ck_assert_int_eq(pwrite(again, "x", 1, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
	ck_assert_ptr_eq(p, MAP_FAILED);
	close(again);
}

START_TEST(nobody_can_make_a_writer_of_a_sealed_buffer)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 8192);
	char *addr, *r;
	/* The module takes no right back, so there it is not handed out. */
	bool slice = on_module(ctx);
	int fd = slice ? -1 : pinion_buffer_export(buf);

	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r));
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&addr));
	addr[0] = 'a';
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	ck_ok(pinion_buffer_seal(buf));
	ck_ok(pinion_buffer_seal(buf));
	ck_assert_int_eq(pinion_buffer_map(buf, BOTH, (void **)&addr), -EPERM);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "sealed"));
	ck_ok(pinion_buffer_info(buf, &info));
	ck_assert_uint_eq(info.rights, PINION_READ);
	if (!slice) {
		no_writer_of(fd, false);
		close(fd);
	}
	fd = pinion_buffer_export(buf);
	no_writer_of(fd, slice);
	close(fd);
	ck_assert_int_eq(mprotect(r, 4096, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_int_eq(r[0], 'a');
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_seal_takes_back_what_was_handed_out_or_says_that_it_cannot)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096);
	bool slice = on_module(ctx);
	int fd = pinion_buffer_export(buf);
	void *p;

	ck_assert_int_eq(pinion_buffer_seal(buf), slice ? -EOPNOTSUPP : 0);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert(slice ? p != MAP_FAILED : p == MAP_FAILED);
	if (slice)
		ck_assert_ptr_nonnull(strstr(pinion_error(), "handed out"));
	close(fd);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(sealing_at_once_leaves_no_writable_mapping)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .label = "sealed-at-once" };
	struct pinion_buffer *buf = NULL;
	char line[512];
	FILE *f;

	for (int hold = PINION_HOLD_AUTO; hold <= PINION_HOLD_LOCKED; hold++) {
		opts.hold = hold;
		ck_ok(pinion_buffer_alloc(ctx, 65536, &opts, &buf));
		ck_ok(pinion_buffer_seal(buf));
		f = fopen("/proc/self/maps", "r");
		while (fgets(line, sizeof(line), f))
			ck_assert_msg(!strstr(line, opts.label) || !strstr(line, "rw-s"), "%s", line);
		fclose(f);
		pinion_buffer_unref(buf);
	}
	pinion_close(ctx);
}
END_TEST

START_TEST(a_writable_mapping_that_exists_works_on_after_the_seal)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096);
	char *w, *w2, *r;

	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	ck_ok(pinion_buffer_seal(buf));
	w[1] = 'x';
	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&r));
	ck_assert_int_eq(r[1], 'x');
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w2));
	ck_assert_ptr_eq(w, w2);
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	w[2] = 'y';
	ck_assert_int_eq(r[2], 'y');
	ck_ok(pinion_buffer_unmap(buf, BOTH));
	ck_assert_int_eq(pinion_buffer_map(buf, BOTH, (void **)&w2), -EPERM);
	ck_assert_int_eq(r[2], 'y');
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

static bool stop_mapping;

static void *map_and_unmap(void *buf)
{
	void *addr;

	while (!__atomic_load_n(&stop_mapping, __ATOMIC_ACQUIRE))
		if (pinion_buffer_map(buf, BOTH, &addr) || pinion_buffer_unmap(buf, BOTH))
			return buf;
	return NULL;
}

START_TEST(a_child_may_map_a_buffer_that_another_thread_was_at)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 4096);
	pthread_t thread;
	void *addr, *failed;

	ck_assert_int_eq(pthread_create(&thread, NULL, map_and_unmap, buf), 0);
	for (unsigned int i = test_rounds(500); i; i--) {
		pid_t pid = (fork)();

		if (!pid) {
			alarm(100);
			_exit(pinion_buffer_map(buf, PINION_READ, &addr) || pinion_buffer_unmap(buf, PINION_READ));
		}
		ck_assert_int_eq(reap(pid), 0);
	}
	__atomic_store_n(&stop_mapping, true, __ATOMIC_RELEASE);
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

/* ---- hold -------------------------------------------------------------------------------------------------------- */

/* A ring is had although those closed a moment before are counted against the same limit until the kernel comes to it. */
static int rings_beside_a_hold(struct pinion_context *ctx)
{
	struct pinion_device *dev;
	struct pinion_stream *stream;
	struct pinion_buffer *buf;

	if (pinion_device_find(ctx, "hostio", &dev))
		return 12;
	for (int i = 0; i < 10; i++) {
		if (pinion_buffer_alloc(ctx, 28672, NULL, &buf))
			return 13;
		if (pinion_stream_new(dev, NULL, &stream))
			return 14;
		pinion_stream_free(stream);
		pinion_buffer_unref(buf);
	}
	pinion_close(ctx);
	return 0;
}

/* As an ordinary user with little RLIMIT_MEMLOCK. The number of what went wrong. */
static int hold_of_an_ordinary_user(void)
{
	struct rlimit lim = { 65536, 65536 };
	struct pinion_buffer_opts opts = { .size = sizeof(opts) };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *ctx;
	struct pinion_buffer *buf;
	void *addr;
	int ret;

	if (setrlimit(RLIMIT_MEMLOCK, &lim))
		return 1;
	if (!plain_become())
		return 2;
	if (pinion_open(NULL, &ctx))
		return 3;
	if (pinion_buffer_alloc(ctx, MIB, NULL, &buf))
		return 4;
	if (pinion_buffer_info(buf, &info) || info.hold != PINION_HOLD_NONE || info.bytes != MIB)
		return 5;
	if (!strcasestr(info.hold_why, "memlock") || !strstr(info.hold_why, "64"))
		return 6;
	if (pinion_buffer_map(buf, BOTH, &addr))
		return 7;
	memset(addr, 1, MIB);
	pinion_buffer_unref(buf);
	buf = NULL;
	for (opts.hold = PINION_HOLD_LOCKED; opts.hold <= PINION_HOLD_REGISTERED; opts.hold++) {
		unsigned int fds = fds_open();

		ret = pinion_buffer_alloc(ctx, MIB, &opts, &buf);
		if (ret != -ENOMEM && ret != -EPERM)
			return 8;
		if (buf || !strcasestr(pinion_error(), "memlock") || fds_open() != fds)
			return 9;
	}
	/* Once it has room, but not twice at a time. */
	opts.hold = PINION_HOLD_LOCKED;
	if (pinion_buffer_alloc(ctx, 40960, &opts, &buf))
		return 10;
	if (pinion_buffer_seal(buf) || pinion_buffer_info(buf, &info) || info.hold != PINION_HOLD_LOCKED)
		return 11;
	pinion_buffer_unref(buf);
	return rings_beside_a_hold(ctx);
}

START_TEST(little_memlock_is_said_and_not_hidden)
{
	char dir[PATH_MAX];
	pid_t pid;

	if (SANITIZED)
		SKIP("the address sanitizer makes mlock() do nothing");
	snprintf(dir, sizeof(dir), "%s/dir-XXXXXX", test_tmp());
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert(plain_own(dir));
	pid = fork();
	if (!pid) {
		/* The user may not come through what is above. */
		if (chdir(dir))
			_exit(20);
		setenv("PINION_DIR", ".", 1);
		_exit(hold_of_an_ordinary_user());
	}
	ck_assert_int_eq(reap(pid), 0);
}
END_TEST

/*
 * A buffer that is registered, as soon as a work queue of the kernel's has given back to the user's limit what others were: the
 * library waits for that too, but not as long as a busy machine may take.
 */
static struct pinion_buffer *held_buffer(struct pinion_context *ctx, size_t size, const struct pinion_buffer_opts *opts)
{
	struct pinion_buffer *buf = NULL;
	int ret;

	while ((ret = pinion_buffer_alloc(ctx, size, opts, &buf)) && opts->hold == PINION_HOLD_REGISTERED)
		if (pinion_error_advice() != PINION_ADVICE_MEMLOCK)
			break;
	ck_ok(ret);
	return buf;
}

START_TEST(a_hold_is_what_it_says)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts) };
	struct pinion_context *ctx;
	struct rlimit lim;

	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (geteuid() && lim.rlim_cur < 2 * MIB)
		SKIP("RLIMIT_MEMLOCK is too small");
	ctx = context();
	for (opts.hold = PINION_HOLD_NONE; opts.hold <= PINION_HOLD_REGISTERED; opts.hold++) {
		struct pinion_buffer_info info = { .size = sizeof(info) };
		uint64_t locked = proc_kb("/proc/self/status", "VmLck");
		struct pinion_buffer *buf = held_buffer(ctx, MIB, &opts);
		void *addr;

		ck_ok(pinion_buffer_info(buf, &info));
		ck_assert_int_eq(info.hold, opts.hold);
		ck_assert(opts.hold == PINION_HOLD_REGISTERED ? !*info.hold_why : *info.hold_why);
		if (opts.hold == PINION_HOLD_LOCKED) {
			ck_assert_uint_ge(proc_kb("/proc/self/status", "VmLck"), locked + (SANITIZED ? 0 : MIB));
			ck_ok(pinion_buffer_map(buf, BOTH, &addr));
			ck_ok(pinion_buffer_unmap(buf, BOTH));
			ck_assert_uint_ge(proc_kb("/proc/self/status", "VmLck"), locked + (SANITIZED ? 0 : MIB));
			ck_ok(pinion_buffer_seal(buf));
			ck_assert_uint_ge(proc_kb("/proc/self/status", "VmLck"), locked + (SANITIZED ? 0 : MIB));
			ck_ok(pinion_buffer_info(buf, &info));
			ck_assert_int_eq(info.hold, PINION_HOLD_LOCKED);
		}
		if (opts.hold == PINION_HOLD_REGISTERED)
			ck_assert_ptr_nonnull(buf->pages.pin);
		pinion_buffer_unref(buf);
		ck_assert_uint_le(proc_kb("/proc/self/status", "VmLck"), locked);
	}
	pinion_close(ctx);
}
END_TEST

/* io_uring takes no more than 1 GiB as one buffer. */
START_TEST(more_than_io_uring_takes_at_once_is_registered_in_parts)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_REGISTERED };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_buffer *buf;
	struct pinion_context *ctx;
	struct rlimit lim;
	char *addr;

	getrlimit(RLIMIT_MEMLOCK, &lim);
	if (geteuid() && lim.rlim_cur < 1100 * MIB)
		SKIP("RLIMIT_MEMLOCK is too small");
	if (proc_kb("/proc/meminfo", "MemAvailable") < 4096 * MIB)
		SKIP("too little memory is available");
	ctx = context();
	buf = held_buffer(ctx, 1025 * MIB, &opts);
	ck_ok(pinion_buffer_info(buf, &info));
	ck_assert_int_eq(info.hold, PINION_HOLD_REGISTERED);
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&addr));
	addr[1024 * MIB] = addr[1025 * MIB - 1] = 1;
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(pinned_is_had_on_the_module_alone)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_PINNED };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;

	if (on_module(ctx)) {
		ck_ok(pinion_buffer_alloc(ctx, MIB, &opts, &buf));
		ck_ok(pinion_buffer_info(buf, &info));
		ck_assert_int_eq(info.hold, PINION_HOLD_PINNED);
		ck_assert_str_eq(info.hold_why, "");
		pinion_buffer_unref(buf);
		buf = buffer(ctx, MIB);
		ck_ok(pinion_buffer_info(buf, &info));
		ck_assert_int_eq(info.hold, PINION_HOLD_PINNED);
		pinion_buffer_unref(buf);
	} else {
		ck_assert_int_eq(pinion_buffer_alloc(ctx, MIB, &opts, &buf), -EOPNOTSUPP);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "module"));
		ck_assert_ptr_null(buf);
	}
	pinion_close(ctx);
}
END_TEST

/* ---- slices ------------------------------------------------------------------------------------------------------ */

START_TEST(a_slice_shows_its_part_with_its_rights)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 5 * MIB), *part = NULL;
	char *all, *addr;

	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&all));
	for (uint64_t at = 0; at < 5 * MIB; at += 4096)
		memcpy(all + at, &at, sizeof(at));
	for (uint64_t at = 0; at < 4 * MIB; at += 4096 * 37) {
		uint32_t rights = at & 8192 ? BOTH : PINION_READ;
		struct pinion_buffer_info info = { .size = sizeof(info) };
		int ret;

		ck_ok(pinion_buffer_slice(buf, at, 8192, rights, &part));
		ck_assert_uint_eq(pinion_buffer_size(part), 8192);
		ck_ok(pinion_buffer_info(part, &info));
		ck_assert_uint_eq(info.rights, rights);
		ck_ok(pinion_buffer_map(part, PINION_READ, (void **)&addr));
		ck_assert_uint_eq(*(uint64_t *)addr, at);
		ck_assert_uint_eq(*(uint64_t *)(addr + 4096), at + 4096);
		ck_assert_int_eq(mprotect(addr, 4096, PROT_READ | PROT_WRITE), -1);
		ret = pinion_buffer_map(part, BOTH, (void **)&addr);
		ck_assert_int_eq(ret, rights == BOTH ? 0 : -EPERM);
		if (!ret) {
			addr[4097] = 'w';
			ck_assert_int_eq(all[at + 4097], 'w');
		}
		pinion_buffer_unref(part);
	}
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_slice_of_a_slice_lives_on_without_either)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, MIB), *half = NULL, *part = NULL, *out = (void *)1;
	unsigned int fds;
	char *all, *addr;

	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&all));
	memcpy(all + 512 * 1024 + 4096, "inner", 6);
	ck_ok(pinion_buffer_slice(buf, 512 * 1024, 512 * 1024, BOTH, &half));
	pinion_buffer_unref(buf);
	ck_ok(pinion_buffer_slice(half, 4096, 4096, PINION_READ, &part));
	/* Rights only ever become fewer. */
	ck_assert_int_eq(pinion_buffer_slice(part, 0, 4096, BOTH, &out), -EPERM);
	ck_assert_int_eq(pinion_buffer_slice(part, 4096, 4096, PINION_READ, &out), -EINVAL);
	ck_assert_ptr_eq(out, (void *)1);
	pinion_buffer_unref(half);
	fds = fds_open();
	ck_ok(pinion_buffer_map(part, PINION_READ, (void **)&addr));
	ck_assert_str_eq(addr, "inner");
	ck_assert_uint_eq(fds_open(), fds);
	pinion_buffer_unref(part);
	ck_assert_uint_lt(fds_open(), fds);
	pinion_close(ctx);
}
END_TEST

/* The module's is a descriptor of its own; a memfd's is a right to all of the memory, so it does not leave the process. */
START_TEST(a_slice_is_handed_out_where_its_descriptor_is_no_right_to_more)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 65536), *part = NULL, *got = NULL;
	bool slice = on_module(ctx);
	int sock[2], fd;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
	ck_ok(pinion_buffer_slice(buf, 4096, 8192, BOTH, &part));
	fd = pinion_buffer_export(part);
	ck_assert(slice ? fd >= 0 : fd == -EOPNOTSUPP);
	if (fd >= 0)
		close(fd);
	ck_assert_int_eq(pinion_buffer_send(part, sock[0], PINION_READ), slice ? 0 : -EOPNOTSUPP);
	ck_assert_int_eq(pinion_buffer_send(part, sock[0], BOTH), slice ? 0 : -EOPNOTSUPP);
	if (slice) {
		ck_ok(pinion_buffer_recv(ctx, sock[1], &got));
		ck_assert_uint_eq(pinion_buffer_size(got), 8192);
		pinion_buffer_unref(got);
	} else {
		ck_assert_ptr_nonnull(strstr(pinion_error(), "slice"));
		/* Sealing is of the whole, and takes the right of the slices too. */
		ck_assert_int_eq(pinion_buffer_seal(part), -EOPNOTSUPP);
		ck_ok(pinion_buffer_seal(buf));
		ck_assert_int_eq(pinion_buffer_map(part, BOTH, &(void *){ NULL }), -EPERM);
		ck_ok(pinion_buffer_seal(part));
	}
	pinion_buffer_unref(part);
	pinion_buffer_unref(buf);
	close(sock[0]);
	close(sock[1]);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_slice_of_all_with_the_rights_there_are_is_had_on_every_ground)
{
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 8192), *twin = NULL, *reader = NULL;
	struct pinion_buffer_info info = { .size = sizeof(info) };
	uint64_t bytes = pinion_buffer_size(buf);
	char *w, *r;

	ck_ok(pinion_buffer_slice(buf, 0, bytes, BOTH, &twin));
	ck_ok(pinion_buffer_map(twin, BOTH, (void **)&w));
	w[1] = 't';
	ck_ok(pinion_buffer_unmap(twin, BOTH));
	pinion_buffer_unref(twin);
	twin = NULL;
	pinion_buffer_unref(buf);
	buf = buffer(ctx, 8192);
	ck_ok(pinion_buffer_map(buf, BOTH, (void **)&w));
	w[1] = 't';
	ck_ok(pinion_buffer_seal(buf));
	ck_assert_int_eq(pinion_buffer_slice(buf, 0, bytes, BOTH, &twin), -EPERM);
	ck_ok(pinion_buffer_slice(buf, 0, bytes, PINION_READ, &reader));
	pinion_buffer_unref(buf);
	ck_ok(pinion_buffer_info(reader, &info));
	ck_assert_uint_eq(info.rights, PINION_READ);
	ck_ok(pinion_buffer_map(reader, PINION_READ, (void **)&r));
	ck_assert_int_eq(r[1], 't');
	pinion_buffer_unref(reader);
	pinion_close(ctx);
}
END_TEST

START_TEST(a_slice_outside_the_buffer_is_refused)
{
	static const struct {
		uint64_t offset, bytes;
		uint32_t rights;
	} wrong[] = { { 0, 0, BOTH },	 { 1, 4096, BOTH },	  { 0, 4095, BOTH },	  { 8192, 4096, BOTH }, { 4096, 8192, BOTH },
		      { 0, 12288, BOTH }, { UINT64_MAX - 4095, 8192, BOTH }, { 4096, UINT64_MAX - 4095, BOTH }, { 0, 4096, 0 },
		      { 0, 4096, PINION_WRITE }, { 0, 4096, 8 | BOTH } };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = buffer(ctx, 8192), *out = (void *)1;

	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_int_eq(pinion_buffer_slice(buf, wrong[i].offset, wrong[i].bytes, wrong[i].rights, &out), -EINVAL);
	ck_assert_ptr_eq(out, (void *)1);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

/* ---- grounds ----------------------------------------------------------------------------------------------------- */

START_TEST(a_ground_is_had_or_refused_with_the_reason)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_open_opts opts = { .size = sizeof(opts), .ground = "memfd" };
	struct pinion_context *ctx = NULL;
	bool module;
	int ret;

	ck_ok(pinion_open(&opts, &ctx));
	ck_ok(pinion_context_info(ctx, &info));
	ck_assert_str_eq(info.ground, "memfd");
	ck_assert_str_ne(info.ground_why, "");
	pinion_close(ctx);
	opts.ground = "auto";
	ck_ok(pinion_open(&opts, &ctx));
	module = on_module(ctx);
	ck_ok(pinion_context_info(ctx, &info));
	ck_assert(module ? !*info.ground_why : *info.ground_why != 0);
	pinion_close(ctx);
	ctx = NULL;
	opts.ground = "kmod";
	ret = pinion_open(&opts, &ctx);
	if (module) {
		ck_ok(ret);
		pinion_close(ctx);
		ctx = NULL;
	} else {
		ck_assert_msg(ret == -ENODEV || ret == -EACCES || ret == -EPROTO, "%d", ret);
		ck_assert_ptr_nonnull(strstr(pinion_error(), "module"));
	}
	opts.ground = "moon";
	ck_assert_int_eq(pinion_open(&opts, &ctx), -EINVAL);
	ck_assert_ptr_null(ctx);
	setenv("PINION_GROUND", "memfd", 1);
	ck_ok(pinion_open(NULL, &ctx));
	ck_assert(!on_module(ctx));
	pinion_close(ctx);
}
END_TEST

/* ---- huge pages -------------------------------------------------------------------------------------------------- */

START_TEST(huge_pages_are_had_or_refused_with_the_reason)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = PINION_PAGES_HUGE };
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_buffer_info bi = { .size = sizeof(bi) };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;
	int ret;

	ck_ok(pinion_context_info(ctx, &info));
	if (!info.huge_size) {
		ret = pinion_buffer_alloc(ctx, 1, &opts, &buf);
		if (ret) {
			ck_assert_int_eq(ret, -EOPNOTSUPP);
			ck_assert_ptr_nonnull(strstr(pinion_error(), info.huge_why));
		} else {
			/* A pool has some for a while, which is the machine's. */
			ck_ok(pinion_buffer_info(buf, &bi));
			ck_assert_int_eq(bi.pages, PINION_PAGES_2M);
			pinion_buffer_unref(buf);
		}
		pinion_close(ctx);
		SKIP("%s", info.huge_why);
	}
	ck_ok(pinion_buffer_alloc(ctx, 2 * info.huge_size + 1, &opts, &buf));
	ck_ok(pinion_buffer_info(buf, &bi));
	ck_assert_uint_eq(bi.page_size, info.huge_size);
	ck_assert_uint_eq(bi.bytes, 3 * (uint64_t)info.huge_size);
	ck_assert_uint_le(bi.huge_bytes, bi.bytes);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

START_TEST(small_pages_can_be_asked_for)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = PINION_PAGES_SMALL };
	struct pinion_buffer_info info = { .size = sizeof(info) };
	struct pinion_context *ctx = context();
	struct pinion_buffer *buf = NULL;

	ck_ok(pinion_buffer_alloc(ctx, 4 * MIB + 1, &opts, &buf));
	ck_ok(pinion_buffer_info(buf, &info));
	ck_assert_uint_eq(info.page_size, sysconf(_SC_PAGESIZE));
	ck_assert_uint_eq(info.bytes, 4 * MIB + info.page_size);
	ck_assert_uint_eq(info.huge_bytes, 0);
	pinion_buffer_unref(buf);
	pinion_close(ctx);
}
END_TEST

/* ---- death ------------------------------------------------------------------------------------------------------- */

static void hold_and_wait(int ready)
{
	struct pinion_ticket ticket = { 0 };
	struct pinion_context *ctx;
	struct pinion_device *dev;
	struct pinion_buffer *buf;
	void *addr;

	if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, "killed", NULL, &dev) ||
	    pinion_work_begin(dev, 1, &ticket) || pinion_buffer_alloc(ctx, 2 * MIB, NULL, &buf) ||
	    pinion_buffer_map(buf, BOTH, &addr))
		_exit(1);
	memset(addr, 0xa5, 2 * MIB);
	if (write(ready, "r", 1) != 1)
		_exit(2);
	for (;;)
		pause();
}

static void kill_owners(struct pinion_device *dev, unsigned int owners)
{
	uint32_t n;

	for (; owners; owners--) {
		int ready[2];
		pid_t pid;
		char c;

		ck_assert_int_eq(pipe(ready), 0);
		pid = fork();
		if (!pid)
			hold_and_wait(ready[1]);
		close(ready[1]);
		ck_assert_int_eq(read(ready[0], &c, 1), 1);
		close(ready[0]);
		kill(pid, SIGKILL);
		ck_assert_int_eq(reap(pid), -SIGKILL);
		ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
		ck_assert_uint_eq(n, 0);
	}
}

/* 2 GiB that stay, or a part of a hundred of them. */
START_TEST(a_thousand_killed_owners_leave_no_memory_no_count_and_no_file)
{
	struct pinion_context *ctx = context();
	struct pinion_device *dev;
	struct dirent *ent;
	bool back = false;
	DIR *d;

	ck_ok(pinion_device_add(ctx, "killed", NULL, &dev));
	for (int i = 0; i < MEMORY_TRIES && !back; i++) {
		struct memory before = memory_now();

		kill_owners(dev, test_rounds(1000));
		back = memory_is_back(before, 16 * MIB);
	}
	ck_assert(back);
	d = opendir(test_tmp());
	while ((ent = readdir(d)))
		ck_assert_msg(ent->d_name[0] == '.' || !strcmp(ent->d_name, "counters.1"), "%s", ent->d_name);
	closedir(d);
	pinion_close(ctx);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("buffer");
	TCase *death = tcase_create("death"), *size = tcase_create("size"), *map = tcase_create("map"),
	      *seal = tcase_create("seal"), *hold = tcase_create("hold"), *slices = tcase_create("slices and grounds");

	tcase_add_test(slices, a_slice_shows_its_part_with_its_rights);
	tcase_add_test(slices, a_slice_of_a_slice_lives_on_without_either);
	tcase_add_test(slices, a_slice_is_handed_out_where_its_descriptor_is_no_right_to_more);
	tcase_add_test(slices, a_slice_of_all_with_the_rights_there_are_is_had_on_every_ground);
	tcase_add_test(slices, a_slice_outside_the_buffer_is_refused);
	tcase_add_test(slices, pinned_is_had_on_the_module_alone);
	tcase_add_test(slices, a_ground_is_had_or_refused_with_the_reason);
	suite_add_tcase(s, slices);
	tcase_set_timeout(death, 200);
	tcase_add_test(death, a_thousand_killed_owners_leave_no_memory_no_count_and_no_file);
	suite_add_tcase(s, death);
	tcase_set_timeout(size, 30);
	tcase_add_test(size, a_size_is_rounded_to_the_page_in_use_and_no_further);
	tcase_add_test(size, sizes_that_cannot_be_are_refused);
	tcase_add_test(size, more_than_there_is_names_what_there_is);
	tcase_add_test(size, a_cgroup_that_is_short_is_named_and_nobody_is_killed);
	tcase_add_test(size, options_are_checked);
	suite_add_tcase(s, size);
	tcase_set_timeout(map, 120);
	tcase_add_test(map, every_page_is_present_and_zero);
	tcase_add_test(map, mappings_nest);
	tcase_add_test(map, a_buffer_outlives_its_context);
	tcase_add_test(map, the_label_is_shown_in_maps);
	tcase_add_test(map, mappings_are_valid_in_a_forked_child);
	tcase_add_test(map, ten_thousand_buffers_leave_nothing);
	tcase_add_test(map, a_buffer_may_be_made_where_memory_files_must_not_be_executable);
	suite_add_tcase(s, map);
	tcase_set_timeout(seal, 30);
	tcase_add_test(seal, nobody_can_make_a_writer_of_a_sealed_buffer);
	tcase_add_test(seal, a_seal_takes_back_what_was_handed_out_or_says_that_it_cannot);
	tcase_add_test(seal, sealing_at_once_leaves_no_writable_mapping);
	tcase_add_test(seal, a_writable_mapping_that_exists_works_on_after_the_seal);
	tcase_add_test(seal, a_child_may_map_a_buffer_that_another_thread_was_at);
	suite_add_tcase(s, seal);
	tcase_set_timeout(hold, 30);
	tcase_add_test(hold, little_memlock_is_said_and_not_hidden);
	tcase_add_test(hold, a_hold_is_what_it_says);
	tcase_add_test(hold, more_than_io_uring_takes_at_once_is_registered_in_parts);
	tcase_add_test(hold, huge_pages_are_had_or_refused_with_the_reason);
	tcase_add_test(hold, small_pages_can_be_asked_for);
	suite_add_tcase(s, hold);
	return s;
}

PINION_TEST_MAIN(suite)
