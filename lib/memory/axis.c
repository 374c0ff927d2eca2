/* SPDX-License-Identifier: MIT */
/* axis: views made of views by what is done to their axes. Each is built aside, so that @out may be the view itself. */
#include "../error.h"
#include "view.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int begin(const struct pinion_view *view, struct pinion_view *made)
{
	int ret = view_check(view);

	if (!ret)
		*made = *view;
	return ret;
}

static int axis_check(const struct pinion_view *view, uint32_t axis, const char *verb)
{
	if (axis < view->rank)
		return 0;
	return fail(EINVAL, "%s: axis %" PRIu32 " of a view that has %" PRIu32, verb, axis, view->rank);
}

static int begin_axis(const struct pinion_view *view, uint32_t axis, const char *verb, struct pinion_view *made)
{
	int ret = begin(view, made);

	return ret ? ret : axis_check(view, axis, verb);
}

/*
 * The offset moves only where there is an element to move it to: without one, the end of an axis may lie outside the
 * memory, and no sum of strides is checked.
 */
PINION_API int pinion_view_narrow(const struct pinion_view *view, uint32_t axis, uint64_t start, uint64_t len,
				  struct pinion_view *out)
{
	struct pinion_view made;
	int ret = begin_axis(view, axis, "narrow", &made);

	if (ret)
		return ret;
	if (start > view->shape[axis] || len > view->shape[axis] - start)
		return fail(EINVAL,
			    "narrow: axis %" PRIu32 " has extent %" PRIu64 ", not the %" PRIu64
			    " positions from %" PRIu64 " on",
			    axis, view->shape[axis], len, start);
	made.shape[axis] = len;
	if (pinion_view_elements(&made))
		made.offset += (uint64_t)((int64_t)start * view->stride[axis]);
	*out = made;
	return 0;
}

PINION_API int pinion_view_transpose(const struct pinion_view *view, uint32_t a, uint32_t b, struct pinion_view *out)
{
	struct pinion_view made;
	int ret = begin_axis(view, a, "transpose", &made);

	if (!ret)
		ret = axis_check(view, b, "transpose");
	if (ret)
		return ret;
	made.shape[a] = view->shape[b];
	made.stride[a] = view->stride[b];
	made.shape[b] = view->shape[a];
	made.stride[b] = view->stride[a];
	*out = made;
	return 0;
}

PINION_API int pinion_view_permute(const struct pinion_view *view, const uint32_t *axes, struct pinion_view *out)
{
	struct pinion_view made;
	uint32_t seen = 0;
	int ret = begin(view, &made);

	for (uint32_t i = 0; !ret && i < view->rank; i++) {
		ret = axis_check(view, axes[i], "permute");
		if (ret)
			break;
		if (seen & 1u << axes[i])
			return fail(EINVAL,
				    "permute: axis %" PRIu32 " is named twice; each of the %" PRIu32 " is needed once",
				    axes[i], view->rank);
		seen |= 1u << axes[i];
		made.shape[i] = view->shape[axes[i]];
		made.stride[i] = view->stride[axes[i]];
	}
	if (!ret)
		*out = made;
	return ret;
}

PINION_API int pinion_view_squeeze(const struct pinion_view *view, uint32_t axis, struct pinion_view *out)
{
	struct pinion_view made;
	int ret = begin_axis(view, axis, "squeeze", &made);

	if (ret)
		return ret;
	if (view->shape[axis] != 1)
		return fail(EINVAL, "squeeze: axis %" PRIu32 " has extent %" PRIu64 " and needs 1", axis,
			    view->shape[axis]);
	made.rank--;
	memmove(&made.shape[axis], &made.shape[axis + 1], (made.rank - axis) * sizeof(made.shape[0]));
	memmove(&made.stride[axis], &made.stride[axis + 1], (made.rank - axis) * sizeof(made.stride[0]));
	made.shape[made.rank] = 0;
	made.stride[made.rank] = 0;
	*out = made;
	return 0;
}

PINION_API int pinion_view_unsqueeze(const struct pinion_view *view, uint32_t axis, struct pinion_view *out)
{
	struct pinion_view made;
	int ret = begin(view, &made);

	if (ret)
		return ret;
	if (axis > view->rank)
		return fail(EINVAL, "unsqueeze: axis %" PRIu32 " of a view that has %" PRIu32, axis, view->rank);
	if (view->rank == PINION_RANK_MAX)
		return fail(EINVAL, "unsqueeze: the view has %d axes, and no view has more", PINION_RANK_MAX);
	memmove(&made.shape[axis + 1], &made.shape[axis], (view->rank - axis) * sizeof(made.shape[0]));
	memmove(&made.stride[axis + 1], &made.stride[axis], (view->rank - axis) * sizeof(made.stride[0]));
	made.shape[axis] = 1;
	made.stride[axis] = 0;
	made.rank++;
	*out = made;
	return 0;
}

PINION_API int pinion_view_flip(const struct pinion_view *view, uint32_t axis, struct pinion_view *out)
{
	struct pinion_view made;
	int ret = begin_axis(view, axis, "flip", &made);

	if (ret)
		return ret;
	/* Otherwise the stride was never checked, and nothing depends on it. */
	if (pinion_view_elements(view) && view->shape[axis] > 1) {
		made.offset += (uint64_t)((int64_t)(view->shape[axis] - 1) * view->stride[axis]);
		made.stride[axis] = -view->stride[axis];
	}
	*out = made;
	return 0;
}

/* One axis of the result, taken from @axis of the view. */
static int broadcast_axis(const struct pinion_view *view, uint32_t axis, uint64_t extent, int64_t *stride)
{
	if (view->shape[axis] == extent)
		*stride = view->stride[axis];
	else if (view->shape[axis] == 1)
		*stride = 0;
	else
		return fail(EINVAL,
			    "broadcast: axis %" PRIu32 " has extent %" PRIu64 "; for %" PRIu64 " it needs that or 1",
			    axis, view->shape[axis], extent);
	return 0;
}

PINION_API int pinion_view_broadcast(const struct pinion_view *view, uint32_t rank, const uint64_t *shape,
				     struct pinion_view *out)
{
	struct pinion_view made;
	uint32_t front;
	int ret = begin(view, &made);

	if (ret)
		return ret;
	if (rank > PINION_RANK_MAX || rank < view->rank)
		return fail(EINVAL, "broadcast: rank %" PRIu32 " to %" PRIu32 ", which needs to be from there to %d",
			    view->rank, rank, PINION_RANK_MAX);
	front = rank - view->rank;
	made.rank = rank;
	for (uint32_t i = 0; i < rank; i++) {
		made.shape[i] = shape[i];
		made.stride[i] = 0;
		if (i >= front)
			ret = broadcast_axis(view, i - front, shape[i], &made.stride[i]);
		if (ret)
			return ret;
	}
	/* Only now are there more positions than the memory has elements; they must still be countable. */
	ret = view_check(&made);
	if (!ret)
		*out = made;
	return ret;
}
