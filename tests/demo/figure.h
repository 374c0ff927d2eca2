/* SPDX-License-Identifier: MIT */
/* figure: time and CPU of a stretch of work, and a row of the closing table. */
#ifndef PINION_DEMO_FIGURE_H
#define PINION_DEMO_FIGURE_H

#include <stdint.h>

#define FIGURE_MAX 16 /* repetitions that a figure has room for */

struct lap {
	double seconds; /* until lap_end(): when it began */
	double cpu;	/* user and system, of every thread */
};

void lap_begin(struct lap *lap);
void lap_end(struct lap *lap);

/* One row: repetitions of the same work on the same bytes. */
struct figure {
	char what[64];
	char note[128];
	uint64_t bytes;
	unsigned int n;
	double seconds[FIGURE_MAX];
	double reading[FIGURE_MAX]; /* of them, seconds from the first read to the last byte; 0: no such part */
	double cpu[FIGURE_MAX];
};

void figure_add(struct figure *f, const struct lap *lap, double reading);
double figure_seconds(const struct figure *f); /* medians */

void figure_heading(void);
void figure_print(const struct figure *f);

#endif
