/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * layout: where page i of a storage lies. Pure arithmetic, tested by KUnit.
 *
 * A storage is an array of chunks, one struct page pointer each: first the huge ones, then the middle ones, then single
 * pages. Orders only fall, so that a chunk of order n sits at an index that is a multiple of 2^n, which is what lets the
 * fault path map it by one entry of the level above.
 */
#ifndef PINION_LAYOUT_H
#define PINION_LAYOUT_H

#include <linux/mm.h>
#include <linux/types.h>

#define LAYOUT_KINDS 3
#define LAYOUT_HUGE_ORDER (PMD_SHIFT - PAGE_SHIFT)
#define LAYOUT_MIDDLE_ORDER 4U

struct layout {
	unsigned long chunks[LAYOUT_KINDS]; /* of layout_order(0), (1), (2) */
};

static inline unsigned int layout_order(unsigned int kind)
{
	return kind == 0 ? LAYOUT_HUGE_ORDER : kind == 1 ? LAYOUT_MIDDLE_ORDER : 0;
}

/* A chunk of a storage: its number, its order, and the page asked for within it. */
struct layout_place {
	unsigned long chunk;
	unsigned long within;
	unsigned int order;
};

unsigned long layout_pages(const struct layout *l);
unsigned long layout_chunks(const struct layout *l);
/* @index is below layout_pages(). */
struct layout_place layout_find(const struct layout *l, unsigned long index);
/* The largest kind, not larger than @kind, whose chunk fits into @left pages; LAYOUT_KINDS - 1 always does. */
unsigned int layout_kind(unsigned int kind, unsigned long left);

#endif
