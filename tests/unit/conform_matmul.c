/* SPDX-License-Identifier: MIT */
/* conform matmul: products against those of the reference. */
#include "conform_device.h"

#include <errno.h>
#include <math.h>

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

/* On a slow machine the large products would be most of the suite's time; what they are about does not depend on the machine. */
static bool is_too_slow(uint64_t m, uint64_t n, uint64_t k)
{
	return test_scale() < 100 && m * n * k > 100000;
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
			uint64_t m = at_most(last ? 17 * scale() : size[s][0]);
			uint64_t n = at_most(last ? 19 * scale() : size[s][1]);
			uint64_t k = at_most(last ? 23 * scale() : size[s][2]);
			struct pinion_view a, b;

			if (is_too_slow(m, n, k))
				continue;
			a = numbers(products[d], 2, (uint64_t[]){ m, k });
			b = numbers(products[d], 2, (uint64_t[]){ k, n });
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
	uint32_t skip; /* of the axes in front, where the device has no fourth */

	setup(_i);
	skip = pinion_device_caps(dev)->rank_max < 4;
	a = numbers(PINION_DTYPE_F32, 4 - skip, (uint64_t[]){ 2, 3, 5, 7 } + skip);
	b = numbers(PINION_DTYPE_F32, 4 - skip, (uint64_t[]){ 1, skip ? 1 : 3, 7, 4 } + skip);
	x = uploaded(&a);
	y = uploaded(&b);
	if (pinion_device_supports(dev, PINION_OP_MATMUL, PINION_DTYPE_F32)) {
		ck_ok(pinion_view_broadcast(pinion_array_view(y), 4 - skip, (uint64_t[]){ 2, 3, 7, 4 } + skip, &repeated));
		ck_assert_int_eq(pinion_array_matmul(x, NULL, y, NULL, &z), -EINVAL);
		ck_ok(pinion_array_matmul(x, NULL, y, &repeated, &z));
		all = downloaded(z);
		for (uint64_t i = 0; i < pinion_view_elements(&all) / 20; i++) {
			struct pinion_view l, r;

			l = *pinion_array_view(x);
			if (!skip)
				ck_ok(pinion_view_narrow(&l, 0, i / 3, 1, &l));
			ck_ok(pinion_view_narrow(&l, 1 - skip, i % 3, 1, &l));
			ck_ok(pinion_view_narrow(pinion_array_view(y), 1 - skip, skip ? 0 : i % 3, 1, &r));
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

/* 2048 + 1 is a tie in f16, which a sum that is rounded each time loses each time. */
START_TEST(an_f16_product_is_rounded_once)
{
	uint64_t k;
	struct pinion_view a, b, c;
	struct pinion_array *x, *y, *z;

	setup(_i);
	k = (at_most(2001) - 1) | 1;
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
		ck_assert_uint_eq(*pinion_view_f16(&c), pinion_f32_to_f16(2047 + k));
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

void conform_matmul(TCase *c)
{
	tcase_add_loop_test(c, products_are_those_of_the_reference_within_the_bound, 0, key_count);
	tcase_add_loop_test(c, products_take_any_layout, 0, key_count);
	tcase_add_loop_test(c, products_of_many_matrices_are_each_on_its_own, 0, key_count);
	tcase_add_loop_test(c, an_f16_product_is_rounded_once, 0, key_count);
	tcase_add_loop_test(c, a_product_may_go_where_its_sources_are, 0, key_count);
	tcase_add_loop_test(c, products_that_do_not_go_together_are_refused, 0, key_count);
}
