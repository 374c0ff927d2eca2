/* SPDX-License-Identifier: MIT */
/* view: what the operations on views ask of each other. */
#ifndef PINION_LIB_VIEW_H
#define PINION_LIB_VIEW_H

#include <pinion/view.h>
#include <stdbool.h>
#include <stdint.h>

/* Room for what pinion_view_describe() writes of any view. */
#define VIEW_TEXT_MAX 512

/* Whether the view may be followed: all that pinion_view_init() promises. 0 or its errors. */
int view_check(const struct pinion_view *view);

/* The first and the last element of the memory that a checked view with elements reaches. */
void view_reach(const struct pinion_view *view, int64_t *low, int64_t *high);

/* Where a checked view has its element at index 0, 0, ...; data when it has none. */
char *view_first(const struct pinion_view *view);

/* Makes @view a row-major one of rank and shape that it has already, with offset 0. */
void view_pack(struct pinion_view *view);

/* -EINVAL, and the sentence says what differs. */
int view_same_shape(const struct pinion_view *dst, const struct pinion_view *src);

#endif
