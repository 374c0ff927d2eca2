/* SPDX-License-Identifier: MIT */
/* rows: the groups of rows. Each runs what it can and puts the rest into the table as absent or broken. */
#ifndef PINION_BENCH_ROWS_H
#define PINION_BENCH_ROWS_H

#include <stdint.h>

#include "model_file.h"
#include "table.h"

/* Sizes of model files, as fractions: rows use the largest that they have time for, with small pages the last. */
#define SIZES	3
#define HALF	2
#define SHORTER 8

struct rows {
	struct table *table;
	const char *files;	       /* a directory on a disk; "": none */
	const char *files_why;	       /* then */
	uint64_t bytes;		       /* of the largest model file */
	struct model_file file[SIZES]; /* bytes 0: not written yet */
	struct model_file unaligned;   /* as long as the last of them */
};

void rows_counts(struct rows *r);
void rows_totals(struct rows *r);
void rows_select(struct rows *r);
void rows_handover(struct rows *r);

/* With the page size that shared memory gets at present. */
void rows_cold(struct rows *r);
void rows_moved(struct rows *r);
void rows_warm(struct rows *r);
void rows_stream(struct rows *r);
void rows_alloc(struct rows *r);

#endif
