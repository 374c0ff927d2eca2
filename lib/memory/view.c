/* SPDX-License-Identifier: MIT */
#include "view.h"

#include "../error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text that grows in a buffer that may be too small for it. */
struct text {
	char *buf;
	size_t size, len;
};

static void text_add(struct text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void text_add(struct text *text, const char *fmt, ...)
{
	size_t room = text->len < text->size ? text->size - text->len : 0;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(room ? text->buf + text->len : NULL, room, fmt, ap);
	va_end(ap);
	text->len += n > 0 ? (size_t)n : 0;
}

PINION_API int pinion_view_describe(const struct pinion_view *view, char *buf, size_t size)
{
	struct text text = { .buf = buf, .size = size };
	uint32_t rank = view->rank < PINION_RANK_MAX ? view->rank : PINION_RANK_MAX;
	const char *name = pinion_dtype_name(view->dtype);

	text_add(&text, "%s[", name ? name : "?");
	for (uint32_t axis = 0; axis < rank; axis++)
		text_add(&text, "%s%" PRIu64, axis ? "," : "", view->shape[axis]);
	text_add(&text, "] stride [");
	for (uint32_t axis = 0; axis < rank; axis++)
		text_add(&text, "%s%" PRId64, axis ? "," : "", view->stride[axis]);
	text_add(&text, "] offset %" PRIu64 " in %" PRIu64 " bytes", view->offset, view->bytes);
	return (int)text.len;
}

static bool is_empty(const struct pinion_view *view)
{
	for (uint32_t axis = 0; axis < view->rank; axis++)
		if (!view->shape[axis])
			return true;
	return false;
}

/* False when 64 bits do not count them. */
static bool count_elements(const struct pinion_view *view, uint64_t *elements)
{
	*elements = is_empty(view) ? 0 : 1;
	for (uint32_t axis = 0; axis < view->rank && *elements; axis++)
		if (__builtin_mul_overflow(*elements, view->shape[axis], elements))
			return false;
	return true;
}

PINION_API uint64_t pinion_view_elements(const struct pinion_view *view)
{
	uint64_t elements;

	if (view->rank > PINION_RANK_MAX)
		return 0;
	return count_elements(view, &elements) ? elements : UINT64_MAX;
}

PINION_API bool pinion_view_is_contiguous(const struct pinion_view *view)
{
	int64_t step = 1;

	if (view->rank > PINION_RANK_MAX)
		return false;
	if (is_empty(view))
		return true;
	for (uint32_t axis = view->rank; axis--;) {
		if (view->shape[axis] == 1)
			continue;
		if (view->stride[axis] != step || __builtin_mul_overflow(step, view->shape[axis], &step))
			return false;
	}
	return true;
}

static int memory_check(const struct pinion_view *view)
{
	uintptr_t end;
	uint64_t size;
	int ret = pinion_dtype_size(view->dtype, 1, &size);

	if (ret)
		return ret;
	if (view->dtype == PINION_DTYPE_F8E6M2)
		return fail(EOPNOTSUPP, "f8e6m2 has no agreed encoding, so that there is nothing to view it as");
	if (!view->data && view->bytes)
		return fail(EINVAL, "%" PRIu64 " bytes of memory at NULL", view->bytes);
	if (view->bytes > INT64_MAX || __builtin_add_overflow((uintptr_t)view->data, view->bytes, &end))
		return fail(EINVAL, "%" PRIu64 " bytes of memory at %p are more than there can be", view->bytes,
			    view->data);
	if ((uintptr_t)view->data % size)
		return fail(EINVAL, "%p is not aligned to the %" PRIu64 " bytes of an element of %s", view->data, size,
			    pinion_dtype_name(view->dtype));
	return 0;
}

/* Adds to both ends of the reach what @axis does to it; false when 64 bits do not hold it. */
static bool reach_axis(const struct pinion_view *view, uint32_t axis, int64_t *low, int64_t *high)
{
	int64_t far;

	if (__builtin_mul_overflow(view->shape[axis] - 1, view->stride[axis], &far))
		return false;
	return !__builtin_add_overflow(far < 0 ? *low : *high, far, far < 0 ? low : high);
}

static int bounds_check(const struct pinion_view *view)
{
	uint64_t room = view->bytes / pinion_dtype_bytes(view->dtype);
	char text[VIEW_TEXT_MAX];
	int64_t low, high;

	if (__builtin_add_overflow(view->offset, 0, &low))
		return fail(EOVERFLOW, "offset %" PRIu64 " is more than 63 bits count", view->offset);
	high = low;
	for (uint32_t axis = 0; axis < view->rank; axis++)
		if (!reach_axis(view, axis, &low, &high))
			return fail(EOVERFLOW,
				    "axis %" PRIu32 ", extent %" PRIu64 " and stride %" PRId64 ", reaches past 63 bits",
				    axis, view->shape[axis], view->stride[axis]);
	if (low >= 0 && (uint64_t)high < room)
		return 0;
	pinion_view_describe(view, text, sizeof(text));
	return fail(EINVAL, "out of bounds: elements %" PRId64 " to %" PRId64 " of memory that has %" PRIu64 ": %s",
		    low, high, room, text);
}

int view_check(const struct pinion_view *view)
{
	uint64_t elements;
	int ret;

	assert(view);
	if (view->rank > PINION_RANK_MAX)
		return fail(EINVAL, "rank %" PRIu32 " is over %d", view->rank, PINION_RANK_MAX);
	ret = memory_check(view);
	if (ret || is_empty(view))
		return ret;
	if (!count_elements(view, &elements))
		return fail(EOVERFLOW, "elem_count overflow: the extents' product is more than 64 bits count");
	return bounds_check(view);
}

void view_reach(const struct pinion_view *view, int64_t *low, int64_t *high)
{
	*low = *high = (int64_t)view->offset;
	for (uint32_t axis = 0; axis < view->rank; axis++)
		reach_axis(view, axis, low, high);
}

char *view_first(const struct pinion_view *view)
{
	return is_empty(view) ? view->data : (char *)view->data + view->offset * pinion_dtype_bytes(view->dtype);
}

/* Where 64 bits do not count the elements, strides wrap; view_check() refuses such a view before it looks at them. */
void view_pack(struct pinion_view *view)
{
	uint64_t step = 1;

	for (uint32_t axis = view->rank; axis--;) {
		view->stride[axis] = (int64_t)step;
		step *= view->shape[axis] ? view->shape[axis] : 1;
	}
	view->offset = 0;
}

int view_same_shape(const struct pinion_view *dst, const struct pinion_view *src)
{
	if (dst->rank != src->rank)
		return fail(EINVAL,
			    "the destination's rank is %" PRIu32 ", the source's %" PRIu32
			    "; their shapes must be the same",
			    dst->rank, src->rank);
	for (uint32_t axis = 0; axis < dst->rank; axis++)
		if (dst->shape[axis] != src->shape[axis])
			return fail(EINVAL,
				    "axis %" PRIu32 ": the destination's extent is %" PRIu64 ", the source's %" PRIu64
				    "; their shapes must be the same",
				    axis, dst->shape[axis], src->shape[axis]);
	return 0;
}

PINION_API int pinion_view_init(struct pinion_view *view, void *data, uint64_t bytes, enum pinion_dtype dtype,
				uint32_t rank, const uint64_t *shape, const int64_t *stride, uint64_t offset)
{
	struct pinion_view made = { .data = data, .bytes = bytes, .dtype = dtype, .rank = rank };
	int ret;

	assert(view);
	if (rank > PINION_RANK_MAX)
		return fail(EINVAL, "rank %" PRIu32 " is over %d", rank, PINION_RANK_MAX);
	if (rank)
		memcpy(made.shape, shape, rank * sizeof(*shape));
	if (rank && stride)
		memcpy(made.stride, stride, rank * sizeof(*stride));
	else
		view_pack(&made);
	made.offset = offset;
	ret = view_check(&made);
	if (!ret)
		*view = made;
	return ret;
}
