/* SPDX-License-Identifier: MIT */
/* table: the rows, each with its bar and what can be said of it here. */
#ifndef PINION_BENCH_TABLE_H
#define PINION_BENCH_TABLE_H

#include <jansson.h>
#include <stdbool.h>

#include "bench.h"

enum bar {
	BAR_NONE,	/* the row informs */
	BAR_FIGURE_MAX, /* the figure itself */
	BAR_RATIO_MAX,
	BAR_RATIO_MIN,
	BAR_PROOF, /* the figure is a count that must be 0; no spread enters into it */
};

struct row {
	const char *name;
	const char *against; /* the baseline; NULL: none */
	double figure;
	const char *unit;
	struct spread ratio; /* median 0: none */
	struct spread same;  /* A/A: of the baseline, or where the bar is the figure's of that; median 0: none */
	double cpu;	     /* CPU time over the baseline's, median; 0: not told */
	enum bar bar;
	double limit;
	const char *pages; /* what page size it got; NULL: no matter */
	const char *note;  /* a line beneath; NULL: none */
};

struct table {
	bool json;
	bool failed; /* something did not run */
	const char *section;
	json_t *rows;
};

int table_open(struct table *t, bool json);

/* Heads what follows. @name is kept. */
void table_section(struct table *t, const char *name);
void table_row(struct table *t, const struct row *row);

/* A row that this machine cannot have, and one that should have run and did not, with broke()'s sentence. */
void table_absent(struct table *t, const char *name, const char *why);
void table_broken(struct table *t, const char *name);

/* Ends the table; @about goes into the JSON and is consumed. */
void table_close(struct table *t, json_t *about);

#endif
