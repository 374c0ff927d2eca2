/* SPDX-License-Identifier: MIT */
/* matmul: sums of products, each in the order of k. */
#include "reference.h"

#include <math.h>
#include <string.h>

static double read_element(const struct pinion_view *view, const uint64_t *index)
{
	const void *element = reference_at(view, index);
	uint16_t half;
	double f64;
	float f32;

	switch (view->dtype) {
	case PINION_DTYPE_F16:
		memcpy(&half, element, sizeof(half));
		return pinion_f16_to_f32(half);
	case PINION_DTYPE_F32:
		memcpy(&f32, element, sizeof(f32));
		return f32;
	default:
		memcpy(&f64, element, sizeof(f64));
		return f64;
	}
}

/* One rounding, from f64. */
static int write_element(const struct pinion_view *view, const uint64_t *index, double sum)
{
	struct pinion_scalar s;
	int ret = pinion_dtype_scalar(view->dtype, sum, &s);

	if (!ret)
		memcpy(reference_at(view, index), s.bytes, pinion_dtype_bytes(view->dtype));
	return ret;
}

int reference_matmul(const struct backend_call *call)
{
	const struct pinion_view *a = &call->src[0], *b = &call->src[1], *c = &call->dst;
	uint32_t row = c->rank - 2, column = c->rank - 1;
	uint64_t index[PINION_RANK_MAX] = { 0 };
	int ret;

	do {
		uint64_t at_a[PINION_RANK_MAX], at_b[PINION_RANK_MAX];
		double sum = 0;

		memcpy(at_a, index, sizeof(index));
		memcpy(at_b, index, sizeof(index));
		for (uint64_t k = 0; k < a->shape[column]; k++) {
			at_a[column] = k;
			at_b[row] = k;
			sum = fma(read_element(a, at_a), read_element(b, at_b), sum);
		}
		ret = write_element(c, index, sum);
	} while (!ret && reference_next(c, index));
	return ret;
}
