/* SPDX-License-Identifier: MIT */
/*
 * streams: requests of one size past the page cache, by a stream and by a bare ring that has the same buffer and file
 * registered, and by a stream that registers nothing. What registering saves is CPU time; the disk takes what it takes.
 */
#include "pages.h"
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pinion/device.h>
#include <pinion/stream.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define DEPTH	   4
#define FILE_BYTES (UINT64_C(68) << 20)
#define MOST_BYTES (UINT64_C(64) << 20)
#define REQUESTS   2048

static const struct size {
	uint32_t bytes;
	const char *name;
} sizes[] = {
	{ 4096, "stream, requests of 4 KiB, CPU" },
	{ 64 << 10, "stream, requests of 64 KiB, CPU" },
	{ 4 << 20, "stream, requests of 4 MiB, CPU" },
};

struct streaming {
	struct pinion_stream *stream, *plain;
	struct touched memory;
	struct io_uring ring;
	int fd;
	uint32_t request;
	uint64_t bytes; /* of a measurement */
};

static uint64_t requests(const struct streaming *st)
{
	return st->bytes / st->request;
}

/* ---- ways ---------------------------------------------------------------------------------------------------- */

static void stop(const struct streaming *st, double start, double cpu, struct sample *out)
{
	out->of[TIME] = (now_ns() - start) / requests(st);
	out->of[CPU] = (process_cpu_ns() - cpu) / requests(st);
}

static int by_stream(struct streaming *st, struct pinion_stream *s, struct sample *out)
{
	double cpu = process_cpu_ns(), start = now_ns();
	int ret = pinion_stream_read(s, st->memory.buf, 0, st->fd, 0, st->bytes, NULL);

	if (!ret)
		ret = pinion_stream_flush(s, PINION_FOREVER);
	if (ret)
		return broke_pinion(ret, "reading by a stream");
	stop(st, start, cpu, out);
	return 0;
}

static int way_stream(void *arg, struct sample *out)
{
	struct streaming *st = arg;

	return by_stream(st, st->stream, out);
}

static int way_plain(void *arg, struct sample *out)
{
	struct streaming *st = arg;

	return by_stream(st, st->plain, out);
}

static void send_next(struct streaming *st, uint64_t at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&st->ring);

	io_uring_prep_read_fixed(sqe, 0, st->memory.addr + at, st->request, at, 0);
	sqe->flags |= IOSQE_FIXED_FILE;
}

/* As many at a time as the stream has in flight. */
static int way_ring(void *arg, struct sample *out)
{
	struct streaming *st = arg;
	double cpu = process_cpu_ns(), start = now_ns();
	uint64_t sent = 0, done = 0;
	struct io_uring_cqe *cqe;

	while (done < st->bytes) {
		for (; sent < st->bytes && sent - done < DEPTH * (uint64_t)st->request; sent += st->request)
			send_next(st, sent);
		io_uring_submit_and_wait(&st->ring, 1);
		while (!io_uring_peek_cqe(&st->ring, &cqe)) {
			int res = cqe->res;

			io_uring_cqe_seen(&st->ring, cqe);
			if (res != (int)st->request)
				return broke(res < 0 ? -res : EIO, "a ring read %d bytes of %u", res, st->request);
			done += res;
		}
	}
	stop(st, start, cpu, out);
	return 0;
}

/* ---- rows ---------------------------------------------------------------------------------------------------- */

static int ring_ready(struct streaming *st)
{
	struct iovec iov = { st->memory.addr, st->memory.bytes };
	int ret = io_uring_queue_init(2 * DEPTH, &st->ring, 0);

	if (ret)
		return broke(-ret, "a ring: %s", strerror(-ret));
	ret = io_uring_register_buffers(&st->ring, &iov, 1);
	if (!ret)
		ret = io_uring_register_files(&st->ring, &st->fd, 1);
	if (!ret)
		return 0;
	io_uring_queue_exit(&st->ring);
	return broke(-ret, "registering with a ring: %s", strerror(-ret));
}

static int streams_ready(struct streaming *st, struct pinion_context *ctx)
{
	struct pinion_stream_opts opts = { .size = sizeof(opts), .depth = DEPTH, .piece = st->request, .io = PINION_IO_DIRECT };
	struct pinion_device *dev;
	int ret = pinion_device_find(ctx, "hostio", &dev);

	if (!ret)
		ret = pinion_stream_new(dev, &opts, &st->stream);
	opts.registered = PINION_REGISTERED_NEVER;
	if (!ret)
		ret = pinion_stream_new(dev, &opts, &st->plain);
	return ret ? broke_pinion(ret, "a stream") : 0;
}

static void put_rows(struct rows *r, const struct streaming *st, const struct size *size, const struct trial *t)
{
	struct pinion_stream_stats stats = { .size = sizeof(stats) };
	char pages[PAGES_TEXT];
	struct row row = { .name = size->name,
			   .against = "a bare ring, the same registered",
			   .figure = trial_figure(t, 0, CPU).median / 1e3,
			   .unit = "us",
			   .ratio = trial_ratio(t, 0, 1, CPU),
			   .same = trial_ratio(t, 2, 1, CPU),
			   .bar = BAR_RATIO_MAX,
			   .limit = 1.1,
			   .pages = pages };

	pages_of_buffer(pages, st->memory.buf);
	pinion_stream_stats(st->stream, &stats);
	row.note = *stats.unregistered_why ? stats.unregistered_why : NULL;
	table_row(r->table, &row);
	row.against = "the same, registering nothing";
	row.bar = BAR_NONE;
	row.ratio = trial_ratio(t, 0, 3, CPU);
	row.same = (struct spread){ 0 };
	row.note = NULL;
	table_row(r->table, &row);
}

static int measure(struct rows *r, struct streaming *st, struct pinion_context *ctx, const struct size *size)
{
	static struct trial t;
	uint64_t most = (uint64_t)size->bytes * REQUESTS;
	double ns;
	int ret;

	st->request = size->bytes;
	st->bytes = most < MOST_BYTES ? most : MOST_BYTES;
	st->stream = st->plain = NULL;
	ret = streams_ready(st, ctx);
	trial_start(&t, ROUNDS);
	trial_add(&t, way_stream, st);
	trial_add(&t, way_ring, st);
	trial_add(&t, way_ring, st);
	trial_add(&t, way_plain, st);
	if (!ret)
		ret = trial_warm(&t, &ns);
	if (!ret)
		ret = trial_run(&t);
	if (ret)
		table_broken(r->table, size->name);
	else
		put_rows(r, st, size, &t);
	pinion_stream_free(st->stream);
	pinion_stream_free(st->plain);
	return ret;
}

static int make_ready(struct rows *r, struct streaming *st, struct pinion_context **ctx, struct model_file *file)
{
	int ret = model_file_gguf(file, r->files, "stream.gguf", FILE_BYTES, 1);

	if (ret)
		return ret;
	st->fd = open(file->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (st->fd < 0)
		return broke(errno, "%s past the page cache: %s", file->path, strerror(errno));
	ret = pinion_open(NULL, ctx);
	if (ret)
		return broke_pinion(ret, "a context");
	ret = touched_open(*ctx, MOST_BYTES, &st->memory);
	return ret ? ret : ring_ready(st);
}

void rows_stream(struct rows *r)
{
	struct streaming st = { .fd = -1 };
	struct pinion_context *ctx = NULL;
	struct model_file file = { 0 };

	if (!*r->files) {
		table_absent(r->table, "stream", r->files_why);
		return;
	}
	if (make_ready(r, &st, &ctx, &file)) {
		table_broken(r->table, "stream");
	} else {
		for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			if (measure(r, &st, ctx, &sizes[i]))
				break;
		io_uring_queue_exit(&st.ring);
	}
	if (st.memory.buf)
		touched_close(&st.memory);
	if (ctx)
		pinion_close(ctx);
	if (st.fd >= 0)
		close(st.fd);
	if (file.bytes)
		model_file_remove(&file);
}
