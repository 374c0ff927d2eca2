/* SPDX-License-Identifier: MIT */
/* reference: the kernels that say what is right. */
#ifndef PINION_BACKENDS_REFERENCE_H
#define PINION_BACKENDS_REFERENCE_H

#include "dispatch/backend.h"

int reference_copy(const struct backend_call *call);
int reference_cast(const struct backend_call *call);
int reference_matmul(const struct backend_call *call);

/* Steps @index through the shape of @view in row-major order; false after the last. */
bool reference_next(const struct pinion_view *view, uint64_t *index);

/* Where the element at @index is. */
void *reference_at(const struct pinion_view *view, const uint64_t *index);

#endif
