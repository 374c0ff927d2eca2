/* SPDX-License-Identifier: MIT */
#include "cast.h"

#include "../error.h"
#include "real.h"
#include "rounding.h"
#include "strided.h"
#include "view.h"

#define CHUNK 256 /* elements converted at once: those on the way stay in the first level of the cache */

/* An element between the two dtypes: integers and bool go as integers, so that an i64 keeps its digits. */
union wide {
	int64_t integer;
	double real;
};

/* What a dtype can do. Loads fill the member that @real says; there is a store for either. */
struct cast_kind {
	bool real;
	void (*load)(union wide *wide, const char *src, int64_t step, int64_t n);
	void (*store_integer)(char *dst, int64_t step, const union wide *wide, int64_t n);
	void (*store_real)(char *dst, int64_t step, const union wide *wide, int64_t n);
};

static inline int64_t integer_clamp(int64_t x, int64_t min, int64_t max)
{
	return x < min ? min : x > max ? max : x;
}

/* As a double, INT64_MAX is one more than it is: the comparison still tells what fits from what does not. */
static inline int64_t real_clamp(double x, int64_t min, int64_t max)
{
	if (isnan(x))
		return 0;
	if (x <= (double)min)
		return min;
	return x >= (double)max ? max : (int64_t)x;
}

/*
 * A double that rounds to the small formats as the integer itself would: what a double has no room for is not rounded
 * away, but stays as one bit that says there is more. Rounding twice could make a tie of what is none.
 */
static inline double integer_real(int64_t x)
{
	uint64_t magnitude = x < 0 ? -(uint64_t)x : (uint64_t)x;

	if (magnitude >> 53)
		magnitude = (magnitude >> 12 | ((magnitude & 0xfff) != 0)) << 12;
	return x < 0 ? -(double)magnitude : (double)magnitude;
}

#define LOAD(name, type, member, expression)                                                \
	static void name##_load(union wide *wide, const char *src, int64_t step, int64_t n) \
	{                                                                                   \
		for (int64_t i = 0; i < n; i++) {                                           \
			type x;                                                             \
                                                                                            \
			memcpy(&x, src + i * step, sizeof(x));                              \
			wide[i].member = (expression);                                      \
		}                                                                           \
	}

#define STORE(name, type, member, expression)                                                         \
	static void name##_store_##member(char *dst, int64_t step, const union wide *wide, int64_t n) \
	{                                                                                             \
		for (int64_t i = 0; i < n; i++) {                                                     \
			type y = (type)(expression);                                                  \
                                                                                                      \
			memcpy(dst + i * step, &y, sizeof(y));                                        \
		}                                                                                     \
	}

#define INTEGER(name, type, min, max)                                        \
	LOAD(name, type, integer, x)                                         \
	STORE(name, type, integer, integer_clamp(wide[i].integer, min, max)) \
	STORE(name, type, real, real_clamp(wide[i].real, min, max))

/* @narrow takes a double. */
#define SMALL(name, type, widen, narrow)                                  \
	LOAD(name, type, real, widen(x))                                  \
	STORE(name, type, integer, narrow(integer_real(wide[i].integer))) \
	STORE(name, type, real, narrow(wide[i].real))

#define NATIVE(name, type)                          \
	LOAD(name, type, real, x)                   \
	STORE(name, type, integer, wide[i].integer) \
	STORE(name, type, real, wide[i].real)

INTEGER(u8, uint8_t, 0, UINT8_MAX)
INTEGER(i8, int8_t, INT8_MIN, INT8_MAX)
INTEGER(u32, uint32_t, 0, UINT32_MAX)
INTEGER(i16, int16_t, INT16_MIN, INT16_MAX)
INTEGER(i32, int32_t, INT32_MIN, INT32_MAX)
INTEGER(i64, int64_t, INT64_MIN, INT64_MAX)
SMALL(bf16, uint16_t, bf16_float, real_bf16)
SMALL(f16, uint16_t, half_float, real_f16)
NATIVE(f32, float)
NATIVE(f64, double)
SMALL(f8e4m3, uint8_t, f8e4m3_float, real_f8e4m3)
SMALL(f8e5m2, uint8_t, f8e5m2_float, real_f8e5m2)
SMALL(f8e8m0, uint8_t, f8e8m0_float, real_f8e8m0)

LOAD(bool, uint8_t, integer, x != 0)
STORE(bool, uint8_t, integer, wide[i].integer != 0)
STORE(bool, uint8_t, real, wide[i].real != 0)

#define KIND(code, name, is_real)                      \
	[PINION_DTYPE_##code] = {                      \
		.real = (is_real),                     \
		.load = name##_load,                   \
		.store_integer = name##_store_integer, \
		.store_real = name##_store_real,       \
	}

/* Every dtype that view_check() lets pass. */
static const struct cast_kind kinds[] = {
	KIND(U8, u8, false),	    KIND(I8, i8, false),     KIND(U32, u32, false),	 KIND(I16, i16, false),
	KIND(I32, i32, false),	    KIND(I64, i64, false),   KIND(BF16, bf16, true),	 KIND(F16, f16, true),
	KIND(F32, f32, true),	    KIND(F64, f64, true),    KIND(F8E4M3, f8e4m3, true), KIND(F8E5M2, f8e5m2, true),
	KIND(F8E8M0, f8e8m0, true), KIND(BOOL, bool, false),
};

void cast_real(enum pinion_dtype dtype, double value, void *element)
{
	const union wide wide = { .real = value };
	struct rounding rounding;

	rounding_begin(&rounding);
	kinds[dtype].store_real(element, 0, &wide, 1);
	rounding_end(&rounding);
}

static void cast_row(const struct walk_op *op, char *dst, int64_t dst_step, const char *src, int64_t src_step,
		     uint64_t n)
{
	const struct cast_kind *from = &kinds[op->src], *to = &kinds[op->dst];
	union wide wide[CHUNK];

	for (int64_t left = (int64_t)n, now; left; left -= now) {
		now = left < CHUNK ? left : CHUNK;
		from->load(wide, src, src_step, now);
		if (from->real)
			to->store_real(dst, dst_step, wide, now);
		else
			to->store_integer(dst, dst_step, wide, now);
		src += now * src_step;
		dst += now * dst_step;
	}
}

PINION_API int pinion_view_cast(const struct pinion_view *dst, const struct pinion_view *src)
{
	struct walk_op cast = { .row = cast_row };
	struct rounding rounding;
	int ret = view_check(dst);

	if (!ret)
		ret = view_check(src);
	if (ret)
		return ret;
	cast.dst = dst->dtype;
	cast.src = src->dtype;
	/* Of the same dtype a NaN keeps its bits; only a bool of 2 still becomes 1. */
	if (dst->dtype == src->dtype && dst->dtype != PINION_DTYPE_BOOL)
		cast = strided_copy(dst->dtype);
	rounding_begin(&rounding);
	ret = strided_run(dst, src, &cast);
	rounding_end(&rounding);
	return ret;
}
