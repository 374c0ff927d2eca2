/* SPDX-License-Identifier: MIT */
#include "harness.h"

#include <errno.h>
#include <math.h>
#include <pinion/array.h>
#include <pinion/caps.h>
#include <pinion/device.h>
#include <pinion/pinion.h>
#include <pinion/signal.h>
#include <pinion/type.h>

START_TEST(names_are_the_contracts)
{
	ck_assert_str_eq(pinion_backend_name(PINION_BACKEND_CPU), "cpu");
	ck_assert_str_eq(pinion_backend_name(PINION_BACKEND_CUDA), "cuda");
	ck_assert_str_eq(pinion_backend_name(PINION_BACKEND_VULKAN), "vulkan");
	ck_assert_str_eq(pinion_backend_name(PINION_BACKEND_METAL), "metal");
	ck_assert_ptr_null(pinion_backend_name(0));
	ck_assert_ptr_null(pinion_backend_name(5));
	ck_assert_ptr_null(pinion_backend_name(-1));
	ck_assert_ptr_null(pinion_path_name(0));
	ck_assert_ptr_null(pinion_path_name(PINION_PATH_STAGED + 1));
}
END_TEST

START_TEST(a_location_is_a_kind_and_an_index)
{
	struct pinion_location cpu = { PINION_BACKEND_CPU, 0 }, gpu = { PINION_BACKEND_CUDA, 0 },
			       gpu1 = { PINION_BACKEND_CUDA, 1 };

	ck_assert(pinion_location_equal(cpu, cpu));
	ck_assert(!pinion_location_equal(cpu, gpu));
	ck_assert(!pinion_location_equal(gpu, gpu1));
}
END_TEST

/* The table of fallback figures, row by row, and what a mebibyte costs by it. */
static const struct {
	enum pinion_path path;
	double bytes_per_ns;
	uint64_t latency_ns, mebibyte_ns;
} rows[] = {
	{ PINION_PATH_SAME, INFINITY, 0, 0 },
	{ PINION_PATH_PEER, 12, 15000, 15000 + 87381 },
	{ PINION_PATH_SHARED, 20, 2000, 2000 + 52428 },
	{ PINION_PATH_COPY, 8, 30000, 30000 + 131072 },
	{ PINION_PATH_STAGED, 4, 60000, 60000 + 262144 },
};

START_TEST(fallback_figures_are_those_of_the_table)
{
	struct pinion_transfer t = pinion_path_fallback(rows[_i].path);

	ck_assert_int_eq(t.path, rows[_i].path);
	ck_assert(!t.measured);
	ck_assert(t.bytes_per_ns == rows[_i].bytes_per_ns);
	ck_assert_uint_eq(t.latency_ns, rows[_i].latency_ns);
	ck_assert_uint_eq(pinion_transfer_ns(&t, 0), rows[_i].latency_ns);
	ck_assert_uint_eq(pinion_transfer_ns(&t, 1 << 20), rows[_i].mebibyte_ns);
}
END_TEST

START_TEST(an_estimate_stops_at_the_largest_number)
{
	struct pinion_transfer t = { .bytes_per_ns = 1e-3, .latency_ns = 5 };

	ck_assert_uint_eq(pinion_transfer_ns(&t, UINT64_MAX), UINT64_MAX);
	t.bytes_per_ns = 1;
	t.latency_ns = UINT64_MAX - 1;
	ck_assert_uint_eq(pinion_transfer_ns(&t, 1), UINT64_MAX);
	ck_assert_uint_eq(pinion_transfer_ns(&t, 2), UINT64_MAX);
	t = pinion_path_fallback(PINION_PATH_SAME);
	ck_assert_uint_eq(pinion_transfer_ns(&t, UINT64_MAX), 0);
}
END_TEST

/* It is not that nothing moves, nor that it takes no time. */
START_TEST(over_what_is_no_bandwidth_nothing_arrives)
{
	static const double none[] = { NAN, -NAN, -1, -1e-300, -INFINITY, 0, -0.0 };
	struct pinion_transfer good = pinion_path_fallback(PINION_PATH_PEER);

	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++) {
		struct pinion_transfer t = { .bytes_per_ns = none[i], .latency_ns = 7 }, both;

		ck_assert_uint_eq(pinion_transfer_ns(&t, 1), UINT64_MAX);
		ck_assert_uint_eq(pinion_transfer_ns(&t, 1 << 20), UINT64_MAX);
		ck_assert_uint_eq(pinion_transfer_ns(&t, 0), 7);
		both = pinion_transfer_join(&t, &good);
		ck_assert_uint_eq(pinion_transfer_ns(&both, 1), UINT64_MAX);
		both = pinion_transfer_join(&good, &t);
		ck_assert_uint_eq(pinion_transfer_ns(&both, 1), UINT64_MAX);
		both = pinion_transfer_join(&t, &t);
		ck_assert_uint_eq(pinion_transfer_ns(&both, 1), UINT64_MAX);
	}
}
END_TEST

START_TEST(legs_add_up)
{
	struct pinion_transfer a = pinion_path_fallback(PINION_PATH_PEER), b = pinion_path_fallback(PINION_PATH_STAGED);
	struct pinion_transfer same = pinion_path_fallback(PINION_PATH_SAME), both;

	b.to = (struct pinion_location){ PINION_BACKEND_VULKAN, 3 };
	both = pinion_transfer_join(&a, &b);
	ck_assert_uint_eq(both.latency_ns, 75000);
	ck_assert_double_eq_tol(both.bytes_per_ns, 3, 1e-12); /* 1 / (1/12 + 1/4) */
	ck_assert(pinion_location_equal(both.to, b.to));
	both = pinion_transfer_join(&same, &b);
	ck_assert_double_eq_tol(both.bytes_per_ns, 4, 1e-12);
	ck_assert_uint_eq(both.latency_ns, 60000);
	a.latency_ns = UINT64_MAX;
	ck_assert_uint_eq(pinion_transfer_join(&a, &b).latency_ns, UINT64_MAX);
}
END_TEST

/* ---- of the devices that are always there
 * ----------------------------------------------------------------------------- */

START_TEST(the_cpus_fields_are_the_contracts)
{
	static const char *const keys[] = { "cpu", "hostio", "reference" };
	struct pinion_context *ctx;

	ck_ok(pinion_open(NULL, &ctx));
	for (int i = 0; i < 3; i++) {
		struct pinion_device *dev;
		const struct pinion_caps *caps;

		ck_ok(pinion_device_find(ctx, keys[i], &dev));
		ck_assert_str_eq(pinion_device_key(dev), keys[i]);
		caps = pinion_device_caps(dev);
		ck_assert_int_eq(caps->backend, PINION_BACKEND_CPU);
		ck_assert(pinion_location_equal(caps->location, (struct pinion_location){ PINION_BACKEND_CPU, 0 }));
		ck_assert_int_eq(caps->substrate, PINION_SUBSTRATE_HOST);
		ck_assert_uint_eq(caps->alignment, 64);
		ck_assert_uint_eq(caps->granularity_bits, 8);
		ck_assert(caps->flops_per_ns == 1 && caps->bytes_per_ns == 4);
		ck_assert_uint_eq(caps->slot_capacity, i == 1 ? 64 : 0);
		ck_assert_uint_eq(caps->transfer_count, 1);
		ck_assert_int_eq(caps->transfers[0].path, PINION_PATH_SAME);
		ck_assert(isinf(caps->transfers[0].bytes_per_ns));
		ck_assert(pinion_location_equal(caps->transfers[0].to, caps->location));
	}
	pinion_close(ctx);
}
END_TEST

START_TEST(hostio_moves_and_does_not_compute)
{
	struct pinion_context *ctx;
	struct pinion_device *hostio, *cpu;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_find(ctx, "hostio", &hostio));
	ck_ok(pinion_device_find(ctx, "cpu", &cpu));
	for (int op = 0; op <= PINION_OP_LAST; op++)
		for (int d = 0; d <= PINION_DTYPE_BOOL; d++)
			ck_assert(op == PINION_OP_COPY ?
					  pinion_device_supports(hostio, op, d) == pinion_device_supports(cpu, op, d) :
					  !pinion_device_supports(hostio, op, d));
	ck_assert(pinion_devices_share(hostio, cpu));
	pinion_close(ctx);
}
END_TEST

/* No backend has quantized kernels yet, and none says so. */
START_TEST(no_quantized_format_is_claimed)
{
	struct pinion_context *ctx;
	struct pinion_device *cpu;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_find(ctx, "cpu", &cpu));
	for (uint32_t type = 0; type < 64; type++)
		for (int op = 0; op <= PINION_OP_LAST; op++)
			ck_assert(!pinion_device_supports_type(cpu, op, type));
	pinion_close(ctx);
}
END_TEST

START_TEST(nothing_is_known_of_a_device_added_by_its_key)
{
	struct pinion_context *ctx;
	struct pinion_device *dev, *cpu;
	struct pinion_transfer t;
	struct pinion_array *array = (void *)1;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "some-service", NULL, &dev));
	ck_ok(pinion_device_find(ctx, "cpu", &cpu));
	ck_assert_ptr_null(pinion_device_caps(dev));
	ck_assert_ptr_nonnull(strstr(pinion_error(), "key alone"));
	ck_assert(!pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_U8));
	ck_assert(!pinion_devices_share(dev, cpu));
	ck_assert(!pinion_devices_share(dev, dev));
	ck_assert_int_eq(pinion_device_path(dev, cpu, &t), -ENODATA);
	ck_assert_int_eq(pinion_device_path(cpu, dev, &t), -ENODATA);
	ck_assert_int_eq(pinion_array_zeros(dev, PINION_DTYPE_U8, 0, NULL, &array), -EOPNOTSUPP);
	ck_assert_ptr_eq(array, (void *)1);
	pinion_close(ctx);
}
END_TEST

START_TEST(metal_is_reserved_and_says_so)
{
	struct pinion_context *ctx;
	struct pinion_device *dev = (void *)1;

	ck_ok(pinion_open(NULL, &ctx));
	ck_assert_int_eq(pinion_device_find(ctx, "metal", &dev), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "reserved"));
	ck_assert_int_eq(pinion_device_add(ctx, "metal", NULL, &dev), -EOPNOTSUPP);
	ck_assert_int_eq(pinion_device_find(ctx, "metals", &dev), -ENOENT);
	ck_assert_ptr_eq(dev, (void *)1);
	pinion_close(ctx);
}
END_TEST

/*
 * Of the ways between @dev one at least takes some time to begin. A single one may have none: where somebody else had the
 * processor during all of the small copies, what they took is not told apart.
 */
static bool one_has_a_latency(struct pinion_device *const dev[3])
{
	struct pinion_transfer t;
	bool found = false;

	for (int i = 0; i < 9; i++) {
		ck_ok(pinion_device_path_staged(dev[i / 3], dev[i % 3], &t));
		ck_assert(t.measured && isfinite(t.bytes_per_ns) && t.bytes_per_ns > 0);
		found |= t.latency_ns > 0;
	}
	return found;
}

/* Between devices that share nothing has to move, and what a copy would cost is measured all the same: once. */
START_TEST(staging_between_the_hosts_devices_is_measured)
{
	struct pinion_context *ctx;
	struct pinion_device *cpu, *hostio, *reference, *nobody;
	struct pinion_transfer t, again;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_find(ctx, "cpu", &cpu));
	ck_ok(pinion_device_find(ctx, "hostio", &hostio));
	ck_ok(pinion_device_find(ctx, "reference", &reference));
	ck_ok(pinion_device_add(ctx, "some-service", NULL, &nobody));
	ck_ok(pinion_device_path(cpu, hostio, &t));
	ck_assert_int_eq(t.path, PINION_PATH_SAME);
	ck_assert(!t.measured && isinf(t.bytes_per_ns) && t.latency_ns == 0);
	ck_ok(pinion_device_path_staged(cpu, hostio, &t));
	ck_assert_int_eq(t.path, PINION_PATH_STAGED);
	ck_assert(t.measured);
	ck_assert(isfinite(t.bytes_per_ns) && t.bytes_per_ns > 0);
	ck_assert(one_has_a_latency((struct pinion_device *[]){ cpu, hostio, reference }));
	ck_assert(pinion_location_equal(t.to, pinion_device_caps(hostio)->location));
	ck_ok(pinion_device_path_staged(cpu, hostio, &again));
	ck_assert(again.bytes_per_ns == t.bytes_per_ns && again.latency_ns == t.latency_ns);
	ck_assert_int_eq(pinion_device_path_staged(cpu, nobody, &again), -ENODATA);
	ck_assert_int_eq(pinion_device_path_staged(nobody, cpu, &again), -ENODATA);
	ck_assert(again.measured && again.latency_ns == t.latency_ns);
	pinion_close(ctx);
}
END_TEST

/* What a backend says of its device is not for a caller to change. */
START_TEST(the_values_of_a_built_in_device_win)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 7 };
	struct pinion_context *ctx;
	struct pinion_device *dev;
	uint32_t n;

	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "cpu", &opts, &dev));
	ck_assert_int_eq(pinion_device_pending(dev, PINION_SCOPE_ALL, &n), -ENODATA);
	ck_ok(pinion_device_add(ctx, "hostio", &opts, &dev));
	ck_ok(pinion_device_capacity(dev, &n));
	ck_assert_uint_eq(n, 64);
	pinion_close(ctx);
}
END_TEST

static Suite *caps_suite(void)
{
	Suite *s = suite_create("caps");
	TCase *c = tcase_create("caps");

	tcase_add_test(c, names_are_the_contracts);
	tcase_add_test(c, a_location_is_a_kind_and_an_index);
	tcase_add_loop_test(c, fallback_figures_are_those_of_the_table, 0, sizeof(rows) / sizeof(*rows));
	tcase_add_test(c, an_estimate_stops_at_the_largest_number);
	tcase_add_test(c, over_what_is_no_bandwidth_nothing_arrives);
	tcase_add_test(c, legs_add_up);
	tcase_add_test(c, the_cpus_fields_are_the_contracts);
	tcase_add_test(c, hostio_moves_and_does_not_compute);
	tcase_add_test(c, no_quantized_format_is_claimed);
	tcase_add_test(c, nothing_is_known_of_a_device_added_by_its_key);
	tcase_add_test(c, metal_is_reserved_and_says_so);
	tcase_add_test(c, staging_between_the_hosts_devices_is_measured);
	tcase_add_test(c, the_values_of_a_built_in_device_win);
	suite_add_tcase(s, c);
	return s;
}

PINION_TEST_MAIN(caps_suite)
