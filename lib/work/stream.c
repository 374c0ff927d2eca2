/* SPDX-License-Identifier: MIT */
#include "stream.h"

#include "../deadline.h"
#include "account.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static int stream_check(const struct pinion_stream *s)
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
	return 0;
}

static void *thread_main(void *stream)
{
	prctl(PR_SET_NAME, "pinion-stream");
	return engine_main(stream);
}

static int start_thread(struct pinion_stream *s)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&s->thread, NULL, thread_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err ? fail_errno(err, "starting a stream's thread") : 0;
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

PINION_API int pinion_stream_new(struct pinion_device *dev, const struct pinion_stream_opts *opts, struct pinion_stream **out)
{
	struct pinion_stream *s;
	int ret;

	if (!process_is_maker(&dev->mark))
		return process_fail("device");
	s = calloc(1, sizeof(*s));
	if (!s)
		return fail(ENOMEM, "no memory for a stream");
	s->opts = (struct pinion_stream_opts){ .size = sizeof(s->opts), .capacity = 256, .depth = 4, .piece = 4u << 20 };
	ret = opts_in(&s->opts, sizeof(s->opts), opts, "pinion_stream_opts");
	/* 0 in a struct that was zeroed means the default, as NULL does. */
	s->opts.capacity = s->opts.capacity ? s->opts.capacity : 256;
	s->opts.depth = s->opts.depth ? s->opts.depth : 4;
	s->opts.piece = s->opts.piece ? s->opts.piece : 4u << 20;
	if (!ret)
		ret = check_opts(&s->opts);
	if (ret)
		goto err_free;
	s->dev = dev;
	s->mark = dev->mark;
	s->stats.buffered_why = "";
	init_sync(s);
	ret = engine_open(s);
	if (ret)
		goto err_sync;
	ret = start_thread(s);
	if (ret)
		goto err_engine;
	*out = s;
	return 0;

err_engine:
	engine_close(s);
err_sync:
	pthread_cond_destroy(&s->progress);
	pthread_mutex_destroy(&s->lock);
err_free:
	free(s);
	return ret;
}

static void file_unref(struct stream_file *file)
{
	if (file && --file->refs == 0)
		file_close(file);
}

static void op_let_go(struct stream_op *op)
{
	if (op->buf) {
		pinion_buffer_unmap(op->buf, PINION_READ | PINION_WRITE);
		pinion_buffer_unref(op->buf);
	}
	op->buf = NULL;
}

static void op_free(struct stream_op *op)
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
		engine_close(s);
		return;
	}
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_mutex_unlock(&s->lock);
	engine_wake(s);
	pthread_join(s->thread, NULL);
	engine_close(s);
	file_unref(s->file);
	pthread_cond_destroy(&s->progress);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* ---- submit -------------------------------------------------------------------------------------------------------- */

static int op_new(enum op_kind kind, struct stream_op **out)
{
	struct stream_op *op = calloc(1, sizeof(*op));

	if (!op)
		return fail(ENOMEM, "no memory for an operation");
	op->kind = kind;
	*out = op;
	return 0;
}

/* Counts the operation, then makes it visible to the engine. Waits while the stream is full. Consumes @op on failure too. */
static int submit(struct pinion_stream *s, struct stream_op *op, uint64_t *seq)
{
	int ret = pinion_work_begin(s->dev, op->len, &op->ticket);

	pthread_mutex_lock(&s->lock);
	if (ret) {
		file_unref(op->file);
		pthread_mutex_unlock(&s->lock);
		op_free(op);
		return ret;
	}
	while (s->pending >= s->opts.capacity)
		pthread_cond_wait(&s->progress, &s->lock);
	op->seq = ++s->submitted;
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = op;
	s->pending++;
	if (seq)
		*seq = op->seq;
	pthread_mutex_unlock(&s->lock);
	engine_wake(s);
	return 0;
}

/* The file of the operation before, or a new one. */
static int take_file(struct pinion_stream *s, int fd, struct stream_file **out)
{
	struct stream_file *file;
	int ret;

	pthread_mutex_lock(&s->lock);
	if (!s->file || !file_is(s->file, fd)) {
		ret = file_open(fd, &file);
		if (ret) {
			pthread_mutex_unlock(&s->lock);
			return ret;
		}
		file_unref(s->file);
		s->file = file;
	}
	s->file->refs++;
	*out = s->file;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static int check_read(struct pinion_buffer *buf, uint64_t off, uint64_t foff, uint64_t len)
{
	uint64_t end, size = pinion_buffer_size(buf);

	if (__builtin_add_overflow(off, len, &end) || end > size)
		return fail(EINVAL, "a read of %llu bytes at %llu does not fit the buffer of %llu bytes", (unsigned long long)len,
			    (unsigned long long)off, (unsigned long long)size);
	if (__builtin_add_overflow(foff, len, &end) || end > INT64_MAX)
		return fail(EOVERFLOW, "a read of %llu bytes at file offset %llu ends past what a file can hold",
			    (unsigned long long)len, (unsigned long long)foff);
	return 0;
}

PINION_API int pinion_stream_read(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, int fd, uint64_t foff,
				  uint64_t len, uint64_t *seq)
{
	struct stream_op *op = NULL;
	void *base;
	int ret = stream_check(s);

	if (!ret)
		ret = check_read(buf, off, foff, len);
	if (!ret)
		ret = op_new(OP_READ, &op);
	if (ret)
		return ret;
	ret = pinion_buffer_map(buf, PINION_READ | PINION_WRITE, &base);
	if (ret) {
		free(op);
		return ret;
	}
	op->buf = pinion_buffer_ref(buf);
	ret = take_file(s, fd, &op->file);
	if (ret) {
		op_free(op);
		return ret;
	}
	op->addr = (char *)base + off;
	op->off = off;
	op->pos = foff;
	op->len = len;
	return submit(s, op, seq);
}

PINION_API int pinion_stream_call(struct pinion_stream *s, pinion_call_fn fn, void *arg, uint64_t *seq)
{
	struct stream_op *op = NULL;
	int ret = stream_check(s);

	if (!ret && !fn)
		ret = fail(EINVAL, "a call needs a function");
	if (!ret)
		ret = op_new(OP_CALL, &op);
	if (ret)
		return ret;
	op->fn = fn;
	op->arg = arg;
	return submit(s, op, seq);
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
	s->failures = (s->failures + 1) % STREAM_FAILURES;
	f->seq = f->cancelled = op->seq;
	f->err = op->err;
	memcpy(f->sentence, op->sentence, sizeof(f->sentence));
	s->failed = true;
}

void stream_retire(struct pinion_stream *s, struct stream_op *op)
{
	pthread_mutex_lock(&s->lock);
	/* What ran ahead of a failure is not reported as done either. */
	if (s->failed)
		op->err = -ECANCELED;
	if (op->err)
		record_failure(s, op);
	s->head = op->next;
	if (!s->head)
		s->tail = NULL;
	file_unref(op->file);
	pthread_mutex_unlock(&s->lock);

	/* Whoever sees the operation done must see it counted down, and its buffer free. */
	pinion_work_end(&op->ticket);
	op_let_go(op);
	pthread_mutex_lock(&s->lock);
	s->done = op->seq;
	s->pending--;
	pthread_cond_broadcast(&s->progress);
	pthread_mutex_unlock(&s->lock);
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

/* Under lock. */
static int result_of(struct pinion_stream *s, uint64_t seq)
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
		ret = result_of(s, seq);
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
