// SPDX-License-Identifier: MIT
/*
 * Ways for a process to end, or to lose its counter page: it is out of every sum, and of the window, before its death can be
 * waited for, whoever else has its descriptor. Where somebody else has its memory, it is in the end; how late is said.
 */
#define _GNU_SOURCE
#include "counting.h"

#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define IN_PAGE	 3
#define BY_ADD	 2
#define UNITS	 (IN_PAGE + BY_ADD)
#define LINGER_S 0.4 /* how long somebody else has the memory */

static struct pinion_dev device;
static int dev;

/* ---- a process with units in flight -------------------------------------------------------------------------------- */

struct victim {
	pid_t pid;
	uint64_t session;
	const struct pinion_counter_page *window;
	int talk;    /* socket to it */
	pid_t other; /* a process of its own, which outlives it */
};

/* In the process. */
struct self {
	int fd, talk;
	struct pinion_counter_page *page;
	struct pinion_attach lane;
};

static void self_start(struct self *s, int talk)
{
	struct pinion_info info;
	uint64_t session;

	s->talk = talk;
	s->fd = open(PINION_DEVICE, O_RDWR);
	s->page = dev_counters(s->fd);
	if (s->page == MAP_FAILED || dev_attach(s->fd, &device, 100, &s->lane))
		_exit(1);
	for (int i = 0; i < IN_PAGE; i++)
		page_begin(s->page, &s->lane);
	if (dev_count(s->fd, s->lane.handle, BY_ADD, BY_ADD, PINION_PARITY_NOW) < 0 || dev_info(s->fd, &info))
		_exit(2);
	session = info.session;
	say(talk, &session, sizeof(session));
}

/* @then runs in the process, which says by a byte when the time has come. */
static bool victim_start(struct victim *v, void (*then)(struct self *self))
{
	int talk[2];

	memset(v, 0, sizeof(*v));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, talk)) {
		wrong("socketpair: %s", strerror(errno));
		return false;
	}
	v->pid = fork();
	if (!v->pid) {
		struct self self;

		close(talk[0]);
		self_start(&self, talk[1]);
		then(&self);
		pause();
		_exit(0);
	}
	close(talk[1]);
	v->talk = talk[0];
	fcntl(v->talk, F_SETFD, FD_CLOEXEC);
	if (!hear(v->talk, &v->session, sizeof(v->session)))
		return false;
	v->window = dev_window(dev, v->session);
	return true;
}

static void victim_end(struct victim *v)
{
	if (v->window && v->window != MAP_FAILED)
		munmap((void *)v->window, PAGE);
	close(v->talk);
	end_process(v->other);
	/* Where the test did not come so far. */
	end_process(v->pid);
}

/* Its end, waited for. */
static int victim_wait(struct victim *v)
{
	pid_t pid = v->pid;

	v->pid = 0;
	return mem_wait(pid);
}

static bool victim_counts(const struct victim *v)
{
	uint64_t begun = 0;

	for (int i = 0; v->window != MAP_FAILED && i < PINION_LANES; i++)
		begun += pinion_lane_submitted(&v->window->lane[i], PINION_BOTH);
	if (begun != IN_PAGE)
		wrong("the window shows %llu units", (unsigned long long)begun);
	return expect_in_flight(dev, &device, UNITS, "alive") && begun == IN_PAGE;
}

static bool victim_gone(const struct victim *v, const char *when)
{
	static const struct pinion_counter_page nothing;
	const void *window = v->window;

	if (memcmp(window, &nothing, sizeof(nothing)))
		wrong("%s: the window shows something", when);
	if (dev_window(dev, v->session) != MAP_FAILED || errno != ENOENT)
		wrong("%s: the window can be mapped", when);
	return expect_in_flight(dev, &device, 0, when);
}

/* With a descriptor of a session that has ended. */
static void session_is_ended(int fd)
{
	struct pinion_attach lane;

	if (dev_counters(fd) != MAP_FAILED || errno != EOWNERDEAD)
		wrong("mmap: %s, not EOWNERDEAD", strerror(errno));
	expect(dev_attach(fd, &device, 1, &lane), -EOWNERDEAD, "ATTACH");
	expect(dev_count(fd, 1 << 6, 1, 1, PINION_PARITY_NOW), -EOWNERDEAD, "ADD");
	expect(dev_handle(fd, PINION_IOC_KICK, 1 << 6), -EOWNERDEAD, "KICK");
}

/* ---- by the time waitpid() returns --------------------------------------------------------------------------------- */

static void then_waits(struct self *self)
{
	say(self->talk, "x", 1);
}

/* A child that has the descriptor, and lives on. */
static void then_forks(struct self *self)
{
	pid_t pid = fork();

	if (!pid)
		for (;;)
			pause();
	say(self->talk, &pid, sizeof(pid));
}

static void then_sends(struct self *self)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec data = { "x", 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), &self->fd, sizeof(int));
	if (sendmsg(self->talk, &message, 0) != 1)
		_exit(3);
}

static int receive(int from)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd = -1;

	if (recvmsg(from, &message, MSG_CMSG_CLOEXEC) == 1 && message.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
	return fd;
}

/* Its descriptor is closed but for the ring's, which a child has too. */
static void then_registers(struct self *self)
{
	struct io_uring_params params = { 0 };
	int ring = (int)syscall(SYS_io_uring_setup, 4, &params);
	pid_t pid = 0;

	if (ring >= 0 && !syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &self->fd, 1)) {
		close(self->fd);
		pid = fork();
		if (!pid)
			for (;;)
				pause();
	}
	say(self->talk, &pid, sizeof(pid));
}

static void kill_and_look(struct victim *v)
{
	victim_counts(v);
	kill(v->pid, SIGKILL);
	victim_wait(v);
	victim_gone(v, "when waitpid() returns");
}

static void killed(void)
{
	struct victim v;
	char c;

	if (victim_start(&v, then_waits) && hear(v.talk, &c, 1))
		kill_and_look(&v);
	victim_end(&v);
	point("killed", "a process");
}

static void killed_prefork(void)
{
	struct victim v;

	if (victim_start(&v, then_forks) && hear(v.talk, &v.other, sizeof(v.other))) {
		kill_and_look(&v);
		if (kill(v.other, 0))
			wrong("the child is not there");
	}
	victim_end(&v);
	point("killed", "a parent whose child lives and has its descriptor");
}

static void killed_leaked(void)
{
	struct victim v;
	int fd = -1;

	if (victim_start(&v, then_sends)) {
		fd = receive(v.talk);
		expect(fd, 0, "SCM_RIGHTS");
		kill_and_look(&v);
		session_is_ended(fd);
		expect_in_flight(dev, &device, 0, "after calls of who has the descriptor");
	}
	close(fd);
	victim_end(&v);
	point("killed", "a process whose descriptor another has");
}

static void killed_registered(void)
{
	struct victim v;

	if (victim_start(&v, then_registers) && hear(v.talk, &v.other, sizeof(v.other))) {
		if (!v.other) {
			victim_end(&v);
			tap_skip("io: io_uring", "this kernel has none");
			return;
		}
		kill_and_look(&v);
	}
	victim_end(&v);
	point("killed", "a process whose descriptor is in the files of a ring that lives");
}

static void then_execs(struct self *self)
{
	char fd[16], talk[16], index[16], generation[32], c;

	snprintf(fd, sizeof(fd), "%d", self->fd);
	snprintf(talk, sizeof(talk), "%d", self->talk);
	snprintf(index, sizeof(index), "%u", device.index);
	snprintf(generation, sizeof(generation), "%llu", device.generation);
	if (read(self->talk, &c, 1) != 1)
		_exit(4);
	execl("/proc/self/exe", "counts_gone", "after-exec", fd, talk, index, generation, NULL);
	_exit(5);
}

/* What the process is then: with the descriptor, whose session has ended. */
static int after_exec(int fd, int talk)
{
	session_is_ended(fd);
	say(talk, state_wrong, sizeof(state_wrong));
	pause();
	return 0;
}

static void execed(void)
{
	char why[sizeof(state_wrong)];
	struct victim v;

	if (victim_start(&v, then_execs)) {
		victim_counts(&v);
		say(v.talk, "x", 1);
		if (hear(v.talk, why, sizeof(why))) {
			victim_gone(&v, "after exec");
			if (*why)
				wrong("%s", why);
		}
	}
	victim_end(&v);
	point("ended", "by exec, which keeps the descriptor");
}

static void then_unmaps(struct self *self)
{
	char c;

	if (read(self->talk, &c, 1) != 1)
		_exit(4);
	munmap(self->page, PAGE);
	session_is_ended(self->fd);
	say(self->talk, state_wrong, sizeof(state_wrong));
}

static void unmapped(void)
{
	char why[sizeof(state_wrong)];
	struct victim v;

	if (victim_start(&v, then_unmaps)) {
		victim_counts(&v);
		say(v.talk, "x", 1);
		if (hear(v.talk, why, sizeof(why))) {
			victim_gone(&v, "after munmap");
			if (*why)
				wrong("%s", why);
		}
	}
	victim_end(&v);
	point("ended", "by the unmapping of its page");
}

static void then_exits(struct self *self)
{
	char c;

	_exit(read(self->talk, &c, 1) == 1 ? 0 : 4);
}

static void exited(void)
{
	struct victim v;

	if (victim_start(&v, then_exits)) {
		victim_counts(&v);
		say(v.talk, "x", 1);
		if (victim_wait(&v))
			wrong("it ended badly");
		victim_gone(&v, "after exit");
	}
	victim_end(&v);
	point("ended", "by exit");
}

/* ---- a child with its parent's descriptor -------------------------------------------------------------------------- */

static void child_counts(void)
{
	struct pinion_counter_page *page;
	struct pinion_attach lane;
	int fd = dev_open(O_RDWR), status, parity;
	pid_t pid;

	page = dev_counters(fd);
	expect(dev_attach(fd, &device, 100, &lane), 0, "ATTACH");
	page_begin(page, &lane);
	pid = fork();
	if (!pid) {
		unsigned char in_core;

		if (dev_counters(fd) != MAP_FAILED || errno != EBUSY)
			_exit(1);
		/* It does not have the page itself. */
		if (!mincore(page, PAGE, &in_core) || errno != ENOMEM)
			_exit(2);
		parity = dev_count(fd, lane.handle, 2, 2, PINION_PARITY_NOW);
		if (parity < 0 || dev_count(fd, lane.handle, -1, -1, parity) < 0)
			_exit(3);
		_exit(0);
	}
	status = mem_wait(pid);
	if (status)
		wrong("the child ended with %d", status);
	/* What it began is the session's, which its end does not end. */
	expect_in_flight(dev, &device, 2, "after the child");
	munmap(page, PAGE);
	expect_in_flight(dev, &device, 0, "after the page");
	close(fd);
	point("child", "counts for the session by ADD, and cannot map its page");
}

/* Without a page a session is whoever has the descriptor. */
static void never_mapped(void)
{
	struct pinion_attach lane;
	int fd, there[2];
	pid_t pid, holder = 0;

	if (pipe2(there, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	fd = dev_open(O_RDWR);
	pid = fork();
	if (!pid) {
		if (dev_attach(fd, &device, 100, &lane) || dev_count(fd, lane.handle, 4, 4, PINION_PARITY_NOW) < 0)
			_exit(1);
		holder = fork();
		if (!holder)
			for (;;)
				pause();
		say(there[1], &holder, sizeof(holder));
		for (;;)
			pause();
	}
	close(fd);
	close(there[1]);
	hear(there[0], &holder, sizeof(holder));
	expect_in_flight(dev, &device, 4, "before");
	end_process(pid);
	expect_in_flight(dev, &device, 4, "while a child has it");
	end_process(holder);
	if (in_flight_late(dev, &device, 0) < 0)
		wrong("it is never closed");
	close(there[0]);
	point("child", "a session without a page lasts until its last close");
}

/* ---- later --------------------------------------------------------------------------------------------------------- */

static void linger(void)
{
	mem_sleep(LINGER_S * 1e6);
}

static void say_late(const char *what, double before, double ms)
{
	printf("# %s: out of the sum %.0f ms after waitpid() returned, %.0f ms after the kill\n", what, ms, ms + before);
}

/* Killed; the sum is all or nothing until it is nothing. */
static void kill_and_wait(struct victim *v, const char *what)
{
	double from = mem_clock(), waited, late;
	int64_t is;

	victim_counts(v);
	kill(v->pid, SIGKILL);
	victim_wait(v);
	waited = (mem_clock() - from) * 1e3;
	is = in_flight(dev, &device);
	if (is != 0 && is != UNITS)
		wrong("%lld in flight meanwhile", (long long)is);
	late = in_flight_late(dev, &device, 0);
	if (late < 0)
		wrong("never out of the sum");
	say_late(what, waited, late);
	victim_gone(v, "in the end");
}

/* A child by vfork() is inside its parent's memory, and says so. It is a new orphan's when that is killed. */
static void then_vforks(struct self *self)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
	if (!vfork()) {
		say(self->talk, "x", 1);
		linger();
		_exit(0);
	}
#pragma GCC diagnostic pop
}

static int shares(void *data)
{
	say(((struct self *)data)->talk, "x", 1);
	linger();
	_exit(0);
}

static void then_shares(struct self *self)
{
	static char stack[65536] __attribute__((aligned(16)));

	if (clone(shares, stack + sizeof(stack), CLONE_VM | SIGCHLD, self) < 0)
		_exit(6);
}

static void reap_orphans(void)
{
	while (waitpid(-1, NULL, 0) > 0)
		;
}

static void shared_memory_of(void (*then)(struct self *self), const char *what)
{
	struct victim v;
	char c;

	if (victim_start(&v, then) && hear(v.talk, &c, 1))
		kill_and_wait(&v, what);
	victim_end(&v);
	reap_orphans();
	point("late", what);
}

/* Open is not inside: it costs nothing. */
static void reader_of_memory(void)
{
	char path[64], c;
	struct victim v;
	int fd = -1;

	if (victim_start(&v, then_waits) && hear(v.talk, &c, 1)) {
		snprintf(path, sizeof(path), "/proc/%d/mem", v.pid);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		expect(fd, 0, "open %s", path);
		if (pread(fd, &c, 1, (uintptr_t)state_wrong) != 1)
			wrong("read %s: %s", path, strerror(errno));
		kill_and_look(&v);
	}
	close(fd);
	victim_end(&v);
	point("killed", "a process whose /proc/PID/mem is open");
}

struct inside {
	int mem;
	char *to;
	off_t from;
};

static void *reads_inside(void *data)
{
	const struct inside *i = data;

	if (pread(i->mem, i->to, PAGE, i->from) < 0)
		return (void *)1;
	return NULL;
}

/* A reader that stands inside: the page it reads to is not there for as long as nobody gives it. */
static void reader_inside(void)
{
	static char source[PAGE] = "source";
	int faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register area = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_zeropage give = { 0 };
	struct inside inside = { .from = (uintptr_t)source };
	double from, late;
	struct victim v;
	pthread_t thread;
	char path[64], c;

	inside.to = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	area.range.start = give.range.start = (uintptr_t)inside.to;
	area.range.len = give.range.len = PAGE;
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) || ioctl(faults, UFFDIO_REGISTER, &area)) {
		tap_skip("userfaultfd", "this kernel has none");
		return;
	}
	if (victim_start(&v, then_waits) && hear(v.talk, &c, 1)) {
		snprintf(path, sizeof(path), "/proc/%d/mem", v.pid);
		inside.mem = open(path, O_RDONLY | O_CLOEXEC);
		pthread_create(&thread, NULL, reads_inside, &inside);
		/* It is told of the page that is missing, by who is inside. */
		if (poll(&(struct pollfd){ .fd = faults, .events = POLLIN }, 1, PATIENCE_MS) != 1)
			wrong("no reader comes inside");
		victim_counts(&v);
		from = mem_clock();
		kill(v.pid, SIGKILL);
		victim_wait(&v);
		expect_in_flight(dev, &device, UNITS, "while a reader is inside");
		linger();
		if (ioctl(faults, UFFDIO_ZEROPAGE, &give))
			wrong("UFFDIO_ZEROPAGE: %s", strerror(errno));
		pthread_join(thread, NULL);
		late = in_flight_late(dev, &device, 0);
		printf("# a reader inside /proc/PID/mem: out of the sum %.0f ms after it had left, %.0f ms after the kill\n",
		       late, (mem_clock() - from) * 1e3);
		victim_gone(&v, "in the end");
		close(inside.mem);
	}
	close(faults);
	munmap(inside.to, PAGE);
	victim_end(&v);
	point("late", "a reader that stands inside the memory");
}

/* The dump's reader, which the kernel starts: slow. */
static int dumped(void)
{
	static char text[65536];
	size_t all = 0;
	ssize_t n;

	linger();
	while ((n = read(0, text, sizeof(text))) > 0)
		all += n;
	return 0;
}

/* A process that dumps its core is there until the dump is done, for waitpid() too. */
static void core_dump(void)
{
	const struct rlimit most = { RLIM_INFINITY, RLIM_INFINITY };
	char *was = file_get("/proc/sys/kernel/core_pattern"), c;
	double from, late;
	struct victim v;
	int status = 0, ret;
	int64_t is;

	ret = file_put("/proc/sys/kernel/core_pattern", "|/t/counts_gone dumped");
	expect(ret, 0, "core_pattern");
	setrlimit(RLIMIT_CORE, &most);
	if (victim_start(&v, then_waits) && hear(v.talk, &c, 1)) {
		victim_counts(&v);
		from = mem_clock();
		kill(v.pid, SIGABRT);
		mem_sleep(LINGER_S / 4 * 1e6);
		is = in_flight(dev, &device);
		waitpid(v.pid, &status, 0);
		v.pid = 0;
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !WCOREDUMP(status))
			wrong("it ended with %x", status);
		late = (mem_clock() - from) * 1e3;
		victim_gone(&v, "when waitpid() returns");
		printf("# a core dump to a slow pipe: %lld in flight meanwhile, out of the sum %.0f ms after the signal\n",
		       (long long)is, late);
	}
	victim_end(&v);
	file_put("/proc/sys/kernel/core_pattern", was);
	free(was);
	point("late", "a core dump to a slow pipe");
}

int main(int argc, char **argv)
{
	struct pinion_info before;

	if (argc == 6 && !strcmp(argv[1], "after-exec")) {
		device.index = atoi(argv[4]);
		device.generation = strtoull(argv[5], NULL, 10);
		return after_exec(atoi(argv[2]), atoi(argv[3]));
	}
	if (argc > 1 && !strcmp(argv[1], "dumped"))
		return dumped();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	dev = dev_open(O_RDWR);
	if (dev_info(dev, &before) || dev_add(dev, "counts-gone", &device))
		wrong("no device");
	if (!point("start", "a device"))
		return tap_end();
	before.user_devices++;
	killed();
	killed_prefork();
	killed_leaked();
	killed_registered();
	execed();
	unmapped();
	exited();
	child_counts();
	never_mapped();
	reader_of_memory();
	shared_memory_of(then_vforks, "a child by vfork");
	shared_memory_of(then_shares, "a process that shares the memory");
	reader_inside();
	core_dump();
	use_again(dev, &before, "root");
	point("end", "nothing is left");
	return tap_end();
}
