/* SPDX-License-Identifier: MIT */
/* Every call about devices and counts with arguments that work, and what one that fails must leave as it was. */
#ifndef PINION_VM_COUNTS_CALLS_H
#define PINION_VM_COUNTS_CALLS_H

#include "dev_counts.h"
#include "state.h"

#include <stddef.h>
#include <sys/wait.h>

#define NOBODY 65534

union args {
	uint32_t size;
	struct pinion_info info;
	struct pinion_dev dev;
	struct pinion_dev_del del;
	struct pinion_attach attach;
	struct pinion_handle handle;
	struct pinion_add add;
	struct pinion_read read;
	struct pinion_reserve reserve;
	struct pinion_wait wait;
	struct pinion_watch watch;
	struct pinion_list list;
	unsigned char byte[192];
};

/* What the arguments speak of. The spare lane and the doomed device are there to go. */
static struct {
	int dev, read_only, buffer, claim;
	struct pinion_dev device, doomed;
	struct pinion_attach lane, spare;
	struct pinion_reading row;
	unsigned char rows[8 * 128];
} given;

/* ---- what must not change -------------------------------------------------------------------------------------------- */

struct counts_state {
	struct state state;
	struct pinion_reading row;		/* of given.device */
	int devices, sessions, claims, watches; /* rows that there are */
};

STATE int devices_there(int dev)
{
	struct pinion_dev at = { .size = sizeof(at), .by = PINION_BY_NEXT };
	int n = 0;

	for (; !dev_call(dev, PINION_IOC_DEV_GET, &at); n++)
		at = (struct pinion_dev){ .size = sizeof(at), .by = PINION_BY_NEXT, .index = at.index + 1 };
	return n;
}

/* Rows of a kind, as many as fit; or -errno. */
STATE int list_rows(int dev, uint32_t kind, void *rows, size_t row_size, unsigned int count)
{
	struct pinion_list l = { .size = sizeof(l), .kind = kind, .rows = (uintptr_t)rows, .count = count, .row_size = row_size };
	int ret = dev_call(dev, PINION_IOC_LIST, &l);

	return ret ? ret : (int)l.out_count;
}

STATE int rows_there(int dev, uint32_t kind)
{
	static unsigned char rows[4200][128];

	return list_rows(dev, kind, rows, sizeof(rows[0]), 4200);
}

STATE struct counts_state counts_now(int dev)
{
	struct counts_state s = { .state = state_now(dev) };

	dev_reading(dev, &given.device, &s.row);
	s.devices = devices_there(dev);
	s.sessions = rows_there(dev, PINION_LIST_SESSIONS);
	s.claims = rows_there(dev, PINION_LIST_RESERVATIONS);
	s.watches = rows_there(dev, PINION_LIST_WATCHES);
	return s;
}

STATE bool counts_same(int dev, const struct counts_state *was)
{
	struct counts_state now = counts_now(dev);
	const struct pinion_info *a = &was->state.info, *b = &now.state.info;
	const struct pinion_reading *p = &was->row, *q = &now.row;

	if (!state_same(dev, &was->state))
		return false;
	if (a->user_devices != b->user_devices || a->user_sessions != b->user_sessions || a->user_claims != b->user_claims ||
	    a->user_watches != b->user_watches || a->session != b->session)
		wrong("%u devices, %u sessions, %u claims, %u watches of the user, not %u, %u, %u, %u", b->user_devices,
		      b->user_sessions, b->user_claims, b->user_watches, a->user_devices, a->user_sessions, a->user_claims,
		      a->user_watches);
	else if (now.devices != was->devices || now.sessions != was->sessions || now.claims != was->claims ||
		 now.watches != was->watches)
		wrong("%d devices, rows of %d sessions, %d claims, %d watches, not %d, %d, %d, %d", now.devices, now.sessions,
		      now.claims, now.watches, was->devices, was->sessions, was->claims, was->watches);
	else if (p->status != q->status || p->low != q->low || p->high != q->high || p->cost != q->cost ||
		 p->session_high != q->session_high)
		wrong("%llu to %llu in flight of cost %llu, not %llu to %llu of %llu", q->low, q->high, q->cost, p->low, p->high,
		      p->cost);
	else if (p->budget != q->budget || p->capacity != q->capacity || p->claimed_bytes != q->claimed_bytes ||
		 p->claimed_units != q->claimed_units || p->claims != q->claims || p->sessions != q->sessions ||
		 p->marked != q->marked || p->flags != q->flags)
		wrong("claims of %llu bytes and %u units, %u sessions, not %llu, %u, %u", q->claimed_bytes, q->claimed_units,
		      q->sessions, p->claimed_bytes, p->claimed_units, p->sessions);
	else
		return true;
	return false;
}

/* ---- arguments -------------------------------------------------------------------------------------------------------- */

static void make_info(union args *a)
{
	a->info = (struct pinion_info){ .size = sizeof(a->info) };
}

static void make_dev_add(union args *a)
{
	a->dev = (struct pinion_dev){ .size = sizeof(a->dev), .key = "fresh", .capacity = 3, .budget = 7 * PAGE };
}

static void make_dev_find(union args *a)
{
	a->dev = (struct pinion_dev){ .size = sizeof(a->dev), .key = "given" };
}

static void make_dev_next(union args *a)
{
	a->dev = (struct pinion_dev){ .size = sizeof(a->dev), .by = PINION_BY_NEXT };
}

static void make_dev_set(union args *a)
{
	a->dev = (struct pinion_dev){ .size = sizeof(a->dev),
				      .set = PINION_SET_CAPACITY | PINION_SET_BUDGET,
				      .generation = given.device.generation,
				      .index = given.device.index,
				      .capacity = 77,
				      .budget = 77 * PAGE };
}

static void make_dev_del(union args *a)
{
	a->del = (struct pinion_dev_del){ .size = sizeof(a->del),
					  .index = given.doomed.index,
					  .generation = given.doomed.generation };
}

static void make_attach(union args *a)
{
	a->attach = (struct pinion_attach){ .size = sizeof(a->attach),
					    .index = given.device.index,
					    .generation = given.device.generation,
					    .max_inflight = 10,
					    .completed_fd = -1 };
}

static void make_attach_fd(union args *a)
{
	make_attach(a);
	a->attach.flags = PINION_ATTACH_COMPLETED_FD;
	a->attach.completed_fd = given.buffer;
	a->attach.completed_off = PAGE + 32;
}

static void make_handle(union args *a)
{
	a->handle = (struct pinion_handle){ .size = sizeof(a->handle), .handle = given.lane.handle };
}

static void make_detach(union args *a)
{
	a->handle = (struct pinion_handle){ .size = sizeof(a->handle), .handle = given.spare.handle };
}

static void make_add(union args *a)
{
	a->add = (struct pinion_add){ .size = sizeof(a->add), .handle = given.lane.handle, .ops = 2, .cost = 5 };
}

static void make_read(union args *a)
{
	given.row = (struct pinion_reading){ .index = given.device.index, .generation = given.device.generation };
	a->read = (struct pinion_read){
		.size = sizeof(a->read), .rows = (uintptr_t)&given.row, .count = 1, .row_size = sizeof(given.row)
	};
}

static void make_reserve(union args *a)
{
	a->reserve = (struct pinion_reserve){ .size = sizeof(a->reserve),
					      .index = given.device.index,
					      .generation = given.device.generation,
					      .units = 1,
					      .bytes = PAGE };
}

static void make_claiminfo(union args *a)
{
	a->reserve = (struct pinion_reserve){ .size = sizeof(a->reserve), .fd = given.claim };
}

static void make_wait(union args *a)
{
	a->wait = (struct pinion_wait){ .size = sizeof(a->wait),
					.index = given.device.index,
					.generation = given.device.generation,
					.value = 1000,
					.deadline_ns = now_ns() + 10000000000LL };
}

static void make_watch(union args *a)
{
	a->watch = (struct pinion_watch){ .size = sizeof(a->watch),
					  .index = given.device.index,
					  .scope = PINION_SCOPE_EVERY,
					  .generation = given.device.generation,
					  .cond = PINION_COND_FLUSH };
}

static void make_list(union args *a, uint32_t kind, size_t row_size)
{
	a->list = (struct pinion_list){
		.size = sizeof(a->list), .kind = kind, .rows = (uintptr_t)given.rows, .count = 8, .row_size = row_size
	};
}

static void make_sessions(union args *a)
{
	make_list(a, PINION_LIST_SESSIONS, sizeof(struct pinion_list_session));
}

static void make_claims(union args *a)
{
	make_list(a, PINION_LIST_RESERVATIONS, sizeof(struct pinion_list_claim));
}

static void make_watches(union args *a)
{
	make_list(a, PINION_LIST_WATCHES, sizeof(struct pinion_list_watch));
}

/* ---- what a call made, undone ----------------------------------------------------------------------------------------- */

static void undo_dev_add(const union args *a)
{
	expect(dev_del(given.dev, &a->dev, 0), 0, "DEV_DEL of what was added");
}

static void undo_dev_set(const union args *a)
{
	struct pinion_dev d = given.device;

	(void)a;
	d = (struct pinion_dev){ .size = sizeof(d),
				 .set = PINION_SET_CAPACITY | PINION_SET_BUDGET,
				 .generation = d.generation,
				 .index = d.index,
				 .capacity = d.capacity,
				 .budget = d.budget };
	expect(dev_call(given.dev, PINION_IOC_DEV_SET, &d), 0, "DEV_SET back");
}

static void undo_dev_del(const union args *a)
{
	(void)a;
	expect(dev_add(given.dev, "doomed", &given.doomed), 0, "DEV_ADD of what was removed");
}

static void undo_attach(const union args *a)
{
	int64_t ret = dev_handle(given.dev, PINION_IOC_DETACH, a->attach.handle);

	if (ret)
		wrong("DETACH of what was attached: %lld", (long long)ret);
}

static void undo_detach(const union args *a)
{
	(void)a;
	expect(dev_attach(given.dev, &given.device, 10, &given.spare), 0, "ATTACH of the spare lane");
}

static void undo_add(const union args *a)
{
	expect(dev_count(given.dev, given.lane.handle, -2, -5, a->add.parity), 0, "ADD back");
}

static void undo_fd(int fd)
{
	if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
		wrong("descriptor %d does not close on exec", fd);
	close(fd);
}

static void undo_reserve(const union args *a)
{
	undo_fd(a->reserve.fd);
}

static void undo_watch(const union args *a)
{
	undo_fd(a->watch.fd);
}

#define AT(type, field) offsetof(struct pinion_##type, field)

static const struct call {
	const char *name;
	unsigned int cmd;
	size_t size;
	size_t least; /* the first version's size, where it was smaller */
	bool writes;  /* not with a read-only open */
	void (*make)(union args *a);
	void (*undo)(const union args *a);
	bool fd;	     /* makes one */
	uint32_t flags;	     /* the known ones */
	size_t reserved[10]; /* words that must be 0 */
} calls[] = {
	{ "INFO", PINION_IOC_INFO, sizeof(struct pinion_info), 120, false, make_info, NULL, false, 0, { AT(info, reserved) } },
	{ "DEV_ADD",
	  PINION_IOC_DEV_ADD,
	  sizeof(struct pinion_dev),
	  0,
	  true,
	  make_dev_add,
	  undo_dev_add,
	  false,
	  PINION_DEV_FLAGS,
	  { AT(dev, by), AT(dev, set), AT(dev, generation), AT(dev, generation) + 4, AT(dev, index), AT(dev, uid) } },
	{ "DEV_GET",
	  PINION_IOC_DEV_GET,
	  sizeof(struct pinion_dev),
	  0,
	  false,
	  make_dev_find,
	  NULL,
	  false,
	  0,
	  { AT(dev, set), AT(dev, uid) } },
	{ "DEV_GET of the next",
	  PINION_IOC_DEV_GET,
	  sizeof(struct pinion_dev),
	  0,
	  false,
	  make_dev_next,
	  NULL,
	  false,
	  0,
	  { AT(dev, set), AT(dev, uid), AT(dev, generation), AT(dev, generation) + 4 } },
	{ "DEV_SET",
	  PINION_IOC_DEV_SET,
	  sizeof(struct pinion_dev),
	  0,
	  true,
	  make_dev_set,
	  undo_dev_set,
	  false,
	  0,
	  { AT(dev, uid) } },
	{ "DEV_DEL",
	  PINION_IOC_DEV_DEL,
	  sizeof(struct pinion_dev_del),
	  0,
	  true,
	  make_dev_del,
	  undo_dev_del,
	  false,
	  PINION_DEL_FORCE,
	  { AT(dev_del, reserved) } },
	{ "ATTACH",
	  PINION_IOC_ATTACH,
	  sizeof(struct pinion_attach),
	  0,
	  true,
	  make_attach,
	  undo_attach,
	  false,
	  PINION_ATTACH_LANE | PINION_ATTACH_COMPLETED_FD,
	  { AT(attach, handle), AT(attach, reserved) } },
	{ "ATTACH to a buffer",
	  PINION_IOC_ATTACH,
	  sizeof(struct pinion_attach),
	  0,
	  true,
	  make_attach_fd,
	  undo_attach,
	  false,
	  PINION_ATTACH_LANE | PINION_ATTACH_COMPLETED_FD,
	  { AT(attach, handle), AT(attach, reserved) } },
	{ "DETACH",
	  PINION_IOC_DETACH,
	  sizeof(struct pinion_handle),
	  0,
	  true,
	  make_detach,
	  undo_detach,
	  false,
	  0,
	  { AT(handle, reserved), AT(handle, out_units), AT(handle, out_units) + 4 } },
	{ "RESET",
	  PINION_IOC_RESET,
	  sizeof(struct pinion_handle),
	  0,
	  true,
	  make_handle,
	  NULL,
	  false,
	  0,
	  { AT(handle, reserved), AT(handle, out_units), AT(handle, out_units) + 4 } },
	{ "ADD",
	  PINION_IOC_ADD,
	  sizeof(struct pinion_add),
	  0,
	  true,
	  make_add,
	  undo_add,
	  false,
	  0,
	  { AT(add, reserved), AT(add, out_parity), AT(add, reserved_out) } },
	{ "READ", PINION_IOC_READ, sizeof(struct pinion_read), 0, false, make_read, NULL, false, 0, { 0 } },
	{ "KICK",
	  PINION_IOC_KICK,
	  sizeof(struct pinion_handle),
	  0,
	  true,
	  make_handle,
	  NULL,
	  false,
	  0,
	  { AT(handle, reserved), AT(handle, out_units), AT(handle, out_units) + 4 } },
	{ "RESERVE",
	  PINION_IOC_RESERVE,
	  sizeof(struct pinion_reserve),
	  0,
	  true,
	  make_reserve,
	  undo_reserve,
	  true,
	  PINION_RESERVE_EXCLUSIVE,
	  { AT(reserve, fd) } },
	{ "CLAIMINFO",
	  PINION_IOC_CLAIMINFO,
	  sizeof(struct pinion_reserve),
	  0,
	  false,
	  make_claiminfo,
	  NULL,
	  false,
	  0,
	  { AT(reserve, index), AT(reserve, units), AT(reserve, generation), AT(reserve, bytes), AT(reserve, most_bytes),
	    AT(reserve, most_units) } },
	{ "WAIT", PINION_IOC_WAIT, sizeof(struct pinion_wait), 0, false, make_wait, NULL, false, 0, { AT(wait, reserved) } },
	{ "WATCH",
	  PINION_IOC_WATCH,
	  sizeof(struct pinion_watch),
	  0,
	  false,
	  make_watch,
	  undo_watch,
	  true,
	  0,
	  { AT(watch, reserved), AT(watch, reserved_out) } },
	{ "LIST of sessions",
	  PINION_IOC_LIST,
	  sizeof(struct pinion_list),
	  0,
	  false,
	  make_sessions,
	  NULL,
	  false,
	  ~0U,
	  { AT(list, reserved) } },
	{ "LIST of claims",
	  PINION_IOC_LIST,
	  sizeof(struct pinion_list),
	  0,
	  false,
	  make_claims,
	  NULL,
	  false,
	  ~0U,
	  { AT(list, reserved) } },
	{ "LIST of watches",
	  PINION_IOC_LIST,
	  sizeof(struct pinion_list),
	  0,
	  false,
	  make_watches,
	  NULL,
	  false,
	  ~0U,
	  { AT(list, reserved) } },
};

#define EACH_CALL(c) (const struct call *c = calls; c < calls + sizeof(calls) / sizeof(calls[0]); c++)

/* @arg: where a call that worked left its struct, of its first version's size at least. */
STATE void call_undo(const struct call *c, const void *arg)
{
	union args a = { 0 };

	if (!c->undo)
		return;
	memcpy(&a, arg, c->size);
	c->undo(&a);
}

/* False after a point that failed. */
STATE bool given_open(void)
{
	given.dev = dev_open(O_RDWR);
	given.read_only = dev_open(O_RDONLY);
	expect(given.dev, 0, "open");
	expect(given.read_only, 0, "open read-only");
	given.buffer = dev_alloc(given.dev, 2 * PAGE, 0);
	expect(given.buffer, 0, "ALLOC");
	expect(dev_add(given.dev, "given", &given.device), 0, "DEV_ADD");
	expect(dev_add(given.dev, "doomed", &given.doomed), 0, "DEV_ADD of the doomed");
	expect(dev_attach(given.dev, &given.device, 1000, &given.lane), 0, "ATTACH");
	expect(dev_attach(given.dev, &given.device, 10, &given.spare), 0, "ATTACH of the spare");
	given.claim = dev_reserve(given.dev, &given.device, PAGE, 1, 0);
	expect(given.claim, 0, "RESERVE");
	return point("start", "a device, lanes, a claim and a buffer");
}

STATE void given_close(void)
{
	close(given.claim);
	close(given.buffer);
	close(given.read_only);
	close(given.dev);
}

/* INFO of an open of its own: nothing of this user is left, nor of any device. */
STATE void nothing_left(void)
{
	int dev = dev_open(O_RDWR);
	struct pinion_info info;
	int devices;

	expect(dev_info(dev, &info), 0, "INFO");
	devices = devices_there(dev);
	if (info.user_devices || info.user_sessions || info.user_claims || info.user_watches || info.buffers || devices ||
	    rows_there(dev, PINION_LIST_SESSIONS) || rows_there(dev, PINION_LIST_RESERVATIONS) ||
	    rows_there(dev, PINION_LIST_WATCHES))
		wrong("%u devices (%d there), %u sessions, %u claims, %u watches, %llu buffers", info.user_devices, devices,
		      info.user_sessions, info.user_claims, info.user_watches, info.buffers);
	point("end", "nothing is left");
	close(dev);
}

/* Runs @body in a child as @uid (the group stays root's, which may open the device); what it finds wrong is wrong here. */
STATE void in_child(void (*body)(void), uid_t uid, const char *what)
{
	char why[sizeof(state_wrong)] = { 0 };
	int fds[2], status;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (uid && setresuid(uid, uid, uid))
			wrong("setresuid: %s", strerror(errno));
		body();
		if (write(fds[1], state_wrong, strlen(state_wrong)) < 0)
			_exit(3);
		_exit(!!*state_wrong);
	}
	close(fds[1]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) > 1) {
		wrong("%s: the child did not end well", what);
	} else if (WEXITSTATUS(status)) {
		if (read(fds[0], why, sizeof(why) - 1) < 0)
			why[0] = 0;
		wrong("%s: %s", what, why);
	}
	close(fds[0]);
}

#endif
