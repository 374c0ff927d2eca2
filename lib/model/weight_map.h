/* SPDX-License-Identifier: MIT */
/* weight_map: the list of a safetensors model's files, NAME.safetensors.index.json: which tensor is in which of them. */
#ifndef PINION_LIB_WEIGHT_MAP_H
#define PINION_LIB_WEIGHT_MAP_H

#include <stdint.h>

#include "index.h"

struct weight_map_entry {
	uint64_t name; /* offset of the tensor's name in names.strings */
	uint32_t name_bytes;
	uint32_t file;
};

struct weight_map {
	char **file; /* names without a folder, sorted, each once */
	uint32_t files;
	uint64_t file_room;
	struct weight_map_entry *entry;
	uint64_t entries, entry_room;
	struct index_builder names; /* for its strings alone */
	uint64_t claimed_bytes; /* metadata.total_size; 0: not said */
};

/* Reads the list at @fd, which has @bytes. 0 or -errno with the sentence; weight_map_free() either way. */
int weight_map_read(int fd, uint64_t bytes, struct weight_map *map);
void weight_map_free(struct weight_map *map);

/* Whether each tensor of the list is in its file, and no file has another one. @block is of the list's files in its order. */
int weight_map_check(const struct weight_map *map, const struct index_block *block);

#endif
