/* SPDX-License-Identifier: MIT */
/*
 * strided: copy, cast and fill through layouts of every kind. The random tests run on memory that is exactly as long as
 * the views need, and compare all of it with a model that takes one index after the other.
 */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <pinion/view.h>

#define RANK   PINION_RANK_MAX
#define MOST   1000 /* positions of a random view */
#define ROUNDS 10000

static uint64_t state = 1;

static uint64_t next_random(void)
{
	uint64_t z = (state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
	return next_random() % n;
}

static void says(const char *word)
{
	ck_assert_msg(strstr(pinion_error(), word) != NULL, "\"%s\" does not say %s", pinion_error(), word);
}

/* For loops of millions: libcheck's own assertions report each success to the parent process. */
#define holds(condition, ...)                      \
	do {                                       \
		if (!(condition))                  \
			ck_abort_msg(__VA_ARGS__); \
	} while (0)

/* Random layouts. */

static uint64_t count(const struct pinion_view *v)
{
	uint64_t n = 1;

	for (uint32_t axis = 0; axis < v->rank; axis++)
		n *= v->shape[axis];
	return n;
}

static void random_shape(struct pinion_view *v)
{
	do {
		v->rank = (uint32_t)below(RANK + 1);
		for (uint32_t axis = 0; axis < v->rank; axis++)
			v->shape[axis] = below(12) ? 1 + below(4) : below(600);
	} while (count(v) > MOST);
}

/* Any strides at all: repeated elements, windows that overlap, gaps. */
static void any_strides(struct pinion_view *v)
{
	for (uint32_t axis = 0; axis < v->rank; axis++)
		v->stride[axis] = below(4) ? (int64_t)below(25) - 12 : 0;
}

/* No element twice: the axes in some order, each stride past the end of the axis before, in either direction. */
static void apart_strides(struct pinion_view *v)
{
	int64_t step = below(4) ? 1 : 1 + (int64_t)below(3);
	uint32_t order[RANK] = { 0 };
	bool in_order = !below(3);

	for (uint32_t i = 0; i < v->rank; i++) {
		uint32_t k = in_order ? i : (uint32_t)below(i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint32_t i = v->rank; i--;) {
		uint32_t axis = order[i];

		v->stride[axis] = below(3) ? step : -step;
		step *= (int64_t)v->shape[axis];
		step += below(3) ? 0 : (int64_t)below(5);
		if (v->shape[axis] == 1 && below(2))
			v->stride[axis] = below(2) ? INT64_MIN : INT64_MAX;
	}
}

static int64_t number_at(const struct pinion_view *v, uint64_t n)
{
	int64_t number = (int64_t)v->offset;

	for (uint32_t axis = v->rank; axis--;) {
		number += (int64_t)(n % v->shape[axis]) * v->stride[axis];
		n /= v->shape[axis];
	}
	return number;
}

/* Sets the offset, and the bytes to just what the view reaches, at times a little more at either end. */
static void place(struct pinion_view *v)
{
	int64_t low = 0, high = -1;

	v->offset = 0;
	for (uint64_t n = 0; n < count(v); n++) {
		int64_t number = number_at(v, n);

		low = number < low ? number : low;
		high = number > high ? number : high;
	}
	v->offset = (uint64_t)-low + (below(2) ? 0 : below(4));
	v->bytes = (v->offset + (uint64_t)(high + 1) + (below(2) ? 0 : below(4))) * pinion_dtype_bytes(v->dtype);
}

static uint8_t *random_bytes(uint64_t n)
{
	uint8_t *data = malloc(n ? n : 1);

	for (uint64_t i = 0; i < n; i++)
		data[i] = (uint8_t)next_random();
	return data;
}

static uint8_t *same_bytes(const void *data, uint64_t n)
{
	uint8_t *copy = malloc(n ? n : 1);

	memcpy(copy, data, n);
	return copy;
}

static const enum pinion_dtype viewable[] = {
	PINION_DTYPE_U8,     PINION_DTYPE_I8,	  PINION_DTYPE_U32,    PINION_DTYPE_I16,  PINION_DTYPE_I32,
	PINION_DTYPE_I64,    PINION_DTYPE_BF16,	  PINION_DTYPE_F16,    PINION_DTYPE_F32,  PINION_DTYPE_F64,
	PINION_DTYPE_F8E4M3, PINION_DTYPE_F8E5M2, PINION_DTYPE_F8E8M0, PINION_DTYPE_BOOL,
};

static enum pinion_dtype random_dtype(void)
{
	return viewable[below(sizeof(viewable) / sizeof(viewable[0]))];
}

/* Two views of one shape. With @shared in one memory, which then has room for both. */
struct pair {
	struct pinion_view dst, src;
	uint8_t *dst_data, *src_data;
};

static void pair_make(struct pair *p, enum pinion_dtype dst, enum pinion_dtype src, bool shared)
{
	memset(p, 0, sizeof(*p));
	random_shape(&p->dst);
	p->src = p->dst;
	p->dst.dtype = dst;
	p->src.dtype = src;
	apart_strides(&p->dst);
	if (below(2))
		any_strides(&p->src);
	else
		apart_strides(&p->src);
	place(&p->dst);
	place(&p->src);
	if (shared)
		p->dst.bytes = p->src.bytes = p->dst.bytes > p->src.bytes ? p->dst.bytes : p->src.bytes;
	p->dst_data = random_bytes(p->dst.bytes);
	p->src_data = shared ? p->dst_data : random_bytes(p->src.bytes);
	p->dst.data = p->dst_data;
	p->src.data = p->src_data;
}

static void pair_free(struct pair *p)
{
	if (p->src_data != p->dst_data)
		free(p->src_data);
	free(p->dst_data);
}

/* What one element of @src becomes as one of @dst: the cast of it alone, which test_cast.c is about. */
static void model_element(enum pinion_dtype dst, void *to, enum pinion_dtype src, const void *from)
{
	uint64_t in = 0, out = 0;
	struct pinion_view a, b;

	memcpy(&in, from, pinion_dtype_bytes(src));
	holds(!pinion_view_init(&a, &out, sizeof(out), dst, 0, NULL, NULL, 0), "%s", pinion_error());
	holds(!pinion_view_init(&b, &in, sizeof(in), src, 0, NULL, NULL, 0), "%s", pinion_error());
	holds(!pinion_view_cast(&a, &b), "%s", pinion_error());
	memcpy(to, &out, pinion_dtype_bytes(dst));
}

/* The destination's memory as it must be: from @src's as it was, element by element. The caller frees it. */
static uint8_t *model_run(const struct pair *p)
{
	size_t dst_size = pinion_dtype_bytes(p->dst.dtype), src_size = pinion_dtype_bytes(p->src.dtype);
	uint8_t *expected = same_bytes(p->dst_data, p->dst.bytes);

	for (uint64_t n = 0; n < count(&p->dst); n++) {
		uint8_t *to = expected + (size_t)number_at(&p->dst, n) * dst_size;
		const uint8_t *from = p->src_data + (size_t)number_at(&p->src, n) * src_size;

		if (p->dst.dtype == p->src.dtype)
			memcpy(to, from, dst_size);
		else
			model_element(p->dst.dtype, to, p->src.dtype, from);
	}
	return expected;
}

static void pair_check(struct pair *p, int (*call)(const struct pinion_view *, const struct pinion_view *))
{
	uint8_t *expected = model_run(p), *before = same_bytes(p->src_data, p->src.bytes);
	char text[512];

	pinion_view_describe(&p->src, text, sizeof(text));
	holds(call(&p->dst, &p->src) == 0, "%s", pinion_error());
	holds(!memcmp(p->dst_data, expected, p->dst.bytes), "another result from %s", text);
	if (p->src_data != p->dst_data)
		holds(!memcmp(p->src_data, before, p->src.bytes), "the source was written to: %s", text);
	free(expected);
	free(before);
}

START_TEST(copies_are_the_models)
{
	for (unsigned int i = 0; i < ROUNDS; i++) {
		enum pinion_dtype dtype = random_dtype();
		struct pair p;

		pair_make(&p, dtype, dtype, false);
		pair_check(&p, pinion_view_copy);
		pair_free(&p);
	}
}
END_TEST

START_TEST(copies_within_one_memory_are_the_models)
{
	for (unsigned int i = 0; i < ROUNDS; i++) {
		enum pinion_dtype dtype = random_dtype();
		struct pair p;

		pair_make(&p, dtype, dtype, true);
		pair_check(&p, pinion_view_copy);
		pair_free(&p);
	}
}
END_TEST

/* Of bool to bool the model would have to know that 2 becomes 1; test_cast.c does. */
START_TEST(casts_are_the_models)
{
	for (unsigned int i = 0; i < ROUNDS; i++) {
		enum pinion_dtype dst = random_dtype(), src = random_dtype();
		struct pair p;

		if (dst == PINION_DTYPE_BOOL && src == dst)
			continue;
		pair_make(&p, dst, src, below(2));
		pair_check(&p, pinion_view_cast);
		pair_free(&p);
	}
}
END_TEST

static bool has_an_element_twice(const struct pinion_view *v)
{
	uint8_t *seen = calloc(1, v->bytes + 1);
	bool twice = false;

	for (uint64_t n = 0; n < count(v) && !twice; n++)
		twice = seen[number_at(v, n)]++;
	free(seen);
	return twice;
}

/* Where two positions share an element it depends on the order what it holds in the end: refused, nothing written. */
START_TEST(destinations_with_shared_elements_are_refused)
{
	unsigned int shared = 0, apart = 0;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		enum pinion_dtype dtype = random_dtype();
		struct pair p;
		uint8_t *before;
		int ret;

		pair_make(&p, dtype, dtype, false);
		free(p.dst_data);
		any_strides(&p.dst);
		place(&p.dst);
		p.dst.data = p.dst_data = random_bytes(p.dst.bytes);
		before = same_bytes(p.dst_data, p.dst.bytes);
		ret = below(2) ? pinion_view_copy(&p.dst, &p.src) : pinion_view_cast(&p.dst, &p.src);
		if (has_an_element_twice(&p.dst)) {
			holds(ret == -EINVAL && strstr(pinion_error(), "several positions in one element"), "%d %s",
			      ret, pinion_error());
			shared++;
		}
		apart += !ret;
		holds(!ret || !memcmp(before, p.dst_data, p.dst.bytes), "written to");
		free(before);
		pair_free(&p);
	}
	ck_assert_uint_gt(shared, ROUNDS / 10);
	ck_assert_uint_gt(apart, ROUNDS / 10);
}
END_TEST

START_TEST(fills_are_the_models)
{
	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct pinion_view v = { .dtype = random_dtype() };
		struct pinion_scalar value = { .dtype = v.dtype, .i64 = (int64_t)next_random() };
		size_t size = pinion_dtype_bytes(v.dtype);
		uint8_t *expected;

		random_shape(&v);
		if (below(2))
			any_strides(&v);
		else
			apart_strides(&v);
		place(&v);
		v.data = random_bytes(v.bytes);
		expected = same_bytes(v.data, v.bytes);
		for (uint64_t n = 0; n < count(&v); n++)
			memcpy(expected + (size_t)number_at(&v, n) * size,
			       v.dtype == PINION_DTYPE_BOOL && value.u8 ? "\1" : (char *)value.bytes, size);
		holds(pinion_view_fill(&v, &value) == 0, "%s", pinion_error());
		holds(!memcmp(expected, v.data, v.bytes), "another result");
		free(expected);
		free(v.data);
	}
}
END_TEST

/* Small cases, by hand. */

static struct pinion_view plain(void *data, enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	struct pinion_view v;
	uint64_t bytes = pinion_dtype_bytes(dtype);

	for (uint32_t axis = 0; axis < rank; axis++)
		bytes *= shape[axis];
	ck_ok(pinion_view_init(&v, data, bytes, dtype, rank, shape, NULL, 0));
	return v;
}

#define PLAIN(data, dtype, ...) \
	plain(data, dtype, sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t), (const uint64_t[]){ __VA_ARGS__ })

START_TEST(copy_gathers_and_scatters)
{
	float matrix[6] = { 0, 1, 2, 3, 4, 5 }, other[6];
	struct pinion_view m = PLAIN(matrix, PINION_DTYPE_F32, 2, 3), t, o = PLAIN(other, PINION_DTYPE_F32, 3, 2);

	ck_ok(pinion_view_transpose(&m, 0, 1, &t));
	ck_ok(pinion_view_copy(&o, &t));
	ck_assert_mem_eq(other, ((float[]){ 0, 3, 1, 4, 2, 5 }), sizeof(other));
	ck_ok(pinion_view_flip(&o, 0, &o));
	ck_ok(pinion_view_copy(&t, &o));
	ck_assert_mem_eq(matrix, ((float[]){ 2, 1, 0, 5, 4, 3 }), sizeof(matrix));
}
END_TEST

START_TEST(copy_repeats_what_is_broadcast)
{
	const uint64_t shape[] = { 2, 3 };
	int16_t row[3] = { 7, 8, 9 }, out[6];
	struct pinion_view r = PLAIN(row, PINION_DTYPE_I16, 3), o = PLAIN(out, PINION_DTYPE_I16, 2, 3);

	ck_ok(pinion_view_broadcast(&r, 2, shape, &r));
	ck_ok(pinion_view_copy(&o, &r));
	ck_assert_mem_eq(out, ((int16_t[]){ 7, 8, 9, 7, 8, 9 }), sizeof(out));
	ck_assert_int_eq(pinion_view_copy(&r, &o), -EINVAL);
	says("several positions in one element");
}
END_TEST

/* As if the source were read whole first, whichever way the two lie. */
START_TEST(copy_within_one_memory)
{
	uint8_t bytes[6] = { 0, 1, 2, 3, 4, 5 };
	struct pinion_view all = PLAIN(bytes, PINION_DTYPE_U8, 6), head, tail, back;

	ck_ok(pinion_view_narrow(&all, 0, 0, 5, &head));
	ck_ok(pinion_view_narrow(&all, 0, 1, 5, &tail));
	ck_ok(pinion_view_copy(&tail, &head));
	ck_assert_mem_eq(bytes, ((uint8_t[]){ 0, 0, 1, 2, 3, 4 }), 6);
	ck_ok(pinion_view_copy(&head, &tail));
	ck_assert_mem_eq(bytes, ((uint8_t[]){ 0, 1, 2, 3, 4, 4 }), 6);
	ck_ok(pinion_view_flip(&all, 0, &back));
	ck_ok(pinion_view_copy(&all, &back));
	ck_assert_mem_eq(bytes, ((uint8_t[]){ 4, 4, 3, 2, 1, 0 }), 6);
	ck_ok(pinion_view_copy(&all, &all));
	ck_assert_mem_eq(bytes, ((uint8_t[]){ 4, 4, 3, 2, 1, 0 }), 6);
}
END_TEST

START_TEST(cast_within_one_memory)
{
	int32_t numbers[3] = { 1, -2, 300 };
	struct pinion_view ints = PLAIN(numbers, PINION_DTYPE_I32, 3), floats = PLAIN(numbers, PINION_DTYPE_F32, 3);
	struct pinion_view bytes;
	uint64_t three = 3;

	ck_ok(pinion_view_cast(&floats, &ints));
	ck_assert(pinion_view_f32(&floats)[1] == -2);
	ck_ok(pinion_view_init(&bytes, numbers, sizeof(numbers), PINION_DTYPE_U8, 1, &three, NULL, 2));
	ck_ok(pinion_view_cast(&bytes, &floats));
	ck_assert_mem_eq((uint8_t *)numbers + 2, ((uint8_t[]){ 1, 0, 255 }), 3);
}
END_TEST

/* The memory does not exist and is not touched: what malloc() is asked for is more than there are addresses. */
START_TEST(overlapping_views_may_need_more_memory_than_there_is)
{
	const uint64_t elements = UINT64_C(1) << 62;
	struct pinion_view dst, src;

	ck_ok(pinion_view_init(&dst, (void *)4096, elements + 1, PINION_DTYPE_U8, 1, &elements, NULL, 0));
	ck_ok(pinion_view_init(&src, (void *)4096, elements + 1, PINION_DTYPE_U8, 1, &elements, NULL, 1));
	ck_assert_int_eq(pinion_view_copy(&dst, &src), -ENOMEM);
	says("4611686018427387904 bytes");
}
END_TEST

START_TEST(nothing_to_copy)
{
	const uint64_t shape[] = { 3, 0 };
	uint8_t byte = 7;
	struct pinion_view empty, none, one = plain(&byte, PINION_DTYPE_U8, 0, NULL);
	struct pinion_scalar value = { .dtype = PINION_DTYPE_U8, .u8 = 9 };

	ck_ok(pinion_view_init(&empty, &byte, 1, PINION_DTYPE_U8, 2, shape, (const int64_t[]){ 0, 0 }, UINT64_MAX));
	ck_ok(pinion_view_init(&none, NULL, 0, PINION_DTYPE_U8, 2, shape, NULL, 0));
	ck_ok(pinion_view_copy(&empty, &none));
	ck_ok(pinion_view_copy(&none, &empty));
	ck_ok(pinion_view_cast(&empty, &none));
	ck_ok(pinion_view_fill(&empty, &value));
	ck_ok(pinion_view_fill(&none, &value));
	ck_assert_uint_eq(byte, 7);
	ck_ok(pinion_view_fill(&one, &value));
	ck_assert_uint_eq(byte, 9);
}
END_TEST

START_TEST(shapes_must_be_the_same)
{
	float a[6] = { 0 }, b[6] = { 1, 1, 1, 1, 1, 1 };
	struct pinion_view dst = PLAIN(a, PINION_DTYPE_F32, 2, 3), flat = PLAIN(b, PINION_DTYPE_F32, 6);
	struct pinion_view other = PLAIN(b, PINION_DTYPE_F32, 2, 2), one = PLAIN(b, PINION_DTYPE_F32, 2, 1);

	ck_assert_int_eq(pinion_view_copy(&dst, &flat), -EINVAL);
	says("rank is 2, the source's 1");
	ck_assert_int_eq(pinion_view_copy(&dst, &other), -EINVAL);
	says("axis 1: the destination's extent is 3, the source's 2");
	ck_assert_int_eq(pinion_view_cast(&dst, &one), -EINVAL);
	says("axis 1: the destination's extent is 3, the source's 1");
	ck_assert_mem_eq(a, ((float[6]){ 0 }), sizeof(a));
}
END_TEST

START_TEST(dtypes_must_be_the_same)
{
	uint8_t a[2] = { 1, 1 }, b[2] = { 2, 2 };
	struct pinion_view dst = PLAIN(a, PINION_DTYPE_U8, 2), src = PLAIN(b, PINION_DTYPE_BOOL, 2);
	struct pinion_scalar value = { .dtype = PINION_DTYPE_I8, .i8 = 3 };

	ck_assert_int_eq(pinion_view_copy(&dst, &src), -EINVAL);
	says("dtype mismatch: the destination is u8, the source bool");
	ck_assert_int_eq(pinion_view_fill(&dst, &value), -EINVAL);
	says("dtype mismatch: the destination is u8, the source i8");
	value.dtype = (enum pinion_dtype)0;
	ck_assert_int_eq(pinion_view_fill(&dst, &value), -EINVAL);
	says("not a dtype");
	ck_assert_uint_eq(a[0], 1);
	ck_assert_uint_eq(a[1], 1);
}
END_TEST

/* One element at 2^62 positions: stored once. */
START_TEST(fill_of_a_broadcast_element)
{
	const uint64_t shape[] = { UINT64_C(1) << 31, UINT64_C(1) << 31 };
	const int64_t stride[] = { 0, 0 };
	struct pinion_scalar value;
	double number = 0;
	struct pinion_view v;

	ck_ok(pinion_dtype_scalar(PINION_DTYPE_F64, 2.5, &value));
	ck_ok(pinion_view_init(&v, &number, sizeof(number), PINION_DTYPE_F64, 2, shape, stride, 0));
	ck_ok(pinion_view_fill(&v, &value));
	ck_assert(number == 2.5);
}
END_TEST

START_TEST(fill_keeps_the_digits_of_i64)
{
	struct pinion_scalar value = { .dtype = PINION_DTYPE_I64, .i64 = INT64_MAX - 1 };
	int64_t numbers[3] = { 0 };
	struct pinion_view v = PLAIN(numbers, PINION_DTYPE_I64, 3), two;

	ck_ok(pinion_view_narrow(&v, 0, 1, 2, &two));
	ck_ok(pinion_view_fill(&two, &value));
	ck_assert_mem_eq(numbers, ((int64_t[]){ 0, INT64_MAX - 1, INT64_MAX - 1 }), sizeof(numbers));
}
END_TEST

/* A bool is a byte that is 0 or 1, whatever number was meant by true. */
START_TEST(fill_of_a_bool_is_0_or_1)
{
	struct pinion_scalar value = { .dtype = PINION_DTYPE_BOOL, .u8 = 7 };
	uint8_t truths[3] = { 9, 9, 9 };
	struct pinion_view v = PLAIN(truths, PINION_DTYPE_BOOL, 3), one;

	ck_ok(pinion_view_fill(&v, &value));
	ck_assert_mem_eq(truths, "\1\1\1", 3);
	ck_assert_uint_eq(value.u8, 7);
	ck_ok(pinion_view_narrow(&v, 0, 1, 1, &one));
	value.u8 = 0;
	ck_ok(pinion_view_fill(&one, &value));
	ck_assert_mem_eq(truths, "\1\0\1", 3);
}
END_TEST

/* Copies of rows. */

START_TEST(copy2d_moves_rows)
{
	int32_t from[12] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, to[9] = { 0 };
	struct pinion_view src = PLAIN(from, PINION_DTYPE_I32, 3, 4), dst = PLAIN(to, PINION_DTYPE_I32, 9);

	/* The views' own layouts do not matter. */
	ck_ok(pinion_view_flip(&src, 1, &src));
	ck_ok(pinion_view_copy2d(&dst, 1, 3, &src, 5, 4, 2, 2));
	ck_assert_mem_eq(to, ((int32_t[]){ 0, 5, 6, 0, 9, 10, 0, 0, 0 }), sizeof(to));

	/* One row again and again, and rows backwards. */
	ck_ok(pinion_view_copy2d(&dst, 0, 3, &src, 1, 0, 3, 3));
	ck_assert_mem_eq(to, ((int32_t[]){ 1, 2, 3, 1, 2, 3, 1, 2, 3 }), sizeof(to));
	ck_ok(pinion_view_copy2d(&dst, 6, -3, &src, 0, 4, 3, 1));
	ck_assert_mem_eq(to, ((int32_t[]){ 8, 2, 3, 4, 2, 3, 0, 2, 3 }), sizeof(to));
	ck_ok(pinion_view_copy2d(&dst, 0, 0, &src, 0, 0, 0, 100));
	ck_ok(pinion_view_copy2d(&dst, 0, 0, &src, 0, 0, 100, 0));
	ck_assert_mem_eq(to, ((int32_t[]){ 8, 2, 3, 4, 2, 3, 0, 2, 3 }), sizeof(to));
}
END_TEST

START_TEST(copy2d_refuses)
{
	int32_t from[6] = { 1, 1, 1, 1, 1, 1 }, to[6] = { 0 };
	struct pinion_view src = PLAIN(from, PINION_DTYPE_I32, 6), dst = PLAIN(to, PINION_DTYPE_I32, 6);
	struct pinion_view other = PLAIN(from, PINION_DTYPE_F32, 6);

	ck_assert_int_eq(pinion_view_copy2d(&dst, 1, 3, &src, 0, 3, 2, 3), -EINVAL);
	says("out of bounds: elements 1 to 6 of memory that has 6");
	ck_assert_int_eq(pinion_view_copy2d(&dst, 0, 3, &src, 0, 4, 2, 3), -EINVAL);
	says("out of bounds: elements 0 to 6");
	ck_assert_int_eq(pinion_view_copy2d(&dst, 0, 3, &src, 2, -3, 2, 3), -EINVAL);
	says("out of bounds: elements -1 to 4");
	ck_assert_int_eq(pinion_view_copy2d(&dst, 0, 2, &src, 0, 3, 2, 3), -EINVAL);
	says("several positions in one element");
	ck_assert_int_eq(pinion_view_copy2d(&dst, 0, 3, &other, 0, 3, 2, 3), -EINVAL);
	says("dtype mismatch");
	ck_assert_int_eq(pinion_view_copy2d(&dst, 0, 3, &src, 0, 3, UINT64_MAX, 3), -EOVERFLOW);
	ck_assert_int_eq(pinion_view_copy2d(&dst, UINT64_MAX, 3, &src, 0, 3, 2, 3), -EOVERFLOW);
	ck_assert_mem_eq(to, ((int32_t[6]){ 0 }), sizeof(to));
}
END_TEST

START_TEST(copy2d_is_the_models)
{
	for (unsigned int i = 0; i < ROUNDS; i++) {
		uint64_t elems = below(6), rows = below(6), dst_stride = elems + below(3), src_stride = below(8);
		uint64_t dst_offset = below(4), src_offset = below(4);
		uint16_t from[64], to[64], expected[64];
		struct pinion_view src = PLAIN(from, PINION_DTYPE_F16, 64), dst = PLAIN(to, PINION_DTYPE_F16, 64);

		for (unsigned int k = 0; k < 64; k++) {
			from[k] = (uint16_t)next_random();
			expected[k] = to[k] = (uint16_t)next_random();
		}
		for (uint64_t r = 0; r < rows; r++)
			for (uint64_t e = 0; e < elems; e++)
				expected[dst_offset + r * dst_stride + e] = from[src_offset + r * src_stride + e];
		holds(!pinion_view_copy2d(&dst, dst_offset, (int64_t)dst_stride, &src, src_offset, (int64_t)src_stride,
					  rows, elems),
		      "%s", pinion_error());
		holds(!memcmp(to, expected, sizeof(to)), "another result");
	}
}
END_TEST

/* AddressSanitizer ends the program at a size that no allocator can give, unless told to answer as malloc() does. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static Suite *strided_suite(void)
{
	Suite *s = suite_create("strided");
	TCase *tc = tcase_create("strided");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, copies_are_the_models);
	tcase_add_test(tc, copies_within_one_memory_are_the_models);
	tcase_add_test(tc, casts_are_the_models);
	tcase_add_test(tc, destinations_with_shared_elements_are_refused);
	tcase_add_test(tc, fills_are_the_models);
	tcase_add_test(tc, copy_gathers_and_scatters);
	tcase_add_test(tc, copy_repeats_what_is_broadcast);
	tcase_add_test(tc, copy_within_one_memory);
	tcase_add_test(tc, cast_within_one_memory);
	tcase_add_test(tc, overlapping_views_may_need_more_memory_than_there_is);
	tcase_add_test(tc, nothing_to_copy);
	tcase_add_test(tc, shapes_must_be_the_same);
	tcase_add_test(tc, dtypes_must_be_the_same);
	tcase_add_test(tc, fill_of_a_broadcast_element);
	tcase_add_test(tc, fill_keeps_the_digits_of_i64);
	tcase_add_test(tc, fill_of_a_bool_is_0_or_1);
	tcase_add_test(tc, copy2d_moves_rows);
	tcase_add_test(tc, copy2d_refuses);
	tcase_add_test(tc, copy2d_is_the_models);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(strided_suite)
