/* SPDX-License-Identifier: MIT */
/* conform cast: dtypes turned into others. */
#include "conform_device.h"

#include <errno.h>
#include <math.h>

/* Numbers where rounding, saturation and signs change, then any bits. */
static struct pinion_view edges(enum pinion_dtype dtype)
{
	static const double edge[] = {
		0,     -0.0,  0.5,     -0.5,	   1,		-1,	     1.5,	  2.5,	     127,   127.5,
		128,   -128,  -129,    255,	   256,		448,	     464,	  465,	     32767, 32768,
		65504, 65520, 1e9,     2147483647, 2147483648., 4294967295., 4294967296., 1e19,	     -1e19, 9007199254740993.,
		1e-7,  6e-8,  2.98e-8, 1e-40,	   1e39,	-1e39,	     INFINITY,	  -INFINITY, NAN
	};
	uint64_t shape[] = { at_most(16 + 3 * scale()), 64 }, i;
	struct pinion_view view = any_bits(dtype, 2, shape);
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

void conform_cast(TCase *c)
{
	tcase_add_loop_test(c, casts_are_those_of_the_reference_to_the_bit, 0, key_count);
	tcase_add_loop_test(c, a_cast_obeys_its_layout, 0, key_count);
}
