/* SPDX-License-Identifier: MIT */
#include "strided.h"

#include "../error.h"
#include "view.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* With @size a constant the compiler makes each memcpy() a load and a store. */
static inline __attribute__((always_inline)) void copy_elements(char *dst, int64_t dst_step, const char *src,
								int64_t src_step, uint64_t n, size_t size)
{
	if (dst_step == (int64_t)size && src_step == (int64_t)size)
		memcpy(dst, src, n * size);
	else
		for (int64_t i = 0; i < (int64_t)n; i++)
			memcpy(dst + i * dst_step, src + i * src_step, size);
}

static void copy_row(const struct walk_op *op, char *dst, int64_t dst_step, const char *src, int64_t src_step,
		     uint64_t n)
{
	switch (pinion_dtype_bytes(op->dst)) {
	case 1:
		copy_elements(dst, dst_step, src, src_step, n, 1);
		break;
	case 2:
		copy_elements(dst, dst_step, src, src_step, n, 2);
		break;
	case 4:
		copy_elements(dst, dst_step, src, src_step, n, 4);
		break;
	case 8:
		copy_elements(dst, dst_step, src, src_step, n, 8);
		break;
	}
}

struct walk_op strided_copy(enum pinion_dtype dtype)
{
	return (struct walk_op){ .row = copy_row, .dst = dtype, .src = dtype };
}

/* Whether each stride is longer than what all shorter ones reach together: then no element has two positions. */
static bool keeps_apart(const struct pinion_view *view)
{
	struct {
		uint64_t stride, last;
	} axes[PINION_RANK_MAX];
	uint64_t reach = 0;
	uint32_t n = 0;

	for (uint32_t axis = 0; axis < view->rank; axis++) {
		uint64_t stride = view->stride[axis] < 0 ? -(uint64_t)view->stride[axis] : (uint64_t)view->stride[axis];
		uint32_t i;

		if (view->shape[axis] == 1)
			continue;
		for (i = n++; i && axes[i - 1].stride > stride; i--)
			axes[i] = axes[i - 1];
		axes[i].stride = stride;
		axes[i].last = view->shape[axis] - 1;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (axes[i].stride <= reach)
			return false;
		reach += axes[i].last * axes[i].stride;
	}
	return true;
}

/* The bytes that a view reaches; only the bounds, so that two views may overlap without having an element in common. */
static void reach_bytes(const struct pinion_view *view, uintptr_t *begin, uintptr_t *end)
{
	size_t size = pinion_dtype_bytes(view->dtype);
	int64_t low, high;

	view_reach(view, &low, &high);
	*begin = (uintptr_t)view->data + (uint64_t)low * size;
	*end = (uintptr_t)view->data + ((uint64_t)high + 1) * size;
}

static bool overlap(const struct pinion_view *a, const struct pinion_view *b)
{
	uintptr_t a_begin, a_end, b_begin, b_end;

	reach_bytes(a, &a_begin, &a_end);
	reach_bytes(b, &b_begin, &b_end);
	return a_begin < b_end && b_begin < a_end;
}

static void run(const struct pinion_view *dst, const struct pinion_view *src, const struct walk_op *op)
{
	struct walk walk;

	walk_plan(&walk, dst, src);
	walk_run(&walk, op);
}

/* The result in memory of its own first, then to where it belongs. */
static int run_aside(const struct pinion_view *dst, const struct pinion_view *src, const struct walk_op *op)
{
	struct walk_op copy = strided_copy(dst->dtype);
	struct pinion_view aside = *dst;
	int ret = pinion_dtype_size(dst->dtype, pinion_view_elements(dst), &aside.bytes);

	if (ret)
		return ret;
	aside.data = malloc(aside.bytes);
	if (!aside.data)
		return fail(ENOMEM, "no memory for the %" PRIu64 " bytes that overlapping views go through",
			    aside.bytes);
	view_pack(&aside);
	run(&aside, src, op);
	run(dst, &aside, &copy);
	free(aside.data);
	return 0;
}

int strided_run(const struct pinion_view *dst, const struct pinion_view *src, const struct walk_op *op)
{
	char text[VIEW_TEXT_MAX];
	int ret = view_same_shape(dst, src);

	if (ret || !pinion_view_elements(dst))
		return ret;
	if (!keeps_apart(dst)) {
		pinion_view_describe(dst, text, sizeof(text));
		return fail(EINVAL,
			    "the destination may hold several positions in one element; each stride needs to be "
			    "longer than all shorter ones reach together: %s",
			    text);
	}
	if (overlap(dst, src))
		return run_aside(dst, src, op);
	run(dst, src, op);
	return 0;
}

static int same_dtype(enum pinion_dtype dst, enum pinion_dtype src)
{
	const char *name = pinion_dtype_name(src);

	if (dst == src)
		return 0;
	return fail(EINVAL, "dtype mismatch: the destination is %s, the source %s", pinion_dtype_name(dst),
		    name ? name : "not a dtype");
}

PINION_API int pinion_view_copy(const struct pinion_view *dst, const struct pinion_view *src)
{
	struct walk_op copy;
	int ret = view_check(dst);

	if (!ret)
		ret = view_check(src);
	if (!ret)
		ret = same_dtype(dst->dtype, src->dtype);
	if (ret)
		return ret;
	copy = strided_copy(dst->dtype);
	return strided_run(dst, src, &copy);
}

static int rows_of(const struct pinion_view *view, uint64_t offset, int64_t stride, uint64_t rows, uint64_t elems,
		   struct pinion_view *out)
{
	const uint64_t shape[] = { rows, elems };
	const int64_t strides[] = { stride, 1 };

	return pinion_view_init(out, view->data, view->bytes, view->dtype, 2, shape, strides, offset);
}

PINION_API int pinion_view_copy2d(const struct pinion_view *dst, uint64_t dst_offset, int64_t dst_stride,
				  const struct pinion_view *src, uint64_t src_offset, int64_t src_stride, uint64_t rows,
				  uint64_t elems)
{
	struct pinion_view to, from;
	int ret = rows_of(dst, dst_offset, dst_stride, rows, elems, &to);

	if (!ret)
		ret = rows_of(src, src_offset, src_stride, rows, elems, &from);
	return ret ? ret : pinion_view_copy(&to, &from);
}

/* A copy from one element that has all positions. */
PINION_API int pinion_view_fill(const struct pinion_view *dst, const struct pinion_scalar *value)
{
	struct pinion_scalar own = *value;
	struct pinion_view src;
	struct walk_op copy;
	int ret = view_check(dst);

	if (!ret)
		ret = same_dtype(dst->dtype, value->dtype);
	if (ret || !pinion_view_elements(dst))
		return ret;
	/* Whoever sets the members may mean by another number what a cast means by it. */
	if (own.dtype == PINION_DTYPE_BOOL)
		own.u8 = own.u8 != 0;
	src = *dst;
	src.data = own.bytes;
	src.bytes = sizeof(own.bytes);
	src.offset = 0;
	memset(src.stride, 0, sizeof(src.stride));
	copy = strided_copy(dst->dtype);
	run(dst, &src, &copy);
	return 0;
}
