/* SPDX-License-Identifier: MIT */
/*
 * walk: the way through two views of one shape, element by element, as a nest of loops with rows as long as the layouts
 * allow. The order is the destination's in memory, not that of the index: nothing that walks may depend on it.
 */
#ifndef PINION_LIB_WALK_H
#define PINION_LIB_WALK_H

#include <pinion/view.h>
#include <stdint.h>

struct walk_axis {
	uint64_t extent;
	int64_t dst, src; /* bytes from one position to the next */
};

struct walk {
	char *dst;
	const char *src;
	uint32_t rank;
	struct walk_axis axis[PINION_RANK_MAX]; /* the last one is the row */
};

/* What is done to a row of @n elements. */
struct walk_op {
	void (*row)(const struct walk_op *op, char *dst, int64_t dst_step, const char *src, int64_t src_step,
		    uint64_t n);
	enum pinion_dtype dst, src;
};

/* Both views are checked, have elements and the same shape. */
void walk_plan(struct walk *walk, const struct pinion_view *dst, const struct pinion_view *src);

void walk_run(const struct walk *walk, const struct walk_op *op);

#endif
