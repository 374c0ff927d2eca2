/* SPDX-License-Identifier: MIT */
/*
 * tile: the golden blocks, 512 elements each, and what ggml decodes them to. A synthesised tensor is a row of tiles in
 * an order that its name decides, so that its floats are known without decoding anything.
 */
#ifndef PINION_DEMO_TILE_H
#define PINION_DEMO_TILE_H

#include <stdint.h>

#define TILE_ELEMS 512
#define TILES_MAX  32

struct tiles {
	uint32_t type;
	uint32_t n;
	uint64_t tile_bytes;
	uint8_t *blocks; /* n tiles as they are stored */
	float *values;	 /* and as they decode */
};

/* Reads the golden tiles of @type below the folder @golden. Ends the program with a sentence when there are none. */
void tiles_open(const char *golden, uint32_t type, struct tiles *out);
void tiles_close(struct tiles *tiles);

/* Which tile is at @position of the tensor @name. */
uint32_t tile_at(const struct tiles *tiles, const char *name, uint64_t position);

#endif
