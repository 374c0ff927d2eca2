/* SPDX-License-Identifier: MIT */
/*
 * Contract 2.1 to 2.6, what test_dtype.c, test_cast.c, test_caps.c and test_backend.c do not state. 2.8 is
 * in test_cost.c, all of it.
 */
#include "harness.h"

#include <errno.h>
#include <math.h>
#include <pinion/array.h>
#include <pinion/pinion.h>
#include <pinion/select.h>

#include "dispatch/registry.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- 2.1: what the notes of the table say ------------------------------------------------------------------------ */

/* Codes of which as floats: the notes give numbers, the golden vectors of test_cast.c give every code. */
START_TEST(notes_of_the_small_floats)
{
	static const struct {
		float (*widen)(uint8_t code);
		uint8_t code;
		float value;
	} rows[] = {
		/* f8e4m3, the finite one: bias 7, largest 448 */
		{ pinion_f8e4m3_to_f32, 7 << 3, 1 },
		{ pinion_f8e4m3_to_f32, 0x7e, 448 },
		{ pinion_f8e4m3_to_f32, 0xfe, -448 },
		{ pinion_f8e4m3_to_f32, 0x01, 0x1p-9f },
		/* f8e5m2, the OCP one: bias 15, largest 57344 */
		{ pinion_f8e5m2_to_f32, 15 << 2, 1 },
		{ pinion_f8e5m2_to_f32, 0x7b, 57344 },
		{ pinion_f8e5m2_to_f32, 0x7c, INFINITY },
		{ pinion_f8e5m2_to_f32, 0xfc, -INFINITY },
		{ pinion_f8e5m2_to_f32, 0x01, 0x1p-16f },
		/* f8e8m0: 1.0 is X = 127 */
		{ pinion_f8e8m0_to_f32, 127, 1 },
		{ pinion_f8e8m0_to_f32, 0, 0x1p-127f },
		{ pinion_f8e8m0_to_f32, 254, 0x1p127f },
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		ck_assert_msg(rows[i].widen(rows[i].code) == rows[i].value, "row %zu: %a", i, rows[i].widen(rows[i].code));
}
END_TEST

START_TEST(infinities_and_nans_of_the_small_floats)
{
	unsigned int nan[3] = { 0 }, infinite[3] = { 0 };

	for (int code = 0; code < 256; code++) {
		const float value[] = { pinion_f8e4m3_to_f32((uint8_t)code), pinion_f8e5m2_to_f32((uint8_t)code),
					pinion_f8e8m0_to_f32((uint8_t)code) };

		for (int i = 0; i < 3; i++) {
			nan[i] += isnan(value[i]) != 0;
			infinite[i] += isinf(value[i]) != 0;
		}
		/* 2^(X - 127), and 255 is NaN. */
		if (code < 255)
			ck_assert(value[2] == ldexpf(1, code - 127));
		else
			ck_assert(isnan(value[2]));
	}
	ck_assert(nan[0] == 2 && infinite[0] == 0);
	ck_assert(nan[1] == 6 && infinite[1] == 2);
	ck_assert(nan[2] == 1 && infinite[2] == 0);
}
END_TEST

/* i8, which the original leaves out of many operations, is in all that there are. */
START_TEST(i8_is_a_dtype_like_the_others)
{
	static const char *const keys[] = { "cpu", "reference" };
	struct pinion_context *ctx = NULL;

	ck_ok(pinion_open(NULL, &ctx));
	for (size_t i = 0; i < COUNT(keys); i++) {
		struct pinion_device *dev = NULL;

		ck_ok(pinion_device_find(ctx, keys[i], &dev));
		for (int op = 1; op <= PINION_OP_LAST; op++)
			ck_assert_int_eq(pinion_device_supports(dev, op, PINION_DTYPE_I8),
					 pinion_device_supports(dev, op, PINION_DTYPE_I16));
		ck_assert(pinion_device_supports(dev, PINION_OP_COPY, PINION_DTYPE_I8));
		ck_assert(pinion_device_supports(dev, PINION_OP_CAST, PINION_DTYPE_I8));
	}
	pinion_close(ctx);
}
END_TEST

/* ---- 2.2 --------------------------------------------------------------------------------------------------------- */

static const enum pinion_backend_id kinds[] = { PINION_BACKEND_CPU, PINION_BACKEND_CUDA, PINION_BACKEND_VULKAN,
						PINION_BACKEND_METAL };

START_TEST(locations_are_told_apart_by_kind_and_index)
{
	for (size_t a = 0; a < COUNT(kinds); a++)
		for (size_t b = 0; b < COUNT(kinds); b++)
			for (uint32_t i = 0; i < 3; i++)
				for (uint32_t j = 0; j < 3; j++)
					ck_assert_int_eq(pinion_location_equal((struct pinion_location){ kinds[a], i },
									       (struct pinion_location){ kinds[b], j }),
							 a == b && i == j);
}
END_TEST

/* ---- 2.3 --------------------------------------------------------------------------------------------------------- */

/* Typed arrays one after the other: copies into parts of a longer one. Another tag is refused, and nothing is written. */
START_TEST(arrays_are_joined_by_copies_into_parts)
{
	int32_t a[2] = { 1, 2 }, b[3] = { 3, 4, 5 }, all[5] = { 0 };
	static const int32_t joined[5] = { 1, 2, 3, 4, 5 };
	struct pinion_view part[2], whole, at, other;

	ck_ok(pinion_view_init(&part[0], a, sizeof(a), PINION_DTYPE_I32, 1, &(uint64_t){ 2 }, NULL, 0));
	ck_ok(pinion_view_init(&part[1], b, sizeof(b), PINION_DTYPE_I32, 1, &(uint64_t){ 3 }, NULL, 0));
	ck_ok(pinion_view_init(&whole, all, sizeof(all), PINION_DTYPE_I32, 1, &(uint64_t){ 5 }, NULL, 0));
	ck_ok(pinion_view_init(&other, a, sizeof(a), PINION_DTYPE_U32, 1, &(uint64_t){ 2 }, NULL, 0));
	ck_ok(pinion_view_narrow(&whole, 0, 0, 2, &at));
	ck_assert_int_eq(pinion_view_copy(&at, &other), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "dtype mismatch"));
	ck_assert_int_eq(all[0], 0);
	ck_ok(pinion_view_copy(&at, &part[0]));
	ck_ok(pinion_view_narrow(&whole, 0, 2, 3, &at));
	ck_ok(pinion_view_copy(&at, &part[1]));
	ck_assert_mem_eq(all, joined, sizeof(joined));
}
END_TEST

/* ---- 2.5 --------------------------------------------------------------------------------------------------------- */

START_TEST(estimates_by_the_fallback_figures)
{
	static const struct {
		enum pinion_path path;
		uint64_t bytes, ns;
	} rows[] = {
		{ PINION_PATH_SAME, 0, 0 },
		{ PINION_PATH_SAME, UINT64_MAX, 0 },
		{ PINION_PATH_PEER, 0, 15000 },
		{ PINION_PATH_PEER, 11, 15000 },
		{ PINION_PATH_PEER, 12, 15001 },
		{ PINION_PATH_PEER, 12000000000, 1000015000 },
		{ PINION_PATH_SHARED, 19, 2000 },
		{ PINION_PATH_SHARED, 20, 2001 },
		{ PINION_PATH_SHARED, 20000000000, 1000002000 },
		{ PINION_PATH_COPY, 7, 30000 },
		{ PINION_PATH_COPY, 8, 30001 },
		{ PINION_PATH_COPY, 8000000000, 1000030000 },
		{ PINION_PATH_STAGED, 3, 60000 },
		{ PINION_PATH_STAGED, 4, 60001 },
		{ PINION_PATH_STAGED, 4000000000, 1000060000 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct pinion_transfer t = pinion_path_fallback(rows[i].path);

		ck_assert_msg(pinion_transfer_ns(&t, rows[i].bytes) == rows[i].ns, "row %zu", i);
	}
}
END_TEST

/* Latencies add, and 1/b = 1/b1 + 1/b2: a leg over which nothing has to move leaves the other one's bandwidth. */
START_TEST(two_legs_of_every_kind)
{
	static const double join[5][5] = {
		{ INFINITY, 12, 20, 8, 4 },	{ 12, 6, 7.5, 4.8, 3 },	      { 20, 7.5, 10, 40 / 7., 10 / 3. },
		{ 8, 4.8, 40 / 7., 4, 8 / 3. }, { 4, 3, 10 / 3., 8 / 3., 2 },
	};
	static const uint64_t latency[5] = { 0, 15000, 2000, 30000, 60000 };

	for (int a = 0; a < 5; a++) {
		for (int b = 0; b < 5; b++) {
			struct pinion_transfer x = pinion_path_fallback(PINION_PATH_SAME + a),
					       y = pinion_path_fallback(PINION_PATH_SAME + b), both;

			both = pinion_transfer_join(&x, &y);
			ck_assert_uint_eq(both.latency_ns, latency[a] + latency[b]);
			if (isinf(join[a][b]))
				ck_assert(isinf(both.bytes_per_ns));
			else
				ck_assert_double_eq_tol(both.bytes_per_ns, join[a][b], 1e-12);
			ck_assert(!both.measured);
		}
	}
}
END_TEST

/* ---- 2.4 and 2.6: devices ---------------------------------------------------------------------------------------- */

static int cast(const struct backend_call *call)
{
	return pinion_view_cast(&call->dst, &call->src[0]);
}

static const struct backend_kernel to_i32[] = { { PINION_OP_CAST, PINION_DTYPE_I32, cast } };

static const struct pinion_transfer to_host[] = { { .to = { PINION_BACKEND_CPU, 0 }, .path = PINION_PATH_STAGED } };

/* What the contract's table has for GPUs. */
#define GPU(kind_)                                                                                                           \
	.backend = PINION_BACKEND_##kind_, .location = { PINION_BACKEND_##kind_, 0 }, .substrate = PINION_SUBSTRATE_##kind_, \
	.alignment = 256, .granularity_bits = 8, .rank_max = 8, .extent_max = UINT32_MAX, .flops_per_ns = 30,                \
	.bytes_per_ns = 40, .transfers = to_host, .transfer_count = 1

#define PLACE(kind_, index_, substrate_)                                                                   \
	.backend = PINION_BACKEND_##kind_, .location = { PINION_BACKEND_##kind_, (index_) },               \
	.substrate = PINION_SUBSTRATE_##substrate_, .alignment = 64, .granularity_bits = 8, .rank_max = 8, \
	.extent_max = UINT32_MAX, .flops_per_ns = 1, .bytes_per_ns = 1

static const struct backend_desc devices[] = {
	{ .key = "gpu-cuda", .caps = { GPU(CUDA) } },
	{ .key = "gpu-vulkan", .caps = { GPU(VULKAN) } },
	/* The host's memory, and one kernel. */
	{ .key = "to-i32", .caps = { PLACE(CPU, 0, HOST) }, .kernels = to_i32, .kernel_count = 1 },
	/* Places that agree in one of the two, or in both. */
	{ .key = "cuda-0", .caps = { PLACE(CUDA, 0, CUDA) } },
	{ .key = "cuda-0-again", .caps = { PLACE(CUDA, 0, CUDA) } },
	{ .key = "cuda-1", .caps = { PLACE(CUDA, 1, CUDA) } },
	{ .key = "cuda-0-of-vulkan", .caps = { PLACE(CUDA, 0, VULKAN) } },
	{ .key = "vulkan-0-of-cuda", .caps = { PLACE(VULKAN, 0, CUDA) } },
	{ .key = "cuda-0-of-the-host", .caps = { PLACE(CUDA, 0, HOST) } },
	{ .key = "cpu-of-vulkan", .caps = { PLACE(CPU, 0, VULKAN) } },
};

static int enumerate(struct backend_list *list)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < COUNT(devices); i++)
		ret = backend_found(list, &devices[i]);
	return ret;
}

static const struct backend_ops no_ops;
static const struct pinion_backend backend_types = { "types", BACKEND_ABI, enumerate, &no_ops };

extern const struct pinion_backend backend_cpu, backend_hostio, backend_reference;

/* In place of the library's table, which is not linked because this one comes first. */
const struct pinion_backend *const backend_table[] = {
	&backend_cpu, &backend_hostio, &backend_reference, &backend_types, NULL,
};

static struct pinion_context *ctx;

static void setup(void)
{
	ck_ok(pinion_open(NULL, &ctx));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static struct pinion_device *find(const char *key)
{
	struct pinion_device *dev = NULL;

	ck_ok(pinion_device_find(ctx, key, &dev));
	return dev;
}

START_TEST(storages_are_shared_by_class_and_location)
{
	const char *keys[COUNT(devices) + 1] = { "cpu" };

	for (size_t i = 0; i < COUNT(devices); i++)
		keys[i + 1] = devices[i].key;
	for (size_t i = 0; i < COUNT(keys); i++) {
		for (size_t j = 0; j < COUNT(keys); j++) {
			const struct pinion_caps *a = pinion_device_caps(find(keys[i])), *b = pinion_device_caps(find(keys[j]));
			bool both = a->substrate == b->substrate && a->location.kind == b->location.kind &&
				    a->location.index == b->location.index;

			ck_assert_msg(pinion_devices_share(find(keys[i]), find(keys[j])) == both, "%s and %s", keys[i], keys[j]);
		}
	}
	ck_assert(pinion_devices_share(find("cuda-0"), find("cuda-0-again")));
	ck_assert(pinion_devices_share(find("cpu"), find("to-i32")));
	ck_assert(!pinion_devices_share(find("cuda-0"), find("cuda-0-of-vulkan")));
	ck_assert(!pinion_devices_share(find("cuda-0"), find("cuda-1")));
	ck_assert(!pinion_devices_share(find("cpu"), find("cpu-of-vulkan")));
}
END_TEST

START_TEST(the_gpus_column)
{
	static const struct {
		const char *key;
		enum pinion_backend_id kind;
		enum pinion_substrate own;
	} rows[] = { { "gpu-cuda", PINION_BACKEND_CUDA, PINION_SUBSTRATE_CUDA },
		     { "gpu-vulkan", PINION_BACKEND_VULKAN, PINION_SUBSTRATE_VULKAN } };
	const struct pinion_location cpu = { PINION_BACKEND_CPU, 0 };
	const struct pinion_cost cost = { .flops = 6000, .bytes_moved = 8000, .overhead_ns = 3 };

	for (size_t i = 0; i < COUNT(rows); i++) {
		const struct pinion_caps *caps = pinion_device_caps(find(rows[i].key));
		struct pinion_transfer t;

		ck_assert_int_eq(caps->backend, rows[i].kind);
		ck_assert(pinion_location_equal(caps->location, (struct pinion_location){ rows[i].kind, 0 }));
		ck_assert_int_eq(caps->substrate, rows[i].own);
		ck_assert_uint_eq(caps->alignment, 256);
		ck_assert_uint_eq(caps->granularity_bits, 8);
		ck_assert(caps->flops_per_ns == 30 && caps->bytes_per_ns == 40);
		/* An estimate by the device's own rates is the one by its backend's. */
		ck_assert_uint_eq(pinion_cost_ns(&cost, caps->flops_per_ns, caps->bytes_per_ns), 203);
		ck_assert_uint_eq(pinion_cost_ns_on(&cost, rows[i].kind), 203);
		/* Its only path, with the figures of the table until somebody measures. */
		ck_assert_uint_eq(caps->transfer_count, 1);
		ck_assert(pinion_location_equal(caps->transfers[0].to, cpu));
		ck_assert_int_eq(caps->transfers[0].path, PINION_PATH_STAGED);
		ck_assert(!caps->transfers[0].measured);
		ck_ok(pinion_device_path(find(rows[i].key), find("cpu"), &t));
		ck_assert_int_eq(t.path, PINION_PATH_STAGED);
		ck_assert_uint_eq(pinion_transfer_ns(&t, 4000), 61000);
	}
}
END_TEST

/* The dtype of an entry is that of the result: a cast to i32 is there, whatever it is from, and one from it is not. */
START_TEST(support_goes_by_the_dtype_of_the_result)
{
	const uint64_t three = 3;
	struct pinion_array *f32 = NULL, *i32 = NULL, *from, *to;
	struct pinion_view view;
	int32_t got[3] = { 0 };
	float given[3] = { 1.9f, -2.9f, NAN };
	struct pinion_operand dst, src;

	ck_assert(pinion_device_supports(find("to-i32"), PINION_OP_CAST, PINION_DTYPE_I32));
	ck_assert(!pinion_device_supports(find("to-i32"), PINION_OP_CAST, PINION_DTYPE_F32));
	ck_ok(pinion_view_init(&view, given, sizeof(given), PINION_DTYPE_F32, 1, &three, NULL, 0));
	ck_ok(pinion_array_upload(find("cpu"), &view, &f32));
	ck_ok(pinion_array_zeros(find("cpu"), PINION_DTYPE_I32, 1, &three, &i32));
	ck_ok(pinion_array_share(f32, find("to-i32"), &from));
	ck_ok(pinion_array_share(i32, find("to-i32"), &to));
	dst = (struct pinion_operand){ .array = to };
	src = (struct pinion_operand){ .array = from };
	ck_ok(pinion_array_run(PINION_OP_CAST, &dst, &src, 1, NULL, 0));
	ck_assert_int_eq(pinion_array_run(PINION_OP_CAST, &src, &dst, 1, NULL, 0), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "f32"));
	ck_ok(pinion_view_init(&view, got, sizeof(got), PINION_DTYPE_I32, 1, &three, NULL, 0));
	ck_ok(pinion_array_download(i32, NULL, &view));
	ck_assert(got[0] == 1 && got[1] == -2 && got[2] == 0);
	pinion_array_free(from);
	pinion_array_free(to);
	pinion_array_free(f32);
	pinion_array_free(i32);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rows_types");
	TCase *dtypes = tcase_create("dtypes"), *paths = tcase_create("paths"), *caps = tcase_create("caps");

	tcase_add_test(dtypes, notes_of_the_small_floats);
	tcase_add_test(dtypes, infinities_and_nans_of_the_small_floats);
	tcase_add_test(dtypes, i8_is_a_dtype_like_the_others);
	suite_add_tcase(s, dtypes);
	tcase_add_test(paths, locations_are_told_apart_by_kind_and_index);
	tcase_add_test(paths, arrays_are_joined_by_copies_into_parts);
	tcase_add_test(paths, estimates_by_the_fallback_figures);
	tcase_add_test(paths, two_legs_of_every_kind);
	suite_add_tcase(s, paths);
	tcase_add_checked_fixture(caps, setup, teardown);
	tcase_add_test(caps, storages_are_shared_by_class_and_location);
	tcase_add_test(caps, the_gpus_column);
	tcase_add_test(caps, support_goes_by_the_dtype_of_the_result);
	suite_add_tcase(s, caps);
	return s;
}

PINION_TEST_MAIN(suite)
