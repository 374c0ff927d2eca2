/* SPDX-License-Identifier: MIT */
/* cast: how an element of one dtype becomes one of another. */
#ifndef PINION_LIB_CAST_H
#define PINION_LIB_CAST_H

#include <pinion/dtype.h>

/* @value as one element, by the rules of pinion_view_cast(). Not for packed dtypes and f8e6m2. */
void cast_real(enum pinion_dtype dtype, double value, void *element);

#endif
