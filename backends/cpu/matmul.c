/* SPDX-License-Identifier: MIT */
#include "cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sums in registers: six rows of two vectors leave room in sixteen registers. Blocks fit the second-level cache. */
#define TALL	6
#define ROWS	120
#define COLUMNS 128
#define DEPTH	256

/* Two matrices and their product, which is row-major; strides in elements. */
struct matrices {
	const void *a, *b;
	void *c;
	size_t m, n, k;
	int64_t a_row, a_column, b_row, b_column;
};

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

#define STORED	  uint16_t
#define REAL	  float
#define WIDEN(x)  pinion_f16_to_f32(x)
#define NARROW(x) pinion_f32_to_f16(x)
#define OF(name)  name##_f16
#include "matmul_of.h"

#define STORED	  float
#define REAL	  float
#define WIDEN(x)  (x)
#define NARROW(x) (x)
#define OF(name)  name##_f32
#include "matmul_of.h"

#define STORED	  double
#define REAL	  double
#define WIDEN(x)  (x)
#define NARROW(x) (x)
#define OF(name)  name##_f64
#include "matmul_of.h"

_Static_assert(sizeof(struct scratch_f64) % 64 == 0 && sizeof(struct scratch_f64) > sizeof(struct scratch_f32),
	       "one for all");

static void multiply(enum pinion_dtype dtype, const struct matrices *x, void *scratch)
{
	switch (dtype) {
	case PINION_DTYPE_F16:
		multiply_f16(x, scratch);
		break;
	case PINION_DTYPE_F32:
		multiply_f32(x, scratch);
		break;
	default:
		multiply_f64(x, scratch);
	}
}

/* The element of @view at the batch @index, and 0 along the last two axes. */
static char *matrix_at(const struct pinion_view *view, const uint64_t *index)
{
	int64_t element = (int64_t)view->offset;

	for (uint32_t axis = 0; axis + 2 < view->rank; axis++)
		element += (int64_t)index[axis] * view->stride[axis];
	return (char *)view->data + element * (int64_t)pinion_dtype_bytes(view->dtype);
}

static bool next_matrix(const struct pinion_view *view, uint64_t *index)
{
	for (uint32_t axis = view->rank - 2; axis--;) {
		if (++index[axis] < view->shape[axis])
			return true;
		index[axis] = 0;
	}
	return false;
}

int cpu_matmul(const struct backend_call *call)
{
	const struct pinion_view *a = &call->src[0], *b = &call->src[1], *c = &call->dst;
	uint32_t row = c->rank - 2, column = c->rank - 1;
	struct matrices x = { .m = c->shape[row],
			      .n = c->shape[column],
			      .k = a->shape[column],
			      .a_row = a->stride[row],
			      .a_column = a->stride[column],
			      .b_row = b->stride[row],
			      .b_column = b->stride[column] };
	uint64_t index[PINION_RANK_MAX] = { 0 };
	/* The largest of the three. */
	void *scratch = aligned_alloc(64, sizeof(struct scratch_f64));

	if (!scratch)
		return fail(ENOMEM, "no memory for the %zu bytes that a matmul packs into", sizeof(struct scratch_f64));
	do {
		x.a = matrix_at(a, index);
		x.b = matrix_at(b, index);
		x.c = matrix_at(c, index);
		multiply(c->dtype, &x, scratch);
	} while (next_matrix(c, index));
	free(scratch);
	return 0;
}
