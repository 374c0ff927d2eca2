/* SPDX-License-Identifier: MIT */
/* strided: runs an operation over two views, whose layouts may be any that keep the destination's positions apart. */
#ifndef PINION_LIB_STRIDED_H
#define PINION_LIB_STRIDED_H

#include "walk.h"

/* Views checked. -EINVAL the shapes differ, or positions of @dst may share an element; -ENOMEM. */
int strided_run(const struct pinion_view *dst, const struct pinion_view *src, const struct walk_op *op);

/* The rows of a plain copy between views of one dtype. */
struct walk_op strided_copy(enum pinion_dtype dtype);

#endif
