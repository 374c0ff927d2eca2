// SPDX-License-Identifier: MIT
/*
 * Lanes whose completed words lie in a buffer, as a device would write them: here a mapping plays the device. Every kind of
 * buffer; words that mean nothing; buffers that their owner has closed.
 */
#define _GNU_SOURCE
#include "counts_calls.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#define BUFFER_PAGES 4

static int dev, other; /* the other's session has 5 units in flight all the time */
static struct pinion_counter_page *page;
static struct pinion_dev device;
static struct pinion_attach others_lane;

/* A buffer and where the device writes; range: what is pinned, which is mapped without it. */
struct buffer {
	int fd, memfd;
	char *range, *map;
	size_t bytes;
};

static struct pinion_reading reading(void)
{
	struct pinion_reading row;

	expect(dev_reading(dev, &device, &row), 0, "READ");
	return row;
}

/* In flight of this open's session; the other's is right all the time. */
static void in_flight(uint64_t low, uint64_t high, const char *what)
{
	struct pinion_reading row = reading();

	if (row.session_low != low || row.session_high != high)
		wrong("%s: %llu to %llu in flight, not %lu to %lu", what, row.session_low, row.session_high, low, high);
	if (row.low - row.session_low != 5 || row.high - row.session_high != 5)
		wrong("%s: the other has %llu to %llu in flight", what, row.low - row.session_low, row.high - row.session_high);
}

static int attach_at(int dev_, int fd, uint64_t off, uint32_t most, struct pinion_attach *lane)
{
	*lane = (struct pinion_attach){ .size = sizeof(*lane),
					.flags = PINION_ATTACH_COMPLETED_FD,
					.index = device.index,
					.generation = device.generation,
					.max_inflight = most,
					.completed_fd = fd,
					.completed_off = off };
	return dev_call(dev_, PINION_IOC_ATTACH, lane);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------------- */

static bool make_pages(struct buffer *b, uint32_t flags)
{
	b->fd = dev_alloc(dev, b->bytes, flags);
	if (b->fd == -EOPNOTSUPP && flags == PINION_ALLOC_SHMEM)
		return false;
	expect(b->fd, 0, "ALLOC");
	b->map = dev_map(b->fd, b->bytes, PROT_READ | PROT_WRITE);
	return true;
}

static bool make_kind(struct buffer *b, int kind)
{
	*b = (struct buffer){ .fd = -1, .memfd = -1, .map = MAP_FAILED, .bytes = BUFFER_PAGES * PAGE };
	switch (kind) {
	case 0:
		return make_pages(b, 0);
	case 1:
		b->bytes = HUGE;
		return make_pages(b, PINION_ALLOC_HUGE_REQUIRE);
	case 2:
		return make_pages(b, PINION_ALLOC_SHMEM);
	case 3:
		b->map = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		b->fd = dev_pin(dev, b->map, b->bytes);
		break;
	default:
		b->memfd = memfd_create("words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (ftruncate(b->memfd, b->bytes) || fcntl(b->memfd, F_ADD_SEALS, F_SEAL_SHRINK))
			wrong("memfd: %s", strerror(errno));
		b->fd = dev_pin_fd(dev, b->memfd, 0, b->bytes, NULL);
		b->map = dev_map(b->fd, b->bytes, PROT_READ | PROT_WRITE);
	}
	expect(b->fd, 0, "PIN");
	return true;
}

static void drop(struct buffer *b)
{
	if (b->map != MAP_FAILED)
		munmap(b->map, b->bytes);
	if (b->memfd >= 0)
		close(b->memfd);
	if (b->fd >= 0)
		close(b->fd);
	*b = (struct buffer){ .fd = -1, .memfd = -1, .map = MAP_FAILED };
}

static void device_ends(struct pinion_count *words, uint32_t parity, uint64_t n)
{
	__atomic_add_fetch(&words[parity].cost, n, __ATOMIC_RELEASE);
	__atomic_add_fetch(&words[parity].ops, n, __ATOMIC_RELEASE);
}

/* ---- one kind ---------------------------------------------------------------------------------------------------------- */

static struct pinion_count *late_words;

static void *ends_late(void *parity)
{
	usleep(30000);
	device_ends(late_words, (uintptr_t)parity, 1);
	return NULL;
}

/* Counting, waiting and flushing, with words that were not zero. */
static void counting(struct buffer *b, uint64_t off)
{
	struct pinion_count *words = (void *)(b->map + off);
	struct pinion_list_session row[4];
	struct pinion_attach lane;
	struct pinion_wait out;
	struct pollfd p = { .events = POLLIN };
	pthread_t thread;
	uint32_t parity, next;
	int n;

	for (int i = 0; i < 2; i++)
		words[i] = (struct pinion_count){ .ops = 1000000 + i, .cost = ~0ULL - 3 };
	if (!expect(attach_at(dev, b->fd, off, 20, &lane), 0, "ATTACH at %#lx", off))
		return;
	in_flight(0, 0, "attached");
	parity = page_begin(page, &lane);
	for (int i = 1; i < 7; i++)
		page_begin(page, &lane);
	in_flight(7, 7, "seven begun");
	device_ends(words, parity, 4);
	in_flight(3, 3, "four ended");
	if (page->lane[lane.lane].completed[0].ops || page->lane[lane.lane].completed[1].ops)
		wrong("the page has completed words too");
	/* What somebody writes into the page's completed words counts for nothing. */
	page->lane[lane.lane].completed[parity].ops = 2;
	in_flight(3, 3, "two ended in the page");
	page->lane[lane.lane].completed[parity].ops = 0;
	n = list_rows(dev, PINION_LIST_SESSIONS, row, sizeof(row[0]), 4);
	if (n != 2)
		wrong("%d rows of sessions, not 2", n);
	/* The other's has a lower number: its lane is older. */
	for (int i = 1; i < n; i++)
		if (row[i].flags != (PINION_SESSION_MINE | PINION_SESSION_DMA | PINION_SESSION_HELD | PINION_SESSION_MAPPED) ||
		    row[i].high != 3 || row[i].cost != 3 || row[i].submitted < 7)
			wrong("its row: flags %x, %llu in flight of cost %llu", row[i].flags, row[i].high, row[i].cost);
	/* Nobody kicks when a device has written. */
	device_ends(words, parity, 2);
	late_words = words;
	pthread_create(&thread, NULL, ends_late, (void *)(uintptr_t)parity);
	expect(dev_wait(dev, &device, PINION_SCOPE_SESSION, PINION_COND_PENDING_LE, 0, now_ns() + 20000000000LL, &out), 0,
	       "WAIT");
	pthread_join(thread, NULL);
	in_flight(0, 0, "all ended");
	/* A flush sends new units to the other words and waits for the old. */
	parity = page_begin(page, &lane);
	p.fd = dev_watch(dev, &device, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0);
	if (poll(&p, 1, 20))
		wrong("a flush does not wait for a unit");
	next = page_begin(page, &lane);
	if (next == parity)
		wrong("a flush does not flip");
	if (poll(&p, 1, 20))
		wrong("a flush does not wait for a unit, with another begun");
	device_ends(words, parity, 1);
	if (poll(&p, 1, 20000) != 1)
		wrong("a flush does not end with its unit");
	close(p.fd);
	in_flight(1, 1, "one of the other parity");
	device_ends(words, next, 1);
	in_flight(0, 0, "none");
	if (reading().marked)
		wrong("honest words are marked");
	if (dev_handle(dev, PINION_IOC_DETACH, lane.handle))
		wrong("DETACH has units");
	device_ends(words, 0, 5);
	in_flight(0, 0, "detached");
}

/* The buffer's owner lets go of it while the lane is there. */
static void held(struct buffer *b, uint64_t off, uint64_t bytes)
{
	struct pinion_count *words = (void *)(b->map + off);
	struct pinion_attach lane;
	struct pinion_info info;
	uint64_t buffer_bytes;

	if (!expect(attach_at(dev, b->fd, off, 20, &lane), 0, "ATTACH"))
		return;
	for (int i = 0; i < 6; i++)
		page_begin(page, &lane);
	device_ends(words, pinion_lane_control(page, lane.lane)->epoch & 1, 2);
	buffer_bytes = b->bytes;
	drop(b);
	in_flight(4, 4, "the buffer was closed");
	expect(dev_info(dev, &info), 0, "INFO");
	if (info.buffers || info.bytes != bytes + buffer_bytes)
		wrong("closed: %llu buffers, %llu bytes, not %lu", info.buffers, info.bytes, bytes + buffer_bytes);
	for (int i = 0; i < 3; i++)
		page_begin(page, &lane);
	in_flight(7, 7, "more begun");
	if (dev_handle(dev, PINION_IOC_RESET, lane.handle) != 7)
		wrong("RESET does not say 7");
	in_flight(0, 0, "reset");
	page_begin(page, &lane);
	if (dev_handle(dev, PINION_IOC_DETACH, lane.handle) != 1)
		wrong("DETACH does not say 1");
	if (dev_bytes(dev) != bytes)
		wrong("%lu bytes after DETACH, not %lu", dev_bytes(dev), bytes);
	in_flight(0, 0, "detached");
}

static void kinds(void)
{
	static const char *const name[] = { "a buffer", "a buffer of huge pages", "a buffer of SHMEM", "a pinned range",
					    "a pinned memfd" };

	for (int kind = 0; kind < 5; kind++) {
		uint64_t bytes = dev_bytes(dev);
		struct buffer b;

		if (!make_kind(&b, kind)) {
			tap_skip("completed words in SHMEM", "this kernel has no need of that backing");
			continue;
		}
		if (b.map == MAP_FAILED)
			wrong("mmap: %s", strerror(errno));
		else
			for (uint64_t off = 0; off < b.bytes; off = off < PAGE - 32    ? PAGE - 32 :
								    off < PAGE	       ? PAGE + 64 :
								    off < b.bytes - 32 ? b.bytes - 32 :
											 b.bytes)
				counting(&b, off);
		point(name[kind], "its words count");
		held(&b, PAGE + 96, bytes);
		drop(&b);
		if (dev_bytes(dev) != bytes)
			wrong("%lu bytes are left", dev_bytes(dev) - bytes);
		point(name[kind], "held by the lane, and no longer");
	}
}

/* ---- parts ------------------------------------------------------------------------------------------------------------- */

/* Offsets are the slice's; no right to write is needed, since the kernel only reads. */
static void slices(void)
{
	struct pinion_attach lane;
	struct pinion_count *words;
	struct buffer b;
	int part;

	make_kind(&b, 0);
	part = dev_slice(dev, b.fd, 2 * PAGE, PAGE, PINION_RIGHT_READ);
	expect(part, 0, "SLICE");
	expect(attach_at(dev, part, PAGE, 5, &lane), -EINVAL, "behind the slice");
	expect(attach_at(dev, part, 2 * PAGE, 5, &lane), -EINVAL, "where the slice is in the buffer");
	expect(attach_at(dev, part, PAGE - 32, 5, &lane), 0, "the slice's last words");
	words = (void *)(b.map + 3 * PAGE - 32);
	page_begin(page, &lane);
	page_begin(page, &lane);
	in_flight(2, 2, "two begun");
	device_ends(words, pinion_lane_control(page, lane.lane)->epoch & 1, 1);
	in_flight(1, 1, "one ended");
	close(part);
	device_ends(words, pinion_lane_control(page, lane.lane)->epoch & 1, 1);
	in_flight(0, 0, "both ended, with the slice closed");
	dev_handle(dev, PINION_IOC_DETACH, lane.handle);
	drop(&b);
	point("a slice", "its offsets count");
}

/* A unit may begin on one lane and end on another, and lanes may go in between. */
static void across_lanes(void)
{
	struct pinion_attach far, near;
	struct pinion_count *words;
	struct buffer b;
	uint32_t parity;

	make_kind(&b, 0);
	words = (void *)b.map;
	expect(attach_at(dev, b.fd, 0, 8, &far), 0, "ATTACH");
	expect(dev_attach(dev, &device, 8, &near), 0, "ATTACH");
	parity = page_begin(page, &near);
	for (int i = 1; i < 5; i++)
		page_begin(page, &near);
	device_ends(words, parity, 3);
	in_flight(2, 2, "begun near, ended far");
	page_begin(page, &far);
	page_end(dev, page, &near, parity);
	in_flight(2, 2, "begun far, ended near");
	if (dev_handle(dev, PINION_IOC_DETACH, far.handle))
		wrong("DETACH gives up units that the session still has");
	in_flight(2, 2, "the far lane was given back");
	device_ends(words, parity, 1);
	in_flight(2, 2, "what is written there later");
	page_end(dev, page, &near, parity);
	page_end(dev, page, &near, parity);
	in_flight(0, 0, "all ended");
	expect(attach_at(dev, b.fd, 0, 8, &far), 0, "ATTACH again");
	in_flight(0, 0, "attached again");
	if (reading().marked)
		wrong("it is marked");
	dev_handle(dev, PINION_IOC_DETACH, far.handle);
	dev_handle(dev, PINION_IOC_DETACH, near.handle);
	drop(&b);
	point("lanes", "a unit ends where it likes");
}

/* ---- words that mean nothing ------------------------------------------------------------------------------------------- */

static void garbage(void)
{
	static const uint64_t word[] = { 1, 100, 1ULL << 31, 1ULL << 32, 1ULL << 62, 1ULL << 63, ~0ULL, ~0ULL - 99, ~0ULL << 32 };
	struct pinion_attach lane;
	struct pinion_reading row;
	struct pinion_count *words;
	struct pinion_wait out;
	struct buffer b;

	make_kind(&b, 0);
	words = (void *)(b.map + 64);
	for (unsigned int i = 0; i < sizeof(word) / sizeof(word[0]); i++)
		for (unsigned int which = 0; which < 4; which++) {
			uint64_t *at = (uint64_t *)words + which, was;
			bool ops = !(which & 1);
			bool below = (int64_t)(10 - word[i]) < 0; /* more ended than begun */

			memset(words, 0, 32);
			expect(attach_at(dev, b.fd, 64, 20, &lane), 0, "ATTACH");
			for (int k = 0; k < 10; k++)
				page_begin(page, &lane);
			was = *at;
			*at = word[i];
			row = reading();
			if (ops && word[i] == 1 && (row.session_high != 9 || row.marked))
				wrong("one ended: %llu", row.session_high);
			if (ops && word[i] == ~0ULL && (row.session_high != 11 || row.marked))
				wrong("one too many begun: %llu, %u marked", row.session_high, row.marked);
			if (ops && word[i] != 1 && word[i] != ~0ULL &&
			    (row.session_high != (below ? 0 : 20) || row.session_low != row.session_high || row.marked != 1))
				wrong("word %#lx: %llu to %llu in flight, %u marked", word[i], row.session_low, row.session_high,
				      row.marked);
			if (!ops && (row.session_high != 10 || row.marked))
				wrong("cost %#lx: %llu in flight, %u marked", word[i], row.session_high, row.marked);
			if (row.high - row.session_high != 5 || row.low - row.session_low != 5)
				wrong("word %#lx: the other has %llu", word[i], row.high - row.session_high);
			/* Others' waits go by their own. */
			expect(dev_wait(other, &device, PINION_SCOPE_SESSION, PINION_COND_PENDING_LE, 5, 0, &out), 0, "WAIT");
			expect(dev_wait(dev, &device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 4, 0, &out), -ETIMEDOUT,
			       "WAIT");
			*at = was;
			in_flight(10, 10, "words that were right again");
			if (dev_handle(dev, PINION_IOC_DETACH, lane.handle) != 10)
				wrong("DETACH does not say 10");
		}
	drop(&b);
	point("words that mean nothing", "are clamped and marked, and others count as before");

	/* A bound on the cost. */
	make_kind(&b, 0);
	words = (void *)b.map;
	lane = (struct pinion_attach){ .size = sizeof(lane),
				       .flags = PINION_ATTACH_COMPLETED_FD,
				       .index = device.index,
				       .generation = device.generation,
				       .max_inflight = 20,
				       .max_cost = 50,
				       .completed_fd = b.fd };
	expect(dev_call(dev, PINION_IOC_ATTACH, &lane), 0, "ATTACH");
	page_begin(page, &lane);
	row = reading();
	if (row.cost != 1 + 5)
		wrong("cost %llu", row.cost);
	words[0].cost = -1000ULL;
	row = reading();
	if (row.cost != 50 + 5)
		wrong("cost %llu with garbage", row.cost);
	words[0].cost = 1000;
	row = reading();
	if (row.cost != 5)
		wrong("cost %llu with more ended than begun", row.cost);
	dev_handle(dev, PINION_IOC_DETACH, lane.handle);
	drop(&b);
	point("words that mean nothing", "have a cost within its bound");
}

static void *writes_garbage(void *at)
{
	uint64_t x = 88172645463325252ULL, *word = at;

	while (!__atomic_load_n((bool *)at + PAGE, __ATOMIC_RELAXED)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		__atomic_store_n(&word[x % 4], x, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void garbage_storm(void)
{
	struct pinion_attach lane;
	struct pinion_wait out;
	struct buffer b;
	pthread_t thread;

	make_kind(&b, 0);
	expect(attach_at(dev, b.fd, 0, 20, &lane), 0, "ATTACH");
	pthread_create(&thread, NULL, writes_garbage, b.map);
	for (int i = 0; i < 3000; i++) {
		struct pinion_reading row = reading();

		if (row.low > row.high || row.session_high > 20 || row.high - row.session_high != 5 ||
		    row.low - row.session_low != 5)
			wrong("reading %d: %llu to %llu, %llu to %llu of one's own", i, row.low, row.high, row.session_low,
			      row.session_high);
		if (i % 100 == 0)
			expect(dev_wait(other, &device, PINION_SCOPE_SESSION, PINION_COND_FLUSH, 0, 0, &out), -ETIMEDOUT,
			       "WAIT of the other");
	}
	__atomic_store_n((bool *)b.map + PAGE, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	dev_handle(dev, PINION_IOC_DETACH, lane.handle);
	in_flight(0, 0, "after the storm");
	drop(&b);
	point("words that mean nothing", "while they change all the time");
}

/* ---- death ------------------------------------------------------------------------------------------------------------- */

/* A child's lane in a buffer that the parent keeps writing to. */
static void dead(void)
{
	uint64_t bytes = dev_bytes(dev);
	struct pinion_reading row;
	struct buffer b;
	int ready[2];
	char c;

	make_kind(&b, 0);
	for (int i = 0; i < 20; i++) {
		pid_t pid;

		if (pipe2(ready, O_CLOEXEC))
			wrong("pipe: %s", strerror(errno));
		pid = fork();
		if (!pid) {
			int fd = dev_open(O_RDWR);
			struct pinion_counter_page *own = dev_counters(fd);
			struct pinion_attach lane;

			if (own == MAP_FAILED || attach_at(fd, b.fd, 32 * i, 9, &lane))
				_exit(1);
			for (int k = 0; k < 6; k++)
				page_begin(own, &lane);
			if (write(ready[1], "x", 1) != 1)
				_exit(1);
			pause();
		}
		close(ready[1]);
		if (read(ready[0], &c, 1) != 1)
			wrong("no child");
		close(ready[0]);
		device_ends((void *)(b.map + 32 * i), 0, 2);
		row = reading();
		if (row.high != 4 + 5)
			wrong("round %d: %llu in flight", i, row.high - 5);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		device_ends((void *)(b.map + 32 * i), 0, 2);
		row = reading();
		if (row.high != 5 || row.low != 5 || row.sessions != 1 + !!row.session_high)
			wrong("round %d: %llu in flight after its death, %u sessions", i, row.high - 5, row.sessions);
	}
	drop(&b);
	if (dev_bytes(dev) != bytes)
		wrong("%lu bytes are left", dev_bytes(dev) - bytes);
	point("death", "whatever a device writes later");
}

int main(void)
{
	dev = dev_open(O_RDWR);
	other = dev_open(O_RDWR);
	expect(dev_add(dev, "elsewhere", &device), 0, "DEV_ADD");
	page = dev_counters(dev);
	expect(dev_attach(other, &device, 10, &others_lane), 0, "ATTACH of the other");
	expect(dev_count(other, others_lane.handle, 5, 5, 0), 0, "ADD of the other");
	if (page == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	if (!point("start", "two sessions on a device"))
		return tap_end();
	kinds();
	slices();
	across_lanes();
	garbage();
	garbage_storm();
	/* Before there are children: under user-mode Linux they would keep it, though it is not theirs to copy. */
	munmap(page, PAGE);
	dead();
	close(other);
	close(dev);
	nothing_left();
	return tap_end();
}
