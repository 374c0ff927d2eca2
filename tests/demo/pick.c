/* SPDX-License-Identifier: MIT */
/*
 * pick: chooses what the demo multiplies: some tensors of each type that the file has and the library decodes, spread
 * over the file, and of each up to four bands of rows spread over the tensor.
 */
#include "product.h"

#include <err.h>
#include <pinion/pinion.h>
#include <stdlib.h>
#include <string.h>

#include "quant/decode.h"

#define TENSORS	   24
#define BANDS	   4
#define BAND_ROWS  1024
#define BAND_ELEMS (1u << 20)
#define TYPES	   64

/* The tensors of one type. */
struct group {
	uint32_t type;
	uint64_t *tensor; /* indices */
	uint64_t n;
	uint64_t wanted;
};

struct pick {
	struct pinion_index *ix;
	const char *format;
	struct group group[TYPES];
	uint32_t groups;
};

static struct group *group_of(struct pick *pick, uint32_t type)
{
	for (uint32_t i = 0; i < pick->groups; i++)
		if (pick->group[i].type == type)
			return &pick->group[i];
	if (pick->groups == TYPES)
		errx(1, "more than %d types of tensors in one file", TYPES);
	pick->group[pick->groups].type = type;
	return &pick->group[pick->groups++];
}

static void sort_into_groups(struct pick *pick)
{
	struct pinion_tensor t;
	struct matrix m;

	for (uint64_t i = 0; !pinion_index_tensor_at(pick->ix, i, &t); i++) {
		struct group *g = group_of(pick, t.type);

		if (quant_can_decode(t.type) && (!matrix_of(&t, pick->format, &m) || m.cols > BAND_ELEMS))
			continue;
		g->tensor = reallocarray(g->tensor, g->n + 1, sizeof(*g->tensor));
		if (!g->tensor)
			err(1, "a list of tensors");
		g->tensor[g->n++] = i;
	}
}

static void say_what_is_left_out(const struct pick *pick)
{
	for (uint32_t i = 0; i < pick->groups; i++)
		if (!quant_can_decode(pick->group[i].type))
			fprintf(stderr, "left out, because pinion does not decode %s: %llu of the tensors\n",
				pinion_type_info(pick->group[i].type)->name, (unsigned long long)pick->group[i].n);
}

/* One to each type in turn, until there are enough or no more. */
static void share_out(struct pick *pick)
{
	uint32_t left = TENSORS;
	bool gave = true;

	while (left && gave) {
		gave = false;
		for (uint32_t i = 0; i < pick->groups && left; i++) {
			struct group *g = &pick->group[i];

			if (!quant_can_decode(g->type) || g->wanted == g->n)
				continue;
			g->wanted++;
			left--;
			gave = true;
		}
	}
}

static void write_tensor(const struct pick *pick, uint64_t i)
{
	struct pinion_tensor t;
	struct product p = { 0 };
	struct matrix m;
	uint64_t bands, rows;

	if (pinion_index_tensor_at(pick->ix, i, &t) || !matrix_of(&t, pick->format, &m))
		errx(1, "tensor %llu: %s", (unsigned long long)i, pinion_error());
	bands = m.rows < BANDS ? m.rows : BANDS;
	rows = BAND_ELEMS / m.cols < BAND_ROWS ? BAND_ELEMS / m.cols : BAND_ROWS;
	p.rows = rows < m.rows / bands ? rows : m.rows / bands;
	p.cols = m.cols;
	p.name = (char *)t.name;
	snprintf(p.type, sizeof(p.type), "%s", pinion_type_info(t.type)->name);
	for (uint64_t band = 0; band < bands; band++) {
		p.first = m.rows / bands * band;
		product_write(stdout, &p, NULL);
	}
}

/* Type by type in turn, so that every worker gets some of each. */
static void write_picks(const struct pick *pick)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < pick->groups; i++)
		most = pick->group[i].wanted > most ? pick->group[i].wanted : most;
	for (uint64_t turn = 0; turn < most; turn++)
		for (uint32_t i = 0; i < pick->groups; i++) {
			const struct group *g = &pick->group[i];

			if (turn < g->wanted)
				write_tensor(pick, g->tensor[turn * g->n / g->wanted]);
		}
}

int main(int argc, char **argv)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pick pick = { 0 };

	if (argc != 2)
		errx(2, "usage: demo-pick MODEL >LIST.tsv");
	if (pinion_index_open(argv[1], &pick.ix) || pinion_index_info(pick.ix, &info))
		errx(1, "%s", pinion_error());
	pick.format = info.format;
	sort_into_groups(&pick);
	say_what_is_left_out(&pick);
	share_out(&pick);
	write_picks(&pick);
	for (uint32_t i = 0; i < pick.groups; i++)
		free(pick.group[i].tensor);
	pinion_index_free(pick.ix);
	if (fflush(stdout) || ferror(stdout))
		err(1, "writing the list");
	return 0;
}
