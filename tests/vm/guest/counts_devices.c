// SPDX-License-Identifier: MIT
/* Devices: keys, who makes and who keeps one, who may change and remove it, what is left of a removed one, caps. */
#define _GNU_SOURCE
#include "counts_calls.h"
#include "until.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>

static int dev; /* root's, with the program's own session */

static struct pinion_info info_of(int fd)
{
	struct pinion_info info;

	expect(dev_info(fd, &info), 0, "INFO");
	return info;
}

static int dev_set(int fd, const struct pinion_dev *of, uint64_t budget)
{
	struct pinion_dev d = { .size = sizeof(d),
				.set = PINION_SET_BUDGET,
				.generation = of->generation,
				.index = of->index,
				.budget = budget,
				.capacity = 99 };

	return dev_call(fd, PINION_IOC_DEV_SET, &d);
}

static int add_with(int fd, struct pinion_dev d)
{
	d.size = sizeof(d);
	return dev_call(fd, PINION_IOC_DEV_ADD, &d);
}

/* ---- keys -------------------------------------------------------------------------------------------------------------- */

static void keys(void)
{
	struct pinion_dev d = { .size = sizeof(d) }, got;

	expect(add_with(dev, d), -EINVAL, "DEV_ADD of no key");
	expect(dev_call(dev, PINION_IOC_DEV_GET, &d), -EINVAL, "DEV_GET of no key");
	for (int c = 1; c < 256; c++)
		for (int at = 0; at < 3; at++) {
			int want = c > ' ' && c < 127 ? 0 : -EINVAL, ret;

			memset(d.key, 0, sizeof(d.key));
			memset(d.key, 'k', 3);
			d.key[at] = c;
			got = d;
			ret = dev_call(dev, PINION_IOC_DEV_ADD, &got);
			expect(ret, want, "byte %d at %d of a key", c, at);
			if (!ret && memcmp(got.key, d.key, sizeof(d.key)))
				wrong("the key comes back as %.64s", got.key);
			if (!ret)
				expect(dev_del(dev, &got, 0), 0, "DEV_DEL");
			got = d;
			expect(dev_call(dev, PINION_IOC_DEV_GET, &got), want ? want : -ENOENT, "byte %d at %d asked for", c, at);
		}
	for (unsigned int len = 1; len <= PINION_KEY_BYTES; len++) {
		memset(d.key, 0, sizeof(d.key));
		memset(d.key, 'x', len);
		got = d;
		expect(dev_call(dev, PINION_IOC_DEV_ADD, &got), len == PINION_KEY_BYTES ? -EINVAL : 0, "a key of %u bytes", len);
		if (len < PINION_KEY_BYTES)
			expect(dev_del(dev, &got, 0), 0, "DEV_DEL");
		/* And something behind its end. */
		memset(d.key, 0, sizeof(d.key));
		d.key[0] = 'x';
		if (len > 1 && len < PINION_KEY_BYTES) {
			d.key[len] = 'y';
			expect(add_with(dev, d), -EINVAL, "a byte %u behind the end of a key", len);
		}
	}
	if (devices_there(dev))
		wrong("%d devices are left", devices_there(dev));
	point("keys", "printable ones of 1 to 63 bytes");
}

static void existing_wins(void)
{
	struct pinion_dev first = { .size = sizeof(first), .key = "one", .budget = 1000, .capacity = 7, .cost_unit = 3 }, got;
	int other = dev_open(O_RDWR);

	expect(dev_call(dev, PINION_IOC_DEV_ADD, &first), 0, "DEV_ADD");
	if (first.flags != PINION_DEV_CREATED || first.uid || first.by || first.set)
		wrong("a new device has flags %x", first.flags);
	got = (struct pinion_dev){
		.size = sizeof(got), .flags = PINION_DEV_SYNC, .key = "one", .budget = 5, .capacity = 1, .cost_unit = 3
	};
	expect(dev_call(other, PINION_IOC_DEV_ADD, &got), 0, "DEV_ADD again");
	if (got.flags || got.budget != 1000 || got.capacity != 7 || got.generation != first.generation ||
	    got.index != first.index)
		wrong("what is there does not win: flags %x budget %llu", got.flags, got.budget);
	got = (struct pinion_dev){ .size = sizeof(got), .key = "one", .cost_unit = 4 };
	expect(dev_call(other, PINION_IOC_DEV_ADD, &got), -EEXIST, "another unit of cost");
	expect(dev_get(other, "one", &got), 0, "DEV_GET");
	if (got.budget != 1000 || got.cost_unit != 3 || got.flags)
		wrong("DEV_GET says budget %llu unit %u", got.budget, got.cost_unit);
	if (info_of(dev).user_devices != 1)
		wrong("%u devices of the user", info_of(dev).user_devices);
	close(other);
	expect(dev_del(dev, &first, 0), 0, "DEV_DEL");
	if (info_of(dev).user_devices)
		wrong("%u devices of the user after DEV_DEL", info_of(dev).user_devices);
	point("DEV_ADD", "what is there wins");
}

/* Eight at once: one makes it, all find the same. */
static void race(void)
{
	struct {
		uint64_t generation;
		uint32_t created, round;
	} *seen = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	volatile uint32_t *go = (void *)(seen + 8), *ready = (void *)(seen + 10);

	for (uint32_t round = 1; round <= 40; round++) {
		int made = 0;

		*go = *ready = 0;
		for (int i = 0; i < 8; i++) {
			struct pinion_dev d;
			int fd, ret;

			if (fork())
				continue;
			fd = dev_open(O_RDWR);
			__atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
			while (!*go)
				sched_yield();
			ret = dev_add(fd, "raced", &d);
			seen[i].generation = d.generation;
			seen[i].created = !!(d.flags & PINION_DEV_CREATED);
			/* It is there until all have it, or could not. */
			__atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
			while (*ready < 16)
				sched_yield();
			_exit(ret < 0);
		}
		while (*ready < 8)
			sched_yield();
		*go = 1;
		for (int i = 0; i < 8; i++) {
			int status;

			if (wait(&status) < 0 || status)
				wrong("round %u: a child ended with %x", round, status);
		}
		for (int i = 0; i < 8; i++) {
			made += seen[i].created;
			if (seen[i].generation != seen[0].generation)
				wrong("round %u: two generations", round);
		}
		if (made != 1)
			wrong("round %u: %d made it", round, made);
		if (devices_there(dev))
			wrong("round %u: it is there after all are gone", round);
	}
	munmap(seen, PAGE);
	point("DEV_ADD", "of eight at once one makes it");
}

/* ---- life -------------------------------------------------------------------------------------------------------------- */

/* Whether the device of that generation is the one of the key. */
static bool there(const struct pinion_dev *d)
{
	struct pinion_dev got;

	return !dev_get(dev, "life", &got) && got.generation == d->generation;
}

static void life(void)
{
	struct pinion_attach lane;
	struct pinion_dev d, again, set;
	uint64_t before;
	int a, b, held;

	for (int who = 0; who < 4; who++) {
		static const char *const whom[] = { "another that added it", "a lane", "a watch", "a claim" };

		a = dev_open(O_RDWR);
		b = dev_open(O_RDWR);
		held = -1;
		expect(dev_add(a, "life", &d), 0, "DEV_ADD");
		if (who == 0)
			expect(dev_add(b, "life", &again), 0, "DEV_ADD");
		else if (who == 1)
			expect(dev_attach(b, &d, 1, &lane), 0, "ATTACH");
		else if (who == 2)
			expect(held = dev_watch(b, &d, PINION_SCOPE_USER, PINION_COND_FLUSH, 0), 0, "WATCH");
		else
			expect(held = dev_reserve(b, &d, 1, 0, 0), 0, "RESERVE");
		close(a);
		if (!there(&d) || info_of(dev).user_devices != 1)
			wrong("%s does not keep it", whom[who]);
		/* Who only looks at it does not keep it; who adds it anew finds the same. */
		a = dev_open(O_RDWR);
		expect(dev_add(a, "life", &again), 0, "DEV_ADD");
		if (again.generation != d.generation)
			wrong("%s: another device", whom[who]);
		close(a);
		/* A lane given back is enough. */
		if (who == 1 && dev_handle(b, PINION_IOC_DETACH, lane.handle))
			wrong("DETACH");
		if (held >= 0)
			close(b);
		if (held >= 0 && !there(&d))
			wrong("%s goes with the open that made it", whom[who]);
		if (held >= 0)
			close(held);
		else if (who == 0)
			close(b);
		if (there(&d) || info_of(dev).user_devices)
			wrong("it is there after %s is gone", whom[who]);
		if (who == 1)
			close(b);
	}
	point("life", "while somebody refers to it");

	before = d.generation;
	for (int i = 0; i < 5; i++) {
		a = dev_open(O_RDWR);
		expect(dev_add(a, "life", &d), 0, "DEV_ADD");
		if (!(d.flags & PINION_DEV_CREATED) || d.generation <= before || d.budget != 1 << 20)
			wrong("time %d: generation %llu after %lu", i, d.generation, before);
		set = d;
		expect(dev_set(a, &set, 5), 0, "DEV_SET");
		before = d.generation;
		close(a);
	}
	point("life", "it comes back as another");
}

/* ---- who may ----------------------------------------------------------------------------------------------------------- */

static struct pinion_dev roots;

static void nobody_tries(void)
{
	int fd = dev_open(O_RDWR);
	struct pinion_dev got;

	expect(dev_get(fd, "roots", &got), 0, "DEV_GET");
	expect(dev_set(fd, &got, 5), -EPERM, "DEV_SET");
	expect(dev_del(fd, &got, 0), -EPERM, "DEV_DEL");
	expect(dev_del(fd, &got, PINION_DEL_FORCE), -EPERM, "DEV_DEL by force");
	/* To have added it again gives no right. */
	expect(dev_add(fd, "roots", &got), 0, "DEV_ADD");
	if (got.uid || got.flags)
		wrong("it is of uid %u", got.uid);
	expect(dev_del(fd, &got, PINION_DEL_FORCE), -EPERM, "DEV_DEL by force");
	if (info_of(fd).user_devices)
		wrong("charged for what another added");
	/* The credentials are those of the opener. */
	expect(dev_set(dev, &got, 1 << 20), 0, "DEV_SET by root's open");
	close(fd);
}

static void nobody_adds(void)
{
	int fd = dev_open(O_RDWR);
	struct pinion_dev got;

	expect(dev_add(fd, "nobodys", &got), 0, "DEV_ADD");
	if (got.uid != NOBODY || info_of(fd).user_devices != 1)
		wrong("it is of uid %u, %u of them", got.uid, info_of(fd).user_devices);
	expect(dev_set(fd, &got, 9), 0, "DEV_SET");
	expect(dev_del(dev, &got, 0), 0, "DEV_DEL by root's open, which may");
	expect(dev_del(fd, &got, 0), -ESTALE, "DEV_DEL again");
	expect(dev_set(fd, &got, 1), -ESTALE, "DEV_SET of what is gone");
	if (info_of(fd).user_devices)
		wrong("charged for what was removed");
	expect(dev_add(fd, "nobodys", &got), 0, "DEV_ADD again");
	if (info_of(fd).user_devices != 1)
		wrong("%u devices, not 1", info_of(fd).user_devices);
	close(fd);
}

/* What DEV_GET tells is what DEV_SET takes, with set and what is to change. */
static void change_what_was_told(int fd, const char *key, uint32_t by)
{
	struct pinion_dev told, other;

	expect(dev_get(fd, key, &told), 0, "DEV_GET");
	told.by = by;
	told.flags = told.uid = 0;
	expect(dev_call(fd, PINION_IOC_DEV_GET, &told), by == PINION_BY_NEXT ? -EINVAL : 0, "DEV_GET by %u", by);
	if (by == PINION_BY_NEXT) {
		told.generation = 0;
		expect(dev_call(fd, PINION_IOC_DEV_GET, &told), 0, "DEV_GET of the next");
	}
	told.set = PINION_SET_BUDGET;
	told.budget = 4242 + by;
	other = told;
	other.uid++;
	expect(dev_call(fd, PINION_IOC_DEV_SET, &other), -EINVAL, "DEV_SET with another's uid");
	other = told;
	other.flags ^= PINION_DEV_SYNC;
	/* None at all is nothing said. */
	expect(dev_call(fd, PINION_IOC_DEV_SET, &other), other.flags ? -EINVAL : 0, "DEV_SET with other flags");
	expect(dev_call(fd, PINION_IOC_DEV_SET, &told), 0, "DEV_SET of what DEV_GET told");
	expect(dev_get(fd, key, &other), 0, "DEV_GET again");
	if (other.budget != 4242 + by || other.uid != NOBODY || told.uid != NOBODY || told.flags != other.flags)
		wrong("budget %llu, uid %u, flags %x and %x", other.budget, other.uid, told.flags, other.flags);
}

static void nobody_changes_its_own(void)
{
	int fd = dev_open(O_RDWR);
	struct pinion_dev got;

	expect(dev_add(fd, "nobodys", &got), 0, "DEV_ADD");
	got = (struct pinion_dev){ .flags = PINION_DEV_SYNC, .key = "nobodys-sync", .budget = 7 };
	expect(add_with(fd, got), 0, "DEV_ADD of a synchronous one");
	for (uint32_t by = PINION_BY_KEY; by <= PINION_BY_NEXT; by++) {
		change_what_was_told(fd, "nobodys", by);
		change_what_was_told(fd, "nobodys-sync", by);
	}
	close(fd);
}

static void rights(void)
{
	struct pinion_dev got;
	int ro = dev_open(O_RDONLY);

	expect(dev_add(dev, "roots", &roots), 0, "DEV_ADD");
	in_child(nobody_tries, NOBODY, "another user");
	expect(dev_get(dev, "roots", &got), 0, "DEV_GET");
	if (got.budget != 1 << 20 || got.capacity != 4)
		wrong("budget %llu capacity %u", got.budget, got.capacity);
	in_child(nobody_adds, NOBODY, "one's own");
	in_child(nobody_changes_its_own, NOBODY, "one's own as it was told");
	expect(dev_get(dev, "nobodys", &got), -ENOENT, "DEV_GET of nobody's");
	expect(dev_get(ro, "roots", &got), 0, "DEV_GET by a read-only open");
	expect(dev_del(dev, &roots, 0), 0, "DEV_DEL");
	close(ro);
	point("rights", "of who added it, and of root");
}

/* ---- removal ----------------------------------------------------------------------------------------------------------- */

static struct pinion_dev victim;

/* In a child that waits for a unit of the parent's: 0 when it was told. */
static pid_t waiter(void)
{
	struct pinion_wait out;
	pid_t pid = fork();
	int fd;

	if (pid)
		return pid;
	fd = dev_open(O_RDONLY);
	_exit(dev_wait(fd, &victim, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, now_ns() + 2 * PATIENCE_MS * 1000000LL, &out) !=
	      -ESTALE);
}

/* By @pid, beside others: @n in all. It counts before it waits. */
static void until_waited_for(pid_t pid, int n)
{
	if (!eventually(info_of(dev).user_watches == (uint32_t)n) || !until_asleep(pid))
		wrong("%u watches and waits, not %d", info_of(dev).user_watches, n);
}

static void busy(void)
{
	int other = dev_open(O_RDWR), fd, status;
	struct pinion_attach lane, own;
	pid_t pid;

	expect(dev_add(dev, "victim", &victim), 0, "DEV_ADD");
	expect(dev_attach(other, &victim, 5, &lane), 0, "ATTACH");
	expect(dev_del(dev, &victim, 0), -EBUSY, "DEV_DEL with another's lane");
	dev_handle(other, PINION_IOC_DETACH, lane.handle);
	fd = dev_reserve(other, &victim, 1, 1, 0);
	expect(dev_del(dev, &victim, 0), -EBUSY, "DEV_DEL with another's claim");
	close(fd);
	fd = dev_watch(other, &victim, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0);
	expect(dev_del(dev, &victim, 0), -EBUSY, "DEV_DEL with another's watch");
	close(fd);
	expect(dev_attach(dev, &victim, 5, &own), 0, "ATTACH of one's own");
	expect(dev_count(dev, own.handle, 1, 0, 0), 0, "ADD");
	pid = waiter();
	until_waited_for(pid, 1);
	expect(dev_del(dev, &victim, 0), -EBUSY, "DEV_DEL with another's wait");
	expect(dev_del(dev, &victim, PINION_DEL_FORCE), 0, "DEV_DEL by force");
	if (waitpid(pid, &status, 0) != pid || status)
		wrong("the wait ended with %x", status);
	if (dev_handle(dev, PINION_IOC_DETACH, own.handle) != 1)
		wrong("DETACH of a stale lane does not say one unit");
	close(other);
	/* One's own are no reason. */
	expect(dev_add(dev, "victim", &victim), 0, "DEV_ADD");
	expect(dev_attach(dev, &victim, 5, &own), 0, "ATTACH of one's own");
	fd = dev_watch(dev, &victim, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0);
	expect(dev_del(dev, &victim, 0), 0, "DEV_DEL with one's own lane and watch");
	close(fd);
	dev_handle(dev, PINION_IOC_DETACH, own.handle);
	if (info_of(dev).user_devices)
		wrong("%u devices are left", info_of(dev).user_devices);
	point("DEV_DEL", "not while others refer to it");
}

static bool poll_says(int fd, int timeout_ms, short want)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms) == !!want && p.revents == want;
}

static void stale(void)
{
	int other = dev_open(O_RDWR), claim, watch, pending, index, status;
	struct pinion_counter_page *page;
	struct pinion_attach lane, fresh;
	struct pinion_reading row;
	struct pinion_event event;
	struct pinion_dev again;
	struct pinion_wait out;
	struct pinion_reserve r = { .size = sizeof(r) };
	const struct pinion_info_device *line;
	const struct pinion_info_head *head = dev_info_page(dev);
	pid_t pid;

	page = dev_counters(other);
	expect(dev_add(dev, "victim", &victim), 0, "DEV_ADD");
	expect(dev_attach(other, &victim, 50, &lane), 0, "ATTACH");
	if (page == MAP_FAILED || head == MAP_FAILED) {
		wrong("mmap: %s", strerror(errno));
		return;
	}
	index = victim.index;
	line = (void *)(head + 1 + index);
	for (int i = 0; i < 3; i++)
		page_begin(page, &lane);
	expect(dev_count(other, lane.handle, 4, 4, 0), 0, "ADD");
	claim = dev_reserve(other, &victim, 0, 0, PINION_RESERVE_EXCLUSIVE);
	watch = dev_watch(other, &victim, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0);
	pending = dev_watch(other, &victim, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0);
	pid = waiter();
	until_waited_for(pid, 3);
	expect(dev_reading(dev, &victim, &row), 0, "READ");
	if (row.high != 7 || line->generation != victim.generation || line->claimed_bytes != ~0ULL || line->held != 1)
		wrong("%llu in flight before", row.high);
	if (!poll_says(watch, 0, 0))
		wrong("the watch fires before");
	expect(dev_del(dev, &victim, PINION_DEL_FORCE), 0, "DEV_DEL by force");
	if (waitpid(pid, &status, 0) != pid || status)
		wrong("the wait in progress ended with %x", status);
	if (line->generation || line->claims || line->sessions)
		wrong("the info page shows it still");
	expect(dev_attach(dev, &victim, 1, &fresh), -ESTALE, "ATTACH");
	expect(dev_count(other, lane.handle, 1, 0, 0), -ESTALE, "ADD");
	expect(dev_count(other, lane.handle, -1, 0, 0), -ESTALE, "ADD of an end");
	expect(dev_handle(other, PINION_IOC_KICK, lane.handle), -ESTALE, "KICK");
	expect(dev_handle(other, PINION_IOC_RESET, lane.handle), -ESTALE, "RESET");
	expect(dev_reading(dev, &victim, &row), -ESTALE, "READ");
	expect(dev_reserve(dev, &victim, 1, 0, 0), -ESTALE, "RESERVE");
	expect(dev_watch(dev, &victim, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0), -ESTALE, "WATCH");
	expect(dev_wait(dev, &victim, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, 0, &out), -ESTALE, "WAIT");
	expect(dev_set(dev, &victim, 1), -ESTALE, "DEV_SET");
	expect(dev_del(dev, &victim, PINION_DEL_FORCE), -ESTALE, "DEV_DEL again");
	expect(dev_get(dev, "victim", &again), -ENOENT, "DEV_GET by its key");
	for (int i = 0; i < 2; i++) {
		if (!poll_says(watch, 0, POLLIN | POLLERR | POLLHUP) || !poll_says(pending, 0, POLLIN | POLLERR | POLLHUP))
			wrong("the watches do not say so, time %d", i);
		if (read(watch, &event, sizeof(event)) != sizeof(event) || event.status != -ESTALE)
			wrong("the watch's event says %d, time %d", event.status, i);
	}
	point("DEV_DEL", "by force: what is left is stale");

	/* The next one under its key and index is not touched by what is left of the old. */
	expect(dev_add(dev, "victim", &again), 0, "DEV_ADD");
	if (again.index != (uint32_t)index || again.generation == victim.generation)
		wrong("index %u, not %d", again.index, index);
	expect(dev_attach(dev, &again, 9, &fresh), 0, "ATTACH");
	expect(dev_count(dev, fresh.handle, 2, 2, 0), 0, "ADD");
	for (int i = 0; i < 3; i++)
		page_begin(page, &lane);
	pinion_lane_end(pinion_lane_control(page, lane.lane), &page->lane[lane.lane], 0, 1);
	expect(dev_count(other, lane.handle, 1, 0, 0), -ESTALE, "ADD");
	expect(dev_reading(dev, &victim, &row), -ESTALE, "READ of the old");
	expect(dev_reading(dev, &again, &row), 0, "READ of the new");
	if (row.high != 2 || row.low != 2 || row.sessions != 1 || row.claims || row.claimed_bytes || row.reclaimed || row.retired)
		wrong("the new one: %llu in flight, %u sessions, %u claims, %llu lost", row.high, row.sessions, row.claims,
		      row.reclaimed);
	/* Its claim is still one, of what was. */
	r.fd = claim;
	expect(dev_call(dev, PINION_IOC_CLAIMINFO, &r), 0, "CLAIMINFO");
	if (r.generation != victim.generation || r.flags != PINION_RESERVE_EXCLUSIVE)
		wrong("CLAIMINFO says %llu, %x", r.generation, r.flags);
	close(claim);
	if (dev_handle(other, PINION_IOC_DETACH, lane.handle) != 3 + 3 - 1 + 4)
		wrong("DETACH does not say what the old lane had in flight");
	close(watch);
	close(pending);
	expect(dev_reading(dev, &again, &row), 0, "READ of the new");
	if (row.high != 2 || row.reclaimed || line->reclaimed || line->generation != again.generation || line->claims)
		wrong("the new one, after the rest of the old went: %llu in flight, %llu lost", row.high, row.reclaimed);
	/* The lane is free, empty, and good for the new one. */
	expect(dev_attach(other, &again, 50, &fresh), 0, "ATTACH of the same lane");
	page_begin(page, &fresh);
	expect(dev_reading(dev, &again, &row), 0, "READ of the new");
	if (row.high != 3 || row.marked)
		wrong("with the lane of the old: %llu in flight", row.high);
	close(other);
	munmap(page, PAGE);
	expect(dev_reading(dev, &again, &row), 0, "READ of the new");
	if (row.high != 2 || row.reclaimed != 1)
		wrong("after the end of that: %llu in flight, %llu lost", row.high, row.reclaimed);
	expect(dev_del(dev, &again, 0), 0, "DEV_DEL");
	/* The last reference to what is gone is this lane's: its open ends with it. */
	close(dev);
	dev = dev_open(O_RDWR);
	munmap((void *)head, 256 * 64);
	if (info_of(dev).user_devices || info_of(dev).user_sessions)
		wrong("%u devices are left", info_of(dev).user_devices);
	point("DEV_DEL", "the next of its key is another");
}

/* ---- caps -------------------------------------------------------------------------------------------------------------- */

static void cap_of_devices(void)
{
	uint64_t was = file_number(PARAMETER "max_user_devices");
	static struct pinion_dev d[300];
	struct pinion_dev again;
	char key[32];
	int other = dev_open(O_RDWR);

	parameter_set("max_user_devices", 3);
	for (int i = 0; i < 5; i++) {
		snprintf(key, sizeof(key), "cap-%d", i);
		expect(dev_add(dev, key, &d[i]), i < 3 ? 0 : -ENOSPC, "device %d of 3", i);
	}
	expect(dev_add(other, "cap-1", &again), 0, "one that is there is found all the same");
	expect(dev_add(dev, "cap-1", &again), 0, "also by who added it");
	expect(add_with(other, (struct pinion_dev){ .key = "cap-1", .cost_unit = 1 }), -EEXIST, "with another unit of cost");
	close(other);
	expect(dev_del(dev, &d[0], 0), 0, "DEV_DEL");
	expect(dev_add(dev, "cap-5", &d[0]), 0, "one for one that went");
	expect(dev_add(dev, "cap-6", &again), -ENOSPC, "and no more");
	if (info_of(dev).user_devices != 3 || info_of(dev).max_user_devices != 3)
		wrong("%u devices of %u", info_of(dev).user_devices, info_of(dev).max_user_devices);
	for (int i = 0; i < 3; i++)
		expect(dev_del(dev, &d[i], 0), 0, "DEV_DEL");
	point("caps", "devices of a user");

	parameter_set("max_user_devices", 300);
	for (int i = 0; i < 258; i++) {
		snprintf(key, sizeof(key), "cap-%d", i);
		expect(dev_add(dev, key, &d[i]), i < 255 ? 0 : -ENOSPC, "device %d of 255", i);
		if (i < 255 && d[i].index != (uint32_t)i)
			wrong("device %d has index %u", i, d[i].index);
	}
	if (devices_there(dev) != 255 || info_of(dev).max_devices != 255 || info_of(dev).user_devices != 255)
		wrong("%d devices, %u of the user", devices_there(dev), info_of(dev).user_devices);
	expect(dev_del(dev, &d[100], 0), 0, "DEV_DEL");
	if (devices_there(dev) != 254)
		wrong("%d devices after one went", devices_there(dev));
	expect(dev_add(dev, "cap-new", &d[100]), 0, "one for one that went");
	if (d[100].index != 100)
		wrong("the place of the one that went is %u", d[100].index);
	close(dev);
	dev = dev_open(O_RDWR);
	if (devices_there(dev) || info_of(dev).user_devices)
		wrong("%d devices are left", devices_there(dev));
	parameter_set("max_user_devices", was);
	point("caps", "255 devices");
}

static void cap_of_sessions(void)
{
	uint64_t was = file_number(PARAMETER "max_user_sessions");
	struct pinion_attach lane;
	struct pinion_dev d;
	int fd[6];
	void *page;

	expect(dev_add(dev, "caps", &d), 0, "DEV_ADD");
	parameter_set("max_user_sessions", 3);
	for (int i = 0; i < 5; i++) {
		fd[i] = dev_open(O_RDWR);
		expect(dev_attach(fd[i], &d, 1, &lane), i < 3 ? 0 : -ENOSPC, "session %d of 3", i);
		if (i >= 3 && info_of(fd[i]).session)
			wrong("a session that failed has a number");
	}
	page = dev_counters(fd[4]);
	if (page != MAP_FAILED || errno != ENOSPC)
		wrong("counters of session 4 of 3: %s", strerror(errno));
	if (info_of(dev).user_sessions != 3)
		wrong("%u sessions", info_of(dev).user_sessions);
	close(fd[0]);
	page = dev_counters(fd[4]);
	if (page == MAP_FAILED)
		wrong("counters for one that went: %s", strerror(errno));
	expect(dev_attach(fd[3], &d, 1, &lane), -ENOSPC, "and no more");
	munmap(page, PAGE);
	for (int i = 1; i < 5; i++)
		close(fd[i]);
	parameter_set("max_user_sessions", was);
	if (info_of(dev).user_sessions)
		wrong("%u sessions are left", info_of(dev).user_sessions);
	expect(dev_del(dev, &d, 0), 0, "DEV_DEL");
	point("caps", "sessions of a user");
}

static void cap_of_lanes(void)
{
	const unsigned int all = info_of(dev).max_lanes, most = all - 512, opens = most / PINION_LANES;
	struct pinion_attach lane, one = { 0 };
	struct pinion_reading row;
	struct pinion_dev d;
	unsigned int n = 0;
	int *fd = calloc(opens + 1, sizeof(*fd)), ret;

	expect(dev_add(dev, "caps", &d), 0, "DEV_ADD");
	/* One user may have all of them where root says so, but those that are kept for others. */
	parameter_set("max_user_lanes", all);
	if (info_of(dev).max_user_lanes != most)
		wrong("INFO says %u lanes for a user", info_of(dev).max_user_lanes);
	for (unsigned int i = 0; i <= opens; i++) {
		fd[i] = dev_open(O_RDWR);
		for (unsigned int k = 0; k < PINION_LANES + 1; k++) {
			ret = dev_attach(fd[i], &d, 1, &lane);
			expect(ret, k < PINION_LANES && n < most ? 0 : -ENOSPC, "lane %u, %u of open %u", n, k, i);
			n += !ret;
			if (!ret && !i && !k)
				one = lane;
		}
	}
	if (n != most || all != 4096)
		wrong("%u lanes", n);
	expect(dev_reading(dev, &d, &row), 0, "READ");
	if (row.sessions != opens || row.high || info_of(dev).user_sessions != opens)
		wrong("%u sessions, not %u, %u of the user", row.sessions, opens, info_of(dev).user_sessions);
	dev_handle(fd[0], PINION_IOC_DETACH, one.handle);
	expect(dev_attach(fd[opens], &d, 1, &lane), 0, "one for one that went");
	expect(dev_attach(fd[0], &d, 1, &lane), -ENOSPC, "and no more");
	for (unsigned int i = 0; i <= opens; i++)
		close(fd[i]);
	free(fd);
	parameter_set("max_user_lanes", all / 2);
	expect(dev_del(dev, &d, 0), 0, "DEV_DEL");
	point("caps", "3584 lanes of a device for one user");
}

static void cap_of_claims(void)
{
	uint64_t was = file_number(PARAMETER "max_user_claims");
	struct pinion_dev d;
	int fd[5];

	expect(dev_add(dev, "caps", &d), 0, "DEV_ADD");
	parameter_set("max_user_claims", 3);
	for (int i = 0; i < 5; i++)
		expect(fd[i] = dev_reserve(dev, &d, 1, 0, 0), i < 3 ? 0 : -ENOSPC, "claim %d of 3", i);
	close(fd[0]);
	expect(fd[0] = dev_reserve(dev, &d, 1, 0, 0), 0, "one for one that went");
	expect(dev_reserve(dev, &d, 1, 0, 0), -ENOSPC, "and no more");
	if (info_of(dev).user_claims != 3 || info_of(dev).max_user_claims != 3)
		wrong("%u claims", info_of(dev).user_claims);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	parameter_set("max_user_claims", was);
	expect(dev_del(dev, &d, 0), 0, "DEV_DEL");
	point("caps", "claims of a user");
}

static void cap_of_watches(void)
{
	uint64_t was = file_number(PARAMETER "max_user_watches");
	struct pinion_wait out;
	struct pinion_dev d;
	int fd[5];

	expect(dev_add(dev, "caps", &d), 0, "DEV_ADD");
	parameter_set("max_user_watches", 3);
	for (int i = 0; i < 5; i++)
		expect(fd[i] = dev_watch(dev, &d, 0, PINION_COND_FLUSH, 0), i < 3 ? 0 : -ENOSPC, "watch %d of 3", i);
	expect(dev_wait(dev, &d, 0, PINION_COND_PENDING_LE, 0, 0, &out), -ENOSPC, "a wait is one too");
	close(fd[0]);
	expect(dev_wait(dev, &d, 0, PINION_COND_PENDING_LE, 0, 0, &out), 0, "a wait for one that went");
	expect(fd[0] = dev_watch(dev, &d, 0, PINION_COND_FLUSH, 0), 0, "one for one that went");
	if (info_of(dev).user_watches != 3 || info_of(dev).max_user_watches != 3)
		wrong("%u watches", info_of(dev).user_watches);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	parameter_set("max_user_watches", was);
	expect(dev_del(dev, &d, 0), 0, "DEV_DEL");
	point("caps", "watches and waits of a user");
}

int main(void)
{
	dev = dev_open(O_RDWR);
	if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
		return tap_end();
	keys();
	existing_wins();
	race();
	life();
	rights();
	busy();
	stale();
	cap_of_devices();
	cap_of_sessions();
	cap_of_lanes();
	cap_of_claims();
	cap_of_watches();
	close(dev);
	nothing_left();
	return tap_end();
}
