/* SPDX-License-Identifier: MIT */
#include "load.h"

#include "../deadline.h"
#include "../error.h"
#include "../work/file.h"
#include "hash.h"

#include <errno.h>
#include <pinion/device.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_NS INT64_C(100000000)

/* ---- progress ------------------------------------------------------------------------------------------------------ */

/* Of the streams so far, the most bytes that the sentence of a load's statistics speaks of. */
struct most {
	uint64_t buffered, unregistered;
};

/* @why: why bytes went through the page cache; NULL: as the stream says. */
static void add_stats(const struct pinion_stream *s, const char *why, struct pinion_load_stats *total, struct most *most)
{
	struct pinion_stream_stats stats = { .size = sizeof(stats) };
	uint64_t unregistered;

	if (!s || pinion_stream_stats((struct pinion_stream *)s, &stats))
		return;
	total->direct_bytes += stats.direct_bytes;
	total->buffered_bytes += stats.buffered_bytes;
	total->registered_bytes += stats.registered_bytes;
	if (stats.buffered_bytes > most->buffered) {
		most->buffered = stats.buffered_bytes;
		total->buffered_why = why ? why : stats.buffered_why;
	}
	unregistered = stats.direct_bytes - stats.registered_bytes;
	if (unregistered > most->unregistered) {
		most->unregistered = unregistered;
		total->unregistered_why = stats.unregistered_why;
	}
}

static void collect_stats(const struct load *load, struct pinion_load_stats *total)
{
	struct most most = { .buffered = __atomic_load_n(&load->vectored, __ATOMIC_ACQUIRE) };

	total->buffered_bytes = most.buffered;
	total->buffered_why = most.buffered ? load->vectored_why : "";
	total->unregistered_why = "";
	add_stats(load->runs, NULL, total, &most);
	add_stats(load->warm, LOAD_IS_THERE, total, &most);
	add_stats(load->stage, NULL, total, &most);
	total->bytes_read = total->direct_bytes + total->buffered_bytes;
	total->moved_bytes = __atomic_load_n(&load->moved, __ATOMIC_ACQUIRE);
	total->cached_bytes = load->found;
	total->cached_by = !load->looked_at ? "" : load->sampled ? "samples" : "cachestat";
}

/* What the hash may take: all before the oldest that is under way. Tensors are queued in the order of the file. */
static void advance(struct load *load)
{
	uint64_t to = load->queued_to;

	while (load->oldest && __atomic_load_n(&load->oldest->done, __ATOMIC_ACQUIRE))
		load->oldest = load->oldest->later;
	if (load->queued && load->queue_from[0] < to)
		to = load->queue_from[0];
	if (load->oldest && load->oldest->from < to)
		to = load->oldest->from;
	hash_reach(load->hash, to);
}

int load_report(struct load *load)
{
	struct pinion_load_stats stats = { 0 };
	int64_t now = deadline_now();

	if (load->hash)
		advance(load);
	load->cancelled = load->opts.cancel && __atomic_load_n(load->opts.cancel, __ATOMIC_RELAXED);
	if (load->cancelled)
		return fail(ECANCELED, "the load was cancelled");
	if (!load->opts.progress || now < load->next_progress)
		return 0;
	load->next_progress = now + PROGRESS_NS;
	collect_stats(load, &stats);
	load->cancelled = load->opts.progress(load->opts.progress_arg,
					      stats.bytes_read < load->total ? stats.bytes_read : load->total, load->total);
	if (load->cancelled)
		return fail(ECANCELED, "the load was cancelled");
	return 0;
}

/* How long one may wait before looking up: the hash follows what was seen to be done. */
int64_t load_tick_ns(const struct load *load)
{
	return load->hash ? PROGRESS_NS / 20 : PROGRESS_NS;
}

int load_open_stream(struct load *load, enum pinion_io io, uint32_t depth, struct pinion_stream **out)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = io, .depth = depth };
	struct pinion_device *dev;
	int ret = pinion_device_find(load->ctx, load->opts.device, &dev);

	return ret ? ret : pinion_stream_new(dev, &opts, out);
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

/* With all in place: the hash to its end, and to the shard. */
static int finish_hash(struct load *load)
{
	struct index_shard *shard = (struct index_shard *)((char *)load->block + load->block->shards) + load->number;
	int ret;

	load->queued_to = UINT64_MAX;
	do {
		ret = load_report(load);
		if (ret)
			return ret;
		ret = hash_wait(load->hash, pinion_deadline_in(PROGRESS_NS), shard->sha256);
	} while (ret == -ETIMEDOUT);
	return ret;
}

/* All reads of the shard, to their end. */
static int read_tensors(struct load *load)
{
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t i = load->shard->first;
	int ret = 0;

	while (!ret && i < load_shard_end(load)) {
		if (!t[i].bytes)
			i++;
		else
			ret = t[i].moved ? load_moved(load, i, &i) : load_run(load, i, &i);
	}
	if (!ret)
		ret = load_wait_queued(load);
	if (!ret && load->stage)
		ret = load_wait_moved(load);
	return ret;
}

/* Opens the shard, which may not have changed since its header was read, and reads its tensors. */
static int read_opened(struct load *load, const char *path)
{
	int changed, ret;

	ret = shard_open(path, load->shard, &load->fd);
	if (!ret)
		ret = file_open(load->fd, false, &load->file);
	if (!ret && load->opts.hash)
		ret = hash_begin(load->block, load->number, load->fd, load->data, &load->hash);
	if (ret)
		return ret;
	load->cached = (struct cached){ load->opts.io == PINION_IO_AUTO && load->file->direct_fd >= 0 ? load->file : NULL, load->sampled };
	ret = read_tensors(load);
	if (!ret && load->hash)
		ret = finish_hash(load);
	/* A change explains a read that failed, too. */
	changed = ret && load->cancelled ? 0 : shard_unchanged(load->fd, load->shard, path);
	return changed ? changed : ret;
}

/* What is still queued after a failure must have the file and need not be whole. */
static void drain(struct load *load)
{
	__atomic_store_n(&load->given_up, true, __ATOMIC_RELAXED);
	pinion_stream_flush(load->runs, PINION_FOREVER);
	if (load->warm)
		pinion_stream_flush(load->warm, PINION_FOREVER);
	if (load->stage)
		pinion_stream_flush(load->stage, PINION_FOREVER);
}

static void close_shard(struct load *load)
{
	hash_end(load->hash);
	file_unref(load->file);
	if (load->fd >= 0)
		close(load->fd);
	load->hash = NULL;
	load->file = NULL;
	load->fd = -1;
}

static int read_shard(struct load *load, uint32_t number)
{
	const struct index_shard *shard = &index_shards(load->block)[number];
	char *path = shard_path(load->path, index_string(load->block, shard->name));
	int ret;

	if (!path)
		return fail(ENOMEM, "no memory for a path");
	load->number = number;
	load->shard = shard;
	load->queued_to = 0;
	ret = read_opened(load, path);
	if (ret) {
		char sentence[SENTENCE_MAX];

		sentence_get(sentence);
		drain(load);
		sentence_set(sentence);
	}
	close_shard(load);
	free(path);
	return ret;
}

static int read_shards(struct load *load)
{
	int ret = 0;

	for (uint32_t i = 0; i < load->block->shard_count && !ret; i++)
		ret = read_shard(load, i);
	return ret;
}

/* While the pages of the buffer are made, when there is nothing read yet. */
static int report_making(void *arg, uint64_t done, uint64_t total)
{
	(void)done;
	(void)total;
	return load_report(arg);
}

static int open_buffer(struct load *load)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts),
					   .pages = load->opts.pages,
					   .prefer_pages = load->opts.prefer_pages,
					   .hold = load->opts.hold,
					   .numa = load->opts.numa,
					   .node = load->opts.node,
					   .label = "pinion-model",
					   .progress = report_making,
					   .progress_arg = load };
	void *addr;
	int ret;

	load->next_progress = deadline_now() + PROGRESS_NS;
	ret = pinion_buffer_alloc(load->ctx, load->block->buffer_bytes, &opts, &load->buf);
	load->next_progress = 0;
	/* The allocation speaks of itself. */
	if (ret == -ECANCELED)
		return fail(ECANCELED, "the load was cancelled while its buffer was made");
	if (!ret)
		ret = pinion_buffer_map(load->buf, PINION_READ | PINION_WRITE, &addr);
	if (!ret)
		load->data = addr;
	return ret;
}

static int open_runs(struct load *load)
{
	return load_open_stream(load, load->opts.io, 4, &load->runs);
}

/* Everything but what the model keeps. */
static void close_load(struct load *load)
{
	struct part *part;

	pinion_stream_free(load->runs);
	pinion_stream_free(load->warm);
	pinion_stream_free(load->stage);
	while ((part = load->parts)) {
		load->parts = part->next;
		free(part);
	}
	pinion_buffer_unref(load->staging);
}

/* Seals what is whole and makes the model of it. */
static int finish(struct load *load, const struct pinion_load_stats *stats, struct pinion_model **out)
{
	struct pinion_model *m;
	int ret;

	/* The streams hold the last writable mapping until they are gone. */
	pinion_buffer_unmap(load->buf, PINION_READ | PINION_WRITE);
	ret = pinion_buffer_seal(load->buf);
	if (!ret)
		ret = model_new(load->block, false, load->buf, &m);
	if (ret)
		return ret;
	m->loaded = true;
	m->stats = *stats;
	*out = m;
	return 0;
}

PINION_API int pinion_model_load(struct pinion_context *ctx, const char *path, const struct pinion_load_opts *opts,
				 struct pinion_model **out)
{
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct load load = { .ctx = ctx, .opts = { .size = sizeof(load.opts) }, .path = path, .fd = -1 };
	int64_t start, made;
	int ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&load.opts, sizeof(load.opts), opts, "pinion_load_opts");
	if (!ret && load.opts.io > PINION_IO_DIRECT)
		ret = fail(EINVAL, "pinion_load_opts.io is %d, not one of enum pinion_io", load.opts.io);
	if (!load.opts.device)
		load.opts.device = "hostio";
	if (!ret)
		ret = index_read_path(path, &load.block);
	start = deadline_now();
	if (!ret) {
		load.total = load.block->tensor_bytes;
		ret = open_buffer(&load);
	}
	made = deadline_now();
	if (!ret)
		ret = open_runs(&load);
	if (!ret)
		ret = read_shards(&load);
	stats.alloc_ns = made - start;
	stats.read_ns = deadline_now() - made;
	stats.staging_bytes = load.staging ? pinion_buffer_size(load.staging) : 0;
	collect_stats(&load, &stats);
	close_load(&load);
	if (!ret)
		ret = finish(&load, &stats, out);
	if (ret) {
		pinion_buffer_unref(load.buf);
		free(load.block);
	}
	return ret;
}
