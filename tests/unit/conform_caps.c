/* SPDX-License-Identifier: MIT */
/* conform caps: what a device says of itself. */
#include "conform_device.h"

#include <errno.h>
#include <math.h>

START_TEST(capabilities_are_what_a_device_can_have)
{
	const struct pinion_caps *caps;

	setup(_i);
	caps = pinion_device_caps(dev);
	ck_assert_ptr_nonnull(caps);
	ck_assert_ptr_nonnull(pinion_backend_name(caps->backend));
	ck_assert_int_eq(caps->location.kind, caps->backend);
	ck_assert_uint_ge(caps->alignment, 1);
	ck_assert_uint_eq(caps->alignment & (caps->alignment - 1), 0);
	ck_assert_uint_gt(caps->granularity_bits, 0);
	ck_assert_uint_ge(caps->rank_max, 3);
	ck_assert_uint_ge(caps->extent_max, 64);
	ck_assert(isfinite(caps->flops_per_ns) && caps->flops_per_ns > 0);
	ck_assert(isfinite(caps->bytes_per_ns) && caps->bytes_per_ns > 0);
	for (size_t i = 0; i < caps->transfer_count; i++) {
		const struct pinion_transfer *t = &caps->transfers[i];

		ck_assert_ptr_nonnull(pinion_path_name(t->path));
		ck_assert(t->bytes_per_ns > 0);
		ck_assert_int_eq(t->path == PINION_PATH_SAME, isinf(t->bytes_per_ns) != 0);
	}
	teardown();
}
END_TEST

/* A call with operands that fit no op is -EINVAL where there is a kernel, and -EOPNOTSUPP where there is none. */
START_TEST(an_op_is_supported_exactly_when_a_call_of_it_is_not_refused)
{
	unsigned int supported = 0, wrong = 0;

	setup(_i);
	for (size_t d = 0; d < DTYPES; d++) {
		struct pinion_array *array;

		ck_ok(pinion_array_uninit(dev, dtypes[d], 1, (uint64_t[]){ 2 }, &array));
		for (int op = 0; op <= PINION_OP_LAST + 1; op++) {
			struct pinion_operand o = { array, NULL }, many[4] = { o, o, o, o };
			int ret = pinion_array_run(op, &o, many, 4, NULL, 0);

			wrong += pinion_device_supports(dev, op, dtypes[d]) != (ret != -EOPNOTSUPP);
			supported += ret != -EOPNOTSUPP;
		}
		pinion_array_free(array);
	}
	ck_assert_uint_eq(wrong, 0);
	ck_assert_uint_gt(supported, 0);
	teardown();
}
END_TEST

/* Where no array can be, nothing is supported. */
START_TEST(dtypes_without_elements_are_refused_everywhere)
{
	static const enum pinion_dtype bad[] = { PINION_DTYPE_F4, PINION_DTYPE_F6E2M3, PINION_DTYPE_F6E3M2, PINION_DTYPE_F8E6M2 };
	struct pinion_array *array = (void *)1;

	setup(_i);
	for (size_t d = 0; d < sizeof(bad) / sizeof(*bad); d++) {
		ck_assert_int_eq(pinion_array_zeros(dev, bad[d], 1, (uint64_t[]){ 8 }, &array), -EOPNOTSUPP);
		ck_assert_int_eq(pinion_array_uninit(dev, bad[d], 1, (uint64_t[]){ 8 }, &array), -EOPNOTSUPP);
		for (int op = 0; op <= PINION_OP_LAST + 1; op++)
			ck_assert(!pinion_device_supports(dev, op, bad[d]));
	}
	ck_assert_int_eq(pinion_array_uninit(dev, 0, 1, (uint64_t[]){ 8 }, &array), -EINVAL);
	ck_assert_ptr_eq(array, (void *)1);
	teardown();
}
END_TEST

void conform_caps(TCase *c)
{
	tcase_add_loop_test(c, capabilities_are_what_a_device_can_have, 0, key_count);
	tcase_add_loop_test(c, an_op_is_supported_exactly_when_a_call_of_it_is_not_refused, 0, key_count);
	tcase_add_loop_test(c, dtypes_without_elements_are_refused_everywhere, 0, key_count);
}
