/* SPDX-License-Identifier: MIT */
/*
 * The list of a model's files: read as bytes, and where it reads, used: against files made of what it says (each with its
 * tensors, as a file would be parsed) it must be believed, and against one tensor less it must not.
 */
#include "fuzz_index.h"

#include "model/weight_map.h"

#define FILES_MAX 64u
#define ENTRIES_MAX 512u

/* An entry's tensor without bytes in the file that it names. */
static void add(struct index_builder *b, const struct weight_map *map, const struct weight_map_entry *e)
{
	struct index_tensor *t = builder_tensor(&b[e->file]);

	EXPECT(t);
	t->name_bytes = e->name_bytes;
	t->type = PINION_TYPE_U8;
	t->rank = 1;
	for (unsigned int i = 1; i < PINION_RANK_MAX; i++)
		t->shape[i] = 1;
	EXPECT(!builder_string(&b[e->file], map->names.strings + e->name, e->name_bytes, &t->name));
}

/* What the list says of all its entries but @left_out; -EBADMSG where its tensors are not all different. */
static int make_files(const struct weight_map *map, uint64_t left_out, struct index_block **out)
{
	struct index_builder *b = calloc(map->files, sizeof(*b));
	int ret;

	EXPECT(b);
	for (uint32_t i = 0; i < map->files; i++) {
		b[i].format = INDEX_SAFETENSORS;
		b[i].file = strdup(map->file[i]);
		EXPECT(b[i].file);
	}
	for (uint64_t i = 0; i < map->entries; i++)
		if (i != left_out)
			add(b, map, &map->entry[i]);
	ret = index_build(b, map->files, out);
	for (uint32_t i = 0; i < map->files; i++)
		builder_free(&b[i]);
	free(b);
	return ret;
}

static void use(const struct weight_map *map)
{
	struct index_block *block;

	EXPECT(map->files && map->entries >= map->files && map->claimed_bytes <= INT64_MAX);
	for (uint32_t i = 0; i < map->files; i++) {
		EXPECT(*map->file[i] && !strchr(map->file[i], '/') && strlen(map->file[i]) <= INDEX_FILE_MAX);
		EXPECT(!i || strcmp(map->file[i - 1], map->file[i]) < 0);
	}
	if (map->files > FILES_MAX || map->entries > ENTRIES_MAX || make_files(map, UINT64_MAX, &block))
		return;
	EXPECT(index_check(block, block->bytes) == 0);
	EXPECT(weight_map_check(map, block) == 0);
	free(block);
	EXPECT(make_files(map, map->entries / 2, &block) == 0);
	EXPECT(weight_map_check(map, block) != 0);
	free(block);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct weight_map map;

	if (!weight_map_read(fuzz_file(data, size), size, &map))
		use(&map);
	weight_map_free(&map);
	return 0;
}
