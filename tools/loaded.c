/* SPDX-License-Identifier: MIT */
#include "loaded.h"

#include "format.h"
#include "models.h"
#include "pinion.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

/* What there is to say of a model. */
struct facts {
	struct pinion_load_stats stats; /* zeros of one that was loaded elsewhere */
	struct pinion_index_info info;
	struct pinion_buffer_info buf;
};

static int gather(const struct pinion_model *m, struct facts *f)
{
	int ret;

	*f = (struct facts){ .stats = { .size = sizeof(f->stats), .buffered_why = "", .cached_by = "", .unregistered_why = "" },
			     .info = { .size = sizeof(f->info) },
			     .buf = { .size = sizeof(f->buf) } };
	ret = pinion_model_load_stats(m, &f->stats);
	if (!ret || ret == -ENODATA)
		ret = pinion_model_info(m, &f->info);
	return ret ? ret : pinion_buffer_info(pinion_model_buffer(m), &f->buf);
}

/* ---- the line ------------------------------------------------------------------------------------------------------ */

static void print_read(FILE *out, const struct pinion_load_stats *stats)
{
	if (!stats->bytes_read) {
		fprintf(out, "nothing to read");
		return;
	}
	fprintf(out, "read %s (direct %u %%", rate_text(stats->bytes_read, stats->read_ns).s,
		percent(stats->direct_bytes, stats->bytes_read));
	if (stats->registered_bytes)
		fprintf(out, ", registered %u %%", percent(stats->registered_bytes, stats->bytes_read));
	if (stats->buffered_bytes && *stats->buffered_why)
		fprintf(out, "; the rest: %s", stats->buffered_why);
	fprintf(out, "), moved %s", size_text(stats->moved_bytes).s);
}

static void print_buffer(FILE *out, const struct memory *memory, const struct pinion_buffer_info *buf)
{
	if (buf->page_size > sysconf(_SC_PAGESIZE) || buf->huge_bytes)
		fprintf(out, ", huge pages %" PRIu64 " of %" PRIu64 " MiB", buf->huge_bytes / MIB, buf->bytes / MIB);
	else
		fprintf(out, ", pages of %s", size_text(buf->page_size).s);
	memory_print_node(out, memory, buf);
	memory_print_hold(out, buf);
	fprintf(out, ", %s", buf->rights == PINION_READ ? "sealed read-only" : "writable");
}

static void print_hash(FILE *out, const struct pinion_model *m, uint64_t shards)
{
	struct pinion_shard shard = { .size = sizeof(shard) };

	if (shards > 1)
		fprintf(out, ", SHA-256 of %" PRIu64 " files kept", shards);
	else if (!pinion_model_shard_at(m, 0, &shard))
		fprintf(out, ", SHA-256 %s", shard.sha256);
}

static char *line_of(const struct hold *h, const struct pinion_model *m, const struct facts *f)
{
	size_t bytes;
	char *text;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		no_memory();
	fprintf(out, "%s: %s, %" PRIu64 " tensors, ", h->name, size_text(f->info.tensor_bytes).s, f->info.tensors);
	print_read(out, &f->stats);
	print_buffer(out, &h->memory, &f->buf);
	if (h->opts.hash)
		print_hash(out, m, f->info.shards);
	fprintf(out, ", ready in %s", seconds_text(pinion_deadline_in(0) - h->start_ns).s);
	if (fclose(out))
		no_memory();
	return text;
}

/* ---- the object ---------------------------------------------------------------------------------------------------- */

static json_t *shards_of(const struct pinion_model *m)
{
	struct pinion_shard shard = { .size = sizeof(shard) };
	json_t *array = json_new_array();

	for (uint64_t i = 0; !pinion_model_shard_at(m, i, &shard); i++)
		json_add(array, shard_object(&shard));
	return array;
}

static json_t *object_of(const struct hold *h, const struct pinion_model *m, const struct memory *memory, const struct facts *f)
{
	json_t *object = json_new_object();

	json_set_text(object, "name", h->name);
	json_set_text(object, "path", h->shown);
	json_set(object, "loaded", json_true());
	json_set(object, "pid", json_integer(getpid()));
	json_set_text(object, "format", f->info.format);
	json_set_number(object, "tensors", f->info.tensors);
	json_set_number(object, "tensor_bytes", f->info.tensor_bytes);
	memory_set(object, memory, &f->buf);
	json_set_number(object, "bytes_read", f->stats.bytes_read);
	json_set_number(object, "direct_bytes", f->stats.direct_bytes);
	json_set_number(object, "buffered_bytes", f->stats.buffered_bytes);
	json_set_text(object, "buffered_why", f->stats.buffered_why);
	json_set_number(object, "registered_bytes", f->stats.registered_bytes);
	json_set_text(object, "unregistered_why", f->stats.unregistered_why);
	json_set_number(object, "cached_bytes", f->stats.cached_bytes);
	json_set_text(object, "cached_by", f->stats.cached_by);
	json_set_number(object, "moved_bytes", f->stats.moved_bytes);
	json_set_number(object, "staging_bytes", f->stats.staging_bytes);
	json_set_number(object, "alloc_ns", f->stats.alloc_ns);
	json_set_number(object, "read_ns", f->stats.read_ns);
	json_set_number(object, "ns", pinion_deadline_in(0) - h->start_ns);
	json_set(object, "shards", shards_of(m));
	return object;
}

int loaded_here(const struct hold *h, const struct pinion_model *m, char **text)
{
	struct facts f;
	int ret = gather(m, &f);

	if (!ret)
		*text = h->json ? json_line(object_of(h, m, &h->memory, &f)) : line_of(h, m, &f);
	return ret;
}

/* How the memory is held is told by the holder: the buffer here is this process's view of it. */
int loaded_elsewhere(const struct hold *h, struct pinion_context *ctx, const struct pinion_model *m, char **text)
{
	struct pinion_name_info name = { .size = sizeof(name) };
	struct memory nothing = { 0 };
	struct facts f;
	json_t *object;
	int ret = gather(m, &f);

	if (!ret)
		ret = pinion_name_show(ctx, h->name, &name, NULL, 0, NULL);
	if (ret)
		return ret;
	f.buf.huge_bytes = name.huge_bytes;
	object = object_of(h, m, &nothing, &f);
	json_set(object, "loaded", json_false());
	json_set(object, "pid", json_integer(name.pid));
	json_set_text(object, "hold", name.hold);
	json_set_text(object, "hold_why", name.hold_why);
	*text = json_line(object);
	return 0;
}
