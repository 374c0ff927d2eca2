/* SPDX-License-Identifier: MIT */
#include "index.h"

#include "../error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pinion_index {
	struct index_block *block;
};

static const uint32_t *by_name(const struct index_block *b)
{
	return (const uint32_t *)((const char *)b + b->by_name);
}

static const char *name_at(const struct index_block *b, uint64_t i)
{
	return index_string(b, index_tensors(b)[by_name(b)[i]].name);
}

int64_t index_find(const struct index_block *b, const char *name)
{
	uint64_t low = 0, high = b->tensor_count;

	while (low < high) {
		uint64_t mid = low + (high - low) / 2;
		int order = strcmp(name, name_at(b, mid));

		if (!order)
			return by_name(b)[mid];
		if (order < 0)
			high = mid;
		else
			low = mid + 1;
	}
	return -1;
}

void index_describe(const struct index_block *b, uint64_t i, struct pinion_tensor *out)
{
	const struct index_tensor *t = &index_tensors(b)[i];

	*out = (struct pinion_tensor){
		.name = index_string(b, t->name),
		.type = t->type,
		.rank = t->rank,
		.bytes = t->bytes,
		.file_offset = t->file_offset,
		.offset = t->offset,
		.shard = t->shard,
	};
	memcpy(out->shape, t->shape, sizeof(out->shape));
}

void index_describe_file(const struct index_block *b, struct pinion_index_info *info)
{
	*info = (struct pinion_index_info){
		.size = sizeof(*info),
		.format = b->format == INDEX_GGUF ? "gguf" : "safetensors",
		.version = index_shards(b)->version,
		.alignment = index_shards(b)->alignment,
		.file_bytes = b->file_bytes,
		.data_offset = index_shards(b)->data_offset,
		.tensors = b->tensor_count,
		.tensor_bytes = b->tensor_bytes,
		.buffer_bytes = b->buffer_bytes,
		.moved_bytes = b->moved_bytes,
		.architecture = index_string(b, b->architecture),
		.name = index_string(b, b->model_name),
		.shards = b->shard_count,
		.claimed_bytes = b->claimed_bytes,
	};
}

static void describe_shard(const struct index_block *b, uint32_t i, struct pinion_shard *shard)
{
	const struct index_shard *s = &index_shards(b)[i];

	*shard = (struct pinion_shard){
		.size = sizeof(*shard),
		.file = index_string(b, s->name),
		.file_bytes = s->stamp.bytes,
		.data_offset = s->data_offset,
		.first = s->first,
		.tensors = s->count,
		.outside = s->outside,
		.sha256 = s->sha256,
	};
}

int index_shard_out(const struct index_block *b, uint64_t i, struct pinion_shard *shard)
{
	struct pinion_shard own;

	if (i >= b->shard_count)
		return fail(ENOENT, "there is no file %" PRIu64 ", the model has %" PRIu32, i, b->shard_count);
	describe_shard(b, i, &own);
	return opts_out(shard, &own, sizeof(own), "pinion_shard");
}

/* The parts lie where index_build() puts them, one behind the other, and the last byte ends whatever string is last. */
static int check_parts(const struct index_block *b, uint64_t bytes)
{
	uint64_t shards = sizeof(*b), tensors, names, strings;

	if (bytes < sizeof(*b) || (uintptr_t)b % _Alignof(struct index_block))
		return fail(EPROTO, "%" PRIu64 " bytes at %p cannot be one, which needs %zu or more", bytes,
			    (const void *)b, sizeof(*b));
	if (b->magic != INDEX_MAGIC || b->bytes != bytes)
		return fail(EPROTO, "its magic is %" PRIx64 " and its size %" PRIu64 ", they must be %llx and %" PRIu64,
			    b->magic, b->bytes, INDEX_MAGIC, bytes);
	if (b->tensor_count > UINT32_MAX)
		return fail(EPROTO, "it counts %" PRIu64 " tensors", b->tensor_count);
	if (!b->shard_count || b->shard_count > INDEX_SHARDS_MAX)
		return fail(EPROTO, "it counts %" PRIu32 " files", b->shard_count);
	tensors = shards + b->shard_count * sizeof(struct index_shard);
	names = tensors + b->tensor_count * sizeof(struct index_tensor);
	strings = names + b->tensor_count * sizeof(uint32_t);
	if (b->shards != shards || b->tensors != tensors || b->by_name != names || b->strings != strings || strings >= bytes)
		return fail(EPROTO, "its parts for %" PRIu64 " tensors are not where they belong in %" PRIu64 " bytes",
			    b->tensor_count, bytes);
	if (*((const char *)b + bytes - 1))
		return fail(EPROTO, "its last string does not end");
	return 0;
}

static int check_file(const struct index_block *b)
{
	if (b->format != INDEX_GGUF && b->format != INDEX_SAFETENSORS)
		return fail(EPROTO, "format %" PRIu32 " is not known", b->format);
	if (!b->buffer_bytes || b->buffer_bytes > INT64_MAX)
		return fail(EPROTO, "its buffer has %" PRIu64 " bytes", b->buffer_bytes);
	if (b->claimed_bytes > INT64_MAX)
		return fail(EPROTO, "the bytes it claims are %" PRIu64, b->claimed_bytes);
	return 0;
}

static bool is_sha256(const char text[INDEX_SHA256_ROOM])
{
	size_t digits = 0;

	while (digits < INDEX_SHA256_ROOM && text[digits] && strchr("0123456789abcdef", text[digits]))
		digits++;
	return digits < INDEX_SHA256_ROOM && !text[digits] && (digits == 0 || digits == INDEX_SHA256_ROOM - 1);
}

/* Files whose tensors lie one behind the other, each with a name that is one. */
static int check_shard(const struct index_block *b, const struct index_shard *s, uint64_t first, const char *where)
{
	bool gguf = b->format == INDEX_GGUF;
	bool power = s->alignment && !(s->alignment & (s->alignment - 1));

	if (gguf ? !power || s->version < 2 || s->version > 3 : s->alignment || s->version)
		return fail(EPROTO, "%s: version %" PRIu32 " with alignment %" PRIu32 " is not one of its format", where,
			    s->version, s->alignment);
	if (s->stamp.bytes > INT64_MAX || s->data_offset > s->stamp.bytes)
		return fail(EPROTO, "%s: its data begins at %" PRIu64 " of a file of %" PRIu64, where, s->data_offset,
			    s->stamp.bytes);
	if (s->first != first || s->count > b->tensor_count - first || s->outside > 1)
		return fail(EPROTO, "%s: its tensors are %" PRIu64 " from %" PRIu64 " on", where, s->count, s->first);
	if (s->name < b->strings || s->name >= b->bytes)
		return fail(EPROTO, "%s: its name is at %" PRIu64 ", strings are from %" PRIu64 " to %" PRIu64, where, s->name,
			    b->strings, b->bytes);
	if (s->reserved[0] || s->reserved[1] || s->reserved[2] || !is_sha256(s->sha256))
		return fail(EPROTO, "%s: its SHA-256 is none", where);
	/* As it is in the folder: any byte may be in it. */
	if (strnlen(index_string(b, s->name), INDEX_FILE_MAX + 1) > INDEX_FILE_MAX)
		return fail(EPROTO, "%s: its name has more than %u bytes", where, INDEX_FILE_MAX);
	return 0;
}

static int check_shards(const struct index_block *b)
{
	uint64_t first = 0, file_bytes = 0;
	char where[32];

	for (uint32_t i = 0; i < b->shard_count; i++) {
		const struct index_shard *s = &index_shards(b)[i];
		int ret;

		snprintf(where, sizeof(where), "file %" PRIu32, i);
		ret = check_shard(b, s, first, where);
		if (ret)
			return ret;
		first += s->count;
		/* No overflow: both are below 2^63. */
		file_bytes += s->stamp.bytes;
		if (file_bytes > INT64_MAX)
			break;
	}
	if (first != b->tensor_count || file_bytes != b->file_bytes || file_bytes > INT64_MAX)
		return fail(EPROTO,
			    "it says %" PRIu64 " tensors in %" PRIu64 " bytes, its files have %" PRIu64 " in %" PRIu64,
			    b->tensor_count, b->file_bytes, first, file_bytes);
	return 0;
}

static int check_label(const struct index_block *b, uint64_t offset, const char *what)
{
	uint64_t len;

	if (offset < b->strings || offset >= b->bytes)
		return fail(EPROTO, "the %s is at %" PRIu64 ", strings are from %" PRIu64 " to %" PRIu64, what, offset,
			    b->strings, b->bytes);
	len = strnlen(index_string(b, offset), INDEX_LABEL_MAX + 1);
	if (len > INDEX_LABEL_MAX || text_has_control(index_string(b, offset), len))
		return fail(EPROTO, "the %s has a control character or more than %u bytes", what, INDEX_LABEL_MAX);
	return 0;
}

static int check_name(const struct index_block *b, const struct index_tensor *t, const char *where)
{
	const char *name;

	if (t->name < b->strings || t->name >= b->bytes || !t->name_bytes || t->name_bytes > INDEX_NAME_MAX ||
	    t->name_bytes >= b->bytes - t->name)
		return fail(EPROTO,
			    "%s: its name of %" PRIu32 " bytes is at %" PRIu64 ", strings are from %" PRIu64
			    " to %" PRIu64,
			    where, t->name_bytes, t->name, b->strings, b->bytes);
	name = index_string(b, t->name);
	if (name[t->name_bytes] || text_has_control(name, t->name_bytes))
		return fail(EPROTO, "%s: its name has a control character or is longer than %" PRIu32 " bytes", where,
			    t->name_bytes);
	return 0;
}

static int check_shape(const struct index_block *b, const struct index_tensor *t, const char *where)
{
	uint64_t need;
	int ret;

	if (t->rank > PINION_RANK_MAX)
		return fail(EPROTO, "%s: its rank is %" PRIu32 ", at most %d is allowed", where, t->rank,
			    PINION_RANK_MAX);
	for (uint32_t i = t->rank; i < PINION_RANK_MAX; i++)
		if (t->shape[i] != 1)
			return fail(EPROTO, "%s: dimension %" PRIu32 " beyond its rank is %" PRIu64, where, i,
				    t->shape[i]);
	ret = index_need(t, b->format, where, &need);
	if (!ret && need != t->bytes)
		ret = fail(EPROTO, "%s: its shape needs %" PRIu64 " bytes, it has %" PRIu64, where, need, t->bytes);
	return ret;
}

static int check_place(const struct index_block *b, const struct index_tensor *t, const char *where)
{
	bool aligned =
		t->moved ? t->offset % INDEX_MOVED_ALIGN == 0 : t->offset % INDEX_BLOCK == t->file_offset % INDEX_BLOCK;
	const struct index_shard *s = &index_shards(b)[t->shard];
	int ret = index_inside(where, t->file_offset, t->bytes, s->stamp.bytes);

	if (ret)
		return ret;
	if (t->file_offset < s->data_offset)
		return fail(EPROTO, "%s: it is at %" PRIu64 " of the file, before the data at %" PRIu64, where,
			    t->file_offset, s->data_offset);
	if (b->format == INDEX_GGUF && (t->file_offset - s->data_offset) % s->alignment)
		return fail(EPROTO, "%s: it is at %" PRIu64 " of the data, not a multiple of %" PRIu32, where,
			    t->file_offset - s->data_offset, s->alignment);
	if (t->moved > 1 || (t->moved && (b->format == INDEX_GGUF || !t->bytes)))
		return fail(EPROTO, "%s: moved is %" PRIu32, where, t->moved);
	if (t->bytes ? !aligned : t->offset != 0)
		return fail(EPROTO, "%s: it cannot be at %" PRIu64 " of the buffer", where, t->offset);
	if (t->offset > b->buffer_bytes || t->bytes > b->buffer_bytes - t->offset)
		return fail(EPROTO,
			    "%s: needs %" PRIu64 " bytes at offset %" PRIu64 " of the buffer, which has %" PRIu64,
			    where, t->bytes, t->offset, b->buffer_bytes);
	return 0;
}

/* Every entry of a file by itself, and their order in it. */
static int check_tensors_of(const struct index_block *b, uint32_t shard, uint64_t *tensor_bytes, uint64_t *moved_bytes)
{
	const struct index_shard *s = &index_shards(b)[shard];
	uint64_t end = 0, at = 0;
	char where[32];
	int ret;

	for (uint64_t i = s->first; i < s->first + s->count; i++) {
		const struct index_tensor *t = &index_tensors(b)[i];

		snprintf(where, sizeof(where), "tensor %" PRIu64, i);
		if (t->shard != shard || t->reserved)
			return fail(EPROTO, "%s: it is one of file %" PRIu32 ", not of %" PRIu32, where, shard, t->shard);
		ret = check_name(b, t, where);
		if (!ret)
			ret = check_shape(b, t, where);
		if (!ret)
			ret = check_place(b, t, where);
		if (ret)
			return ret;
		if (t->file_offset < at || (t->bytes && t->file_offset < end))
			return fail(EPROTO, "%s: it is at %" PRIu64 " of the file, the one before it at %" PRIu64,
				    where, t->file_offset, at);
		at = t->file_offset;
		end = t->bytes ? at + t->bytes : end;
		*tensor_bytes += t->bytes;
		*moved_bytes += t->moved ? t->bytes : 0;
	}
	return 0;
}

/* No sum overflows: without overlap the tensors fit the files. */
static int check_tensors(const struct index_block *b)
{
	uint64_t tensor_bytes = 0, moved_bytes = 0;
	int ret = 0;

	for (uint32_t i = 0; i < b->shard_count && !ret; i++)
		ret = check_tensors_of(b, i, &tensor_bytes, &moved_bytes);
	if (!ret && (b->tensor_bytes != tensor_bytes || b->moved_bytes != moved_bytes))
		ret = fail(EPROTO,
			   "it says %" PRIu64 " bytes and %" PRIu64 " moved, its tensors have %" PRIu64 " and %" PRIu64,
			   b->tensor_bytes, b->moved_bytes, tensor_bytes, moved_bytes);
	return ret;
}

/* Names that rise from each to the next are all different, so their entries are too, and none is missing. */
static int check_names(const struct index_block *b)
{
	for (uint64_t i = 0; i < b->tensor_count; i++) {
		if (by_name(b)[i] >= b->tensor_count)
			return fail(EPROTO, "name %" PRIu64 " is of tensor %" PRIu32 " of %" PRIu64, i, by_name(b)[i],
				    b->tensor_count);
		if (i && strcmp(name_at(b, i - 1), name_at(b, i)) >= 0)
			return fail(EPROTO, "name %" PRIu64 " does not come after the one before it", i);
	}
	return 0;
}

int index_check(const void *block, uint64_t bytes)
{
	const struct index_block *b = block;
	int ret = check_parts(b, bytes);

	if (!ret)
		ret = check_file(b);
	if (!ret)
		ret = check_shards(b);
	if (!ret)
		ret = check_label(b, b->architecture, "architecture");
	if (!ret)
		ret = check_label(b, b->model_name, "model's name");
	if (!ret)
		ret = check_tensors(b);
	if (!ret)
		ret = check_names(b);
	return ret ? fail(EPROTO, "the index is refused: %s", pinion_error()) : 0;
}

PINION_API int pinion_index_open(const char *path, struct pinion_index **out)
{
	struct index_block *block;
	struct pinion_index *ix;
	int ret = index_read_path(path, &block);

	if (ret)
		return ret;
	ix = malloc(sizeof(*ix));
	if (!ix) {
		free(block);
		return fail(ENOMEM, "no memory for an index");
	}
	ix->block = block;
	*out = ix;
	return 0;
}

PINION_API void pinion_index_free(struct pinion_index *ix)
{
	if (!ix)
		return;
	free(ix->block);
	free(ix);
}

PINION_API int pinion_index_info(const struct pinion_index *ix, struct pinion_index_info *info)
{
	struct pinion_index_info own;

	assert(ix);
	index_describe_file(ix->block, &own);
	return opts_out(info, &own, sizeof(own), "pinion_index_info");
}

PINION_API int pinion_index_tensor(const struct pinion_index *ix, const char *name, struct pinion_tensor *out)
{
	char shown[INDEX_SHOWN];
	int64_t i;

	assert(ix);
	i = index_find(ix->block, name);
	if (i < 0) {
		text_shown(shown, sizeof(shown), name, strlen(name));
		return fail(ENOENT, "there is no tensor '%s' among the %" PRIu64, shown, ix->block->tensor_count);
	}
	index_describe(ix->block, i, out);
	return 0;
}

PINION_API int pinion_index_tensor_at(const struct pinion_index *ix, uint64_t i, struct pinion_tensor *out)
{
	assert(ix);
	if (i >= ix->block->tensor_count)
		return fail(ENOENT, "there is no tensor %" PRIu64 ", the file has %" PRIu64, i,
			    ix->block->tensor_count);
	index_describe(ix->block, i, out);
	return 0;
}

PINION_API int pinion_index_shard_at(const struct pinion_index *ix, uint64_t i, struct pinion_shard *shard)
{
	assert(ix);
	return index_shard_out(ix->block, i, shard);
}
