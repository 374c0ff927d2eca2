// SPDX-License-Identifier: MIT
/*
 * counts_wake [ROUNDS]: the end of a unit races against a wait for it, which arms the unit's lane. Whoever ends it kicks only
 * when it saw that. A wake that is lost would come by the timer, at most 100 ms late; so what is counted is how many came late,
 * and what fails is one that comes not at all. A watch that nobody polls has no timer.
 *
 * Late ones on a busy machine are the machine's. They were traced (sched, timer and workqueue events, trace_clock mono): a CPU
 * of the guest stood still for as long, ticks and interrupts included, and what was ours between kick and wake took less than
 * a millisecond.
 */
#define _GNU_SOURCE
#include "counting.h"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#define LATE_MS	 50
#define CERTAIN	 64	       /* of so many units one ends only when the other waits, so that somebody kicks in any case */
#define LIMIT_NS 10000000000LL /* for a wake: a hundred times what the timer needs */

static struct pinion_dev device;
static int dev;

/* One who ends units, and one who waits for each. */
static struct race {
	_Atomic uint32_t round;	  /* a unit is in flight */
	_Atomic uint32_t waiting; /* the other is about to wait for it */
	_Atomic uint32_t woken;
	_Atomic uint32_t ended;
	_Atomic int64_t ended_ns;
	_Atomic uint64_t kicks;
	_Atomic int stop;
} * race;

static void tell(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Close together where there are CPUs for it. */
static void wait_for(_Atomic uint32_t *word, uint32_t value)
{
	const struct timespec patience = { .tv_nsec = 100000000 };
	uint32_t is;

	for (int i = 0; i < 2000 && atomic_load(word) < value; i++)
		;
	while ((is = atomic_load(word)) < value && !atomic_load(&race->stop))
		syscall(SYS_futex, word, FUTEX_WAIT, is, &patience, NULL, 0);
}

static void spin(uint64_t n)
{
	for (volatile uint64_t i = 0; i < n; i++)
		;
}

/* ---- who ends ------------------------------------------------------------------------------------------------------ */

struct ender {
	int fd;
	struct pinion_counter_page *page;
	struct pinion_attach lane;
	uint64_t rounds;
	bool slow; /* the wait is old before its unit ends */
};

static bool armed(const struct ender *e)
{
	return pinion_load(&pinion_lane_control(e->page, e->lane.lane)->armed);
}

static void *end_units(void *data)
{
	struct ender *e = data;
	uint32_t parity;

	dice = 7;
	for (uint32_t n = 1; n <= e->rounds && !atomic_load(&race->stop); n++) {
		wait_for(&race->woken, n - 1);
		parity = page_begin(e->page, &e->lane);
		tell(&race->round, n);
		wait_for(&race->waiting, n);
		if ((n % CERTAIN == 0 || e->slow) && !eventually(armed(e) || atomic_load(&race->stop)))
			complain("nobody waits for unit %u", n);
		if (e->slow)
			mem_sleep(300000 + roll(100000));
		else
			spin(roll(4000));
		atomic_store(&race->ended_ns, now_ns());
		atomic_store(&race->ended, n);
		if (pinion_lane_end(pinion_lane_control(e->page, e->lane.lane), &e->page->lane[e->lane.lane], parity, 1)) {
			if (dev_handle(e->fd, PINION_IOC_KICK, e->lane.handle) < 0)
				complain("KICK");
			atomic_fetch_add(&race->kicks, 1);
		}
	}
	return NULL;
}

static bool ender_open(struct ender *e)
{
	e->fd = dev_open(O_RDWR);
	e->page = dev_counters(e->fd);
	if (e->page != MAP_FAILED && !dev_attach(e->fd, &device, 100, &e->lane))
		return true;
	complain("an ender: %s", strerror(errno));
	return false;
}

/* ---- who waits ----------------------------------------------------------------------------------------------------- */

enum { BY_WAIT, BY_POLL, BY_EPOLL, BY_READ, WAYS };

static const char *const names[WAYS] = { "WAIT", "poll", "epoll", "read" };

struct sleeper {
	int how, watch, epoll;
};

/* Until nothing is in flight; 0, or what went wrong. */
static int sleep_once(struct sleeper *s)
{
	struct epoll_event got;
	struct pinion_event event;
	struct pollfd p = { .fd = s->watch, .events = POLLIN };
	struct pinion_wait wait;
	int n = 1;

	if (s->how == BY_WAIT)
		return dev_wait(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0, now_ns() + LIMIT_NS, &wait);
	if (s->how == BY_POLL)
		n = poll(&p, 1, LIMIT_NS / 1000000);
	if (s->how == BY_EPOLL)
		n = epoll_wait(s->epoll, &got, 1, LIMIT_NS / 1000000);
	if (n != 1)
		return n ? -errno : -ETIMEDOUT;
	return read(s->watch, &event, sizeof(event)) == sizeof(event) ? event.status : -errno;
}

static bool sleeper_open(struct sleeper *s, int how)
{
	struct epoll_event of = { .events = EPOLLIN };

	*s = (struct sleeper){ .how = how, .watch = -1, .epoll = -1 };
	if (how == BY_WAIT)
		return true;
	/* Where the condition holds it has fired; so it is made while it does not. */
	s->watch = dev_watch(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0);
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	return expect(s->watch, 0, "WATCH") && !epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->watch, &of);
}

static void sleeper_close(struct sleeper *s)
{
	if (s->watch >= 0) {
		close(s->epoll);
		close(s->watch);
	}
}

static void sleep_rounds(struct sleeper *s, uint64_t rounds, bool slow)
{
	uint64_t late = 0;
	int64_t most = 0, took;
	double from = mem_clock();
	int ret;

	dice = 11;
	for (uint32_t n = 1; n <= rounds; n++) {
		wait_for(&race->round, n);
		if (atomic_load(&race->round) < n) {
			wrong("round %u: who ends units is gone", n);
			break;
		}
		if (n == 1 && !sleeper_open(s, s->how))
			break;
		tell(&race->waiting, n);
		if (!slow)
			spin(roll(4000));
		/* A watch may have fired for the round before once more. */
		do
			ret = sleep_once(s);
		while (!ret && atomic_load(&race->ended) < n);
		took = now_ns() - atomic_load(&race->ended_ns);
		if (ret) {
			wrong("round %u: %s", n, strerror(-ret));
			break;
		}
		most = took > most ? took : most;
		late += took > LATE_MS * 1000000LL;
		tell(&race->woken, n);
	}
	printf("# %s: %lu rounds in %.1f s, %lu kicks, %lu later than %d ms, the latest %.1f ms%s\n", names[s->how], rounds,
	       mem_clock() - from, race->kicks, late, LATE_MS, most / 1e6, slow ? ", after waits of 300 ms" : "");
}

static void races(int how, uint64_t rounds, bool process, bool slow)
{
	struct ender e = { .rounds = rounds, .slow = slow };
	struct sleeper s = { .how = how, .watch = -1 };
	pthread_t thread;
	pid_t pid = 0;
	char what[80];

	memset(race, 0, sizeof(*race));
	if (process) {
		pid = fork();
		if (!pid) {
			if (ender_open(&e))
				end_units(&e);
			atomic_store(&race->stop, 1);
			_exit(0);
		}
	} else {
		if (!ender_open(&e))
			atomic_store(&race->stop, 1);
		pthread_create(&thread, NULL, end_units, &e);
	}
	sleep_rounds(&s, rounds, slow);
	atomic_store(&race->stop, 1);
	if (process) {
		if (mem_wait(pid))
			wrong("the other process ended badly");
	} else {
		pthread_join(thread, NULL);
		munmap(e.page, PAGE);
		close(e.fd);
	}
	sleeper_close(&s);
	complaints();
	if (!race->kicks)
		wrong("nobody kicked");
	snprintf(what, sizeof(what), "by %s, for units of another %s%s", names[how], process ? "process" : "thread",
		 slow ? ", after a while" : "");
	point("wake", what);
}

/* ---- timers -------------------------------------------------------------------------------------------------------- */

#define TRACING "/sys/kernel/tracing/"

/* Starts of the module's timer during @ms, and what that came to be; below 0: this kernel does not tell. */
static int timers_started(unsigned int ms, double *took_ms)
{
	char *text, *at;
	int n = 0, fd = open(TRACING "trace", O_WRONLY | O_TRUNC | O_CLOEXEC);
	double from = mem_clock();

	/* That forgets what was before. */
	if (fd < 0 || close(fd) || file_put(TRACING "events/timer/hrtimer_start/enable", "1"))
		return -1;
	mem_sleep(ms * 1000UL);
	file_put(TRACING "events/timer/hrtimer_start/enable", "0");
	*took_ms = (mem_clock() - from) * 1e3;
	text = file_get(TRACING "trace");
	for (at = text; (at = strstr(at, "function=timer_fires")); at++)
		n++;
	free(text);
	return n;
}

/* A timer that was started before comes to its end some time; then half a second is without one, or none ever is. */
static int timers_idle(void)
{
	double took_ms;
	int n = -1;

	eventually((n = timers_started(500, &took_ms)) <= 0);
	return n;
}

static struct {
	int watch, end[2]; /* and a pipe that ends it */
	_Atomic int tid;
} poller;

static void *polls(void *unused)
{
	struct pollfd p[2] = { { .fd = poller.watch, .events = POLLIN }, { .fd = poller.end[0], .events = POLLIN } };

	atomic_store(&poller.tid, gettid());
	poll(p, 2, -1);
	return unused;
}

/* While one polls. */
static int timers_polled(int watch, double *took_ms)
{
	pthread_t thread;
	int n;

	poller.watch = watch;
	if (pipe2(poller.end, O_CLOEXEC) || pthread_create(&thread, NULL, polls, NULL)) {
		wrong("a thread that polls: %s", strerror(errno));
		return 0;
	}
	if (!eventually(atomic_load(&poller.tid) && task_state(poller.tid) == 'S'))
		wrong("the thread does not poll");
	n = timers_started(1000, took_ms);
	close(poller.end[1]);
	pthread_join(thread, NULL);
	close(poller.end[0]);
	return n;
}

static void idle_watches(void)
{
	struct pinion_counter_page *page;
	struct pinion_attach lane;
	int watch[10], fd = dev_open(O_RDWR), idle, polled, after;
	double took_ms = 0;
	uint32_t parity;

	page = dev_counters(fd);
	expect(dev_attach(fd, &device, 100, &lane), 0, "ATTACH");
	parity = page_begin(page, &lane);
	for (int i = 0; i < 10; i++) {
		watch[i] = dev_watch(fd, &device, PINION_SCOPE_EVERY, i % 2 ? PINION_COND_FLUSH : PINION_COND_PENDING_LE, 0);
		/* Looked at once, and no more. */
		poll(&(struct pollfd){ .fd = watch[i], .events = POLLIN }, 1, i % 3 ? 0 : 10);
	}
	idle = timers_idle();
	if (idle < 0) {
		tap_skip("wake: timers", "this kernel does not trace them");
	} else {
		polled = timers_polled(watch[0], &took_ms);
		after = timers_idle();
		printf("# timers started in 0.5 s while nobody polls: %d; in %.1f s while one does: %d; in 0.5 s after: %d\n",
		       idle, took_ms / 1e3, polled, after);
		if (idle || after)
			wrong("%d and %d timers while nobody polls", idle, after);
		/* 1, 2, 4 to 64 ms, then each 100. */
		if (!polled || polled > 20 + took_ms / 50)
			wrong("%d timers in %.1f s while one polls", polled, took_ms / 1e3);
		if (pinion_load(&pinion_lane_control(page, lane.lane)->armed))
			wrong("the lane is armed while nobody waits");
		point("timers", "a watch that nobody polls has none");
	}
	page_end(fd, page, &lane, parity);
	for (int i = 0; i < 10; i++)
		close(watch[i]);
	munmap(page, PAGE);
	close(fd);
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 10000;
	struct pinion_info before;

	complaint = shared_memory(PAGE);
	race = shared_memory(sizeof(*race));
	dev = dev_open(O_RDWR);
	if (dev_info(dev, &before) || dev_add(dev, "counts-wake", &device))
		wrong("no device");
	if (!point("start", "a device"))
		return tap_end();
	before.user_devices++;
	idle_watches();
	/* A third each by WAIT, poll and epoll; some by read(). */
	for (int process = 0; process < 2; process++)
		for (int how = 0; how < WAYS; how++)
			races(how, how == BY_READ ? rounds / 20 : rounds / 6, process, false);
	for (int how = 0; how < BY_READ; how++)
		races(how, 10, how % 2, true);
	use_again(dev, &before, "root");
	point("end", "nothing is left");
	return tap_end();
}
