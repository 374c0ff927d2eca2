/* SPDX-License-Identifier: MIT */
/*
 * reference: what products must give, without the library's decoders: of a synthesised model from the golden floats, of
 * a model file from bytes read by plain pread, as far as its elements are floats already.
 */
#include "product.h"
#include "sha256.h"
#include "tile.h"

#include <err.h>
#include <fcntl.h>
#include <math.h>
#include <pinion/pinion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPES 64

struct reference {
	const char *golden; /* NULL: from the file */
	struct tiles tiles[TYPES];
	struct pinion_index *ix;
	int fd;
	FILE *list, *results;
};

/* ---- floats of a synthesised model ------------------------------------------------------------------------------- */

static uint32_t type_code(const char *name)
{
	for (uint32_t code = 0; code < TYPES; code++)
		if (pinion_type_info(code) && !strcmp(pinion_type_info(code)->name, name))
			return code;
	errx(1, "there is no type '%s'", name);
}

static bool floats_of_tiles(struct reference *r, const struct product *p, float *w)
{
	uint32_t type = type_code(p->type);
	struct tiles *tiles = &r->tiles[type];
	uint64_t at = p->first * p->cols, end = at + p->rows * p->cols;

	if (!tiles->n)
		tiles_open(r->golden, type, tiles);
	while (at < end) {
		uint64_t in = at % TILE_ELEMS, part = TILE_ELEMS - in < end - at ? TILE_ELEMS - in : end - at;
		uint32_t tile = tile_at(tiles, p->name, at / TILE_ELEMS);

		memcpy(w, tiles->values + tile * TILE_ELEMS + in, part * sizeof(*w));
		w += part;
		at += part;
	}
	return true;
}

/* ---- floats of a file -------------------------------------------------------------------------------------------- */

static float half_value(uint16_t half)
{
	int exponent = half >> 10 & 31, fraction = half & 1023;
	double value;

	if (exponent == 31)
		value = fraction ? NAN : INFINITY;
	else
		value = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
	return half & 0x8000 ? -value : value;
}

static float element(uint32_t type, const uint8_t *at)
{
	uint32_t word = at[0] | at[1] << 8;
	float value;

	if (type == PINION_TYPE_F16)
		return half_value(word);
	word = type == PINION_TYPE_BF16 ? word << 16 : word | at[2] << 16 | (uint32_t)at[3] << 24;
	memcpy(&value, &word, sizeof(value));
	return value;
}

static void read_plainly(const struct reference *r, uint8_t *to, uint64_t bytes, uint64_t offset)
{
	while (bytes) {
		ssize_t n = pread(r->fd, to, bytes, offset);

		if (n <= 0)
			err(1, "reading the model at %llu", (unsigned long long)offset);
		to += n;
		bytes -= n;
		offset += n;
	}
}

/* False where only a decoder could tell. */
static bool floats_of_file(struct reference *r, const struct product *p, float *w)
{
	uint64_t elems = p->rows * p->cols, size;
	struct pinion_tensor t;
	uint8_t *bytes;

	if (pinion_index_tensor(r->ix, p->name, &t))
		errx(1, "%s", pinion_error());
	if (t.type != PINION_TYPE_F32 && t.type != PINION_TYPE_F16 && t.type != PINION_TYPE_BF16)
		return false;
	size = t.type == PINION_TYPE_F32 ? 4 : 2;
	bytes = calloc(elems, size);
	if (!bytes)
		err(1, "%s", p->name);
	read_plainly(r, bytes, elems * size, t.file_offset + p->first * p->cols * size);
	for (uint64_t i = 0; i < elems; i++)
		w[i] = element(t.type, bytes + i * size);
	free(bytes);
	return true;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static struct expected multiply(const float *w, uint64_t cols)
{
	struct expected e = { 0, 0 };

	for (uint64_t j = 0; j < cols; j++) {
		double term = (double)w[j] * product_x(j);

		e.y += term;
		e.magnitude += fabs(term);
	}
	return e;
}

static void write_result(struct reference *r, const struct product *p)
{
	float *w = calloc(p->rows * p->cols, sizeof(*w));
	char digest[DIGEST_ROOM];
	bool known;

	if (!w)
		err(1, "%s", p->name);
	known = r->golden ? floats_of_tiles(r, p, w) : floats_of_file(r, p, w);
	sha256_hex(w, p->rows * p->cols * sizeof(*w), digest);
	product_write(r->list, p, known ? digest : NULL);
	for (uint64_t row = 0; row < p->rows; row++) {
		struct expected e = multiply(w + row * p->cols, p->cols);

		if (fwrite(&e, sizeof(e), 1, r->results) != 1)
			err(1, "writing the reference");
	}
	free(w);
}

static FILE *create_part(const char *prefix, const char *suffix)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", prefix, suffix);
	f = fopen(path, "w");
	if (!f)
		err(1, "%s", path);
	return f;
}

int main(int argc, char **argv)
{
	struct reference r = { .fd = -1 };
	struct products picks;

	if (argc != 5 || (strcmp(argv[1], "tiles") && strcmp(argv[1], "plain")))
		errx(2, "usage: demo-reference tiles GOLDEN | plain MODEL, then LIST REFERENCE (without .tsv and .f64)");
	products_read(argv[3], false, &picks);
	if (!strcmp(argv[1], "tiles")) {
		r.golden = argv[2];
	} else {
		if (pinion_index_open(argv[2], &r.ix))
			errx(1, "%s", pinion_error());
		r.fd = open(argv[2], O_RDONLY | O_CLOEXEC);
		if (r.fd < 0)
			err(1, "%s", argv[2]);
	}
	r.list = create_part(argv[4], ".tsv");
	r.results = create_part(argv[4], ".f64");
	for (size_t i = 0; i < picks.n; i++)
		write_result(&r, &picks.product[i]);
	if (fclose(r.list) || fclose(r.results))
		err(1, "writing the reference");
	for (uint32_t type = 0; type < TYPES; type++)
		tiles_close(&r.tiles[type]);
	pinion_index_free(r.ix);
	products_free(&picks);
	return 0;
}
