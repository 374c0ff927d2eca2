/* SPDX-License-Identifier: MIT */
#include "stream.h"

#include "../advice.h"
#include "../deadline.h"
#include "account.h"
#include "chain.h"
#include "fence.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int stream_check(const struct pinion_stream *s)
{
	return process_is_maker(&s->mark) ? 0 : process_fail("stream");
}

/* ---- new and free -------------------------------------------------------------------------------------------------- */

static int check_opts(const struct pinion_stream_opts *opts)
{
	if (opts->capacity == 0 || opts->capacity > 65536)
		return fail(EINVAL, "pinion_stream_opts.capacity is %u, it must be 1 to 65536", opts->capacity);
	if (opts->depth == 0 || opts->depth > 1024)
		return fail(EINVAL, "pinion_stream_opts.depth is %u, it must be 1 to 1024", opts->depth);
	if (opts->piece < 4096 || opts->piece % 4096 || opts->piece > 1u << 30)
		return fail(EINVAL, "pinion_stream_opts.piece is %u, it must be a multiple of 4096 up to 1 GiB", opts->piece);
	if (opts->io > PINION_IO_DIRECT)
		return fail(EINVAL, "pinion_stream_opts.io is %d, not one of enum pinion_io", opts->io);
	if (opts->count > PINION_COUNT_CHAIN)
		return fail(EINVAL, "pinion_stream_opts.count is %d, not one of enum pinion_count_by", opts->count);
	if (opts->registered > PINION_REGISTERED_NEVER)
		return fail(EINVAL, "pinion_stream_opts.registered is %d, not one of enum pinion_registered",
			    opts->registered);
	return 0;
}

static void *thread_main(void *stream)
{
	prctl(PR_SET_NAME, "pinion-stream");
	return schedule_main(stream);
}

static int start_thread(struct pinion_stream *s)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&s->thread, NULL, thread_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err ? fail_thread(err, "starting a stream's thread") : 0;
}

static void init_sync(struct pinion_stream *s)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->progress, &attr);
	pthread_condattr_destroy(&attr);
}

/* The caller's options, checked, with defaults for what is 0, as in a struct that was zeroed. */
static int take_opts(struct pinion_stream *s, const struct pinion_stream_opts *opts)
{
	int ret;

	s->opts = (struct pinion_stream_opts){ .size = sizeof(s->opts) };
	ret = opts_in(&s->opts, sizeof(s->opts), opts, "pinion_stream_opts");
	if (ret)
		return ret;
	s->opts.capacity = s->opts.capacity ? s->opts.capacity : 256;
	s->opts.depth = s->opts.depth ? s->opts.depth : 4;
	s->opts.piece = s->opts.piece ? s->opts.piece : 4u << 20;
	ret = check_opts(&s->opts);
	if (!ret && s->opts.count == PINION_COUNT_CHAIN)
		ret = chain_check(s->dev);
	/* Documentation/counters.md, "Streams": chains cost more, and everybody who reads the counts too. */
	if (s->opts.count == PINION_COUNT_AUTO)
		s->opts.count = PINION_COUNT_PAGE;
	return ret;
}

static int open_engine(struct pinion_stream *s)
{
	int ret;

	s->piece = calloc(s->opts.depth, sizeof(*s->piece));
	if (!s->piece)
		return fail(ENOMEM, "no memory for a stream");
	s->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (s->wake_fd < 0) {
		ret = fail_errno(errno, "making an eventfd");
		goto err_piece;
	}
	ret = engine_open(s);
	if (!ret)
		return 0;
	close(s->wake_fd);
err_piece:
	free(s->piece);
	return ret;
}

static void close_engine(struct pinion_stream *s)
{
	s->ops->close(s);
	close(s->wake_fd);
	free(s->piece);
}

PINION_API int pinion_stream_new(struct pinion_device *dev, const struct pinion_stream_opts *opts, struct pinion_stream **out)
{
	struct pinion_stream *s;
	int ret;

	if (!process_is_maker(&dev->mark))
		return process_fail("device");
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail(ENOMEM, "no memory for a stream");
	s->dev = dev;
	ret = take_opts(s, opts);
	if (ret)
		goto err_free;
	s->mark = dev->mark;
	s->event_fd = -1;
	s->next_deadline_ns = PINION_FOREVER;
	s->stats.buffered_why = s->stats.unregistered_why = "";
	s->stats.count = s->opts.count;
	init_sync(s);
	ret = open_engine(s);
	if (ret)
		goto err_sync;
	ret = start_thread(s);
	if (ret)
		goto err_engine;
	*out = s;
	return 0;

err_engine:
	close_engine(s);
err_sync:
	pthread_cond_destroy(&s->progress);
	pthread_mutex_destroy(&s->lock);
err_free:
	free(s);
	return ret;
}

static void span_let_go(struct stream_span *span)
{
	if (!span->buf)
		return;
	pinion_buffer_unmap(span->buf, span->access);
	pinion_buffer_unref(span->buf);
	span->buf = NULL;
}

void op_let_go(struct stream_op *op)
{
	span_let_go(&op->to);
	span_let_go(&op->from);
	if (op->watch >= 0)
		close(op->watch);
	op->watch = -1;
	if (op->fence)
		fence_leave(op->fence);
	op->fence = NULL;
	file_unref(op->file);
	op->file = NULL;
}

void op_free(struct stream_op *op)
{
	op_let_go(op);
	free(op);
}

PINION_API void pinion_stream_free(struct pinion_stream *s)
{
	if (!s)
		return;
	if (stream_check(s)) {
		/* A child: the thread is not here, and the queue may have been caught half changed. */
		close_engine(s);
		if (s->event_fd >= 0)
			close(s->event_fd);
		free(s);
		return;
	}
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	stream_event(s);
	pthread_mutex_unlock(&s->lock);
	pthread_join(s->thread, NULL);
	file_unref(s->file);
	close_engine(s);
	if (s->event_fd >= 0)
		close(s->event_fd);
	pthread_cond_destroy(&s->progress);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

bool stream_note(struct pinion_stream *s)
{
	bool slept = s->sleeping;

	s->events++;
	s->sleeping = false;
	return slept;
}

/* An eventfd counts until it is read; at its most it stays readable. */
static void add_one(int event_fd)
{
	uint64_t one = 1;

	while (write(event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void stream_wake(struct pinion_stream *s)
{
	add_one(s->wake_fd);
}

/* ---- results ------------------------------------------------------------------------------------------------------- */

/* Under lock. */
static void record_failure(struct pinion_stream *s, const struct stream_op *op)
{
	struct stream_failure *f;

	if (op->err == -ECANCELED && s->failed) {
		s->failure[(s->failures + STREAM_FAILURES - 1) % STREAM_FAILURES].cancelled = op->seq;
		return;
	}
	f = &s->failure[s->failures];
	s->forgotten = f->cancelled;
	s->failures = (s->failures + 1) % STREAM_FAILURES;
	f->seq = f->cancelled = op->seq;
	f->err = op->err;
	memcpy(f->sentence, op->sentence, sizeof(f->sentence));
	s->failed = true;
}

void stream_retire(struct pinion_stream *s, struct stream_op *op, bool unrun)
{
	struct fence *due;

	pthread_mutex_lock(&s->lock);
	if (unrun && !s->failed) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	/* What ran ahead of a failure is not reported as done either. */
	if (s->failed)
		op->err = -ECANCELED;
	if (op->err)
		record_failure(s, op);
	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	pthread_mutex_unlock(&s->lock);

	/* Whoever sees the operation done must see it counted down, and its buffer free. */
	if (op->ticket.state)
		pinion_work_end(&op->ticket);
	op_let_go(op);
	pthread_mutex_lock(&s->lock);
	s->done = op->seq;
	s->pending--;
	pthread_cond_broadcast(&s->progress);
	if (s->event_fd >= 0)
		add_one(s->event_fd);
	due = fence_due(s);
	pthread_mutex_unlock(&s->lock);
	fence_tell(due);
	free(op);
}

/* Under lock: waits until operation @seq is done. */
static int wait_done(struct pinion_stream *s, uint64_t seq, int64_t deadline_ns)
{
	struct timespec ts = deadline_timespec(deadline_ns);

	while (s->done < seq) {
		int err = deadline_ns == PINION_FOREVER ? pthread_cond_wait(&s->progress, &s->lock) :
							  pthread_cond_timedwait(&s->progress, &s->lock, &ts);

		if (err == ETIMEDOUT && s->done < seq)
			return fail(ETIMEDOUT, "operation %llu is not done, %u are in flight", (unsigned long long)seq, s->pending);
	}
	return 0;
}

int stream_result(struct pinion_stream *s, uint64_t seq)
{
	for (uint32_t i = 0; i < STREAM_FAILURES; i++) {
		const struct stream_failure *f = &s->failure[i];

		if (!f->seq || seq < f->seq || seq > f->cancelled)
			continue;
		if (seq == f->seq)
			return fail(-f->err, "%s", f->sentence);
		return fail(ECANCELED, "operation %llu was not run, because %llu failed: %s", (unsigned long long)seq,
			    (unsigned long long)f->seq, f->sentence);
	}
	if (seq <= s->forgotten)
		return fail(EOVERFLOW,
			    "operation %llu is done, and whether it failed is not known any more: %d later ones have failed",
			    (unsigned long long)seq, STREAM_FAILURES);
	return 0;
}

PINION_API int pinion_stream_wait(struct pinion_stream *s, uint64_t seq, int64_t deadline_ns)
{
	int ret = stream_check(s);

	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	if (seq == 0 || seq > s->submitted)
		ret = fail(EINVAL, "operation %llu was never submitted, the last one is %llu", (unsigned long long)seq,
			   (unsigned long long)s->submitted);
	else
		ret = wait_done(s, seq, deadline_ns);
	if (!ret)
		ret = stream_result(s, seq);
	pthread_mutex_unlock(&s->lock);
	return ret;
}

PINION_API int pinion_stream_flush(struct pinion_stream *s, int64_t deadline_ns)
{
	uint64_t target;
	int ret = stream_check(s);

	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	target = s->submitted;
	ret = wait_done(s, target, deadline_ns);
	if (!ret && s->failed) {
		const struct stream_failure *f = &s->failure[(s->failures + STREAM_FAILURES - 1) % STREAM_FAILURES];

		s->failed = false;
		ret = fail(-f->err, "%s", f->sentence);
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

/* Under lock: the operation, if it is not done. *@ret: 0, -EINVAL it was never submitted, or -EALREADY, with a sentence. */
static struct stream_op *find_op(struct pinion_stream *s, uint64_t seq, int *ret)
{
	struct stream_op *op = s->head;

	*ret = 0;
	if (seq == 0 || seq > s->submitted)
		*ret = fail(EINVAL, "operation %llu was never submitted, the last one is %llu", (unsigned long long)seq,
			    (unsigned long long)s->submitted);
	while (!*ret && op && op->seq != seq)
		op = op->next;
	if (!*ret && !op)
		*ret = fail(EALREADY, "operation %llu is done", (unsigned long long)seq);
	return *ret ? NULL : op;
}

PINION_API int pinion_stream_cancel(struct pinion_stream *s, uint64_t seq)
{
	struct stream_op *op;
	int ret = stream_check(s);

	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	op = find_op(s, seq, &ret);
	if (op) {
		op->ask = op->ask ? op->ask : ECANCELED;
		s->asks = true;
		stream_event(s);
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

PINION_API int pinion_stream_deadline(struct pinion_stream *s, uint64_t seq, int64_t deadline_ns)
{
	struct stream_op *op;
	int ret = stream_check(s);

	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	op = find_op(s, seq, &ret);
	if (op) {
		op->deadline_ns = deadline_ns;
		s->next_deadline_ns = deadline_ns < s->next_deadline_ns ? deadline_ns : s->next_deadline_ns;
		stream_event(s);
	}
	pthread_mutex_unlock(&s->lock);
	return ret;
}

PINION_API int pinion_stream_fd(struct pinion_stream *s)
{
	int fd = stream_check(s);

	if (fd)
		return fd;
	pthread_mutex_lock(&s->lock);
	if (s->event_fd < 0)
		s->event_fd = eventfd(s->done ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
	fd = s->event_fd >= 0 ? s->event_fd : fail_errno(errno, "making an eventfd");
	pthread_mutex_unlock(&s->lock);
	return fd;
}

PINION_API uint32_t pinion_stream_pending(struct pinion_stream *s)
{
	uint32_t n;

	if (stream_check(s))
		return 0;
	pthread_mutex_lock(&s->lock);
	n = s->pending;
	pthread_mutex_unlock(&s->lock);
	return n;
}

PINION_API int pinion_stream_stats(struct pinion_stream *s, struct pinion_stream_stats *stats)
{
	struct pinion_stream_stats own;
	int ret = stream_check(s);

	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	own = s->stats;
	pthread_mutex_unlock(&s->lock);
	return opts_out(stats, &own, sizeof(own), "pinion_stream_stats");
}
