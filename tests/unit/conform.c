/* SPDX-License-Identifier: MIT */
#include "conform.h"

#include <errno.h>
#include <math.h>
#include <pinion/array.h>
#include <pinion/caps.h>
#include <pinion/device.h>
#include <pinion/pinion.h>
#include <pinion/signal.h>
#include <stdbool.h>

#define KEYS_MAX 16

static char keys[KEYS_MAX][PINION_KEY_MAX + 1];
static int key_count;

static void read_keys(void)
{
	const char *env = getenv("PINION_CONFORM_DEVICES");
	char *list = strdup(env && *env ? env : "cpu,hostio,reference"), *save, *key;

	key_count = 0;
	for (key = strtok_r(list, ",", &save); key && key_count < KEYS_MAX; key = strtok_r(NULL, ",", &save))
		snprintf(keys[key_count++], sizeof(keys[0]), "%s", key);
	free(list);
}

static uint64_t scale(void)
{
	const char *env = getenv("PINION_TEST_SCALE");
	uint64_t value = env ? strtoull(env, NULL, 10) : 1;

	return value ? value : 1;
}

/* ---- what each test begins with
 * --------------------------------------------------------------------------------------- */

static struct pinion_context *ctx;
static struct pinion_device *dev, *reference;

static void setup(int i)
{
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_find(ctx, keys[i], &dev));
	ck_ok(pinion_device_find(ctx, "reference", &reference));
}

static void teardown(void)
{
	pinion_close(ctx);
}

static const enum pinion_dtype dtypes[] = {
	PINION_DTYPE_U8,     PINION_DTYPE_I8,	  PINION_DTYPE_U32,    PINION_DTYPE_I16,  PINION_DTYPE_I32,
	PINION_DTYPE_I64,    PINION_DTYPE_BF16,	  PINION_DTYPE_F16,    PINION_DTYPE_F32,  PINION_DTYPE_F64,
	PINION_DTYPE_F8E4M3, PINION_DTYPE_F8E5M2, PINION_DTYPE_F8E8M0, PINION_DTYPE_BOOL,
};
#define DTYPES (sizeof(dtypes) / sizeof(*dtypes))

static uint64_t seed;

static uint64_t any(void)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return seed >> 16;
}

/* Host memory of its own for a row-major view, and the view. Freed with free(view.data). */
static struct pinion_view host(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	struct pinion_view view;
	uint64_t n = 1, bytes;

	for (uint32_t a = 0; a < rank; a++)
		n *= shape[a];
	ck_ok(pinion_dtype_size(dtype, n, &bytes));
	ck_ok(pinion_view_init(&view, calloc(1, bytes + 1), bytes, dtype, rank, shape, NULL, 0));
	return view;
}

static struct pinion_view host_like(const struct pinion_view *view)
{
	return host(view->dtype, view->rank, view->shape);
}

/* Any bits, but those of a bool that are one. */
static struct pinion_view any_bits(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	struct pinion_view view = host(dtype, rank, shape);

	for (uint64_t i = 0; i < view.bytes; i++)
		((uint8_t *)view.data)[i] = dtype == PINION_DTYPE_BOOL ? any() & 1 : any();
	return view;
}

static struct pinion_array *uploaded_to(struct pinion_device *to, const struct pinion_view *view)
{
	struct pinion_array *array;

	ck_ok(pinion_array_upload(to, view, &array));
	return array;
}

static struct pinion_array *uploaded(const struct pinion_view *view)
{
	return uploaded_to(dev, view);
}

static struct pinion_view downloaded(const struct pinion_array *array)
{
	struct pinion_view view = host_like(pinion_array_view(array));

	ck_ok(pinion_array_download(array, NULL, &view));
	return view;
}

/* The elements that @view has are those of @array, to the bit. */
static void check_elements(const struct pinion_array *array, const struct pinion_view *view)
{
	struct pinion_view got = downloaded(array), want = host_like(view);

	ck_ok(pinion_view_copy(&want, view));
	ck_assert_uint_eq(got.rank, want.rank);
	ck_assert_mem_eq(got.shape, want.shape, want.rank * sizeof(*want.shape));
	ck_assert_uint_eq(got.bytes, want.bytes);
	ck_assert_mem_eq(got.data, want.data, want.bytes);
	free(got.data);
	free(want.data);
}

/* The layouts that a view can have. @i from 0; false after the last. */
static bool layout_at(const struct pinion_view *v, int i, struct pinion_view *out)
{
	*out = *v;
	switch (i) {
	case 0:
		return true;
	case 1:
		ck_ok(pinion_view_transpose(v, 0, 2, out));
		return true;
	case 2:
		ck_ok(pinion_view_narrow(v, 1, 1, v->shape[1] - 1, out));
		return true;
	case 3:
		ck_ok(pinion_view_flip(v, 2, out));
		return true;
	case 4:
		ck_ok(pinion_view_narrow(v, 0, 1, 1, out));
		ck_ok(pinion_view_broadcast(out, 3, (uint64_t[]){ 5, v->shape[1], v->shape[2] }, out));
		return true;
	case 5:
		ck_ok(pinion_view_narrow(v, 2, 1, 0, out));
		return true;
	case 6:
		ck_ok(pinion_view_unsqueeze(v, 1, out));
		return true;
	default:
		return false;
	}
}

static const uint64_t box[] = { 3, 4, 5 };

/* ---- what it is
 * --------------------------------------------------------------------------------------------------------- */

START_TEST(capabilities_are_what_a_device_can_have)
{
	const struct pinion_caps *caps;

	setup(_i);
	caps = pinion_device_caps(dev);
	ck_assert_ptr_nonnull(caps);
	ck_assert_ptr_nonnull(pinion_backend_name(caps->backend));
	ck_assert_int_eq(caps->location.kind, caps->backend);
	ck_assert_uint_ge(caps->alignment, 8);
	ck_assert_uint_eq(caps->alignment & (caps->alignment - 1), 0);
	ck_assert_uint_gt(caps->granularity_bits, 0);
	ck_assert_uint_ge(caps->rank_max, 4);
	ck_assert_uint_gt(caps->extent_max, 0);
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
	static const enum pinion_dtype bad[] = { PINION_DTYPE_F4, PINION_DTYPE_F6E2M3, PINION_DTYPE_F6E3M2,
						 PINION_DTYPE_F8E6M2 };
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

/* ---- memory
 * --------------------------------------------------------------------------------------------------------------- */

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
			ck_assert_uint_eq(
				(uintptr_t)pinion_array_view(array)->data % pinion_device_caps(dev)->alignment, 0);
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
	ck_ok(pinion_array_clone(array, NULL, &copy));
	ck_ok(pinion_array_copy(copy, NULL, array, NULL));
	pinion_array_free(copy);
	ck_ok(pinion_array_copy_to(array, NULL, reference, &copy, NULL));
	pinion_array_free(copy);
	pinion_array_free(array);
	ck_ok(pinion_array_zeros(dev, PINION_DTYPE_I32, 0, NULL, &array));
	one = downloaded(array);
	ck_assert_int_eq(*pinion_view_i32(&one), 0);
	free(one.data);
	pinion_array_free(array);
	teardown();
}
END_TEST

START_TEST(an_array_that_cannot_be_is_refused_and_nothing_is_made)
{
	struct pinion_array *array = (void *)1;
	uint64_t shape[PINION_RANK_MAX + 1] = { 0 };
	const struct pinion_caps *caps;

	setup(_i);
	caps = pinion_device_caps(dev);
	ck_assert_int_eq(pinion_array_zeros(dev, PINION_DTYPE_F32, caps->rank_max + 1, shape, &array), -EINVAL);
	ck_assert_int_eq(pinion_array_uninit(dev, PINION_DTYPE_F32, 1, (uint64_t[]){ UINT64_MAX }, &array), -EINVAL);
	ck_assert_int_eq(
		pinion_array_uninit(dev, PINION_DTYPE_F64, 3, (uint64_t[]){ 1u << 31, 1u << 31, 1u << 31 }, &array),
		-EOVERFLOW);
	ck_assert_int_eq(pinion_array_uninit(dev, PINION_DTYPE_F64, 2, (uint64_t[]){ 1u << 31, 1u << 30 }, &array),
			 -EOVERFLOW);
	ck_assert_int_eq(pinion_array_zeros(dev, PINION_DTYPE_U8, 2, (uint64_t[]){ 1u << 31, 1u << 21 }, &array),
			 -ENOMEM);
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
			ck_ok(pinion_view_narrow(a ? &dst : &room, a, room.shape[a] - want.shape[a], want.shape[a],
						 &dst));
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

	setup(_i);
	src = any_bits(PINION_DTYPE_F32, 3, box);
	array = uploaded(&src);
	ck_assert_int_eq(pinion_array_clone(array, &src, &out), -EINVAL);
	other = *pinion_array_view(array);
	other.dtype = PINION_DTYPE_I32;
	ck_assert_int_eq(pinion_array_clone(array, &other, &out), -EINVAL);
	other = *pinion_array_view(array);
	other.stride[0] *= 2;
	ck_assert_int_eq(pinion_array_clone(array, &other, &out), -EINVAL);
	other = *pinion_array_view(array);
	other.bytes *= 2;
	ck_assert_int_eq(pinion_array_download(array, &other, &src), -EINVAL);
	ck_assert_ptr_eq(out, (void *)1);
	pinion_array_free(array);
	free(src.data);
	teardown();
}
END_TEST

/* ---- copies
 * --------------------------------------------------------------------------------------------------------------- */

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
		struct pinion_view src = any_bits(dtypes[d], 3, box),
				   want = any_bits(dtypes[d], 3, (uint64_t[]){ 6, 6, 6 });
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

	setup(_i);
	src = any_bits(PINION_DTYPE_I32, 1, (uint64_t[]){ 100 });
	want = host_like(&src);
	array = uploaded(&src);
	memcpy(want.data, src.data, src.bytes);
	ck_ok(pinion_view_narrow(pinion_array_view(array), 0, 0, 90, &low));
	ck_ok(pinion_view_narrow(pinion_array_view(array), 0, 10, 90, &high));
	ck_ok(pinion_array_copy(array, &high, array, &low));
	memcpy((int32_t *)want.data + 10, src.data, 90 * sizeof(int32_t));
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

	setup(_i);
	a = any_bits(PINION_DTYPE_F32, 1, (uint64_t[]){ 6 });
	b = any_bits(PINION_DTYPE_F32, 1, (uint64_t[]){ 7 });
	x = uploaded(&a);
	y = uploaded(&b);
	ck_assert_int_eq(pinion_array_copy(x, NULL, y, NULL), -EINVAL);
	ck_ok(pinion_view_narrow(pinion_array_view(x), 0, 0, 1, &repeat));
	ck_ok(pinion_view_broadcast(&repeat, 1, (uint64_t[]){ 7 }, &repeat));
	ck_assert_int_eq(pinion_array_copy(x, &repeat, y, NULL), -EINVAL);
	check_elements(x, &a);
	pinion_array_free(y);
	free(b.data);
	b = any_bits(PINION_DTYPE_I32, 1, (uint64_t[]){ 6 });
	y = uploaded(&b);
	ck_assert_int_eq(pinion_array_copy(x, NULL, y, NULL), -EINVAL);
	ck_assert_ptr_nonnull(strstr(pinion_error(), "dtype mismatch"));
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

/* ---- casts
 * ---------------------------------------------------------------------------------------------------------------- */

/* Numbers where rounding, saturation and signs change, then any bits. */
static struct pinion_view edges(enum pinion_dtype dtype)
{
	static const double edge[] = { 0,	    -0.0,	 0.5,	      -0.5,  1,	    -1,
				       1.5,	    2.5,	 127,	      127.5, 128,   -128,
				       -129,	    255,	 256,	      448,   464,   465,
				       32767,	    32768,	 65504,	      65520, 1e9,   2147483647,
				       2147483648., 4294967295., 4294967296., 1e19,  -1e19, 9007199254740993.,
				       1e-7,	    6e-8,	 2.98e-8,     1e-40, 1e39,  -1e39,
				       INFINITY,    -INFINITY,	 NAN };
	uint64_t n = 1000 + 200 * scale(), i;
	struct pinion_view view = any_bits(dtype, 1, &n);
	size_t size = pinion_dtype_bytes(dtype);

	for (i = 0; i < sizeof(edge) / sizeof(*edge); i++) {
		struct pinion_scalar s;

		if (!pinion_dtype_scalar(dtype, edge[i], &s))
			memcpy((char *)view.data + i * size, s.bytes, size);
	}
	/* Halfway between two floats, and one beyond: with more bits than a double has. */
	for (uint32_t bit = 24; dtype == PINION_DTYPE_I64 && bit < 63; bit++) {
		int64_t *element = (int64_t *)view.data + i;

		element[0] = (INT64_C(1) << bit) + (INT64_C(1) << (bit - 24)) + 1;
		element[1] = (INT64_C(1) << bit) + (INT64_C(1) << (bit - 8)) + 1;
		element[2] = -element[0];
		element[3] = -element[1];
		i += 4;
	}
	return view;
}

START_TEST(casts_are_those_of_the_reference_to_the_bit)
{
	setup(_i);
	for (size_t s = 0; s < DTYPES; s++) {
		struct pinion_view src = edges(dtypes[s]);
		struct pinion_array *array = uploaded(&src), *truth = uploaded_to(reference, &src), *got, *want;

		for (size_t d = 0; d < DTYPES; d++) {
			struct pinion_view result;

			if (!pinion_device_supports(dev, PINION_OP_CAST, dtypes[d])) {
				ck_assert_int_eq(pinion_array_cast(array, NULL, dtypes[d], &got), -EOPNOTSUPP);
				continue;
			}
			ck_ok(pinion_array_cast(array, NULL, dtypes[d], &got));
			ck_ok(pinion_array_cast(truth, NULL, dtypes[d], &want));
			result = downloaded(want);
			check_elements(got, &result);
			free(result.data);
			pinion_array_free(got);
			pinion_array_free(want);
		}
		pinion_array_free(array);
		pinion_array_free(truth);
		free(src.data);
	}
	teardown();
}
END_TEST

START_TEST(a_cast_obeys_its_layout)
{
	struct pinion_view src, want, layout, at;
	struct pinion_array *array, *got;

	setup(_i);
	src = any_bits(PINION_DTYPE_I16, 3, box);
	array = uploaded(&src);
	for (int i = 0; pinion_device_supports(dev, PINION_OP_CAST, PINION_DTYPE_F32) && layout_at(&src, i, &at); i++) {
		layout_at(pinion_array_view(array), i, &layout);
		want = host(PINION_DTYPE_F32, at.rank, at.shape);
		ck_ok(pinion_view_cast(&want, &at));
		ck_ok(pinion_array_cast(array, &layout, PINION_DTYPE_F32, &got));
		check_elements(got, &want);
		pinion_array_free(got);
		free(want.data);
	}
	pinion_array_free(array);
	free(src.data);
	teardown();
}
END_TEST

/* ---- products
 * --------------------------------------------------------------------------------------------------------------- */

static const enum pinion_dtype products[] = { PINION_DTYPE_F16, PINION_DTYPE_F32, PINION_DTYPE_F64 };
#define PRODUCTS (sizeof(products) / sizeof(*products))

static struct pinion_view numbers(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	struct pinion_view view = host(dtype, rank, shape);
	size_t size = pinion_dtype_bytes(dtype);

	for (uint64_t i = 0; i < view.bytes / size; i++) {
		struct pinion_scalar s;

		ck_ok(pinion_dtype_scalar(dtype, ((double)(any() % 2001) - 1000) / 512, &s));
		memcpy((char *)view.data + i * size, s.bytes, size);
	}
	return view;
}

static struct pinion_view as_f64(const struct pinion_view *view)
{
	struct pinion_view wide = host(PINION_DTYPE_F64, view->rank, view->shape);

	ck_ok(pinion_view_cast(&wide, view));
	return wide;
}

/* How far an element may be from the reference's: what array.h promises. */
static double tolerance(enum pinion_dtype dtype, uint64_t k, double magnitude, double value)
{
	double unit = dtype == PINION_DTYPE_F64 ? 0x1p-53 : 0x1p-24;
	/* Twice half a unit, because both were rounded; the least subnormal is as far as two neighbours get. */
	double rounding = dtype == PINION_DTYPE_F16 ? fabs(value) * 0x1p-10 + 0x1p-24 : 0;

	return 2 * (double)(k ? k : 1) * unit * magnitude + rounding;
}

/* @a and @b are matrices in f64, @x the product of their magnitudes. */
static void check_product(enum pinion_dtype dtype, const struct pinion_view *got, const struct pinion_view *want,
			  const struct pinion_view *a, const struct pinion_view *b)
{
	struct pinion_view g = as_f64(got), w = as_f64(want), x = as_f64(a), y = as_f64(b);
	uint64_t m = a->shape[0], k = a->shape[1], n = b->shape[1];
	const double *p = x.data, *q = y.data;
	uint64_t beyond = 0;

	for (uint64_t i = 0; i < m; i++) {
		for (uint64_t j = 0; j < n; j++) {
			double magnitude = 0, value = ((double *)w.data)[i * n + j];
			double off = fabs(((double *)g.data)[i * n + j] - value);

			for (uint64_t l = 0; l < k; l++)
				magnitude += fabs(p[i * k + l] * q[l * n + j]);
			/* Not the other way round: NaN is not within anything. */
			beyond += !(off <= tolerance(dtype, k, magnitude, value));
		}
	}
	ck_assert_uint_eq(beyond, 0);
	free(g.data);
	free(w.data);
	free(x.data);
	free(y.data);
}

/* Both as the layouts of a device's arrays and of the reference's. */
static void try_product(enum pinion_dtype dtype, const struct pinion_view *a, const struct pinion_view *a_layout,
			const struct pinion_view *b, const struct pinion_view *b_layout)
{
	struct pinion_array *x[2] = { uploaded(a), uploaded_to(reference, a) };
	struct pinion_array *y[2] = { uploaded(b), uploaded_to(reference, b) }, *z[2];
	struct pinion_view got[2];

	for (int i = 0; i < 2; i++) {
		struct pinion_view l = *a_layout, r = *b_layout;

		l.data = pinion_array_view(x[i])->data;
		r.data = pinion_array_view(y[i])->data;
		ck_ok(pinion_array_matmul(x[i], &l, y[i], &r, &z[i]));
		got[i] = downloaded(z[i]);
		pinion_array_free(x[i]);
		pinion_array_free(y[i]);
		pinion_array_free(z[i]);
	}
	check_product(dtype, &got[0], &got[1], a_layout, b_layout);
	free(got[0].data);
	free(got[1].data);
}

START_TEST(products_are_those_of_the_reference_within_the_bound)
{
	static const uint64_t size[][3] = { { 1, 1, 1 },   { 1, 16, 7 },      { 6, 16, 1 },	 { 7, 17, 5 },
					    { 2, 3, 0 },   { 0, 3, 2 },	      { 3, 0, 2 },	 { 1, 130, 300 },
					    { 121, 3, 2 }, { 120, 128, 256 }, { 119, 127, 255 }, { 122, 131, 259 } };

	setup(_i);
	for (size_t d = 0; d < PRODUCTS; d++) {
		for (size_t s = 0; s <= sizeof(size) / sizeof(*size); s++) {
			bool last = s == sizeof(size) / sizeof(*size);
			uint64_t m = last ? 17 * scale() : size[s][0];
			uint64_t n = last ? 19 * scale() : size[s][1], k = last ? 23 * scale() : size[s][2];
			struct pinion_view a = numbers(products[d], 2, (uint64_t[]){ m, k });
			struct pinion_view b = numbers(products[d], 2, (uint64_t[]){ k, n });

			if (pinion_device_supports(dev, PINION_OP_MATMUL, products[d]))
				try_product(products[d], &a, &a, &b, &b);
			free(a.data);
			free(b.data);
		}
	}
	teardown();
}
END_TEST

/* Transposed, backwards, every other, repeated. */
START_TEST(products_take_any_layout)
{
	setup(_i);
	for (size_t d = 0; d < PRODUCTS; d++) {
		struct pinion_view a = numbers(products[d], 2, (uint64_t[]){ 20, 33 }),
				   b = numbers(products[d], 2, (uint64_t[]){ 19, 20 });
		struct pinion_view at, bt, flipped;

		if (pinion_device_supports(dev, PINION_OP_MATMUL, products[d])) {
			ck_ok(pinion_view_transpose(&a, 0, 1, &at));
			ck_ok(pinion_view_transpose(&b, 0, 1, &bt));
			try_product(products[d], &at, &at, &bt, &bt);
			try_product(products[d], &b, &b, &a, &a);
			ck_ok(pinion_view_flip(&b, 1, &flipped));
			try_product(products[d], &b, &flipped, &a, &a);
			try_product(products[d], &a, &at, &b, &bt);
			ck_ok(pinion_view_narrow(&b, 0, 3, 1, &flipped));
			ck_ok(pinion_view_broadcast(&flipped, 2, (uint64_t[]){ 9, 20 }, &flipped));
			try_product(products[d], &b, &flipped, &a, &a);
		}
		free(a.data);
		free(b.data);
	}
	teardown();
}
END_TEST

START_TEST(products_of_many_matrices_are_each_on_its_own)
{
	struct pinion_view a, b, all, one, part, repeated;
	struct pinion_array *x, *y, *z, *alone;

	setup(_i);
	a = numbers(PINION_DTYPE_F32, 4, (uint64_t[]){ 2, 3, 5, 7 });
	b = numbers(PINION_DTYPE_F32, 4, (uint64_t[]){ 1, 3, 7, 4 });
	x = uploaded(&a);
	y = uploaded(&b);
	if (pinion_device_supports(dev, PINION_OP_MATMUL, PINION_DTYPE_F32)) {
		ck_ok(pinion_view_broadcast(pinion_array_view(y), 4, (uint64_t[]){ 2, 3, 7, 4 }, &repeated));
		ck_assert_int_eq(pinion_array_matmul(x, NULL, y, NULL, &z), -EINVAL);
		ck_ok(pinion_array_matmul(x, NULL, y, &repeated, &z));
		all = downloaded(z);
		for (uint64_t i = 0; i < 6; i++) {
			struct pinion_view l, r;

			ck_ok(pinion_view_narrow(pinion_array_view(x), 0, i / 3, 1, &l));
			ck_ok(pinion_view_narrow(&l, 1, i % 3, 1, &l));
			ck_ok(pinion_view_narrow(pinion_array_view(y), 1, i % 3, 1, &r));
			ck_ok(pinion_array_matmul(x, &l, y, &r, &alone));
			one = downloaded(alone);
			part = one;
			ck_assert_mem_eq((float *)all.data + i * 20, part.data, 20 * sizeof(float));
			free(one.data);
			pinion_array_free(alone);
		}
		free(all.data);
		pinion_array_free(z);
	} else {
		ck_assert_int_eq(pinion_array_matmul(x, NULL, y, NULL, &z), -EOPNOTSUPP);
	}
	pinion_array_free(x);
	pinion_array_free(y);
	free(a.data);
	free(b.data);
	teardown();
}
END_TEST

/* 2048 + 1 is a tie in f16, which a sum that is rounded each time loses 2000 times. */
START_TEST(an_f16_product_is_rounded_once)
{
	uint64_t k = 2001;
	struct pinion_view a, b, c;
	struct pinion_array *x, *y, *z;

	setup(_i);
	a = host(PINION_DTYPE_F16, 2, (uint64_t[]){ 1, k });
	b = host(PINION_DTYPE_F16, 2, (uint64_t[]){ k, 1 });
	for (uint64_t i = 0; i < k; i++) {
		((uint16_t *)a.data)[i] = pinion_f32_to_f16(i ? 1 : 2048);
		((uint16_t *)b.data)[i] = pinion_f32_to_f16(1);
	}
	x = uploaded(&a);
	y = uploaded(&b);
	if (pinion_device_supports(dev, PINION_OP_MATMUL, PINION_DTYPE_F16)) {
		ck_ok(pinion_array_matmul(x, NULL, y, NULL, &z));
		c = downloaded(z);
		ck_assert_uint_eq(*pinion_view_f16(&c), pinion_f32_to_f16(4048));
		free(c.data);
		pinion_array_free(z);
	}
	pinion_array_free(x);
	pinion_array_free(y);
	free(a.data);
	free(b.data);
	teardown();
}
END_TEST

/* Into a place in its own left side, and over both sides: the sources are as if they had been read first. */
START_TEST(a_product_may_go_where_its_sources_are)
{
	struct pinion_view a, want, place, at, square;
	struct pinion_array *x, *z;
	struct pinion_operand dst, src[2];

	setup(_i);
	a = numbers(PINION_DTYPE_F32, 2, (uint64_t[]){ 9, 12 });
	x = uploaded(&a);
	ck_ok(pinion_view_narrow(pinion_array_view(x), 1, 2, 9, &square));
	ck_ok(pinion_view_narrow(pinion_array_view(x), 1, 3, 9, &place));
	dst = (struct pinion_operand){ x, &place };
	src[0] = src[1] = (struct pinion_operand){ x, &square };
	if (pinion_device_supports(dev, PINION_OP_MATMUL, PINION_DTYPE_F32)) {
		ck_ok(pinion_array_matmul(x, &square, x, &square, &z));
		want = downloaded(z);
		ck_ok(pinion_view_narrow(&a, 1, 3, 9, &at));
		ck_ok(pinion_view_copy(&at, &want));
		ck_ok(pinion_array_run(PINION_OP_MATMUL, &dst, src, 2, NULL, 0));
		check_elements(x, &a);
		free(want.data);
		pinion_array_free(x);
		x = z;
		ck_ok(pinion_array_matmul(x, NULL, x, NULL, &z));
		want = downloaded(z);
		dst = src[0] = src[1] = (struct pinion_operand){ x, NULL };
		ck_ok(pinion_array_run(PINION_OP_MATMUL, &dst, src, 2, NULL, 0));
		check_elements(x, &want);
		free(want.data);
		pinion_array_free(z);
	}
	pinion_array_free(x);
	free(a.data);
	teardown();
}
END_TEST

START_TEST(products_that_do_not_go_together_are_refused)
{
	static const uint64_t shapes[][2] = { { 3, 4 }, { 5, 6 } };
	struct pinion_view a, b, c;
	struct pinion_array *x, *y, *w, *z = (void *)1;
	int ret;

	setup(_i);
	a = numbers(PINION_DTYPE_F32, 2, shapes[0]);
	b = numbers(PINION_DTYPE_F32, 2, shapes[1]);
	c = numbers(PINION_DTYPE_F64, 2, (uint64_t[]){ 4, 6 });
	x = uploaded(&a);
	y = uploaded(&b);
	w = uploaded(&c);
	ret = pinion_device_supports(dev, PINION_OP_MATMUL, PINION_DTYPE_F32) ? -EINVAL : -EOPNOTSUPP;
	ck_assert_int_eq(pinion_array_matmul(x, NULL, y, NULL, &z), ret);
	ck_assert_int_eq(pinion_array_matmul(x, NULL, w, NULL, &z), ret);
	pinion_array_free(y);
	free(b.data);
	b = numbers(PINION_DTYPE_F32, 1, shapes[0]);
	y = uploaded(&b);
	ck_assert_int_eq(pinion_array_matmul(x, NULL, y, NULL, &z), ret);
	ck_assert_int_eq(pinion_array_matmul(y, NULL, x, NULL, &z), ret);
	ck_assert_ptr_eq(z, (void *)1);
	pinion_array_free(x);
	pinion_array_free(y);
	pinion_array_free(w);
	free(a.data);
	free(b.data);
	free(c.data);
	teardown();
}
END_TEST

/* ---- signals
 * ---------------------------------------------------------------------------------------------------------------- */

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

TCase *conform_case(void)
{
	TCase *c = tcase_create("conform");

	read_keys();
	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, capabilities_are_what_a_device_can_have, 0, key_count);
	tcase_add_loop_test(c, an_op_is_supported_exactly_when_a_call_of_it_is_not_refused, 0, key_count);
	tcase_add_loop_test(c, dtypes_without_elements_are_refused_everywhere, 0, key_count);
	tcase_add_loop_test(c, zeros_are_zero, 0, key_count);
	tcase_add_loop_test(c, an_array_may_have_no_elements_or_no_axes, 0, key_count);
	tcase_add_loop_test(c, an_array_that_cannot_be_is_refused_and_nothing_is_made, 0, key_count);
	tcase_add_loop_test(c, what_goes_up_comes_down, 0, key_count);
	tcase_add_loop_test(c, a_download_obeys_both_layouts, 0, key_count);
	tcase_add_loop_test(c, a_download_into_another_shape_or_dtype_is_refused, 0, key_count);
	tcase_add_loop_test(c, a_layout_of_other_memory_is_refused, 0, key_count);
	tcase_add_loop_test(c, a_clone_has_what_its_layout_describes, 0, key_count);
	tcase_add_loop_test(c, a_clone_is_on_its_own, 0, key_count);
	tcase_add_loop_test(c, a_strided_copy_writes_its_place_and_no_other, 0, key_count);
	tcase_add_loop_test(c, a_copy_over_itself_is_as_if_all_was_read_first, 0, key_count);
	tcase_add_loop_test(c, copies_that_do_not_fit_are_refused_and_change_nothing, 0, key_count);
	tcase_add_loop_test(c, a_fill_stores_at_each_position, 0, key_count);
	tcase_add_loop_test(c, a_copy_to_a_device_goes_the_path_that_is_said, 0, key_count);
	tcase_add_loop_test(c, memory_is_shared_with_devices_that_share_and_no_others, 0, key_count);
	tcase_add_loop_test(c, casts_are_those_of_the_reference_to_the_bit, 0, key_count);
	tcase_add_loop_test(c, a_cast_obeys_its_layout, 0, key_count);
	tcase_add_loop_test(c, products_are_those_of_the_reference_within_the_bound, 0, key_count);
	tcase_add_loop_test(c, products_take_any_layout, 0, key_count);
	tcase_add_loop_test(c, products_of_many_matrices_are_each_on_its_own, 0, key_count);
	tcase_add_loop_test(c, an_f16_product_is_rounded_once, 0, key_count);
	tcase_add_loop_test(c, a_product_may_go_where_its_sources_are, 0, key_count);
	tcase_add_loop_test(c, products_that_do_not_go_together_are_refused, 0, key_count);
	tcase_add_loop_test(c, memory_signals_agree_with_each_other, 0, key_count);
	tcase_add_loop_test(c, a_device_without_a_queue_has_no_load, 0, key_count);
	return c;
}
