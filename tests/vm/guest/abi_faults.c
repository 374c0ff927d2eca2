// SPDX-License-Identifier: MIT
/*
 * Every step that can fail does so once, and the last descriptor is gone once, for every call: what was there before is there
 * after. The module is built with fail_nth for this.
 */
#define _GNU_SOURCE
#include "calls.h"
#include "vgem.h"

#include <sys/resource.h>

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
	given_close(&start);
	return tap_end();
}
