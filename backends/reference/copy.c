/* SPDX-License-Identifier: MIT */
/* copy: the elements of one view as those of another, copied or cast. */
#include "reference.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An element as what it is: a number of one of two kinds. Every float there is, is a double. */
struct number {
	bool is_float;
	int64_t i;
	double f;
};

static struct number whole(int64_t i)
{
	return (struct number){ .i = i };
}

static struct number real(double f)
{
	return (struct number){ .is_float = true, .f = f };
}

static struct number read_element(enum pinion_dtype dtype, const void *element)
{
	struct pinion_scalar s = { .dtype = dtype };

	memcpy(s.bytes, element, pinion_dtype_bytes(dtype));
	switch (dtype) {
	case PINION_DTYPE_I8:
		return whole(s.i8);
	case PINION_DTYPE_U32:
		return whole(s.u32);
	case PINION_DTYPE_I16:
		return whole(s.i16);
	case PINION_DTYPE_I32:
		return whole(s.i32);
	case PINION_DTYPE_I64:
		return whole(s.i64);
	case PINION_DTYPE_BF16:
		return real(pinion_bf16_to_f32(s.half));
	case PINION_DTYPE_F16:
		return real(pinion_f16_to_f32(s.half));
	case PINION_DTYPE_F32:
		return real(s.f32);
	case PINION_DTYPE_F64:
		return real(s.f64);
	case PINION_DTYPE_F8E4M3:
		return real(pinion_f8e4m3_to_f32(s.u8));
	case PINION_DTYPE_F8E5M2:
		return real(pinion_f8e5m2_to_f32(s.u8));
	case PINION_DTYPE_F8E8M0:
		return real(pinion_f8e8m0_to_f32(s.u8));
	default: /* u8 and bool, which is any byte */
		return whole(s.u8);
	}
}

static int64_t clamp(int64_t i, int64_t least, int64_t most)
{
	return i < least ? least : i > most ? most : i;
}

/* Towards zero; what is out of range is the nearest there is, and NaN is 0. */
static int64_t to_whole(const struct number *n)
{
	if (!n->is_float)
		return n->i;
	if (isnan(n->f))
		return 0;
	if (n->f >= 0x1p63)
		return INT64_MAX;
	return n->f <= -0x1p63 ? INT64_MIN : (int64_t)n->f;
}

/*
 * A double that rounds to every shorter float as the number does. More than 53 bits are cut to 53, the last of which
 * says whether anything was cut; no shorter float is short enough by one bit only, so it never decides alone.
 */
static double to_real(const struct number *n)
{
	uint64_t magnitude;
	double f;

	if (n->is_float)
		return n->f;
	magnitude = n->i < 0 ? -(uint64_t)n->i : (uint64_t)n->i;
	if (magnitude >> 53)
		magnitude = (magnitude & ~UINT64_C(0x7ff)) | (magnitude & 0x7ff ? 0x800 : 0);
	f = (double)magnitude;
	return n->i < 0 ? -f : f;
}

/* The nearest power of two, the upper one from the middle on. */
static uint8_t to_power(double f)
{
	int exponent;
	double significand = frexp(f, &exponent); /* in [1/2, 1) */

	if (!(f > 0))
		return 0xff;
	if (isinf(f))
		return 0xff;
	exponent += (significand >= 0.75) - 1 + 127;
	return exponent < 0 ? 0 : exponent > 0xff ? 0xff : exponent;
}

static int write_element(enum pinion_dtype dtype, const struct number *n, void *element)
{
	struct pinion_scalar s = { .dtype = dtype };
	int ret = 0;

	switch (dtype) {
	case PINION_DTYPE_U8:
		s.u8 = clamp(to_whole(n), 0, UINT8_MAX);
		break;
	case PINION_DTYPE_I8:
		s.i8 = clamp(to_whole(n), INT8_MIN, INT8_MAX);
		break;
	case PINION_DTYPE_U32:
		s.u32 = clamp(to_whole(n), 0, UINT32_MAX);
		break;
	case PINION_DTYPE_I16:
		s.i16 = clamp(to_whole(n), INT16_MIN, INT16_MAX);
		break;
	case PINION_DTYPE_I32:
		s.i32 = clamp(to_whole(n), INT32_MIN, INT32_MAX);
		break;
	case PINION_DTYPE_I64:
		s.i64 = to_whole(n);
		break;
	case PINION_DTYPE_BOOL:
		s.u8 = n->is_float ? n->f != 0 : n->i != 0;
		break;
	case PINION_DTYPE_F64:
		s.f64 = n->is_float ? n->f : (double)n->i;
		break;
	case PINION_DTYPE_F8E8M0:
		s.u8 = to_power(to_real(n));
		break;
	default:
		ret = pinion_dtype_scalar(dtype, to_real(n), &s);
	}
	if (!ret)
		memcpy(element, s.bytes, pinion_dtype_bytes(dtype));
	return ret;
}

/* The rules for views that overlap or have positions in common are those of views: a copy into row-major memory comes
 * first. */
static int copy_aside(const struct backend_call *call, bool cast)
{
	const struct pinion_view *src = &call->src[0], *dst = &call->dst;
	struct pinion_view aside = *dst;
	uint64_t index[PINION_RANK_MAX] = { 0 };
	uint64_t bytes = pinion_view_elements(dst) * pinion_dtype_bytes(dst->dtype), done = 0;
	char *memory = malloc(bytes);
	int ret = 0;

	if (!memory)
		return fail(ENOMEM, "no memory for the %llu bytes of a result", (unsigned long long)bytes);
	do {
		struct number n = read_element(src->dtype, reference_at(src, index));

		if (cast)
			ret = write_element(dst->dtype, &n, memory + done);
		else
			memcpy(memory + done, reference_at(src, index), pinion_dtype_bytes(dst->dtype));
		done += pinion_dtype_bytes(dst->dtype);
	} while (!ret && reference_next(dst, index));
	if (!ret)
		ret = pinion_view_init(&aside, memory, bytes, dst->dtype, dst->rank, dst->shape, NULL, 0);
	if (!ret)
		ret = pinion_view_copy(dst, &aside);
	free(memory);
	return ret;
}

int reference_copy(const struct backend_call *call)
{
	return copy_aside(call, false);
}

/* A cast to the same dtype is a copy: a NaN keeps its bits. */
int reference_cast(const struct backend_call *call)
{
	return copy_aside(call, call->src[0].dtype != call->dst.dtype);
}
