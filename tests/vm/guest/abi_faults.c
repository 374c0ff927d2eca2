// SPDX-License-Identifier: MIT
/*
 * Every step that can fail does so once, and the last descriptor is gone once, for every call: what was there before is there
 * after. The module is built with fail_nth for this.
 */
#define _GNU_SOURCE
#include "calls.h"
#include "vgem.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Steps of a call, at most: more is a loop that does not end. */
#define STEPS 5000

/* 0 and what was made is undone, or -errno. */
struct attempt {
	const char *name;
	int (*run)(const struct attempt *a);
	const struct call *call;
	uint64_t bytes;
	uint32_t flags;
};

static int run_call(const struct attempt *a)
{
	union args args = { 0 };
	int ret;

	a->call->make(&args);
	ret = dev_call(given.dev, a->call->cmd, &args);
	if (!ret)
		call_undo(a->call, &args);
	return ret;
}

static int run_alloc(const struct attempt *a)
{
	int fd = dev_alloc(given.dev, a->bytes, a->flags);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int run_open(const struct attempt *a)
{
	int fd = dev_open(O_RDWR);

	(void)a;
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int vgem;

static int run_import(const struct attempt *a)
{
	uint32_t handle = 0;
	int ret = vgem_import(vgem, given.buffer, &handle);

	(void)a;
	return ret ? ret : vgem_drop(vgem, handle);
}

static int run_list_read_only(const struct attempt *a)
{
	union args args = { 0 };

	(void)a;
	make_list(&args);
	return dev_call(given.read_only, PINION_IOC_LIST, &args);
}

static void sweep(const struct attempt *a)
{
	struct state was = state_now(given.dev);
	unsigned int n, failed = 0;

	for (n = 1; n < STEPS; n++) {
		uint64_t left;
		int ret;

		if (!parameter_set("fail_nth", n))
			break;
		ret = a->run(a);
		left = file_number(PARAMETER "fail_nth");
		parameter_set("fail_nth", 0);
		if (ret && ret != -ENOMEM && ret != -EFAULT && ret != -EMFILE && ret != -ENFILE)
			wrong("step %u: %s", n, strerror(-ret));
		failed += !!ret;
		if (!state_same(given.dev, &was))
			fprintf(stderr, "%s: after step %u\n", a->name, n);
		if (*state_wrong || left)
			break;
	}
	if (n == STEPS)
		wrong("no end after %d steps", STEPS);
	if (!failed)
		wrong("nothing failed");
	expect(a->run(a), 0, "without a failure");
	state_same(given.dev, &was);
	point(a->name, "each step fails in turn");
}

/* No descriptor is left: every call that makes one says so and keeps nothing. */
static void no_descriptor(void)
{
	struct state was = state_now(given.dev);
	struct rlimit limit, none;

	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = was.free_fd;
	for
		EACH_CALL(c)
		{
			struct pinion_info before = was.info, after;
			union args a = { 0 }, copy;

			if (!call_exists(c))
				continue;
			c->make(&a);
			copy = a;
			setrlimit(RLIMIT_NOFILE, &none);
			expect(dev_call(given.dev, c->cmd, &a), c->fd ? -EMFILE : 0, "%s", c->name);
			expect(dev_info(given.dev, &after), 0, "INFO");
			setrlimit(RLIMIT_NOFILE, &limit);
			if (c->fd && memcmp(&a, &copy, sizeof(a)))
				wrong("%s: the struct was written to", c->name);
			if (before.bytes != after.bytes || before.buffers != after.buffers)
				wrong("%s: %llu bytes and %llu buffers, not %llu and %llu", c->name, after.bytes, after.buffers,
				      before.bytes, before.buffers);
			state_same(given.dev, &was);
		}
	point("no descriptor left", "EMFILE of every call that makes one");
}

/* ---- death ---------------------------------------------------------------------------------------------------------- */

#define KILLED_BYTES (8UL << 20)
#define KILLS	     24

static int large_range(void)
{
	static void *range;

	if (!range)
		range = mmap(NULL, KILLED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	return dev_pin(given.dev, range, KILLED_BYTES);
}

static int large_memfd(void)
{
	int memfd = memfd_create("pinion-test", MFD_CLOEXEC | MFD_ALLOW_SEALING), fd;

	if (ftruncate(memfd, KILLED_BYTES) || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		return -errno;
	fd = dev_pin_fd(given.dev, memfd, 0, KILLED_BYTES, NULL);
	close(memfd);
	return fd;
}

static int large_alloc(void)
{
	return dev_alloc(given.dev, KILLED_BYTES, PINION_ALLOC_HUGE_NEVER);
}

static int large_shmem(void)
{
	return dev_alloc(given.dev, KILLED_BYTES, PINION_ALLOC_SHMEM);
}

/* A child makes large buffers until it is killed, at another moment each time. */
static void killed(const char *name, int (*large)(void))
{
	struct state was = state_now(given.dev);
	int status, ready[2];
	char byte;

	for (unsigned int i = 0; i < KILLS; i++) {
		pid_t pid;

		if (pipe2(ready, O_CLOEXEC))
			wrong("pipe: %s", strerror(errno));
		pid = fork();
		for (bool first = true; !pid; first = false) {
			int fd = large();

			if (fd < 0 || (first && write(ready[1], "", 1) != 1))
				_exit(1);
			close(fd);
		}
		close(ready[1]);
		if (read(ready[0], &byte, 1) != 1)
			wrong("the first failed");
		close(ready[0]);
		usleep(i * 500);
		kill(pid, SIGKILL);
		if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			wrong("the child ended with %x", status);
		state_same(given.dev, &was);
	}
	point(name, "killed at any moment leaves nothing");
}

static void all_killed(void)
{
	struct pinion_info info;

	killed("ALLOC", large_alloc);
	killed("PIN", large_range);
	killed("PIN of a memfd", large_memfd);
	expect(dev_info(given.dev, &info), 0, "INFO");
	if (info.features & PINION_FEATURE_SHMEM)
		killed("ALLOC of SHMEM", large_shmem);
}

int main(void)
{
	const struct attempt more[] = {
		{ "open", run_open, NULL, 0, 0 },
		{ "ALLOC of huge, middle and single pages", run_alloc, NULL, HUGE + 16 * PAGE + 3 * PAGE, 0 },
		{ "ALLOC of huge pages only", run_alloc, NULL, 2 * HUGE, PINION_ALLOC_HUGE_REQUIRE },
		{ "ALLOC of more pages than were thought", run_alloc, NULL, 3 * HUGE, PINION_ALLOC_HUGE_NEVER },
		{ "ALLOC to be wiped", run_alloc, NULL, 40 * PAGE, PINION_ALLOC_WIPE_ON_FREE },
		{ "LIST of a read-only open", run_list_read_only, NULL, 0, 0 },
	};
	const struct attempt import = { "import by a device", run_import, NULL, 0, 0 };
	struct state start;
	int dev = dev_open(O_RDWR);

	if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
		return tap_end();
	start = state_now(dev);
	close(dev);
	if (!given_open())
		return tap_end();
	no_descriptor();
	vgem = vgem_open();
	for
		EACH_CALL(c)
		{
			const struct attempt a = { c->name, run_call, c, 0, 0 };

			if (call_exists(c))
				sweep(&a);
		}
	for (unsigned int i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		sweep(&more[i]);
	if (vgem >= 0)
		sweep(&import);
	else
		tap_skip("import by a device", "this kernel has no vgem");
	if (vgem >= 0)
		close(vgem);
	all_killed();
	given_close(&start);
	return tap_end();
}
