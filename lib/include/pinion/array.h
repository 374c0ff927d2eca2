/* SPDX-License-Identifier: MIT */
/* array: elements of one dtype in a device's memory, and what can be done with them there. */
#ifndef PINION_ARRAY_H
#define PINION_ARRAY_H

#include <pinion/caps.h>
#include <pinion/dtype.h>
#include <pinion/op.h>
#include <pinion/view.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_array;
struct pinion_device;
struct pinion_storage;

/*
 * Layouts are views made from pinion_array_view() with the calls of view.h, which touch no element: narrowed,
 * transposed, broadcast. NULL is the whole array. A view of other memory is -EINVAL. New arrays are row-major without
 * gaps, and belong to the caller, who frees them with pinion_array_free().
 *
 * Calls answer when the work is done; arrays of a device with a queue go past that queue and are not counted in it. One
 * array is used by one thread at a time, except that any number may read it.
 *
 * Errors of all calls: -EOPNOTSUPP the device cannot (see pinion_device_supports()), packed dtypes and f8e6m2; -ENOMEM
 * the device's memory or the host's; -EOVERFLOW; -EINVAL rank or extent over the device's limits; -EOWNERDEAD.
 */

/* All elements 0. -EINVAL f8e8m0, which has no zero. */
int pinion_array_zeros(struct pinion_device *dev, enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape,
		       struct pinion_array **out);

/* Elements of any content: write them before they are read. */
int pinion_array_uninit(struct pinion_device *dev, enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape,
			struct pinion_array **out);

void pinion_array_free(struct pinion_array *array);

/* The elements of @src, a view of host memory. */
int pinion_array_upload(struct pinion_device *dev, const struct pinion_view *src, struct pinion_array **out);

/* To @dst, a view of host memory with the same dtype and shape, and with no two positions in one element. */
int pinion_array_download(const struct pinion_array *array, const struct pinion_view *layout,
			  const struct pinion_view *dst);

/*
 * The whole array. Its data is where the device has the elements, which the host may follow only when the device's
 * substrate is PINION_SUBSTRATE_HOST. Borrowed.
 */
const struct pinion_view *pinion_array_view(const struct pinion_array *array);

/* Borrowed. */
struct pinion_device *pinion_array_device(const struct pinion_array *array);

/*
 * The memory of the array, of kind PINION_STORAGE_DEVICE: what kernels of candidates take, and how it is measured,
 * described and, where the host can follow its address, looked at as any storage is. A reference of the caller's, given
 * back with pinion_storage_free() from any thread; it may outlive the array.
 */
struct pinion_storage *pinion_array_storage(const struct pinion_array *array);

/* The elements that @layout has, on the same device. Needs the op copy. */
int pinion_array_clone(const struct pinion_array *src, const struct pinion_view *layout, struct pinion_array **out);

/*
 * A copy of the elements that @layout has on device @dev, over the path of pinion_device_path_for() for its bytes.
 * *@taken (may be NULL): the path gone.
 */
int pinion_array_copy_to(const struct pinion_array *src, const struct pinion_view *layout, struct pinion_device *dev,
			 struct pinion_array **out, enum pinion_path *taken);

/*
 * The same memory as an array of device @dev; it goes with the last of its arrays. -EINVAL the devices do not share,
 * see pinion_devices_share().
 */
int pinion_array_share(const struct pinion_array *src, struct pinion_device *dev, struct pinion_array **out);

/* Element by element, as pinion_view_copy(). Both on devices that share. -EINVAL shapes, dtypes or devices differ. */
int pinion_array_copy(struct pinion_array *dst, const struct pinion_view *dst_layout, const struct pinion_array *src,
		      const struct pinion_view *src_layout);

/* Stores @value at each position. -EINVAL the dtypes differ. */
int pinion_array_fill(struct pinion_array *dst, const struct pinion_view *layout, const struct pinion_scalar *value);

/* The elements as @dtype, by the rules of pinion_view_cast(). */
int pinion_array_cast(const struct pinion_array *src, const struct pinion_view *layout, enum pinion_dtype dtype,
		      struct pinion_array **out);

/*
 * [..., m, k] times [..., k, n] is [..., m, n]. The axes in front, if any, are the same in both; a stride of 0 repeats.
 * f32, f64 and f16, both of one dtype. -EINVAL shapes or dtypes do not go together.
 *
 * What it is: each element is the sum over k of products in f64, from k = 0 on, each product added without a rounding
 * of its own, and the sum rounded once to the dtype. That is what "reference" computes to the bit. Other devices add in
 * f32 for f32 and f16, in any order, and round once to f16: with s the sum of the products' magnitudes and u half a
 * unit of 1 (2^-24 for f32, 2^-53 for f64), they are off by no more than 2 k u s, and for f16 by half a unit of f16
 * more.
 */
int pinion_array_matmul(const struct pinion_array *lhs, const struct pinion_view *lhs_layout,
			const struct pinion_array *rhs, const struct pinion_view *rhs_layout,
			struct pinion_array **out);

/* An array and how it is read; NULL: whole. */
struct pinion_operand {
	struct pinion_array *array;
	const struct pinion_view *layout;
};

/*
 * Any op that the destination's device has for results of the destination's dtype, into an array that is there: what
 * the calls above go through. The sources are on devices that share with it. A destination that overlaps a source is as
 * if the source had been read first. Errors, in this order: -EOPNOTSUPP the device has no such kernel; -EINVAL the
 * operands.
 */
int pinion_array_run(enum pinion_op op, const struct pinion_operand *dst, const struct pinion_operand *src, size_t srcs,
		     const void *params, size_t params_size);

#ifdef __cplusplus
}
#endif
#endif
