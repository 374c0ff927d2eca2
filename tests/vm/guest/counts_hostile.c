// SPDX-License-Identifier: MIT
/*
 * counts_hostile [SECONDS [BURDEN]]: one user does to its own counters, handles, watches and buffers whatever it can. Meanwhile
 * the processes of another user count, read and flush: their figures are exact, their flushes return, and nobody takes them for
 * liars.
 */
#define _GNU_SOURCE
#include "counting.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define HONEST	     2
#define HONEST_UNITS 8
#define THREADS	     4
#define ENEMY_MOST   100 /* max_inflight of each of its lanes */

static struct pinion_dev device;
static int dev;
static double seconds;
static int burden; /* sessions, and watches */

/* ---- the honest ---------------------------------------------------------------------------------------------------- */

static struct shared {
	_Atomic int stop;
	_Atomic int ready; /* the enemy is at it */
	_Atomic uint64_t rounds, longest_us, longest_add_us, adds_us;
	_Atomic uint64_t enemy_most; /* what the enemy can add to a total */
	_Atomic int enemy;	     /* its process */
	_Atomic uint64_t done;	     /* whatever the enemy does, how often */
} * shared;

/* Its own row of the sessions; false: none. */
static bool own_row(int fd, struct pinion_list_session *row)
{
	struct pinion_list_session rows[16];
	struct pinion_list l = {
		.size = sizeof(l), .kind = PINION_LIST_SESSIONS, .rows = (uintptr_t)rows, .count = 16, .row_size = sizeof(rows[0])
	};

	do {
		if (dev_call(fd, PINION_IOC_LIST, &l))
			return false;
		for (unsigned int i = 0; i < l.out_count; i++)
			if (rows[i].flags & PINION_SESSION_MINE) {
				*row = rows[i];
				return true;
			}
	} while (l.out_count == l.count);
	return false;
}

static void honest_looks(int fd, unsigned int units)
{
	struct pinion_reading row;
	struct pinion_list_session own;
	int ret = dev_reading(fd, &device, &row);

	if (ret)
		complain("READ: %s", strerror(-ret));
	else if (row.session_low != units || row.session_high != units)
		complain("%llu to %llu of its own, not %u", row.session_low, row.session_high, units);
	else if (row.low > row.high || row.high < units || row.high > HONEST * HONEST_UNITS + shared->enemy_most)
		complain("%llu to %llu in all", row.low, row.high);
	if (!one_in(8))
		return;
	if (!own_row(fd, &own))
		complain("no row of its own");
	else if (own.low != units || own.high != units || own.flags & PINION_SESSION_MARKED)
		complain("its row says %llu to %llu, flags %x, not %u", own.low, own.high, own.flags, units);
}

static void longest(_Atomic uint64_t *most_us, uint64_t took_ns)
{
	if (took_ns / 1000 > atomic_load(most_us))
		atomic_store(most_us, took_ns / 1000);
}

/* Counts, looks, ends, flushes. */
static void honest_round(int fd, struct pinion_counter_page *page, const struct pinion_attach *lane)
{
	unsigned int units = 1 + roll(HONEST_UNITS), i;
	uint32_t parity[HONEST_UNITS];
	struct pinion_wait wait;
	int64_t from, took;
	int ret;

	from = now_ns();
	parity[0] = dev_count(fd, lane->handle, 1, 1, PINION_PARITY_NOW);
	took = now_ns() - from;
	longest(&shared->longest_add_us, took);
	atomic_fetch_add(&shared->adds_us, took / 1000);
	for (i = 1; i < units; i++)
		parity[i] = i % 2 ? page_begin(page, lane) : (uint32_t)dev_count(fd, lane->handle, 1, 1, PINION_PARITY_NOW);
	honest_looks(fd, units);
	while (i--) {
		if (i % 2)
			page_end(fd, page, lane, parity[i]);
		else if (dev_count(fd, lane->handle, -1, -1, parity[i]) < 0)
			complain("ADD of parity %u", parity[i]);
	}
	honest_looks(fd, 0);
	from = now_ns();
	ret = dev_wait(fd, &device, PINION_SCOPE_USER, PINION_COND_FLUSH, 0, from + 60000000000LL, &wait);
	longest(&shared->longest_us, now_ns() - from);
	if (ret || wait.lost)
		complain("flush of the user: %d, %llu lost", ret, wait.lost);
	if (one_in(16)) {
		ret = dev_wait(fd, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 5000000, &wait);
		/* Perhaps of another honest one, but not of another user. */
		if ((ret && ret != -ETIMEDOUT) || (wait.culprit_pid && wait.culprit_pid == shared->enemy))
			complain("flush of every: %d, culprit %d", ret, wait.culprit_pid);
	}
	atomic_fetch_add(&shared->rounds, 1);
}

static _Noreturn void honest(int id)
{
	struct pinion_counter_page *page;
	struct pinion_attach lane;
	int fd;

	if (setresuid(DAEMON, DAEMON, DAEMON))
		_exit(1);
	dice = mix(id);
	fd = dev_open(O_RDWR);
	page = dev_counters(fd);
	if (page == MAP_FAILED || dev_attach(fd, &device, HONEST_UNITS, &lane))
		complain("an honest process: %s", strerror(errno));
	while (!atomic_load(&shared->stop) && !complaint->said)
		honest_round(fd, page, &lane);
	_exit(0);
}

/* ---- a contest ----------------------------------------------------------------------------------------------------- */

/* Sessions of the enemy, and how many are marked. */
static unsigned int enemy_sessions(unsigned int *marked)
{
	struct pinion_list_session rows[32];
	struct pinion_list l = {
		.size = sizeof(l), .kind = PINION_LIST_SESSIONS, .rows = (uintptr_t)rows, .count = 32, .row_size = sizeof(rows[0])
	};
	unsigned int n = 0;

	*marked = 0;
	do {
		expect(dev_call(dev, PINION_IOC_LIST, &l), 0, "LIST");
		for (unsigned int i = 0; i < l.out_count; i++)
			if (rows[i].uid == NOBODY) {
				n++;
				*marked += rows[i].flags & PINION_SESSION_MARKED ? 1 : 0;
				if (rows[i].low > rows[i].high || rows[i].high > rows[i].max_inflight)
					wrong("a row of the enemy's of %llu to %llu", rows[i].low, rows[i].high);
			}
	} while (l.out_count == l.count);
	return n;
}

#define ROUNDS 10 /* of the honest, at least */

enum lies { HONESTLY, LYING, EITHER };

/* The enemy's process, as its user, until it is killed. */
static void contest(void (*enemy)(void), enum lies lies, uint64_t enemy_most, const char *what)
{
	pid_t pids[HONEST + 1];
	unsigned int marked = 0, n;

	atomic_store(&shared->stop, 0);
	shared->ready = 0;
	shared->rounds = shared->longest_us = shared->longest_add_us = shared->adds_us = shared->done = 0;
	shared->enemy_most = enemy_most;
	for (int i = 0; i <= HONEST; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		if (i < HONEST)
			honest(i);
		if (setresuid(NOBODY, NOBODY, NOBODY))
			_exit(1);
		dice = mix(99);
		shared->enemy = getpid();
		enemy();
		shared->ready = 1;
		while (!*state_wrong)
			pause();
		complain("%s", state_wrong);
		_exit(0);
	}
	if (!eventually(shared->ready || complaint->said))
		wrong("the enemy does not come to it");
	mem_sleep(seconds * 1e6);
	/* On a slow machine it takes longer until the honest have come round, and the enemy has told a lie. */
	if (!eventually(shared->rounds >= ROUNDS || complaint->said))
		wrong("only %lu rounds", shared->rounds);
	eventually((n = enemy_sessions(&marked), lies != LYING || marked || complaint->said));
	complaints();
	if (waitpid(pids[HONEST], NULL, WNOHANG))
		wrong("the enemy is no more");
	else
		end_process(pids[HONEST]);
	atomic_store(&shared->stop, 1);
	for (int i = 0; i < HONEST; i++)
		if (mem_wait(pids[i]))
			wrong("an honest process ended badly");
	complaints();
	if (lies == LYING && !marked)
		wrong("none of its %u sessions is marked", n);
	if (lies == HONESTLY && marked)
		wrong("%u of its %u sessions are marked", marked, n);
	printf("# %s: %lu rounds of the honest, the longest flush %.1f ms, ADD %.1f ms, %.0f us on average; the enemy's %lu, %u "
	       "of %u "
	       "sessions marked\n",
	       what, shared->rounds, shared->longest_us / 1e3, shared->longest_add_us / 1e3,
	       (double)shared->adds_us / (shared->rounds ?: 1), shared->done, marked, n);
	if (in_flight_late(dev, &device, 0) < 0)
		wrong("something is left");
	point("enemy", what);
}

/* ---- the enemy ----------------------------------------------------------------------------------------------------- */

static int enemy_fd;
static struct pinion_counter_page *enemy_page;
static struct pinion_attach enemy_lane;

static void enemy_open(void)
{
	enemy_fd = dev_open(O_RDWR);
	enemy_page = dev_counters(enemy_fd);
	if (enemy_page == MAP_FAILED || dev_attach(enemy_fd, &device, ENEMY_MOST, &enemy_lane))
		wrong("enemy: %s", strerror(errno));
}

/* @data, or the number of each. */
static void enemy_threads(void *(*thread)(void *), unsigned int n, void *data)
{
	pthread_t one;

	for (uintptr_t i = 0; i < n; i++)
		if (pthread_create(&one, NULL, thread, data ?: (void *)i))
			wrong("pthread_create");
}

/* All of the page: control words too. */
static void *scribble(void *data)
{
	static const uint64_t words[] = { 0, 1, ~0ULL, 1ULL << 63, (1ULL << 63) - 1, 1ULL << 32, 0xffffffff };
	volatile uint64_t *word = (volatile uint64_t *)enemy_page;

	dice = mix((uintptr_t)data);
	for (;;) {
		word[roll(PAGE / 8)] = one_in(3) ? PICK(words) : mix(dice);
		if (one_in(64))
			for (int i = 0; i < (int)(PAGE / 8); i++)
				word[i] = mix(dice + i);
		if (one_in(16))
			dev_handle(enemy_fd, PINION_IOC_KICK, enemy_lane.handle);
		atomic_fetch_add(&shared->done, 1);
	}
	return NULL;
}

static void enemy_scribbles(void)
{
	enemy_open();
	enemy_threads(scribble, THREADS, NULL);
}

static void *kick(void *data)
{
	(void)data;
	for (;;) {
		dev_handle(enemy_fd, PINION_IOC_KICK, enemy_lane.handle);
		atomic_fetch_add(&shared->done, 1);
	}
	return NULL;
}

static void enemy_kicks(void)
{
	enemy_open();
	enemy_threads(kick, THREADS, NULL);
}

/* Units that never were: low above what it may have. */
static void enemy_lies(void)
{
	enemy_open();
	pinion_store(&enemy_page->lane[enemy_lane.lane].submitted[0].ops, 1ULL << 62);
	pinion_store(&enemy_page->lane[enemy_lane.lane].submitted[1].cost, ~0ULL);
	dev_handle(enemy_fd, PINION_IOC_KICK, enemy_lane.handle);
}

/* What is no handle of this open, or is one no more, is refused. */
static void enemy_forges(void)
{
	enemy_open();
	for (unsigned int i = 0; i < 3000 && !*state_wrong; i++) {
		static const unsigned int cmds[] = { PINION_IOC_KICK, PINION_IOC_RESET, PINION_IOC_DETACH };
		uint32_t handle = one_in(2) ? mix(dice) : enemy_lane.handle ^ (1U << roll(32));

		if (handle == enemy_lane.handle)
			continue;
		expect((int)dev_handle(enemy_fd, PICK(cmds), handle), -EINVAL, "handle %x", handle);
		expect(dev_count(enemy_fd, handle, 1, 1, 0), -EINVAL, "ADD by handle %x", handle);
	}
	for (unsigned int i = 0; i < 300 && !*state_wrong; i++) {
		struct pinion_attach again = enemy_lane, old = enemy_lane;
		int parity = dev_count(enemy_fd, old.handle, 2, 2, PINION_PARITY_NOW);

		expect(dev_count(enemy_fd, old.handle, -3, -2, parity), -EINVAL, "an end of more than begun");
		expect(dev_count(enemy_fd, old.handle, -2, -3, parity), -EINVAL, "an end of more cost than begun");
		expect(dev_count(enemy_fd, old.handle, -1, -1, !parity), -EINVAL, "an end in the other parity");
		expect(dev_count(enemy_fd, old.handle, -2, -2, parity) < 0, 0, "an end");
		expect(dev_count(enemy_fd, old.handle, -2, -2, parity), -EINVAL, "an end once more");
		expect(dev_count(enemy_fd, old.handle, ENEMY_MOST + 1, 1, 0), -ENOSPC, "more than its lane may have");
		if (dev_handle(enemy_fd, PINION_IOC_DETACH, old.handle))
			wrong("DETACH");
		/* The same lane, by another handle. */
		again = (struct pinion_attach){ .size = sizeof(again),
						.flags = PINION_ATTACH_LANE,
						.index = device.index,
						.max_inflight = ENEMY_MOST,
						.generation = device.generation,
						.completed_fd = -1,
						.lane = old.lane };
		expect(dev_call(enemy_fd, PINION_IOC_ATTACH, &again), 0, "ATTACH");
		expect(dev_count(enemy_fd, old.handle, 1, 1, 0), -EINVAL, "the old handle of a lane that is there again");
		expect((int)dev_handle(enemy_fd, PINION_IOC_RESET, old.handle), -EINVAL, "the old handle");
		enemy_lane = again;
		atomic_fetch_add(&shared->done, 1);
	}
}

static void *poll_all(void *data)
{
	struct epoll_event got[64];
	int epoll = *(int *)data;

	for (;;) {
		epoll_wait(epoll, got, 64, 10);
		atomic_fetch_add(&shared->done, 1);
	}
	return NULL;
}

/* Ten thousand watches, as many as it gets, all looked at by four. */
static void enemy_watches(void)
{
	static int epoll;
	struct pinion_info info;
	unsigned int made = 0, refused = 0;

	enemy_open();
	epoll = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < 10000; i++) {
		struct epoll_event of = { .events = EPOLLIN };
		int fd = dev_watch(enemy_fd, &device, roll(3), roll(2), 0);

		made += fd >= 0;
		refused += fd == -ENOSPC;
		if (fd < 0 && fd != -ENOSPC)
			wrong("WATCH: %s", strerror(-fd));
		if (fd >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &of))
			wrong("epoll_ctl: %s", strerror(errno));
	}
	if (dev_info(enemy_fd, &info) || made != info.max_user_watches || info.user_watches != made || made + refused != 10000)
		wrong("%u watches of %u, %u in use, %u refused", made, info.max_user_watches, info.user_watches, refused);
	page_begin(enemy_page, &enemy_lane);
	enemy_threads(poll_all, THREADS, &epoll);
}

static uint64_t *enemy_words;

static void *scribble_elsewhere(void *data)
{
	dice = mix((uintptr_t)data);
	for (;;) {
		__atomic_store_n(&enemy_words[roll(PAGE / 8)], mix(dice), __ATOMIC_RELAXED);
		if (one_in(32))
			dev_handle(enemy_fd, PINION_IOC_KICK, enemy_lane.handle);
		atomic_fetch_add(&shared->done, 1);
	}
	return NULL;
}

/* Completed words in a buffer that it writes to, and whose descriptor it closes. */
static void enemy_completes(void)
{
	struct pinion_attach elsewhere = { .size = sizeof(elsewhere),
					   .flags = PINION_ATTACH_COMPLETED_FD,
					   .index = device.index,
					   .max_inflight = ENEMY_MOST,
					   .generation = device.generation };
	int fd;

	enemy_open();
	fd = dev_alloc(enemy_fd, PAGE, 0);
	enemy_words = dev_map(fd, PAGE, PROT_READ | PROT_WRITE);
	elsewhere.completed_fd = fd;
	for (int i = 0; i < 8; i++) {
		elsewhere.completed_off = i * 32;
		elsewhere.handle = elsewhere.lane = 0;
		expect(dev_call(enemy_fd, PINION_IOC_ATTACH, &elsewhere), 0, "ATTACH with COMPLETED_FD");
	}
	close(fd);
	enemy_threads(scribble_elsewhere, 2, NULL);
}

static void *come_and_go(void *data)
{
	dice = mix((uintptr_t)data);
	for (;;) {
		int fd = dev_open(O_RDWR);
		struct pinion_counter_page *page = dev_counters(fd);
		struct pinion_attach lane;

		if (page != MAP_FAILED) {
			for (int i = roll(4); i >= 0; i--)
				if (!dev_attach(fd, &device, ENEMY_MOST, &lane))
					for (int k = roll(8); k; k--)
						page_begin(page, &lane);
			if (one_in(2))
				((uint64_t *)page)[roll(PAGE / 8)] = mix(dice);
			munmap(page, PAGE);
		}
		close(fd);
		atomic_fetch_add(&shared->done, 1);
	}
	return NULL;
}

static void enemy_comes_and_goes(void)
{
	enemy_threads(come_and_go, THREADS, NULL);
}

/* As many opens, sessions and lanes as it gets. */
static void enemy_hoards(void)
{
	struct pinion_info info;
	struct pinion_attach lane;
	unsigned int made = 0;
	int fd, ret = 0;

	for (int i = 0; i < 1100 && !ret; i++) {
		fd = dev_open(O_RDWR);
		ret = dev_attach(fd, &device, 1, &lane);
		made += !ret;
	}
	if (dev_info(fd, &info) || ret != -ENOSPC || made != info.max_user_sessions || info.user_sessions != made)
		wrong("%u sessions of %u, %u in use, then %d", made, info.max_user_sessions, info.user_sessions, ret);
	shared->done = made;
}

/* Both at once, with a unit in flight in each session and every watch a flush that never ends. */
static void enemy_burdens(void)
{
	static int epoll;

	for (int i = 0; i < burden; i++) {
		enemy_fd = dev_open(O_RDWR);
		if (dev_attach(enemy_fd, &device, 1, &enemy_lane) || dev_count(enemy_fd, enemy_lane.handle, 1, 0, 0) < 0)
			wrong("session %d", i);
	}
	epoll = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < burden; i++) {
		struct epoll_event of = { .events = EPOLLIN };
		int watch = dev_watch(enemy_fd, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0);

		if (watch < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, watch, &of))
			wrong("watch %d", i);
	}
	enemy_threads(poll_all, 1, &epoll);
	enemy_threads(kick, THREADS, NULL);
}

/* ---- lanes ---------------------------------------------------------------------------------------------------------- */

#define OPENS	   128
#define LANES_KEPT 512
#define FIRST_UID  3000 /* of users without a lane */

struct hoard {
	uid_t uid;
	int fd[OPENS];
	unsigned int opens, lanes;
	int ret; /* of the ATTACH that was refused */
};

/* As many lanes of the device as it gets, or so many more. */
static void hoard_lanes(struct hoard *h, unsigned int more)
{
	struct pinion_attach lane;

	for (h->ret = 0; more && !h->ret && h->opens < OPENS; h->opens++) {
		h->fd[h->opens] = open_as(h->uid, O_RDWR);
		for (unsigned int i = 0; i < PINION_LANES && more && !h->ret; i++) {
			h->ret = dev_attach(h->fd[h->opens], &device, 1, &lane);
			h->lanes += !h->ret;
			more -= !h->ret;
		}
	}
}

static void hoard_end(struct hoard *h)
{
	while (h->opens)
		close(h->fd[--h->opens]);
}

/* The device has only what is kept for users who have none: one each. */
static void first_lanes(void)
{
	static int fd[LANES_KEPT + 1];
	struct pinion_attach lane;

	for (int i = 0; i <= LANES_KEPT; i++) {
		fd[i] = open_as(FIRST_UID + i, O_RDWR);
		expect(dev_attach(fd[i], &device, 1, &lane), i < LANES_KEPT ? 0 : -ENOSPC, "the first lane of user %d", i);
		if (i < 2)
			expect(dev_attach(fd[i], &device, 1, &lane), -ENOSPC, "the second lane of user %d", i);
	}
	close(fd[1]);
	expect(dev_attach(fd[LANES_KEPT], &device, 1, &lane), 0, "the lane of one who went");
	for (int i = 0; i <= LANES_KEPT; i++)
		if (i != 1)
			close(fd[i]);
}

/* One user gets its share of a device's lanes and no more, whatever it opens; the next finds room. */
static void lanes_of_one_user(void)
{
	struct hoard enemy = { .uid = NOBODY }, honest = { .uid = DAEMON };
	struct pinion_attach lane;
	struct pinion_info info;
	int fd = dev_open(O_RDWR);

	if (dev_info(fd, &info) || !info.max_user_lanes || info.max_user_lanes > info.max_lanes / 2)
		wrong("%u lanes for each user of %u", info.max_user_lanes, info.max_lanes);
	hoard_lanes(&enemy, ~0U);
	if (enemy.ret != -ENOSPC || enemy.lanes != info.max_user_lanes)
		wrong("the enemy has %u lanes of %u, then %d", enemy.lanes, info.max_user_lanes, enemy.ret);
	expect(dev_attach(fd, &device, 1, &lane), 0, "ATTACH of root beside it");
	if (dev_handle(fd, PINION_IOC_DETACH, lane.handle))
		wrong("DETACH");
	hoard_lanes(&honest, ~0U);
	if (honest.lanes != info.max_lanes - LANES_KEPT - enemy.lanes || honest.ret != -ENOSPC)
		wrong("the honest have %u lanes, then %d", honest.lanes, honest.ret);
	first_lanes();
	hoard_end(&honest);
	parameter_set("max_user_lanes", info.max_user_lanes + 3);
	hoard_lanes(&enemy, ~0U);
	if (enemy.lanes != info.max_user_lanes + 3)
		wrong("the enemy has %u lanes of %u", enemy.lanes, info.max_user_lanes + 3);
	parameter_set("max_user_lanes", info.max_user_lanes);
	hoard_end(&enemy);
	enemy = (struct hoard){ .uid = NOBODY };
	hoard_lanes(&enemy, 1);
	expect(enemy.ret, 0, "ATTACH when the others were given back");
	hoard_end(&enemy);
	close(fd);
	point("lanes", "a user has its share of a device's and no more");
}

int main(int argc, char **argv)
{
	const struct rlimit files = { 12000, 12000 };
	struct pinion_info before;
	int users[2];

	seconds = argc > 1 ? atof(argv[1]) : 4;
	burden = argc > 2 ? atoi(argv[2]) : 1000;
	setrlimit(RLIMIT_NOFILE, &files);
	complaint = shared_memory(PAGE);
	shared = shared_memory(sizeof(*shared));
	dev = dev_open(O_RDWR);
	if (dev_info(dev, &before) || dev_add(dev, "counts-hostile", &device))
		wrong("no device");
	users[0] = open_as(DAEMON, O_RDONLY);
	users[1] = open_as(NOBODY, O_RDONLY);
	if (!point("start", "a device"))
		return tap_end();
	before.user_devices++;
	lanes_of_one_user();
	contest(enemy_scribbles, LYING, ENEMY_MOST, "scribbles all over its page and kicks");
	contest(enemy_lies, LYING, ENEMY_MOST, "says what cannot be");
	contest(enemy_kicks, HONESTLY, ENEMY_MOST, "kicks from four threads");
	contest(enemy_forges, HONESTLY, ENEMY_MOST, "forges handles and uses old ones");
	contest(enemy_watches, HONESTLY, ENEMY_MOST, "has as many watches as it gets, of ten thousand");
	contest(enemy_completes, LYING, 9 * ENEMY_MOST, "lets anything stand for completed words in a buffer");
	contest(enemy_comes_and_goes, EITHER, 4 * THREADS * ENEMY_MOST, "comes and goes with units and lies");
	contest(enemy_hoards, HONESTLY, 1100, "has as many sessions as it gets");
	contest(enemy_burdens, HONESTLY, burden, "has as many sessions as watches, each for a flush that never ends, and kicks");
	use_again(dev, &before, "root");
	before.user_devices = 0;
	for (int i = 0; i < 2; i++) {
		before.user_sessions = before.user_watches = before.user_claims = 0;
		use_again(users[i], &before, i ? "the enemy" : "the honest");
	}
	point("end", "nothing is left");
	return tap_end();
}
