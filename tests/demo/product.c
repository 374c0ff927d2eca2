/* SPDX-License-Identifier: MIT */
#include "product.h"

#include <err.h>
#include <inttypes.h>
#include <pinion/type.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static bool parse_line(char *line, struct product *p)
{
	char *field[6], *save = line;

	line[strcspn(line, "\n")] = 0;
	for (int i = 0; i < 6; i++) {
		field[i] = strsep(&save, "\t");
		if (!field[i])
			return false;
	}
	p->name = strdup(field[0]);
	snprintf(p->type, sizeof(p->type), "%s", field[1]);
	p->cols = strtoull(field[2], NULL, 10);
	p->first = strtoull(field[3], NULL, 10);
	p->rows = strtoull(field[4], NULL, 10);
	snprintf(p->digest, sizeof(p->digest), "%s", field[5]);
	p->checked = strcmp(field[5], "-") != 0;
	return p->name && p->cols && p->rows && (!p->checked || strlen(field[5]) == DIGEST_ROOM - 1);
}

static FILE *open_part(const char *prefix, const char *suffix, char path[4096])
{
	FILE *f;

	snprintf(path, 4096, "%s%s", prefix, suffix);
	f = fopen(path, "r");
	if (!f)
		err(1, "%s", path);
	return f;
}

static void read_expected(const char *prefix, struct products *out)
{
	uint64_t rows = 0;
	char path[4096];
	FILE *f = open_part(prefix, ".f64", path);

	for (size_t i = 0; i < out->n; i++)
		rows += out->product[i].rows;
	out->expected = calloc(rows ? rows : 1, sizeof(*out->expected));
	if (!out->expected)
		err(1, "%s", path);
	if (fread(out->expected, sizeof(*out->expected), rows, f) != rows || fgetc(f) != EOF)
		errx(1, "%s does not hold the two doubles for each of %" PRIu64 " rows", path, rows);
	fclose(f);
	rows = 0;
	for (size_t i = 0; i < out->n; i++) {
		out->product[i].expected = out->expected + rows;
		rows += out->product[i].rows;
	}
}

/* Bands of one tensor are lines one after another. */
static void number_tensor(struct products *out)
{
	struct product *last = &out->product[out->n - 1];

	if (out->n > 1)
		last->tensor = last[-1].tensor + (strcmp(last->name, last[-1].name) != 0);
}

void products_read(const char *prefix, bool results, struct products *out)
{
	char path[4096], *line = NULL;
	size_t room = 0;
	FILE *f = open_part(prefix, ".tsv", path);

	memset(out, 0, sizeof(*out));
	while (getline(&line, &room, f) > 0) {
		out->product = reallocarray(out->product, out->n + 1, sizeof(*out->product));
		if (!out->product)
			err(1, "%s", path);
		memset(&out->product[out->n], 0, sizeof(*out->product));
		if (!parse_line(line, &out->product[out->n++]))
			errx(1, "%s: line %zu is no product", path, out->n);
		number_tensor(out);
	}
	free(line);
	fclose(f);
	if (!out->n)
		errx(1, "%s: there is nothing to multiply", path);
	if (results)
		read_expected(prefix, out);
}

void products_free(struct products *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->product[i].name);
	free(p->product);
	free(p->expected);
}

void product_write(FILE *out, const struct product *p, const char *digest)
{
	fprintf(out, "%s\t%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\n", p->name, p->type, p->cols, p->first, p->rows,
		digest ? digest : "-");
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

bool product_is_of(const struct product *p, unsigned int mine, unsigned int of)
{
	return p->tensor % of == mine;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void products_need(const struct products *p, unsigned int mine, unsigned int of, struct need *out)
{
	*out = (struct need){ 0 };
	for (size_t i = 0; i < p->n; i++) {
		const struct product *one = &p->product[i];

		if (!product_is_of(one, mine, of))
			continue;
		out->elems = larger(out->elems, one->rows * one->cols);
		out->rows = larger(out->rows, one->rows);
		out->cols = larger(out->cols, one->cols);
	}
}

uint64_t need_bytes(const struct need *need)
{
	return (need->elems + need->cols) * sizeof(float) + need->rows * sizeof(double);
}

/* ---- what is multiplied ------------------------------------------------------------------------------------------ */

bool matrix_of(const struct pinion_tensor *t, const char *format, struct matrix *out)
{
	const struct pinion_type_info *type = pinion_type_info(t->type);
	bool first_is_row = !strcmp(format, "gguf");
	uint64_t elems = 1;

	out->cols = t->rank ? t->shape[first_is_row ? 0 : t->rank - 1] : 1;
	for (uint32_t i = 0; i < t->rank; i++)
		elems *= t->shape[i]; /* the index has been checked: it does not overflow */
	if (!type || !elems || out->cols % type->block_elems)
		return false;
	out->rows = elems / out->cols;
	out->row_bytes = out->cols / type->block_elems * type->block_bytes;
	return true;
}

float *product_vector(uint64_t cols)
{
	float *x = calloc(cols, sizeof(*x));

	if (!x)
		err(1, "a vector of %" PRIu64 " floats", cols);
	for (uint64_t j = 0; j < cols; j++)
		x[j] = product_x(j);
	return x;
}
