// SPDX-License-Identifier: GPL-2.0-only
#include "layout.h"

unsigned long layout_pages(const struct layout *l)
{
	unsigned long pages = 0;
	unsigned int kind;

	for (kind = 0; kind < LAYOUT_KINDS; kind++)
		pages += l->chunks[kind] << layout_order(kind);
	return pages;
}

unsigned long layout_chunks(const struct layout *l)
{
	return l->chunks[0] + l->chunks[1] + l->chunks[2];
}

struct layout_place layout_find(const struct layout *l, unsigned long index)
{
	struct layout_place at = { 0 };
	unsigned int kind;

	for (kind = 0; kind < LAYOUT_KINDS - 1; kind++) {
		unsigned int order = layout_order(kind);

		if (index >> order < l->chunks[kind]) {
			at.order = order;
			break;
		}
		at.chunk += l->chunks[kind];
		index -= l->chunks[kind] << order;
	}
	at.chunk += index >> at.order;
	at.within = index & ((1UL << at.order) - 1);
	return at;
}

unsigned int layout_kind(unsigned int kind, unsigned long left)
{
	while (kind < LAYOUT_KINDS - 1 && 1UL << layout_order(kind) > left)
		kind++;
	return kind;
}
