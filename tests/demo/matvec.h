/* SPDX-License-Identifier: MIT */
/* matvec: rows as they are stored, decoded by the library, times a vector. */
#ifndef PINION_DEMO_MATVEC_H
#define PINION_DEMO_MATVEC_H

#include <stdint.h>

/* y[i] = row i of @stored times @x. @w is left holding the decoded floats. 0 or -errno of the decoder. */
int matvec(uint32_t type, const void *stored, uint64_t rows, uint64_t cols, const float *x, float *w, double *y);

#endif
