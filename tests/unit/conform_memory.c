/* SPDX-License-Identifier: MIT */
/* conform memory: arrays made, filled from the host and read back. */
#include "conform_device.h"

#include <errno.h>

START_TEST(zeros_are_zero)
{
	setup(_i);
	for (size_t d = 0; d < DTYPES; d++) {
		struct pinion_view want = host(dtypes[d], 3, box);
		struct pinion_array *array;
		int ret = pinion_array_zeros(dev, dtypes[d], 3, box, &array);

		if (dtypes[d] == PINION_DTYPE_F8E8M0) {
			ck_assert_int_eq(ret, -EINVAL);
			ck_assert_ptr_nonnull(strstr(pinion_error(), "zero"));
		} else {
			ck_ok(ret);
			check_elements(array, &want);
			ck_assert_ptr_eq(pinion_array_device(array), dev);
			ck_assert_uint_eq((uintptr_t)pinion_array_view(array)->data % pinion_device_caps(dev)->alignment, 0);
			pinion_array_free(array);
		}
		free(want.data);
	}
	pinion_array_free(NULL);
	teardown();
}
END_TEST

START_TEST(an_array_may_have_no_elements_or_no_axes)
{
	struct pinion_array *array, *copy;
	struct pinion_view one;
	uint64_t huge;

	setup(_i);
	huge = pinion_device_caps(dev)->extent_max;
	ck_ok(pinion_array_zeros(dev, PINION_DTYPE_F32, 3, (uint64_t[]){ huge, 0, huge }, &array));
	ck_assert_uint_eq(pinion_view_elements(pinion_array_view(array)), 0);
	if (pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_F32)) {
		ck_ok(pinion_array_clone(array, NULL, &copy));
		ck_ok(pinion_array_copy(copy, NULL, array, NULL));
		pinion_array_free(copy);
	}
	if (!pinion_devices_share(dev, reference) || pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_F32)) {
		ck_ok(pinion_array_copy_to(array, NULL, reference, &copy, NULL));
		pinion_array_free(copy);
	}
	pinion_array_free(array);
	ck_ok(pinion_array_zeros(dev, PINION_DTYPE_I32, 0, NULL, &array));
	one = downloaded(array);
	ck_assert_int_eq(*pinion_view_i32(&one), 0);
	free(one.data);
	pinion_array_free(array);
	teardown();
}
END_TEST

/* 2^@log2 elements within the limits of the device. The rank; 0: it has no array that large. */
static uint32_t shape_of(uint32_t log2, uint64_t shape[PINION_RANK_MAX])
{
	const struct pinion_caps *caps = pinion_device_caps(dev);
	uint32_t rank = 0, most = 31;

	while (UINT64_C(1) << most > caps->extent_max)
		most--;
	for (; log2 && rank < caps->rank_max; rank++) {
		uint32_t part = log2 < most ? log2 : most;

		shape[rank] = UINT64_C(1) << part;
		log2 -= part;
	}
	return log2 ? 0 : rank;
}

START_TEST(an_array_that_cannot_be_is_refused_and_nothing_is_made)
{
	/* More than is counted, more bytes than are, and more than there is. */
	static const struct {
		enum pinion_dtype dtype;
		uint32_t log2;
		int ret;
	} beyond[] = {
		{ PINION_DTYPE_F64, 93, -EOVERFLOW },
		{ PINION_DTYPE_F64, 61, -EOVERFLOW },
		{ PINION_DTYPE_U8, 52, -ENOMEM },
	};
	struct pinion_array *array = (void *)1;
	uint64_t shape[PINION_RANK_MAX + 1] = { 0 };
	const struct pinion_caps *caps;

	setup(_i);
	caps = pinion_device_caps(dev);
	ck_assert_int_eq(pinion_array_zeros(dev, PINION_DTYPE_F32, caps->rank_max + 1, shape, &array), -EINVAL);
	shape[0] = caps->extent_max + 1;
	if (shape[0])
		ck_assert_int_eq(pinion_array_uninit(dev, PINION_DTYPE_F32, 1, shape, &array), -EINVAL);
	for (size_t i = 0; i < sizeof(beyond) / sizeof(*beyond); i++) {
		uint32_t rank = shape_of(beyond[i].log2, shape);

		if (rank)
			ck_assert_int_eq(pinion_array_uninit(dev, beyond[i].dtype, rank, shape, &array), beyond[i].ret);
	}
	ck_assert_ptr_eq(array, (void *)1);
	teardown();
}
END_TEST

START_TEST(what_goes_up_comes_down)
{
	setup(_i);
	for (size_t d = 0; d < DTYPES; d++) {
		struct pinion_view src = any_bits(dtypes[d], 3, box), layout;

		for (int i = 0; layout_at(&src, i, &layout); i++) {
			struct pinion_array *array = uploaded(&layout);

			check_elements(array, &layout);
			ck_assert(pinion_view_is_contiguous(pinion_array_view(array)));
			pinion_array_free(array);
		}
		free(src.data);
	}
	teardown();
}
END_TEST

START_TEST(a_download_obeys_both_layouts)
{
	setup(_i);
	for (int i = 0; i < 4; i++) {
		struct pinion_view src = any_bits(PINION_DTYPE_I16, 3, box),
				   room = host(PINION_DTYPE_I16, 3, (uint64_t[]){ 5, 4, 9 });
		struct pinion_view layout, want, dst;
		struct pinion_array *array = uploaded(&src);

		layout_at(pinion_array_view(array), i, &layout);
		layout_at(&src, i, &want);
		for (uint32_t a = 0; a < 3; a++)
			ck_ok(pinion_view_narrow(a ? &dst : &room, a, room.shape[a] - want.shape[a], want.shape[a], &dst));
		ck_ok(pinion_array_download(array, &layout, &dst));
		pinion_array_free(array);
		array = uploaded(&dst);
		check_elements(array, &want);
		pinion_array_free(array);
		free(room.data);
		free(src.data);
	}
	teardown();
}
END_TEST

START_TEST(a_download_into_another_shape_or_dtype_is_refused)
{
	struct pinion_view src, dst;
	struct pinion_array *array;

	setup(_i);
	src = any_bits(PINION_DTYPE_F32, 3, box);
	array = uploaded(&src);
	dst = host(PINION_DTYPE_I32, 3, box);
	ck_assert_int_eq(pinion_array_download(array, NULL, &dst), -EINVAL);
	free(dst.data);
	dst = host(PINION_DTYPE_F32, 2, box);
	ck_assert_int_eq(pinion_array_download(array, NULL, &dst), -EINVAL);
	free(dst.data);
	pinion_array_free(array);
	free(src.data);
	teardown();
}
END_TEST

START_TEST(a_layout_of_other_memory_is_refused)
{
	struct pinion_view src, other;
	struct pinion_array *array, *out = (void *)1;
	int ret;

	setup(_i);
	ret = pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_F32) ? -EINVAL : -EOPNOTSUPP;
	src = any_bits(PINION_DTYPE_F32, 3, box);
	array = uploaded(&src);
	ck_assert_int_eq(pinion_array_clone(array, &src, &out), ret);
	other = *pinion_array_view(array);
	other.dtype = PINION_DTYPE_I32;
	ck_assert_int_eq(pinion_array_clone(array, &other, &out), ret);
	other = *pinion_array_view(array);
	other.stride[0] *= 2;
	ck_assert_int_eq(pinion_array_clone(array, &other, &out), ret);
	other = *pinion_array_view(array);
	other.bytes *= 2;
	ck_assert_int_eq(pinion_array_download(array, &other, &src), -EINVAL);
	ck_assert_ptr_eq(out, (void *)1);
	pinion_array_free(array);
	free(src.data);
	teardown();
}
END_TEST

void conform_memory(TCase *c)
{
	tcase_add_loop_test(c, zeros_are_zero, 0, key_count);
	tcase_add_loop_test(c, an_array_may_have_no_elements_or_no_axes, 0, key_count);
	tcase_add_loop_test(c, an_array_that_cannot_be_is_refused_and_nothing_is_made, 0, key_count);
	tcase_add_loop_test(c, what_goes_up_comes_down, 0, key_count);
	tcase_add_loop_test(c, a_download_obeys_both_layouts, 0, key_count);
	tcase_add_loop_test(c, a_download_into_another_shape_or_dtype_is_refused, 0, key_count);
	tcase_add_loop_test(c, a_layout_of_other_memory_is_refused, 0, key_count);
}
