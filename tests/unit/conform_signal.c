/* SPDX-License-Identifier: MIT */
/* conform signal: memory left, and load. */
#include "conform_device.h"

#include <errno.h>
#include <pinion/signal.h>

START_TEST(memory_signals_agree_with_each_other)
{
	uint64_t available = 0, total = 0;
	int has_available, has_total;

	setup(_i);
	has_available = pinion_device_available(dev, &available);
	has_total = pinion_device_total(dev, &total);
	ck_assert(has_available == 0 || has_available == -ENODATA);
	ck_assert(has_total == 0 || has_total == -ENODATA);
	ck_assert_int_eq(available == 0 && !has_available, 0);
	if (!has_total) {
		ck_assert_uint_gt(total, 0);
		ck_assert(has_available || available <= total);
	}
	if (!has_available)
		ck_assert_int_eq(pinion_device_would_fit(dev, UINT64_MAX), PINION_FIT_NO);
	ck_assert_ptr_nonnull(pinion_fit_name(pinion_device_would_fit(dev, 4096)));
	teardown();
}
END_TEST

START_TEST(a_device_without_a_queue_has_no_load)
{
	const struct pinion_caps *caps;
	uint32_t n = 99;

	setup(_i);
	caps = pinion_device_caps(dev);
	if (!caps->slot_capacity) {
		ck_assert_int_eq(pinion_device_capacity(dev, &n), -ENODATA);
		ck_assert_int_eq(pinion_device_pending(dev, PINION_SCOPE_MINE, &n), -ENODATA);
		ck_assert_int_eq(pinion_device_pending(dev, PINION_SCOPE_ALL, &n), -ENODATA);
		ck_assert_uint_eq(n, 99);
	} else {
		struct pinion_ticket ticket;

		ck_ok(pinion_device_capacity(dev, &n));
		ck_assert_uint_eq(n, caps->slot_capacity);
		ck_ok(pinion_device_pending(dev, PINION_SCOPE_MINE, &n));
		ck_assert_uint_eq(n, 0);
		ck_ok(pinion_work_begin(dev, 1, &ticket));
		ck_ok(pinion_device_pending(dev, PINION_SCOPE_MINE, &n));
		ck_assert_uint_eq(n, 1);
		ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
		ck_assert_uint_ge(n, 1);
		ck_ok(pinion_work_end(&ticket));
		ck_ok(pinion_device_flush(dev, PINION_SCOPE_MINE, PINION_FOREVER, NULL));
	}
	teardown();
}
END_TEST

void conform_signal(TCase *c)
{
	tcase_add_loop_test(c, memory_signals_agree_with_each_other, 0, key_count);
	tcase_add_loop_test(c, a_device_without_a_queue_has_no_load, 0, key_count);
}
