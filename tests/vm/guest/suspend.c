// SPDX-License-Identifier: MIT
/*
 * Suspend with everything in use: the freezer alone, then devices too, then processors, then for real to memory, woken by the
 * clock. Nothing of the module holds up the freezer, buffers keep their bytes, counts stay exact and sessions live, whoever
 * waits goes on waiting, and deadlines stand still.
 */
#define _GNU_SOURCE
#include "counting.h"
#include "ring.h"

#include <pthread.h>
#include <stddef.h>

#define BYTES	   (4 * MIB)
#define BUFFERS	   5
#define SECONDS	   10 /* from the alarm's setting to it; the way into sleep takes most of one */
#define DEADLINE_S 3  /* of a wait meanwhile */

static int dev, claim;
static struct pinion_dev device, moving;

/* ---- the machine --------------------------------------------------------------------------------------------------- */

static const struct level {
	const char *name, *test, *state;
} levels[] = {
	{ "freezer", "freezer", "freeze" },
	{ "devices", "devices", "freeze" },
	{ "processors", "core", "mem" },
	{ "to memory", "none", "mem" },
};

#define LEVELS ((int)(sizeof(levels) / sizeof(levels[0])))

#define RTC    "/sys/class/rtc/rtc0/"
#define POWER  "/sys/power/"

/* False: it did not come to that. A test of a level lasts as long as the module parameter says; a real one until the alarm. */
static bool suspend(const struct level *level)
{
	bool real = !strcmp(level->test, "none");
	char text[32];

	expect(file_put(POWER "pm_test", level->test), 0, "pm_test");
	if (real) {
		snprintf(text, sizeof(text), "+%d", SECONDS);
		file_put(RTC "wakealarm", "0");
		expect(file_put(RTC "wakealarm", text), 0, "the alarm");
	}
	return expect(file_put(POWER "state", level->state), 0, "suspend %s", level->name);
}

static int64_t asleep_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec - now_ns();
}

/* ---- buffers ------------------------------------------------------------------------------------------------------- */

static struct {
	int fd;
	uint64_t *at;
} buffer[BUFFERS];

/* Of each kind that this kernel has. */
static void make_buffers(void)
{
	int memfd = memfd_create("suspend", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *range = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (ftruncate(memfd, BYTES) || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		wrong("memfd: %s", strerror(errno));
	expect(buffer[0].fd = dev_alloc(dev, BYTES, 0), 0, "ALLOC");
	expect(buffer[1].fd = dev_alloc(dev, BYTES, PINION_ALLOC_HUGE_NEVER), 0, "ALLOC of small pages");
	expect(buffer[2].fd = dev_pin_fd(dev, memfd, 0, BYTES, NULL), 0, "PIN of a memfd");
	expect(buffer[3].fd = dev_pin(dev, range, BYTES), 0, "PIN of a range");
	buffer[4].fd = dev_alloc(dev, BYTES, PINION_ALLOC_SHMEM);
	if (buffer[4].fd != -EOPNOTSUPP)
		expect(buffer[4].fd, 0, "ALLOC of shmem");
	for (int i = 0; i < BUFFERS; i++) {
		if (buffer[i].fd < 0)
			continue;
		buffer[i].at = i == 3 ? range : dev_map(buffer[i].fd, BYTES, PROT_READ | PROT_WRITE);
		if ((void *)buffer[i].at == MAP_FAILED)
			wrong("mmap of buffer %d: %s", i, strerror(errno));
		else
			for (uint64_t k = 0; k < BYTES / 8; k++)
				buffer[i].at[k] = mix(k << 4 | i);
	}
	close(memfd);
}

static void check_buffers(void)
{
	for (int i = 0; i < BUFFERS; i++)
		for (uint64_t k = 0; buffer[i].fd >= 0 && k < BYTES / 8; k++)
			if (buffer[i].at[k] != mix(k << 4 | i)) {
				wrong("buffer %d, byte %lu: %lx", i, k * 8, buffer[i].at[k]);
				break;
			}
}

/* ---- who counts ---------------------------------------------------------------------------------------------------- */

#define BY_PAGE 3
#define BY_ADD	2
#define EACH	(BY_PAGE + BY_ADD)

/* A process with units in flight, until it is told to end them. One is killed before, in front of who waits. */
static struct client {
	pid_t pid;
	int talk; /* a byte: it has ended them */
	int order;
} client, victim;

static _Noreturn void client_run(int order, int talk)
{
	struct pinion_attach lane;
	uint32_t parity[BY_PAGE];
	int fd = dev_open(O_RDWR), added;
	struct pinion_counter_page *page = dev_counters(fd);
	char c = 1;

	if (page == MAP_FAILED || dev_attach(fd, &device, 100, &lane))
		_exit(1);
	for (int i = 0; i < BY_PAGE; i++)
		parity[i] = page_begin(page, &lane);
	added = dev_count(fd, lane.handle, BY_ADD, BY_ADD, PINION_PARITY_NOW);
	say(talk, &c, 1);
	if (read(order, &c, 1) != 1)
		_exit(2);
	for (int i = 0; i < BY_PAGE; i++)
		page_end(fd, page, &lane, parity[i]);
	c = added < 0 || dev_count(fd, lane.handle, -BY_ADD, -BY_ADD, added) < 0;
	say(talk, &c, 1);
	pause();
	_exit(3);
}

static void client_start(struct client *c)
{
	int order[2], talk[2];
	char there;

	if (pipe2(order, O_CLOEXEC) || pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	c->pid = fork();
	if (!c->pid)
		client_run(order[0], talk[1]);
	close(order[0]);
	close(talk[1]);
	c->order = order[1];
	c->talk = talk[0];
	hear(c->talk, &there, 1);
}

/* ---- what never stands still --------------------------------------------------------------------------------------- */

static struct {
	_Atomic int stop;
	_Atomic uint64_t rounds;
} * hammer;

/* Every call that makes or counts something, over and over. */
static _Noreturn void hammer_run(void)
{
	int fd = dev_open(O_RDWR), b, claim, parity;
	struct pinion_counter_page *page = dev_counters(fd);
	struct pinion_attach lane, other;
	struct pinion_reading row;

	if (page == MAP_FAILED || dev_attach(fd, &moving, 100, &lane))
		complain("the hammer: %s", strerror(errno));
	while (!atomic_load(&hammer->stop)) {
		uint32_t begun = page_begin(page, &lane);

		if ((parity = dev_count(fd, lane.handle, 1, 1, PINION_PARITY_NOW)) < 0)
			complain("ADD: %d", parity);
		if ((b = dev_alloc(fd, MIB, PINION_ALLOC_HUGE_NEVER | PINION_ALLOC_WIPE_ON_FREE)) < 0)
			complain("ALLOC: %d", b);
		if ((claim = dev_reserve(fd, &moving, PAGE, 1, 0)) < 0)
			complain("RESERVE: %d", claim);
		if (dev_reading(fd, &moving, &row) || row.low > 2 || row.high < 2 || row.claims != 1)
			complain("READ: %llu to %llu in flight, %u claims", row.low, row.high, row.claims);
		if (dev_attach(fd, &moving, 1, &other) || dev_handle(fd, PINION_IOC_DETACH, other.handle))
			complain("ATTACH and DETACH");
		close(claim);
		close(b);
		dev_count(fd, lane.handle, -1, -1, parity);
		page_end(fd, page, &lane, begun);
		atomic_fetch_add(&hammer->rounds, 1);
	}
	_exit(0);
}

/* ---- who waits ----------------------------------------------------------------------------------------------------- */

#define FOREVER (1LL << 62)

enum { SLEEP_READ, SLEEP_READ_TOO, SLEEP_POLL, SLEEPERS };

/* On a watch: one reads, one waits for its turn to read, one polls. And the waits of a ring. */
static struct {
	struct waiting pending, flush, sleeper[SLEEPERS];
	int watch;
	struct ring ring;
	struct pinion_wait in_ring;
	bool waits; /* this kernel has them */
} asleep;

static void sleeper_start(int which)
{
	struct waiting *w = &asleep.sleeper[which];
	struct pollfd p = { .fd = asleep.watch, .events = POLLIN };
	struct pinion_event event;
	int talk[2], ret;

	if (pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	w->pid = fork();
	if (!w->pid) {
		if (which == SLEEP_POLL)
			ret = poll(&p, 1, -1) == 1 ? p.revents : -errno;
		else
			ret = read(asleep.watch, &event, sizeof(event)) == sizeof(event) ? event.status : -errno;
		say(talk[1], &ret, sizeof(ret));
		_exit(0);
	}
	close(talk[1]);
	w->talk = talk[0];
	if (!until_asleep(w->pid))
		wrong("sleeper %d does not sleep", which);
}

static void ring_start(void)
{
	const struct pinion_uring_call payload = { .address = (uintptr_t)&asleep.in_ring };
	struct io_uring_sqe *sqe;
	struct pinion_info info;

	if (!expect(ring_open(&asleep.ring, 0), 0, "io_uring_setup") || !expect(dev_info(dev, &info), 0, "INFO"))
		return;
	asleep.waits = info.features & PINION_FEATURE_URING_WAIT;
	sqe = ring_next(&asleep.ring, IORING_OP_POLL_ADD, asleep.watch, 1);
	sqe->poll32_events = POLLIN;
	if (asleep.waits) {
		asleep.in_ring = (struct pinion_wait){ .size = sizeof(asleep.in_ring),
						       .index = device.index,
						       .scope = PINION_SCOPE_EVERY,
						       .generation = device.generation,
						       .cond = PINION_COND_PENDING_LE,
						       .deadline_ns = FOREVER };
		sqe = ring_next(&asleep.ring, IORING_OP_URING_CMD, dev, 2);
		sqe->cmd_op = PINION_URING_WAIT;
		memcpy((char *)sqe + offsetof(struct io_uring_sqe, addr3), &payload, sizeof(payload));
	}
	if (ring_submit(&asleep.ring) != 1 + asleep.waits)
		wrong("the ring takes not all");
}

static void waits_start(void)
{
	waiting_start(&asleep.pending, dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0, FOREVER);
	waiting_start(&asleep.flush, dev, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, FOREVER);
	expect(asleep.watch = dev_watch(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0), 0, "WATCH");
	for (int i = 0; i < SLEEPERS; i++)
		sleeper_start(i);
	ring_start();
}

static void waits_still(void)
{
	struct io_uring_cqe cqe;

	if (!waiting_still(&asleep.pending) || !waiting_still(&asleep.flush))
		wrong("a WAIT has ended");
	for (int i = 0; i < SLEEPERS; i++)
		if (!waiting_still(&asleep.sleeper[i]))
			wrong("sleeper %d on the watch has ended", i);
	if (ring_take(&asleep.ring, &cqe))
		wrong("entry %llu of the ring has ended: %d", cqe.user_data, cqe.res);
}

static void sleeper_end(int which, int want)
{
	struct waiting *w = &asleep.sleeper[which];
	int ret = -1000;

	if (hear(w->talk, &ret, sizeof(ret)) && ret != want)
		wrong("sleeper %d: %d, not %d", which, ret, want);
	end_process(w->pid);
	close(w->talk);
}

/* A wait that had begun anew would not know of the dead. */
static void wait_ends(struct waiting *w, const char *what)
{
	struct waited waited = waiting_end(w);

	expect(waited.ret, 0, "%s", what);
	if (waited.wait.lost != EACH)
		wrong("%s: %llu lost, not %d", what, waited.wait.lost, EACH);
}

static void waits_end(void)
{
	struct io_uring_cqe cqe;

	wait_ends(&asleep.pending, "PENDING_LE");
	wait_ends(&asleep.flush, "FLUSH");
	/* The condition goes on to hold, so each in turn has an event. */
	sleeper_end(SLEEP_POLL, POLLIN);
	sleeper_end(SLEEP_READ, 0);
	sleeper_end(SLEEP_READ_TOO, 0);
	for (int i = 0; i < 1 + asleep.waits; i++)
		if (!ring_wait(&asleep.ring, &cqe, PATIENCE_MS) || cqe.res != (cqe.user_data == 1 ? POLLIN : 0))
			wrong("entry %llu of the ring: %d", cqe.user_data, cqe.res);
	if (asleep.waits && asleep.in_ring.lost != EACH)
		wrong("WAIT of the ring: %llu lost, not %d", asleep.in_ring.lost, EACH);
	ring_close(&asleep.ring);
	close(asleep.watch);
}

/* ---- a call that takes long ---------------------------------------------------------------------------------------- */

static struct {
	uint64_t bytes;
	uint32_t flags;
	_Atomic int fd; /* -1: it goes on */
} allocation;

static void *allocate(void *unused)
{
	atomic_store(&allocation.fd, dev_alloc(dev, allocation.bytes, allocation.flags));
	return unused;
}

/* Whether most of it is still to come when the freezer has done. */
static bool frozen_on_its_way(uint64_t free)
{
	while (atomic_load(&allocation.fd) == -1 && mem_info("MemFree") + allocation.bytes / 16 > free)
		;
	return suspend(&levels[0]) && mem_info("MemFree") + allocation.bytes / 8 * 7 >= free;
}

/*
 * It is frozen where it is: else the freezer waits for its end, and gives up after 20 s. Where this thread stands still for long
 * before it asks, or after, the call comes to its end by itself; so one time of several counts.
 */
static void long_call(uint32_t flags, const char *what)
{
	bool frozen = false;

	for (int i = 0; i < 10 && !frozen && !*state_wrong; i++) {
		uint64_t free = mem_free();
		pthread_t thread;

		allocation.bytes = free / 2;
		allocation.flags = flags;
		atomic_store(&allocation.fd, -1);
		if (pthread_create(&thread, NULL, allocate, NULL)) {
			wrong("no thread");
			break;
		}
		frozen = frozen_on_its_way(free);
		pthread_join(thread, NULL);
		if (expect(allocation.fd, 0, "ALLOC that was frozen"))
			close(allocation.fd);
	}
	if (!frozen)
		wrong("the freezer waited for its end");
	point("a long call is frozen on its way", what);
}

/* ---- each level ---------------------------------------------------------------------------------------------------- */

static void sleep_through(const struct level *level)
{
	int64_t before = asleep_ns(), deadline = now_ns() + 1000000000LL * DEADLINE_S, slept;
	uint64_t rounds;
	struct pinion_reading row;
	struct waiting late;
	struct waited waited;

	waiting_start(&late, dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0, deadline);
	if (suspend(level))
		point(level->name, "nothing holds it up");
	slept = asleep_ns() - before;
	printf("# %s: the clock stood still for %lld ms\n", level->name, (long long)slept / 1000000);
	if (!strcmp(level->name, "to memory") && slept < 1000000000)
		wrong("it did not sleep");
	waited = waiting_end(&late);
	expect(waited.ret, -ETIMEDOUT, "the deadline");
	if (waited.ended_ns < deadline)
		wrong("the deadline came %lld ms early, of %lld asleep", (long long)(deadline - waited.ended_ns) / 1000000,
		      (long long)slept / 1000000);
	point(level->name, "a deadline stands still as CLOCK_MONOTONIC does");
	expect_in_flight(dev, &device, EACH, level->name);
	if (dev_reading(dev, &device, &row) || row.claims != 1 || row.claimed_bytes != PAGE || row.claimed_units != 2)
		wrong("%u claims of %llu bytes and %u units", row.claims, row.claimed_bytes, row.claimed_units);
	check_buffers();
	point(level->name, "buffers keep their bytes, counts and claims are exact");
	waits_still();
	point(level->name, "who waits goes on waiting");
	rounds = atomic_load(&hammer->rounds);
	if (!eventually(atomic_load(&hammer->rounds) != rounds))
		wrong("the hammer stands still");
	complaints();
	point(level->name, "and who works goes on working");
}

static void end_all(const struct pinion_info *before)
{
	pid_t pid = -1;
	int status;
	char c = 1;

	say(client.order, &c, 1);
	if (hear(client.talk, &c, 1) && c)
		wrong("units cannot be ended");
	waits_end();
	expect_in_flight(dev, &device, 0, "at the end");
	end_process(client.pid);
	atomic_store(&hammer->stop, 1);
	while ((pid = wait(&status)) > 0 || errno == EINTR)
		if (pid > 0 && status)
			wrong("process %d ended with %x", pid, status);
	complaints();
	expect_in_flight(dev, &moving, 0, "of the hammer");
	for (int i = 0; i < BUFFERS; i++)
		if (buffer[i].fd >= 0) {
			munmap(buffer[i].at, BYTES);
			close(buffer[i].fd);
		}
	close(claim);
	use_again(dev, before, "root");
	point("end", "sessions lived, waits ended with their condition, nothing is left");
}

int main(void)
{
	struct pinion_info before;

	complaint = shared_memory(PAGE);
	hammer = shared_memory(PAGE);
	dev = dev_open(O_RDWR);
	if (dev_add(dev, "suspend", &device) || dev_add(dev, "suspend-moving", &moving) || dev_info(dev, &before))
		wrong("no devices");
	expect(file_put("/sys/module/suspend/parameters/pm_test_delay", "1"), 0, "pm_test_delay");
	if (!point("start", "devices"))
		return tap_end();
	long_call(PINION_ALLOC_HUGE_NEVER, "ALLOC of small pages");
	if (before.features & PINION_FEATURE_SHMEM)
		long_call(PINION_ALLOC_SHMEM, "ALLOC of shmem");
	make_buffers();
	expect(claim = dev_reserve(dev, &device, PAGE, 2, 0), 0, "RESERVE");
	client_start(&client);
	client_start(&victim);
	if (!fork())
		hammer_run();
	waits_start();
	end_process(victim.pid);
	point("start", "buffers, sessions, waits");
	for (int i = 0; i < LEVELS; i++)
		sleep_through(&levels[i]);
	file_put(POWER "pm_test", "none");
	end_all(&before);
	return tap_end();
}
