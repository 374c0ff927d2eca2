// SPDX-License-Identifier: MIT
/*
 * Every step that can fail does so once, and the last descriptor is gone once, for every call: what was there before is there
 * after. The module is built with fail_nth for this. As "abi_faults kernel" it is the kernel's own steps that fail, all that ask
 * for memory or copy on the way of a call, a mapping, a fault, a fork and an attachment; as "abi_faults load", on that of loading
 * the module.
 */
#define _GNU_SOURCE
#include "calls.h"
#include "fail.h"
#include "import.h"
#include "mem.h"
#include "vgem.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Steps of a call, at most: more is a loop that does not end. */
#define STEPS 5000

/* Of the kernel's steps for this thread; -1: the module's own fail. */
static int kernel_fails = -1;

static bool arm(unsigned int nth)
{
	if (kernel_fails < 0)
		return parameter_set("fail_nth", nth);
	return fail_arm(kernel_fails, nth) || expect(-errno, 0, "fail-nth = %u", nth);
}

/* No step fails from now on; how many were still to come. */
static uint64_t disarm(void)
{
	uint64_t left;

	if (kernel_fails >= 0)
		return fail_end(kernel_fails);
	left = file_number(PARAMETER "fail_nth");
	parameter_set("fail_nth", 0);
	return left;
}

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

		if (!arm(n))
			break;
		ret = a->run(a);
		left = disarm();
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
	/* INFO has a step only where copies may fail. */
	if (!failed && (kernel_fails < 0 || n > 1))
		wrong("nothing failed");
	expect(a->run(a), 0, "without a failure");
	state_same(given.dev, &was);
	printf("# %s: %u of %u failures were the caller's\n", a->name, failed, n - 1);
	point(a->name, kernel_fails < 0 ? "each step fails in turn" : "each step of the kernel fails in turn");
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

/* ---- what only the kernel can fail ---------------------------------------------------------------------------------- */

static int large;   /* a buffer of a huge page */
static char *place; /* where it may be mapped, as a huge page */

/* Maps, touches, takes a page out of the middle, unmaps. */
static int run_map(const struct attempt *a)
{
	char *at = mmap(place, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, large, 0);
	int ret = 0;

	if (at == MAP_FAILED)
		return -errno;
	if (a->flags && madvise(at, a->bytes, a->flags))
		ret = -errno;
	for (uint64_t i = 0; i < a->bytes; i += a->bytes / 4)
		*(volatile char *)(at + i) = 1;
	if (munmap(at + PAGE, PAGE))
		ret = -errno;
	/* One step has failed by now, or none will. */
	while (munmap(at, a->bytes))
		ret = -errno;
	return ret;
}

/* A child has what is mapped, or none of it. */
static int run_fork(const struct attempt *a)
{
	pid_t pid = fork();

	(void)a;
	if (!pid)
		_exit(*(volatile char *)place - 1);
	return pid < 0 ? -errno : mem_wait(pid) ? -EIO : 0;
}

static int run_device(const struct attempt *a)
{
	int fd = import_by(0, large, IMPORTER_BOTH_WAYS, a->flags);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int look(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = fd < 0 ? -errno : 0;
	char text[512];

	if (fd >= 0 && read(fd, text, sizeof(text)) < 0)
		ret = -errno;
	if (fd >= 0)
		close(fd);
	return ret;
}

static int run_look(const struct attempt *a)
{
	char path[64];
	int ret = look("/sys/kernel/debug/pinion/buffers");

	(void)a;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", given.buffer);
	ret = ret ? ret : look(path);
	return ret ? ret : look("/sys/class/misc/pinion/bytes");
}

static int try_module(void)
{
	int dev = dev_open(O_RDWR), fd = dev < 0 ? dev : dev_alloc(dev, PAGE, 0);

	if (dev >= 0)
		close(dev);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* A module that does not load leaves nothing, one that loads all the same works. Nothing holds it. */
static void sweep_load(void)
{
	unsigned int n = 0, failed = 0;
	uint64_t left = 0;

	if (access(PARAMETER "coverage", F_OK) == 0) {
		tap_skip("the module goes and comes back", "what ran is read from the module later");
		return;
	}
	expect(module_remove(), 0, "delete_module");
	while (!left && !*state_wrong && n < STEPS && arm(++n)) {
		int ret = module_insert();

		left = disarm();
		failed += !!ret;
		if (ret && ret != -ENOMEM && ret != -EFAULT && ret != -ENFILE)
			wrong("step %u: %s", n, strerror(-ret));
		if (!ret) {
			expect(try_module(), 0, "ALLOC after step %u", n);
			expect(module_remove(), 0, "delete_module after step %u", n);
		}
		if (!access(PINION_DEVICE, F_OK) || !access("/sys/module/pinion", F_OK))
			wrong("something is left after step %u", n);
	}
	if (!left || !failed)
		wrong("%u failed in %u steps", failed, n);
	expect(module_insert(), 0, "the module comes back");
	printf("# loading: %u of %u failures were the caller's\n", failed, n - 1);
	point("loading", "each step of the kernel fails in turn");
}

static void all_of_the_kernel(void)
{
	const struct attempt maps[] = {
		{ "mapping and touching", run_map, NULL, 4 * PAGE, 0 },
		{ "mapping and populating", run_map, NULL, 4 * PAGE, MADV_POPULATE_WRITE },
		{ "mapping and touching a huge page", run_map, NULL, HUGE, 0 },
		{ "looking from outside", run_look, NULL, 0, 0 },
	};
	const struct attempt forks = { "fork", run_fork, NULL, 0, 0 };
	const struct attempt devices[] = {
		{ "attachment by a device", run_device, NULL, 0, 0 },
		{ "attachment by a device that could follow", run_device, NULL, 0, IMPORTER_DYNAMIC },
	};

	large = dev_alloc(given.dev, HUGE, 0);
	place = dev_map_aligned(large, HUGE, PROT_READ | PROT_WRITE);
	if (!expect(large, 0, "ALLOC") || place == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	munmap(place, HUGE);
	for (unsigned int i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
		sweep(&maps[i]);
	if (mmap(place, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, large, 0) != place)
		wrong("mmap: %s", strerror(errno));
	else
		*place = 1;
	sweep(&forks);
	munmap(place, HUGE);
	for (unsigned int i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		if (import_is_there())
			sweep(&devices[i]);
	close(large);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------ */

static bool kernel_opens(void)
{
	fail_prepare();
	kernel_fails = fail_open();
	return tap_ok(kernel_fails >= 0, "fault injection", "%s", strerror(-kernel_fails));
}

static void all_calls(void)
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
}

/* abi_faults [kernel | load] */
int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	bool kernel = *mode;
	struct state start;
	uint64_t was;
	int dev;

	if (kernel && !kernel_opens())
		return tap_end();
	was = mem_free();
	if (!strcmp(mode, "load")) {
		sweep_load();
	} else {
		dev = dev_open(O_RDWR);
		if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
			return tap_end();
		start = state_now(dev);
		close(dev);
		if (!given_open())
			return tap_end();
		if (!kernel)
			no_descriptor();
		all_calls();
		if (kernel)
			all_of_the_kernel();
		else
			all_killed();
		given_close(&start);
	}
	if (!mem_free_again(was, 12 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("end", "memory is back");
	return tap_end();
}
