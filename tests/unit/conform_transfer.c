/* SPDX-License-Identifier: MIT */
/* conform transfer: from device to device. */
#include "conform_device.h"

#include <errno.h>

/* To each of the devices, and back. */
START_TEST(a_copy_to_a_device_goes_the_path_that_is_said)
{
	setup(_i);
	for (int k = 0; k < key_count; k++) {
		struct pinion_view src = any_bits(PINION_DTYPE_BF16, 3, box), flipped;
		struct pinion_array *array = uploaded(&src), *there, *back;
		struct pinion_device *other;
		struct pinion_transfer t;
		enum pinion_path taken = 0;

		ck_ok(pinion_device_find(ctx, keys[k], &other));
		ck_ok(pinion_device_path(dev, other, &t));
		ck_assert(pinion_location_equal(t.to, pinion_device_caps(other)->location));
		ck_assert_int_eq(pinion_devices_share(dev, other), t.path == PINION_PATH_SAME);
		ck_assert_int_eq(pinion_devices_share(dev, other), pinion_devices_share(other, dev));
		if (t.path == PINION_PATH_SAME && !pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_BF16)) {
			ck_assert_int_eq(pinion_array_copy_to(array, NULL, other, &there, &taken), -EOPNOTSUPP);
			pinion_array_free(array);
			free(src.data);
			continue;
		}
		ck_ok(pinion_array_copy_to(array, NULL, other, &there, &taken));
		ck_assert_int_eq(taken, t.path);
		ck_assert_ptr_eq(pinion_array_device(there), other);
		check_elements(there, &src);
		ck_ok(pinion_view_flip(pinion_array_view(there), 1, &flipped));
		if (pinion_device_supports(other, PINION_OP_COPY, PINION_DTYPE_BF16)) {
			ck_ok(pinion_array_copy_to(there, &flipped, dev, &back, NULL));
			ck_ok(pinion_view_flip(&src, 1, &flipped));
			check_elements(back, &flipped);
			pinion_array_free(back);
		}
		pinion_array_free(there);
		pinion_array_free(array);
		free(src.data);
	}
	teardown();
}
END_TEST

START_TEST(memory_is_shared_with_devices_that_share_and_no_others)
{
	setup(_i);
	for (int k = 0; k < key_count; k++) {
		struct pinion_view src = any_bits(PINION_DTYPE_U8, 3, box);
		struct pinion_array *array = uploaded(&src), *shared = (void *)1;
		struct pinion_device *other;
		struct pinion_scalar one;

		ck_ok(pinion_device_find(ctx, keys[k], &other));
		if (!pinion_devices_share(dev, other)) {
			ck_assert_int_eq(pinion_array_share(array, other, &shared), -EINVAL);
			ck_assert_ptr_eq(shared, (void *)1);
			pinion_array_free(array);
		} else {
			ck_ok(pinion_array_share(array, other, &shared));
			ck_ok(pinion_dtype_scalar(PINION_DTYPE_U8, 1, &one));
			ck_ok(pinion_array_fill(array, NULL, &one));
			ck_ok(pinion_view_fill(&src, &one));
			pinion_array_free(array);
			check_elements(shared, &src);
			pinion_array_free(shared);
		}
		free(src.data);
	}
	teardown();
}
END_TEST

void conform_transfer(TCase *c)
{
	tcase_add_loop_test(c, a_copy_to_a_device_goes_the_path_that_is_said, 0, key_count);
	tcase_add_loop_test(c, memory_is_shared_with_devices_that_share_and_no_others, 0, key_count);
}
