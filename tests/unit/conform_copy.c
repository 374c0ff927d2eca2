/* SPDX-License-Identifier: MIT */
/* conform copy: clones, copies and fills on one device. */
#include "conform_device.h"

#include <errno.h>

START_TEST(a_clone_has_what_its_layout_describes)
{
	setup(_i);
	for (size_t d = 0; d < DTYPES; d++) {
		struct pinion_view src = any_bits(dtypes[d], 3, box), layout, want;
		struct pinion_array *array = uploaded(&src), *clone;

		for (int i = 0; layout_at(&src, i, &want); i++) {
			layout_at(pinion_array_view(array), i, &layout);
			if (!pinion_device_supports(dev, PINION_OP_COPY, dtypes[d])) {
				ck_assert_int_eq(pinion_array_clone(array, &layout, &clone), -EOPNOTSUPP);
				continue;
			}
			ck_ok(pinion_array_clone(array, &layout, &clone));
			check_elements(clone, &want);
			pinion_array_free(clone);
		}
		pinion_array_free(array);
		free(src.data);
	}
	teardown();
}
END_TEST

START_TEST(a_clone_is_on_its_own)
{
	struct pinion_view src;
	struct pinion_array *array, *clone;
	struct pinion_scalar seven;

	setup(_i);
	src = any_bits(PINION_DTYPE_U8, 3, box);
	array = uploaded(&src);
	if (!pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_U8)) {
		ck_assert_int_eq(pinion_array_clone(array, NULL, &clone), -EOPNOTSUPP);
		pinion_array_free(array);
		free(src.data);
		teardown();
		return;
	}
	ck_ok(pinion_array_clone(array, NULL, &clone));
	ck_ok(pinion_dtype_scalar(PINION_DTYPE_U8, 7, &seven));
	ck_ok(pinion_array_fill(array, NULL, &seven));
	check_elements(clone, &src);
	pinion_array_free(array);
	check_elements(clone, &src);
	pinion_array_free(clone);
	free(src.data);
	teardown();
}
END_TEST

/* From a layout into a place of the same shape in a larger array; what is around it stays. */
START_TEST(a_strided_copy_writes_its_place_and_no_other)
{
	setup(_i);
	for (size_t d = 0; d < DTYPES; d++) {
		struct pinion_view src = any_bits(dtypes[d], 3, box), want = any_bits(dtypes[d], 3, (uint64_t[]){ 6, 6, 6 });
		struct pinion_array *from = uploaded(&src);
		bool can = pinion_device_supports(dev, PINION_OP_COPY, dtypes[d]);

		ck_assert_int_eq(pinion_array_copy(from, NULL, from, NULL), can ? 0 : -EOPNOTSUPP);
		for (int i = 0; can && i < 4; i++) {
			struct pinion_array *to = uploaded(&want);
			struct pinion_view layout, place, at = want, host_layout;

			place = *pinion_array_view(to);
			layout_at(pinion_array_view(from), i, &layout);
			layout_at(&src, i, &host_layout);
			for (uint32_t a = 0; a < 3; a++) {
				ck_ok(pinion_view_narrow(&place, a, 6 - layout.shape[a], layout.shape[a], &place));
				ck_ok(pinion_view_narrow(&at, a, 6 - layout.shape[a], layout.shape[a], &at));
			}
			ck_ok(pinion_array_copy(to, &place, from, &layout));
			ck_ok(pinion_view_copy(&at, &host_layout));
			check_elements(to, &want);
			pinion_array_free(to);
		}
		pinion_array_free(from);
		free(src.data);
		free(want.data);
	}
	teardown();
}
END_TEST

START_TEST(a_copy_over_itself_is_as_if_all_was_read_first)
{
	struct pinion_view src, want, low, high;
	struct pinion_array *array;
	uint64_t n;

	setup(_i);
	n = at_most(100);
	src = any_bits(PINION_DTYPE_I32, 1, &n);
	want = host_like(&src);
	array = uploaded(&src);
	memcpy(want.data, src.data, src.bytes);
	ck_ok(pinion_view_narrow(pinion_array_view(array), 0, 0, n - 10, &low));
	ck_ok(pinion_view_narrow(pinion_array_view(array), 0, 10, n - 10, &high));
	if (pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_I32)) {
		ck_ok(pinion_array_copy(array, &high, array, &low));
		memcpy((int32_t *)want.data + 10, src.data, (n - 10) * sizeof(int32_t));
	} else {
		ck_assert_int_eq(pinion_array_copy(array, &high, array, &low), -EOPNOTSUPP);
	}
	check_elements(array, &want);
	pinion_array_free(array);
	free(src.data);
	free(want.data);
	teardown();
}
END_TEST

START_TEST(copies_that_do_not_fit_are_refused_and_change_nothing)
{
	struct pinion_view a, b, repeat;
	struct pinion_array *x, *y;
	int ret;

	setup(_i);
	ret = pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_F32) ? -EINVAL : -EOPNOTSUPP;
	a = any_bits(PINION_DTYPE_F32, 1, (uint64_t[]){ 6 });
	b = any_bits(PINION_DTYPE_F32, 1, (uint64_t[]){ 7 });
	x = uploaded(&a);
	y = uploaded(&b);
	ck_assert_int_eq(pinion_array_copy(x, NULL, y, NULL), ret);
	ck_ok(pinion_view_narrow(pinion_array_view(x), 0, 0, 1, &repeat));
	ck_ok(pinion_view_broadcast(&repeat, 1, (uint64_t[]){ 7 }, &repeat));
	ck_assert_int_eq(pinion_array_copy(x, &repeat, y, NULL), ret);
	check_elements(x, &a);
	pinion_array_free(y);
	free(b.data);
	b = any_bits(PINION_DTYPE_I32, 1, (uint64_t[]){ 6 });
	y = uploaded(&b);
	ck_assert_int_eq(pinion_array_copy(x, NULL, y, NULL), ret);
	ck_assert_ptr_nonnull(strstr(pinion_error(), ret == -EINVAL ? "dtype mismatch" : "copy"));
	check_elements(x, &a);
	pinion_array_free(x);
	pinion_array_free(y);
	free(a.data);
	free(b.data);
	teardown();
}
END_TEST

START_TEST(a_fill_stores_at_each_position)
{
	setup(_i);
	for (size_t d = 0; d < DTYPES; d++) {
		struct pinion_view want = any_bits(dtypes[d], 3, box), at;
		struct pinion_array *array = uploaded(&want);
		struct pinion_scalar one, wrong = { .dtype = PINION_DTYPE_F4 };

		ck_ok(pinion_dtype_scalar(dtypes[d], 1, &one));
		for (int i = 2; i < 6; i++) {
			struct pinion_view layout;

			layout_at(pinion_array_view(array), i, &layout);
			layout_at(&want, i, &at);
			ck_ok(pinion_array_fill(array, &layout, &one));
			ck_ok(pinion_view_fill(&at, &one));
			check_elements(array, &want);
		}
		ck_assert_int_eq(pinion_array_fill(array, NULL, &wrong), -EINVAL);
		check_elements(array, &want);
		pinion_array_free(array);
		free(want.data);
	}
	teardown();
}
END_TEST

void conform_copy(TCase *c)
{
	tcase_add_loop_test(c, a_clone_has_what_its_layout_describes, 0, key_count);
	tcase_add_loop_test(c, a_clone_is_on_its_own, 0, key_count);
	tcase_add_loop_test(c, a_strided_copy_writes_its_place_and_no_other, 0, key_count);
	tcase_add_loop_test(c, a_copy_over_itself_is_as_if_all_was_read_first, 0, key_count);
	tcase_add_loop_test(c, copies_that_do_not_fit_are_refused_and_change_nothing, 0, key_count);
	tcase_add_loop_test(c, a_fill_stores_at_each_position, 0, key_count);
}
