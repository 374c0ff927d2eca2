/* SPDX-License-Identifier: MIT */
/*
 * The thread engine, where io_uring is refused: workers of the pool read and write files. What may wait for as long as it likes
 * (a pipe, a socket, a watch) takes no worker: the stream's own thread polls it while it sleeps, and then asks without waiting.
 */
#include "../deadline.h"
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

/* A write of no more to a pipe that polls writable does not wait; pipe(7). */
#define NO_WAIT_BYTES 4096

struct engine {
	struct pollfd *poll; /* the wake-up's, and one for each piece */
};

static int threads_open(struct pinion_stream *s)
{
	struct engine *e = calloc(1, sizeof(*e));

	if (!e)
		return fail(ENOMEM, "no memory for a stream");
	e->poll = calloc(s->opts.depth + 1, sizeof(*e->poll));
	if (!e->poll) {
		free(e);
		return fail(ENOMEM, "no memory for a stream");
	}
	e->poll[0] = (struct pollfd){ .fd = s->wake_fd, .events = POLLIN };
	s->engine = e;
	return 0;
}

static void threads_close(struct pinion_stream *s)
{
	free(s->engine->poll);
	free(s->engine);
}

/* ---- workers ------------------------------------------------------------------------------------------------------- */

static int move(const struct pinion_stream *s, const struct piece *p)
{
	int fd = piece_fd(s, p);
	ssize_t n = p->op->kind == OP_READ ? pread(fd, p->addr, p->len, p->pos) : pwrite(fd, p->addr, p->len, p->pos);

	return n < 0 ? -errno : n;
}

static void run_io(struct pool_job *job)
{
	struct piece *p = (struct piece *)((char *)job - offsetof(struct piece, job));

	schedule_finished(p, move(p->stream, p));
}

/* ---- what is polled ------------------------------------------------------------------------------------------------ */

static ssize_t vector_at(const struct piece *p, int fd, const struct iovec *iov, off_t pos, int flags)
{
	return p->op->kind == OP_READ ? preadv2(fd, iov, 1, pos, flags) : pwritev2(fd, iov, 1, pos, flags);
}

/* At the position, or as it comes where the file has none: then -1 stands for no position. */
static ssize_t vector(const struct piece *p, int fd, const struct iovec *iov, int flags)
{
	ssize_t n = vector_at(p, fd, iov, p->pos, flags);

	return n < 0 && errno == ESPIPE ? vector_at(p, fd, iov, -1, flags) : n;
}

/* Without waiting: -EAGAIN when there is nothing. Files that know no such question do not wait for what poll() promised. */
static int move_now(const struct pinion_stream *s, const struct piece *p)
{
	struct iovec iov = { p->addr, p->len };
	int fd = piece_fd(s, p);
	ssize_t n = vector(p, fd, &iov, RWF_NOWAIT);

	if (n < 0 && (errno == EOPNOTSUPP || errno == EINVAL)) {
		iov.iov_len = p->op->kind == OP_WRITE && p->len > NO_WAIT_BYTES ? NO_WAIT_BYTES : p->len;
		n = vector(p, fd, &iov, 0);
	}
	return n < 0 ? -errno : n;
}

/* It polls ready, or fails. */
static void try_polled(struct pinion_stream *s, struct piece *p)
{
	int res = p->op->kind == OP_WATCH ? 1 : move_now(s, p);

	/* Somebody else took what there was. */
	if (res == -EAGAIN)
		return;
	p->polled = false;
	schedule_done(s, p, res);
}

static int poll_set(struct pinion_stream *s)
{
	struct engine *e = s->engine;
	int n = 1;

	for (uint32_t i = 0; i < s->opts.depth; i++) {
		struct piece *p = &s->piece[i];

		if (p->op && p->polled)
			e->poll[n++] =
				(struct pollfd){ .fd = piece_fd(s, p), .events = p->op->kind == OP_WRITE ? POLLOUT : POLLIN };
	}
	return n;
}

/* In the order of poll_set(). Pieces that begin meanwhile are of descriptors that were not polled yet. */
static void take_polled(struct pinion_stream *s, int n)
{
	struct engine *e = s->engine;
	int at = 1;

	for (uint32_t i = 0; i < s->opts.depth && at < n; i++) {
		struct piece *p = &s->piece[i];

		if (!p->op || !p->polled || piece_fd(s, p) != e->poll[at].fd)
			continue;
		if (e->poll[at++].revents)
			try_polled(s, p);
	}
}

/* ---- the engine ---------------------------------------------------------------------------------------------------- */

static int threads_start(struct pinion_stream *s, struct piece *p)
{
	p->polled = p->op->kind == OP_WATCH || (p->op->file->in_order && !p->op->file->append);
	if (p->polled)
		return 0;
	p->stream = s;
	p->unregistered = "the engine is threads, which register nothing";
	p->job.run = run_io;
	return pool_submit(&p->job);
}

static bool threads_cancel(struct pinion_stream *s, struct piece *p)
{
	bool mine = p->polled || pool_withdraw(&p->job);

	p->polled = false;
	if (mine)
		schedule_done(s, p, -ECANCELED);
	return true;
}

static void take_wake(struct pinion_stream *s)
{
	uint64_t count;

	while (read(s->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

static void threads_wait(struct pinion_stream *s, bool idle, int64_t deadline_ns)
{
	struct engine *e = s->engine;
	bool for_ever = idle && deadline_ns == PINION_FOREVER;
	int64_t left = !idle || deadline_ns <= 0 ? 0 : deadline_ns - deadline_now();
	struct timespec limit = deadline_timespec(left);
	int n = poll_set(s);

	if (idle || n > 1) {
		int ready = ppoll(e->poll, n, for_ever ? NULL : &limit, NULL);

		if (ready > 0 && e->poll[0].revents)
			take_wake(s);
		if (ready > 0)
			take_polled(s, n);
	}
}

const struct engine_ops engine_threads = {
	.name = "threads",
	.open = threads_open,
	.close = threads_close,
	.start = threads_start,
	.cancel = threads_cancel,
	.wait = threads_wait,
};
