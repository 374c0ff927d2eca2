/* SPDX-License-Identifier: MIT */
#include "through.h"

#include "format.h"
#include "models.h"
#include "pinion.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define PROGRESS_NS INT64_C(100000000)

/* -EPIPE: nobody reads any more. */
static int write_all(const char *data, uint64_t bytes)
{
	while (bytes) {
		ssize_t n = write(STDOUT_FILENO, data, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		bytes -= n;
	}
	return 0;
}

static void show_progress(const struct through *t, uint64_t done, uint64_t total)
{
	static int64_t next;
	int64_t now = pinion_deadline_in(0);

	if (now < next)
		return;
	next = now + PROGRESS_NS;
	report_show(t->file, &(struct report){ .kind = REPORT_PROGRESS, .done = done, .total = total });
}

/* All chunks, each to where it goes. Returns the exit code; -1: all is through. */
static int feed_all(const struct through *t, struct pinion_feed *feed, uint64_t total)
{
	struct pinion_chunk chunk = { .size = sizeof(chunk) };
	uint64_t done = 0;
	int ret, written = 0;

	while (!(ret = pinion_feed_next(feed, &chunk)) && !written) {
		if (t->pipe)
			written = write_all(chunk.data, chunk.bytes);
		done += chunk.bytes;
		pinion_feed_done(feed, &chunk);
		show_progress(t, done, total);
	}
	report_clear();
	if (written == -EPIPE)
		return EXIT_OK;
	if (written) {
		complain("writing the tensors: %s", strerror(-written));
		return EXIT_PROBLEM;
	}
	return ret == -ENODATA ? -1 : refused(ret);
}

static void print_result(const struct through *t, FILE *out, const struct pinion_feed *feed, int64_t ns)
{
	struct pinion_feed_stats stats = { .size = sizeof(stats) };
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_shard shard = { .size = sizeof(shard) };
	char name[512];

	if (pinion_feed_stats(feed, &stats) || pinion_feed_info(feed, &info))
		return;
	fprintf(out, "%s: %s, %" PRIu64 " tensors, ", text_copy(name, sizeof(name), t->file), size_text(info.tensor_bytes).s, info.tensors);
	if (stats.bytes_read)
		fprintf(out, "read %s (direct %u %%), ", rate_text(stats.bytes_read, ns).s, percent(stats.direct_bytes, stats.bytes_read));
	fprintf(out, "through %" PRIu32 " buffers of %s in %s\n", t->opts.buffers, size_text(t->opts.buffer_bytes).s, seconds_text(ns).s);
	for (uint64_t i = 0; t->opts.hash && !pinion_feed_shard_at(feed, i, &shard); i++)
		fprintf(out, "%s  %s\n", shard.sha256, text_copy(name, sizeof(name), shard.file));
}

static void print_object(const struct through *t, FILE *out, const struct pinion_feed *feed, int64_t ns)
{
	struct pinion_feed_stats stats = { .size = sizeof(stats) };
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_shard shard = { .size = sizeof(shard) };
	json_t *object, *shards;

	if (pinion_feed_stats(feed, &stats) || pinion_feed_info(feed, &info))
		return;
	object = json_new_object();
	shards = json_new_array();
	for (uint64_t i = 0; !pinion_feed_shard_at(feed, i, &shard); i++)
		json_add(shards, shard_object(&shard));
	json_set_text(object, "path", t->file);
	json_set_text(object, "format", info.format);
	json_set_number(object, "tensors", info.tensors);
	json_set_number(object, "tensor_bytes", info.tensor_bytes);
	json_set_number(object, "bytes_read", stats.bytes_read);
	json_set_number(object, "direct_bytes", stats.direct_bytes);
	json_set_number(object, "buffered_bytes", stats.buffered_bytes);
	json_set_text(object, "buffered_why", stats.buffered_why);
	json_set_number(object, "buffers", t->opts.buffers);
	json_set_number(object, "buffer_bytes", t->opts.buffer_bytes);
	json_set_number(object, "ns", ns);
	json_set(object, "shards", shards);
	json_print_line(object, out);
}

static int check_sum(const struct through *t, const struct pinion_feed *feed)
{
	struct pinion_shard shard = { .size = sizeof(shard) };
	int ret;

	if (!t->sha256)
		return EXIT_OK;
	ret = pinion_feed_shard_at(feed, 0, &shard);
	if (ret)
		return refused(ret);
	if (!strcasecmp(shard.sha256, t->sha256))
		return EXIT_OK;
	complain("%s: its SHA-256 is %s, not %s", t->file, shard.sha256, t->sha256);
	return EXIT_PROBLEM;
}

static int run_fed(const struct through *t, struct pinion_feed *feed, int64_t start_ns)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	int code, ret = pinion_feed_info(feed, &info);

	if (ret)
		return refused(ret);
	if (t->sha256 && info.shards > 1) {
		complain("%s: it is %" PRIu64 " files, and --sha256 is of one", t->file, info.shards);
		return EXIT_PROBLEM;
	}
	code = feed_all(t, feed, info.tensor_bytes);
	if (code >= 0)
		return code;
	(t->json ? print_object : print_result)(t, t->pipe ? stderr : stdout, feed, pinion_deadline_in(0) - start_ns);
	return check_sum(t, feed);
}

int through_run(const struct through *t)
{
	int64_t start_ns = pinion_deadline_in(0);
	struct pinion_context *ctx;
	struct pinion_feed *feed;
	int code, ret = pinion_open(NULL, &ctx);

	if (ret)
		return refused(ret);
	ret = pinion_feed_open(ctx, t->file, &t->opts, &feed);
	if (ret) {
		code = refused(ret);
	} else {
		code = run_fed(t, feed, start_ns);
		pinion_feed_free(feed);
	}
	pinion_close(ctx);
	return code;
}
