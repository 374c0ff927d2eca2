// SPDX-License-Identifier: MIT
/*
 * counts_restart [ROUNDS]: what dies comes back under the same name, again and again, while others look; who stands still is not
 * taken for dead; and every order in which a session's page, descriptor and process go.
 */
#define _GNU_SOURCE
#include "counting.h"

#define UNITS	3
#define FIRST	1001
#define SECOND	1002
#define STILL_S 3
#define MOST_S	60 /* of the rounds, on slow machines; */
#define LEAST	50 /* and so many in any case */

static int dev;
static struct pinion_dev device;

/* ---- killed and started ---------------------------------------------------------------------------------------------- */

static struct watched {
	_Atomic int stop;
	_Atomic uint64_t readings;
	_Atomic uint64_t started; /* sessions, before each begins */
} * watched;

/* As nobody and by a read-only open: what is dead is never in the sum beside more than the one that lives. */
static _Noreturn void watches(void)
{
	int fd = open_as(NOBODY, O_RDONLY);
	struct pinion_reading row;
	uint64_t lost = 0;

	while (!atomic_load(&watched->stop)) {
		int ret = dev_reading(fd, &device, &row);
		uint64_t most = atomic_load(&watched->started) * UNITS;

		if (ret)
			complain("READ: %s", strerror(-ret));
		else if (row.low > row.high || row.high > 2 * UNITS)
			complain("%llu to %llu in flight, %d at a time", row.low, row.high, UNITS);
		else if (row.marked || row.sessions > 2)
			complain("%u sessions, %u marked", row.sessions, row.marked);
		else if (row.reclaimed < lost || row.reclaimed > most)
			complain("%llu reclaimed, after %llu, of %llu", row.reclaimed, (unsigned long long)lost,
				 (unsigned long long)most);
		lost = row.reclaimed;
		atomic_fetch_add(&watched->readings, 1);
		mem_sleep(100);
	}
	_exit(0);
}

/* A process with units in flight on what is found or made under the key; @uid 0: root. */
static pid_t holder(uid_t uid, const char *key, int talk)
{
	struct pinion_counter_page *page;
	struct pinion_attach lane;
	struct pinion_dev of = { 0 };
	pid_t pid = fork();
	int fd;

	if (pid)
		return pid;
	/* Whatever fails shows in what is said, or in what is then not in flight. */
	fd = setresuid(uid, uid, uid) ? -1 : dev_open(O_RDWR);
	page = dev_counters(fd);
	if (page != MAP_FAILED && !dev_add(fd, key, &of) && !dev_attach(fd, &of, 10, &lane))
		for (int i = 0; i < UNITS; i++)
			page_begin(page, &lane);
	say(talk, &of, sizeof(of));
	for (;;)
		pause();
}

static void again_and_again(uint64_t rounds)
{
	struct pinion_reading row = { 0 };
	double late = mem_clock() + MOST_S;
	struct pinion_dev of;
	pid_t pid, reader[2];
	uint64_t i = 0;
	int talk[2];

	if (pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	for (int n = 0; n < 2; n++) {
		reader[n] = fork();
		if (!reader[n])
			watches();
	}
	while (i < rounds && (i < LEAST || mem_clock() < late) && !*state_wrong && !complaint->said) {
		/* Somebody looks in ten of them, at the least. */
		if (!eventually(watched->readings >= i / 10 || complaint->said))
			wrong("nobody looks");
		i++;
		atomic_fetch_add(&watched->started, 1);
		pid = holder(0, "counts-restart", talk[1]);
		if (!hear(talk[0], &of, sizeof(of)))
			break;
		if (of.flags & PINION_DEV_CREATED || of.generation != device.generation)
			wrong("round %lu: it found another device", i);
		expect_in_flight(dev, &device, UNITS, "alive");
		end_process(pid);
		if (dev_reading(dev, &device, &row) || row.low || row.high || row.cost || row.sessions ||
		    row.reclaimed != i * UNITS)
			wrong("round %lu: %llu to %llu in flight, %u sessions, %llu reclaimed when waitpid() returned", i,
			      row.low, row.high, row.sessions, row.reclaimed);
	}
	atomic_store(&watched->stop, 1);
	for (int n = 0; n < 2; n++)
		if (mem_wait(reader[n]))
			wrong("a reader ended badly");
	complaints();
	printf("# %lu of %lu kills, %lu readings meanwhile\n", i, rounds, watched->readings);
	close(talk[0]);
	close(talk[1]);
	point("restart", "killed and started again while others read: never below 0, never stale");
}

/* A key whose user has died is free for another user, and carries nothing over. */
static void by_another_user(void)
{
	struct pinion_dev of, next;
	struct pinion_reading row;
	int talk[2], fd;
	pid_t pid;

	if (pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	pid = holder(FIRST, "left-behind", talk[1]);
	if (hear(talk[0], &of, sizeof(of))) {
		if (!(of.flags & PINION_DEV_CREATED) || of.uid != FIRST)
			wrong("the first user's is of uid %u", of.uid);
		end_process(pid);
		fd = open_as(SECOND, O_RDWR);
		expect(dev_add(fd, "left-behind", &next), 0, "DEV_ADD by another user");
		if (!(next.flags & PINION_DEV_CREATED) || next.uid != SECOND || next.generation == of.generation)
			wrong("the second user's is of uid %u, flags %x", next.uid, next.flags);
		if (dev_reading(fd, &next, &row) || row.high || row.reclaimed || row.sessions)
			wrong("of the first %llu units are in flight and %llu reclaimed", row.high, row.reclaimed);
		expect(dev_reading(fd, &of, &row), -ESTALE, "READ of the first");
		close(fd);
	}
	close(talk[0]);
	close(talk[1]);
	point("restart", "by another user under a key whose maker was killed");
}

/* ---- several processes ----------------------------------------------------------------------------------------------- */

static void third_reads(void)
{
	struct pinion_dev of;
	int talk[2], third = open_as(NOBODY, O_RDONLY);
	pid_t pid[2];

	if (pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	for (int i = 0; i < 2; i++) {
		pid[i] = holder(i ? FIRST : SECOND, "counts-restart", talk[1]);
		hear(talk[0], &of, sizeof(of));
	}
	expect_in_flight(third, &device, 2L * UNITS, "by two processes of two users, to a third");
	for (int i = 0; i < 2; i++)
		end_process(pid[i]);
	expect_in_flight(third, &device, 0, "after both");
	close(third);
	close(talk[0]);
	close(talk[1]);
	point("processes", "what two count is the sum to a third");
}

/* Its row of LIST names it; false: there is none. */
static bool row_of(pid_t pid, struct pinion_list_session *out)
{
	struct pinion_list_session rows[16];
	struct pinion_list l = {
		.size = sizeof(l), .kind = PINION_LIST_SESSIONS, .rows = (uintptr_t)rows, .count = 16, .row_size = sizeof(rows[0])
	};

	expect(dev_call(dev, PINION_IOC_LIST, &l), 0, "LIST");
	for (unsigned int i = 0; i < l.out_count; i++)
		if (rows[i].pid == pid) {
			*out = rows[i];
			return true;
		}
	return false;
}

/* Nothing is given up for its age: only death takes units away. */
static void stands_still(void)
{
	struct pinion_list_session early = { 0 }, late = { 0 };
	struct timespec now;
	struct pinion_dev of;
	int talk[2];
	pid_t pid;

	if (pipe2(talk, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	pid = holder(0, "counts-restart", talk[1]);
	hear(talk[0], &of, sizeof(of));
	kill(pid, SIGSTOP);
	if (!row_of(pid, &early))
		wrong("no row names the one that stands still");
	for (int i = 0; i < STILL_S; i++) {
		mem_sleep(1000000);
		expect_in_flight(dev, &device, UNITS, "while it stands still");
	}
	clock_gettime(CLOCK_BOOTTIME, &now);
	if (!row_of(pid, &late) || late.high != UNITS || late.low != UNITS || late.since_ns != early.since_ns || !late.since_ns)
		wrong("its row: %llu to %llu since %llu, not %llu", late.low, late.high, late.since_ns, early.since_ns);
	if (now.tv_sec * 1000000000ULL + now.tv_nsec < late.since_ns + STILL_S * 1000000000ULL)
		wrong("its row does not show its age");
	end_process(pid);
	expect_in_flight(dev, &device, 0, "killed while it stood still");
	if (row_of(pid, &late))
		wrong("its row is there when waitpid() returned");
	close(talk[0]);
	close(talk[1]);
	point("processes", "one that stands still counts, is named with its age, and only its death ends that");
}

/* ---- every order of going -------------------------------------------------------------------------------------------- */

/* Maps the page of a session that its parent opened; does as it is told: m unmaps, c closes, x exits. */
static _Noreturn void goes(int fd, int talk)
{
	struct pinion_counter_page *page = dev_counters(fd);
	struct pinion_attach lane;
	char what = 'r';

	if (page == MAP_FAILED || dev_attach(fd, &device, 10, &lane))
		_exit(1);
	for (int i = 0; i < UNITS; i++)
		page_begin(page, &lane);
	do {
		if (what == 'm')
			munmap(page, PAGE);
		if (what == 'c')
			close(fd);
		say(talk, &what, 1);
		if (read(talk, &what, 1) != 1)
			_exit(2);
	} while (what != 'x');
	_exit(0);
}

static void in_order(const char *order, bool killed)
{
	int talk[2], fd = dev_open(O_RDWR);
	bool alive = true, mapped = true;
	char when[64], c;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, talk))
		wrong("socketpair: %s", strerror(errno));
	pid = fork();
	if (!pid)
		goes(fd, talk[1]);
	close(talk[1]);
	hear(talk[0], &c, 1);
	expect_in_flight(dev, &device, UNITS, order);
	for (const char *step = order; *step && !*state_wrong; step++) {
		if (*step == 'c')
			close(fd);
		if (*step == 'x' && killed) {
			kill(pid, SIGKILL);
		} else if (alive) {
			if (write(talk[0], step, 1) != 1 || (*step != 'x' && !hear(talk[0], &c, 1)))
				wrong("%s: it does not answer", order);
		}
		if (*step == 'x') {
			expect(mem_wait(pid), killed ? -SIGKILL : 0, "%s: its end", order);
			alive = false;
		}
		mapped = mapped && alive && *step != 'm';
		snprintf(when, sizeof(when), "%s%s, after %c", order, killed ? " by SIGKILL" : "", *step);
		expect_in_flight(dev, &device, mapped ? UNITS : 0, when);
	}
	close(talk[0]);
}

static void orders(void)
{
	static const char *const all[] = { "mcx", "mxc", "cmx", "cxm", "xmc", "xcm" };
	struct pinion_info before;

	dev_info(dev, &before);
	for (int killed = 0; killed < 2; killed++)
		for (int i = 0; i < 6; i++) {
			in_order(all[i], killed);
			use_again(dev, &before, all[i]);
		}
	point("orders", "unmapping, closing and dying in every order");
}

/* User-mode Linux forks the host's process with all that is mapped in it: there a child's touch says nothing. */
static bool touches_are_true(void)
{
	char *text = file_get("/proc/cpuinfo");
	bool is = !strstr(text, "User Mode Linux");

	free(text);
	return is;
}

/* A child never has its parent's page, whatever the parent asked for. */
static void not_for_children(void)
{
	static const int advice[] = { MADV_DOFORK, MADV_DODUMP };
	bool touches = touches_are_true();
	int fd = dev_open(O_RDWR);
	struct pinion_counter_page *page = dev_counters(fd);
	struct pinion_attach lane;
	pid_t pid;
	int status;

	expect(dev_attach(fd, &device, 10, &lane), 0, "ATTACH");
	for (int i = 0; i < 2; i++)
		expect(madvise(page, PAGE, advice[i]) ? -errno : 0, -EINVAL, "madvise %d of a counter page", advice[i]);
	page_begin(page, &lane);
	pid = fork();
	if (!pid) {
		unsigned char in_core;

		if (!mincore(page, PAGE, &in_core) || errno != ENOMEM)
			_exit(1);
		if (touches &&
		    (mem_touch((volatile char *)page, false) != SIGSEGV || mem_touch((volatile char *)page, true) != SIGSEGV))
			_exit(2);
		_exit(0);
	}
	status = mem_wait(pid);
	if (status)
		wrong("a child has its parent's counter page: %d", status);
	expect_in_flight(dev, &device, 1, "after the child");
	munmap(page, PAGE);
	close(fd);
	point("orders", "a child does not have its parent's page, MADV_DOFORK or not");
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000;
	struct pinion_info before;

	complaint = shared_memory(PAGE);
	watched = shared_memory(sizeof(*watched));
	dev = dev_open(O_RDWR);
	if (dev_info(dev, &before) || dev_add(dev, "counts-restart", &device))
		wrong("no device");
	if (!point("start", "a device"))
		return tap_end();
	before.user_devices++;
	again_and_again(rounds);
	by_another_user();
	third_reads();
	stands_still();
	orders();
	not_for_children();
	expect_in_flight(dev, &device, 0, "at the end");
	use_again(dev, &before, "root");
	point("end", "nothing is left");
	return tap_end();
}
