/* SPDX-License-Identifier: MIT */
#include "tile.h"

#include <err.h>
#include <pinion/type.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_whole(const char *folder, const char *name, void *to, size_t bytes)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "r");
	if (!f)
		err(1, "%s", path);
	if (fread(to, 1, bytes, f) != bytes || fgetc(f) != EOF)
		errx(1, "%s does not have %zu bytes", path, bytes);
	fclose(f);
}

static void add_tile(const char *folder, const char *blocks, const char *values, struct tiles *tiles)
{
	if (tiles->n == TILES_MAX)
		errx(1, "%s has more than %d tiles of one type", folder, TILES_MAX);
	read_whole(folder, blocks, tiles->blocks + tiles->n * tiles->tile_bytes, tiles->tile_bytes);
	read_whole(folder, values, tiles->values + tiles->n * TILE_ELEMS, TILE_ELEMS * sizeof(float));
	tiles->n++;
}

/* A line of index.tsv: kind, type, code, case, elements, input, blocks, decoded, imatrix. */
static void read_line(const char *folder, const char *line, struct tiles *tiles)
{
	char kind[32], blocks[128], values[128];
	unsigned int code, elems;
	/* Golden blocks hold no f32, but what others decode to are floats. */
	bool is_f32 = tiles->type == PINION_TYPE_F32;
	uint32_t want = is_f32 ? PINION_TYPE_F16 : tiles->type;

	if (sscanf(line, "%31s %*s %u %*s %u %*s %127s %127s", kind, &code, &elems, blocks, values) != 5)
		return;
	if ((!strcmp(kind, "plain") || !strcmp(kind, "imatrix")) && code == want && elems == TILE_ELEMS && strcmp(values, "-"))
		add_tile(folder, is_f32 ? values : blocks, values, tiles);
}

void tiles_open(const char *golden, uint32_t type, struct tiles *out)
{
	char path[4096], line[1024];
	FILE *f;

	memset(out, 0, sizeof(*out));
	out->type = type;
	if (pinion_type_bytes(type, TILE_ELEMS, &out->tile_bytes))
		errx(1, "type %u has no blocks", type);
	out->blocks = calloc(TILES_MAX, out->tile_bytes);
	out->values = calloc(TILES_MAX, TILE_ELEMS * sizeof(float));
	if (!out->blocks || !out->values)
		err(1, "tiles");
	snprintf(path, sizeof(path), "%s/index.tsv", golden);
	f = fopen(path, "r");
	if (!f)
		err(1, "%s", path);
	while (fgets(line, sizeof(line), f))
		read_line(golden, line, out);
	fclose(f);
	if (!out->n)
		errx(1, "%s names no tile of type %s", path, pinion_type_info(type)->name);
}

void tiles_close(struct tiles *tiles)
{
	free(tiles->blocks);
	free(tiles->values);
}

uint32_t tile_at(const struct tiles *tiles, const char *name, uint64_t position)
{
	uint64_t mixed = 0;

	for (; *name; name++)
		mixed = mixed * 31 + (unsigned char)*name;
	/* Odd multipliers and the upper half: neighbours and tensors of like names differ. */
	mixed = (mixed + position) * UINT64_C(0x9e3779b97f4a7c15);
	mixed = (mixed ^ mixed >> 29) * UINT64_C(0xd1342543de82ef95);
	return (mixed >> 32) % tiles->n;
}
