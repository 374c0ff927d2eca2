/* SPDX-License-Identifier: MIT */
/*
 * synth: writes a GGUF with the tensors of a 270M Gemma 3 model, made of tiles of golden blocks. The types change from
 * layer to layer, so that every format that the golden blocks cover is there.
 */
#include "tile.h"

#include <err.h>
#include <pinion/type.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 32
#define TYPES	  64

struct shapes {
	uint64_t layers, embedding, vocabulary, feed_forward, query, key, head;
};

static const struct shapes gemma = { 18, 640, 262144, 2048, 1024, 256, 256 };
static const struct shapes small = { 8, 256, 2048, 512, 512, 256, 256 };

/* Types of matrices: blocks of 32 elements fit any of the shapes, blocks of 256 not a row of 640. */
static const uint32_t short_blocks[] = { PINION_TYPE_Q5_0, PINION_TYPE_Q8_0, PINION_TYPE_Q4_0, PINION_TYPE_Q4_1,
					 PINION_TYPE_Q5_1, PINION_TYPE_F16,  PINION_TYPE_BF16 };
static const uint32_t long_blocks[] = { PINION_TYPE_Q4_K, PINION_TYPE_Q6_K, PINION_TYPE_Q5_K, PINION_TYPE_Q3_K,
					PINION_TYPE_Q2_K };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct tensor {
	char name[64];
	uint32_t type;
	uint64_t cols, rows; /* rows 0: a vector */
	uint64_t bytes, offset;
};

struct synth {
	struct tensor *tensor;
	uint64_t n;
	uint64_t end; /* of the data so far */
	struct tiles tiles[TYPES];
	FILE *out;
};

/* ---- the tensors ------------------------------------------------------------------------------------------------- */

static void add(struct synth *s, const char *name, uint32_t type, uint64_t cols, uint64_t rows)
{
	struct tensor *t;

	s->tensor = reallocarray(s->tensor, s->n + 1, sizeof(*s->tensor));
	if (!s->tensor)
		err(1, "a list of tensors");
	t = &s->tensor[s->n++];
	*t = (struct tensor){ .type = type, .cols = cols, .rows = rows, .offset = s->end };
	snprintf(t->name, sizeof(t->name), "%s", name);
	if (pinion_type_bytes(type, cols * (rows ? rows : 1), &t->bytes))
		errx(1, "%s: its rows are not whole blocks", name);
	s->end += (t->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add_to_layer(struct synth *s, unsigned int layer, const char *what, uint32_t type, uint64_t cols, uint64_t rows)
{
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, what);
	add(s, name, type, cols, rows);
}

static void add_layer(struct synth *s, const struct shapes *m, unsigned int layer)
{
	const uint32_t a = short_blocks[layer % COUNT(short_blocks)], b = short_blocks[(layer + 3) % COUNT(short_blocks)];
	const uint32_t c = long_blocks[layer % COUNT(long_blocks)], d = long_blocks[(layer + 2) % COUNT(long_blocks)];

	add_to_layer(s, layer, "attn_k", a, m->embedding, m->key);
	add_to_layer(s, layer, "attn_k_norm", PINION_TYPE_F32, m->head, 0);
	add_to_layer(s, layer, "attn_norm", PINION_TYPE_F32, m->embedding, 0);
	add_to_layer(s, layer, "attn_output", c, m->query, m->embedding);
	add_to_layer(s, layer, "attn_q", b, m->embedding, m->query);
	add_to_layer(s, layer, "attn_q_norm", PINION_TYPE_F32, m->head, 0);
	add_to_layer(s, layer, "attn_v", b, m->embedding, m->key);
	add_to_layer(s, layer, "ffn_down", d, m->feed_forward, m->embedding);
	add_to_layer(s, layer, "ffn_gate", a, m->embedding, m->feed_forward);
	add_to_layer(s, layer, "ffn_norm", PINION_TYPE_F32, m->embedding, 0);
	add_to_layer(s, layer, "ffn_up", a, m->embedding, m->feed_forward);
	add_to_layer(s, layer, "post_attention_norm", PINION_TYPE_F32, m->embedding, 0);
	add_to_layer(s, layer, "post_ffw_norm", PINION_TYPE_F32, m->embedding, 0);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void put(struct synth *s, const void *bytes, size_t n)
{
	if (fwrite(bytes, 1, n, s->out) != n)
		err(1, "writing the model");
}

static void put_u32(struct synth *s, uint32_t v)
{
	put(s, &v, sizeof(v));
}

static void put_u64(struct synth *s, uint64_t v)
{
	put(s, &v, sizeof(v));
}

static void put_string(struct synth *s, const char *text)
{
	put_u64(s, strlen(text));
	put(s, text, strlen(text));
}

static void put_text_value(struct synth *s, const char *key, const char *value)
{
	put_string(s, key);
	put_u32(s, 8);
	put_string(s, value);
}

static void put_zeros(struct synth *s, uint64_t n)
{
	for (; n; n--)
		put(s, "", 1);
}

static void put_header(struct synth *s)
{
	put(s, "GGUF", 4);
	put_u32(s, 3);
	put_u64(s, s->n);
	put_u64(s, 3);
	put_text_value(s, "general.architecture", "gemma3");
	put_text_value(s, "general.name", "tiles of golden blocks in the shapes of Gemma 3 270M");
	put_string(s, "general.alignment");
	put_u32(s, 4);
	put_u32(s, ALIGNMENT);
	for (uint64_t i = 0; i < s->n; i++) {
		const struct tensor *t = &s->tensor[i];

		put_string(s, t->name);
		put_u32(s, t->rows ? 2 : 1);
		put_u64(s, t->cols);
		if (t->rows)
			put_u64(s, t->rows);
		put_u32(s, t->type);
		put_u64(s, t->offset);
	}
}

static void put_tensor(struct synth *s, const struct tensor *t, const char *golden)
{
	struct tiles *tiles = &s->tiles[t->type];
	uint64_t left = t->bytes;

	if (!tiles->n)
		tiles_open(golden, t->type, tiles);
	for (uint64_t position = 0; left; position++) {
		uint64_t part = left < tiles->tile_bytes ? left : tiles->tile_bytes;

		put(s, tiles->blocks + tile_at(tiles, t->name, position) * tiles->tile_bytes, part);
		left -= part;
	}
	put_zeros(s, -t->bytes % ALIGNMENT);
}

static void put_file(struct synth *s, const char *golden)
{
	long at;

	put_header(s);
	at = ftell(s->out);
	put_zeros(s, -(uint64_t)at % ALIGNMENT);
	for (uint64_t i = 0; i < s->n; i++)
		put_tensor(s, &s->tensor[i], golden);
	if (fclose(s->out))
		err(1, "writing the model");
}

int main(int argc, char **argv)
{
	bool is_small = argc == 4 && !strcmp(argv[3], "--small");
	const struct shapes *m = is_small ? &small : &gemma;
	struct synth s = { 0 };

	if (argc != 3 + is_small)
		errx(2, "usage: demo-synth GOLDEN FILE [--small]");
	s.out = fopen(argv[2], "w");
	if (!s.out)
		err(1, "%s", argv[2]);
	add(&s, "output_norm.weight", PINION_TYPE_F32, m->embedding, 0);
	add(&s, "token_embd.weight", PINION_TYPE_Q8_0, m->embedding, m->vocabulary);
	for (unsigned int layer = 0; layer < m->layers; layer++)
		add_layer(&s, m, layer);
	put_file(&s, argv[1]);
	for (unsigned int type = 0; type < TYPES; type++)
		tiles_close(&s.tiles[type]);
	free(s.tensor);
	return 0;
}
