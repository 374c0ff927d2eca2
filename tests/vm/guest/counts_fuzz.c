// SPDX-License-Identifier: MIT
/*
 * counts_fuzz [SECONDS [SEED]]: fuzz for devices, sessions, claims and waits: processes of several threads and two users call,
 * map, scribble, fork and die at random, while steps fail and limits fall. What must hold all the while:
 *
 * - Readings and rows of LIST make sense: low is not above high, high not above what was allowed.
 * - Windows and the info page are never writable; nobody sees a page of another user.
 * - Every process ends when it is asked to, and INFO is then what it was.
 */
#define _GNU_SOURCE
#include "counts_fuzz.h"
#include "ring.h"

#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define PROCESSES 3
#define THREADS	  3

static int mail[2];

static __thread struct ring ring;
static __thread bool has_ring;

/* ---- mappings ------------------------------------------------------------------------------------------------------ */

enum { COUNTERS = 1, WINDOW, INFO_PAGE };

static uint64_t session_of(int fd)
{
	struct pinion_info i = { .size = sizeof(i) };

	return dev_call(fd, PINION_IOC_INFO, &i) ? 0 : i.session;
}

static bool op_map(void)
{
	struct map *m = map_take(MAP_FREE);
	int fd = dev_some();
	uint64_t at = 0;
	bool done;

	if (!m)
		return false;
	m->of.kind = 1 + roll(3);
	m->pages = 1 + (m->of.kind == INFO_PAGE ? roll(4) : (uint64_t)one_in(32));
	m->prot = one_in(8) ? (int)roll(8) : m->of.kind == COUNTERS ? PROT_READ | PROT_WRITE : PROT_READ;
	if (m->of.kind == INFO_PAGE)
		at = PINION_MMAP_INFO;
	if (m->of.kind == WINDOW)
		at = PINION_MMAP_WINDOW + (one_in(2) ? session_of(dev_some()) : roll(400)) * PAGE;
	if (one_in(64))
		at = roll(1 << 20) * PAGE;
	m->at = mmap(NULL, m->pages * PAGE, m->prot, one_in(32) ? MAP_PRIVATE : MAP_SHARED, fd, at);
	done = m->at != MAP_FAILED;
	if (done && m->prot & PROT_EXEC)
		bad(RIGHTS, "an executable mapping");
	if (done && m->prot & PROT_WRITE && at >= PINION_MMAP_INFO)
		bad(RIGHTS, "a writable mapping at %llx", (unsigned long long)at);
	if (!done)
		m->pages = 0;
	map_put(m);
	return done;
}

static void page_use(struct map *m)
{
	volatile uint64_t *word = (volatile uint64_t *)m->at;
	struct pinion_counter_page *page = (struct pinion_counter_page *)m->at;
	unsigned int lane = roll(PINION_LANES);
	uint32_t parity;

	if (m->of.kind != COUNTERS || !(m->prot & PROT_WRITE)) {
		uint64_t sum = 0;

		for (unsigned int i = 0; i < PAGE / 8; i++)
			sum += word[i];
		if (m->of.kind == INFO_PAGE && (uint32_t)word[0] != 1)
			bad(CONTENT, "the info page begins with %llx", (unsigned long long)word[0]);
		return;
	}
	if (one_in(8)) {
		word[roll(PAGE / 8)] = mix(dice);
		return;
	}
	parity = pinion_lane_begin(pinion_lane_control(page, lane), &page->lane[lane], roll(4));
	if (!one_in(8))
		pinion_lane_end(pinion_lane_control(page, lane), &page->lane[lane], parity, roll(4));
}

static bool op_touch(void)
{
	struct map *m = map_take(MAP_READY);
	int sig;

	if (!m)
		return false;
	sig = sigsetjmp(guard_back, 1);
	if (!sig) {
		guarded = 1;
		page_use(m);
	}
	guarded = 0;
	if (sig && m->prot & PROT_READ && m->pages)
		bad(CONTENT, "signal %d from a mapping of kind %u, prot %x", sig, m->of.kind, m->prot);
	map_put(m);
	return !sig;
}

static bool op_unmap(void)
{
	struct map *m = map_take(MAP_READY);
	bool done;

	if (!m)
		return false;
	done = !munmap(m->at, m->pages * PAGE);
	if (done)
		m->pages = 0;
	map_put(m);
	return done;
}

/* Protection only falls: what is taken away is not missed. */
static bool op_change(void)
{
	static const int advice[] = { MADV_DONTNEED, MADV_DOFORK,    MADV_DODUMP,  MADV_WILLNEED,      MADV_REMOVE,
				      MADV_HUGEPAGE, MADV_MERGEABLE, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE };
	struct map *m = map_take(MAP_READY);
	bool done = false;
	void *to;
	int prot;

	if (!m)
		return false;
	switch (roll(4)) {
	case 0:
		prot = roll(4);
		done = !mprotect(m->at, m->pages * PAGE, prot);
		if (done && prot & PROT_WRITE && m->of.kind != COUNTERS)
			bad(RIGHTS, "mprotect gives %x to a mapping of kind %u", prot, m->of.kind);
		m->prot = done ? prot : m->prot;
		break;
	case 1:
		done = !madvise(m->at, m->pages * PAGE, PICK(advice));
		break;
	case 2:
		to = mremap(m->at, m->pages * PAGE, (1 + roll(4)) * PAGE,
			    one_in(2) ? MREMAP_MAYMOVE : MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
		/* It may have been cut short where it is, or moved: then it is left alone. */
		if (to != MAP_FAILED) {
			if (m->of.kind == COUNTERS && to != m->at)
				bad(RIGHTS, "a counter page moved");
			m->pages = 0;
			done = true;
		}
		break;
	default:
		done = one_in(2) ? !mlock(m->at, PAGE) : !munlock(m->at, PAGE);
	}
	map_put(m);
	return done;
}

/* ---- descriptors --------------------------------------------------------------------------------------------------- */

static bool op_open(void)
{
	return open_again(roll(OPENS));
}

static bool op_buffer(void)
{
	int fd = dev_alloc(dev_some(), PAGE, PINION_ALLOC_HUGE_NEVER);

	pool_put(fd);
	return fd >= 0;
}

static bool op_close(void)
{
	int fd = pool_take();

	return fd >= 0 && !close(fd);
}

static bool op_dup(void)
{
	int fd = one_in(2) ? pool_look() : dev_some(), copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);

	pool_put(copy);
	return copy >= 0;
}

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

static bool op_send(void)
{
	union control control = {
		.head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS }
	};
	struct iovec data = { "x", 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd = one_in(2) ? pool_look() : dev_some();

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return fd >= 0 && sendmsg(mail[0], &message, MSG_DONTWAIT) == 1;
}

static int mail_receive(void)
{
	union control control;
	char byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(mail[1], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 1 && message.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

static bool op_receive(void)
{
	int fd = mail_receive();

	pool_put(fd);
	return fd >= 0;
}

static bool op_seen(void)
{
	char path[64], text[512];
	int fd;
	bool some;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", one_in(2) ? pool_look() : dev_some());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	some = fd >= 0 && read(fd, text, sizeof(text)) > 0;
	if (fd >= 0)
		close(fd);
	return some;
}

/* ---- io_uring ------------------------------------------------------------------------------------------------------ */

/* What commands point to while they wait. */
static __thread struct pinion_wait ring_waits[16];
static __thread struct pinion_reading ring_rows[4];
static __thread struct pinion_read ring_read;

static void ring_payload(struct io_uring_sqe *sqe, uint32_t op, const void *payload)
{
	sqe->cmd_op = op;
	memcpy((char *)sqe + offsetof(struct io_uring_sqe, addr3), payload, 16);
}

static void ring_command(void)
{
	struct pinion_uring_call of = { 0 };
	struct pinion_uring_add add = { .ops = 1 - (int)roll(3), .cost = 0, .parity = roll(3) };
	struct io_uring_sqe *sqe;
	unsigned int slot = roll(16);
	uint32_t parity;
	int fd;

	add.handle = handle_some(&fd, &parity);
	sqe = ring_next(&ring, IORING_OP_URING_CMD, fd, 1 + slot);
	switch (roll(4)) {
	case 0:
		ring_payload(sqe, PINION_URING_ADD, &add);
		break;
	case 1:
		for (int i = 0; i < 4; i++)
			ring_rows[i] = (struct pinion_reading){ .index = roll(8) };
		ring_read = (struct pinion_read){
			.size = sizeof(ring_read), .rows = (uintptr_t)ring_rows, .count = 4, .row_size = sizeof(ring_rows[0])
		};
		of.address = one_in(16) ? bad_address() : (uintptr_t)&ring_read;
		ring_payload(sqe, PINION_URING_READ, &of);
		break;
	case 2:
		ring_waits[slot] = wait_some(500);
		of.address = one_in(32) ? bad_address() : (uintptr_t)&ring_waits[slot];
		ring_payload(sqe, PINION_URING_WAIT, &of);
		break;
	default:
		ring_payload(sqe, one_in(8) ? PINION_IOC(roll(256)) : PINION_URING_ADD, &add);
	}
	if (one_in(4))
		sqe->flags |= IOSQE_ASYNC;
	if (one_in(4))
		sqe->flags |= one_in(2) ? IOSQE_IO_LINK : IOSQE_IO_HARDLINK;
}

static bool op_ring(void)
{
	struct io_uring_cqe cqe;
	bool some = false;

	if (!has_ring)
		return false;
	if (one_in(64)) {
		ring_close(&ring);
		has_ring = !ring_open(&ring, 0);
		return has_ring;
	}
	for (int i = roll(4); i >= 0; i--)
		switch (roll(6)) {
		case 0:
			ring_next(&ring, IORING_OP_POLL_ADD, pool_look(), 1 + roll(16))->poll32_events = POLLIN;
			break;
		case 1:
			ring_next(&ring, IORING_OP_ASYNC_CANCEL, -1, 100)->addr = 1 + roll(16);
			break;
		default:
			ring_command();
		}
	ring_submit(&ring);
	while (ring_take(&ring, &cqe))
		some |= cqe.res >= 0;
	return some;
}

/* ---- what is around ------------------------------------------------------------------------------------------------ */

static bool op_limit(void)
{
	static const char *const names[] = { "max_user_devices", "max_user_sessions", "max_user_claims", "max_user_watches" };
	const char *name = PICK(names);
	char path[128], text[32];
	bool done;

	snprintf(path, sizeof(path), PARAMETER "%s", name);
	snprintf(text, sizeof(text), "%u", (unsigned int)roll(32));
	done = !file_put(path, text);
	mem_sleep(roll(3000));
	snprintf(text, sizeof(text), "%u", MOST_EACH);
	return !file_put(path, text) && done;
}

static bool op_fail(void)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", 1 + (unsigned int)roll(one_in(2) ? 8 : 100));
	return !file_put(PARAMETER "fail_nth", text);
}

static void op_some(bool forks);

/* A child that does a little and ends one way or another. Its like is not waited for. */
static bool op_fork(void)
{
	pid_t pid = fork();

	if (pid)
		return pid > 0;
	dice = mix(dice ^ getpid());
	/* They are the parent's. */
	kernel_fails = -1;
	has_ring = false;
	for (int i = 0; i < MAPS; i++)
		maps[i].state = MAP_TAKEN;
	for (int i = roll(16); i; i--)
		op_some(false);
	if (one_in(4))
		execl("/proc/self/exe", "counts_fuzz", "nothing", NULL);
	if (one_in(4))
		kill(getpid(), SIGKILL);
	_exit(0);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

static const struct op {
	const char *name;
	bool (*run)(void);
	unsigned int weight;
	bool always; /* works at least once on every kernel */
} ops[] = {
	{ "add_device", op_add_device, 8, true },
	{ "get_device", op_get_device, 6, true },
	{ "set_device", op_set_device, 4, true },
	{ "del_device", op_del_device, 2, true },
	{ "attach", op_attach, 16, true },
	{ "handle", op_handle, 10, true },
	{ "count", op_count, 20, true },
	{ "read", op_read, 12, true },
	{ "info", op_info, 4, true },
	{ "list", op_list, 8, true },
	{ "wild", op_wild, 8, true },
	{ "reserve", op_reserve, 8, true },
	{ "claiminfo", op_claiminfo, 4, true },
	{ "watch", op_watch, 10, true },
	{ "wait", op_wait, 6, true },
	{ "poll", op_poll, 6, true },
	{ "take", op_take, 8, true },
	{ "map", op_map, 16, true },
	{ "touch", op_touch, 30, true },
	{ "unmap", op_unmap, 4, true },
	{ "change", op_change, 3, true },
	{ "open", op_open, 4, true },
	{ "buffer", op_buffer, 3, true },
	{ "close", op_close, 8, true },
	{ "dup", op_dup, 3, true },
	{ "send", op_send, 4, true },
	{ "receive", op_receive, 4, true },
	{ "seen", op_seen, 2, true },
	{ "ring", op_ring, 16, true },
	{ "limit", op_limit, 1, true },
	{ "fail", op_fail, 6, true },
	{ "fork", op_fork, 2, true },
};
#define OPS (sizeof(ops) / sizeof(ops[0]))

static bool all_worked(void)
{
	for (unsigned int i = 0; i < OPS; i++)
		if (!shared->worked[i] && ops[i].always)
			return false;
	return true;
}

static void op_some(bool forks)
{
	unsigned int all = 0, i;
	uint64_t at;

	for (i = 0; i < OPS; i++)
		all += ops[i].weight;
	at = roll(all);
	for (i = 0; at >= ops[i].weight; i++)
		at -= ops[i].weight;
	if (ops[i].run == op_fork && !forks)
		return;
	atomic_fetch_add(&shared->tried[i], 1);
	if (ops[i].run())
		atomic_fetch_add(&shared->worked[i], 1);
}

static double life_ends;

static void *thread(void *seed)
{
	dice = (uintptr_t)seed;
	kernel_fails = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	has_ring = !ring_open(&ring, 0);
	while (!atomic_load(&shared->stop) && mem_clock() < life_ends)
		op_some(true);
	/* Its commands point into what is this thread's. */
	if (has_ring)
		ring_close(&ring);
	mem_sleep(20000);
	return NULL;
}

static _Noreturn void process(uint64_t seed, bool nobody)
{
	const struct sigaction act = { .sa_sigaction = guard_caught, .sa_flags = SA_SIGINFO };
	const struct rlimit files = { 4096, 4096 }, core = { 0, 0 };
	pthread_t threads[THREADS];

	dice = seed;
	life_ends = mem_clock() + 1 + roll(6);
	if (nobody && setresuid(NOBODY, NOBODY, NOBODY))
		_exit(2);
	sigaction(SIGSEGV, &act, NULL);
	sigaction(SIGBUS, &act, NULL);
	signal(SIGCHLD, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &files);
	setrlimit(RLIMIT_CORE, &core);
	for (int i = 0; i < OPENS; i++)
		opens[i] = dev_open(i == 1 ? O_RDONLY : O_RDWR);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, thread, (void *)mix(seed + 1 + i)))
			_exit(3);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

/* ---- processes ----------------------------------------------------------------------------------------------------- */

static pid_t processes[PROCESSES];

/* Ends are those that were meant. Whether anybody is left. */
static bool reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (!(WIFEXITED(status) && !WEXITSTATUS(status)) && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
			bad(LIFE, "process %d ended with %x", pid, status);
		for (int i = 0; i < PROCESSES; i++)
			if (processes[i] == pid)
				processes[i] = 0;
	}
	return !pid || errno != ECHILD;
}

/* For so long, and on a slow machine until every operation has worked. */
static void run(double seconds, uint64_t seed)
{
	double end = mem_clock() + seconds, late = end + 3 * PATIENCE_S;

	dice = seed;
	while (mem_clock() < end || (!all_worked() && mem_clock() < late)) {
		reap();
		for (int i = 0; i < PROCESSES; i++)
			if (!processes[i]) {
				uint64_t its = roll(~0ULL);

				processes[i] = fork();
				if (!processes[i])
					process(its, i == 1);
			}
		mem_sleep(50000);
		if (one_in(20)) {
			pid_t victim = processes[roll(PROCESSES)];

			if (victim > 0)
				kill(victim, SIGKILL);
		}
	}
}

/* Waits for all, also for those whose parents are gone: they are ours then. */
static void end(void)
{
	double late = mem_clock() + 60;
	int fd;

	atomic_store(&shared->stop, 1);
	while (reap()) {
		if (mem_clock() > late) {
			bad(LIFE, "a process does not end");
			break;
		}
		mem_sleep(20000);
	}
	while ((fd = mail_receive()) >= 0)
		close(fd);
}

static void said(int what, const char *name)
{
	if (shared->said[what])
		wrong("%s", shared->why[what]);
	point("fuzz", name);
}

static void tally(void)
{
	uint64_t all = 0;

	for (unsigned int i = 0; i < OPS; i++) {
		printf("# %s %lu of %lu\n", ops[i].name, shared->worked[i], shared->tried[i]);
		all += shared->tried[i];
		if (!shared->worked[i] && ops[i].always)
			wrong("%s never worked in %lu times", ops[i].name, shared->tried[i]);
	}
	printf("# %lu in all\n", all);
	point("fuzz", "every operation worked");
}

static int open_as(uid_t uid)
{
	int fd;

	if (setresuid(uid, uid, 0))
		wrong("setresuid: %s", strerror(errno));
	fd = dev_open(O_RDONLY);
	if (setresuid(0, 0, 0))
		wrong("setresuid: %s", strerror(errno));
	return fd;
}

/* The user has nothing any more; what is closed by a worker takes its time. */
static void nothing_left(int dev, const char *whose)
{
	struct pinion_info i = { 0 };

	if (eventually(!dev_info(dev, &i) && !i.user_devices && !i.user_sessions && !i.user_claims && !i.user_watches &&
		       !i.user_buffers))
		return;
	wrong("%s: %u devices, %u sessions, %u claims, %u watches, %llu buffers are left", whose, i.user_devices, i.user_sessions,
	      i.user_claims, i.user_watches, i.user_buffers);
}

int main(int argc, char **argv)
{
	static const char *const limits[] = { "max_user_devices", "max_user_sessions", "max_user_claims", "max_user_watches" };
	double seconds = argc > 1 ? atof(argv[1]) : 20;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)(mem_clock() * 1e9) ^ (uint64_t)time(NULL) << 32;
	int devs[2];

	if (argc > 1 && !strcmp(argv[1], "nothing"))
		return 0;
	printf("# counts_fuzz %g 0x%lx\n", seconds, seed);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, mail) || prctl(PR_SET_CHILD_SUBREAPER, 1))
		wrong("%s", strerror(errno));
	for (unsigned int i = 0; i < 4; i++)
		parameter_set(limits[i], MOST_EACH);
	devs[0] = open_as(0);
	devs[1] = open_as(NOBODY);
	if (!point("fuzz", "devices of two users, and limits"))
		return tap_end();
	run(seconds, seed);
	end();
	parameter_set("fail_nth", 0);
	said(CONTENT, "what is mapped can be read");
	said(ROWS, "readings and rows make sense");
	said(USE, "use is below the limits");
	said(RIGHTS, "nobody has more rights than were given");
	said(LIFE, "every process ends, and as it was meant to");
	tally();
	close(mail[0]);
	close(mail[1]);
	nothing_left(devs[0], "root");
	nothing_left(devs[1], "the other user");
	parameter_set("max_user_devices", 64);
	for (unsigned int i = 1; i < 4; i++)
		parameter_set(limits[i], 1024);
	point("fuzz", "nothing is left");
	return tap_end();
}
