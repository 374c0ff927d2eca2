/* SPDX-License-Identifier: MIT */
/*
 * load_runs: tensors that stay where their blocks fall are read straight to their place, in long runs. What the page cache holds is
 * copied from there by a stream of its own, while another reads the rest directly.
 */
#include "load.h"

#include <errno.h>
#include <string.h>

#define RUN_BYTES (UINT64_C(16) << 20)	/* one read of a run: what a cancelled load still waits for, some times over */
#define LOOK_BYTES (UINT64_C(4) << 20) /* of the file, looked at together in the page cache */

/* Waits for one operation, reporting meanwhile. */
static int wait_reporting(struct load *load, struct pinion_stream *s, uint64_t seq)
{
	int ret;

	do {
		ret = load_report(load);
		if (ret)
			return ret;
		ret = pinion_stream_wait(s, seq, pinion_deadline_in(load_tick_ns(load)));
	} while (ret == -ETIMEDOUT);
	return ret;
}

/* Makes room in the queue: waits for the oldest when there are enough. */
int load_queue_room(struct load *load)
{
	int ret;

	if (load->queued < LOAD_QUEUED)
		return 0;
	ret = wait_reporting(load, load->queue_in[0], load->queue[0]);
	if (ret)
		return ret;
	load->queued--;
	memmove(load->queue, load->queue + 1, load->queued * sizeof(*load->queue));
	memmove(load->queue_in, load->queue_in + 1, load->queued * sizeof(*load->queue_in));
	memmove(load->queue_from, load->queue_from + 1, load->queued * sizeof(*load->queue_from));
	return 0;
}

void load_queue_take(struct load *load, struct pinion_stream *s, uint64_t foff)
{
	load->queue_in[load->queued] = s;
	load->queue_from[load->queued++] = foff;
}

int load_queue_read(struct load *load, struct pinion_stream *s, uint64_t off, uint64_t foff, uint64_t len)
{
	int ret = load_queue_room(load);

	if (!ret)
		ret = pinion_stream_read(s, load->buf, off, load->fd, foff, len, &load->queue[load->queued]);
	if (!ret)
		load_queue_take(load, s, foff);
	return ret;
}

/* The oldest first: where one fails, those behind it can only say that they were not run. */
int load_wait_queued(struct load *load)
{
	int ret = 0;

	for (uint32_t q = 0; !ret && q < load->queued; q++)
		ret = wait_reporting(load, load->queue_in[q], load->queue[q]);
	load->queued = 0;
	return ret;
}

/*
 * Whether the page cache holds most of the range, so that to copy it from there costs less than to read it again. What it holds
 * is added to *@found.
 */
bool load_is_warm(struct load *load, uint64_t from, uint64_t len, uint64_t *found)
{
	uint64_t here = cached_bytes(&load->cached, from, len);

	load->sampled |= load->cached.sampled;
	*found += here;
	return here >= len - here;
}

/* The stream for what was found in the page cache; where nobody looked, the one there is. */
int load_warm_stream(struct load *load, struct pinion_stream **s)
{
	int ret = 0;

	if (load->cached.file && !load->warm)
		ret = load_open_stream(load, PINION_IO_BUFFERED, 4, &load->warm);
	if (!ret)
		*s = load->cached.file ? load->warm : load->runs;
	return ret;
}

/* How much from @from on goes by one read, to @to at most: of one temperature, which chooses the stream. */
static int cut_read(struct load *load, uint64_t from, uint64_t to, uint64_t *bytes, struct pinion_stream **s)
{
	uint64_t most = RUN_BYTES - from % RUN_BYTES < to - from ? RUN_BYTES - from % RUN_BYTES : to - from, part;
	bool warm;

	*s = load->runs;
	*bytes = most;
	if (!load->cached.file)
		return 0;
	part = LOOK_BYTES - from % LOOK_BYTES < most ? LOOK_BYTES - from % LOOK_BYTES : most;
	warm = load_is_warm(load, from, part, &load->found);
	for (*bytes = part; *bytes < most; *bytes += part) {
		uint64_t found = 0;

		part = LOOK_BYTES < most - *bytes ? LOOK_BYTES : most - *bytes;
		if (load_is_warm(load, from + *bytes, part, &found) != warm)
			break;
		load->found += found;
	}
	load->looked_at += *bytes;
	return warm ? load_warm_stream(load, s) : 0;
}

static bool same_run(const struct index_tensor *a, const struct index_tensor *b)
{
	return !b->moved && b->offset - a->offset == b->file_offset - a->file_offset;
}

/*
 * Reads the run that begins with tensor @i, in whole blocks, which the layout keeps free around it; returns the first
 * tensor after it in *@next. Gaps between tensors of a run are read with them.
 */
int load_run(struct load *load, uint64_t i, uint64_t *next)
{
	const struct index_tensor *t = index_tensors(load->block), *first = &t[i];
	uint64_t end = first->file_offset + first->bytes, from, to, size = pinion_buffer_size(load->buf);
	int ret = 0;

	for (i++; i < load_shard_end(load) && (!t[i].bytes || same_run(first, &t[i])); i++)
		if (t[i].bytes)
			end = t[i].file_offset + t[i].bytes;
	*next = i;
	from = first->file_offset - first->offset % INDEX_BLOCK;
	to = load_round_up(load, end);
	/* The last block of the buffer may end before the file's block does. */
	if (to - first->file_offset > size - first->offset)
		to = first->file_offset + (size - first->offset);
	for (uint64_t part; !ret && from < to; from += part) {
		struct pinion_stream *s;

		ret = cut_read(load, from, to, &part, &s);
		if (!ret)
			ret = load_queue_read(load, s, first->offset + from - first->file_offset, from, part);
		/* The last block has bytes of a tensor that goes elsewhere. */
		load->queued_to = from + part < end ? from + part : end;
	}
	return ret;
}
