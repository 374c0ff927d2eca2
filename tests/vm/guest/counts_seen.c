// SPDX-License-Identifier: MIT
/*
 * What one sees of others: the mappings, rows of LIST by read-only opens, the window and the info page; and what is seen from
 * and of other namespaces. With the argument "group", under window_group=1.
 */
#define _GNU_SOURCE
#include "counts_calls.h"

#include "bytes.h"
#include "until.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

#define SOMEONE 1000

static int maps(int fd, uint64_t offset, size_t bytes, int prot, int flags)
{
	void *at = mmap(NULL, bytes, prot, flags, fd, offset);

	if (at == MAP_FAILED)
		return -errno;
	munmap(at, bytes);
	return 0;
}

static uint64_t session_of(int fd)
{
	struct pinion_info info;

	expect(dev_info(fd, &info), 0, "INFO");
	return info.session;
}

static int window_of(int fd, uint64_t session)
{
	return maps(fd, PINION_MMAP_WINDOW + session * PAGE, PAGE, PROT_READ, MAP_SHARED);
}

/* ---- totals ------------------------------------------------------------------------------------------------------------ */

/* As many as there are rows: of root, who alone is here, all that its uid has. */
static void totals(void)
{
	static const char *const names[] = { "devices", "sessions", "claims", "watches" };
	int watch = dev_watch(given.dev, &given.device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0);
	struct counts_state now = counts_now(given.dev);
	const struct pinion_info *info = &now.state.info;
	const uint64_t rows[] = { now.devices, now.sessions, now.claims, now.watches };
	const uint64_t users[] = { info->user_devices, info->user_sessions, info->user_claims, info->user_watches };

	for (unsigned int i = 0; i < 4; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/sys/class/misc/pinion/%s", names[i]);
		if (!rows[i] || file_number(path) != rows[i] || users[i] != rows[i])
			wrong("%s is %lu, with %lu rows, and %lu of the user", path, file_number(path), rows[i], users[i]);
	}
	close(watch);
	point("sysfs", "totals of counts are the rows that there are");
}

/* ---- mappings ---------------------------------------------------------------------------------------------------------- */

static void mappings(void)
{
	struct counts_state was = counts_now(given.dev);
	const uint64_t window = PINION_MMAP_WINDOW + was.state.info.session * PAGE;
	const size_t info = was.state.info.info_page_bytes;
	int fd = dev_open(O_RDWR);

	for (int prot = 0; prot < 8; prot++) {
		bool exec = prot & PROT_EXEC, write = prot & PROT_WRITE;

		expect(maps(given.dev, window, PAGE, prot, MAP_SHARED), exec || write ? -EACCES : 0, "the window, as %d", prot);
		expect(maps(given.read_only, window, PAGE, prot, MAP_SHARED), exec || write ? -EACCES : 0,
		       "the window read-only, as %d", prot);
		expect(maps(given.dev, PINION_MMAP_INFO, info, prot, MAP_SHARED), exec || write ? -EACCES : 0, "INFO, as %d",
		       prot);
		expect(maps(given.read_only, PINION_MMAP_INFO, info, prot, MAP_SHARED), exec || write ? -EACCES : 0,
		       "INFO read-only, as %d", prot);
		expect(maps(given.read_only, PINION_MMAP_COUNTERS, PAGE, prot, MAP_SHARED), -EACCES, "counters read-only, as %d",
		       prot);
		if (exec)
			expect(maps(fd, PINION_MMAP_COUNTERS, PAGE, prot, MAP_SHARED), -EACCES, "counters, as %d", prot);
	}
	for (unsigned int pages = 1; pages < 6; pages++) {
		size_t bytes = pages * PAGE;

		expect(maps(given.dev, window, bytes, PROT_READ, MAP_SHARED), pages > 1 ? -EINVAL : 0, "%u pages of window",
		       pages);
		expect(maps(given.dev, PINION_MMAP_INFO, bytes, PROT_READ, MAP_SHARED), bytes > info ? -EINVAL : 0,
		       "%u pages of INFO", pages);
		if (pages > 1)
			expect(maps(fd, 0, bytes, PROT_READ, MAP_SHARED), -EINVAL, "%u pages of counters", pages);
	}
	expect(maps(fd, 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE), -EINVAL, "counters privately");
	expect(maps(given.dev, window, PAGE, PROT_READ, MAP_PRIVATE), -EINVAL, "the window privately");
	expect(maps(given.dev, PINION_MMAP_INFO, PAGE, PROT_READ, MAP_PRIVATE), -EINVAL, "INFO privately");
	for (unsigned int shift = 12; shift < 30; shift++)
		if (shift != 20)
			expect(maps(fd, 1ULL << shift, PAGE, PROT_READ, MAP_SHARED), -EINVAL, "offset 2^%u", shift);
	expect(maps(given.dev, PINION_MMAP_INFO + PAGE, PAGE, PROT_READ, MAP_SHARED), -EINVAL, "INFO's second page alone");
	for (unsigned int shift = 31; shift < 63; shift++)
		expect(maps(given.dev, 1ULL << shift, PAGE, PROT_READ, MAP_SHARED), -ENOENT, "the window at 2^%u", shift);
	expect(maps(given.dev, PINION_MMAP_WINDOW, PAGE, PROT_READ, MAP_SHARED), -ENOENT, "the window of number 0");
	close(fd);
	counts_same(given.dev, &was);
	point("mmap", "every offset, size and way that is none");
}

/* What is mapped to read stays so, moves nowhere and grows nowhere. */
static void protections(void)
{
	struct counts_state was = counts_now(given.dev);
	const struct pinion_counter_page *window;
	struct pinion_counter_page *page;
	struct pinion_attach lane;
	struct pinion_info info;
	int fd = dev_open(O_RDWR);
	char *head = (char *)dev_info_page(given.dev);
	void *elsewhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	page = dev_counters(fd);
	expect(dev_info(fd, &info), 0, "INFO");
	window = dev_window(fd, info.session);
	if (page == MAP_FAILED || window == MAP_FAILED || head == MAP_FAILED) {
		wrong("mmap: %s", strerror(errno));
		point("mmap", "what is read-only stays so");
		return;
	}
	expect(maps(fd, 0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED), -EBUSY, "counters twice");
	for (int prot = PROT_WRITE; prot < 8; prot++) {
		if (prot & (PROT_WRITE | PROT_EXEC)) {
			expect(mprotect((void *)window, PAGE, prot) ? -errno : 0, -EACCES, "the window as %d", prot);
			expect(mprotect(head, PAGE, prot) ? -errno : 0, -EACCES, "INFO as %d", prot);
		}
		if (prot & PROT_EXEC)
			expect(mprotect(page, PAGE, prot) ? -errno : 0, -EACCES, "counters as %d", prot);
	}
	if (mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED)
		wrong("counters grow");
	if (mremap(page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere) != MAP_FAILED)
		wrong("counters move");
	if (mremap((void *)window, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED)
		wrong("the window grows");
	if (mremap(head, PAGE, 8 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED)
		wrong("INFO grows");
	if (smaps_flag(page, "wr") != true || !smaps_flag(page, "dc") || !smaps_flag(page, "de") || !smaps_flag(page, "dd") ||
	    !smaps_flag(page, "io"))
		wrong("the flags of the counters are %s", smaps_line(page, "VmFlags"));
	expect(dev_attach(fd, &given.device, 10, &lane), 0, "ATTACH");
	page_begin(page, &lane);
	if (window->lane[lane.lane].submitted[0].ops != 1)
		wrong("the window does not show a unit");
	munmap(page, PAGE);
	if (window->lane[lane.lane].submitted[0].ops)
		wrong("the window shows a unit of a session that ended");
	expect(maps(fd, PINION_MMAP_WINDOW + info.session * PAGE, PAGE, PROT_READ, MAP_SHARED), -ENOENT, "window of the ended");
	expect(maps(fd, 0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED), -EOWNERDEAD, "counters after the end");
	expect(dev_attach(fd, &given.device, 10, &lane), -EOWNERDEAD, "ATTACH after the end");
	expect(dev_count(fd, lane.handle, 1, 0, 0), -EOWNERDEAD, "ADD after the end");
	expect(dev_handle(fd, PINION_IOC_KICK, lane.handle), -EOWNERDEAD, "KICK after the end");
	expect(dev_handle(fd, PINION_IOC_RESET, lane.handle), -EOWNERDEAD, "RESET after the end");
	expect(dev_handle(fd, PINION_IOC_DETACH, lane.handle), -EOWNERDEAD, "DETACH after the end");
	munmap((void *)window, PAGE);
	munmap(head, info.info_page_bytes);
	close(fd);
	counts_same(given.dev, &was);
	point("mmap", "what is read-only stays so, and an end is one");
}

/* ---- rows of others ---------------------------------------------------------------------------------------------------- */

#define OTHERS 3 /* sessions, claims and watches of root's beside given's: one lane, two units of cost 5 */

static struct {
	int dev, claim, watch;
	struct pinion_attach lane;
} others[OTHERS];

static void others_open(void)
{
	for (int i = 0; i < OTHERS; i++) {
		others[i].dev = dev_open(O_RDWR);
		expect(dev_attach(others[i].dev, &given.device, 10, &others[i].lane), 0, "ATTACH");
		expect(dev_count(others[i].dev, others[i].lane.handle, 2, 5, 0), 0, "ADD");
		others[i].claim = dev_reserve(others[i].dev, &given.device, 100, 1, 0);
		expect(others[i].claim, 0, "RESERVE");
		others[i].watch = dev_watch(others[i].dev, &given.device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0);
		expect(others[i].watch, 0, "WATCH");
	}
}

static void others_close(void)
{
	for (int i = 0; i < OTHERS; i++) {
		close(others[i].watch);
		close(others[i].claim);
		close(others[i].dev);
	}
}

/* All rows of a kind in pieces of @count; how many. */
static int walk(int fd, uint32_t kind, void *rows, size_t row_size, unsigned int count, uint64_t *cursor)
{
	struct pinion_list l = { .size = sizeof(l), .kind = kind, .count = count, .row_size = row_size };
	int have = 0;

	do {
		l.rows = (uintptr_t)rows + have * row_size;
		if (!expect(dev_call(fd, PINION_IOC_LIST, &l), 0, "LIST of kind %u", kind))
			return -1;
		have += l.out_count;
	} while (l.out_count == count && have < 32);
	*cursor = l.cursor;
	return have;
}

/* As another user, with two sessions, a claim and two watches: its own rows, then those of root in one. */
static void someone_lists(void)
{
	static struct pinion_list_session s[40];
	static struct pinion_list_claim c[40];
	static struct pinion_list_watch w[40];
	int ro = dev_open(O_RDONLY), rw = dev_open(O_RDWR), second = dev_open(O_RDWR), claim, watch[2], n;
	struct pinion_attach lane, lanes[2];
	uint64_t cursor;

	/* None of one's own yet. */
	n = walk(ro, PINION_LIST_SESSIONS, s, sizeof(s[0]), 8, &cursor);
	if (n != 1 || s[0].uid != PINION_UID_OTHERS || s[0].sessions != OTHERS + 1)
		wrong("without one's own: %d rows, %u sessions", n, s[0].sessions);
	expect(dev_attach(rw, &given.device, 10, &lane), 0, "ATTACH");
	expect(dev_attach(second, &given.device, 20, &lanes[0]), 0, "ATTACH");
	expect(dev_attach(second, &given.device, 30, &lanes[1]), 0, "ATTACH");
	expect(dev_count(second, lanes[1].handle, 7, 70, 0), 0, "ADD");
	claim = dev_reserve(rw, &given.device, 50, 0, 0);
	for (int i = 0; i < 2; i++)
		watch[i] = dev_watch(i ? rw : ro, &given.device, PINION_SCOPE_USER, PINION_COND_PENDING_LE, 3 + i);
	for (unsigned int count = 1; count < 9; count++) {
		n = walk(ro, PINION_LIST_SESSIONS, s, sizeof(s[0]), count, &cursor);
		if (n != 3 || cursor != ~0ULL)
			wrong("pieces of %u: %d rows of sessions, cursor %#lx", count, n, cursor);
		for (int i = 0; i < 2; i++)
			if (s[i].uid != SOMEONE || s[i].pid != getpid() || !s[i].id || s[i].sessions != 1 ||
			    s[i].high != i * 7U || s[i].low != i * 7U || s[i].cost != i * 70U || s[i].submitted != i * 7U ||
			    s[i].since_ns == 0 || s[i].max_inflight != (i ? 50 : 10) ||
			    s[i].session != session_of(i ? second : rw) || s[i].generation != given.device.generation ||
			    s[i].index != given.device.index || !s[i].comm[0] || s[i].flags != (i ? PINION_SESSION_HELD : 0) ||
			    s[i].lanes != (i ? 1ULL << lanes[0].lane | 1ULL << lanes[1].lane : 1ULL << lane.lane))
				wrong("row %d: uid %u pid %d high %llu flags %x lanes %llx of %s", i, s[i].uid, s[i].pid,
				      s[i].high, s[i].flags, s[i].lanes, s[i].comm);
		/* given's lane has no unit. */
		if (s[2].uid != PINION_UID_OTHERS || s[2].pid || s[2].id || s[2].session || s[2].comm[0] || s[2].lanes ||
		    s[2].since_ns || s[2].sessions != OTHERS + 1 || s[2].high != 2 * OTHERS || s[2].low != 2 * OTHERS ||
		    s[2].cost != 5 * OTHERS || s[2].submitted != 2 * OTHERS || s[2].flags)
			wrong("the others: uid %u pid %d, %u sessions, high %llu", s[2].uid, s[2].pid, s[2].sessions, s[2].high);
		n = walk(ro, PINION_LIST_RESERVATIONS, c, sizeof(c[0]), count, &cursor);
		if (n != 2 || c[0].uid != SOMEONE || c[0].pid != getpid() || c[0].bytes != 50 || c[0].claims != 1 ||
		    !c[0].made_ns)
			wrong("pieces of %u: %d rows of claims, uid %u of %llu bytes", count, n, c[0].uid, c[0].bytes);
		if (c[1].uid != PINION_UID_OTHERS || c[1].pid || c[1].id || c[1].made_ns || c[1].claims != OTHERS + 1 ||
		    c[1].bytes != 100 * OTHERS + PAGE || c[1].units != OTHERS + 1)
			wrong("the others' claims: uid %u pid %d, %u of %llu bytes", c[1].uid, c[1].pid, c[1].claims, c[1].bytes);
		n = walk(ro, PINION_LIST_WATCHES, w, sizeof(w[0]), count, &cursor);
		if (n != 3 || w[0].uid != SOMEONE || w[0].pid != getpid() || w[0].value != 3 || w[1].value != 4 ||
		    w[0].scope != PINION_SCOPE_USER || w[0].cond != PINION_COND_PENDING_LE || w[0].watches != 1)
			wrong("pieces of %u: %d rows of watches, uid %u", count, n, w[0].uid);
		if (w[2].uid != PINION_UID_OTHERS || w[2].pid || w[2].id || w[2].made_ns || w[2].watches != OTHERS || w[2].value)
			wrong("the others' watches: uid %u pid %d, %u", w[2].uid, w[2].pid, w[2].watches);
	}
	/* An open for writing sees each row. */
	for (unsigned int count = 1; count < 9; count++) {
		n = walk(rw, PINION_LIST_SESSIONS, s, sizeof(s[0]), count, &cursor);
		if (n != OTHERS + 3 || s[0].uid || s[0].pid != getppid() || s[OTHERS + 1].flags != PINION_SESSION_MINE ||
		    s[OTHERS + 2].flags != PINION_SESSION_HELD || s[OTHERS].flags != PINION_SESSION_HELD)
			wrong("for writing: %d rows, uid %u pid %d flags %x", n, s[0].uid, s[0].pid, s[OTHERS + 1].flags);
		n = walk(rw, PINION_LIST_RESERVATIONS, c, sizeof(c[0]), count, &cursor);
		if (n != OTHERS + 2 || c[0].uid || c[0].pid != getppid() || c[OTHERS + 1].uid != SOMEONE)
			wrong("for writing: %d claims, uid %u pid %d", n, c[0].uid, c[0].pid);
		n = walk(rw, PINION_LIST_WATCHES, w, sizeof(w[0]), count, &cursor);
		if (n != OTHERS + 2 || w[0].uid || w[0].pid != getppid())
			wrong("for writing: %d watches, uid %u pid %d", n, w[0].uid, w[0].pid);
	}
	close(watch[0]);
	close(watch[1]);
	close(claim);
	close(second);
	close(rw);
	close(ro);
}

static void rows_of_others(void)
{
	struct counts_state was = counts_now(given.dev);
	static struct pinion_list_session s[40];
	uint64_t cursor;
	int n;

	others_open();
	in_child(someone_lists, SOMEONE, "another user");
	others_close();
	/* Without others there is no row of them. */
	n = walk(given.read_only, PINION_LIST_SESSIONS, s, sizeof(s[0]), 4, &cursor);
	if (n != 1 || s[0].uid || cursor != s[0].id)
		wrong("without others: %d rows, cursor %#lx", n, cursor);
	n = walk(given.dev, PINION_LIST_SESSIONS, s, sizeof(s[0]), 4, &cursor);
	if (n != 1 || s[0].flags != PINION_SESSION_MINE)
		wrong("one's own row has flags %x", s[0].flags);
	counts_same(given.dev, &was);
	point("LIST", "a read-only open sees the others as one row");
}

/* ---- window ------------------------------------------------------------------------------------------------------------ */

static bool group;
static uint64_t roots_session, fresh_session;

static void someone_maps(void)
{
	int rw = dev_open(O_RDWR), ro = dev_open(O_RDONLY), own = dev_open(O_RDWR);
	const int want = group ? 0 : -EACCES;
	struct pinion_counter_page *page = dev_counters(own);
	const struct pinion_counter_page *window;
	struct pinion_attach lane;

	expect(window_of(rw, roots_session), want, "root's");
	expect(window_of(ro, roots_session), want, "root's, read-only");
	expect(maps(rw, PINION_MMAP_WINDOW + roots_session * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED), -EACCES,
	       "root's for writing");
	expect(window_of(rw, fresh_session + 100000), -ENOENT, "a number that never was");
	expect(window_of(ro, session_of(own)), 0, "one's own, by another open");
	/* The credentials are those of the opener. */
	expect(window_of(given.dev, roots_session), 0, "root's, by root's open");
	expect(window_of(given.dev, session_of(own)), want, "one's own, by root's open");
	expect(dev_attach(own, &given.device, 3, &lane), 0, "ATTACH");
	window = dev_window(ro, session_of(own));
	if (page == MAP_FAILED || window == MAP_FAILED) {
		wrong("mmap: %s", strerror(errno));
		return;
	}
	page_begin(page, &lane);
	if (window->lane[lane.lane].submitted[0].ops != 1)
		wrong("the window does not show a unit");
	if (group) {
		window = dev_window(ro, roots_session);
		if (window == MAP_FAILED || touch((void *)window, true) != SIGSEGV || touch((void *)window, false))
			wrong("root's window can be written or not be read");
		expect(mprotect((void *)window, PAGE, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES, "mprotect");
	}
	close(own);
}

static void window_rights(void)
{
	struct counts_state was = counts_now(given.dev);
	int none = dev_open(O_RDWR);
	char *window;

	roots_session = session_of(given.dev);
	if (session_of(none))
		wrong("an open without a session has number %lu", session_of(none));
	fresh_session = roots_session;
	window = (char *)dev_window(given.read_only, roots_session);
	if (touch(window, true) != SIGSEGV || touch(window, false))
		wrong("the window can be written or not be read");
	munmap(window, PAGE);
	close(none);
	in_child(someone_maps, NOBODY, "another user");
	counts_same(given.dev, &was);
	point("window", group ? "window_group=1: that of every user, to read" : "one's own user's sessions alone");
}

/* What its owner wrote last is gone when its death can be waited for. */
static void window_of_the_dead(void)
{
	struct counts_state was = counts_now(given.dev);
	int ready[2], gone = 0;
	uint64_t session;

	for (int round = 0; round < 60; round++) {
		const uint64_t *window;
		pid_t pid;

		if (pipe2(ready, O_CLOEXEC))
			wrong("pipe: %s", strerror(errno));
		pid = fork();
		if (!pid) {
			int fd = dev_open(O_RDWR);
			struct pinion_counter_page *page = dev_counters(fd);
			struct pinion_attach lane;

			session = session_of(fd);
			if (page == MAP_FAILED || dev_attach(fd, &given.device, 10, &lane))
				_exit(1);
			memset(page, 0xff, PAGE);
			if (write(ready[1], &session, sizeof(session)) != sizeof(session))
				_exit(1);
			for (volatile uint64_t *word = (void *)page;;)
				for (unsigned int i = 0; i < PAGE / 8; i++)
					word[i] = ~0ULL;
		}
		close(ready[1]);
		if (read(ready[0], &session, sizeof(session)) != sizeof(session))
			wrong("round %d: no session", round);
		close(ready[0]);
		window = (void *)dev_window(given.read_only, session);
		if ((void *)window == MAP_FAILED) {
			wrong("round %d: %s", round, strerror(errno));
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			break;
		}
		for (unsigned int i = 0; i < PAGE / 8; i++)
			if (window[i] != ~0ULL && i >= PINION_CONTROL_LINES * 8)
				wrong("round %d: word %u is %#lx before", round, i, window[i]);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		for (unsigned int i = 0; i < PAGE / 8; i++)
			gone += !window[i];
		if (gone != (round + 1) * (int)(PAGE / 8))
			wrong("round %d: the window shows what the dead wrote", round);
		expect(window_of(given.dev, session), -ENOENT, "the window of the dead");
		munmap((void *)window, PAGE);
	}
	counts_same(given.dev, &was);
	point("window", "zero when its owner's death can be waited for");
}

/* ---- info page --------------------------------------------------------------------------------------------------------- */

static void info_page(void)
{
	const struct pinion_info_head *head = dev_info_page(given.read_only);
	const struct pinion_info_device *line = (void *)(head + 1);
	struct pinion_dev sync = {
		.size = sizeof(sync), .flags = PINION_DEV_SYNC, .key = "info-sync", .capacity = 9, .budget = 11
	};
	struct counts_state was = counts_now(given.dev);
	struct pinion_attach lane;
	struct pinion_reading row;
	uint64_t roster;
	int fd = dev_open(O_RDWR);

	if (head == MAP_FAILED) {
		wrong("mmap: %s", strerror(errno));
		return;
	}
	if (head->version != 1 || head->devices != 255)
		wrong("version %u of %u devices", head->version, head->devices);
	expect(dev_call(given.dev, PINION_IOC_DEV_ADD, &sync), 0, "DEV_ADD");
	for (int i = 0; i < 255; i++) {
		bool is = i == (int)given.device.index || i == (int)given.doomed.index || i == (int)sync.index;

		if (is != !!line[i].generation)
			wrong("line %d has generation %llu", i, line[i].generation);
	}
	line += sync.index;
	if (line->generation != sync.generation || line->budget != 11 || line->capacity != 9 || line->flags != PINION_DEV_SYNC ||
	    line->sessions || line->claims)
		wrong("its line: generation %llu budget %llu flags %x", line->generation, line->budget, line->flags);
	sync.flags = 0;
	sync.set = PINION_SET_BUDGET | PINION_SET_CAPACITY;
	sync.budget = 22;
	sync.capacity = 33;
	expect(dev_call(given.dev, PINION_IOC_DEV_SET, &sync), 0, "DEV_SET");
	if (line->budget != 22 || line->capacity != 33)
		wrong("its line after DEV_SET: budget %llu capacity %u", line->budget, line->capacity);
	expect(dev_del(given.dev, &sync, 0), 0, "DEV_DEL");
	for (unsigned int i = 0; i < 64; i++)
		if (((const char *)line)[i])
			wrong("its line after DEV_DEL: byte %u", i);
	point("info page", "a line for each device");

	line = (void *)(head + 1 + given.device.index);
	/* The first ADD of all says that the page is not all of it. */
	expect(dev_count(given.dev, given.lane.handle, 1, 0, 0), 0, "ADD");
	roster = head->roster;
	expect(dev_count(given.dev, given.lane.handle, 1, 0, 0), 0, "ADD");
	expect(dev_count(given.dev, given.lane.handle, -2, 0, 0), 0, "ADD");
	if (head->roster != roster || line->held != 1)
		wrong("a unit moves the roster from %lu to %llu, or %u are held", roster, head->roster, line->held);
	expect(dev_attach(fd, &given.device, 5, &lane), 0, "ATTACH");
	if (head->roster <= roster || line->sessions != 2 || line->held != 1)
		wrong("ATTACH does not move the roster, or %u sessions", line->sessions);
	roster = head->roster;
	expect(dev_count(fd, lane.handle, 3, 0, 0), 0, "ADD");
	if (line->held != 2)
		wrong("%u are held, not 2", line->held);
	if (dev_handle(fd, PINION_IOC_DETACH, lane.handle) != 3)
		wrong("DETACH does not say 3");
	expect(dev_reading(given.dev, &given.device, &row), 0, "READ");
	if (head->roster <= roster || line->sessions != 1 || line->held != 1 || line->reclaimed != row.reclaimed ||
	    line->retired != row.retired || row.reclaimed < 3)
		wrong("DETACH: %u sessions, %u held, %llu lost, %llu retired", line->sessions, line->held, line->reclaimed,
		      line->retired);
	close(fd);
	munmap((void *)head, was.state.info.info_page_bytes);
	counts_same(given.dev, &was);
	point("info page", "moves with lanes and shows who holds what");
}

/* ---- containers -------------------------------------------------------------------------------------------------------- */

/* Shared by root, the one that makes the container, and the first process in it. */
static struct {
	int pid;	/* of the inner one, as root sees it */
	uint32_t stage; /* 1: it is ready; 2: it is dead; 3: no namespaces */
	uint64_t high;	/* when it was dead */
	char why[sizeof(state_wrong)];
} * shared;

static void stage(uint32_t n)
{
	if (*state_wrong && !*shared->why)
		memcpy(shared->why, state_wrong, sizeof(state_wrong));
	__atomic_store_n(&shared->stage, n, __ATOMIC_RELEASE);
}

static bool reached(uint32_t n)
{
	return eventually(__atomic_load_n(&shared->stage, __ATOMIC_ACQUIRE) >= n) && shared->stage == n;
}

/* Process 1 of its own, root of its own, SOMEONE to the rest. Root has a unit in flight, SOMEONE outside two. */
static void inside(void)
{
	static struct pinion_list_session s[8];
	struct pinion_dev d, own;
	struct pinion_attach lane;
	struct pinion_counter_page *page;
	struct pinion_reading row;
	struct pinion_wait out;
	struct pinion_info info;
	uint64_t cursor;
	int fd = dev_open(O_RDWR), n, claim;

	if (getpid() != 1 || getuid())
		wrong("inside: pid %d uid %d", getpid(), getuid());
	expect(fd, 0, "open inside");
	page = dev_counters(fd);
	expect(dev_get(fd, "given", &d), 0, "DEV_GET");
	if (d.uid != 65534)
		wrong("root's device is of uid %u", d.uid);
	expect(dev_del(fd, &d, PINION_DEL_FORCE), -EPERM, "DEV_DEL of root's");
	d.set = PINION_SET_BUDGET;
	d.uid = 0;
	expect(dev_call(fd, PINION_IOC_DEV_SET, &d), -EPERM, "DEV_SET of root's");
	expect(dev_add(fd, "inside", &own), 0, "DEV_ADD");
	expect(dev_info(fd, &info), 0, "INFO");
	if (own.uid || info.user_devices != 1)
		wrong("one's own device is of uid %u, %u of them", own.uid, info.user_devices);
	expect(dev_del(fd, &own, 0), 0, "DEV_DEL of one's own");
	claim = dev_reserve(fd, &given.device, 1000, 1, 0);
	expect(claim, 0, "RESERVE");
	expect(dev_reserve(fd, &given.device, given.device.budget, 0, 0), -ENOSPC, "RESERVE of all");
	/* The two of its user outside are waited for, by whom is not said. */
	expect(dev_wait(fd, &given.device, PINION_SCOPE_USER, PINION_COND_FLUSH, 0, 0, &out), -ETIMEDOUT, "WAIT");
	if (out.high != 2 || out.culprit_pid || out.culprit_units != 2)
		wrong("WAIT says %llu, %u of pid %d", out.high, out.culprit_units, out.culprit_pid);
	expect(dev_attach(fd, &given.device, 10, &lane), 0, "ATTACH");
	for (int i = 0; page != MAP_FAILED && i < 3; i++)
		page_begin(page, &lane);
	expect(dev_count(fd, lane.handle, 2, 2, 0), 0, "ADD");
	expect(dev_reading(fd, &given.device, &row), 0, "READ");
	if (row.high != 8 || row.low != 8 || row.session_high != 5)
		wrong("inside: %llu in flight, %llu of one's own", row.high, row.session_high);
	n = walk(fd, PINION_LIST_SESSIONS, s, sizeof(s[0]), 8, &cursor);
	if (n != 3 || s[0].uid != 65534 || s[0].pid || s[1].uid || s[1].pid || s[2].uid || s[2].pid != 1 ||
	    s[2].flags != (PINION_SESSION_MINE | PINION_SESSION_MAPPED | PINION_SESSION_HELD))
		wrong("inside: %d rows, of uid %u pid %d, %u %d, %u %d %x", n, s[0].uid, s[0].pid, s[1].uid, s[1].pid, s[2].uid,
		      s[2].pid, s[2].flags);
	stage(1);
	pause();
}

static bool put(const char *path, const char *text)
{
	int ret = file_put(path, text);

	if (ret)
		printf("# %s: %s\n", path, strerror(-ret));
	return !ret;
}

/* It begins when its number is known to root, and ends with its parent, whenever that dies. */
static void first_process(int go)
{
	char c;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || read(go, &c, 1) != 1)
		_exit(1);
	inside();
	_exit(0);
}

static void outside(void)
{
	struct pinion_attach lane;
	struct pinion_reading row;
	int fd, go[2];
	pid_t pid;

	if (setresuid(SOMEONE, SOMEONE, SOMEONE) || prctl(PR_SET_DUMPABLE, 1) || pipe2(go, O_CLOEXEC))
		wrong("setresuid: %s", strerror(errno));
	fd = dev_open(O_RDWR);
	expect(dev_attach(fd, &given.device, 10, &lane), 0, "ATTACH");
	expect(dev_count(fd, lane.handle, 2, 2, 0), 0, "ADD");
	if (unshare(CLONE_NEWUSER | CLONE_NEWPID) || !put("/proc/self/setgroups", "deny") ||
	    !put("/proc/self/uid_map", "0 1000 1") || !put("/proc/self/gid_map", "0 0 1")) {
		stage(3);
		_exit(0);
	}
	pid = fork();
	if (!pid) {
		close(go[1]);
		first_process(go[0]);
	}
	shared->pid = pid;
	if (write(go[1], "x", 1) != 1)
		wrong("its first process is not told to begin");
	waitpid(pid, NULL, 0);
	expect(dev_reading(fd, &given.device, &row), 0, "READ");
	shared->high = row.high;
	stage(2);
	pause();
}

static void containers(void)
{
	struct counts_state was = counts_now(given.dev);
	static struct pinion_list_session s[8];
	struct pinion_reading row;
	struct pinion_wait out;
	uint64_t cursor;
	pid_t pid;
	int n;

	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* Whoever loses its parent is ours to wait for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	expect(dev_count(given.dev, given.lane.handle, 1, 1, 0), 0, "ADD");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		outside();
		_exit(0);
	}
	if (reached(1) && shared->pid > 0) {
		expect(dev_reading(given.dev, &given.device, &row), 0, "READ");
		if (row.high != 8 || row.low != 8 || row.sessions != 3 || row.claims != 2 || row.claimed_bytes != PAGE + 1000)
			wrong("outside: %llu in flight, %u sessions, %u claims", row.high, row.sessions, row.claims);
		n = walk(given.dev, PINION_LIST_SESSIONS, s, sizeof(s[0]), 8, &cursor);
		if (n != 3 || s[1].uid != SOMEONE || s[1].pid != pid || s[2].uid != SOMEONE || s[2].pid != shared->pid ||
		    s[2].high != 5)
			wrong("outside: %d rows, of uid %u pid %d, %u %d (%d)", n, s[1].uid, s[1].pid, s[2].uid, s[2].pid,
			      shared->pid);
		expect(dev_wait(given.dev, &given.device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, 0, &out), -ETIMEDOUT, "WAIT");
		if (out.high != 8 || out.culprit_pid != getpid() || out.culprit_units != 1)
			wrong("WAIT names another user's process: %d with %u", out.culprit_pid, out.culprit_units);
		kill(shared->pid, SIGKILL);
		if (!reached(2) || shared->high != 3)
			wrong("with the container's first process dead %lu are in flight, not 3", shared->high);
	} else {
		wrong("the container did not come up: stage %u", shared->stage);
	}
	if (*shared->why)
		wrong("%s", shared->why);
	/* And with it the container's first process, however far it came. */
	kill(pid, SIGKILL);
	while (wait(NULL) > 0)
		;
	expect(dev_count(given.dev, given.lane.handle, -1, -1, 0), 0, "ADD");
	counts_same(given.dev, &was);
	point("containers", "count and are seen as what they are outside");
	munmap(shared, PAGE);
}

int main(int argc, char **argv)
{
	group = argc > 1 && !strcmp(argv[1], "group");
	if (!given_open())
		return tap_end();
	dev_handle(given.dev, PINION_IOC_DETACH, given.spare.handle);
	window_rights();
	window_of_the_dead();
	if (!group) {
		totals();
		mappings();
		protections();
		rows_of_others();
		info_page();
		containers();
	}
	given_close();
	nothing_left();
	return tap_end();
}
