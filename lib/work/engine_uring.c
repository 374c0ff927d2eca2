/* SPDX-License-Identifier: MIT */
/*
 * The io_uring engine: a ring for each stream.
 *
 * Where the kernel counts (PINION_COUNT_CHAIN) each request is three entries. The last stays where it is in the ring until it has
 * run, so nothing is put in its place before; see has_room().
 */
#include "../advice.h"
#include "../deadline.h"
#include "../machine/ring.h"
#include "account.h"
#include "chain.h"
#include "stream.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So many times the entries that a chained stream can have in flight its ring has: then one slow request holds up no other. */
#define CHAIN_ROOM 8
/* The kernel's limit, IORING_MAX_ENTRIES. */
#define RING_MAX 32768u
/* How long the engine sleeps where there is no room in the ring for what would wake it. */
#define NO_ROOM_NS 1000000

/* What of a piece an entry is; in the low bits of the pointer that comes back with its completion. */
enum entry { ENTRY_IO, ENTRY_BEGIN, ENTRY_END, ENTRY_CANCEL, ENTRY_MASK = 3 };

struct engine {
	struct io_uring ring;
	struct ring_buffers *buffers; /* NULL: it shall register nothing */
	struct ring_files files;
	uint32_t ring_entries;
	uint32_t taken;	     /* entries so far */
	uint64_t wake_count; /* where the wake-up is read to */
	bool wake_armed;
	int refused; /* since a filter came over the process: what the kernel says to the ring, a number of errno */
};

static int explain(int err)
{
	if (ring_is_refused(err))
		return fail_advise(EOPNOTSUPP, pinion_advice_uring(err), NULL, "io_uring is refused here: %s",
				   strerrordesc_np(err));
	if (err == ENOMEM)
		return fail_advise(ENOMEM, PINION_ADVICE_URING_MEMLOCK, NULL,
				   "no memory for an io_uring ring: some kernels count it, and every buffer that the user has "
				   "registered, against "
				   "RLIMIT_MEMLOCK");
	return fail_errno(err, "setting up an io_uring ring");
}

/* Entries that may be prepared at once: each piece's, a cancel of it, and the wake-up. */
static uint32_t entries_wanted(const struct pinion_stream *s)
{
	uint32_t n = (s->opts.depth * (CHAIN_ENTRIES + 1) + 1) * CHAIN_ROOM;

	if (s->opts.count == PINION_COUNT_CHAIN)
		return n < RING_MAX ? n : RING_MAX;
	return 2 * s->opts.depth + 1;
}

static int uring_open(struct pinion_stream *s)
{
	struct engine *e = calloc(1, sizeof(*e));
	int ret;

	if (!e)
		return fail(ENOMEM, "no memory for a stream");
	ret = ring_open(entries_wanted(s), &e->ring);
	if (ret) {
		free(e);
		return explain(-ret);
	}
	ret = ring_enter(&e->ring);
	if (ret)
		ret = explain(-ret);
	else if (s->opts.registered != PINION_REGISTERED_NEVER)
		ret = ring_buffers_open(&e->ring, &s->mark, &e->buffers);
	if (ret) {
		io_uring_queue_exit(&e->ring);
		free(e);
		return ret;
	}
	ring_files_open(&e->files, e->ring.ring_fd);
	e->ring_entries = io_uring_sq_space_left(&e->ring);
	s->engine = e;
	return 0;
}

static void uring_close(struct pinion_stream *s)
{
	ring_buffers_close(s->engine->buffers);
	ring_files_close(&s->engine->files);
	io_uring_queue_exit(&s->engine->ring);
	free(s->engine);
}

/* ---- entries ------------------------------------------------------------------------------------------------------- */

/* Never more are prepared than there are, so there is one. */
static struct io_uring_sqe *take_entry(struct engine *e)
{
	e->taken++;
	return io_uring_get_sqe(&e->ring);
}

/* Whether @n entries more come in the place of no last entry of a chain that has not run. */
static bool has_room(const struct pinion_stream *s, uint32_t n)
{
	const struct engine *e = s->engine;

	if (s->opts.count != PINION_COUNT_CHAIN)
		return true;
	for (uint32_t i = 0; i < s->opts.depth; i++) {
		const struct piece *p = &s->piece[i];

		if (p->op && p->entries && p->in_place && e->taken + n - 1 - p->last >= e->ring_entries)
			return false;
	}
	return true;
}

static void send_poll(struct pinion_stream *s, struct piece *p)
{
	struct io_uring_sqe *sqe = take_entry(s->engine);

	io_uring_prep_poll_add(sqe, piece_fd(s, p), p->op->kind == OP_WRITE ? POLLOUT : POLLIN);
	io_uring_sqe_set_data(sqe, p);
	p->entries++;
}

/* Of what may wait for ever, as a pipe does, few requests are made, and more than the descriptor's look-up is in each. */
static int file_slot(struct pinion_stream *s, struct piece *p, int fd)
{
	struct stream_file *file = p->op->file;

	if (!s->engine->buffers || file->in_order)
		return -1;
	return ring_files_find(&s->engine->files, p->direct ? &file->direct_place : &file->place, fd);
}

static void send_io(struct pinion_stream *s, struct piece *p, unsigned int flags)
{
	struct io_uring_sqe *sqe = take_entry(s->engine);
	bool reading = p->op->kind == OP_READ, registered = p->direct && !*p->unregistered;
	int op = reading ? IORING_OP_READ : IORING_OP_WRITE, fd = piece_fd(s, p), slot = file_slot(s, p, fd);

	if (registered)
		op = reading ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
	io_uring_prep_rw(op, sqe, fd, registered ? p->bytes.addr : p->addr, p->len, p->pos);
	sqe->buf_index = registered ? p->bytes.slot : 0;
	io_uring_sqe_set_data(sqe, p);
	sqe->flags |= flags;
	if (slot >= 0) {
		sqe->fd = slot;
		sqe->flags |= IOSQE_FIXED_FILE;
	}
	p->entries++;
}

static void send_count(struct pinion_stream *s, struct piece *p, enum entry entry, const struct chain_lane *lane)
{
	struct io_uring_sqe *sqe = take_entry(s->engine);

	if (entry == ENTRY_BEGIN)
		chain_begin(sqe, lane, p->len);
	else
		chain_end(sqe, lane, p->len, !p->in_place);
	sqe->user_data = (uintptr_t)p | entry;
	p->entries++;
}

static void send_chain(struct pinion_stream *s, struct piece *p, const struct chain_lane *lane)
{
	p->begin_res = 0;
	/* What may not come for hours must not keep a place in the ring. */
	p->in_place = !p->op->file->in_order;
	p->last = s->engine->taken + CHAIN_ENTRIES - 1;
	send_count(s, p, ENTRY_BEGIN, lane);
	send_io(s, p, IOSQE_IO_HARDLINK);
	send_count(s, p, ENTRY_END, lane);
}

/*
 * Whether no request that names a registered buffer has yet to begin: those that the kernel has been given have begun, but
 * for what follows another in a chain.
 */
static bool all_begun(struct pinion_stream *s)
{
	struct io_uring *ring = &s->engine->ring;

	for (uint32_t i = 0; s->opts.count == PINION_COUNT_CHAIN && i < s->opts.depth; i++)
		if (s->piece[i].op && s->piece[i].entries)
			return false;
	io_uring_submit(ring);
	return !io_uring_sq_ready(ring);
}

/*
 * The piece as registered memory: the kernel need not find and hold each page of it then. What is copied through the page
 * cache has no such need.
 */
static void find_registered(struct pinion_stream *s, struct piece *p)
{
	const struct stream_span *span = p->op->kind == OP_READ ? &p->op->to : &p->op->from;
	struct ring_buffers *t = s->engine->buffers;

	p->unregistered = "asked for";
	if (!t)
		return;
	if (ring_buffers_worn(t) && all_begun(s))
		ring_buffers_renew(t);
	p->unregistered = ring_buffers_find(t, span->buf, span->off + (p->addr - span->addr), p->len, &p->bytes);
}

static int uring_start(struct pinion_stream *s, struct piece *p)
{
	bool chained = s->opts.count == PINION_COUNT_CHAIN && p->op->kind != OP_WATCH && !p->polled;
	struct chain_lane lane;
	int ret = 0;

	p->entries = 0;
	p->begin_res = 0;
	p->in_place = false;
	if (s->engine->refused)
		return explain(s->engine->refused);
	p->unsent = !has_room(s, chained ? CHAIN_ENTRIES : 1);
	if (p->unsent)
		return 0;
	if (chained)
		ret = chain_lane(s->dev, &lane);
	if (ret)
		return ret;
	if (p->direct)
		find_registered(s, p);
	if (chained)
		send_chain(s, p, &lane);
	else if (p->polled || p->op->kind == OP_WATCH)
		send_poll(s, p);
	else
		send_io(s, p, 0);
	return 0;
}

/* Or the piece fails. */
static void restart(struct pinion_stream *s, struct piece *p)
{
	int ret = uring_start(s, p);

	if (ret)
		schedule_failed(s, p, ret);
}

static void send_waiting(struct pinion_stream *s)
{
	for (uint32_t i = 0; s->opts.count == PINION_COUNT_CHAIN && i < s->opts.depth; i++) {
		struct piece *p = &s->piece[i];

		if (p->op && p->unsent)
			restart(s, p);
	}
}

/* A read or write that the kernel is in the middle of may end by itself all the same. */
static bool uring_cancel(struct pinion_stream *s, struct piece *p)
{
	struct io_uring_sqe *sqe;

	if (p->unsent) {
		p->unsent = p->polled = false;
		schedule_done(s, p, -ECANCELED);
		return true;
	}
	if (!has_room(s, 1))
		return false;
	sqe = take_entry(s->engine);
	io_uring_prep_cancel64(sqe, (uintptr_t)p | ENTRY_IO, 0);
	sqe->user_data = ENTRY_CANCEL;
	return true;
}

/* ---- completions --------------------------------------------------------------------------------------------------- */

/* The I/O itself, or the poll before it, has been answered for. A cancel that came between the two is not sent again. */
static void io_answered(struct pinion_stream *s, struct piece *p)
{
	bool was_polled = p->polled;

	/* A descriptor with O_NONBLOCK is waited for, on whatever kernel. */
	p->polled = !was_polled && p->res == -EAGAIN && p->op->file && p->op->file->in_order;
	if (!p->polled && (!was_polled || p->res < 0))
		schedule_done(s, p, p->res);
	else if (p->op->err)
		schedule_done(s, p, -ECANCELED);
	else
		restart(s, p);
}

/* An entry of @p has completed. */
static void entry_done(struct pinion_stream *s, struct piece *p, enum entry entry, int res)
{
	if (entry == ENTRY_IO)
		p->res = res;
	else if (entry == ENTRY_BEGIN)
		p->begin_res = res;
	if (--p->entries)
		return;
	/* That the end did not count means that the device went, and the unit with it. */
	if (p->begin_res < 0)
		schedule_failed(s, p,
				fail_errno(-p->begin_res, "counting %u bytes on device '%s' in the kernel", p->len, s->dev->key));
	else
		io_answered(s, p);
}

static void reap(struct pinion_stream *s)
{
	struct engine *e = s->engine;
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&e->ring, &cqe)) {
		struct piece *p = (struct piece *)(uintptr_t)(cqe->user_data & ~(uint64_t)ENTRY_MASK);
		enum entry entry = cqe->user_data & ENTRY_MASK;
		int res = cqe->res;

		io_uring_cqe_seen(&e->ring, cqe);
		if (p)
			entry_done(s, p, entry, res);
		else if (entry == ENTRY_IO)
			e->wake_armed = false;
	}
}

static void arm_wake(struct pinion_stream *s)
{
	struct engine *e = s->engine;
	struct io_uring_sqe *sqe;

	if (e->wake_armed || !has_room(s, 1))
		return;
	sqe = take_entry(e);
	io_uring_prep_read(sqe, s->wake_fd, &e->wake_count, sizeof(e->wake_count), 0);
	io_uring_sqe_set_data(sqe, NULL);
	e->wake_armed = true;
}

/* Hands on what was prepared and sleeps. What the ring says. */
static int sleep_until(struct engine *e, int64_t deadline_ns)
{
	int64_t left = deadline_ns == PINION_FOREVER ? PINION_FOREVER : deadline_ns <= 0 ? 0 : deadline_ns - deadline_now();
	struct __kernel_timespec limit;
	struct io_uring_cqe *cqe;

	if (left == PINION_FOREVER && e->wake_armed)
		return io_uring_submit_and_wait(&e->ring, 1);
	left = !e->wake_armed && left > NO_ROOM_NS ? NO_ROOM_NS : left < 0 ? 0 : left;
	limit.tv_sec = left / 1000000000;
	limit.tv_nsec = left % 1000000000;
	return io_uring_submit_and_wait_timeout(&e->ring, &cqe, 1, &limit, NULL);
}

/* ---- a ring that is refused when it is in use ---------------------------------------------------------------------- */

/* The last entry that the kernel was not given, taken back, in *@data; false: there is none. */
static bool take_back(struct engine *e, uint64_t *data)
{
	struct io_uring_sq *sq = &e->ring.sq;

	if (sq->sqe_tail == io_uring_smp_load_acquire(sq->khead))
		return false;
	*data = sq->sqes[--sq->sqe_tail & *sq->kring_mask].user_data;
	sq->sqe_head = sq->sqe_tail;
	io_uring_smp_store_release(sq->ktail, sq->sqe_tail);
	return true;
}

/* Fails what the kernel was not given. Whether there was anything. */
static bool fail_unsent(struct pinion_stream *s)
{
	bool any = false;
	uint64_t data;

	for (; take_back(s->engine, &data); any = true) {
		struct piece *p = (struct piece *)(uintptr_t)(data & ~(uint64_t)ENTRY_MASK);

		if (p && !--p->entries)
			schedule_failed(s, p, explain(s->engine->refused));
		else if (!p && data == ENTRY_IO)
			s->engine->wake_armed = false;
	}
	return any;
}

/* As sleep_until(). What the kernel was given before ends as ever, and shows on the ring's descriptor. */
static void sleep_outside(struct pinion_stream *s, int64_t deadline_ns)
{
	struct engine *e = s->engine;
	struct pollfd p[] = { { .fd = e->ring.ring_fd, .events = POLLIN }, { .fd = s->wake_fd, .events = POLLIN } };
	struct timespec limit = deadline_timespec(deadline_ns <= 0 ? 0 : deadline_ns - deadline_now());
	uint64_t count;

	/* A read of the wake-up that the kernel has is what takes it. */
	if (ppoll(p, e->wake_armed ? 1 : 2, deadline_ns == PINION_FOREVER ? NULL : &limit, NULL) > 0 && p[1].revents)
		(void)!read(s->wake_fd, &count, sizeof(count));
}

static void uring_wait(struct pinion_stream *s, bool idle, int64_t deadline_ns)
{
	struct engine *e = s->engine;
	int ret = 0;

	send_waiting(s);
	if (!e->refused) {
		arm_wake(s);
		ret = idle ? sleep_until(e, deadline_ns) : io_uring_submit(&e->ring);
	}
	if (ret < 0 && ring_is_refused(-ret))
		e->refused = -ret;
	if (e->refused && !fail_unsent(s) && idle)
		sleep_outside(s, deadline_ns);
	reap(s);
}

const struct engine_ops engine_uring = {
	.name = "io_uring",
	.open = uring_open,
	.close = uring_close,
	.start = uring_start,
	.cancel = uring_cancel,
	.wait = uring_wait,
};
