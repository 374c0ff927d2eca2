/* SPDX-License-Identifier: MIT */
/*
 * layout: where a load puts each tensor in its buffer. Direct I/O moves whole blocks of a file to whole blocks of
 * memory, so a tensor gets to its place without a copy only where both offsets agree modulo a block; what cannot be
 * read to an aligned address that way is moved once more, to a place of its own.
 */
#include "../error.h"
#include "index.h"

#include <errno.h>
#include <inttypes.h>

static uint64_t round_down(uint64_t value, uint64_t align)
{
	return value - value % align;
}

/* Adds @by to the end of the buffer, first brought to a multiple of @align. @at: where what is added begins. */
static int extend(uint64_t *end, uint64_t by, uint64_t align, uint64_t *at)
{
	uint64_t begin;

	if (__builtin_add_overflow(*end, align - 1, &begin))
		goto too_large;
	begin = round_down(begin, align);
	if (__builtin_add_overflow(begin, by, end) || *end > INT64_MAX)
		goto too_large;
	*at = begin;
	return 0;
too_large:
	return fail(EOVERFLOW, "the buffer for the tensors would be larger than %" PRId64 " bytes", INT64_MAX);
}

/* Whether @t may stay where a block of the file puts it; without bytes it is nowhere and in no one's way. */
static bool may_stay(const struct index_tensor *t)
{
	return !t->bytes || t->file_offset % INDEX_PLACED_ALIGN == 0;
}

static bool all_may_stay(const struct index_tensor *t, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		if (!may_stay(&t[i]))
			return false;
	return true;
}

/*
 * The file's data section as it is, from the start of the block that its first byte is in; behind what the buffer has
 * already, from a whole block on.
 */
static int place_all(struct index_block *block, struct index_tensor *t, const struct index_shard *shard, uint64_t align)
{
	uint64_t base = round_down(shard->data_offset, align);
	uint64_t end = base, at = 0;
	int ret;

	for (uint64_t i = 0; i < shard->count; i++)
		if (t[i].bytes)
			end = t[i].file_offset + t[i].bytes;
	ret = extend(&block->buffer_bytes, end - base, align, &at);
	if (ret)
		return ret;
	for (uint64_t i = 0; i < shard->count; i++) {
		t[i].moved = 0;
		t[i].offset = t[i].bytes ? at + (t[i].file_offset - base) : 0;
	}
	return 0;
}

/*
 * Tensors from @t on that may stay, next to one another: sets @count and the bytes in the file, from the first one's
 * begin to the last one's end.
 */
static void find_run(const struct index_tensor *t, uint64_t left, uint64_t *count, uint64_t *begin, uint64_t *end)
{
	uint64_t i;

	*begin = *end = 0;
	for (i = 0; i < left && may_stay(&t[i]); i++) {
		if (!t[i].bytes)
			continue;
		if (!*end)
			*begin = t[i].file_offset;
		*end = t[i].file_offset + t[i].bytes;
	}
	*count = i;
}

/* The run's blocks are its own: a read fills them whole, with neighbours' bytes before its begin and after its end. */
static int place_run(struct index_block *block, struct index_tensor *t, uint64_t count, uint64_t begin, uint64_t end)
{
	uint64_t base = round_down(begin, INDEX_BLOCK);
	uint64_t bytes = round_down(end - base + INDEX_BLOCK - 1, INDEX_BLOCK);
	uint64_t at = 0;
	int ret = extend(&block->buffer_bytes, bytes, INDEX_BLOCK, &at);

	if (ret)
		return ret;
	for (uint64_t i = 0; i < count; i++)
		t[i].offset = t[i].bytes ? at + (t[i].file_offset - base) : 0;
	return 0;
}

static int place_runs(struct index_block *block, struct index_tensor *t, uint64_t tensors)
{
	uint64_t count, begin, end;
	int ret = 0;

	for (uint64_t i = 0; i < tensors && !ret; i += count) {
		find_run(&t[i], tensors - i, &count, &begin, &end);
		if (end - begin >= INDEX_RUN_BYTES) {
			ret = place_run(block, &t[i], count, begin, end);
			continue;
		}
		/* Too short to be worth blocks of its own, or one that may not stay. */
		count = count ? count : 1;
		for (uint64_t j = i; j < i + count; j++)
			t[j].moved = t[j].bytes != 0;
	}
	return ret;
}

static int place_shard(struct index_block *block, struct index_tensor *t, const struct index_shard *shard)
{
	uint64_t at;
	int ret;

	/* A read fills the last block of the file before this one. */
	ret = extend(&block->buffer_bytes, 0, INDEX_BLOCK, &at);
	if (ret)
		return ret;
	if (block->format == INDEX_GGUF)
		return place_all(block, t, shard, shard->alignment > INDEX_BLOCK ? shard->alignment : INDEX_BLOCK);
	if (all_may_stay(t, shard->count))
		return place_all(block, t, shard, INDEX_BLOCK);
	return place_runs(block, t, shard->count);
}

/* Behind all that is placed, the tensors of all files one behind the other. */
static int place_moved(struct index_block *block, struct index_tensor *t)
{
	int ret = 0;

	for (uint64_t i = 0; i < block->tensor_count && !ret; i++) {
		if (!t[i].moved)
			continue;
		/* A read fills the last block of what is placed. */
		if (!block->moved_bytes)
			ret = extend(&block->buffer_bytes, 0, INDEX_BLOCK, &t[i].offset);
		if (!ret)
			ret = extend(&block->buffer_bytes, t[i].bytes, INDEX_MOVED_ALIGN, &t[i].offset);
		/* No overflow: tensors do not overlap, so their sum is no more than the files'. */
		block->moved_bytes += t[i].bytes;
	}
	return ret;
}

int layout_place(struct index_block *block, struct index_tensor *tensor)
{
	const struct index_shard *shard = index_shards(block);
	int ret = 0;

	block->buffer_bytes = 0;
	block->moved_bytes = 0;
	for (uint32_t i = 0; i < block->shard_count && !ret; i++)
		ret = place_shard(block, tensor + shard[i].first, &shard[i]);
	if (!ret)
		ret = place_moved(block, tensor);
	if (!block->buffer_bytes)
		block->buffer_bytes = 1;
	return ret;
}
