/* SPDX-License-Identifier: MIT */
/*
 * load: reads a file's tensors to where the layout puts them.
 *
 * Placed tensors are read straight to their place in long runs. Moved ones are read to a staging buffer and copied to
 * theirs, in turn on one stream: two slots, one being filled while the other is copied, took a third more CPU time for a
 * byte and gained some 6 % of the time (measured). Where the page cache holds the bytes already they are read to their
 * place without staging, which is one copy instead of two.
 */
#include "model.h"

#include "../deadline.h"
#include "../error.h"
#include "../work/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/device.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RUN_BYTES (UINT64_C(16) << 20)	/* one read of a run: what a cancelled load still waits for, some times over */
#define STAGE_BYTES (UINT64_C(8) << 20) /* of the staging buffer: as much as the pieces in flight */
#define QUEUED 4 /* reads of runs in the stream at once */
#define PROGRESS_NS INT64_C(100000000)

/* What of the file is staged at one time. */
struct part {
	struct part *next;
	struct load *load;
	uint64_t from;
	uint64_t len;
	uint64_t first; /* the first tensor that has bytes in it */
};

struct load {
	struct pinion_context *ctx;
	struct pinion_load_opts opts;
	int fd;
	struct stat before;
	struct stream_file *file; /* to ask what the page cache holds */
	struct index_block *block;
	struct pinion_buffer *buf;
	char *data; /* writable */
	struct pinion_stream *runs;
	struct pinion_stream *stage; /* fills the staging buffer and empties it, in order */
	struct part *parts; /* all that were queued; freed when the streams are gone */
	bool given_up;	    /* what is queued is not copied any more; atomic */
	struct pinion_buffer *staging; /* NULL until something is moved */
	char *staging_data;
	uint64_t queue[QUEUED]; /* numbers of the reads under way */
	uint32_t queued;
	uint64_t moved; /* bytes copied; atomic, the stage's thread adds */
	uint64_t total;
	int64_t next_progress;
	bool cancelled; /* by the caller */
};

static uint64_t round_down(uint64_t v)
{
	return v - v % INDEX_BLOCK;
}

/* To whole blocks, but not past the end of the file. */
static uint64_t round_up(const struct load *load, uint64_t v)
{
	uint64_t up = round_down(v + INDEX_BLOCK - 1);

	return up < load->block->file_bytes ? up : load->block->file_bytes;
}

/* ---- progress ------------------------------------------------------------------------------------------------------ */

static void add_stats(const struct pinion_stream *s, struct pinion_load_stats *total)
{
	struct pinion_stream_stats stats = { .size = sizeof(stats) };

	if (!s || pinion_stream_stats((struct pinion_stream *)s, &stats))
		return;
	total->direct_bytes += stats.direct_bytes;
	total->buffered_bytes += stats.buffered_bytes;
	/* The runs come first and speak for most bytes. */
	if (!*total->buffered_why)
		total->buffered_why = stats.buffered_why;
}

static void collect_stats(const struct load *load, struct pinion_load_stats *total)
{
	total->buffered_why = "";
	add_stats(load->runs, total);
	add_stats(load->stage, total);
	total->bytes_read = total->direct_bytes + total->buffered_bytes;
	total->moved_bytes = __atomic_load_n(&load->moved, __ATOMIC_ACQUIRE);
}

static int report(struct load *load)
{
	struct pinion_load_stats stats = { 0 };
	int64_t now = deadline_now();

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

/* Waits for one operation, reporting meanwhile. */
static int wait_reporting(struct load *load, struct pinion_stream *s, uint64_t seq)
{
	int ret;

	do {
		ret = report(load);
		if (ret)
			return ret;
		ret = pinion_stream_wait(s, seq, pinion_deadline_in(PROGRESS_NS));
	} while (ret == -ETIMEDOUT);
	return ret;
}

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

/* Queues one read; waits for the oldest when there are enough. */
static int queue_read(struct load *load, uint64_t off, uint64_t foff, uint64_t len)
{
	int ret;

	if (load->queued == QUEUED) {
		ret = wait_reporting(load, load->runs, load->queue[0]);
		if (ret)
			return ret;
		load->queued--;
		memmove(load->queue, load->queue + 1, load->queued * sizeof(*load->queue));
	}
	ret = pinion_stream_read(load->runs, load->buf, off, load->fd, foff, len, &load->queue[load->queued]);
	if (!ret)
		load->queued++;
	return ret;
}

static bool same_run(const struct index_tensor *a, const struct index_tensor *b)
{
	return !b->moved && b->offset - a->offset == b->file_offset - a->file_offset;
}

/*
 * Reads the run that begins with tensor @i, in whole blocks, which the layout keeps free around it; returns the first
 * tensor after it in *@next. Gaps between tensors of a run are read with them.
 */
static int read_run(struct load *load, uint64_t i, uint64_t *next)
{
	const struct index_tensor *t = index_tensors(load->block), *first = &t[i];
	uint64_t end = first->file_offset + first->bytes, from, to, size = pinion_buffer_size(load->buf);
	int ret = 0;

	for (i++; i < load->block->tensor_count && (!t[i].bytes || same_run(first, &t[i])); i++)
		if (t[i].bytes)
			end = t[i].file_offset + t[i].bytes;
	*next = i;
	from = first->file_offset - first->offset % INDEX_BLOCK;
	to = round_up(load, end);
	/* The last block of the buffer may end before the file's block does. */
	if (to - first->file_offset > size - first->offset)
		to = first->file_offset + (size - first->offset);
	for (uint64_t part; !ret && from < to; from += part) {
		part = RUN_BYTES - from % RUN_BYTES < to - from ? RUN_BYTES - from % RUN_BYTES : to - from;
		ret = queue_read(load, first->offset + from - first->file_offset, from, part);
	}
	return ret;
}

/* ---- moved tensors ------------------------------------------------------------------------------------------------- */

/* The part of tensor @t that lies in [@from, @from + @len) of the file: where it begins there, and how long it is. */
static uint64_t part_of(const struct index_tensor *t, uint64_t from, uint64_t len, uint64_t *at)
{
	uint64_t end = t->file_offset + t->bytes, to = from + len;

	*at = t->file_offset > from ? t->file_offset : from;
	end = end < to ? end : to;
	return end > *at ? end - *at : 0;
}

/* Runs on the stage, after its read. */
static int scatter(void *arg)
{
	struct part *part = arg;
	struct load *load = part->load;
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t moved = 0, at, len;

	if (__atomic_load_n(&load->given_up, __ATOMIC_RELAXED))
		return fail(ECANCELED, "the load was given up");
	for (uint64_t i = part->first; i < load->block->tensor_count; i++) {
		if (!t[i].moved)
			continue;
		if (t[i].file_offset >= part->from + part->len)
			break;
		len = part_of(&t[i], part->from, part->len, &at);
		memcpy(load->data + t[i].offset + (at - t[i].file_offset), load->staging_data + (at - part->from), len);
		moved += len;
	}
	__atomic_add_fetch(&load->moved, moved, __ATOMIC_RELEASE);
	return 0;
}

static int open_stream(struct pinion_device *dev, enum pinion_io io, uint32_t depth, struct pinion_stream **out)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .io = io, .depth = depth };

	return pinion_stream_new(dev, &opts, out);
}

static int open_staging(struct load *load)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_NONE, .label = "pinion-staging" };
	struct pinion_device *dev;
	void *addr;
	int ret;

	if (load->staging)
		return 0;
	ret = pinion_device_find(load->ctx, load->opts.device, &dev);
	/* What the page cache holds does not come here, so it need not be asked a second time. */
	if (!ret)
		ret = open_stream(dev, PINION_IO_DIRECT, 2, &load->stage);
	if (!ret)
		ret = pinion_buffer_alloc(load->ctx, STAGE_BYTES, &opts, &load->staging);
	if (!ret)
		ret = pinion_buffer_map(load->staging, PINION_READ | PINION_WRITE, &addr);
	if (!ret)
		load->staging_data = addr;
	return ret;
}

/*
 * Queues [@from, @from + @len) of the file. The stream does one thing after the other, so nobody has to wait here for the
 * staging buffer to be free: threads that wake each other for every part cost more than they share.
 */
static int stage_part(struct load *load, uint64_t first, uint64_t from, uint64_t len)
{
	struct part *part = malloc(sizeof(*part));
	int ret;

	if (!part)
		return fail(ENOMEM, "no memory to stage a part of the file");
	*part = (struct part){ .next = load->parts, .load = load, .from = from, .len = len, .first = first };
	load->parts = part;
	ret = report(load);
	if (!ret)
		ret = pinion_stream_read(load->stage, load->staging, 0, load->fd, from, len, NULL);
	return ret ? ret : pinion_stream_call(load->stage, scatter, part, NULL);
}

/* Waits for all that was queued. */
static int finish_stage(struct load *load)
{
	int ret;

	do {
		ret = report(load);
		if (ret)
			return ret;
		ret = pinion_stream_flush(load->stage, pinion_deadline_in(PROGRESS_NS));
	} while (ret == -ETIMEDOUT);
	return ret;
}

/* Reads the moved tensors' parts of [@from, @from + @len) to their places, without staging. */
static int read_parts(struct load *load, uint64_t first, uint64_t from, uint64_t len)
{
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t at, part;
	int ret = 0;

	for (uint64_t i = first; !ret && i < load->block->tensor_count && t[i].file_offset < from + len; i++) {
		if (!t[i].moved)
			continue;
		part = part_of(&t[i], from, len, &at);
		if (part)
			ret = queue_read(load, t[i].offset + (at - t[i].file_offset), at, part);
	}
	return ret;
}

/* Whether the kernel's copy from the page cache can go to the place itself. */
static bool want_unstaged(const struct load *load, uint64_t from, uint64_t len)
{
	if (load->opts.io == PINION_IO_DIRECT)
		return false;
	return load->opts.io == PINION_IO_BUFFERED || load->file->direct_fd < 0 || file_is_cached(load->file, from, len);
}

/* The moved tensors from @i up to the next placed one. */
static int read_moved(struct load *load, uint64_t i, uint64_t *next)
{
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t first = i, from = round_down(t[i].file_offset), end = 0, to;
	int ret = open_staging(load);

	for (; i < load->block->tensor_count && (t[i].moved || !t[i].bytes); i++)
		if (t[i].bytes)
			end = t[i].file_offset + t[i].bytes;
	*next = i;
	to = round_up(load, end);
	for (uint64_t part; !ret && from < to; from += part) {
		part = STAGE_BYTES < to - from ? STAGE_BYTES : to - from;
		while (t[first].file_offset + t[first].bytes <= from)
			first++;
		if (want_unstaged(load, from, part))
			ret = read_parts(load, first, from, part);
		else
			ret = stage_part(load, first, from, part);
	}
	return ret;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static int read_tensors(struct load *load)
{
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t i = 0;
	int ret = 0;

	while (!ret && i < load->block->tensor_count) {
		if (!t[i].bytes)
			i++;
		else
			ret = t[i].moved ? read_moved(load, i, &i) : read_run(load, i, &i);
	}
	/* The oldest first: where one fails, those behind it can only say that they were not run. */
	for (uint32_t q = 0; !ret && q < load->queued; q++)
		ret = wait_reporting(load, load->runs, load->queue[q]);
	if (!ret && load->stage)
		ret = finish_stage(load);
	return ret;
}

/* A file that changed under the load may have given its old header and its new data. */
static int check_unchanged(const struct load *load, const char *path)
{
	struct stat now;

	if (fstat(load->fd, &now))
		return fail_errno(errno, "%s", path);
	if (now.st_size != load->before.st_size || now.st_mtim.tv_sec != load->before.st_mtim.tv_sec ||
	    now.st_mtim.tv_nsec != load->before.st_mtim.tv_nsec)
		return fail(EBADMSG, "%s changed while it was read (it had %lld bytes, now %lld); load it again when it is whole", path,
			    (long long)load->before.st_size, (long long)now.st_size);
	return 0;
}

static int open_file(struct load *load, const char *path)
{
	int ret;

	load->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (load->fd < 0)
		return fail_errno(errno, "%s", path);
	if (fstat(load->fd, &load->before))
		return fail_errno(errno, "%s", path);
	/* A header of some MiB read in order would start a read-ahead of ten times as much of what is better read directly. */
	posix_fadvise(load->fd, 0, 0, POSIX_FADV_RANDOM);
	ret = index_read(load->fd, path, &load->block);
	posix_fadvise(load->fd, 0, 0, POSIX_FADV_NORMAL);
	return ret;
}

static int open_buffer(struct load *load)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .pages = load->opts.pages, .hold = load->opts.hold,
					   .label = "pinion-model" };
	void *addr;
	int ret = pinion_buffer_alloc(load->ctx, load->block->buffer_bytes, &opts, &load->buf);

	if (!ret)
		ret = pinion_buffer_map(load->buf, PINION_READ | PINION_WRITE, &addr);
	if (!ret)
		load->data = addr;
	return ret;
}

static int open_runs(struct load *load)
{
	struct pinion_device *dev;
	int ret = pinion_device_find(load->ctx, load->opts.device, &dev);

	if (!ret)
		ret = open_stream(dev, load->opts.io, 4, &load->runs);
	if (!ret)
		ret = file_open(load->fd, false, &load->file);
	return ret;
}

/* Everything but what the model keeps. */
static void close_load(struct load *load)
{
	struct part *part;

	/* After a failure what is still queued need not be copied. */
	__atomic_store_n(&load->given_up, true, __ATOMIC_RELAXED);
	pinion_stream_free(load->runs);
	pinion_stream_free(load->stage);
	while ((part = load->parts)) {
		load->parts = part->next;
		free(part);
	}
	pinion_buffer_unref(load->staging);
	if (load->file)
		file_unref(load->file);
	if (load->fd >= 0)
		close(load->fd);
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
	struct load load = { .ctx = ctx, .opts = { .size = sizeof(load.opts) }, .fd = -1 };
	int64_t start, made;
	int changed, ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&load.opts, sizeof(load.opts), opts, "pinion_load_opts");
	if (!ret && load.opts.io > PINION_IO_DIRECT)
		ret = fail(EINVAL, "pinion_load_opts.io is %d, not one of enum pinion_io", load.opts.io);
	if (!load.opts.device)
		load.opts.device = "hostio";
	if (!ret)
		ret = open_file(&load, path);
	start = deadline_now();
	if (!ret)
		ret = open_buffer(&load);
	made = deadline_now();
	if (!ret)
		ret = open_runs(&load);
	if (!ret) {
		load.total = load.block->tensor_bytes;
		ret = read_tensors(&load);
		/* A change explains a read that failed, too. */
		changed = ret && load.cancelled ? 0 : check_unchanged(&load, path);
		ret = changed ? changed : ret;
	}
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
