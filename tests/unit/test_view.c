/* SPDX-License-Identifier: MIT */
/*
 * view: what a view may reach, views made of views, typed access. The random tests compare with a model that lists the
 * number of each position's element, index by index.
 */
#include "harness.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <pinion/view.h>

#define RANK   PINION_RANK_MAX
#define MOST   4096 /* positions of a random view */
#define ROUNDS 20000

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

/* The model. */

static uint64_t count(uint32_t rank, const uint64_t *shape)
{
	uint64_t n = 1;

	for (uint32_t axis = 0; axis < rank; axis++)
		n *= shape[axis];
	return n;
}

/* The index of the @n-th position in row-major order. */
static void index_of(uint64_t n, uint32_t rank, const uint64_t *shape, uint64_t *index)
{
	for (uint32_t axis = rank; axis--;) {
		index[axis] = n % shape[axis];
		n /= shape[axis];
	}
}

static int64_t number_of(const struct pinion_view *v, const uint64_t *index)
{
	int64_t number = (int64_t)v->offset;

	for (uint32_t axis = 0; axis < v->rank; axis++)
		number += (int64_t)index[axis] * v->stride[axis];
	return number;
}

/* The element of the @n-th position. */
static int64_t number_at(const struct pinion_view *v, uint64_t n)
{
	uint64_t index[RANK];

	index_of(n, v->rank, v->shape, index);
	return number_of(v, index);
}

static void random_shape(struct pinion_view *v)
{
	do {
		v->rank = (uint32_t)below(RANK + 1);
		for (uint32_t axis = 0; axis < v->rank; axis++)
			v->shape[axis] = below(8) ? 1 + below(4) : below(12);
	} while (count(v->rank, v->shape) > MOST);
}

static void random_strides(struct pinion_view *v)
{
	int64_t step = 1;

	for (uint32_t axis = v->rank; axis--;) {
		v->stride[axis] = below(3) ? step : (int64_t)below(21) - 10;
		step *= (int64_t)v->shape[axis];
	}
	for (uint32_t axis = 0; axis < v->rank; axis++)
		if (!below(4))
			v->stride[axis] = -v->stride[axis];
}

static void model_reach(const struct pinion_view *v, int64_t *low, int64_t *high)
{
	*low = INT64_MAX;
	*high = INT64_MIN;
	for (uint64_t n = 0; n < count(v->rank, v->shape); n++) {
		int64_t number = number_at(v, n);

		*low = number < *low ? number : *low;
		*high = number > *high ? number : *high;
	}
}

static const enum pinion_dtype viewable[] = {
	PINION_DTYPE_U8,     PINION_DTYPE_I8,	  PINION_DTYPE_U32,    PINION_DTYPE_I16,  PINION_DTYPE_I32,
	PINION_DTYPE_I64,    PINION_DTYPE_BF16,	  PINION_DTYPE_F16,    PINION_DTYPE_F32,  PINION_DTYPE_F64,
	PINION_DTYPE_F8E4M3, PINION_DTYPE_F8E5M2, PINION_DTYPE_F8E8M0, PINION_DTYPE_BOOL,
};

#define VIEWABLE ((int)(sizeof(viewable) / sizeof(viewable[0])))

static uint64_t memory[1 << 16];

/* A view of any layout that @memory has room for. */
static struct pinion_view random_view(void)
{
	enum pinion_dtype dtype = viewable[below((uint64_t)VIEWABLE)];
	struct pinion_view v = { 0 }, out;
	int64_t low, high;

	do {
		random_shape(&v);
		random_strides(&v);
		v.offset = 0;
		model_reach(&v, &low, &high);
		v.offset = low == INT64_MAX ? below(100) : (uint64_t)-low + below(3);
	} while (high > low && high - low > 8000);
	ck_ok(pinion_view_init(&out, memory, sizeof(memory), dtype, v.rank, v.shape, v.stride, v.offset));
	return out;
}

static struct pinion_view plain(enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	struct pinion_view v;

	ck_ok(pinion_view_init(&v, memory, sizeof(memory), dtype, rank, shape, NULL, 0));
	return v;
}

#define PLAIN(dtype, ...) \
	plain(dtype, sizeof((uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t), (const uint64_t[]){ __VA_ARGS__ })

/* Making views. */

START_TEST(init_keeps_what_it_is_given)
{
	const uint64_t shape[] = { 2, 3 };
	const int64_t stride[] = { -5, 1 };
	struct pinion_view v;

	memset(&v, 0xa5, sizeof(v));
	ck_ok(pinion_view_init(&v, memory, 64, PINION_DTYPE_F32, 2, shape, stride, 6));
	ck_assert_ptr_eq(v.data, memory);
	ck_assert_uint_eq(v.bytes, 64);
	ck_assert_uint_eq(v.dtype, PINION_DTYPE_F32);
	ck_assert_uint_eq(v.rank, 2);
	ck_assert_mem_eq(v.shape, shape, sizeof(shape));
	ck_assert_mem_eq(v.stride, stride, sizeof(stride));
	ck_assert_uint_eq(v.offset, 6);
	ck_assert_uint_eq(pinion_view_elements(&v), 6);
}
END_TEST

START_TEST(init_without_strides_is_row_major)
{
	const int64_t stride[] = { 12, 4, 1 };
	struct pinion_view v = PLAIN(PINION_DTYPE_I16, 2, 3, 4);

	ck_assert_mem_eq(v.stride, stride, sizeof(stride));
	ck_assert(pinion_view_is_contiguous(&v));
	v = plain(PINION_DTYPE_F64, 0, NULL);
	ck_assert_uint_eq(pinion_view_elements(&v), 1);
	ck_assert(pinion_view_is_contiguous(&v));
}
END_TEST

static void init_refused(uint64_t bytes, enum pinion_dtype dtype, uint32_t rank, const uint64_t *shape,
			 const int64_t *stride, uint64_t offset, int err, const char *word)
{
	struct pinion_view v, before;

	memset(&v, 0x5a, sizeof(v));
	before = v;
	ck_assert_msg(pinion_view_init(&v, memory, bytes, dtype, rank, shape, stride, offset) == err,
		      "%s is not said to be wrong", word);
	says(word);
	ck_assert_mem_eq(&v, &before, sizeof(v));
}

START_TEST(init_refuses_dtypes_without_elements)
{
	const uint64_t one = 1;

	init_refused(8, PINION_DTYPE_F4, 1, &one, NULL, 0, -EOPNOTSUPP, "dtype has zero size");
	init_refused(8, PINION_DTYPE_F6E2M3, 1, &one, NULL, 0, -EOPNOTSUPP, "f6e2m3");
	init_refused(8, PINION_DTYPE_F6E3M2, 1, &one, NULL, 0, -EOPNOTSUPP, "f6e3m2");
	init_refused(8, PINION_DTYPE_F8E6M2, 1, &one, NULL, 0, -EOPNOTSUPP, "f8e6m2 has no agreed encoding");
	init_refused(8, (enum pinion_dtype)0, 1, &one, NULL, 0, -EINVAL, "is not a dtype");
	init_refused(8, (enum pinion_dtype)19, 1, &one, NULL, 0, -EINVAL, "19 is not a dtype");
}
END_TEST

START_TEST(init_refuses_ranks)
{
	const uint64_t shape[RANK + 1] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	struct pinion_view v;

	ck_ok(pinion_view_init(&v, memory, 4, PINION_DTYPE_F32, RANK, shape, NULL, 0));
	init_refused(4, PINION_DTYPE_F32, RANK + 1, shape, NULL, 0, -EINVAL, "rank 9 is over 8");
	init_refused(4, PINION_DTYPE_F32, UINT32_MAX, shape, NULL, 0, -EINVAL, "is over 8");
}
END_TEST

START_TEST(init_refuses_memory_that_cannot_be)
{
	const uint64_t one = 1, none = 0;
	struct pinion_view v;

	ck_assert_int_eq(pinion_view_init(&v, NULL, 4, PINION_DTYPE_F32, 1, &one, NULL, 0), -EINVAL);
	says("NULL");
	ck_assert_int_eq(pinion_view_init(&v, NULL, 4, PINION_DTYPE_F32, 1, &none, NULL, 0), -EINVAL);
	init_refused(UINT64_MAX, PINION_DTYPE_U8, 1, &one, NULL, 0, -EINVAL, "more than there can be");
	init_refused((uint64_t)INT64_MAX + 1, PINION_DTYPE_U8, 1, &one, NULL, 0, -EINVAL, "more than there can be");
	ck_assert_int_eq(pinion_view_init(&v, (void *)(UINTPTR_MAX - 7), 16, PINION_DTYPE_U8, 1, &one, NULL, 0),
			 -EINVAL);
	says("more than there can be");
}
END_TEST

START_TEST(init_refuses_unaligned_memory)
{
	const uint64_t one = 1;

	for (int i = 0; i < VIEWABLE; i++)
		for (unsigned int shift = 0; shift < 16; shift++) {
			size_t size = pinion_dtype_bytes(viewable[i]);
			struct pinion_view v;
			int ret = pinion_view_init(&v, (char *)memory + shift, 64, viewable[i], 1, &one, NULL, 0);

			ck_assert_int_eq(ret, shift % size ? -EINVAL : 0);
			if (ret)
				says("not aligned to");
		}
}
END_TEST

START_TEST(init_refuses_what_leaves_the_memory)
{
	const uint64_t row = 6, two[] = { 2, 3 };
	const int64_t back = -1, up[] = { 3, 1 }, mixed[] = { -3, 1 };

	init_refused(23, PINION_DTYPE_F32, 1, &row, NULL, 0, -EINVAL,
		     "out of bounds: elements 0 to 5 of memory that has 5");
	init_refused(24, PINION_DTYPE_F32, 1, &row, NULL, 1, -EINVAL,
		     "elements 1 to 6 of memory that has 6: f32[6] stride [1]");
	init_refused(24, PINION_DTYPE_F32, 1, &row, &back, 4, -EINVAL, "elements -1 to 4");
	init_refused(24, PINION_DTYPE_F32, 2, two, up, 1, -EINVAL, "elements 1 to 6");
	init_refused(24, PINION_DTYPE_F32, 2, two, mixed, 2, -EINVAL, "elements -1 to 4");
	init_refused(24, PINION_DTYPE_F32, 2, two, mixed, 4, -EINVAL, "elements 1 to 6");
	init_refused(3, PINION_DTYPE_F32, 0, NULL, NULL, 0, -EINVAL, "out of bounds");
	init_refused(0, PINION_DTYPE_U8, 0, NULL, NULL, 0, -EINVAL, "out of bounds");
}
END_TEST

START_TEST(init_checks_for_overflow)
{
	const uint64_t huge[] = { UINT64_C(1) << 32, UINT64_C(1) << 32 }, pair[] = { 2, 2 };
	const uint64_t long_axis[] = { UINT64_MAX }, third[] = { UINT64_MAX / 3 + 1 };
	const int64_t most[] = { INT64_MAX, INT64_MAX }, least[] = { INT64_MIN, INT64_MIN };
	const int64_t none[] = { 0, 0 }, three[] = { 3 };
	struct pinion_view v;

	init_refused(64, PINION_DTYPE_U8, 2, huge, NULL, 0, -EOVERFLOW, "elem_count overflow");
	init_refused(64, PINION_DTYPE_U8, 2, huge, none, 0, -EOVERFLOW, "elem_count overflow");
	init_refused(64, PINION_DTYPE_U8, 1, third, three, 0, -EOVERFLOW,
		     "axis 0, extent 6148914691236517206 and stride 3");
	init_refused(64, PINION_DTYPE_U8, 2, pair, most, 0, -EOVERFLOW, "axis 1");
	init_refused(64, PINION_DTYPE_U8, 2, pair, least, 0, -EOVERFLOW, "axis 1");
	init_refused(64, PINION_DTYPE_U8, 1, pair, least, 0, -EINVAL, "out of bounds");
	init_refused(64, PINION_DTYPE_U8, 0, NULL, NULL, UINT64_MAX, -EOVERFLOW, "offset");
	init_refused(64, PINION_DTYPE_F64, 0, NULL, NULL, UINT64_C(1) << 61, -EINVAL, "out of bounds");

	/* One element that is at every position. */
	ck_ok(pinion_view_init(&v, memory, 64, PINION_DTYPE_U8, 1, long_axis, none, 63));
	ck_assert_uint_eq(pinion_view_elements(&v), UINT64_MAX);
}
END_TEST

/* They reach nothing, so that strides, offset, the product of the other extents and the memory may be anything. */
START_TEST(views_without_elements)
{
	const uint64_t shape[] = { UINT64_MAX, 0, UINT64_MAX };
	const int64_t stride[] = { INT64_MAX, INT64_MIN, 77 };
	struct pinion_view v, w;

	ck_ok(pinion_view_init(&v, memory, 8, PINION_DTYPE_F64, 3, shape, stride, UINT64_MAX));
	ck_assert_uint_eq(pinion_view_elements(&v), 0);
	ck_assert(pinion_view_is_contiguous(&v));
	ck_assert_ptr_eq(pinion_view_f64(&v), (double *)memory);
	ck_ok(pinion_view_narrow(&v, 0, 3, 4, &w));
	ck_assert_uint_eq(w.offset, UINT64_MAX);
	ck_ok(pinion_view_flip(&v, 2, &w));
	ck_assert_mem_eq(&w, &v, sizeof(v));
	ck_ok(pinion_view_init(&v, NULL, 0, PINION_DTYPE_F64, 3, shape, NULL, 0));
	ck_assert_ptr_null(pinion_view_f64(&v));
}
END_TEST

START_TEST(init_accepts_what_stays_in_memory_and_nothing_else)
{
	unsigned int accepted = 0;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct pinion_view v = { 0 }, out;
		int64_t low, high, room = (int64_t)below(60);
		int ret;

		random_shape(&v);
		random_strides(&v);
		v.offset = below(60);
		model_reach(&v, &low, &high);
		ret = pinion_view_init(&out, memory, (uint64_t)room * 2 + below(2), PINION_DTYPE_F16, v.rank, v.shape,
				       v.stride, v.offset);
		if (low == INT64_MAX || (low >= 0 && high < room))
			holds(ret == 0, "%s", pinion_error());
		else
			holds(ret == -EINVAL && strstr(pinion_error(), "out of bounds"), "%d %s", ret, pinion_error());
		accepted += !ret;
	}
	ck_assert_uint_gt(accepted, ROUNDS / 20);
	ck_assert_uint_lt(accepted, ROUNDS - ROUNDS / 20);
}
END_TEST

/* Contiguous. */

START_TEST(contiguous_ignores_the_offset_and_axes_of_one)
{
	const uint64_t shape[] = { 2, 1, 3 };
	const int64_t stride[] = { 3, 1000, 1 }, gap[] = { 4, 3, 1 }, back[] = { 3, 3, -1 };
	struct pinion_view v;

	ck_ok(pinion_view_init(&v, memory, 64, PINION_DTYPE_U8, 3, shape, stride, 17));
	ck_assert(pinion_view_is_contiguous(&v));
	ck_ok(pinion_view_init(&v, memory, 64, PINION_DTYPE_U8, 3, shape, gap, 0));
	ck_assert(!pinion_view_is_contiguous(&v));
	ck_ok(pinion_view_init(&v, memory, 64, PINION_DTYPE_U8, 3, shape, back, 2));
	ck_assert(!pinion_view_is_contiguous(&v));
}
END_TEST

START_TEST(contiguous_is_one_run_in_order)
{
	unsigned int yes = 0;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct pinion_view v = random_view();
		bool run = true;

		for (uint64_t n = 0; n < count(v.rank, v.shape) && run; n++)
			run = number_at(&v, n) == (int64_t)(v.offset + n);
		holds(pinion_view_is_contiguous(&v) == run, "contiguous is not %d", run);
		yes += run;
	}
	ck_assert_uint_gt(yes, ROUNDS / 20);
}
END_TEST

/* Views of views. */

START_TEST(narrow)
{
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 4, 5), n;

	ck_ok(pinion_view_narrow(&v, 1, 2, 3, &n));
	ck_assert_uint_eq(n.shape[0], 4);
	ck_assert_uint_eq(n.shape[1], 3);
	ck_assert_uint_eq(n.offset, 2);
	ck_assert(!pinion_view_is_contiguous(&n));
	ck_ok(pinion_view_narrow(&n, 0, 3, 1, &n));
	ck_assert_uint_eq(n.offset, 17);
	ck_assert(pinion_view_is_contiguous(&n));
	ck_ok(pinion_view_narrow(&v, 0, 0, 4, &n));
	ck_assert_mem_eq(&n, &v, sizeof(v));
	ck_ok(pinion_view_narrow(&v, 0, 4, 0, &n));
	ck_assert_uint_eq(pinion_view_elements(&n), 0);
}
END_TEST

START_TEST(narrow_refuses)
{
	static const uint64_t wrong[][2] = {
		{ 0, 6 }, { 5, 1 }, { 6, 0 }, { 1, 5 }, { 1, UINT64_MAX }, { UINT64_MAX, 2 },
	};
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 4, 5), n, before;

	memset(&n, 0x5a, sizeof(n));
	before = n;
	for (unsigned int i = 0; i < 6; i++) {
		ck_assert_int_eq(pinion_view_narrow(&v, 1, wrong[i][0], wrong[i][1], &n), -EINVAL);
		says("narrow: axis 1 has extent 5");
	}
	ck_assert_int_eq(pinion_view_narrow(&v, 2, 0, 1, &n), -EINVAL);
	says("narrow: axis 2 of a view that has 2");
	ck_assert_mem_eq(&n, &before, sizeof(n));
}
END_TEST

START_TEST(transpose_and_permute)
{
	const uint32_t cycle[] = { 2, 0, 1 };
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 2, 3, 4), t;

	ck_ok(pinion_view_transpose(&v, 0, 2, &t));
	ck_assert_mem_eq(t.shape, ((uint64_t[]){ 4, 3, 2 }), 24);
	ck_assert_mem_eq(t.stride, ((int64_t[]){ 1, 4, 12 }), 24);
	ck_ok(pinion_view_transpose(&t, 0, 2, &t));
	ck_assert_mem_eq(&t, &v, sizeof(v));
	ck_ok(pinion_view_transpose(&v, 1, 1, &t));
	ck_assert_mem_eq(&t, &v, sizeof(v));
	ck_ok(pinion_view_permute(&v, cycle, &t));
	ck_assert_mem_eq(t.shape, ((uint64_t[]){ 4, 2, 3 }), 24);
	ck_assert_mem_eq(t.stride, ((int64_t[]){ 1, 12, 4 }), 24);
}
END_TEST

START_TEST(transpose_and_permute_refuse)
{
	const uint32_t twice[] = { 0, 2, 0 }, far[] = { 0, 3, 1 }, wild[] = { 0, UINT32_MAX, 1 };
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 2, 3, 4), t, before;

	memset(&t, 0x5a, sizeof(t));
	before = t;
	ck_assert_int_eq(pinion_view_transpose(&v, 0, 3, &t), -EINVAL);
	says("transpose: axis 3 of a view that has 3");
	ck_assert_int_eq(pinion_view_transpose(&v, 7, 0, &t), -EINVAL);
	ck_assert_int_eq(pinion_view_permute(&v, twice, &t), -EINVAL);
	says("permute: axis 0 is named twice; each of the 3");
	ck_assert_int_eq(pinion_view_permute(&v, far, &t), -EINVAL);
	says("permute: axis 3 of a view that has 3");
	ck_assert_int_eq(pinion_view_permute(&v, wild, &t), -EINVAL);
	ck_assert_mem_eq(&t, &before, sizeof(t));
}
END_TEST

START_TEST(squeeze_and_unsqueeze)
{
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 2, 3), u;

	for (uint32_t axis = 0; axis <= 2; axis++) {
		ck_ok(pinion_view_unsqueeze(&v, axis, &u));
		ck_assert_uint_eq(u.rank, 3);
		ck_assert_uint_eq(u.shape[axis], 1);
		ck_assert_int_eq(u.stride[axis], 0);
		ck_assert(pinion_view_is_contiguous(&u));
		ck_ok(pinion_view_squeeze(&u, axis, &u));
		ck_assert_mem_eq(&u, &v, sizeof(v));
	}
}
END_TEST

START_TEST(squeeze_and_unsqueeze_refuse)
{
	struct pinion_view full = PLAIN(PINION_DTYPE_F32, 1, 1, 1, 1, 1, 1, 1, 1);
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 2, 0), u, before;

	memset(&u, 0x5a, sizeof(u));
	before = u;
	ck_assert_int_eq(pinion_view_squeeze(&v, 0, &u), -EINVAL);
	says("squeeze: axis 0 has extent 2 and needs 1");
	ck_assert_int_eq(pinion_view_squeeze(&v, 1, &u), -EINVAL);
	says("squeeze: axis 1 has extent 0 and needs 1");
	ck_assert_int_eq(pinion_view_squeeze(&v, 2, &u), -EINVAL);
	says("squeeze: axis 2 of a view that has 2");
	ck_assert_int_eq(pinion_view_unsqueeze(&v, 3, &u), -EINVAL);
	says("unsqueeze: axis 3 of a view that has 2");
	ck_assert_int_eq(pinion_view_unsqueeze(&full, 0, &u), -EINVAL);
	says("8 axes");
	ck_assert_mem_eq(&u, &before, sizeof(u));
}
END_TEST

START_TEST(flip)
{
	const uint64_t three[] = { 1, 2 };
	const int64_t wild[] = { INT64_MIN, 1 };
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 4, 5), f;

	ck_ok(pinion_view_flip(&v, 0, &f));
	ck_assert_int_eq(f.stride[0], -5);
	ck_assert_uint_eq(f.offset, 15);
	ck_ok(pinion_view_flip(&f, 0, &f));
	ck_assert_mem_eq(&f, &v, sizeof(v));
	ck_assert_int_eq(pinion_view_flip(&v, 2, &f), -EINVAL);
	says("flip: axis 2 of a view that has 2");

	/* The stride of an axis of 1 may be anything, also what has no negative. */
	ck_ok(pinion_view_init(&v, memory, 64, PINION_DTYPE_F32, 2, three, wild, 0));
	ck_ok(pinion_view_flip(&v, 0, &f));
	ck_assert_mem_eq(&f, &v, sizeof(v));
}
END_TEST

START_TEST(broadcast)
{
	const uint64_t to[] = { 5, 4, 3 };
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 1, 3), b;

	ck_ok(pinion_view_broadcast(&v, 3, to, &b));
	ck_assert_uint_eq(b.rank, 3);
	ck_assert_mem_eq(b.shape, to, sizeof(to));
	ck_assert_mem_eq(b.stride, ((int64_t[]){ 0, 0, 1 }), 24);
	ck_assert(!pinion_view_is_contiguous(&b));
	ck_ok(pinion_view_broadcast(&v, 2, v.shape, &b));
	ck_assert_uint_eq(pinion_view_elements(&b), 3);
}
END_TEST

START_TEST(broadcast_refuses)
{
	const uint64_t wrong[] = { 5, 4, 3 }, huge[] = { UINT64_MAX, 4, 5 }, many[9] = { 1, 1, 1, 1, 1, 1, 1, 4, 5 };
	struct pinion_view v = PLAIN(PINION_DTYPE_F32, 4, 5), b, before;

	memset(&b, 0x5a, sizeof(b));
	before = b;
	ck_assert_int_eq(pinion_view_broadcast(&v, 3, wrong, &b), -EINVAL);
	says("broadcast: axis 1 has extent 5; for 3 it needs that or 1");
	ck_assert_int_eq(pinion_view_broadcast(&v, 1, wrong, &b), -EINVAL);
	says("rank 2 to 1");
	ck_assert_int_eq(pinion_view_broadcast(&v, 9, many, &b), -EINVAL);
	says("rank 2 to 9");
	ck_assert_int_eq(pinion_view_broadcast(&v, 3, huge, &b), -EOVERFLOW);
	ck_assert_mem_eq(&b, &before, sizeof(b));
}
END_TEST

/* A step from one view to the next: what is asked for, and what index of the view an index of the result stands for. */
struct step {
	int (*call)(const struct step *s, const struct pinion_view *view, struct pinion_view *out);
	void (*map)(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from);
	uint32_t a, b, axes[RANK], rank;
	uint64_t start, shape[RANK];
};

static int narrow_call(const struct step *s, const struct pinion_view *view, struct pinion_view *out)
{
	return pinion_view_narrow(view, s->a, s->start, s->shape[s->a], out);
}

static void narrow_map(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from)
{
	memcpy(from, index, view->rank * sizeof(*index));
	from[s->a] += s->start;
}

static int transpose_call(const struct step *s, const struct pinion_view *view, struct pinion_view *out)
{
	return pinion_view_transpose(view, s->a, s->b, out);
}

static void transpose_map(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from)
{
	memcpy(from, index, view->rank * sizeof(*index));
	from[s->a] = index[s->b];
	from[s->b] = index[s->a];
}

static int permute_call(const struct step *s, const struct pinion_view *view, struct pinion_view *out)
{
	return pinion_view_permute(view, s->axes, out);
}

static void permute_map(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from)
{
	for (uint32_t i = 0; i < view->rank; i++)
		from[s->axes[i]] = index[i];
}

static int squeeze_call(const struct step *s, const struct pinion_view *view, struct pinion_view *out)
{
	return pinion_view_squeeze(view, s->a, out);
}

static void squeeze_map(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from)
{
	for (uint32_t i = 0; i < view->rank; i++)
		from[i] = i < s->a ? index[i] : i == s->a ? 0 : index[i - 1];
}

static int unsqueeze_call(const struct step *s, const struct pinion_view *view, struct pinion_view *out)
{
	return pinion_view_unsqueeze(view, s->a, out);
}

static void unsqueeze_map(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from)
{
	for (uint32_t i = 0; i < view->rank; i++)
		from[i] = index[i + (i >= s->a)];
}

static int flip_call(const struct step *s, const struct pinion_view *view, struct pinion_view *out)
{
	return pinion_view_flip(view, s->a, out);
}

static void flip_map(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from)
{
	memcpy(from, index, view->rank * sizeof(*index));
	from[s->a] = view->shape[s->a] - 1 - index[s->a];
}

static int broadcast_call(const struct step *s, const struct pinion_view *view, struct pinion_view *out)
{
	return pinion_view_broadcast(view, s->rank, s->shape, out);
}

static void broadcast_map(const struct step *s, const struct pinion_view *view, const uint64_t *index, uint64_t *from)
{
	for (uint32_t i = 0; i < view->rank; i++)
		from[i] = view->shape[i] == 1 ? 0 : index[s->rank - view->rank + i];
}

static void step_axes(struct step *s, const struct pinion_view *v)
{
	s->a = (uint32_t)below(v->rank);
	s->b = (uint32_t)below(v->rank);
	s->rank = v->rank;
	memcpy(s->shape, v->shape, sizeof(s->shape));
	for (uint32_t i = 0; i < v->rank; i++) {
		uint32_t k = (uint32_t)below(i + 1);

		s->axes[i] = s->axes[k];
		s->axes[k] = i;
	}
}

static void step_broadcast(struct step *s, const struct pinion_view *v)
{
	uint32_t front = (uint32_t)below(RANK - v->rank + 1);

	*s = (struct step){ .call = broadcast_call, .map = broadcast_map, .rank = v->rank + front };
	for (uint32_t i = 0; i < s->rank; i++) {
		s->shape[i] = i < front ? below(3) : v->shape[i - front];
		if (i >= front && s->shape[i] == 1 && below(2))
			s->shape[i] = below(4);
	}
}

/* Some step that @v allows, with the rank and shape that it must lead to. */
static bool random_step(struct step *s, const struct pinion_view *v)
{
	uint64_t kind = below(7);

	*s = (struct step){ .rank = v->rank };
	if (kind == 0) {
		step_broadcast(s, v);
		return count(s->rank, s->shape) <= 4 * MOST;
	}
	if (kind == 1 && v->rank < RANK) {
		*s = (struct step){ .call = unsqueeze_call, .map = unsqueeze_map, .a = (uint32_t)below(v->rank + 1) };
		s->rank = v->rank + 1;
		for (uint32_t i = 0; i < s->rank; i++)
			s->shape[i] = i == s->a ? 1 : v->shape[i - (i > s->a)];
		return true;
	}
	if (!v->rank)
		return false;
	step_axes(s, v);
	if (kind == 2) {
		s->start = below(v->shape[s->a] + 1);
		s->shape[s->a] = below(v->shape[s->a] - s->start + 1);
		s->call = narrow_call, s->map = narrow_map;
	} else if (kind == 3) {
		s->shape[s->a] = v->shape[s->b], s->shape[s->b] = v->shape[s->a];
		s->call = transpose_call, s->map = transpose_map;
	} else if (kind == 4) {
		for (uint32_t i = 0; i < v->rank; i++)
			s->shape[i] = v->shape[s->axes[i]];
		s->call = permute_call, s->map = permute_map;
	} else if (kind == 5) {
		s->call = flip_call, s->map = flip_map;
	} else if (v->shape[s->a] == 1) {
		s->rank--;
		for (uint32_t i = s->a; i < s->rank; i++)
			s->shape[i] = v->shape[i + 1];
		s->call = squeeze_call, s->map = squeeze_map;
	}
	return s->call != NULL;
}

static void step_check(const struct step *s, const struct pinion_view *v, const struct pinion_view *out)
{
	holds(out->rank == s->rank && !memcmp(out->shape, s->shape, s->rank * sizeof(s->shape[0])), "another shape");
	holds(out->data == v->data && out->bytes == v->bytes && out->dtype == v->dtype, "another memory");
	for (uint64_t n = 0; n < count(out->rank, out->shape); n++) {
		uint64_t index[RANK] = { 0 }, from[RANK] = { 0 };

		index_of(n, out->rank, out->shape, index);
		s->map(s, v, index, from);
		for (uint32_t axis = 0; axis < v->rank; axis++)
			holds(from[axis] < v->shape[axis], "the model's index is none");
		holds(number_of(out, index) == number_of(v, from), "position %" PRIu64 " is another element", n);
	}
}

/* Chains of steps, so that each starts from layouts that the others leave; in place, as in a chain. */
START_TEST(steps_lead_to_the_elements_of_the_model)
{
	static unsigned int taken[7];
	static int (*const calls[7])(const struct step *, const struct pinion_view *, struct pinion_view *) = {
		narrow_call, transpose_call, permute_call, squeeze_call, unsqueeze_call, flip_call, broadcast_call,
	};

	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct pinion_view v = random_view();

		for (unsigned int k = 0; k < 6; k++) {
			struct pinion_view from = v;
			struct step s;

			if (!random_step(&s, &from))
				continue;
			holds(s.call(&s, &from, &v) == 0, "%s", pinion_error());
			step_check(&s, &from, &v);
			/* What it leads to would be accepted if it were made by hand. */
			holds(!pinion_view_init(&from, v.data, v.bytes, v.dtype, v.rank, v.shape, v.stride, v.offset),
			      "%s", pinion_error());
			for (unsigned int c = 0; c < 7; c++)
				taken[c] += calls[c] == s.call;
		}
	}
	for (unsigned int c = 0; c < 7; c++)
		ck_assert_uint_gt(taken[c], ROUNDS / 20);
}
END_TEST

/* Each call of a view that a member was changed in. */
START_TEST(views_changed_by_hand_are_refused)
{
	const uint32_t axes[RANK] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct pinion_view good = PLAIN(PINION_DTYPE_F32, 1, 3), out;

	for (unsigned int i = 0; i < 6; i++) {
		struct pinion_view bad = good;

		if (i == 0)
			bad.rank = 9;
		else if (i == 1)
			bad.dtype = (enum pinion_dtype)77;
		else if (i == 2)
			bad.bytes = 11;
		else if (i == 3)
			bad.shape[1] = sizeof(memory);
		else if (i == 4)
			bad.stride[1] = -1;
		else
			bad.data = (char *)bad.data + 1;
		ck_assert_int_lt(pinion_view_narrow(&bad, 0, 0, 0, &out), 0);
		ck_assert_int_lt(pinion_view_transpose(&bad, 0, 0, &out), 0);
		ck_assert_int_lt(pinion_view_permute(&bad, axes, &out), 0);
		ck_assert_int_lt(pinion_view_squeeze(&bad, 0, &out), 0);
		ck_assert_int_lt(pinion_view_unsqueeze(&bad, 0, &out), 0);
		ck_assert_int_lt(pinion_view_flip(&bad, 0, &out), 0);
		ck_assert_int_lt(pinion_view_broadcast(&bad, 2, good.shape, &out), 0);
		ck_assert_ptr_null(pinion_view_f32(&bad));
		ck_assert_int_lt(pinion_view_copy(&good, &bad), 0);
		ck_assert_int_lt(pinion_view_copy(&bad, &good), 0);
		ck_assert_int_lt(pinion_view_cast(&good, &bad), 0);
		ck_assert_int_lt(pinion_view_cast(&bad, &good), 0);
		ck_assert_int_lt(pinion_view_fill(&bad, &(struct pinion_scalar){ .dtype = bad.dtype }), 0);
	}
	good.rank = UINT32_MAX;
	ck_assert_uint_eq(pinion_view_elements(&good), 0);
	ck_assert(!pinion_view_is_contiguous(&good));
	ck_assert_int_gt(pinion_view_describe(&good, NULL, 0), 0);
}
END_TEST

/* Access. */

static void *access_by(enum pinion_dtype dtype, const struct pinion_view *v)
{
	switch (dtype) {
	case PINION_DTYPE_U8:
		return pinion_view_u8(v);
	case PINION_DTYPE_I8:
		return pinion_view_i8(v);
	case PINION_DTYPE_U32:
		return pinion_view_u32(v);
	case PINION_DTYPE_I16:
		return pinion_view_i16(v);
	case PINION_DTYPE_I32:
		return pinion_view_i32(v);
	case PINION_DTYPE_I64:
		return pinion_view_i64(v);
	case PINION_DTYPE_BF16:
		return pinion_view_bf16(v);
	case PINION_DTYPE_F16:
		return pinion_view_f16(v);
	case PINION_DTYPE_F32:
		return pinion_view_f32(v);
	case PINION_DTYPE_F64:
		return pinion_view_f64(v);
	case PINION_DTYPE_F8E4M3:
		return pinion_view_f8e4m3(v);
	case PINION_DTYPE_F8E5M2:
		return pinion_view_f8e5m2(v);
	case PINION_DTYPE_F8E8M0:
		return pinion_view_f8e8m0(v);
	default:
		return pinion_view_bool(v);
	}
}

/* F8E5M2 among them; bool and u8 are two dtypes, though their elements are alike. */
START_TEST(access_is_by_the_dtype_alone)
{
	const uint64_t four = 4;
	char sentence[64];

	for (int i = 0; i < VIEWABLE; i++)
		for (int k = 0; k < VIEWABLE; k++) {
			size_t size = pinion_dtype_bytes(viewable[i]);
			struct pinion_view v;
			void *p;

			ck_ok(pinion_view_init(&v, memory, sizeof(memory), viewable[i], 1, &four, NULL, 3));
			p = access_by(viewable[k], &v);
			if (i == k) {
				ck_assert_ptr_eq(p, (char *)memory + 3 * size);
				continue;
			}
			ck_assert_ptr_null(p);
			snprintf(sentence, sizeof(sentence), "unexpected dtype: expected %s, got %s",
				 pinion_dtype_name(viewable[k]), pinion_dtype_name(viewable[i]));
			says(sentence);
		}
}
END_TEST

START_TEST(access_needs_contiguous)
{
	struct pinion_view v = PLAIN(PINION_DTYPE_F64, 4, 5), other;

	ck_ok(pinion_view_narrow(&v, 0, 1, 2, &other));
	ck_assert_ptr_eq(pinion_view_f64(&other), (double *)memory + 5);
	ck_ok(pinion_view_narrow(&v, 1, 1, 2, &other));
	ck_assert_ptr_null(pinion_view_f64(&other));
	says("requires contiguous: f64[4,2] stride [5,1] offset 1");
	ck_ok(pinion_view_transpose(&v, 0, 1, &other));
	ck_assert_ptr_null(pinion_view_f64(&other));
	ck_ok(pinion_view_flip(&v, 1, &other));
	ck_assert_ptr_null(pinion_view_f64(&other));
}
END_TEST

START_TEST(access_reads_and_writes_the_memory)
{
	struct pinion_view v = PLAIN(PINION_DTYPE_I32, 3), w;

	memcpy(memory, (const int32_t[]){ 5, -6, 7 }, 12);
	ck_assert_int_eq(pinion_view_i32(&v)[1], -6);
	ck_ok(pinion_view_narrow(&v, 0, 2, 1, &w));
	pinion_view_i32(&w)[0] = 70;
	ck_assert_int_eq(pinion_view_i32(&v)[2], 70);
}
END_TEST

/* The text. */

START_TEST(describe)
{
	static const char text[] = "f16[2,3] stride [-3,1] offset 3 in 12 bytes";
	const uint64_t shape[] = { 2, 3 };
	const int64_t stride[] = { -3, 1 };
	struct pinion_view v;
	char buf[64];

	ck_ok(pinion_view_init(&v, memory, 12, PINION_DTYPE_F16, 2, shape, stride, 3));
	ck_assert_int_eq(pinion_view_describe(&v, buf, sizeof(buf)), sizeof(text) - 1);
	ck_assert_str_eq(buf, text);
	ck_assert_int_eq(pinion_view_describe(&v, NULL, 0), sizeof(text) - 1);
	for (size_t size = 1; size <= sizeof(text); size++) {
		memset(buf, 0x5a, sizeof(buf));
		ck_assert_int_eq(pinion_view_describe(&v, buf, size), sizeof(text) - 1);
		ck_assert_uint_eq(strlen(buf), size - 1);
		ck_assert(!strncmp(buf, text, size - 1));
		ck_assert_int_eq(buf[size], 0x5a);
	}
	v = plain(PINION_DTYPE_U8, 0, NULL);
	v.bytes = 1;
	pinion_view_describe(&v, buf, sizeof(buf));
	ck_assert_str_eq(buf, "u8[] stride [] offset 0 in 1 bytes");
}
END_TEST

static void add_steps(TCase *tc)
{
	tcase_add_test(tc, narrow);
	tcase_add_test(tc, narrow_refuses);
	tcase_add_test(tc, transpose_and_permute);
	tcase_add_test(tc, transpose_and_permute_refuse);
	tcase_add_test(tc, squeeze_and_unsqueeze);
	tcase_add_test(tc, squeeze_and_unsqueeze_refuse);
	tcase_add_test(tc, flip);
	tcase_add_test(tc, broadcast);
	tcase_add_test(tc, broadcast_refuses);
	tcase_add_test(tc, steps_lead_to_the_elements_of_the_model);
	tcase_add_test(tc, views_changed_by_hand_are_refused);
}

static Suite *view_suite(void)
{
	Suite *s = suite_create("view");
	TCase *tc = tcase_create("view");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, init_keeps_what_it_is_given);
	tcase_add_test(tc, init_without_strides_is_row_major);
	tcase_add_test(tc, init_refuses_dtypes_without_elements);
	tcase_add_test(tc, init_refuses_ranks);
	tcase_add_test(tc, init_refuses_memory_that_cannot_be);
	tcase_add_test(tc, init_refuses_unaligned_memory);
	tcase_add_test(tc, init_refuses_what_leaves_the_memory);
	tcase_add_test(tc, init_checks_for_overflow);
	tcase_add_test(tc, views_without_elements);
	tcase_add_test(tc, init_accepts_what_stays_in_memory_and_nothing_else);
	tcase_add_test(tc, contiguous_ignores_the_offset_and_axes_of_one);
	tcase_add_test(tc, contiguous_is_one_run_in_order);
	add_steps(tc);
	tcase_add_test(tc, access_is_by_the_dtype_alone);
	tcase_add_test(tc, access_needs_contiguous);
	tcase_add_test(tc, access_reads_and_writes_the_memory);
	tcase_add_test(tc, describe);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(view_suite)
