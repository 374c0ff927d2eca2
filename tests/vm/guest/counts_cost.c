// SPDX-License-Identifier: MIT
/*
 * counts_cost [MS]: what counting, reading and waiting cost, as "# figure" lines. Each is the least of ten turns of so many ms:
 * what else runs only adds. What fails is a way of reading that sees other counts than the rest, never a time.
 */
#define _GNU_SOURCE
#include "counting.h"
#include "ring.h"

#include <stddef.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define TURNS	  10
#define MOST	  1000 /* sessions */
#define BATCH	  32   /* commands of one system call */
#define WATCHES	  256
#define FIGURE	  "# figure "
#define READ_COST PARAMETER "read_cost"

static struct session {
	int fd;
	struct pinion_counter_page *page;
	struct pinion_attach lane;
	const struct pinion_counter_page *window;
} session[MOST];

static struct pinion_dev device;
static int dev;
static double turn_s;
static unsigned int sessions;
static const char *ground = "";
static struct ring ring;
static const struct pinion_info_head *info_page;
static const struct pinion_lane *lanes[MOST];

/* ---- measuring ----------------------------------------------------------------------------------------------------- */

/* Does it @times times and returns the seconds. */
typedef double (*timed)(unsigned int times);

/* Nanoseconds of one, at least. */
static double least_ns(timed run)
{
	unsigned int times = 1;
	double took = run(1), best = 1e9;

	while (took < turn_s / 4 && times < 1U << 28) {
		times *= 2;
		took = run(times);
	}
	for (int i = 0; i < TURNS; i++) {
		took = run(times) / times;
		best = took < best ? took : best;
	}
	return best * 1e9;
}

static void figure(double ns, const char *what)
{
	printf(FIGURE "%s, %u session%s: %.*f ns%s\n", what, sessions, sessions == 1 ? "" : "s", ns < 100, ns, ground);
	fflush(stdout);
}

/* What the machine is, for whoever compares. */
static void find_ground(void)
{
	char *text = file_get("/proc/cpuinfo");

	if (text && strstr(text, "TCG"))
		ground = " (emulated)";
	else if (text && strstr(text, "User Mode Linux"))
		ground = " (user-mode Linux)";
	free(text);
}

#define TIMED(name, body)                                  \
	static double name(unsigned int times)             \
	{                                                  \
		double from = mem_clock();                 \
                                                           \
		for (unsigned int i = 0; i < times; i++) { \
			body;                              \
		}                                          \
		return mem_clock() - from;                 \
	}

/* ---- counting ------------------------------------------------------------------------------------------------------- */

TIMED(pairs_on_the_page,
      page_end(session[0].fd, session[0].page, &session[0].lane, page_begin(session[0].page, &session[0].lane)))
TIMED(pairs_by_add, dev_count(session[0].fd, session[0].lane.handle, -1, -1,
			      dev_count(session[0].fd, session[0].lane.handle, 1, 1, PINION_PARITY_NOW)))
TIMED(calls_of_nothing, ioctl(dev, PINION_IOC(0x7f), NULL))

/* ---- reading -------------------------------------------------------------------------------------------------------- */

static struct pinion_reading row;

TIMED(reads, dev_reading(dev, &device, &row))

static void command_read(struct pinion_read *args)
{
	struct io_uring_sqe *sqe = ring_next(&ring, IORING_OP_URING_CMD, dev, 1);
	const struct pinion_uring_call payload = { .address = (uintptr_t)args };

	row = (struct pinion_reading){ .index = device.index, .generation = device.generation };
	*args = (struct pinion_read){ .size = sizeof(*args), .rows = (uintptr_t)&row, .count = 1, .row_size = sizeof(row) };
	sqe->cmd_op = PINION_URING_READ;
	memcpy((char *)sqe + offsetof(struct io_uring_sqe, addr3), &payload, sizeof(payload));
}

/* So many at once; what is not 0 stays. */
static int ring_reads(unsigned int n)
{
	static struct pinion_read args;
	struct io_uring_cqe cqe;
	int ret;

	for (unsigned int i = 0; i < n; i++)
		command_read(&args);
	ret = ring_submit(&ring);
	if (ret != (int)n)
		return ret < 0 ? ret : -EIO;
	for (ret = 0; n; n--)
		ret = ring_wait(&ring, &cqe, 20000) ? ret ?: cqe.res : RING_NOTHING;
	return ret;
}

TIMED(ring_reads_alone, ring_reads(1))
TIMED(ring_batches, ring_reads(BATCH))

/* As who has the window reads: the roster is believed if it has not moved. -1: the window does not show all. */
static int64_t page_read(void)
{
	const struct pinion_info_device *line = (const struct pinion_info_device *)(info_page + 1) + device.index;
	uint64_t roster;
	int64_t high;

	do {
		roster = pinion_load_acquire(&info_page->roster);
		if (pinion_load(&line->generation) != device.generation || pinion_load(&line->held))
			return -1;
		high = pinion_lanes_high(lanes, sessions, PINION_BOTH);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (pinion_load(&info_page->roster) != roster);
	return high;
}

static volatile int64_t seen;

TIMED(page_reads, seen = page_read())

static double kernel_reads(unsigned int times)
{
	char text[64];

	snprintf(text, sizeof(text), "%u %u", device.index, times);
	expect(file_put(READ_COST, text), 0, "read_cost = %s", text);
	return file_number(READ_COST) / 1e9;
}

/* ---- sessions ------------------------------------------------------------------------------------------------------- */

/* One more, with a unit in flight in its page. */
static bool session_add(struct session *s)
{
	struct pinion_info info;

	s->fd = dev_open(O_RDWR);
	s->page = dev_counters(s->fd);
	if (s->page == MAP_FAILED || dev_attach(s->fd, &device, 10, &s->lane) || dev_info(s->fd, &info))
		return false;
	s->window = dev_window(dev, info.session);
	page_begin(s->page, &s->lane);
	return s->window != MAP_FAILED;
}

static void sessions_to(unsigned int n)
{
	for (; sessions < n; sessions++) {
		struct session *s = &session[sessions];

		if (!session_add(s)) {
			wrong("session %u: %s", sessions, strerror(errno));
			return;
		}
		lanes[sessions] = &s->window->lane[s->lane.lane];
	}
}

static void sessions_end(void)
{
	for (unsigned int i = 0; i < sessions; i++) {
		munmap((void *)session[i].window, PAGE);
		munmap(session[i].page, PAGE);
		close(session[i].fd);
	}
	sessions = 0;
}

static void read_alike(void)
{
	int ret = dev_reading(dev, &device, &row);

	if (ret || row.low != sessions || row.high != sessions || row.sessions != sessions)
		wrong("READ: %d, %llu to %llu of %u", ret, row.low, row.high, sessions);
	ret = ring_reads(1);
	if (ret || row.low != sessions || row.high != sessions)
		wrong("READ by io_uring: %d, %llu to %llu of %u", ret, row.low, row.high, sessions);
	if (page_read() != sessions)
		wrong("the pages: %lld of %u", (long long)page_read(), sessions);
}

static void readings(unsigned int n)
{
	char what[64];

	sessions_to(n);
	read_alike();
	if (!*state_wrong) {
		figure(least_ns(kernel_reads), "READ in the kernel");
		figure(least_ns(page_reads), "READ of the pages");
		figure(least_ns(reads), "READ by ioctl");
		figure(least_ns(ring_reads_alone), "READ by io_uring");
		figure(least_ns(ring_batches) / BATCH, "READ by io_uring, 32 at once");
	}
	read_alike();
	snprintf(what, sizeof(what), "%u sessions are the same to every reader", n);
	point("cost", what);
}

/* ---- waiting -------------------------------------------------------------------------------------------------------- */

/* What an ADD costs with so many watches, of different sessions, that do not fire: each ADD has the lock and looks at all. */
static double look_ns(uint32_t scope, uint32_t cond, int nr)
{
	int watch[WATCHES], epoll = epoll_create1(EPOLL_CLOEXEC);
	double ns;

	for (int i = 0; i < nr; i++) {
		struct epoll_event of = { .events = EPOLLIN };

		watch[i] = dev_watch(session[i % sessions].fd, &device, scope, cond, 0);
		if (watch[i] < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, watch[i], &of))
			wrong("watch %d: %s", i, strerror(errno));
	}
	ns = least_ns(pairs_by_add) / 2;
	if (epoll_wait(epoll, &(struct epoll_event){ 0 }, 1, 0))
		wrong("a watch of scope %u fires", scope);
	while (nr--)
		close(watch[nr]);
	close(epoll);
	return ns;
}

static void waits(unsigned int n)
{
	static const char *const scopes[] = { "SESSION", "USER", "EVERY" };
	double one, all;
	char what[96];

	sessions_to(n);
	for (int cond = PINION_COND_PENDING_LE; cond <= PINION_COND_FLUSH; cond++)
		for (int scope = PINION_SCOPE_SESSION; scope <= PINION_SCOPE_EVERY; scope++) {
			one = look_ns(scope, cond, 1);
			all = look_ns(scope, cond, WATCHES);
			snprintf(what, sizeof(what), "ADD with a %s of scope %s", cond ? "FLUSH" : "PENDING_LE", scopes[scope]);
			figure(one, what);
			snprintf(what, sizeof(what), "each of %d more", WATCHES - 1);
			figure((all - one) / (WATCHES - 1), what);
		}
	snprintf(what, sizeof(what), "%d watches of %u sessions do not fire", WATCHES, n);
	point("cost", what);
}

int main(int argc, char **argv)
{
	const struct rlimit files = { 3 * MOST, 3 * MOST };
	struct pinion_info before;

	turn_s = (argc > 1 ? atof(argv[1]) : 5) / 1e3;
	setrlimit(RLIMIT_NOFILE, &files);
	find_ground();
	dev = dev_open(O_RDWR);
	info_page = dev_info_page(dev);
	if (dev_info(dev, &before) || dev_add(dev, "counts-cost", &device) || info_page == MAP_FAILED)
		wrong("no device");
	before.user_devices++;
	expect(ring_open(&ring, 0), 0, "io_uring_setup");
	sessions_to(1);
	if (!point("start", "a device, a session and a ring"))
		return tap_end();
	figure(least_ns(pairs_on_the_page), "begin and end on the page");
	figure(least_ns(pairs_by_add), "begin and end by ADD");
	dev_reading(dev, &device, &row);
	figure(least_ns(calls_of_nothing), "a call that does not exist");
	if (row.high != 1 || row.marked)
		wrong("%llu in flight, %u marked", row.high, row.marked);
	point("cost", "begin and end leave what was");
	sessions_end();
	readings(1);
	readings(64);
	readings(MOST);
	sessions_end();
	waits(64);
	waits(MOST);
	sessions_end();
	ring_close(&ring);
	use_again(dev, &before, "root");
	point("end", "nothing is left");
	return tap_end();
}
