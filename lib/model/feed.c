/* SPDX-License-Identifier: MIT */
/*
 * feed: a ring of buffers, each filled with the next piece of a file by one stream and handed out tensor by tensor. A piece is
 * whole blocks, so that it can be read directly; it begins with a tensor's byte and may hold others' before and after it.
 *
 * One thread at a time has a feed: there is no lock.
 */
#include <pinion/feed.h>

#include "../context.h"
#include "../error.h"
#include "hash.h"
#include "index.h"

#include <errno.h>
#include <pinion/buffer.h>
#include <pinion/device.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFERS 4u
#define BUFFERS_MAX 1024u
#define BUFFER_BYTES (UINT64_C(8) << 20)
#define BUFFER_BYTES_MAX (UINT64_C(1) << 30)
#define TICK_NS INT64_C(100000000)

/* A buffer of the ring, with a piece of a file. */
struct slot {
	uint32_t shard;
	uint64_t from, to; /* of the file */
	uint64_t seq;	   /* of its read */
	uint32_t out;	   /* chunks that the caller has */
	bool read;	   /* it has a piece that was not all handed out */
	bool whole;	   /* and that is known to be there */
	bool last;	   /* of its file, whose descriptor is its own then */
	int fd;
};

/* A place in the tensors: byte @at of tensor @i. */
struct place {
	uint64_t i;
	uint64_t at;
};

struct pinion_feed {
	struct pinion_context *ctx;
	struct pinion_feed_opts opts;
	char *path;
	struct index_block *block;
	struct pinion_stream *stream;
	struct pinion_buffer *ring;
	char *data;
	struct slot *slot;
	uint32_t head;	     /* the slot that is handed out */
	uint32_t tail;	     /* the next one to be read into */
	struct place given;  /* the next byte to hand out */
	struct place queued; /* the first byte that no slot was asked for */
	int fd;		     /* of the shard that is being queued; -1: none */
	struct hash_sum *sum; /* of the shard that is being handed out; NULL: none, or not wanted */
	uint64_t fed;
	int err; /* the feed is over */
	char sentence[SENTENCE_MAX];
};

static const struct index_tensor *tensor(const struct pinion_feed *f, uint64_t i)
{
	return &index_tensors(f->block)[i];
}

static const struct index_shard *shard_of(const struct pinion_feed *f, uint32_t shard)
{
	return &index_shards(f->block)[shard];
}

static char *slot_data(const struct pinion_feed *f, uint32_t i)
{
	return f->data + i * f->opts.buffer_bytes;
}

/* ---- reading ahead ------------------------------------------------------------------------------------------------- */

/* Past tensors that are all in pieces already, or have no bytes. False at the end. */
static bool find_unqueued(struct pinion_feed *f)
{
	while (f->queued.i < f->block->tensor_count && f->queued.at >= tensor(f, f->queued.i)->bytes)
		f->queued = (struct place){ f->queued.i + 1, 0 };
	return f->queued.i < f->block->tensor_count;
}

/* The file offset where the tensors of @shard end. */
static uint64_t data_end(const struct pinion_feed *f, uint32_t shard)
{
	const struct index_shard *s = shard_of(f, shard);

	for (uint64_t i = s->first + s->count; i > s->first; i--)
		if (tensor(f, i - 1)->bytes)
			return tensor(f, i - 1)->file_offset + tensor(f, i - 1)->bytes;
	return 0;
}

/* The piece that begins with the first byte that is in none: as much as a buffer takes, to a whole block. */
static struct slot cut_piece(const struct pinion_feed *f)
{
	const struct index_tensor *t = tensor(f, f->queued.i);
	uint64_t end = data_end(f, t->shard), file_end = shard_of(f, t->shard)->stamp.bytes;
	struct slot piece = { .shard = t->shard, .from = t->file_offset + f->queued.at };

	piece.from -= piece.from % INDEX_BLOCK;
	piece.to = piece.from + f->opts.buffer_bytes;
	piece.last = piece.to >= end;
	if (!piece.last)
		return piece;
	piece.to = end + (INDEX_BLOCK - end % INDEX_BLOCK) % INDEX_BLOCK;
	if (piece.to > file_end)
		piece.to = file_end;
	return piece;
}

static int open_shard(struct pinion_feed *f, uint32_t shard)
{
	char *path = shard_path(f->path, index_string(f->block, shard_of(f, shard)->name));
	int ret;

	if (!path)
		return fail(ENOMEM, "no memory for a path");
	ret = shard_open(path, shard_of(f, shard), &f->fd);
	free(path);
	return ret;
}

static int queue_piece(struct pinion_feed *f)
{
	struct slot piece = cut_piece(f);
	int ret = 0;

	if (f->fd < 0)
		ret = open_shard(f, piece.shard);
	if (!ret)
		ret = pinion_stream_read(f->stream, f->ring, f->tail * f->opts.buffer_bytes, f->fd, piece.from, piece.to - piece.from,
					 &piece.seq);
	/* The slot stays as it is: a descriptor would be closed with it. */
	if (ret)
		return ret;
	piece.fd = f->fd;
	if (piece.last)
		f->fd = -1;
	piece.read = true;
	f->slot[f->tail] = piece;
	while (f->queued.i < f->block->tensor_count) {
		const struct index_tensor *t = tensor(f, f->queued.i);

		if (t->shard != piece.shard || t->file_offset >= piece.to)
			break;
		if (t->file_offset + t->bytes > piece.to) {
			f->queued.at = piece.to - t->file_offset;
			break;
		}
		f->queued = (struct place){ f->queued.i + 1, 0 };
	}
	f->tail = (f->tail + 1) % f->opts.buffers;
	return 0;
}

/* Into each buffer that nobody has anything in, in turn. */
static int read_ahead(struct pinion_feed *f)
{
	int ret = 0;

	while (!ret && !f->slot[f->tail].read && !f->slot[f->tail].out && find_unqueued(f))
		ret = queue_piece(f);
	return ret;
}

/* ---- handing out --------------------------------------------------------------------------------------------------- */

static int cancelled(const struct pinion_feed *f)
{
	if (f->opts.cancel && __atomic_load_n(f->opts.cancel, __ATOMIC_RELAXED))
		return fail(ECANCELED, "the feed was cancelled");
	return 0;
}

/* The feed is over, and says so from now on. */
static int end_feed(struct pinion_feed *f, int ret)
{
	f->err = ret;
	sentence_get(f->sentence);
	return ret;
}

static int sum_piece(struct pinion_feed *f, struct slot *slot)
{
	struct index_shard *shard = (struct index_shard *)shard_of(f, slot->shard);
	int ret = 0;

	if (!f->opts.hash)
		return 0;
	if (!f->sum)
		ret = hash_sum_new(&f->sum);
	if (!ret)
		ret = hash_sum_file(f->sum, slot->fd, slot->from);
	if (!ret)
		hash_sum_bytes(f->sum, slot_data(f, f->head), slot->to - slot->from);
	if (ret || !slot->last)
		return ret;
	ret = hash_sum_file(f->sum, slot->fd, shard->stamp.bytes);
	if (!ret)
		hash_sum_end(f->sum, shard->sha256);
	hash_sum_free(f->sum);
	f->sum = NULL;
	return ret;
}

/* What is read of a file that changed is not to be believed, whatever reading said. */
static int finish_piece(struct pinion_feed *f, struct slot *slot, int ret)
{
	const struct index_shard *shard = shard_of(f, slot->shard);
	int changed;

	if (!ret)
		ret = sum_piece(f, slot);
	if (!ret && !slot->last)
		return 0;
	changed = shard_unchanged(slot->fd, shard, index_string(f->block, shard->name));
	if (slot->last) {
		close(slot->fd);
		slot->fd = -1;
		slot->last = false;
	}
	return changed ? changed : ret;
}

static int await_piece(struct pinion_feed *f, struct slot *slot)
{
	int ret;

	do {
		ret = cancelled(f);
		if (ret)
			return ret;
		ret = pinion_stream_wait(f->stream, slot->seq, pinion_deadline_in(TICK_NS));
	} while (ret == -ETIMEDOUT);
	ret = finish_piece(f, slot, ret);
	slot->whole = !ret;
	return ret ? end_feed(f, ret) : 0;
}

/* What the slot has of the tensor that is next, or nothing of one that has nothing. */
static void describe(struct pinion_feed *f, const struct slot *slot, struct pinion_chunk *chunk)
{
	const struct index_tensor *t = tensor(f, f->given.i);

	*chunk = (struct pinion_chunk){ .size = sizeof(*chunk), .number = f->given.i, .at = f->given.at, .buffer = f->head };
	index_describe(f->block, f->given.i, &chunk->tensor);
	if (!t->bytes)
		return;
	chunk->bytes = t->bytes - f->given.at;
	if (t->file_offset + t->bytes > slot->to)
		chunk->bytes = slot->to - (t->file_offset + f->given.at);
	chunk->data = slot_data(f, f->head) + (t->file_offset + f->given.at - slot->from);
}

/* Whether the piece has no byte of what is still to be handed out. */
static bool is_through(const struct pinion_feed *f, const struct slot *slot)
{
	uint64_t i = f->given.i;

	while (i < f->block->tensor_count && !tensor(f, i)->bytes)
		i++;
	return i == f->block->tensor_count || tensor(f, i)->shard != slot->shard ||
	       tensor(f, i)->file_offset + (i == f->given.i ? f->given.at : 0) >= slot->to;
}

static void take(struct pinion_feed *f, struct slot *slot, const struct pinion_chunk *chunk)
{
	f->given.at += chunk->bytes;
	f->fed += chunk->bytes;
	if (f->given.at == tensor(f, f->given.i)->bytes)
		f->given = (struct place){ f->given.i + 1, 0 };
	slot->out += chunk->bytes != 0;
	if (chunk->bytes && is_through(f, slot)) {
		slot->read = false;
		f->head = (f->head + 1) % f->opts.buffers;
	}
}

static int next(struct pinion_feed *f, struct pinion_chunk *chunk)
{
	struct slot *slot = &f->slot[f->head];
	int ret = cancelled(f);

	if (!ret) {
		ret = read_ahead(f);
		if (ret)
			return end_feed(f, ret);
	}
	if (ret)
		return ret;
	if (tensor(f, f->given.i)->bytes) {
		if (!slot->read)
			return fail(EBUSY, "each of the %u buffers has a chunk that was not given back by pinion_feed_done()",
				    f->opts.buffers);
		ret = slot->whole ? 0 : await_piece(f, slot);
		if (ret)
			return ret;
	}
	describe(f, slot, chunk);
	return 0;
}

PINION_API int pinion_feed_next(struct pinion_feed *f, struct pinion_chunk *chunk)
{
	struct pinion_chunk own;
	int ret = context_check(f->ctx);

	if (ret)
		return ret;
	if (f->err)
		return fail(-f->err, "%s", f->sentence);
	if (f->given.i == f->block->tensor_count)
		return fail(ENODATA, "all %llu tensors were handed out", (unsigned long long)f->block->tensor_count);
	ret = next(f, &own);
	if (!ret)
		ret = opts_out(chunk, &own, sizeof(own), "pinion_chunk");
	if (!ret)
		take(f, &f->slot[f->head], &own);
	return ret;
}

PINION_API void pinion_feed_done(struct pinion_feed *f, const struct pinion_chunk *chunk)
{
	int ret;

	if (!chunk->bytes || chunk->buffer >= f->opts.buffers || !f->slot[chunk->buffer].out)
		return;
	f->slot[chunk->buffer].out--;
	if (f->err || context_check(f->ctx))
		return;
	/* So that it is read while the caller does something else; a failure shows in the next call. */
	ret = read_ahead(f);
	if (ret)
		end_feed(f, ret);
}

/* ---- open, free ---------------------------------------------------------------------------------------------------- */

static int check_opts(struct pinion_feed_opts *o)
{
	o->buffers = o->buffers ? o->buffers : BUFFERS;
	o->buffer_bytes = o->buffer_bytes ? o->buffer_bytes : BUFFER_BYTES;
	o->device = o->device ? o->device : "hostio";
	if (o->io > PINION_IO_DIRECT)
		return fail(EINVAL, "pinion_feed_opts.io is %d, not one of enum pinion_io", o->io);
	if (o->buffers > BUFFERS_MAX)
		return fail(EINVAL, "pinion_feed_opts.buffers is %u, at most %u are allowed", o->buffers, BUFFERS_MAX);
	if (o->buffer_bytes % INDEX_BLOCK || o->buffer_bytes > BUFFER_BYTES_MAX)
		return fail(EINVAL, "pinion_feed_opts.buffer_bytes is %llu, it must be a multiple of %u up to %llu",
			    (unsigned long long)o->buffer_bytes, INDEX_BLOCK, (unsigned long long)BUFFER_BYTES_MAX);
	return 0;
}

/* Files that have no byte of a tensor never come by. */
static int sum_empty(struct pinion_feed *f)
{
	int ret = 0;

	for (uint32_t i = 0; i < f->block->shard_count && f->opts.hash && !ret; i++) {
		struct slot none = { .shard = i, .last = true };

		if (data_end(f, i))
			continue;
		ret = open_shard(f, i);
		if (ret)
			break;
		none.fd = f->fd;
		f->fd = -1;
		ret = finish_piece(f, &none, 0);
	}
	return ret;
}

static int open_ring(struct pinion_feed *f)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_NONE, .label = "pinion-feed" };
	void *addr;
	int ret = pinion_buffer_alloc(f->ctx, f->opts.buffers * f->opts.buffer_bytes, &opts, &f->ring);

	if (!ret)
		ret = pinion_buffer_map(f->ring, PINION_READ | PINION_WRITE, &addr);
	if (ret)
		return ret;
	f->data = addr;
	f->slot = calloc(f->opts.buffers, sizeof(*f->slot));
	return f->slot ? 0 : fail(ENOMEM, "no memory for %u buffers", f->opts.buffers);
}

static int open_stream(struct pinion_feed *f)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = f->opts.io, .capacity = f->opts.buffers };
	struct pinion_device *dev;
	int ret = pinion_device_find(f->ctx, f->opts.device, &dev);

	return ret ? ret : pinion_stream_new(dev, &opts, &f->stream);
}

PINION_API int pinion_feed_open(struct pinion_context *ctx, const char *path, const struct pinion_feed_opts *opts,
				struct pinion_feed **out)
{
	struct pinion_feed *f;
	int ret = context_check(ctx);

	if (ret)
		return ret;
	f = calloc(1, sizeof(*f));
	if (!f)
		return fail(ENOMEM, "no memory for a feed");
	f->ctx = ctx;
	f->fd = -1;
	f->opts.size = sizeof(f->opts);
	ret = opts_in(&f->opts, sizeof(f->opts), opts, "pinion_feed_opts");
	if (!ret)
		ret = check_opts(&f->opts);
	f->path = strdup(path);
	if (!ret && !f->path)
		ret = fail(ENOMEM, "no memory for a path");
	if (!ret)
		ret = index_read_path(f->path, &f->block);
	if (!ret)
		ret = open_ring(f);
	if (!ret)
		ret = open_stream(f);
	if (!ret)
		ret = sum_empty(f);
	if (!ret)
		ret = read_ahead(f);
	if (ret) {
		pinion_feed_free(f);
		return ret;
	}
	*out = f;
	return 0;
}

PINION_API void pinion_feed_free(struct pinion_feed *f)
{
	if (!f)
		return;
	/* What is being read is waited for: one buffer's worth each. */
	pinion_stream_free(f->stream);
	for (uint32_t i = 0; f->slot && i < f->opts.buffers; i++)
		if (f->slot[i].last)
			close(f->slot[i].fd);
	if (f->fd >= 0)
		close(f->fd);
	if (f->data)
		pinion_buffer_unmap(f->ring, PINION_READ | PINION_WRITE);
	pinion_buffer_unref(f->ring);
	hash_sum_free(f->sum);
	free(f->slot);
	free(f->block);
	free(f->path);
	free(f);
}

/* ---- what it says -------------------------------------------------------------------------------------------------- */

PINION_API int pinion_feed_info(const struct pinion_feed *f, struct pinion_index_info *info)
{
	struct pinion_index_info own;

	index_describe_file(f->block, &own);
	return opts_out(info, &own, sizeof(own), "pinion_index_info");
}

PINION_API int pinion_feed_shard_at(const struct pinion_feed *f, uint64_t i, struct pinion_shard *out)
{
	return index_shard_out(f->block, i, out);
}

PINION_API int pinion_feed_stats(const struct pinion_feed *f, struct pinion_feed_stats *stats)
{
	struct pinion_stream_stats stream = { .size = sizeof(stream) };
	struct pinion_feed_stats own = { .size = sizeof(own), .fed_bytes = f->fed };
	int ret = pinion_stream_stats(f->stream, &stream);

	if (ret)
		return ret;
	own.direct_bytes = stream.direct_bytes;
	own.buffered_bytes = stream.buffered_bytes;
	own.bytes_read = stream.direct_bytes + stream.buffered_bytes;
	own.buffered_why = stream.buffered_why;
	return opts_out(stats, &own, sizeof(own), "pinion_feed_stats");
}
