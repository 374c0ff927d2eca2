/* SPDX-License-Identifier: MIT */
/* submit: how an operation comes into a stream: checked, counted, and then where the stream's thread finds it. */
#include "../provider/counts_ops.h"
#include "account.h"
#include "chain.h"
#include "fence.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int op_new(enum op_kind kind, struct stream_op **out)
{
	struct stream_op *op = calloc(1, sizeof(*op));

	if (!op)
		return fail(ENOMEM, "no memory for an operation");
	op->kind = kind;
	op->watch = -1;
	op->deadline_ns = PINION_FOREVER;
	*out = op;
	return 0;
}

/* The operation is a unit from here on, unless the kernel will count each of its requests. */
static int count_op(struct pinion_stream *s, struct stream_op *op)
{
	if (op_is_io(op) && s->opts.count == PINION_COUNT_CHAIN)
		return chain_check(s->dev);
	return pinion_work_begin(s->dev, op->len, &op->ticket);
}

/* Under lock. */
static void append(struct pinion_stream *s, struct stream_op *op)
{
	op->seq = ++s->submitted;
	if (s->tail)
		s->tail->next = op;
	else
		s->head = op;
	s->tail = op;
	s->pending++;
}

/*
 * Counts the operation, then makes it visible to the stream's thread. Waits while the stream is full. Consumes @op on failure
 * too.
 */
static int submit(struct pinion_stream *s, struct stream_op *op, uint64_t *seq)
{
	int ret = count_op(s, op);
	bool slept;

	if (ret) {
		op_free(op);
		return ret;
	}
	pthread_mutex_lock(&s->lock);
	while (s->pending >= s->opts.capacity)
		pthread_cond_wait(&s->progress, &s->lock);
	append(s, op);
	if (seq)
		*seq = op->seq;
	slept = stream_note(s);
	pthread_mutex_unlock(&s->lock);
	if (slept)
		stream_wake(s);
	return 0;
}

/* ---- buffers and files --------------------------------------------------------------------------------------------- */

static int check_range(const char *what, struct pinion_buffer *buf, uint64_t off, uint64_t len)
{
	uint64_t end, size = pinion_buffer_size(buf);

	if (__builtin_add_overflow(off, len, &end) || end > size)
		return fail(EINVAL, "a %s of %llu bytes at %llu does not fit the buffer of %llu bytes", what,
			    (unsigned long long)len, (unsigned long long)off, (unsigned long long)size);
	return 0;
}

static int check_file_range(const char *what, uint64_t foff, uint64_t len)
{
	uint64_t end;

	if (__builtin_add_overflow(foff, len, &end) || end > INT64_MAX)
		return fail(EOVERFLOW, "a %s of %llu bytes at file offset %llu ends past what a file can hold", what,
			    (unsigned long long)len, (unsigned long long)foff);
	return 0;
}

static int take_span(struct pinion_buffer *buf, uint64_t off, uint32_t access, struct stream_span *span)
{
	void *base;
	int ret = pinion_buffer_map(buf, access, &base);

	if (ret)
		return ret;
	span->buf = pinion_buffer_ref(buf);
	span->addr = (char *)base + off;
	span->off = off;
	span->access = access;
	return 0;
}

/* The file of the operation before, if @fd is the same; or NULL. */
static struct stream_file *last_file(struct pinion_stream *s, int fd, bool writing)
{
	struct stream_file *file;

	pthread_mutex_lock(&s->lock);
	file = s->file ? file_ref(s->file) : NULL;
	pthread_mutex_unlock(&s->lock);
	if (file && file_is(file, fd, writing))
		return file;
	file_unref(file);
	return NULL;
}

/* Or a new one. Opening a file, or closing it, may take long, and the stream's thread needs the lock meanwhile. */
static int take_file(struct pinion_stream *s, int fd, bool writing, struct stream_file **out)
{
	struct stream_file *old, *file = last_file(s, fd, writing);
	int ret;

	*out = file;
	if (file)
		return 0;
	ret = file_open(fd, writing, &file);
	if (ret)
		return ret;
	pthread_mutex_lock(&s->lock);
	old = s->file;
	s->file = file_ref(file);
	pthread_mutex_unlock(&s->lock);
	file_unref(old);
	*out = file;
	return 0;
}

/* ---- operations ---------------------------------------------------------------------------------------------------- */

static int submit_io(struct pinion_stream *s, enum op_kind kind, struct pinion_buffer *buf, uint64_t off, int fd, uint64_t foff,
		     uint64_t len, uint64_t *seq)
{
	const char *what = kind == OP_READ ? "read" : "write";
	struct stream_op *op = NULL;
	int ret = stream_check(s);

	if (!ret)
		ret = check_range(what, buf, off, len);
	if (!ret)
		ret = check_file_range(what, foff, len);
	if (!ret)
		ret = op_new(kind, &op);
	if (ret)
		return ret;
	ret = kind == OP_READ ? take_span(buf, off, PINION_READ | PINION_WRITE, &op->to) :
				take_span(buf, off, PINION_READ, &op->from);
	if (!ret)
		ret = take_file(s, fd, kind == OP_WRITE, &op->file);
	if (ret) {
		op_free(op);
		return ret;
	}
	op->pos = foff;
	op->len = len;
	return submit(s, op, seq);
}

PINION_API int pinion_stream_read(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, int fd, uint64_t foff,
				  uint64_t len, uint64_t *seq)
{
	return submit_io(s, OP_READ, buf, off, fd, foff, len, seq);
}

PINION_API int pinion_stream_write(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, int fd, uint64_t foff,
				   uint64_t len, uint64_t *seq)
{
	return submit_io(s, OP_WRITE, buf, off, fd, foff, len, seq);
}

PINION_API int pinion_stream_copy(struct pinion_stream *s, struct pinion_buffer *to, uint64_t to_off, struct pinion_buffer *from,
				  uint64_t from_off, uint64_t len, uint64_t *seq)
{
	struct stream_op *op = NULL;
	int ret = stream_check(s);

	if (!ret)
		ret = check_range("copy", to, to_off, len);
	if (!ret)
		ret = check_range("copy", from, from_off, len);
	if (!ret && to == from && to_off < from_off + len && from_off < to_off + len)
		ret = fail(EINVAL, "a copy of %llu bytes from %llu to %llu of the same buffer overlaps itself",
			   (unsigned long long)len, (unsigned long long)from_off, (unsigned long long)to_off);
	if (!ret)
		ret = op_new(OP_COPY, &op);
	if (ret)
		return ret;
	ret = take_span(to, to_off, PINION_READ | PINION_WRITE, &op->to);
	if (!ret)
		ret = take_span(from, from_off, PINION_READ, &op->from);
	if (ret) {
		op_free(op);
		return ret;
	}
	op->len = len;
	return submit(s, op, seq);
}

PINION_API int pinion_stream_fill(struct pinion_stream *s, struct pinion_buffer *buf, uint64_t off, uint8_t byte, uint64_t len,
				  uint64_t *seq)
{
	struct stream_op *op = NULL;
	int ret = stream_check(s);

	if (!ret)
		ret = check_range("fill", buf, off, len);
	if (!ret)
		ret = op_new(OP_FILL, &op);
	if (ret)
		return ret;
	ret = take_span(buf, off, PINION_READ | PINION_WRITE, &op->to);
	if (ret) {
		op_free(op);
		return ret;
	}
	op->byte = byte;
	op->len = len;
	return submit(s, op, seq);
}

static int submit_fn(struct pinion_stream *s, enum op_kind kind, pinion_call_fn fn, void *arg, uint64_t *seq)
{
	struct stream_op *op = NULL;
	int ret = stream_check(s);

	if (!ret && !fn)
		ret = fail(EINVAL, "a call needs a function");
	if (!ret)
		ret = op_new(kind, &op);
	if (ret)
		return ret;
	op->fn = fn;
	op->arg = arg;
	return submit(s, op, seq);
}

PINION_API int pinion_stream_call(struct pinion_stream *s, pinion_call_fn fn, void *arg, uint64_t *seq)
{
	return submit_fn(s, OP_CALL, fn, arg, seq);
}

PINION_API int pinion_stream_job(struct pinion_stream *s, pinion_call_fn fn, void *arg, uint64_t *seq)
{
	return submit_fn(s, OP_JOB, fn, arg, seq);
}

/* ---- fences -------------------------------------------------------------------------------------------------------- */

PINION_API int pinion_stream_fence(struct pinion_stream *s, struct pinion_stream *other, uint64_t other_seq, uint64_t *seq)
{
	struct stream_op *op = NULL;
	int ret = stream_check(s);

	if (!ret)
		ret = stream_check(other);
	if (!ret && other == s)
		ret = fail(EINVAL, "a stream does everything in order: a fence on itself has nothing to wait for");
	if (!ret)
		ret = op_new(OP_FENCE, &op);
	if (ret)
		return ret;
	ret = fence_new(other, other_seq, s, &op->fence);
	if (ret) {
		op_free(op);
		return ret;
	}
	return submit(s, op, seq);
}

static int check_watch(struct pinion_stream *s, struct pinion_device *dev)
{
	if (!process_is_maker(&dev->mark))
		return process_fail("device");
	if (!dev->counts->ops->watch)
		return fail(EOPNOTSUPP,
			    "the counts of this context are in a file, which nobody can watch: fences on devices need the kernel "
			    "module (see 'pinion doctor'); pinion_device_flush() does not");
	if (!dev->at.has_queue)
		return fail(ENODATA, "device '%s' is synchronous and has nothing in flight to wait for", dev->key);
	/* A flush whose turn comes late waits for what begins until then: for the fence itself, and for what waits behind it. */
	if (dev->at.generation == s->dev->at.generation)
		return fail(EDEADLK, "the stream counts on '%s' itself: a fence would wait for what waits for the fence",
			    dev->key);
	return 0;
}

PINION_API int pinion_stream_fence_device(struct pinion_stream *s, struct pinion_device *dev, enum pinion_scope scope,
					  uint64_t *lost, uint64_t *seq)
{
	struct stream_op *op = NULL;
	int ret = stream_check(s);

	if (!ret)
		ret = check_watch(s, dev);
	if (!ret)
		ret = op_new(OP_WATCH, &op);
	if (ret)
		return ret;
	ret = dev->counts->ops->watch(dev->counts, &dev->at, scope == PINION_SCOPE_MINE, &op->watch);
	if (ret) {
		op_free(op);
		return ret;
	}
	op->watch_take = dev->counts->ops->watch_take;
	op->lost = lost;
	return submit(s, op, seq);
}
