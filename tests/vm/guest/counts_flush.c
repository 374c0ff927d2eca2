// SPDX-License-Identifier: MIT
/*
 * counts_flush [STEPS [SEED]]: waits against a model. A random schedule of several sessions of two users, with units in their
 * pages and by ADD that end in any order, deaths, resets and lanes that change, is played by one process, so that after each step
 * it is known of each watch whether it must have fired, may have, or must not. Then processes that really run, stand still and
 * die.
 */
#define _GNU_SOURCE
#include "counting.h"

#include <poll.h>
#include <sched.h>

#define CLIENTS 6
#define OF_ROOT 4 /* the rest are another user's */
#define DEPTH	24
#define WATCHES 10
#define FOREVER (now_ns() + 60000000000LL)

static struct pinion_dev device;
static int dev;

/* ---- the model ----------------------------------------------------------------------------------------------------- */

struct unit {
	uint64_t serial;
	bool added;
	bool slow; /* between the parity's reading and the count there was time */
	uint32_t parity;
};

static struct client {
	int fd;
	uid_t uid;
	struct pinion_counter_page *page;
	struct pinion_attach lane[2];
	struct unit unit[DEPTH];
	unsigned int nr;
	bool beginning; /* a thread has read the parity of its unit, which it has not counted yet */
	uint32_t parity;
} clients[CLIENTS];

static struct watching {
	int fd; /* 0: none */
	unsigned int by;
	uint32_t scope, cond;
	uint64_t value;
	bool fired;
	bool changed;
	uint64_t from; /* FLUSH: units from here on are younger */
	uint64_t bar;  /* when the older ones were first seen done; 0: they are not */
	uint64_t lost_least, lost_most;
} watches[WATCHES];

static uint64_t serial = 1;

static bool in_scope(const struct watching *w, unsigned int client)
{
	switch (w->scope) {
	case PINION_SCOPE_SESSION:
		return client == w->by;
	case PINION_SCOPE_USER:
		return clients[client].uid == clients[w->by].uid;
	default:
		return true;
	}
}

/* Units of a client that are older. */
static unsigned int older(unsigned int client, uint64_t than)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < clients[client].nr; i++)
		n += clients[client].unit[i].serial < than;
	return n;
}

/* Who was held up may have counted in the parity that is drained: that is waited for too. */
static bool slow_in_scope(const struct watching *w)
{
	for (unsigned int c = 0; c < CLIENTS; c++)
		for (unsigned int i = 0; in_scope(w, c) && i < clients[c].nr; i++)
			if (clients[c].unit[i].slow)
				return true;
	return false;
}

static unsigned int older_in_scope(const struct watching *w, uint64_t than)
{
	unsigned int n = 0;

	for (unsigned int c = 0; c < CLIENTS; c++)
		n += in_scope(w, c) ? older(c, than) : 0;
	return n;
}

static void all_changed(void)
{
	for (unsigned int i = 0; i < WATCHES; i++)
		watches[i].changed = true;
}

/* ---- steps --------------------------------------------------------------------------------------------------------- */

static void client_open(unsigned int i)
{
	struct client *c = &clients[i];

	c->nr = 0;
	c->beginning = false;
	c->uid = i < OF_ROOT ? 0 : NOBODY;
	c->fd = open_as(c->uid, O_RDWR);
	c->page = dev_counters(c->fd);
	if (c->page == MAP_FAILED)
		wrong("counters: %s", strerror(errno));
	expect(dev_attach(c->fd, &device, DEPTH, &c->lane[0]), 0, "ATTACH");
	expect(dev_attach(c->fd, &device, DEPTH, &c->lane[1]), 0, "ATTACH");
}

static void client_die(unsigned int i)
{
	struct client *c = &clients[i];

	for (unsigned int k = 0; k < WATCHES; k++) {
		struct watching *w = &watches[k];

		/* Who has no older unit in flight may be done with, or not. */
		if (w->fd && w->cond == PINION_COND_FLUSH && !w->fired && in_scope(w, i)) {
			w->lost_least += older(i, w->from) ? c->nr : 0;
			w->lost_most += c->nr;
		}
		/* What it made goes with it: nobody else is of its session. */
		if (w->fd && w->by == i) {
			close(w->fd);
			w->fd = 0;
		}
	}
	munmap(c->page, PAGE);
	close(c->fd);
	client_open(i);
	all_changed();
}

/* As pinion_lane_begin(), which was held up in the middle. */
static void begin_late(struct client *c, struct unit *u)
{
	struct pinion_count *count = &c->page->lane[c->lane[0].lane].submitted[c->parity];

	pinion_store(&count->cost, pinion_load(&count->cost) + 1);
	pinion_store(&count->ops, pinion_load(&count->ops) + 1);
	u->parity = c->parity;
	c->beginning = false;
}

static void client_begin(struct client *c)
{
	struct unit *u = &c->unit[c->nr];
	int ret = 0;

	if (c->nr == DEPTH)
		return;
	u->added = roll(2);
	u->slow = c->beginning && !u->added && one_in(8);
	if (u->added)
		ret = dev_count(c->fd, c->lane[roll(2)].handle, 1, 1, PINION_PARITY_NOW);
	if (u->slow)
		begin_late(c, u);
	else
		u->parity = u->added ? (uint32_t)ret : page_begin(c->page, &c->lane[1]);
	expect(ret < 0 ? ret : 0, 0, "ADD");
	u->serial = serial++;
	c->nr++;
	all_changed();
}

static void client_end(struct client *c)
{
	unsigned int i;
	int ret = 0;

	if (!c->nr)
		return;
	i = one_in(4) ? 0 : roll(c->nr);
	if (c->unit[i].added)
		ret = dev_count(c->fd, c->lane[roll(2)].handle, -1, -1, c->unit[i].parity);
	else
		page_end(c->fd, c->page, &c->lane[roll(2)], c->unit[i].parity);
	expect(ret < 0 ? ret : 0, 0, "ADD -1");
	memmove(&c->unit[i], &c->unit[i + 1], (--c->nr - i) * sizeof(c->unit[0]));
	all_changed();
}

static void client_reset(struct client *c)
{
	int64_t units = dev_handle(c->fd, PINION_IOC_RESET, c->lane[0].handle);

	if (units != c->nr)
		wrong("RESET forgets %lld of %u", (long long)units, c->nr);
	if (c->nr)
		all_changed();
	c->nr = 0;
}

/* Units that began on the lane end on others. */
static void client_relane(struct client *c)
{
	int64_t units = dev_handle(c->fd, PINION_IOC_DETACH, c->lane[1].handle);

	if (units)
		wrong("DETACH of one of two gives up %lld", (long long)units);
	expect(dev_attach(c->fd, &device, DEPTH, &c->lane[1]), 0, "ATTACH again");
}

static uint64_t cookie(void)
{
	struct pinion_reading row;

	expect(dev_reading(dev, &device, &row), 0, "READ");
	return row.cookie;
}

static void watch_from_now(struct watching *w)
{
	w->from = serial;
	w->bar = w->lost_least = w->lost_most = 0;
	w->fired = w->changed = false;
}

static void watch_open(struct watching *w)
{
	w->by = roll(CLIENTS);
	w->cond = one_in(4) ? PINION_COND_CHANGED : one_in(3) ? PINION_COND_PENDING_LE : PINION_COND_FLUSH;
	w->scope = w->cond == PINION_COND_CHANGED ? PINION_SCOPE_EVERY : roll(3);
	w->value = w->cond == PINION_COND_CHANGED ? cookie() : w->cond == PINION_COND_PENDING_LE ? roll(2 * DEPTH) : 0;
	watch_from_now(w);
	w->fd = dev_watch(clients[w->by].fd, &device, w->scope, w->cond, w->value);
	if (!expect(w->fd, 0, "WATCH"))
		w->fd = 0;
}

static void watch_take(struct watching *w)
{
	struct pinion_event event;

	if (read(w->fd, &event, sizeof(event)) != sizeof(event))
		wrong("read: %s", strerror(errno));
	else if (event.status)
		wrong("an event of status %d", event.status);
	else if (w->cond == PINION_COND_FLUSH && (event.lost < w->lost_least || event.lost > w->lost_most))
		wrong("%llu lost, not %llu to %llu", event.lost, (unsigned long long)w->lost_least,
		      (unsigned long long)w->lost_most);
	watch_from_now(w);
	/* From the cookie that came, which may be an old one. */
	w->changed = w->cond == PINION_COND_CHANGED && event.cookie != cookie();
}

static void step(void)
{
	unsigned int i = roll(CLIENTS);
	struct watching *w = &watches[roll(WATCHES)];

	switch (roll(40)) {
	case 0:
		if (one_in(4))
			client_die(i);
		break;
	case 1:
		if (one_in(4))
			client_reset(&clients[i]);
		break;
	case 2:
		client_relane(&clients[i]);
		break;
	case 24 ... 25:
		if (!clients[i].beginning)
			clients[i].parity = pinion_load(&pinion_lane_control(clients[i].page, clients[i].lane[0].lane)->epoch) &
					    1;
		clients[i].beginning = true;
		break;
	case 3 ... 7:
		if (!w->fd)
			watch_open(w);
		else if (w->fired)
			watch_take(w);
		else if (one_in(8)) {
			close(w->fd);
			w->fd = 0;
		}
		break;
	case 8 ... 20:
		client_begin(&clients[i]);
		break;
	default:
		client_end(&clients[i]);
	}
}

/* ---- what must hold after each ------------------------------------------------------------------------------------- */

static uint64_t flushes, early_most;

/* @fires: it has, just now. Work that began while the idle parity drained is waited for too, but none that began after that. */
static void check_flush(struct watching *w, bool fires)
{
	unsigned int old = older_in_scope(w, w->from);

	if (fires && old)
		wrong("a flush ends while %u units from before are in flight", old);
	if (fires || old) {
		flushes += fires;
		return;
	}
	if (!w->bar || slow_in_scope(w))
		w->bar = serial;
	if (!older_in_scope(w, w->bar) && !slow_in_scope(w))
		wrong("a flush does not end though all from before, and whatever began meanwhile, is done");
	early_most++;
}

static void check(struct watching *w, bool fired, uint64_t high)
{
	bool fires = fired && !w->fired;

	if (w->fired) {
		if (!fired)
			wrong("a watch that had fired has not");
		return;
	}
	switch (w->cond) {
	case PINION_COND_FLUSH:
		check_flush(w, fires);
		break;
	case PINION_COND_PENDING_LE:
		if (fires != (high <= w->value))
			wrong("%llu in flight: PENDING_LE %llu %s", (unsigned long long)high, (unsigned long long)w->value,
			      fires ? "fires" : "does not fire");
		break;
	default:
		if (fires != w->changed)
			wrong("CHANGED %s", fires ? "fires" : "does not fire");
	}
	w->fired = fired;
}

static void check_all(void)
{
	struct pollfd p[WATCHES];

	for (unsigned int i = 0; i < WATCHES; i++)
		p[i] = (struct pollfd){ .fd = watches[i].fd ?: -1, .events = POLLIN };
	if (poll(p, WATCHES, 0) < 0)
		wrong("poll: %s", strerror(errno));
	for (unsigned int i = 0; i < WATCHES; i++)
		if (watches[i].fd)
			check(&watches[i], p[i].revents & POLLIN, older_in_scope(&watches[i], serial));
}

static void schedule(uint64_t steps)
{
	uint64_t high = 0;

	for (unsigned int i = 0; i < CLIENTS; i++)
		client_open(i);
	for (uint64_t n = 0; n < steps && !*state_wrong; n++) {
		step();
		check_all();
		if (n % 64 == 0) {
			for (unsigned int i = high = 0; i < CLIENTS; i++)
				high += clients[i].nr;
			expect_in_flight(dev, &device, high, "by the model");
		}
		if (*state_wrong)
			printf("# at step %lu\n", n);
	}
	printf("# %lu flushes, %lu steps in which one waited for what began after it\n", flushes, early_most);
	for (unsigned int i = 0; i < WATCHES; i++)
		if (watches[i].fd)
			close(watches[i].fd);
	for (unsigned int i = 0; i < CLIENTS; i++) {
		munmap(clients[i].page, PAGE);
		close(clients[i].fd);
	}
	if (!flushes)
		wrong("no flush ended");
	expect_in_flight(dev, &device, 0, "at the end");
	point("schedule", "a flush ends when what was before is done, and not before");
}

/* ---- processes ----------------------------------------------------------------------------------------------------- */

/* A process with units in its page and by ADD, which ends them when it hears "e". */
struct peer {
	pid_t pid;
	int talk;
};

static bool peer_start(struct peer *p, uid_t uid, unsigned int in_page, unsigned int by_add)
{
	int talk[2];
	char c;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk))
		return false;
	p->talk = talk[0];
	p->pid = fork();
	if (!p->pid) {
		int fd = open_as(uid, O_RDWR), parity;
		struct pinion_counter_page *page = dev_counters(fd);
		struct pinion_attach lane;
		uint32_t parities[64];

		close(talk[0]);
		if (page == MAP_FAILED || dev_attach(fd, &device, 100, &lane))
			_exit(1);
		for (unsigned int i = 0; i < in_page; i++)
			parities[i] = page_begin(page, &lane);
		parity = by_add ? dev_count(fd, lane.handle, by_add, by_add, PINION_PARITY_NOW) : 0;
		say(talk[1], "b", 1);
		if (parity < 0 || read(talk[1], &c, 1) != 1)
			_exit(2);
		for (unsigned int i = 0; i < in_page; i++)
			page_end(fd, page, &lane, parities[i]);
		if (by_add && dev_count(fd, lane.handle, -(int)by_add, -(int64_t)by_add, parity) < 0)
			_exit(3);
		say(talk[1], "e", 1);
		for (;;)
			pause();
	}
	close(talk[1]);
	return hear(p->talk, &c, 1);
}

static void peer_ends_units(struct peer *p)
{
	char c;

	say(p->talk, "e", 1);
	hear(p->talk, &c, 1);
}

static void peer_kill(struct peer *p)
{
	end_process(p->pid);
	close(p->talk);
}

static void scopes(void)
{
	int mine = dev_open(O_RDWR), theirs = open_as(NOBODY, O_RDWR);
	struct peer other, own;
	struct pinion_wait wait;
	struct waiting w;

	/* One of another user's that never ends, and one of this. */
	peer_start(&other, NOBODY, 1, 1);
	expect(dev_wait(mine, &device, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0, FOREVER, &wait), 0, "flush of the session");
	expect(dev_wait(mine, &device, PINION_SCOPE_USER, PINION_COND_FLUSH, 0, FOREVER, &wait), 0, "flush of the user");
	peer_start(&own, 0, 2, 1);
	expect(dev_wait(mine, &device, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0, FOREVER, &wait), 0, "flush of the session");
	waiting_start(&w, mine, &device, PINION_SCOPE_USER, PINION_COND_FLUSH, 0, FOREVER);
	if (!waiting_still(&w))
		wrong("a flush of the user does not wait for the user's units");
	peer_ends_units(&own);
	expect(waiting_end(&w).ret, 0, "flush of the user");
	expect(dev_wait(mine, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 30000000, &wait), -ETIMEDOUT,
	       "flush of every");
	if (wait.high != 2 || wait.culprit_pid || wait.culprit_units)
		wrong("%llu in flight, culprit %d with %u", wait.high, wait.culprit_pid, wait.culprit_units);
	expect(dev_wait(theirs, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 30000000, &wait), -ETIMEDOUT,
	       "flush of every");
	if (wait.culprit_pid != other.pid || wait.culprit_units != 2)
		wrong("culprit %d with %u, not %d with 2", wait.culprit_pid, wait.culprit_units, other.pid);
	peer_kill(&other);
	peer_kill(&own);
	close(mine);
	close(theirs);
	point("scopes", "a flush waits for its scope, and names who of its user keeps it");
}

/* Nobody looks at the watch before what began after it stands in the way, if anything does. */
static void begins_with_the_call(void)
{
	struct client *c = &clients[0];
	struct pollfd p = { .events = POLLIN };
	uint32_t before, after;

	client_open(0);
	before = page_begin(c->page, &c->lane[0]);
	p.fd = dev_watch(c->fd, &device, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0);
	expect(p.fd, 0, "WATCH");
	after = page_begin(c->page, &c->lane[0]);
	if (after == before)
		wrong("what begins after the call is of the parity that is flushed");
	if (poll(&p, 1, 0))
		wrong("a flush does not wait for what began before");
	page_end(c->fd, c->page, &c->lane[0], before);
	if (poll(&p, 1, 0) != 1)
		wrong("a flush waits for what began after the call");
	page_end(c->fd, c->page, &c->lane[0], after);
	close(p.fd);
	munmap(c->page, PAGE);
	close(c->fd);
	point("call", "a flush begins with the call, whenever it is looked at first");
}

static void dead_are_lost(void)
{
	struct peer a, b, c, late;
	struct waiting every, user, few;
	struct waited waited;

	peer_start(&a, 0, 2, 1);
	peer_start(&b, 0, 3, 2);
	peer_start(&c, NOBODY, 4, 3);
	waiting_start(&every, dev, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, FOREVER);
	waiting_start(&user, dev, &device, PINION_SCOPE_USER, PINION_COND_FLUSH, 0, FOREVER);
	waiting_start(&few, dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 5, FOREVER);
	/* Who came later, and dies, is no flush's loss. */
	peer_start(&late, 0, 1, 0);
	peer_kill(&late);
	peer_kill(&a);
	if (!waiting_still(&every) || !waiting_still(&user))
		wrong("a flush does not wait for who lives");
	peer_ends_units(&b);
	waited = waiting_end(&user);
	if (waited.ret || waited.wait.lost != 3)
		wrong("flush of the user: %d, %llu lost, not 3", waited.ret, waited.wait.lost);
	if (!waiting_still(&every) || !waiting_still(&few))
		wrong("a wait does not wait for who lives");
	peer_kill(&c);
	waited = waiting_end(&every);
	if (waited.ret || waited.wait.lost != 10 || waited.wait.high)
		wrong("flush of every: %d, %llu lost, not 10, %llu in flight", waited.ret, waited.wait.lost, waited.wait.high);
	waited = waiting_end(&few);
	if (waited.ret || waited.wait.lost != 11 || waited.wait.high)
		wrong("PENDING_LE: %d, %llu lost, not 11, %llu in flight", waited.ret, waited.wait.lost, waited.wait.high);
	peer_kill(&b);
	point("deaths", "units of the dead are waited for no more, and said to be lost");
}

static void stopped(void)
{
	struct peer client, other;
	struct pinion_wait wait;
	struct waiting w, sleeper;
	int mine = dev_open(O_RDWR), theirs = open_as(NOBODY, O_RDWR);

	peer_start(&client, 0, 2, 2);
	peer_start(&other, NOBODY, 1, 0);
	kill(client.pid, SIGSTOP);
	expect_in_flight(dev, &device, 5, "while one stands still");
	expect(dev_wait(mine, &device, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0, FOREVER, &wait), 0, "flush of the session");
	waiting_start(&w, theirs, &device, PINION_SCOPE_USER, PINION_COND_FLUSH, 0, FOREVER);
	waiting_start(&sleeper, theirs, &device, PINION_SCOPE_USER, PINION_COND_FLUSH, 0, FOREVER);
	/* Who waits may stand still as well. */
	kill(sleeper.pid, SIGSTOP);
	peer_ends_units(&other);
	expect(waiting_end(&w).ret, 0, "flush of another user");
	kill(sleeper.pid, SIGCONT);
	expect(waiting_end(&sleeper).ret, 0, "flush of one who stood still");
	waiting_start(&w, mine, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, FOREVER);
	expect(dev_wait(mine, &device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 30000000, &wait), -ETIMEDOUT,
	       "flush of every");
	if (wait.culprit_pid != client.pid || wait.culprit_units != 4)
		wrong("culprit %d with %u, not %d with 4", wait.culprit_pid, wait.culprit_units, client.pid);
	if (!waiting_still(&w))
		wrong("a flush of every does not wait for who stands still");
	kill(client.pid, SIGCONT);
	peer_ends_units(&client);
	expect(waiting_end(&w).ret, 0, "flush of every");
	peer_kill(&client);
	peer_kill(&other);
	close(mine);
	close(theirs);
	point("stopped", "who stands still holds up those who wait for it, and nobody else");
}

/* ---- work that keeps coming ---------------------------------------------------------------------------------------- */

#define WORKERS 4
#define SLOTS	8
#define FLUSHES 10 /* at least */

/* What each worker has in flight; a unit leaves its slot before its end. */
static struct running {
	_Atomic int stop; /* 1: who flushes, 2: who works */
	_Atomic uint64_t slot[WORKERS][SLOTS];
	_Atomic uint64_t units, flushes;
} * running;

static _Noreturn void worker(unsigned int id)
{
	int fd = open_as(id % 2 ? NOBODY : 0, O_RDWR);
	struct pinion_counter_page *page = dev_counters(fd);
	struct pinion_attach lane[2];
	uint32_t parity[SLOTS];
	uint64_t next = 1;

	dice = mix(id + 77);
	if (page == MAP_FAILED || dev_attach(fd, &device, 100, &lane[0]) || dev_attach(fd, &device, 100, &lane[1]))
		complain("a worker: %s", strerror(errno));
	/* There is always something in flight. */
	while (atomic_load(&running->stop) < 2) {
		unsigned int i = roll(SLOTS);

		if (atomic_load(&running->slot[id][i])) {
			atomic_store(&running->slot[id][i], 0);
			page_end(fd, page, &lane[roll(2)], parity[i]);
			i = (i + 1) % SLOTS;
			if (atomic_load(&running->slot[id][i]))
				continue;
		}
		parity[i] = page_begin(page, &lane[roll(2)]);
		atomic_store(&running->slot[id][i], next++);
		atomic_fetch_add(&running->units, 1);
		if (one_in(64))
			sched_yield();
	}
	_exit(0);
}

static _Noreturn void flusher(uint32_t scope)
{
	uint64_t before[WORKERS][SLOTS];
	struct pinion_wait wait;
	int fd = dev_open(O_RDWR), ret;

	while (!atomic_load(&running->stop)) {
		for (int w = 0; w < WORKERS; w++)
			for (int s = 0; s < SLOTS; s++)
				before[w][s] = atomic_load(&running->slot[w][s]);
		ret = dev_wait(fd, &device, scope, PINION_COND_FLUSH, 0, FOREVER, &wait);
		if (ret || wait.lost)
			complain("flush: %d, %llu lost", ret, wait.lost);
		for (int w = 0; w < WORKERS; w++)
			for (int s = 0; s < SLOTS; s++)
				if (before[w][s] && before[w][s] == atomic_load(&running->slot[w][s]) &&
				    (scope == PINION_SCOPE_EVERY || w % 2 == 0))
					complain("a flush ended before a unit from before did");
		atomic_fetch_add(&running->flushes, 1);
	}
	_exit(0);
}

static void work_goes_on(double seconds)
{
	pid_t pids[WORKERS + 3];
	unsigned int n;

	running = shared_memory(sizeof(*running));
	for (unsigned int i = 0; i < WORKERS + 3; i++) {
		pids[i] = fork();
		if (!pids[i] && i < WORKERS)
			worker(i);
		if (!pids[i])
			flusher(i == WORKERS ? PINION_SCOPE_USER : PINION_SCOPE_EVERY);
	}
	mem_sleep(seconds * 1e6);
	/* On a slow machine it takes longer. */
	if (!eventually(atomic_load(&running->flushes) >= FLUSHES || complaint->said))
		wrong("only %lu flushes ended", running->flushes);
	/* Who flushes ends first, as long as there is work. */
	for (atomic_store(&running->stop, 1), n = WORKERS; n < WORKERS + 3; n++)
		if (mem_wait(pids[n]))
			wrong("a flusher ended badly");
	for (atomic_store(&running->stop, 2), n = 0; n < WORKERS; n++)
		if (mem_wait(pids[n]))
			wrong("a worker ended badly");
	complaints();
	printf("# %lu flushes over %lu units in %g s\n", running->flushes, running->units, seconds);
	point("work", "flushes return while work keeps coming, and not before what was before is done");
}

int main(int argc, char **argv)
{
	uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 0) : 30000;
	struct pinion_info before;

	complaint = shared_memory(PAGE);
	dice = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)(mem_clock() * 1e9);
	printf("# dice 0x%lx\n", dice);
	dev = dev_open(O_RDWR);
	if (dev_info(dev, &before) || dev_add(dev, "counts-flush", &device))
		wrong("no device");
	if (!point("start", "a device"))
		return tap_end();
	before.user_devices++;
	schedule(steps);
	scopes();
	begins_with_the_call();
	dead_are_lost();
	stopped();
	work_goes_on(4);
	use_again(dev, &before, "root");
	point("end", "nothing is left");
	return tap_end();
}
