/* SPDX-License-Identifier: MIT */
/*
 * cast: every code of the small floats against numpy and ml_dtypes (golden/dtypes), and every dtype to every other
 * against a model that finds the nearest value by looking for it.
 */
#include "harness.h"

#include <errno.h>
#include <fenv.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <pinion/context.h>
#include <pinion/view.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* For loops of millions: libcheck's own assertions report each success to the parent process. */
#define holds(condition, ...)                      \
	do {                                       \
		if (!(condition))                  \
			ck_abort_msg(__VA_ARGS__); \
	} while (0)

/* The model computes in long double, which must hold each i64 and each double. */
_Static_assert(LDBL_MANT_DIG >= 64, "long double is too small for the model");

struct format {
	const char *name;
	enum pinion_dtype dtype;
	uint32_t codes;
	uint32_t largest;  /* code of the largest number */
	uint32_t overflow; /* code of what is larger */
	uint32_t sign;	   /* bit of the code, 0: none */
	uint32_t (*narrow)(float value);
	float (*widen)(uint32_t code);
};

#define FORMAT_CALLS(name)                           \
	static uint32_t name##_narrow(float value)   \
	{                                            \
		return pinion_f32_to_##name(value);  \
	}                                            \
	static float name##_widen(uint32_t code)     \
	{                                            \
		return pinion_##name##_to_f32(code); \
	}

FORMAT_CALLS(f16)
FORMAT_CALLS(bf16)
FORMAT_CALLS(f8e4m3)
FORMAT_CALLS(f8e5m2)
FORMAT_CALLS(f8e8m0)

static const struct format formats[] = {
	{ "f16", PINION_DTYPE_F16, 65536, 0x7bff, 0x7c00, 0x8000, f16_narrow, f16_widen },
	{ "bf16", PINION_DTYPE_BF16, 65536, 0x7f7f, 0x7f80, 0x8000, bf16_narrow, bf16_widen },
	{ "f8e4m3", PINION_DTYPE_F8E4M3, 256, 0x7e, 0x7f, 0x80, f8e4m3_narrow, f8e4m3_widen },
	{ "f8e5m2", PINION_DTYPE_F8E5M2, 256, 0x7b, 0x7c, 0x80, f8e5m2_narrow, f8e5m2_widen },
	{ "f8e8m0", PINION_DTYPE_F8E8M0, 256, 0xfe, 0xff, 0, f8e8m0_narrow, f8e8m0_widen },
};

#define FORMATS ((int)(sizeof(formats) / sizeof(formats[0])))

static const struct format *format_of(enum pinion_dtype dtype)
{
	for (int i = 0; i < FORMATS; i++)
		if (formats[i].dtype == dtype)
			return &formats[i];
	return NULL;
}

static float float_of(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static bool is_nan_code(const struct format *f, uint32_t code)
{
	return isnan(f->widen(code));
}

/* The file's bytes, which the caller frees. */
static void *golden(const char *name, const char *suffix, size_t *size)
{
	char path[512];
	long length;
	void *data;
	FILE *file;

	snprintf(path, sizeof(path), PINION_TEST_DATA "/golden/dtypes/%s.%s", name, suffix);
	file = fopen(path, "rb");
	ck_assert_msg(file != NULL, "%s cannot be opened", path);
	fseek(file, 0, SEEK_END);
	length = ftell(file);
	rewind(file);
	ck_assert_int_gt(length, 0);
	data = malloc((size_t)length);
	ck_assert_ptr_nonnull(data);
	ck_assert_uint_eq(fread(data, 1, (size_t)length, file), (size_t)length);
	fclose(file);
	*size = (size_t)length;
	return data;
}

/* Each code's value to the bit; NaN for NaN, with the sign that there is. */
START_TEST(widening_is_numpys)
{
	const struct format *f = &formats[_i];
	size_t size;
	uint32_t *values = golden(f->name, "f32", &size);

	ck_assert_uint_eq(size, f->codes * sizeof(*values));
	for (uint32_t code = 0; code < f->codes; code++) {
		float value = f->widen(code), expected = float_of(values[code]);

		if (isnan(expected))
			holds(isnan(value) && !signbit(value) == !signbit(expected), "%s %#x", f->name, code);
		else
			holds(bits_of(value) == values[code], "%s %#x is %#x, not %#x", f->name, code, bits_of(value),
			      values[code]);
	}
	free(values);
}
END_TEST

static void narrows(const struct format *f, float value, uint32_t expected)
{
	uint32_t code = f->narrow(value);

	if (is_nan_code(f, expected))
		holds(is_nan_code(f, code) && (code & f->sign) == (expected & f->sign), "%a to %s is %#x, not %#x",
		      value, f->name, code, expected);
	else
		holds(code == expected, "%a to %s is %#x, not %#x", value, f->name, code, expected);
}

/* See golden/dtypes/generate.py: between these two, ml_dtypes takes the upper even when it is the farther. */
static bool is_odd_corner(const struct format *f, float value)
{
	return f->dtype == PINION_DTYPE_F8E8M0 && value > 0x1p-127f && value < 0x1.8p-127f;
}

/* Each value, each middle between neighbours, and the floats next to it. */
START_TEST(narrowing_is_numpys_around_every_code)
{
	const struct format *f = &formats[_i];
	size_t size;
	uint8_t *rounds = golden(f->name, "round", &size);

	ck_assert_uint_eq(size, f->codes);
	for (uint32_t code = 0; code < f->codes; code++) {
		float value = f->widen(code), next = f->widen((code + 1) % f->codes), middle;

		if (!isnan(value)) {
			holds(rounds[code] & 1, "%s %#x", f->name, code);
			narrows(f, value, code);
		}
		if ((code & ~f->sign) >= f->largest)
			continue;
		middle = (float)(((double)value + (double)next) / 2);
		for (int step = -1; step <= 1; step++) {
			float given = float_of(bits_of(middle) + (uint32_t)step);

			if (!is_odd_corner(f, given))
				narrows(f, given, code + (rounds[code] >> (step + 2) & 1));
		}
	}
	free(rounds);
}
END_TEST

START_TEST(narrowing_is_numpys_elsewhere)
{
	const struct format *f = &formats[_i];
	size_t size;
	uint32_t *cases = golden(f->name, "cases", &size);

	ck_assert_uint_ge(size / 8, 1000);
	for (size_t i = 0; i < size / 8; i++)
		if (!is_odd_corner(f, float_of(cases[2 * i])))
			narrows(f, float_of(cases[2 * i]), cases[2 * i + 1]);
	free(cases);
}
END_TEST

START_TEST(exponents_round_to_nearest_in_the_least_binade)
{
	const struct format *f = format_of(PINION_DTYPE_F8E8M0);

	narrows(f, 0x1p-127f, 0);
	narrows(f, 0x1.25p-127f, 0);
	narrows(f, float_of(bits_of(0x1.8p-127f) - 1), 0);
	narrows(f, 0x1.8p-127f, 1);
	narrows(f, 0x1.cp-127f, 1);
}
END_TEST

START_TEST(exponents_have_no_zero_and_no_sign)
{
	const struct format *f = format_of(PINION_DTYPE_F8E8M0);

	narrows(f, 0, 0xff);
	narrows(f, -0.0f, 0xff);
	narrows(f, -1, 0xff);
	narrows(f, INFINITY, 0xff);
	narrows(f, 0x1p-149f, 0);
}
END_TEST

START_TEST(overflow)
{
	ck_assert_uint_eq(pinion_f32_to_f16(65519.996f), 0x7bff);
	ck_assert_uint_eq(pinion_f32_to_f16(65520), 0x7c00);
	ck_assert_uint_eq(pinion_f32_to_bf16(FLT_MAX), 0x7f80);
	ck_assert_uint_eq(pinion_f32_to_f8e4m3(464), 0x7e);
	ck_assert_uint_eq(pinion_f32_to_f8e4m3(464.00003f), 0x7f);
	ck_assert_uint_eq(pinion_f32_to_f8e4m3(-INFINITY), 0xff);
	ck_assert_uint_eq(pinion_f32_to_f8e5m2(61439.996f), 0x7b);
	ck_assert_uint_eq(pinion_f32_to_f8e5m2(61440), 0x7c);
	ck_assert_uint_eq(pinion_f32_to_f8e5m2(-1e30f), 0xfc);
	ck_assert_uint_eq(pinion_f32_to_f8e8m0(FLT_MAX), 0xff);
}
END_TEST

/* Any NaN, also one whose payload lies only where the small format has no bits. */
START_TEST(nan_stays_nan)
{
	static const uint32_t nans[] = { 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001,
					 0x7fffffff, 0x7fa00000, 0xff802000 };

	for (int i = 0; i < FORMATS; i++)
		for (unsigned int n = 0; n < sizeof(nans) / sizeof(nans[0]); n++) {
			uint32_t code = formats[i].narrow(float_of(nans[n]));

			ck_assert_msg(is_nan_code(&formats[i], code), "%s of %#x", formats[i].name, nans[n]);
			if (formats[i].sign)
				ck_assert_int_eq(!(code & formats[i].sign), !(nans[n] >> 31));
		}
	ck_assert_uint_eq(pinion_f32_to_f16(float_of(0x7fd54000)), 0x7eaa);
	ck_assert_uint_eq(pinion_f32_to_bf16(float_of(0xffd50000)), 0xffd5);
}
END_TEST

START_TEST(narrowing_ignores_the_rounding_mode)
{
	static const int modes[] = { FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO };

	for (unsigned int i = 0; i < 3; i++) {
		fesetround(modes[i]);
		ck_assert_uint_eq(pinion_f32_to_f16(0x1.001p0f), 0x3c00);
		ck_assert_uint_eq(pinion_f32_to_f16(0x1.003p0f), 0x3c01);
		ck_assert_uint_eq(pinion_f32_to_f16(-0x1.005p0f), 0xbc01);
		ck_assert_uint_eq(pinion_f32_to_bf16(0x1.03p0f), 0x3f82);
		fesetround(FE_TONEAREST);
	}
}
END_TEST

/* The model. */

static const enum pinion_dtype castable[] = {
	PINION_DTYPE_U8,     PINION_DTYPE_I8,	  PINION_DTYPE_U32,    PINION_DTYPE_I16,  PINION_DTYPE_I32,
	PINION_DTYPE_I64,    PINION_DTYPE_BF16,	  PINION_DTYPE_F16,    PINION_DTYPE_F32,  PINION_DTYPE_F64,
	PINION_DTYPE_F8E4M3, PINION_DTYPE_F8E5M2, PINION_DTYPE_F8E8M0, PINION_DTYPE_BOOL,
};

#define CASTABLE ((int)(sizeof(castable) / sizeof(castable[0])))

union element {
	uint64_t bits; /* at a time, of what is as long as the dtype; little-endian as the tests' data */
	uint8_t u8;
	int8_t i8;
	uint32_t u32;
	int16_t i16;
	uint16_t half;
	int32_t i32;
	int64_t i64;
	float f32;
	double f64;
};

static long double value_of(enum pinion_dtype dtype, union element e)
{
	switch (dtype) {
	case PINION_DTYPE_U8:
		return e.u8;
	case PINION_DTYPE_I8:
		return e.i8;
	case PINION_DTYPE_U32:
		return e.u32;
	case PINION_DTYPE_I16:
		return e.i16;
	case PINION_DTYPE_I32:
		return e.i32;
	case PINION_DTYPE_I64:
		return e.i64;
	case PINION_DTYPE_F32:
		return e.f32;
	case PINION_DTYPE_F64:
		return e.f64;
	case PINION_DTYPE_BOOL:
		return e.u8 ? 1 : 0;
	default:
		return format_of(dtype)->widen(pinion_dtype_bytes(dtype) == 2 ? e.half : e.u8);
	}
}

/* The code of the value nearest to @v, by bisection in the values themselves. */
static uint32_t model_nearest(const struct format *f, long double v)
{
	uint32_t low = 0, high = f->largest, sign = signbit(v) ? f->sign : 0;
	long double a = fabsl(v), middle;
	bool up_at_tie;

	if (!f->sign && (isnan(v) || v <= 0))
		return f->overflow;
	while (low < high) {
		uint32_t c = (low + high + 1) / 2;

		if (f->widen(c) <= a)
			low = c;
		else
			high = c - 1;
	}
	if (a < f->widen(0))
		return 0;
	/* Beyond the largest, the next value would be as far away as the last was or, for f8e8m0, twice as far. */
	if (low == f->largest && f->sign)
		middle = f->widen(low) + ((long double)f->widen(low) - f->widen(low - 1)) / 2;
	else if (low == f->largest)
		middle = f->widen(low) * 1.5L;
	else
		middle = ((long double)f->widen(low) + f->widen(low + 1)) / 2;
	up_at_tie = !f->sign || (low & 1);
	if (a > middle || (a == middle && up_at_tie))
		low = low == f->largest ? f->overflow : low + 1;
	return low | sign;
}

static int64_t model_integer(long double v, long double min, long double max)
{
	if (isnan(v))
		return 0;
	v = truncl(v);
	return (int64_t)(v < min ? min : v > max ? max : v);
}

static union element model_cast(enum pinion_dtype dst, long double v)
{
	union element e = { 0 };

	switch (dst) {
	case PINION_DTYPE_U8:
		e.u8 = (uint8_t)model_integer(v, 0, 255);
		break;
	case PINION_DTYPE_I8:
		e.i8 = (int8_t)model_integer(v, -128, 127);
		break;
	case PINION_DTYPE_U32:
		e.u32 = (uint32_t)model_integer(v, 0, 4294967295.0L);
		break;
	case PINION_DTYPE_I16:
		e.i16 = (int16_t)model_integer(v, -32768, 32767);
		break;
	case PINION_DTYPE_I32:
		e.i32 = (int32_t)model_integer(v, -2147483648.0L, 2147483647.0L);
		break;
	case PINION_DTYPE_I64:
		e.i64 = model_integer(v, -9223372036854775808.0L, 9223372036854775807.0L);
		break;
	case PINION_DTYPE_F32:
		e.f32 = (float)v;
		break;
	case PINION_DTYPE_F64:
		e.f64 = (double)v;
		break;
	case PINION_DTYPE_BOOL:
		e.u8 = v != 0;
		break;
	default:
		e.half = (uint16_t)model_nearest(format_of(dst), v);
		break;
	}
	return e;
}

static bool is_float(enum pinion_dtype dtype)
{
	return pinion_dtype_is_float(dtype);
}

static struct pinion_view view_of(void *data, enum pinion_dtype dtype, uint64_t n)
{
	struct pinion_view view;

	ck_ok(pinion_view_init(&view, data, n * pinion_dtype_bytes(dtype), dtype, 1, &n, NULL, 0));
	return view;
}

static union element element_at(const uint8_t *data, enum pinion_dtype dtype, size_t i)
{
	size_t size = pinion_dtype_bytes(dtype);
	union element e = { 0 };

	memcpy(&e, data + i * size, size);
	return e;
}

static void element_check(enum pinion_dtype to, union element got, enum pinion_dtype from, union element given)
{
	long double v = value_of(from, given);
	union element expected = model_cast(to, v);

	if (isnan(v) && is_float(to)) {
		holds(isnan(value_of(to, got)), "NaN of %s is no NaN of %s", pinion_dtype_name(from),
		      pinion_dtype_name(to));
		holds(to == PINION_DTYPE_F8E8M0 || !signbit(value_of(to, got)) == !signbit(v), "the sign of NaN to %s",
		      pinion_dtype_name(to));
		return;
	}
	if (is_float(to) && isnan(value_of(to, expected)) && isnan(value_of(to, got)))
		return;
	holds(got.bits == expected.bits, "%s %#" PRIx64 " (%Lg) to %s is %#" PRIx64 ", not %#" PRIx64,
	      pinion_dtype_name(from), given.bits, v, pinion_dtype_name(to), got.bits, expected.bits);
}

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* A power of two, or the middle of two small values, or one next to it: where roundings and ranges end. */
static double edge(uint64_t r)
{
	const struct format *f = &formats[r % FORMATS];
	uint32_t code = (uint32_t)(r >> 8) % f->largest;
	double v = ((double)f->widen(code) + f->widen(code + 1)) / 2;

	if (r >> 32 & 1)
		v = ldexp(1, (int)(r >> 33) % 70);
	if (r >> 61 & 1)
		v = nextafter(v, r >> 62 & 1 ? INFINITY : 0);
	return r >> 63 ? -v : v;
}

#define MANY 65536

static void fill(uint8_t *data, enum pinion_dtype dtype, size_t n)
{
	static const double odd[] = { 0,      -0.0,	    0.5,	  -0.5,	  -0.9,	    1.5,      255.5,
				      -128.5, 2147483647.5, 4294967295.5, 0x1p63, -0x1p63,  0x1p64,   1e300,
				      -1e300, 1e-300,	    NAN,	  -NAN,	  INFINITY, -INFINITY };
	static const int64_t ends[] = {
		0, 1, -1, INT64_MIN, INT64_MAX, INT64_MIN + 1, INT32_MIN, INT32_MAX, UINT32_MAX, INT64_C(1) << 53,
		(INT64_C(1) << 53) + 1, -(INT64_C(1) << 53) - 1,
		/* Between two bf16, a little more than halfway: a double in between would make it a tie. */
		(INT64_C(1) << 62) + (INT64_C(1) << 54) + 1, (INT64_C(3) << 61) + 1
	};
	size_t size = pinion_dtype_bytes(dtype), few = dtype == PINION_DTYPE_I64 ? sizeof(ends) / 8 : sizeof(odd) / 8;
	uint64_t state = dtype;

	for (size_t i = 0; i < n; i++) {
		union element e = { .bits = i };
		uint64_t r = next_random(&state);

		if (dtype == PINION_DTYPE_I64 && i < few)
			e.i64 = ends[i];
		else if (dtype == PINION_DTYPE_I64 && i & 1)
			e.i64 = model_integer(edge(r & ~(UINT64_C(1) << 32)), -0x1p63L, 0x1p63L - 1);
		else if (dtype == PINION_DTYPE_I64)
			e.i64 = (int64_t)r >> (r & 63);
		else if (dtype == PINION_DTYPE_F64)
			e.f64 = i < few ? odd[i] : edge(r);
		else if (dtype == PINION_DTYPE_F32)
			e.f32 = i < few ? (float)odd[i] : i & 1 ? (float)edge(r) : float_of((uint32_t)r);
		else if (size == 4)
			e.u32 = (uint32_t)r >> (i % 32);
		memcpy(data + i * size, &e, size);
	}
}

/* For dtypes of one and two bytes, each element there is. */
START_TEST(every_dtype_to_every_other)
{
	enum pinion_dtype from = castable[_i];
	size_t size = pinion_dtype_bytes(from), n = size == 1 ? 256 : MANY;
	uint8_t *given = malloc(n * size), *got = malloc(n * 8);
	struct pinion_view src = view_of(given, from, n);

	fill(given, from, n);
	for (int k = 0; k < CASTABLE; k++) {
		enum pinion_dtype to = castable[k];
		struct pinion_view dst = view_of(got, to, n);

		memset(got, 0xa5, n * 8);
		ck_ok(pinion_view_cast(&dst, &src));
		if (from == to && to != PINION_DTYPE_BOOL)
			ck_assert_mem_eq(got, given, n * size);
		for (size_t i = 0; i < n && from != to; i++)
			element_check(to, element_at(got, to, i), from, element_at(given, from, i));
	}
	free(given);
	free(got);
}
END_TEST

static void cast_one(enum pinion_dtype from, const void *given, enum pinion_dtype to, void *got)
{
	union element in, out = { 0 };
	struct pinion_view src = view_of(&in, from, 1), dst = view_of(&out, to, 1);

	memcpy(&in, given, pinion_dtype_bytes(from));
	ck_ok(pinion_view_cast(&dst, &src));
	memcpy(got, &out, pinion_dtype_bytes(to));
}

static int64_t to_integer(double value, enum pinion_dtype to)
{
	union element e = { 0 };

	cast_one(PINION_DTYPE_F64, &value, to, &e);
	return (int64_t)value_of(to, e);
}

START_TEST(floats_to_integers_drop_the_fraction)
{
	size_t size;
	uint64_t *cases = golden("trunc", "cases", &size);

	ck_assert_uint_ge(size / 16, 1000);
	for (size_t i = 0; i < size / 16; i++) {
		int64_t whole = (int64_t)cases[2 * i + 1];
		double value;

		memcpy(&value, &cases[2 * i], sizeof(value));
		ck_assert_int_eq(to_integer(value, PINION_DTYPE_I64), whole);
		if (whole == (int32_t)whole)
			ck_assert_int_eq(to_integer(value, PINION_DTYPE_I32), whole);
		if (whole == (uint32_t)whole)
			ck_assert_int_eq(to_integer(value, PINION_DTYPE_U32), whole);
		if (whole == (int16_t)whole)
			ck_assert_int_eq(to_integer(value, PINION_DTYPE_I16), whole);
		if (whole == (int8_t)whole)
			ck_assert_int_eq(to_integer(value, PINION_DTYPE_I8), whole);
		if (whole == (uint8_t)whole)
			ck_assert_int_eq(to_integer(value, PINION_DTYPE_U8), whole);
	}
	free(cases);
}
END_TEST

static const struct {
	enum pinion_dtype dtype;
	int64_t min, max;
} ranges[] = {
	{ PINION_DTYPE_U8, 0, UINT8_MAX },	    { PINION_DTYPE_I8, INT8_MIN, INT8_MAX },
	{ PINION_DTYPE_U32, 0, UINT32_MAX },	    { PINION_DTYPE_I16, INT16_MIN, INT16_MAX },
	{ PINION_DTYPE_I32, INT32_MIN, INT32_MAX }, { PINION_DTYPE_I64, INT64_MIN, INT64_MAX },
};

#define RANGES ((int)(sizeof(ranges) / sizeof(ranges[0])))

START_TEST(floats_to_integers_saturate)
{
	for (int i = 0; i < RANGES; i++) {
		enum pinion_dtype to = ranges[i].dtype;
		double min = (double)ranges[i].min, max = (double)ranges[i].max;

		ck_assert_int_eq(to_integer(NAN, to), 0);
		ck_assert_int_eq(to_integer(-NAN, to), 0);
		ck_assert_int_eq(to_integer(INFINITY, to), ranges[i].max);
		ck_assert_int_eq(to_integer(-INFINITY, to), ranges[i].min);
		ck_assert_int_eq(to_integer(max, to), ranges[i].max);
		ck_assert_int_eq(to_integer(max + 1, to), ranges[i].max);
		ck_assert_int_eq(to_integer(max * 4, to), ranges[i].max);
		ck_assert_int_eq(to_integer(min, to), ranges[i].min);
		ck_assert_int_eq(to_integer(min - 1, to), ranges[i].min);
		ck_assert_int_eq(to_integer(min - 0x1p70, to), ranges[i].min);
		ck_assert_int_eq(to_integer(-0.99, to), 0);
	}
}
END_TEST

/* i64 to itself and around: a double in between would lose the last digit of these. */
START_TEST(integers_to_integers_saturate_and_keep_digits)
{
	static const int64_t given[] = {
		INT64_MAX,
		INT64_MAX - 1,
		INT64_MIN + 1,
		INT64_MIN,
		(INT64_C(1) << 53) + 1,
		256,
		255,
		128,
		127,
		1,
		0,
		-1,
		-128,
		-129,
		32768,
		-32769,
		4294967296,
		4294967295,
		2147483648,
	};

	for (unsigned int i = 0; i < sizeof(given) / sizeof(given[0]); i++)
		for (int k = 0; k < RANGES; k++) {
			int64_t expected = given[i] < ranges[k].min ? ranges[k].min : given[i];
			union element e = { 0 };

			expected = expected > ranges[k].max ? ranges[k].max : expected;
			cast_one(PINION_DTYPE_I64, &given[i], ranges[k].dtype, &e);
			ck_assert_int_eq((int64_t)value_of(ranges[k].dtype, e), expected);
		}
}
END_TEST

/* By way of an f32 these would be ties, and go the other way. */
START_TEST(doubles_and_integers_are_rounded_once)
{
	const double above = 1 + 0x1p-8 + 0x1p-40, max_e4m3 = 464 + 0x1p-40;
	const int64_t integer = (INT64_C(1) << 62) + (INT64_C(1) << 54) + 1;
	const int64_t single = (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1;
	uint16_t half;
	uint8_t eight;
	float f;

	cast_one(PINION_DTYPE_F64, &above, PINION_DTYPE_BF16, &half);
	ck_assert_uint_eq(half, 0x3f81);
	cast_one(PINION_DTYPE_F64, &max_e4m3, PINION_DTYPE_F8E4M3, &eight);
	ck_assert_uint_eq(eight, 0x7f);
	cast_one(PINION_DTYPE_I64, &integer, PINION_DTYPE_BF16, &half);
	ck_assert_uint_eq(half, 0x5e81);
	cast_one(PINION_DTYPE_I64, &single, PINION_DTYPE_F32, &f);
	ck_assert(f == 0x1.000002p60f);
}
END_TEST

/* What is converted with the thread in one of the modes is what it is without. */
static void mode_matters_not(int mode, enum pinion_dtype from, const void *given, enum pinion_dtype to)
{
	union element want = { 0 }, got = { 0 };

	cast_one(from, given, to, &want);
	fesetround(mode);
	cast_one(from, given, to, &got);
	ck_assert_int_eq(fegetround(), mode);
	fesetround(FE_TONEAREST);
	ck_assert_msg(want.bits == got.bits, "%s to %s in mode %#x: %#llx, not %#llx", pinion_dtype_name(from),
		      pinion_dtype_name(to), mode, (unsigned long long)got.bits, (unsigned long long)want.bits);
}

START_TEST(casts_ignore_the_rounding_mode)
{
	static const int modes[] = { FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO };
	/* Near the lower and the upper neighbour, a tie, a subnormal, too large; of every dtype they narrow to. */
	static const double reals[] = { 1 + 0x1p-30, 1 + 0x1.8p-24,  1 + 0x1p-24, -1 - 0x1.8p-24, 0x1.8p-149,
					-0x1p-150,   0x1.ffffffp127, 1e-45,	  -1e300,	  0x1.001p0,
					0x1.003p0,   -0x1.03p0,	     0x1.3p0,	  0x1.8p0 };
	static const int64_t integers[] = { (INT64_C(1) << 53) + 1,  (INT64_C(1) << 53) + 3,
					    -(INT64_C(1) << 53) - 1, INT64_MAX,
					    INT64_MIN + 1,	     0xfffffe81 };
	static const uint32_t naturals[] = { 0xfffffe81, 0x1000001, UINT32_MAX };

	for (unsigned int i = 0; i < 3 * CASTABLE; i++) {
		enum pinion_dtype to = castable[i / 3];

		for (unsigned int n = 0; n < sizeof(reals) / sizeof(reals[0]); n++)
			mode_matters_not(modes[i % 3], PINION_DTYPE_F64, &reals[n], to);
		for (unsigned int n = 0; n < sizeof(integers) / sizeof(integers[0]); n++)
			mode_matters_not(modes[i % 3], PINION_DTYPE_I64, &integers[n], to);
		for (unsigned int n = 0; n < sizeof(naturals) / sizeof(naturals[0]); n++)
			mode_matters_not(modes[i % 3], PINION_DTYPE_U32, &naturals[n], to);
	}
}
END_TEST

START_TEST(scalars_ignore_the_rounding_mode)
{
	static const int modes[] = { FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO };

	for (unsigned int i = 0; i < 3; i++) {
		struct pinion_scalar low, high;
		int ret, mode;

		fesetround(modes[i]);
		ret = pinion_dtype_scalar(PINION_DTYPE_F32, 1 + 0x1p-30, &low) ||
		      pinion_dtype_scalar(PINION_DTYPE_F32, -1 - 0x1.8p-24, &high);
		mode = fegetround();
		fesetround(FE_TONEAREST);
		ck_assert_int_eq(ret, 0);
		ck_assert_int_eq(mode, modes[i]);
		ck_assert(low.f32 == 1 && high.f32 == -0x1.000002p0f);
	}
}
END_TEST

#if defined(__SSE2__)
START_TEST(casts_keep_what_is_small)
{
	const uint32_t least = 1;
	const double small = 0x1p-149;
	unsigned int before = _mm_getcsr(), after;
	uint32_t narrow = 0;
	double wide = 0;

	/* Flush to zero; denormals are zero. */
	_mm_setcsr(before | 0x8040);
	cast_one(PINION_DTYPE_F32, &least, PINION_DTYPE_F64, &wide);
	cast_one(PINION_DTYPE_F64, &small, PINION_DTYPE_F32, &narrow);
	after = _mm_getcsr();
	_mm_setcsr(before);
	ck_assert_uint_eq(after & 0xffc0, (before | 0x8040) & 0xffc0);
	ck_assert(wide == small);
	ck_assert_uint_eq(narrow, 1);
}
END_TEST
#endif

START_TEST(bool_is_zero_or_one)
{
	static const double truths[] = { 1, -1, 0.1, 0x1p-1074, NAN, INFINITY };
	const uint8_t two = 2;
	uint8_t truth;
	float f;

	for (unsigned int i = 0; i < sizeof(truths) / sizeof(truths[0]); i++)
		ck_assert_int_eq(to_integer(truths[i], PINION_DTYPE_BOOL), 1);
	ck_assert_int_eq(to_integer(0, PINION_DTYPE_BOOL), 0);
	ck_assert_int_eq(to_integer(-0.0, PINION_DTYPE_BOOL), 0);

	/* A byte that is neither is true, and leaves as 1. */
	cast_one(PINION_DTYPE_BOOL, &two, PINION_DTYPE_F32, &f);
	ck_assert(f == 1);
	cast_one(PINION_DTYPE_BOOL, &two, PINION_DTYPE_BOOL, &truth);
	ck_assert_uint_eq(truth, 1);
}
END_TEST

START_TEST(no_elements_to_convert)
{
	static const enum pinion_dtype none[] = { PINION_DTYPE_F6E2M3, PINION_DTYPE_F6E3M2, PINION_DTYPE_F4,
						  PINION_DTYPE_F8E6M2 };
	uint64_t in = 1, out = 0x5a5a;
	struct pinion_view good = view_of(&out, PINION_DTYPE_U8, 1), bad = view_of(&in, PINION_DTYPE_U8, 1);

	for (unsigned int i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		bad.dtype = none[i];
		ck_assert_int_eq(pinion_view_cast(&good, &bad), -EOPNOTSUPP);
		ck_assert_msg(strstr(pinion_error(), pinion_dtype_name(none[i])) != NULL, "%s", pinion_error());
		ck_assert_int_eq(pinion_view_cast(&bad, &good), -EOPNOTSUPP);
		ck_assert_int_eq(pinion_view_cast(&bad, &bad), -EOPNOTSUPP);
	}
	bad.dtype = (enum pinion_dtype)99;
	ck_assert_int_eq(pinion_view_cast(&good, &bad), -EINVAL);
	ck_assert_uint_eq(in, 1);
	ck_assert_uint_eq(out, 0x5a5a);
}
END_TEST

static Suite *cast_suite(void)
{
	Suite *s = suite_create("cast");
	TCase *tc = tcase_create("cast");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, widening_is_numpys, 0, FORMATS);
	tcase_add_loop_test(tc, narrowing_is_numpys_around_every_code, 0, FORMATS);
	tcase_add_loop_test(tc, narrowing_is_numpys_elsewhere, 0, FORMATS);
	tcase_add_test(tc, exponents_round_to_nearest_in_the_least_binade);
	tcase_add_test(tc, exponents_have_no_zero_and_no_sign);
	tcase_add_test(tc, overflow);
	tcase_add_test(tc, nan_stays_nan);
	tcase_add_test(tc, narrowing_ignores_the_rounding_mode);
	tcase_add_loop_test(tc, every_dtype_to_every_other, 0, CASTABLE);
	tcase_add_test(tc, floats_to_integers_drop_the_fraction);
	tcase_add_test(tc, floats_to_integers_saturate);
	tcase_add_test(tc, integers_to_integers_saturate_and_keep_digits);
	tcase_add_test(tc, doubles_and_integers_are_rounded_once);
	tcase_add_test(tc, casts_ignore_the_rounding_mode);
	tcase_add_test(tc, scalars_ignore_the_rounding_mode);
#if defined(__SSE2__)
	tcase_add_test(tc, casts_keep_what_is_small);
#endif
	tcase_add_test(tc, bool_is_zero_or_one);
	tcase_add_test(tc, no_elements_to_convert);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(cast_suite)
