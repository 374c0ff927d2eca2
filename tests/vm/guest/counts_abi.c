// SPDX-License-Identifier: MIT
/* The frame of the calls about devices and counts: sizes, flags, reserved fields, addresses, arguments, opens. */
#define _GNU_SOURCE
#include "counts_calls.h"
#include "caller_32.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#define FILL	0xa5
#define NOWHERE 0x8000 /* below what may be mapped */

/* Two pages; before and behind them is nothing that can be read or written. */
static unsigned char *room;

static void room_open(void)
{
	unsigned char *span = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (span == MAP_FAILED || mprotect(span + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE))
		wrong("room: %s", strerror(errno));
	room = span + PAGE;
}

/* The arguments of @c at @at as a caller of that size has them, and what is behind them for the call to leave alone. */
static void place(const struct call *c, unsigned char *at, uint32_t size)
{
	unsigned char *end = room + 2 * PAGE;
	size_t bytes = c->size;
	union args a = { 0 };

	c->make(&a);
	a.size = size;
	memset(room, FILL, 2 * PAGE);
	if (size > c->size && at + size <= end)
		memset(at + c->size, 0, size - c->size);
	if (c->least && size >= c->least && size < c->size)
		bytes = size;
	if (at + bytes > end)
		bytes = end - at;
	memcpy(at, &a, bytes);
}

static int done(const struct call *c, const void *at)
{
	int ret = dev_call(given.dev, c->cmd, (void *)at);

	if (!ret)
		call_undo(c, at);
	return ret;
}

/* A call that must fail and leave the whole room as it is. */
static bool fails(const struct call *c, unsigned char *at, int want, const char *what, unsigned long which)
{
	static unsigned char copy[2 * PAGE];

	memcpy(copy, room, sizeof(copy));
	if (!expect(done(c, at), want, "%s %lu", what, which))
		return false;
	if (memcmp(copy, room, sizeof(copy)))
		wrong("%s %lu: the struct was written to", what, which);
	return true;
}

static void sizes_of_struct(const struct call *c)
{
	struct counts_state was = counts_now(given.dev);
	size_t least = c->least ? c->least : c->size;

	for (unsigned long size = 0; size <= PAGE + 8; size++) {
		place(c, room, size);
		if (size < least) {
			fails(c, room, -EINVAL, "size", size);
		} else if (size > PAGE) {
			fails(c, room, -E2BIG, "size", size);
		} else {
			expect(done(c, room), 0, "size %lu", size);
			for (unsigned long i = size < c->size ? size : c->size; i < 2 * PAGE; i++)
				if (room[i] != (i < size ? 0 : FILL))
					wrong("size %lu: byte %lu was written to", size, i);
		}
	}
	for (unsigned int bit = 13; bit < 32; bit++) {
		place(c, room, PAGE);
		*(uint32_t *)room = 1U << bit;
		fails(c, room, -E2BIG, "size of bit", bit);
	}
	counts_same(given.dev, &was);
	point(c->name, "every size of the struct");

	for (unsigned long size = c->size + 1; size <= PAGE; size += size < c->size + 64 ? 1 : 61) {
		place(c, room, size);
		room[size - 1] = 1;
		fails(c, room, -E2BIG, "last byte set in size", size);
		place(c, room, size);
		room[c->size] = 0x80;
		fails(c, room, -E2BIG, "first unknown byte set in size", size);
	}
	counts_same(given.dev, &was);
	point(c->name, "an unknown tail that is not zero");
}

static void bits(const struct call *c, size_t offset, uint32_t allowed, const char *what)
{
	for (unsigned int bit = 0; bit < 32; bit++) {
		if (allowed & 1U << bit)
			continue;
		place(c, room, c->size);
		*(uint32_t *)(room + offset) |= 1U << bit;
		fails(c, room, -EINVAL, what, offset << 8 | bit);
	}
}

static void flags_and_reserved(const struct call *c)
{
	struct counts_state was = counts_now(given.dev);

	bits(c, 4, c->flags, "flag");
	for (unsigned int i = 0; i < sizeof(c->reserved) / sizeof(c->reserved[0]) && c->reserved[i]; i++)
		bits(c, c->reserved[i], 0, "reserved bit");
	counts_same(given.dev, &was);
	point(c->name, "every unknown flag, every bit of a reserved field");
}

static const uintptr_t bad[] = {
	0,	  1,   4095, NOWHERE, 0x7ffffffff000, 0x800000000000, 0x8000000000000000, 0xffff888000000000, 0xffffffff81000000,
	~0UL - 2, ~0UL
};

#define EACH_BAD(i) (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)

static void addresses(const struct call *c)
{
	struct counts_state was = counts_now(given.dev);
	unsigned char *end = room + 2 * PAGE;

	for
		EACH_BAD(i)
	expect(dev_call(given.dev, c->cmd, (void *)bad[i]), -EFAULT, "%#lx", bad[i]);
	expect(dev_call(given.dev, c->cmd, room - PAGE), -EFAULT, "before the room");
	expect(dev_call(given.dev, c->cmd, end), -EFAULT, "behind the room");
	point(c->name, "an address that is none");

	place(c, end - c->size, c->size);
	expect(done(c, end - c->size), 0, "up to the end of the last page");
	for (unsigned long cut = 1; cut <= c->size; cut++) {
		place(c, end - c->size + cut, c->size);
		fails(c, end - c->size + cut, -EFAULT, "bytes beyond the end:", cut);
		place(c, room, c->size);
		fails(c, room - cut, -EFAULT, "bytes before the start:", cut);
	}
	for (unsigned long more = 1; more <= 64; more++) {
		place(c, end - c->size, c->size + more);
		fails(c, end - c->size, -EFAULT, "unknown bytes beyond the end:", more);
	}
	/* Over the boundary of two pages nothing is special. */
	for (unsigned long part = 1; part < c->size; part++) {
		place(c, room + PAGE - part, c->size);
		expect(done(c, room + PAGE - part), 0, "%lu bytes in the first page", part);
	}
	counts_same(given.dev, &was);
	point(c->name, "the end of the mapped memory");

	place(c, room + PAGE, c->size);
	mprotect(room, 2 * PAGE, PROT_READ);
	fails(c, room + PAGE, -EFAULT, "read-only, at", 0);
	mprotect(room, 2 * PAGE, PROT_READ | PROT_WRITE);
	counts_same(given.dev, &was);
	/* All of it is read, part of it cannot be written: nothing is left that nobody was told of. */
	for (unsigned long part = 4; part < c->size; part += 4) {
		place(c, room + PAGE - part, c->size);
		mprotect(room + PAGE, PAGE, PROT_READ);
		expect(dev_call(given.dev, c->cmd, room + PAGE - part), -EFAULT, "read-only from byte %lu on", part);
		mprotect(room + PAGE, PAGE, PROT_READ | PROT_WRITE);
	}
	counts_same(given.dev, &was);
	point(c->name, "a struct in read-only memory");
}

static atomic_bool changing;

static void *change_size(void *unused)
{
	static const unsigned int sizes[] = { 0, 24, 40, 48, 112, 120, 184, PAGE, ~0U };
	atomic_uint *size = (atomic_uint *)room;

	(void)unused;
	for (unsigned int i = 0; atomic_load(&changing); i++)
		atomic_store(size, sizes[i % 9]);
	return NULL;
}

/* What another thread makes of the size meanwhile reaches no byte behind the struct. */
static void size_that_changes(const struct call *c)
{
	struct counts_state was = counts_now(given.dev);
	pthread_t thread;

	place(c, room, c->size);
	atomic_store(&changing, true);
	if (pthread_create(&thread, NULL, change_size, NULL))
		wrong("no thread");
	for (int i = 0; i < 300; i++) {
		int ret;

		place(c, room, c->size);
		ret = done(c, room);
		if (ret && ret != -EINVAL && ret != -E2BIG)
			wrong("call %d: %s", i, strerror(-ret));
	}
	atomic_store(&changing, false);
	pthread_join(thread, NULL);
	for (size_t i = c->size; i < 2 * PAGE; i++)
		if (room[i] != FILL)
			wrong("byte %zu was written to", i);
	counts_same(given.dev, &was);
	point(c->name, "a size that another thread changes");
}

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

static void put(union args *a, size_t offset, uint64_t value, size_t bytes)
{
	memcpy(a->byte + offset, &value, bytes);
}

/* Rows of every size, at addresses that are none, and up to the end of the room. */
static void rows(const struct call *c, size_t known, size_t at_rows, size_t at_row_size)
{
	struct counts_state was = counts_now(given.dev);
	union args a, copy;

	for (unsigned int size = 0; size <= PAGE + 8; size++) {
		c->make(&a);
		memset(room, FILL, 2 * PAGE);
		memset(room, 0, known < size ? known : size);
		memcpy(room, &given.device.index, 4);
		put(&a, at_rows, (uintptr_t)room, 8);
		put(&a, at_row_size, size, 4);
		if (c->cmd == PINION_IOC_LIST)
			a.list.count = 1;
		expect(dev_call(given.dev, c->cmd, &a),
		       size < known ? -EINVAL :
		       size > PAGE  ? -E2BIG :
				      0,
		       "rows of %u bytes", size);
		for (size_t i = known; i < 2 * PAGE; i++)
			if (size >= known && size <= PAGE && room[i] != (i < size ? 0 : FILL))
				wrong("rows of %u bytes: byte %zu was written to", size, i);
	}
	for
		EACH_BAD(i)
		{
			c->make(&a);
			put(&a, at_rows, bad[i], 8);
			copy = a;
			expect(dev_call(given.dev, c->cmd, &a), -EFAULT, "rows at %#lx", bad[i]);
			if (memcmp(&a, &copy, c->size))
				wrong("rows at %#lx: the struct was written to", bad[i]);
		}
	for (unsigned int cut = 0; cut <= known; cut++) {
		memset(room, 0, 2 * PAGE);
		c->make(&a);
		put(&a, at_rows, (uintptr_t)room + 2 * PAGE - known + cut, 8);
		if (c->cmd == PINION_IOC_LIST)
			a.list.count = 1;
		if (!cut)
			memcpy(room + 2 * PAGE - known, &given.device.index, 4);
		expect(dev_call(given.dev, c->cmd, &a), cut ? -EFAULT : 0, "rows with %u bytes beyond the end", cut);
	}
	counts_same(given.dev, &was);
	point(c->name, "rows of every size and at every end");
}

static void all_rows(void)
{
	int watch = dev_watch(given.dev, &given.device, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0);

	expect(watch, 0, "WATCH");
	for
		EACH_CALL(c)
		{
			if (c->make == make_read)
				rows(c, sizeof(struct pinion_reading), AT(read, rows), AT(read, row_size));
			else if (c->make == make_sessions)
				rows(c, sizeof(struct pinion_list_session), AT(list, rows), AT(list, row_size));
			else if (c->make == make_claims)
				rows(c, sizeof(struct pinion_list_claim), AT(list, rows), AT(list, row_size));
			else if (c->make == make_watches)
				rows(c, sizeof(struct pinion_list_watch), AT(list, rows), AT(list, row_size));
		}
	close(watch);
}

/* ---- opens and callers ------------------------------------------------------------------------------------------------- */

static void read_only(void)
{
	struct counts_state was = counts_now(given.dev);

	for
		EACH_CALL(c)
		{
			union args a = { 0 };
			int ret;

			c->make(&a);
			ret = dev_call(given.read_only, c->cmd, &a);
			expect(ret, c->writes ? -EACCES : 0, "%s", c->name);
			if (!ret && c->undo)
				c->undo(&a);
			a.size = 0;
			expect(dev_call(given.read_only, c->cmd, &a), c->writes ? -EACCES : -EINVAL, "%s of no size", c->name);
			expect(dev_call(given.read_only, c->cmd, NULL), c->writes ? -EACCES : -EFAULT, "%s of nothing", c->name);
		}
	counts_same(given.dev, &was);
	point("read-only open", "looks and waits and changes nothing");
}

#ifdef __x86_64__
static void caller_32(void)
{
	struct counts_state was = counts_now(given.dev);
	union args *a;

	if (!has_32()) {
		tap_skip("a 32-bit caller", "this kernel has none");
		return;
	}
	a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	for
		EACH_CALL(c)
		{
			memset(a, 0, sizeof(*a));
			c->make(a);
			if (expect(call_32(given.dev, c->cmd, a), 0, "%s", c->name))
				call_undo(c, a);
			c->make(a);
			a->size = c->least ? c->least - 1 : c->size - 1;
			expect(call_32(given.dev, c->cmd, a), -EINVAL, "%s of a byte less", c->name);
			expect(call_32(given.dev, c->cmd, NULL), -EFAULT, "%s of nothing", c->name);
		}
	munmap(a, PAGE);
	counts_same(given.dev, &was);
	point("a 32-bit caller", "every call");
}
#endif

/* ---- arguments --------------------------------------------------------------------------------------------------------- */

static int spoilt(void (*make)(union args *a), unsigned int cmd, size_t offset, size_t bytes, uint64_t value)
{
	union args a = { 0 }, copy;
	int ret;

	make(&a);
	put(&a, offset, value, bytes);
	copy = a;
	ret = dev_call(given.dev, cmd, &a);
	if (ret && memcmp(&a, &copy, sizeof(a)))
		wrong("the struct was written to, with %#lx at %zu", value, offset);
	return ret;
}

#define SPOIL(call, type, field, value, want)                                                                                   \
	expect(spoilt(make_##call, CMD_##call, AT(type, field), sizeof(((struct pinion_##type *)0)->field), (uint64_t)(value)), \
	       want, #call " with " #field " %lld", (long long)(value))
#define CMD_attach    PINION_IOC_ATTACH
#define CMD_attach_fd PINION_IOC_ATTACH
#define CMD_handle    PINION_IOC_KICK
#define CMD_add	      PINION_IOC_ADD
#define CMD_read      PINION_IOC_READ
#define CMD_reserve   PINION_IOC_RESERVE
#define CMD_claiminfo PINION_IOC_CLAIMINFO
#define CMD_wait      PINION_IOC_WAIT
#define CMD_watch     PINION_IOC_WATCH
#define CMD_dev_find  PINION_IOC_DEV_GET
#define CMD_dev_set   PINION_IOC_DEV_SET
#define CMD_dev_del   PINION_IOC_DEV_DEL

static void attach_arguments(void)
{
	struct counts_state was = counts_now(given.dev);
	const uint64_t other = given.device.generation + 1000;

	SPOIL(attach, attach, max_inflight, 0, -EINVAL);
	SPOIL(attach, attach, max_inflight, was.state.info.max_inflight + 1, -EINVAL);
	SPOIL(attach, attach, max_inflight, ~0U, -EINVAL);
	SPOIL(attach, attach, generation, 0, -EINVAL);
	SPOIL(attach, attach, generation, other, -ESTALE);
	SPOIL(attach, attach, index, 254, -ESTALE);
	SPOIL(attach, attach, index, ~0U, -ESTALE);
	SPOIL(attach, attach, lane, 1, -EINVAL);
	SPOIL(attach, attach, completed_fd, 0, -EINVAL);
	SPOIL(attach, attach, completed_fd, -2, -EINVAL);
	SPOIL(attach, attach, completed_off, 32, -EINVAL);
	SPOIL(attach_fd, attach, completed_fd, -1, -EBADF);
	SPOIL(attach_fd, attach, completed_fd, 1 << 20, -EBADF);
	SPOIL(attach_fd, attach, completed_fd, given.dev, -EINVAL);
	SPOIL(attach_fd, attach, completed_fd, 0, -EINVAL);
	for (uint64_t off = 1; off < 32; off++)
		SPOIL(attach_fd, attach, completed_off, off, -EINVAL);
	SPOIL(attach_fd, attach, completed_off, 2 * PAGE, -EINVAL);
	SPOIL(attach_fd, attach, completed_off, 2 * PAGE - 16, -EINVAL);
	SPOIL(attach_fd, attach, completed_off, ~31ULL, -EINVAL);
	SPOIL(attach_fd, attach, completed_off, 1ULL << 52, -EINVAL);
	for (unsigned int lane = 0; lane < 70; lane++) {
		union args a = { 0 };
		bool taken = lane == given.lane.lane || lane == given.spare.lane;
		int ret;

		make_attach(&a);
		a.attach.flags = PINION_ATTACH_LANE;
		a.attach.lane = lane;
		ret = dev_call(given.dev, PINION_IOC_ATTACH, &a);
		expect(ret, lane >= PINION_LANES ? -EINVAL : taken ? -EBUSY : 0, "lane %u", lane);
		if (!ret && a.attach.lane != lane)
			wrong("lane %u is %u", lane, a.attach.lane);
		if (!ret)
			undo_attach(&a);
	}
	counts_same(given.dev, &was);
	point("ATTACH", "arguments that are none");
}

static void count_arguments(void)
{
	struct counts_state was = counts_now(given.dev);
	unsigned int handle = given.lane.handle;
	struct pinion_attach lane, more;
	int fd;

	SPOIL(add, add, ops, 0, -EINVAL);
	SPOIL(add, add, ops, INT_MIN, -EINVAL);
	SPOIL(add, add, ops, -1, -EINVAL);
	SPOIL(add, add, cost, -1, -EINVAL);
	SPOIL(add, add, cost, INT64_MIN, -EINVAL);
	SPOIL(add, add, parity, 3, -EINVAL);
	SPOIL(add, add, parity, ~0U, -EINVAL);
	SPOIL(add, add, ops, INT_MAX, -ENOSPC);
	expect(dev_count(given.dev, handle, -1, 0, PINION_PARITY_NOW), -EINVAL, "an end in the parity of now");
	expect(dev_count(given.dev, handle, 3, 9, 1), 0, "three begin");
	expect(dev_count(given.dev, handle, -1, 0, 0), -EINVAL, "an end in the other parity");
	expect(dev_count(given.dev, handle, -4, 0, 1), -EINVAL, "four end");
	expect(dev_count(given.dev, handle, -3, -10, 1), -EINVAL, "more cost ends");
	expect(dev_count(given.dev, handle, -1, 1, 1), -EINVAL, "an end of negative cost");
	expect(dev_count(given.dev, handle, -3, -9, 1), 0, "three end");
	for (unsigned int bit = 0; bit < 32; bit++) {
		uint32_t forged = handle ^ 1U << bit;

		if (forged == given.spare.handle)
			continue;
		SPOIL(add, add, handle, forged, -EINVAL);
		SPOIL(handle, handle, handle, forged, -EINVAL);
		expect(dev_handle(given.dev, PINION_IOC_RESET, forged), -EINVAL, "RESET of %#x", forged);
		expect(dev_handle(given.dev, PINION_IOC_DETACH, forged), -EINVAL, "DETACH of %#x", forged);
	}
	SPOIL(add, add, handle, 0, -EINVAL);
	SPOIL(handle, handle, handle, ~0U, -EINVAL);
	counts_same(given.dev, &was);
	point("ADD", "arguments that are none");

	/* All lanes of the session together have so many. */
	fd = dev_open(O_RDWR);
	expect(dev_attach(fd, &given.device, 10, &lane), 0, "ATTACH");
	expect(dev_attach(fd, &given.device, 3, &more), 0, "ATTACH");
	expect(dev_count(fd, lane.handle, 14, 0, 0), -ENOSPC, "14 of 13");
	expect(dev_count(fd, lane.handle, 9, 0, 0), 0, "9 of 13");
	expect(dev_count(fd, more.handle, 5, 0, 1), -ENOSPC, "14 of 13, in both parities");
	expect(dev_count(fd, more.handle, 4, 0, 1), 0, "13 of 13");
	expect(dev_count(fd, lane.handle, 1, 0, 0), -ENOSPC, "one more");
	expect(dev_count(fd, lane.handle, -4, 0, 1), 0, "four end on another lane");
	expect(dev_count(fd, more.handle, -9, 0, 0), 0, "nine too");
	close(fd);
	counts_same(given.dev, &was);
	point("ADD", "max_inflight is that of all lanes");
}

static void other_arguments(void)
{
	struct counts_state was = counts_now(given.dev);
	const uint64_t other = given.device.generation + 1000;
	struct pinion_wait out;

	SPOIL(read, read, count, 0, -EINVAL);
	SPOIL(read, read, count, 257, -EINVAL);
	SPOIL(read, read, count, ~0U, -EINVAL);
	SPOIL(reserve, reserve, generation, 0, -EINVAL);
	SPOIL(reserve, reserve, generation, other, -ESTALE);
	SPOIL(reserve, reserve, index, 254, -ESTALE);
	SPOIL(reserve, reserve, bytes, ~0ULL, -ENOSPC);
	SPOIL(reserve, reserve, units, ~0U, -ENOSPC);
	expect(dev_reserve(given.dev, &given.device, 0, 0, 0), -EINVAL, "RESERVE of nothing");
	SPOIL(claiminfo, reserve, fd, -1, -EBADF);
	SPOIL(claiminfo, reserve, fd, 1 << 20, -EBADF);
	SPOIL(claiminfo, reserve, fd, 0, -EINVAL);
	SPOIL(claiminfo, reserve, fd, given.dev, -EINVAL);
	SPOIL(claiminfo, reserve, fd, given.buffer, -EINVAL);
	SPOIL(wait, wait, generation, 0, -EINVAL);
	SPOIL(wait, wait, generation, other, -ESTALE);
	SPOIL(wait, wait, scope, 3, -EINVAL);
	SPOIL(wait, wait, cond, 3, -EINVAL);
	SPOIL(wait, wait, cond, PINION_COND_FLUSH, -EINVAL);
	SPOIL(wait, wait, cond, PINION_COND_CHANGED, -EINVAL);
	SPOIL(wait, wait, deadline_ns, -1, -EINVAL);
	SPOIL(wait, wait, deadline_ns, INT64_MIN, -EINVAL);
	SPOIL(watch, watch, generation, 0, -EINVAL);
	SPOIL(watch, watch, generation, other, -ESTALE);
	SPOIL(watch, watch, scope, 3, -EINVAL);
	SPOIL(watch, watch, cond, 3, -EINVAL);
	SPOIL(watch, watch, value, 1, -EINVAL);
	SPOIL(dev_find, dev, by, 3, -EINVAL);
	SPOIL(dev_find, dev, by, ~0U, -EINVAL);
	SPOIL(dev_find, dev, generation, other, -ESTALE);
	SPOIL(dev_set, dev, by, 3, -EINVAL);
	SPOIL(dev_set, dev, by, ~0U, -EINVAL);
	SPOIL(dev_set, dev, set, 0, -EINVAL);
	for (unsigned int bit = 2; bit < 32; bit++)
		SPOIL(dev_set, dev, set, 1U << bit | 1, -EINVAL);
	SPOIL(dev_set, dev, generation, 0, -EINVAL);
	SPOIL(dev_set, dev, generation, other, -ESTALE);
	SPOIL(dev_del, dev_del, generation, 0, -EINVAL);
	SPOIL(dev_del, dev_del, generation, other, -ESTALE);
	/* What WAIT saw is told at the deadline, and only then. */
	expect(dev_count(given.dev, given.lane.handle, 5, 5, 0), 0, "ADD");
	expect(dev_wait(given.dev, &given.device, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0, 0, &out), -ETIMEDOUT, "WAIT");
	if (out.high != 5 || out.culprit_pid != getpid() || out.culprit_units != 5)
		wrong("WAIT saw %llu in flight, %d of %d", out.high, out.culprit_units, out.culprit_pid);
	expect(dev_count(given.dev, given.lane.handle, -5, -5, 0), 0, "ADD");
	counts_same(given.dev, &was);
	point("other calls", "arguments that are none");
}

static void statuses(void)
{
	struct pinion_dev sync = { .size = sizeof(sync), .flags = PINION_DEV_SYNC, .key = "sync", .budget = PAGE };
	struct counts_state was = counts_now(given.dev);
	struct pinion_dev none = { .index = 254 }, stale = given.device;
	struct pinion_reading row, all[3] = { 0 };
	struct pinion_read r = { .size = sizeof(r), .rows = (uintptr_t)all, .count = 3, .row_size = sizeof(row) };
	struct pinion_attach lane;
	struct pinion_wait wait;
	int fd;

	stale.generation += 1000;
	expect(dev_reading(given.dev, &none, &row), -ENOENT, "READ of none");
	expect(dev_reading(given.dev, &stale, &row), -ESTALE, "READ of another generation");
	expect(dev_call(given.dev, PINION_IOC_DEV_ADD, &sync), 0, "DEV_ADD of a synchronous one");
	expect(dev_reading(given.dev, &sync, &row), -ENODATA, "READ of a synchronous one");
	if (row.budget != PAGE || row.flags != PINION_DEV_SYNC || row.high || row.submitted)
		wrong("a synchronous device's row: budget %llu flags %x", row.budget, row.flags);
	expect(dev_attach(given.dev, &sync, 1, &lane), -ENODATA, "ATTACH to a synchronous one");
	expect(dev_wait(given.dev, &sync, PINION_SCOPE_EVERY, PINION_COND_FLUSH, 0, 0, &wait), -ENODATA, "WAIT for it");
	expect(dev_watch(given.dev, &sync, PINION_SCOPE_EVERY, PINION_COND_PENDING_LE, 0), -ENODATA, "WATCH of it");
	fd = dev_reserve(given.dev, &sync, PAGE, 0, 0);
	expect(fd, 0, "RESERVE of it");
	close(fd);
	expect(dev_reserve(given.dev, &sync, 0, 1, 0), -ENODATA, "RESERVE of units it does not have");
	/* One row that is none does not spoil the others. */
	all[0].index = given.device.index;
	all[1].index = 254;
	all[2].index = sync.index;
	expect(dev_call(given.dev, PINION_IOC_READ, &r), 0, "READ of three");
	if (all[0].status || all[0].generation != given.device.generation || all[1].status != -ENOENT ||
	    all[2].status != -ENODATA || all[1].budget || all[1].cookie)
		wrong("three rows: %d %d %d", all[0].status, all[1].status, all[2].status);
	expect(dev_del(given.dev, &sync, 0), 0, "DEV_DEL");
	counts_same(given.dev, &was);
	point("READ", "what a row says of itself");
}

int main(void)
{
	room_open();
	if (!given_open())
		return tap_end();
	for
		EACH_CALL(c)
		{
			sizes_of_struct(c);
			flags_and_reserved(c);
			addresses(c);
			size_that_changes(c);
		}
	all_rows();
	read_only();
#ifdef __x86_64__
	caller_32();
#endif
	attach_arguments();
	count_arguments();
	other_arguments();
	statuses();
	given_close();
	nothing_left();
	return tap_end();
}
