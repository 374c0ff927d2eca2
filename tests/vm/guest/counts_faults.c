// SPDX-License-Identifier: MIT
/*
 * Every step that can fail does so once, and the last descriptor is gone once, for every call about devices and counts, for open
 * and for each mapping: what was there before is there after. The module is built with fail_nth for this.
 */
#define _GNU_SOURCE
#include "counts_calls.h"

#include <poll.h>
#include <sys/resource.h>

/* Steps of a call, at most: more is a loop that does not end. */
#define STEPS 500

/* prepare: before failures are switched on; run: 0 or -errno; undo: what run() made when it worked; tidy: what prepare() made. */
struct attempt {
	const char *name;
	void (*prepare)(void);
	int (*run)(const struct attempt *a);
	void (*undo)(const struct attempt *a);
	void (*tidy)(void);
	const struct call *call;
	uint32_t flags;
};

static union args made;
static int fresh, watch;
static uint64_t session; /* of given.dev */
static void *at;

static int run_call(const struct attempt *a)
{
	int dev = a->flags ? given.read_only : given.dev;

	memset(&made, 0, sizeof(made));
	a->call->make(&made);
	return dev_call(dev, a->call->cmd, &made);
}

static void undo_call(const struct attempt *a)
{
	call_undo(a->call, &made);
}

/* ---- what is no call of the list, or is one with a session that has nothing yet ---------------------------------------- */

static int run_open(const struct attempt *a)
{
	(void)a;
	fresh = dev_open(O_RDWR);
	return fresh < 0 ? fresh : 0;
}

static void undo_open(const struct attempt *a)
{
	(void)a;
	close(fresh);
}

static void open_fresh(void)
{
	fresh = dev_open(O_RDWR);
	expect(fresh, 0, "open");
}

static void close_fresh(void)
{
	close(fresh);
}

static int run_first_attach(const struct attempt *a)
{
	make_attach(&made);
	if (a->flags) {
		made.attach.flags = a->flags;
		made.attach.completed_fd = given.buffer;
	}
	return dev_call(fresh, PINION_IOC_ATTACH, &made);
}

static void undo_first_attach(const struct attempt *a)
{
	struct pinion_info info;

	(void)a;
	expect(dev_info(fresh, &info), 0, "INFO");
	if (!info.session)
		wrong("the session that worked has no number");
}

static int run_map(const struct attempt *a)
{
	int dev = a->flags ? given.read_only : fresh;
	uint64_t offset = PINION_MMAP_COUNTERS;

	if (!strcmp(a->name, "mmap of the window"))
		offset = PINION_MMAP_WINDOW + session * PAGE;
	at = mmap(NULL, PAGE, a->flags ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, dev, offset);
	return at == MAP_FAILED ? -errno : 0;
}

static void undo_map(const struct attempt *a)
{
	(void)a;
	munmap(at, PAGE);
}

static void prepare_watch(void)
{
	watch = dev_watch(given.dev, &given.device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 100);
	expect(watch, 0, "WATCH");
}

/* It stays readable until somebody has read it. */
static int run_watch_read(const struct attempt *a)
{
	struct pollfd poller = { .fd = watch, .events = POLLIN };
	struct pinion_event event;
	ssize_t n;

	(void)a;
	if (poll(&poller, 1, 0) != 1)
		wrong("the watch is not readable any more");
	n = read(watch, &event, sizeof(event));
	return n < 0 ? -errno : n == sizeof(event) ? 0 : -EIO;
}

static void tidy_watch(void)
{
	close(watch);
}

static int run_read_many(const struct attempt *a)
{
	static struct pinion_reading row[5];
	struct pinion_read r = { .size = sizeof(r), .rows = (uintptr_t)row, .count = 5, .row_size = sizeof(row[0]) };

	(void)a;
	for (int i = 0; i < 5; i++)
		row[i].index = given.device.index;
	return dev_call(given.read_only, PINION_IOC_READ, &r);
}

/* A key that is there: nothing new is made. */
static int run_find(const struct attempt *a)
{
	struct pinion_dev out;
	int ret = dev_add(fresh, "given", &out);

	(void)a;
	return ret;
}

/* ---- the sweep ---------------------------------------------------------------------------------------------------------- */

/* The open of its own has no session where its first call failed. */
static void no_session(const struct attempt *a)
{
	struct pinion_info info;

	if (a->prepare != open_fresh)
		return;
	expect(dev_info(fresh, &info), 0, "INFO");
	if (info.session)
		wrong("session %llu after a failure", info.session);
}

static void sweep(const struct attempt *a)
{
	struct counts_state start = counts_now(given.dev);
	unsigned int n, failed = 0;

	for (n = 1; n < STEPS; n++) {
		struct counts_state was;
		uint64_t left;
		int ret;

		if (a->prepare)
			a->prepare();
		was = counts_now(given.dev);
		if (!parameter_set("fail_nth", n))
			break;
		ret = a->run(a);
		left = file_number(PARAMETER "fail_nth");
		parameter_set("fail_nth", 0);
		if (ret && ret != -ENOMEM && ret != -EFAULT && ret != -EMFILE && ret != -ENFILE)
			wrong("step %u: %s", n, strerror(-ret));
		failed += !!ret;
		if (ret)
			no_session(a);
		else if (a->undo)
			a->undo(a);
		if ((ret || !a->prepare) && !counts_same(given.dev, &was))
			printf("# %s: after step %u (%d)\n", a->name, n, ret);
		if (a->tidy)
			a->tidy();
		if (*state_wrong || left)
			break;
		if (!ret)
			wrong("step %u failed and the call did not", n);
	}
	if (n == STEPS)
		wrong("no end after %d steps", STEPS);
	if (!failed)
		wrong("nothing failed");
	counts_same(given.dev, &start);
	printf("# %s: %u steps\n", a->name, failed);
	point(a->name, "each step fails in turn");
}

/* No descriptor is left: every call that makes one says so and keeps nothing. */
static void no_descriptor(void)
{
	struct counts_state was = counts_now(given.dev);
	struct rlimit limit, none;

	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = was.state.free_fd;
	for
		EACH_CALL(c)
		{
			union args a = { 0 }, copy;
			int ret;

			c->make(&a);
			copy = a;
			setrlimit(RLIMIT_NOFILE, &none);
			ret = dev_call(given.dev, c->cmd, &a);
			setrlimit(RLIMIT_NOFILE, &limit);
			expect(ret, c->fd ? -EMFILE : 0, "%s", c->name);
			if (!ret)
				call_undo(c, &a);
			if (c->fd && memcmp(&a, &copy, sizeof(a)))
				wrong("%s: the struct was written to", c->name);
			counts_same(given.dev, &was);
		}
	point("no descriptor left", "EMFILE of every call that makes one");
}

int main(void)
{
	const struct attempt more[] = {
		{ "open", NULL, run_open, undo_open, NULL, NULL, 0 },
		{ "DEV_ADD of what is there", open_fresh, run_find, NULL, close_fresh, NULL, 0 },
		{ "a first ATTACH", open_fresh, run_first_attach, undo_first_attach, close_fresh, NULL, 0 },
		{ "a first ATTACH to a buffer", open_fresh, run_first_attach, undo_first_attach, close_fresh, NULL,
		  PINION_ATTACH_COMPLETED_FD },
		{ "mmap of counters", open_fresh, run_map, undo_map, close_fresh, NULL, 0 },
		{ "mmap of the window", NULL, run_map, undo_map, NULL, NULL, 1 },
		{ "read of a watch", prepare_watch, run_watch_read, NULL, tidy_watch, NULL, 0 },
		{ "READ of five", NULL, run_read_many, NULL, NULL, NULL, 0 },
	};

	if (!given_open())
		return tap_end();
	session = state_now(given.dev).info.session;
	no_descriptor();
	for
		EACH_CALL(c)
		{
			const struct attempt a = { c->name, NULL, run_call, undo_call, NULL, c, 0 };
			char name[64];

			sweep(&a);
			if (!c->writes) {
				struct attempt b = a;

				snprintf(name, sizeof(name), "%s of a read-only open", c->name);
				b.name = name;
				b.flags = 1;
				sweep(&b);
			}
		}
	for (unsigned int i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		sweep(&more[i]);
	given_close();
	nothing_left();
	return tap_end();
}
