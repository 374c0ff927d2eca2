/* SPDX-License-Identifier: MIT */
/*
 * schedule: what a stream does next, on a thread of its own. What moves bytes is cut into pieces, `depth` of them in flight; it
 * may start while what is before it is unfinished, if they touch neither the same memory nor the same bytes of a file with a
 * write among them. All else runs when everything before it is done. Operations retire in order.
 */
#include "../deadline.h"
#include "account.h"
#include "fence.h"
#include "stream.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* So far ahead of the first unfinished operation it looks for more to start. */
#define LOOK_AHEAD 32
/* Shorter pieces go through the page cache: there is nothing to win past it. */
#define DIRECT_MIN 65536u
/* So many bytes are copied or filled at once, without a worker, whose wake-up takes as long. */
#define INLINE_MAX 65536u

/* ---- pieces -------------------------------------------------------------------------------------------------------- */

static struct piece *free_piece(struct pinion_stream *s)
{
	for (uint32_t i = 0; i < s->opts.depth; i++)
		if (!s->piece[i].op)
			return &s->piece[i];
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
static void shape_io(struct pinion_stream *s, struct piece *p)
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
		buffered(s, p, "shorter than a direct request pays for, or the unaligned end of a file");
	} else if (head) {
		p->len = p->len < file->block - head ? p->len : file->block - head;
		buffered(s, p, "the range does not begin on a block of the file");
	} else if ((uintptr_t)p->addr % file->memory_align) {
		buffered(s, p, "the memory is not aligned as the file in its block");
	} else {
		p->len -= p->len % file->block;
		p->direct = true;
	}
}

int piece_fd(const struct pinion_stream *s, const struct piece *p)
{
	const struct stream_file *file = p->op->file;

	if (p->op->kind == OP_WATCH)
		return p->op->watch;
	if (p->direct)
		return file->direct_fd;
	return s->opts.io == PINION_IO_BUFFERED || file->cached_fd < 0 ? file->fd : file->cached_fd;
}

static void take_piece(struct pinion_stream *s, struct piece *p, struct stream_op *op)
{
	p->op = op;
	p->cancelled = p->pooled = p->direct = p->polled = p->unsent = false;
	op->in_flight++;
	s->in_flight++;
}

static void give_piece(struct pinion_stream *s, struct piece *p)
{
	p->op->in_flight--;
	s->in_flight--;
	p->op = NULL;
}

/* The sentence is this thread's. */
static void fail_op(struct stream_op *op, int ret)
{
	if (op->err)
		return;
	op->err = ret;
	sentence_get(op->sentence);
}

void schedule_failed(struct pinion_stream *s, struct piece *p, int ret)
{
	fail_op(p->op, ret);
	give_piece(s, p);
}

static void start_io(struct pinion_stream *s, struct piece *p)
{
	int ret;

	pthread_mutex_lock(&s->lock);
	if (p->op->kind != OP_WATCH)
		(*(p->op->kind == OP_READ ? &s->stats.reads : &s->stats.writes))++;
	pthread_mutex_unlock(&s->lock);
	ret = s->ops->start(s, p);
	if (ret)
		schedule_failed(s, p, ret);
}

/* ---- what workers do ----------------------------------------------------------------------------------------------- */

static int call_fn(struct stream_op *op)
{
	int err;

	sentence_set("");
	err = op->fn(op->arg);
	if (!err)
		return 0;
	sentence_get(op->sentence);
	if (!*op->sentence)
		fail_errno(-err, "the function that was called"), sentence_get(op->sentence);
	return err;
}

static int move_bytes(const struct stream_op *op, const struct piece *p)
{
	if (op->kind == OP_COPY)
		memcpy(p->addr, op->from.addr + (p->addr - op->to.addr), p->len);
	else
		memset(p->addr, op->byte, p->len);
	return p->len;
}

/* When the lock is given up the stream may be freed, so the wake-up is before that. */
void schedule_finished(struct piece *p, int res)
{
	struct pinion_stream *s = p->stream;

	p->res = res;
	pthread_mutex_lock(&s->lock);
	p->next = s->finished;
	s->finished = p;
	stream_event(s);
	pthread_mutex_unlock(&s->lock);
}

static void run_pooled(struct pool_job *job)
{
	struct piece *p = (struct piece *)((char *)job - offsetof(struct piece, job));

	schedule_finished(p, p->op->kind == OP_JOB ? call_fn(p->op) : move_bytes(p->op, p));
}

static void start_pooled(struct pinion_stream *s, struct piece *p)
{
	int ret;

	p->pooled = true;
	p->stream = s;
	p->job.run = run_pooled;
	ret = pool_submit(&p->job);
	if (ret)
		schedule_failed(s, p, ret);
}

/* ---- the ends of pieces -------------------------------------------------------------------------------------------- */

static void fail_io(struct pinion_stream *s, struct piece *p, int err)
{
	const char *doing = p->op->kind == OP_READ ? "reading" : "writing";

	if (p->op->err)
		give_piece(s, p);
	else if (err == ENODATA)
		schedule_failed(s, p,
				fail(ENODATA, "the file ends at %llu, the read wants bytes up to %llu",
				     (unsigned long long)file_end(p->op->file, p->pos),
				     (unsigned long long)(p->op->pos + p->op->len)));
	else
		schedule_failed(s, p, fail_errno(err, "%s %u bytes at offset %llu", doing, p->len, (unsigned long long)p->pos));
}

static void watch_done(struct pinion_stream *s, struct piece *p, int res)
{
	struct stream_op *op = p->op;
	int ret = res < 0 ? fail_errno(-res, "waiting for a device") : op->watch_take(op->watch, op->lost);

	if (ret)
		fail_op(op, ret);
	give_piece(s, p);
}

/* Under lock. */
static void count_registered(struct pinion_stream *s, const struct piece *p, uint32_t bytes)
{
	if (!*p->unregistered) {
		s->stats.registered_bytes += bytes;
	} else if (bytes >= s->unregistered_len) {
		s->unregistered_len = bytes;
		s->stats.unregistered_why = p->unregistered;
	}
}

static void io_went_on(struct pinion_stream *s, struct piece *p, uint32_t bytes)
{
	pthread_mutex_lock(&s->lock);
	*(p->direct ? &s->stats.direct_bytes : &s->stats.buffered_bytes) += bytes;
	s->stats.short_reads += bytes < p->len;
	if (p->direct)
		count_registered(s, p, bytes);
	pthread_mutex_unlock(&s->lock);
	p->pos += bytes;
	p->addr += bytes;
	p->len -= bytes;
}

static void io_done(struct pinion_stream *s, struct piece *p, int res)
{
	/* A cancel that was held up may find the piece's next request. */
	bool again = res == -EINTR || (res == -EAGAIN && p->op->file->regular) || (res == -ECANCELED && !p->cancelled);

	if (res == -EINVAL && p->direct) {
		/* The file system said it could and then could not, or only for other lengths. */
		buffered(s, p, "the file system refused a direct request");
		again = true;
	}
	if (!again && res <= 0) {
		fail_io(s, p, res ? -res : p->op->kind == OP_READ ? ENODATA : EIO);
		return;
	}
	if (!again)
		io_went_on(s, p, res);
	/* What was asked to end, or failed elsewhere, is not gone on with. */
	if (p->len == 0 || p->op->err) {
		give_piece(s, p);
		return;
	}
	if (p->direct && (p->pos % p->op->file->block || p->len % p->op->file->block))
		buffered(s, p, "a direct request ended inside a block");
	start_io(s, p);
}

void schedule_done(struct pinion_stream *s, struct piece *p, int res)
{
	if (p->op->kind == OP_WATCH)
		watch_done(s, p, res);
	else
		io_done(s, p, res);
}

/* A worker has done it: a job's sentence is in its operation already. */
static void pooled_done(struct pinion_stream *s, struct piece *p)
{
	if (p->op->kind == OP_JOB && p->res)
		p->op->err = p->res;
	give_piece(s, p);
}

/* ---- order --------------------------------------------------------------------------------------------------------- */

static bool overlap(uint64_t a, uint64_t a_len, uint64_t b, uint64_t b_len)
{
	return a < b + b_len && b < a + a_len;
}

static bool touches(const struct stream_span *a, uint64_t a_len, const struct stream_span *b, uint64_t b_len)
{
	return a->buf && a->buf == b->buf && overlap(a->off, a_len, b->off, b_len);
}

/* Whether two files may have bytes in common that are written. Another device node may lead to the same disk. */
static bool share_file(const struct stream_op *a, const struct stream_op *b)
{
	if (!a->file || !b->file || (a->kind != OP_WRITE && b->kind != OP_WRITE))
		return false;
	if (!a->file->regular || !b->file->regular)
		return true;
	return a->file->dev == b->file->dev && a->file->ino == b->file->ino &&
	       (a->file->append || b->file->append || overlap(a->pos, a->len, b->pos, b->len));
}

static bool must_follow(const struct stream_op *first, const struct stream_op *op)
{
	return touches(&first->to, first->len, &op->to, op->len) || touches(&first->to, first->len, &op->from, op->len) ||
	       touches(&first->from, first->len, &op->to, op->len) || share_file(first, op);
}

/* Whether @op may start while those from @head up to it are unfinished. */
static bool may_overtake(const struct stream_op *head, const struct stream_op *op)
{
	/* Another descriptor may lead to the same pipe, so no read of one overtakes anything. */
	if (head != op && op->file && op->file->in_order)
		return false;
	for (; head != op; head = head->next)
		if (!op_moves_bytes(head) || must_follow(head, op))
			return false;
	return true;
}

/* The next operation, or NULL; the queue grows at its end while the stream's thread works. */
static struct stream_op *next_of(struct pinion_stream *s, struct stream_op *op)
{
	pthread_mutex_lock(&s->lock);
	op = op->next;
	pthread_mutex_unlock(&s->lock);
	return op;
}

/* ---- starting ------------------------------------------------------------------------------------------------------ */

static void start_piece(struct pinion_stream *s, struct piece *p)
{
	struct stream_op *op = p->op;

	if (op_is_io(op))
		start_io(s, p);
	else if (op->len > INLINE_MAX)
		start_pooled(s, p);
	else
		move_bytes(op, p), give_piece(s, p);
}

/* Starts as much of @op as there are free pieces; true when all of it is on its way. */
static bool issue(struct pinion_stream *s, struct stream_op *op)
{
	char *base = op->kind == OP_WRITE ? op->from.addr : op->to.addr;

	while (op->issued < op->len && !op->err) {
		struct piece *p = free_piece(s);
		uint64_t left = op->len - op->issued, to_edge;

		/* Two requests to a pipe would share out what it holds as it comes. */
		if (!p || (op_is_io(op) && op->file->in_order && op->in_flight))
			return false;
		take_piece(s, p, op);
		p->pos = op->pos + op->issued;
		p->addr = base + op->issued;
		to_edge = s->opts.piece - p->pos % s->opts.piece;
		p->len = left < to_edge ? left : to_edge;
		if (op_is_io(op))
			shape_io(s, p);
		op->issued += p->len;
		start_piece(s, p);
	}
	return true;
}

static void issue_ahead(struct pinion_stream *s, struct stream_op *head)
{
	struct stream_op *op = head;

	for (unsigned int i = 0; op && i < LOOK_AHEAD; i++) {
		if (!op_moves_bytes(op) || !may_overtake(head, op) || !issue(s, op))
			return;
		op = next_of(s, op);
	}
}

/* Whether it may begin: from then on nobody ends it early. */
static bool begin(struct pinion_stream *s, struct stream_op *op)
{
	pthread_mutex_lock(&s->lock);
	op->begun = !op->ask || op->kind == OP_WATCH || op->kind == OP_FENCE;
	pthread_mutex_unlock(&s->lock);
	return op->begun;
}

/* What moves no bytes, when all before it is done: every piece is free. */
static void start_alone(struct pinion_stream *s, struct stream_op *op)
{
	struct piece *p;

	if (op->begun || op->err || !begin(s, op))
		return;
	if (op->kind == OP_CALL) {
		op->err = call_fn(op);
		return;
	}
	if (op->kind == OP_FENCE)
		return;
	p = free_piece(s);
	take_piece(s, p, op);
	if (op->kind == OP_WATCH)
		start_io(s, p);
	else
		start_pooled(s, p);
}

static void fence_result(struct stream_op *op, int err, const char *sentence)
{
	fail_op(op, fail(ECANCELED, "the operation that was waited for failed (%s): %s", strerrorname_np(-err), sentence));
}

static bool is_done(struct stream_op *op)
{
	char sentence[SENTENCE_MAX];
	int err = 0;

	if (op->in_flight)
		return false;
	if (op_moves_bytes(op))
		return op->issued == op->len || op->err;
	if (op->err || op->kind != OP_FENCE)
		return op->err || op->begun;
	if (!op->begun || !fence_passed(op->fence, &err, sentence))
		return false;
	if (err)
		fence_result(op, err, sentence);
	return true;
}

/* Retires what is done and starts what can be; false when there is nothing left to do but wait. */
static bool advance(struct pinion_stream *s)
{
	struct stream_op *head;
	bool failed;

	pthread_mutex_lock(&s->lock);
	head = s->head;
	failed = s->failed;
	pthread_mutex_unlock(&s->lock);
	if (!head)
		return false;
	/* If a flush tells of the failure in the meantime it is looked at again. */
	if (failed && head->in_flight == 0 && !is_done(head)) {
		stream_retire(s, head, true);
		return true;
	}
	if (!failed && op_moves_bytes(head))
		issue_ahead(s, head);
	else if (!failed)
		start_alone(s, head);
	if (!is_done(head))
		return false;
	stream_retire(s, head, false);
	return true;
}

/* ---- early ends ---------------------------------------------------------------------------------------------------- */

/* Under lock: it shall end with its ask, if it is not past that. */
static void end_early(struct stream_op *op)
{
	char own[SENTENCE_MAX];

	if (op->err || ((op->kind == OP_CALL || op->kind == OP_JOB) && op->begun))
		return;
	sentence_get(own);
	if (op->ask == ETIMEDOUT)
		fail_op(op, fail(ETIMEDOUT, "operation %llu was not done by its deadline", (unsigned long long)op->seq));
	else
		fail_op(op, fail(ECANCELED, "operation %llu was cancelled", (unsigned long long)op->seq));
	sentence_set(own);
}

/* Under lock: what was asked to end, and what has missed its deadline. */
static void look_at_asks(struct pinion_stream *s)
{
	int64_t now = s->next_deadline_ns == PINION_FOREVER ? 0 : deadline_now();

	if (!s->asks && now < s->next_deadline_ns)
		return;
	s->asks = false;
	s->next_deadline_ns = PINION_FOREVER;
	for (struct stream_op *op = s->head; op; op = op->next) {
		if (!op->ask && op->deadline_ns <= now)
			op->ask = ETIMEDOUT;
		if (op->ask)
			end_early(op);
		else if (op->deadline_ns < s->next_deadline_ns)
			s->next_deadline_ns = op->deadline_ns;
	}
}

/* Pieces of what has failed, or was asked to end: nobody needs their bytes any more. */
static void cancel_pieces(struct pinion_stream *s)
{
	for (uint32_t i = 0; s->in_flight && i < s->opts.depth; i++) {
		struct piece *p = &s->piece[i];

		if (!p->op || !p->op->err || p->cancelled)
			continue;
		if (!p->pooled)
			p->cancelled = s->ops->cancel(s, p);
		else if (pool_withdraw(&p->job))
			give_piece(s, p);
		else
			p->cancelled = true;
	}
}

/* ---- the thread ---------------------------------------------------------------------------------------------------- */

/* What happened since the last round: *@seen, and what workers have finished. False: that was all. */
static bool look(struct pinion_stream *s, uint64_t *seen)
{
	struct piece *p, *next;
	bool on;

	pthread_mutex_lock(&s->lock);
	*seen = s->events;
	on = !s->stop || s->head;
	p = s->finished;
	s->finished = NULL;
	look_at_asks(s);
	pthread_mutex_unlock(&s->lock);
	for (; p; p = next) {
		next = p->next;
		if (p->pooled)
			pooled_done(s, p);
		else
			schedule_done(s, p, p->res);
	}
	return on;
}

static void sleep_unless(struct pinion_stream *s, uint64_t seen)
{
	int64_t deadline_ns;
	bool idle;

	pthread_mutex_lock(&s->lock);
	idle = s->events == seen && !(s->stop && !s->head);
	s->sleeping = idle;
	deadline_ns = s->next_deadline_ns;
	pthread_mutex_unlock(&s->lock);
	s->ops->wait(s, idle, deadline_ns);
	pthread_mutex_lock(&s->lock);
	s->sleeping = false;
	pthread_mutex_unlock(&s->lock);
}

void *schedule_main(void *stream)
{
	struct pinion_stream *s = stream;
	uint64_t seen;

	/* It ends when the queue is empty, and then nothing is in flight. */
	while (look(s, &seen)) {
		cancel_pieces(s);
		while (advance(s))
			cancel_pieces(s);
		sleep_unless(s, seen);
	}
	return NULL;
}
