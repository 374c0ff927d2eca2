/* SPDX-License-Identifier: MIT */
/*
 * The io_uring engine: one thread and one ring per stream. Reads are cut into pieces, `depth` of them in flight; a read
 * may start while the one before it is still in flight if their destinations do not touch. A call runs on this thread
 * when everything before it is done. Operations retire in order.
 */
#include "../machine/ring.h"
#include "stream.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* So far ahead of the first unfinished operation the engine looks for reads to start. */
#define LOOK_AHEAD 32
/* Shorter pieces go through the page cache: there is nothing to win past it. */
#define DIRECT_MIN 65536u

struct piece {
	struct stream_op *op; /* NULL: free */
	char *addr;
	uint64_t pos;
	uint32_t len;
	bool direct;
};

struct engine {
	struct io_uring ring;
	int wake_fd;
	uint64_t wake_count; /* where the wake-up is read to */
	bool wake_armed;
	bool sleeping; /* atomic: a submitter must write to wake_fd */
	uint32_t in_flight;
	struct piece *piece; /* opts.depth of them */
};

static int explain(int err)
{
	if (err == EPERM)
		return fail(EOPNOTSUPP, "io_uring is refused here (EPERM): by a seccomp profile, or by sysctl kernel.io_uring_disabled");
	if (err == ENOSYS)
		return fail(EOPNOTSUPP, "this kernel has no io_uring (ENOSYS), or a seccomp profile hides it");
	if (err == ENOMEM)
		return fail(ENOMEM, "no memory for an io_uring ring: some kernels count it, and every buffer that the user has registered, against "
				    "RLIMIT_MEMLOCK (ulimit -l)");
	return fail_errno(err, "setting up an io_uring ring");
}

int engine_open(struct pinion_stream *s)
{
	struct engine *e = calloc(1, sizeof(*e));
	int ret;

	if (!e)
		return fail(ENOMEM, "no memory for a stream");
	e->piece = calloc(s->opts.depth, sizeof(*e->piece));
	if (!e->piece) {
		ret = fail(ENOMEM, "no memory for a stream");
		goto err_free;
	}
	e->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (e->wake_fd < 0) {
		ret = fail_errno(errno, "making an eventfd");
		goto err_piece;
	}
	ret = ring_open(s->opts.depth + 1, &e->ring);
	if (ret) {
		ret = explain(-ret);
		goto err_wake;
	}
	s->engine = e;
	return 0;

err_wake:
	close(e->wake_fd);
err_piece:
	free(e->piece);
err_free:
	free(e);
	return ret;
}

void engine_close(struct pinion_stream *s)
{
	struct engine *e = s->engine;

	io_uring_queue_exit(&e->ring);
	close(e->wake_fd);
	free(e->piece);
	free(e);
}

void engine_wake(struct pinion_stream *s)
{
	uint64_t one = 1;

	/* Pairs with the fence in sleep_for_work(): either the engine sees the operation or we see that it sleeps. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&s->engine->sleeping, __ATOMIC_RELAXED))
		while (write(s->engine->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
			;
}

/* ---- pieces -------------------------------------------------------------------------------------------------------- */

static struct piece *free_piece(struct pinion_stream *s)
{
	for (uint32_t i = 0; i < s->opts.depth; i++)
		if (!s->engine->piece[i].op)
			return &s->engine->piece[i];
	return NULL;
}

/* A piece goes through the page cache, for this reason; the longest piece's is the one that is told. */
static void buffered(struct pinion_stream *s, struct piece *p, const char *why)
{
	p->direct = false;
	pthread_mutex_lock(&s->lock);
	if (p->len >= s->why_len) {
		s->why_len = p->len;
		s->stats.buffered_why = why;
	}
	pthread_mutex_unlock(&s->lock);
}

/*
 * Cuts @p, which spans all that is wanted, to what one request can do, and decides how. Direct requests begin and end on
 * blocks and need a fitting address; the ends that do not go through the page cache.
 */
static void shape_piece(struct pinion_stream *s, struct piece *p)
{
	struct stream_file *file = p->op->file;
	uint32_t head = p->pos % file->block, least = s->opts.io == PINION_IO_DIRECT ? file->block : DIRECT_MIN;

	if (s->opts.io == PINION_IO_BUFFERED) {
		buffered(s, p, "asked for");
	} else if (file->direct_fd < 0) {
		buffered(s, p, file->why);
	} else if (s->opts.io == PINION_IO_AUTO && file_is_cached(file, p->pos, p->len)) {
		buffered(s, p, "the page cache holds it");
	} else if (p->len < least || p->len < file->block) {
		buffered(s, p, "shorter than a direct read pays for, or the unaligned end of a file");
	} else if (head) {
		p->len = p->len < file->block - head ? p->len : file->block - head;
		buffered(s, p, "the range does not begin on a block of the file");
	} else if ((uintptr_t)p->addr % file->memory_align) {
		buffered(s, p, "the destination is not aligned as the file in its block");
	} else {
		p->len -= p->len % file->block;
		p->direct = true;
	}
}

static int piece_fd(const struct pinion_stream *s, const struct piece *p)
{
	const struct stream_file *file = p->op->file;

	if (p->direct)
		return file->direct_fd;
	return s->opts.io == PINION_IO_BUFFERED || file->cached_fd < 0 ? file->fd : file->cached_fd;
}

static void send_piece(struct pinion_stream *s, struct piece *p)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s->engine->ring); /* depth + 1 of them: there is one */

	io_uring_prep_read(sqe, piece_fd(s, p), p->addr, p->len, p->pos);
	io_uring_sqe_set_data(sqe, p);
	pthread_mutex_lock(&s->lock);
	s->stats.reads++;
	pthread_mutex_unlock(&s->lock);
}

/* Starts as much of @op as there are free pieces; true when all of it is on its way. */
static bool issue_read(struct pinion_stream *s, struct stream_op *op)
{
	while (op->issued < op->len && !op->err) {
		struct piece *p = free_piece(s);
		uint64_t left = op->len - op->issued, to_edge;

		/* Two requests to a pipe would share out what it holds as it comes. */
		if (!p || (op->file->in_order && op->in_flight))
			return false;
		p->op = op;
		p->pos = op->pos + op->issued;
		p->addr = op->addr + op->issued;
		to_edge = s->opts.piece - p->pos % s->opts.piece;
		p->len = left < to_edge ? left : to_edge;
		shape_piece(s, p);
		send_piece(s, p);
		op->issued += p->len;
		op->in_flight++;
		s->engine->in_flight++;
	}
	return true;
}

static void finish_piece(struct pinion_stream *s, struct piece *p)
{
	p->op->in_flight--;
	s->engine->in_flight--;
	p->op = NULL;
}

static void fail_piece(struct pinion_stream *s, struct piece *p, int err)
{
	struct stream_op *op = p->op;

	if (!op->err) {
		if (err == ENODATA)
			op->err = fail(ENODATA, "the file ends at %llu, the read wants bytes up to %llu",
				       (unsigned long long)file_end(op->file, p->pos), (unsigned long long)(op->pos + op->len));
		else
			op->err = fail_errno(err, "reading %u bytes at offset %llu", p->len, (unsigned long long)p->pos);
		sentence_get(op->sentence);
	}
	finish_piece(s, p);
}

/* The kernel has answered for @p. */
static void piece_done(struct pinion_stream *s, struct piece *p, int res)
{
	/* Of anything but a regular file EAGAIN means that the caller wants no waiting. */
	if (res == -EINTR || (res == -EAGAIN && p->op->file->regular)) {
		send_piece(s, p);
		return;
	}
	if (res == -EINVAL && p->direct) {
		/* The file system said it could and then could not, or only for other lengths. */
		buffered(s, p, "the file system refused a direct read");
		send_piece(s, p);
		return;
	}
	if (res <= 0) {
		fail_piece(s, p, res ? -res : ENODATA);
		return;
	}
	pthread_mutex_lock(&s->lock);
	*(p->direct ? &s->stats.direct_bytes : &s->stats.buffered_bytes) += res;
	s->stats.short_reads += (uint32_t)res < p->len;
	pthread_mutex_unlock(&s->lock);
	p->pos += res;
	p->addr += res;
	p->len -= res;
	if (p->len == 0) {
		finish_piece(s, p);
		return;
	}
	/* A direct read that was cut off its block goes on through the page cache. */
	if (p->direct && (p->pos % p->op->file->block || p->len % p->op->file->block))
		p->direct = false;
	send_piece(s, p);
}

/* ---- the queue ----------------------------------------------------------------------------------------------------- */

static bool touches(const struct stream_op *a, const struct stream_op *b)
{
	return a->buf == b->buf && a->off < b->off + b->len && b->off < a->off + a->len;
}

/* Whether read @op may start while those from @head up to it are unfinished. */
static bool may_overtake(const struct stream_op *head, const struct stream_op *op)
{
	/* Another descriptor may lead to the same pipe, so no read of one overtakes anything. */
	if (head != op && op->file->in_order)
		return false;
	for (; head != op; head = head->next)
		if (head->kind != OP_READ || touches(head, op))
			return false;
	return true;
}

/* The next operation, or NULL; the queue grows at its end while the engine works. */
static struct stream_op *next_of(struct pinion_stream *s, struct stream_op *op)
{
	pthread_mutex_lock(&s->lock);
	op = op ? op->next : s->head;
	pthread_mutex_unlock(&s->lock);
	return op;
}

static void issue_reads(struct pinion_stream *s, struct stream_op *head)
{
	struct stream_op *op = head;

	for (unsigned int i = 0; op && i < LOOK_AHEAD; i++) {
		if (op->kind != OP_READ || !may_overtake(head, op) || !issue_read(s, op))
			return;
		op = next_of(s, op);
	}
}

static void run_call(struct stream_op *op)
{
	op->called = true;
	sentence_set("");
	op->err = op->fn(op->arg);
	if (op->err) {
		sentence_get(op->sentence);
		if (!*op->sentence)
			fail_errno(-op->err, "the function that was called"), sentence_get(op->sentence);
	}
}

static bool is_done(const struct stream_op *op)
{
	if (op->kind == OP_CALL)
		return op->called;
	return op->in_flight == 0 && (op->issued == op->len || op->err);
}

/* Retires what is done and starts what can be; false when there is nothing left to do but wait. */
static bool advance(struct pinion_stream *s)
{
	struct stream_op *head = next_of(s, NULL);

	if (!head)
		return false;
	if (s->failed && head->in_flight == 0 && !is_done(head)) {
		head->err = -ECANCELED;
		stream_retire(s, head);
		return true;
	}
	if (head->kind == OP_CALL && !s->failed)
		run_call(head);
	else if (!s->failed)
		issue_reads(s, head);
	if (!is_done(head))
		return false;
	stream_retire(s, head);
	return true;
}

/* ---- the thread ---------------------------------------------------------------------------------------------------- */

static void arm_wake(struct engine *e)
{
	struct io_uring_sqe *sqe;

	if (e->wake_armed)
		return;
	sqe = io_uring_get_sqe(&e->ring);
	io_uring_prep_read(sqe, e->wake_fd, &e->wake_count, sizeof(e->wake_count), 0);
	io_uring_sqe_set_data(sqe, NULL);
	e->wake_armed = true;
}

static void reap(struct pinion_stream *s)
{
	struct engine *e = s->engine;
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(&e->ring, &cqe)) {
		struct piece *p = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cqe_seen(&e->ring, cqe);
		if (p)
			piece_done(s, p, res);
		else
			e->wake_armed = false;
	}
}

/* Hands what was prepared to the kernel and sleeps until something completes or something is submitted. */
static void sleep_for_work(struct pinion_stream *s, uint64_t seen)
{
	struct engine *e = s->engine;
	bool idle;

	arm_wake(e);
	__atomic_store_n(&e->sleeping, true, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	pthread_mutex_lock(&s->lock);
	/* By number: the memory of an operation that was seen and is done may be that of the next one. */
	idle = s->submitted == seen && !(s->stop && !s->head);
	pthread_mutex_unlock(&s->lock);
	if (idle)
		io_uring_submit_and_wait(&e->ring, 1);
	else
		io_uring_submit(&e->ring);
	__atomic_store_n(&e->sleeping, false, __ATOMIC_RELAXED);
}

void *engine_main(void *stream)
{
	struct pinion_stream *s = stream;
	struct engine *e = s->engine;
	bool stop = false;

	while (!stop || e->in_flight) {
		uint64_t seen;

		pthread_mutex_lock(&s->lock);
		seen = s->submitted;
		stop = s->stop && !s->head;
		pthread_mutex_unlock(&s->lock);
		while (advance(s))
			;
		if (!stop || e->in_flight)
			sleep_for_work(s, seen);
		reap(s);
	}
	return NULL;
}
