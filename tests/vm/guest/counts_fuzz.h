/* SPDX-License-Identifier: MIT */
/* What counts_fuzz does by calls: devices, lanes, readings, claims and waits, with arguments that are right, nearly right and
 * wrong. */
#ifndef PINION_VM_COUNTS_FUZZ_H
#define PINION_VM_COUNTS_FUZZ_H

#include "dev_counts.h"
#include "fuzz.h"

#include <poll.h>

#define NOBODY	  65534
#define OPENS	  6
#define KNOWN	  8
#define HANDLES	  32
#define ROWS_MOST 16
#define MOST_EACH 400 /* of each kind of object a user may have at any time */

static _Atomic int opens[OPENS];	  /* this process's */
static _Atomic uint64_t known[KNOWN];	  /* devices: generation and index */
static _Atomic uint64_t handles[HANDLES]; /* place of the open, handle, parity */
static _Atomic uint64_t wild[32];	  /* a struct that all threads write to */

static __thread int kernel_fails; /* makes a step inside the kernel fail, where it can */

static int dev_some(void)
{
	return atomic_load(&opens[roll(OPENS)]);
}

/* A call; now and then with a failure of the kernel's own on its way. */
static int call(int dev, unsigned int cmd, void *arg)
{
	char text[16];
	int ret;

	if (kernel_fails < 0 || !one_in(8))
		return dev_call(dev, cmd, arg);
	snprintf(text, sizeof(text), "%u", 1 + (unsigned int)roll(30));
	if (write(kernel_fails, text, strlen(text)) < 0)
		return dev_call(dev, cmd, arg);
	ret = dev_call(dev, cmd, arg);
	while (write(kernel_fails, "0", 1) < 0 && errno == EINTR)
		;
	return ret;
}

static bool open_again(unsigned int place)
{
	int fd = dev_open(one_in(4) ? O_RDONLY : O_RDWR), old;

	if (fd < 0)
		return false;
	old = atomic_exchange(&opens[place], fd);
	if (old > 0)
		close(old);
	return true;
}

/* ---- devices ------------------------------------------------------------------------------------------------------- */

static void know(const struct pinion_dev *d)
{
	atomic_store(&known[roll(KNOWN)], d->generation << 8 | d->index);
}

static struct pinion_dev known_some(void)
{
	uint64_t k = atomic_load(&known[roll(KNOWN)]);
	struct pinion_dev d = { .size = sizeof(d), .index = k & 255, .generation = k >> 8 };

	if (one_in(64))
		d.index = roll(300);
	if (one_in(64))
		d.generation += roll(3) - 1;
	return d;
}

static bool op_add_device(void)
{
	struct pinion_dev d = { .size = sizeof(d), .capacity = roll(8), .budget = roll(4) << 20, .cost_unit = one_in(16) };

	d.key[0] = 'a' + roll(6);
	if (one_in(32))
		d.key[roll(PINION_KEY_BYTES)] = roll(256);
	if (one_in(8))
		d.flags = roll(4);
	if (call(dev_some(), PINION_IOC_DEV_ADD, &d))
		return false;
	if (!d.generation || d.index > 254)
		bad(ROWS, "DEV_ADD: index %u, generation %llu", d.index, d.generation);
	know(&d);
	return true;
}

static bool op_get_device(void)
{
	struct pinion_dev d = { .size = sizeof(d), .by = roll(3 + one_in(8)), .index = roll(8) };

	if (d.by == PINION_BY_KEY)
		d.key[0] = 'a' + roll(7);
	if (call(dev_some(), PINION_IOC_DEV_GET, &d))
		return false;
	if (!*d.key || memchr(d.key, 0, PINION_KEY_BYTES) == NULL || (d.uid && d.uid != NOBODY))
		bad(ROWS, "DEV_GET: key of %zu, uid %u", strnlen(d.key, PINION_KEY_BYTES), d.uid);
	know(&d);
	return true;
}

static bool op_set_device(void)
{
	struct pinion_dev d = known_some();

	d.set = one_in(16) ? roll(~0U) : roll(4);
	d.capacity = roll(8);
	d.budget = roll(4) << 20;
	return !call(dev_some(), PINION_IOC_DEV_SET, &d);
}

static bool op_del_device(void)
{
	struct pinion_dev d = known_some();
	struct pinion_dev_del del = { .size = sizeof(del), .flags = roll(2), .index = d.index, .generation = d.generation };

	return !call(dev_some(), PINION_IOC_DEV_DEL, &del);
}

/* ---- lanes --------------------------------------------------------------------------------------------------------- */

static bool op_attach(void)
{
	struct pinion_dev d = known_some();
	unsigned int place = roll(OPENS);
	struct pinion_attach a = { .size = sizeof(a),
				   .index = d.index,
				   .max_inflight = one_in(16) ? roll(1 << 22) : 1 + roll(64),
				   .generation = d.generation,
				   .max_cost = roll(2) * roll(1000),
				   .completed_fd = -1 };
	int ret;

	if (one_in(4)) {
		a.flags = PINION_ATTACH_LANE;
		a.lane = roll(PINION_LANES + 1);
	}
	if (one_in(4)) {
		a.flags |= PINION_ATTACH_COMPLETED_FD;
		a.completed_fd = pool_look();
		a.completed_off = roll(130) * 32 + one_in(16);
	}
	ret = call(atomic_load(&opens[place]), PINION_IOC_ATTACH, &a);
	/* What has ended stays so. */
	if (ret == -EOWNERDEAD)
		open_again(place);
	if (ret)
		return false;
	if (a.lane >= PINION_LANES)
		bad(ROWS, "lane %u", a.lane);
	atomic_store(&handles[roll(HANDLES)], (uint64_t)place << 40 | a.handle);
	return true;
}

static uint32_t handle_some(int *fd, uint32_t *parity)
{
	uint64_t h = atomic_load(&handles[roll(HANDLES)]);

	*fd = atomic_load(&opens[(h >> 40) % OPENS]);
	*parity = h >> 32 & 1;
	return one_in(32) ? (uint32_t)roll(~0U) : (uint32_t)h;
}

static bool op_handle(void)
{
	static const unsigned int cmds[] = { PINION_IOC_DETACH, PINION_IOC_RESET, PINION_IOC_KICK, PINION_IOC_KICK };
	uint32_t parity;
	int fd;
	struct pinion_handle h = { .size = sizeof(h), .handle = handle_some(&fd, &parity) };

	if (one_in(64))
		h.flags = roll(4);
	return !call(fd, PICK(cmds), &h);
}

static bool op_count(void)
{
	uint32_t parity;
	int fd;
	struct pinion_add a = { .size = sizeof(a), .handle = handle_some(&fd, &parity), .ops = 1 + roll(4) };

	a.parity = PINION_PARITY_NOW;
	if (one_in(2)) {
		a.ops = -a.ops;
		a.parity = roll(2);
	}
	a.cost = a.ops * (int64_t)roll(3);
	if (one_in(32))
		a.ops = roll(~0U);
	if (one_in(32))
		a.cost = (int64_t)mix(dice);
	return !call(fd, PINION_IOC_ADD, &a);
}

/* ---- looking ------------------------------------------------------------------------------------------------------- */

static void reading_check(const struct pinion_reading *row)
{
	if (row->status && row->status != -ESTALE && row->status != -ENOENT && row->status != -ENODATA)
		bad(ROWS, "READ: status %d", row->status);
	if (row->low > row->high || row->session_low > row->session_high || row->session_high > row->high ||
	    row->marked > row->sessions || row->high > (uint64_t)row->sessions * PINION_LANES << 20)
		bad(ROWS, "READ: %llu to %llu, session %llu to %llu, %u sessions, %u marked", row->low, row->high,
		    row->session_low, row->session_high, row->sessions, row->marked);
}

static bool op_read(void)
{
	struct pinion_reading rows[40]; /* room for one of the largest */
	struct pinion_read r = {
		.size = sizeof(r), .rows = (uintptr_t)rows, .count = 1 + roll(ROWS_MOST), .row_size = sizeof(rows[0])
	};

	for (unsigned int i = 0; i < r.count; i++) {
		struct pinion_dev d = known_some();

		rows[i].index = d.index;
		rows[i].generation = one_in(4) ? 0 : d.generation;
	}
	if (one_in(16))
		r.rows = bad_address();
	if (one_in(64)) {
		r.row_size = roll(sizeof(rows));
		r.count = 1;
	}
	if (call(dev_some(), PINION_IOC_READ, &r))
		return false;
	for (unsigned int i = 0; i < r.count && r.row_size == sizeof(rows[0]); i++)
		reading_check(&rows[i]);
	return true;
}

static bool op_info(void)
{
	struct pinion_info i = { .size = sizeof(i) };

	if (call(dev_some(), PINION_IOC_INFO, &i))
		return false;
	if (i.user_devices > MOST_EACH || i.user_sessions > MOST_EACH || i.user_claims > MOST_EACH || i.user_watches > MOST_EACH)
		bad(USE, "INFO: %u devices, %u sessions, %u claims, %u watches of a user", i.user_devices, i.user_sessions,
		    i.user_claims, i.user_watches);
	return true;
}

static bool op_list(void)
{
	union {
		struct pinion_list_session session;
		struct pinion_list_claim claim;
		struct pinion_list_watch watch;
		uint64_t id;
	} row;
	char rows[ROWS_MOST][sizeof(row)];
	struct pinion_list l = {
		.size = sizeof(l), .kind = 2 + roll(3), .count = 1 + roll(ROWS_MOST), .row_size = sizeof(rows[0])
	};
	uint64_t after = 0;

	l.rows = one_in(16) ? bad_address() : (uintptr_t)rows;
	l.cursor = one_in(8) ? roll(1000) : 0;
	if (call(dev_some(), PINION_IOC_LIST, &l))
		return false;
	for (unsigned int i = 0; i < l.out_count && i < ROWS_MOST; i++) {
		memcpy(&row, rows[i], sizeof(row));
		if (row.id ? row.id <= after : i + 1 < l.out_count)
			bad(ROWS, "LIST %u: id %llu after %llu", l.kind, (unsigned long long)row.id, (unsigned long long)after);
		after = row.id ?: ~0ULL;
		if (l.kind == PINION_LIST_SESSIONS &&
		    (row.session.low > row.session.high || (row.id && row.session.high > row.session.max_inflight)))
			bad(ROWS, "a session of %llu to %llu of %llu", row.session.low, row.session.high,
			    row.session.max_inflight);
	}
	return true;
}

static bool op_wild(void)
{
	static const uint32_t sizes[] = { 24, 40, 48, 56, 80, 112, 4096, 0 };
	static const uint64_t words[] = { 0, 1, 2, 3, 255, ~0ULL, 1ULL << 63, 1ULL << 32, 0x6100000000 };
	unsigned int nr = one_in(2) ? 0x30 + roll(4) : 0x38 + roll(14);

	if (one_in(2)) {
		atomic_store(&wild[1 + roll(31)], PICK(words));
		return true;
	}
	/* No wait without an end: what is there at the end of its struct may be anything. */
	if (PINION_IOC(nr) == PINION_IOC_WAIT || PINION_IOC(nr) == PINION_IOC_RESERVE || PINION_IOC(nr) == PINION_IOC_WATCH)
		return false;
	atomic_store((_Atomic uint32_t *)wild, PICK(sizes));
	call(dev_some(), PINION_IOC(nr), one_in(16) ? (void *)bad_address() : (void *)wild);
	return true;
}

/* ---- claims and waits ---------------------------------------------------------------------------------------------- */

static bool op_reserve(void)
{
	struct pinion_dev d = known_some();
	struct pinion_reserve r = { .size = sizeof(r),
				    .flags = one_in(16),
				    .index = d.index,
				    .units = roll(3),
				    .generation = d.generation,
				    .bytes = roll(3) << 18,
				    .most_bytes = one_in(4) ? roll(1 << 20) : 0,
				    .most_units = one_in(4) ? roll(8) : 0 };

	if (call(dev_some(), PINION_IOC_RESERVE, &r))
		return false;
	pool_put(r.fd);
	return true;
}

static bool op_claiminfo(void)
{
	struct pinion_reserve r = { .size = sizeof(r), .fd = pool_look() };

	return !call(dev_some(), PINION_IOC_CLAIMINFO, &r);
}

static uint64_t wait_value(uint32_t cond)
{
	return cond == PINION_COND_FLUSH ? one_in(32) : roll(16);
}

static bool op_watch(void)
{
	struct pinion_dev d = known_some();
	uint32_t cond = roll(3 + one_in(16));
	struct pinion_watch w = { .size = sizeof(w),
				  .index = d.index,
				  .scope = cond == PINION_COND_CHANGED ? PINION_SCOPE_EVERY : roll(3 + one_in(16)),
				  .generation = d.generation,
				  .cond = cond,
				  .value = wait_value(cond) };

	if (call(dev_some(), PINION_IOC_WATCH, &w))
		return false;
	pool_put(w.fd);
	return true;
}

static struct pinion_wait wait_some(unsigned int most_ms)
{
	struct pinion_dev d = known_some();
	uint32_t cond = roll(3);

	return (struct pinion_wait){ .size = sizeof(struct pinion_wait),
				     .index = d.index,
				     .scope = cond == PINION_COND_CHANGED ? PINION_SCOPE_EVERY : roll(3),
				     .generation = d.generation,
				     .cond = cond,
				     .value = wait_value(cond),
				     .deadline_ns = one_in(4) ? 0 : now_ns() + (int64_t)roll(1 + most_ms * 1000000ULL) };
}

static bool op_wait(void)
{
	struct pinion_wait w = wait_some(20);
	int ret = call(dev_some(), PINION_IOC_WAIT, &w);

	if (ret == -ETIMEDOUT && w.culprit_pid < 0)
		bad(ROWS, "culprit %d", w.culprit_pid);
	return !ret || ret == -ETIMEDOUT;
}

static bool op_poll(void)
{
	struct pollfd p[4];

	for (int i = 0; i < 4; i++)
		p[i] = (struct pollfd){ .fd = pool_look(), .events = POLLIN };
	return poll(p, 4, roll(8)) > 0;
}

/* Of whatever it is; a watch would wait. */
static bool op_take(void)
{
	struct pinion_event event;
	int fd = pool_look();
	ssize_t n;

	if (fd < 0)
		return false;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	n = read(fd, one_in(16) ? (void *)bad_address() : &event, one_in(16) ? roll(64) : sizeof(event));
	return n == sizeof(event);
}

#endif
