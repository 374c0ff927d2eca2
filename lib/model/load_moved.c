/* SPDX-License-Identifier: MIT */
/*
 * load_moved: moved tensors are read to a staging buffer and copied to theirs, in turn on one stream: two slots, one being filled
 * while the other is copied, took a third more CPU time for a byte and gained some 6 % of the time (measured). Where the page cache
 * holds the bytes already they are read to their place without staging, which is one copy instead of two.
 */
#include "load.h"

#include "../error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define STAGE_BYTES (UINT64_C(8) << 20) /* of the staging buffer: as much as the pieces in flight */
#define SMALL_BYTES (UINT64_C(64) << 10) /* tensors of less than this, on average, are not worth a read each */
#define VECTORS 512

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
	for (uint64_t i = part->first; i < load_shard_end(load); i++) {
		if (!t[i].moved)
			continue;
		if (t[i].file_offset >= part->from + part->len)
			break;
		len = part_of(&t[i], part->from, part->len, &at);
		memcpy(load->data + t[i].offset + (at - t[i].file_offset), load->staging_data + (at - part->from), len);
		moved += len;
	}
	__atomic_add_fetch(&load->moved, moved, __ATOMIC_RELEASE);
	__atomic_store_n(&part->done, true, __ATOMIC_RELEASE);
	return 0;
}

static int open_staging(struct load *load)
{
	struct pinion_buffer_opts opts = { .size = sizeof(opts), .hold = PINION_HOLD_NONE, .label = "pinion-staging" };
	void *addr;
	int ret;

	if (load->staging)
		return 0;
	/* What the page cache holds does not come here, so it need not be asked a second time. */
	ret = load_open_stream(load, PINION_IO_DIRECT, 2, &load->stage);
	if (!ret)
		ret = pinion_buffer_alloc(load->ctx, STAGE_BYTES, &opts, &load->staging);
	if (!ret)
		ret = pinion_buffer_map(load->staging, PINION_READ | PINION_WRITE, &addr);
	if (!ret)
		load->staging_data = addr;
	return ret;
}

/* A part for the streams' threads, in the list by which it is freed. */
static struct part *new_part(struct load *load, uint64_t first, uint64_t from, uint64_t len)
{
	struct part *part = malloc(sizeof(*part));

	if (!part)
		return NULL;
	*part = (struct part){ .next = load->parts, .load = load, .from = from, .len = len, .first = first };
	load->parts = part;
	return part;
}

/*
 * Queues [@from, @from + @len) of the file. The stream does one thing after the other, so nobody has to wait here for the
 * staging buffer to be free: threads that wake each other for every part cost more than they share.
 */
static int stage_part(struct load *load, uint64_t first, uint64_t from, uint64_t len)
{
	struct part *part;
	int ret = open_staging(load);

	if (ret)
		return ret;
	part = new_part(load, first, from, len);
	if (!part)
		return fail(ENOMEM, "no memory to stage a part of the file");
	if (load->newest)
		load->newest->later = part;
	if (!load->oldest)
		load->oldest = part;
	load->newest = part;
	ret = load_report(load);
	if (!ret)
		ret = pinion_stream_read(load->stage, load->staging, 0, load->fd, from, len, NULL);
	return ret ? ret : pinion_stream_call(load->stage, scatter, part, NULL);
}

/* Waits for all that was queued. */
int load_wait_moved(struct load *load)
{
	int ret;

	do {
		ret = load_report(load);
		if (ret)
			return ret;
		ret = pinion_stream_flush(load->stage, pinion_deadline_in(load_tick_ns(load)));
	} while (ret == -ETIMEDOUT);
	return ret;
}

/* ---- moved tensors that the page cache holds ----------------------------------------------------------------------- */

/*
 * The places of what comes from @pos of the file on, up to @end: moved tensors there lie one behind the other. @i: the first
 * that has bytes after @pos.
 */
static int place_vectors(const struct load *load, uint64_t *i, uint64_t pos, uint64_t end, struct iovec vector[VECTORS])
{
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t at, len;
	int n = 0;

	while (t[*i].file_offset + t[*i].bytes <= pos)
		++*i;
	for (uint64_t k = *i; k < load_shard_end(load) && t[k].file_offset < end && n < VECTORS; k++) {
		len = part_of(&t[k], pos, end - pos, &at);
		if (len)
			vector[n++] = (struct iovec){ load->data + t[k].offset + (at - t[k].file_offset), len };
	}
	return n;
}

/* Runs on a stream: one system call for hundreds of small tensors, each to its place. */
static int read_vectors(void *arg)
{
	struct part *part = arg;
	struct load *load = part->load;
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t i = part->first, pos = part->from, end = part->from + part->len;
	struct iovec vector[VECTORS];

	pos = t[i].file_offset > pos ? t[i].file_offset : pos;
	while (pos < end) {
		ssize_t n;

		if (__atomic_load_n(&load->given_up, __ATOMIC_RELAXED))
			return fail(ECANCELED, "the load was given up");
		n = preadv(load->fd, vector, place_vectors(load, &i, pos, end, vector), pos);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_errno(errno, "reading at offset %llu", (unsigned long long)pos);
		if (n == 0)
			return fail(ENODATA, "the file ends at %llu, %llu bytes more are needed", (unsigned long long)pos,
				    (unsigned long long)(end - pos));
		pos += n;
		__atomic_add_fetch(&load->vectored, n, __ATOMIC_RELEASE);
	}
	return 0;
}

static int queue_vectors(struct load *load, struct pinion_stream *s, uint64_t first, uint64_t from, uint64_t len)
{
	struct part *part;
	int ret = load_queue_room(load);

	if (ret)
		return ret;
	part = new_part(load, first, from, len);
	if (!part)
		return fail(ENOMEM, "no memory to read a part of the file");
	load->vectored_why = load->opts.io == PINION_IO_BUFFERED ? "asked for" : load->cached.file ? LOAD_IS_THERE : load->file->why;
	ret = pinion_stream_call(s, read_vectors, part, &load->queue[load->queued]);
	if (!ret)
		load_queue_take(load, s, from);
	return ret;
}

/* Whether so many tensors begin in the range that a read for each would cost more than their bytes. */
static bool are_small(const struct load *load, uint64_t first, uint64_t from, uint64_t len)
{
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t most = len / SMALL_BYTES + 1, n = 0;

	for (uint64_t i = first; i < load_shard_end(load) && t[i].file_offset < from + len && n <= most; i++)
		n += t[i].bytes != 0;
	return n > most;
}

/* Reads the moved tensors' parts of [@from, @from + @len), which ends with the last of them, to their places, without staging. */
static int read_parts(struct load *load, uint64_t first, uint64_t from, uint64_t len)
{
	const struct index_tensor *t = index_tensors(load->block);
	struct pinion_stream *s;
	uint64_t at, part;
	int ret = load_warm_stream(load, &s);

	if (ret)
		return ret;
	if (are_small(load, first, from, len))
		return queue_vectors(load, s, first, from, len);
	for (uint64_t i = first; !ret && i < load_shard_end(load) && t[i].file_offset < from + len; i++) {
		if (!t[i].moved)
			continue;
		part = part_of(&t[i], from, len, &at);
		if (part)
			ret = load_queue_read(load, s, t[i].offset + (at - t[i].file_offset), at, part);
	}
	return ret;
}

/* Whether the kernel's copy from the page cache can go to the place itself. */
static bool want_unstaged(struct load *load, uint64_t from, uint64_t len)
{
	if (load->opts.io == PINION_IO_DIRECT)
		return false;
	if (!load->cached.file)
		return true;
	load->looked_at += len;
	return load_is_warm(load, from, len, &load->found);
}

/* The moved tensors from @i up to the next placed one. */
int load_moved(struct load *load, uint64_t i, uint64_t *next)
{
	const struct index_tensor *t = index_tensors(load->block);
	uint64_t first = i, from = load_round_down(t[i].file_offset), end = 0, to;
	int ret = 0;

	for (; i < load_shard_end(load) && (t[i].moved || !t[i].bytes); i++)
		if (t[i].bytes)
			end = t[i].file_offset + t[i].bytes;
	*next = i;
	to = load_round_up(load, end);
	for (uint64_t part; !ret && from < to; from += part) {
		part = STAGE_BYTES < to - from ? STAGE_BYTES : to - from;
		while (t[first].file_offset + t[first].bytes <= from)
			first++;
		if (want_unstaged(load, from, part))
			ret = read_parts(load, first, from, from + part < end ? part : end - from);
		else
			ret = stage_part(load, first, from, part);
		load->queued_to = from + part < end ? from + part : end;
	}
	return ret;
}
