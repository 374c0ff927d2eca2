/* SPDX-License-Identifier: MIT */
#include "walk.h"

#include "view.h"

/* Longest steps first, so that the destination is written in the order of its addresses. */
static void insert(struct walk *walk, struct walk_axis axis)
{
	uint32_t i = walk->rank++;

	for (; i && axis.dst > walk->axis[i - 1].dst; i--)
		walk->axis[i] = walk->axis[i - 1];
	walk->axis[i] = axis;
}

/* An axis that the destination goes backwards is walked from its other end. */
static void turn(struct walk *walk, struct walk_axis *axis)
{
	int64_t last = (int64_t)axis->extent - 1;

	if (axis->dst >= 0)
		return;
	walk->dst += last * axis->dst;
	walk->src += last * axis->src;
	axis->dst = -axis->dst;
	axis->src = -axis->src;
}

/* Two axes are one where the outer goes on from where the inner ends, in both views. */
static void merge(struct walk *walk)
{
	uint32_t rank = 0;

	for (uint32_t i = 0; i < walk->rank; i++) {
		struct walk_axis *outer = rank ? &walk->axis[rank - 1] : NULL;
		struct walk_axis inner = walk->axis[i];
		int64_t dst, src;

		if (outer && !__builtin_mul_overflow(inner.dst, inner.extent, &dst) && outer->dst == dst &&
		    !__builtin_mul_overflow(inner.src, inner.extent, &src) && outer->src == src) {
			inner.extent *= outer->extent;
			rank--;
		}
		walk->axis[rank++] = inner;
	}
	walk->rank = rank;
}

void walk_plan(struct walk *walk, const struct pinion_view *dst, const struct pinion_view *src)
{
	int64_t dst_size = (int64_t)pinion_dtype_bytes(dst->dtype);
	int64_t src_size = (int64_t)pinion_dtype_bytes(src->dtype);

	*walk = (struct walk){ .dst = view_first(dst), .src = view_first(src) };
	for (uint32_t i = 0; i < dst->rank; i++) {
		struct walk_axis axis = { .extent = dst->shape[i] };

		if (axis.extent == 1)
			continue;
		axis.dst = dst->stride[i] * dst_size;
		axis.src = src->stride[i] * src_size;
		/* Where neither moves, once is enough, however large the extent is. */
		if (!axis.dst && !axis.src)
			continue;
		turn(walk, &axis);
		insert(walk, axis);
	}
	merge(walk);
	if (!walk->rank)
		walk->axis[walk->rank++] = (struct walk_axis){ .extent = 1 };
}

void walk_run(const struct walk *walk, const struct walk_op *op)
{
	const struct walk_axis *row = &walk->axis[walk->rank - 1];
	uint64_t index[PINION_RANK_MAX] = { 0 };
	const char *src = walk->src;
	char *dst = walk->dst;
	uint32_t axis;

	for (;;) {
		op->row(op, dst, row->dst, src, row->src, row->extent);
		for (axis = walk->rank - 1; axis; axis--) {
			const struct walk_axis *outer = &walk->axis[axis - 1];

			if (++index[axis - 1] < outer->extent) {
				dst += outer->dst;
				src += outer->src;
				break;
			}
			index[axis - 1] = 0;
			dst -= (int64_t)(outer->extent - 1) * outer->dst;
			src -= (int64_t)(outer->extent - 1) * outer->src;
		}
		if (!axis)
			return;
	}
}
