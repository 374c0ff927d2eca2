/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * slice: a dma-buf over (part of) pages, with rights of its own. The rights live here and not in the file's mode, because
 * an importer that maps a dma-buf never looks at that mode.
 *
 * Lifetime: the dma-buf owns the slice from the moment the export succeeded; its release gives everything back.
 */
#ifndef PINION_SLICE_H
#define PINION_SLICE_H

#include <linux/dma-buf.h>
#include <linux/pid.h>
#include <linux/pinion.h>

#include "pages.h"

struct slice {
	struct pages *pages;
	struct payer *payer;   /* who is charged for the slice as an object */
	struct pid *maker;
	unsigned long first; /* page of pages */
	unsigned long nr;
	u64 id;
	u64 made_ns;
	u32 rights;
};

/* A slice over pages @first to @first + @nr; takes its own reference of @pages. */
struct dma_buf *slice_new(struct payer *payer, struct pages *pages, unsigned long first, unsigned long nr, u32 rights);
/* The slice of a dma-buf; NULL: not ours. */
struct slice *slice_of(const struct dma_buf *dmabuf);
/* Device mappings of its pages now. */
unsigned int slice_attachments(struct slice *slice);

#endif
