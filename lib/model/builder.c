/* SPDX-License-Identifier: MIT */
/* builder: what a parser has found, checked as a whole and turned into the block of an index. */
#include "../error.h"
#include "index.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/type.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_control(char c)
{
	return (unsigned char)c < 0x20 || c == 0x7f;
}

bool text_has_control(const char *text, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (is_control(text[i]))
			return true;
	return false;
}

void text_shown(char *out, size_t room, const char *text, uint64_t len)
{
	size_t keep = len < room ? len : room - 1;

	/* Not in the middle of a UTF-8 character: back to where it begins. */
	if (keep < len)
		for (unsigned int i = 0; i < 3 && keep && ((unsigned char)text[keep] & 0xc0) == 0x80; i++)
			keep--;
	for (size_t i = 0; i < keep; i++)
		out[i] = is_control(text[i]) ? '?' : text[i];
	out[keep] = '\0';
}

int array_room(void **array, uint64_t count, uint64_t more, uint64_t *room, size_t size)
{
	uint64_t need, want;
	void *larger;

	if (__builtin_add_overflow(count, more, &need))
		return -ENOMEM;
	if (need <= *room)
		return 0;
	want = need < 64 ? 64 : need + need / 2;
	larger = reallocarray(*array, want, size);
	if (!larger)
		return -ENOMEM;
	*array = larger;
	*room = want;
	return 0;
}

int builder_string(struct index_builder *b, const char *text, uint64_t len, uint64_t *offset)
{
	uint64_t first = b->strings_bytes ? 0 : 1;
	void *strings = b->strings;

	/* len is bounded by the callers, so that nothing here overflows. */
	if (array_room(&strings, b->strings_bytes, first + len + 1, &b->strings_room, 1))
		return fail(ENOMEM, "no memory for %" PRIu64 " bytes of names", b->strings_bytes + len);
	b->strings = strings;
	/* Offset 0 is "", for whoever sets none. */
	if (first)
		b->strings[b->strings_bytes++] = '\0';
	*offset = b->strings_bytes;
	memcpy(b->strings + b->strings_bytes, text, len);
	b->strings[b->strings_bytes + len] = '\0';
	b->strings_bytes += len + 1;
	return 0;
}

struct index_tensor *builder_tensor(struct index_builder *b)
{
	void *tensor = b->tensor;
	struct index_tensor *t;

	if (array_room(&tensor, b->tensor_count, 1, &b->tensor_room, sizeof(*t)))
		return NULL;
	b->tensor = tensor;
	t = &b->tensor[b->tensor_count++];
	memset(t, 0, sizeof(*t));
	return t;
}

void builder_free(struct index_builder *b)
{
	free(b->tensor);
	free(b->strings);
	free(b->file);
	b->tensor = NULL;
	b->strings = b->file = NULL;
}

static void shape_shown(char *out, size_t room, const struct index_tensor *t)
{
	size_t at = snprintf(out, room, "[");

	for (uint32_t i = 0; i < t->rank && at < room; i++)
		at += snprintf(out + at, room - at, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
	if (at < room)
		snprintf(out + at, room - at, "]");
}

/*
 * Dimensions of 0 count as 1 where overflow is looked for, so that no order of multiplying them can wrap. They are
 * allowed: safetensors says so, GGUF does not forbid them, and a tensor without bytes harms no one.
 */
static int shape_elements(const struct index_tensor *t, uint64_t *elements)
{
	uint64_t product = 1;
	bool none = false;

	for (uint32_t i = 0; i < t->rank; i++) {
		none |= !t->shape[i];
		if (__builtin_mul_overflow(product, t->shape[i] ? t->shape[i] : 1, &product) || product > INT64_MAX)
			return -EOVERFLOW;
	}
	*elements = none ? 0 : product;
	return 0;
}

int index_need(const struct index_tensor *t, enum index_format format, const char *where, uint64_t *bytes)
{
	const struct pinion_type_info *type = pinion_type_info(t->type);
	char shape[192];
	uint64_t elements;

	shape_shown(shape, sizeof(shape), t);
	if (!type || (format == INDEX_GGUF && t->type >= PINION_TYPE_BOOL))
		return fail(EBADMSG, "%s: type %" PRIu32 " is not known", where, t->type);
	if (format == INDEX_SAFETENSORS && type->block_elems != 1)
		return fail(EBADMSG, "%s: safetensors has no type %s", where, type->name);
	if (shape_elements(t, &elements))
		return fail(EBADMSG, "%s: its number of elements overflows, shape %s", where, shape);
	if (t->shape[0] % type->block_elems)
		return fail(EBADMSG,
			    "%s: its rows of %" PRIu64 " elements are not whole blocks of %s, which have %" PRIu32,
			    where, t->shape[0], type->name, type->block_elems);
	if (pinion_type_bytes(t->type, elements, bytes) || *bytes > INT64_MAX)
		return fail(EBADMSG, "%s: its size in bytes overflows, shape %s of %s", where, shape, type->name);
	return 0;
}

int index_inside(const char *where, uint64_t offset, uint64_t bytes, uint64_t file_bytes)
{
	if (offset <= file_bytes && bytes <= file_bytes - offset)
		return 0;
	return fail(EBADMSG, "%s: needs %" PRIu64 " bytes at offset %" PRIu64 " of the file, which has %" PRIu64, where,
		    bytes, offset, file_bytes);
}

/* Names come into strings in the headers' order, so their offsets tell it when file offsets are equal. */
static int compare_place(const void *a, const void *b)
{
	const struct index_tensor *ta = a, *tb = b;

	if (ta->shard != tb->shard)
		return ta->shard < tb->shard ? -1 : 1;
	if (ta->file_offset != tb->file_offset)
		return ta->file_offset < tb->file_offset ? -1 : 1;
	return (ta->name > tb->name) - (ta->name < tb->name);
}

static int compare_name(const void *a, const void *b, void *arg)
{
	const struct index_block *block = arg;
	const struct index_tensor *t = index_tensors(block);
	const uint32_t *ia = a, *ib = b;

	return strcmp(index_string(block, t[*ia].name), index_string(block, t[*ib].name));
}

#define WHERE_ROOM (2 * INDEX_SHOWN + 16)

/* Begins a sentence about entry @i; where there are several files it says which one. */
static void tensor_where(const struct index_block *block, uint64_t i, char where[WHERE_ROOM])
{
	const struct index_tensor *t = &index_tensors(block)[i];
	char shown[INDEX_SHOWN], file[INDEX_SHOWN];

	text_shown(shown, sizeof(shown), index_string(block, t->name), t->name_bytes);
	if (block->shard_count == 1) {
		snprintf(where, WHERE_ROOM, "tensor '%s'", shown);
		return;
	}
	path_shown(file, sizeof(file), index_string(block, index_shards(block)[t->shard].name));
	snprintf(where, WHERE_ROOM, "%s: tensor '%s'", file, shown);
}

static int refuse_doubled(const struct index_block *block, uint32_t a, uint32_t b)
{
	const struct index_tensor *t = index_tensors(block);
	char where[WHERE_ROOM], other[INDEX_SHOWN];

	tensor_where(block, a, where);
	if (t[a].shard == t[b].shard)
		return fail(EBADMSG, "%s is there twice", where);
	path_shown(other, sizeof(other), index_string(block, index_shards(block)[t[b].shard].name));
	return fail(EBADMSG, "%s is in %s too", where, other);
}

static int sort_names(struct index_block *block)
{
	uint32_t *by_name = (uint32_t *)((char *)block + block->by_name);

	for (uint64_t i = 0; i < block->tensor_count; i++)
		by_name[i] = i;
	qsort_r(by_name, block->tensor_count, sizeof(*by_name), compare_name, block);
	for (uint64_t i = 1; i < block->tensor_count; i++)
		if (!compare_name(&by_name[i - 1], &by_name[i], block))
			return refuse_doubled(block, by_name[i], by_name[i - 1]);
	return 0;
}

static int refuse_overlap(const struct index_block *block, uint64_t i, uint64_t last, uint64_t end)
{
	char where[WHERE_ROOM], other[WHERE_ROOM];

	tensor_where(block, i, where);
	tensor_where(block, last, other);
	return fail(EBADMSG, "%s begins at offset %" PRIu64 " of the file and overlaps %s, which ends at %" PRIu64,
		    where, index_tensors(block)[i].file_offset, other, end);
}

static int refuse_hole(const struct index_block *block, const struct index_shard *shard, uint64_t begin, uint64_t end)
{
	char file[INDEX_SHOWN] = "";

	if (block->shard_count > 1)
		path_shown(file, sizeof(file), index_string(block, shard->name));
	return fail(EBADMSG, "%s%sno tensor has the bytes from offset %" PRIu64 " of the file to %" PRIu64 ", all must belong to one",
		    file, *file ? ": " : "", begin, end);
}

/*
 * In file order no tensor may reach into the next one; one without bytes cannot overlap in GGUF and lies between two
 * others in safetensors, which leaves no bytes where something could hide.
 */
static int check_overlap(const struct index_block *block, const struct index_shard *shard)
{
	const struct index_tensor *t = index_tensors(block);
	bool dense = block->format == INDEX_SAFETENSORS;
	uint64_t begin = shard->data_offset, end = begin, last = 0;

	for (uint64_t i = shard->first; i < shard->first + shard->count; i++) {
		uint64_t at = t[i].file_offset;

		if (at < end && (t[i].bytes || (dense && at != begin)))
			return refuse_overlap(block, i, last, end);
		if (at > end && dense)
			return refuse_hole(block, shard, end, at);
		if (!t[i].bytes)
			continue;
		begin = at;
		end = at + t[i].bytes;
		last = i;
	}
	return dense && end != shard->stamp.bytes ? refuse_hole(block, shard, end, shard->stamp.bytes) : 0;
}

static int check_overlaps(const struct index_block *block)
{
	const struct index_shard *shard = index_shards(block);
	int ret = 0;

	for (uint32_t i = 0; i < block->shard_count && !ret; i++)
		ret = check_overlap(block, &shard[i]);
	return ret;
}

/* Room for the strings of a file: its own, which begin with "", and its name. */
static uint64_t strings_bytes(const struct index_builder *b)
{
	return (b->strings_bytes ? b->strings_bytes : 1) + (b->file ? strlen(b->file) + 1 : 0);
}

/* An empty block with its parts laid out one behind the other. */
static int block_alloc(const struct index_builder *b, uint32_t count, struct index_block **out)
{
	uint64_t tensors = 0, strings = 0, files = 0, bytes;
	struct index_block *block;

	for (uint32_t i = 0; i < count; i++) {
		tensors += b[i].tensor_count;
		strings += strings_bytes(&b[i]);
		/* Files may be sparse; the rest that is summed here is in memory. */
		if (__builtin_add_overflow(files, b[i].file_bytes, &files) || files > INT64_MAX)
			return fail(EOVERFLOW, "the files have more than %" PRId64 " bytes in all", INT64_MAX);
	}
	if (tensors > UINT32_MAX)
		return fail(EOVERFLOW, "an index of %" PRIu64 " tensors is too large", tensors);
	bytes = sizeof(*block) + count * sizeof(struct index_shard) + tensors * (sizeof(struct index_tensor) + sizeof(uint32_t)) +
		strings;
	block = calloc(1, bytes);
	if (!block)
		return fail(ENOMEM, "no memory for an index of %" PRIu64 " bytes", bytes);
	block->magic = INDEX_MAGIC;
	block->bytes = bytes;
	block->format = b->format;
	block->shard_count = count;
	block->tensor_count = tensors;
	block->file_bytes = files;
	block->shards = sizeof(*block);
	block->tensors = block->shards + count * sizeof(struct index_shard);
	block->by_name = block->tensors + tensors * sizeof(struct index_tensor);
	block->strings = block->by_name + tensors * sizeof(uint32_t);
	*out = block;
	return 0;
}

/* Takes in file @i, whose tensors come from @first on and whose strings go to @strings on. */
static void fill_shard(struct index_block *block, const struct index_builder *b, uint32_t i, uint64_t first, uint64_t strings)
{
	struct index_shard *shard = (struct index_shard *)((char *)block + block->shards) + i;
	struct index_tensor *t = (struct index_tensor *)((char *)block + block->tensors) + first;
	uint64_t own = b->strings_bytes ? b->strings_bytes : 1;

	*shard = (struct index_shard){ .stamp = b->stamp, .data_offset = b->data_offset, .first = first, .count = b->tensor_count,
				       .version = b->version, .alignment = b->alignment, .outside = b->outside };
	shard->stamp.bytes = b->file_bytes;
	shard->name = strings + (b->file ? own : 0);
	if (b->strings_bytes)
		memcpy((char *)block + strings, b->strings, b->strings_bytes);
	if (b->file)
		strcpy((char *)block + shard->name, b->file);
	if (b->tensor_count)
		memcpy(t, b->tensor, b->tensor_count * sizeof(*t));
	for (uint64_t k = 0; k < b->tensor_count; k++) {
		t[k].name += strings;
		t[k].shard = i;
		block->tensor_bytes += t[k].bytes;
	}
	if (i == 0) {
		block->architecture = strings + b->architecture;
		block->model_name = strings + b->model_name;
	}
}

int index_build(const struct index_builder *b, uint32_t count, struct index_block **out)
{
	struct index_block *block = NULL;
	uint64_t first = 0, strings;
	int ret = block_alloc(b, count, &block);

	if (ret)
		return ret;
	strings = block->strings;
	for (uint32_t i = 0; i < count; i++) {
		fill_shard(block, &b[i], i, first, strings);
		first += b[i].tensor_count;
		strings += strings_bytes(&b[i]);
	}
	qsort((char *)block + block->tensors, block->tensor_count, sizeof(struct index_tensor), compare_place);
	ret = sort_names(block);
	if (!ret)
		ret = check_overlaps(block);
	if (!ret)
		ret = layout_place(block, (struct index_tensor *)((char *)block + block->tensors));
	if (ret)
		free(block);
	else
		*out = block;
	return ret;
}
