/* SPDX-License-Identifier: MIT */
/* view: memory read as an array: a dtype, a shape, signed strides and an offset. Owns nothing, checks its bounds. */
#ifndef PINION_VIEW_H
#define PINION_VIEW_H

#include <pinion/dtype.h>
#include <pinion/index.h> /* PINION_RANK_MAX */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Plain data: copy it freely, read any member. The memory is borrowed and must stay as long as a view of it is used.
 * Calls check the views they are given, so that one with members changed by hand is refused when it leaves its memory.
 *
 * The element at index i is number offset + sum(i[a] * stride[a]) of the memory. A view with an extent of 0 has no
 * element and reaches nothing, whatever its strides and offset are.
 */
struct pinion_view {
	void *data;	/* first byte of the memory, aligned to an element */
	uint64_t bytes; /* of the memory */
	enum pinion_dtype dtype;
	uint32_t rank; /* 0: one element */
	uint64_t shape[PINION_RANK_MAX];
	int64_t stride[PINION_RANK_MAX]; /* in elements; may be 0 or negative */
	uint64_t offset;		 /* in elements, from data to the element at index 0, 0, ... */
};

/*
 * Makes a view of @bytes bytes at @data. @stride NULL: row-major, without gaps. @shape and @stride have @rank members.
 * Errors: -EINVAL rank over PINION_RANK_MAX, not a dtype, data "not aligned to" an element, or "out of bounds": an
 * element that the view reaches is outside the memory; -EOPNOTSUPP packed dtypes and f8e6m2; -EOVERFLOW.
 */
int pinion_view_init(struct pinion_view *view, void *data, uint64_t bytes, enum pinion_dtype dtype, uint32_t rank,
		     const uint64_t *shape, const int64_t *stride, uint64_t offset);

/* Positions: the product of the extents, 1 for rank 0. With strides of 0, there may be more of them than elements. */
uint64_t pinion_view_elements(const struct pinion_view *view);

/* Row-major without gaps; axes of extent 1 and the offset do not matter. A view without elements is contiguous. */
bool pinion_view_is_contiguous(const struct pinion_view *view);

/*
 * Writes "f32[2,3] stride [3,1] offset 0 in 24 bytes", cut to @size bytes with the final 0, and returns its full length
 * as snprintf() does.
 */
int pinion_view_describe(const struct pinion_view *view, char *buf, size_t size);

/*
 * Other views of the same memory; no element is touched. @out may be @view. -EINVAL, the sentence names the axis, its
 * extent and the need; broadcasting also -EOVERFLOW.
 */

/* @len positions of @axis from @start on. */
int pinion_view_narrow(const struct pinion_view *view, uint32_t axis, uint64_t start, uint64_t len,
		       struct pinion_view *out);
/* Axes @a and @b change places. */
int pinion_view_transpose(const struct pinion_view *view, uint32_t a, uint32_t b, struct pinion_view *out);
/* Axis i of the result is axis @axes[i]; @axes names each axis once. */
int pinion_view_permute(const struct pinion_view *view, const uint32_t *axes, struct pinion_view *out);
/* Without @axis, whose extent must be 1. */
int pinion_view_squeeze(const struct pinion_view *view, uint32_t axis, struct pinion_view *out);
/* A new axis of extent 1 and stride 0 before @axis, or at the end when @axis is the rank. */
int pinion_view_unsqueeze(const struct pinion_view *view, uint32_t axis, struct pinion_view *out);
/* @axis backwards. */
int pinion_view_flip(const struct pinion_view *view, uint32_t axis, struct pinion_view *out);
/*
 * To @rank axes of @shape. The view's axes are the last ones; each has the extent asked for, or 1 and is repeated with
 * a stride of 0, as are the axes in front of them.
 */
int pinion_view_broadcast(const struct pinion_view *view, uint32_t rank, const uint64_t *shape,
			  struct pinion_view *out);

/*
 * Element by element, from @src to the same index of @dst. Both may lie in the same memory: the result is as if @src
 * had been read whole first, for which overlapping views need memory (-ENOMEM). A @dst that may hold two positions in
 * one element is refused (-EINVAL): each of its strides must be longer than all shorter ones reach together, which
 * holds for every view made of a contiguous one without broadcasting. -EINVAL the shapes differ.
 */

/* -EINVAL the dtypes differ. */
int pinion_view_copy(const struct pinion_view *dst, const struct pinion_view *src);

/*
 * Converts. Integers to integers saturate. Floats to integers drop the fraction and saturate, NaN becomes 0. To bool:
 * anything but zero is 1, NaN too. To floats: one rounding, as in pinion_f32_to_f16() and its like. -EOPNOTSUPP packed
 * dtypes and f8e6m2.
 */
int pinion_view_cast(const struct pinion_view *dst, const struct pinion_view *src);

/*
 * Copies @rows rows of @elems elements. Only memory and dtype of the views count: row r starts at element offset +
 * r * stride of the memory. Errors as of pinion_view_init() and pinion_view_copy().
 */
int pinion_view_copy2d(const struct pinion_view *dst, uint64_t dst_offset, int64_t dst_stride,
		       const struct pinion_view *src, uint64_t src_offset, int64_t src_stride, uint64_t rows,
		       uint64_t elems);

/* Stores @value at each position, which may share elements; of a bool that is not 0, 1. -EINVAL the dtypes differ. */
int pinion_view_fill(const struct pinion_view *dst, const struct pinion_scalar *value);

/*
 * The first element of a contiguous view of that dtype, and NULL otherwise, with a sentence. A view without elements
 * gives data, which may be NULL. f16 and bf16 are codes, see pinion_f16_to_f32(); so are the dtypes of one byte.
 */
uint8_t *pinion_view_u8(const struct pinion_view *view);
int8_t *pinion_view_i8(const struct pinion_view *view);
uint32_t *pinion_view_u32(const struct pinion_view *view);
int16_t *pinion_view_i16(const struct pinion_view *view);
int32_t *pinion_view_i32(const struct pinion_view *view);
int64_t *pinion_view_i64(const struct pinion_view *view);
uint16_t *pinion_view_bf16(const struct pinion_view *view);
uint16_t *pinion_view_f16(const struct pinion_view *view);
float *pinion_view_f32(const struct pinion_view *view);
double *pinion_view_f64(const struct pinion_view *view);
uint8_t *pinion_view_f8e4m3(const struct pinion_view *view);
uint8_t *pinion_view_f8e5m2(const struct pinion_view *view);
uint8_t *pinion_view_f8e8m0(const struct pinion_view *view);
uint8_t *pinion_view_bool(const struct pinion_view *view);

#ifdef __cplusplus
}
#endif
#endif
