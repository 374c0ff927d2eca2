/* SPDX-License-Identifier: MIT */
#include "matvec.h"

#include "quant/decode.h"

#define LANES 8

/* In doubles, so that an error is one of the floats; in lanes, so that the CPU's vectors can be used. */
static double dot(const float *w, const float *x, uint64_t n)
{
	double lane[LANES] = { 0 }, sum = 0;
	uint64_t j = 0;

	for (; j + LANES <= n; j += LANES)
		for (int k = 0; k < LANES; k++)
			lane[k] += (double)w[j + k] * x[j + k];
	for (; j < n; j++)
		sum += (double)w[j] * x[j];
	for (int k = 0; k < LANES; k++)
		sum += lane[k];
	return sum;
}

int matvec(uint32_t type, const void *stored, uint64_t rows, uint64_t cols, const float *x, float *w, double *y)
{
	int ret = quant_decode(type, stored, w, rows * cols);

	for (uint64_t i = 0; !ret && i < rows; i++)
		y[i] = dot(w + i * cols, x, cols);
	return ret;
}
