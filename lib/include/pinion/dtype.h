/* SPDX-License-Identifier: MIT */
/* dtype: what one element of a view is. Types of model files, block formats among them, are another table: type.h. */
#ifndef PINION_DTYPE_H
#define PINION_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum pinion_dtype {
	PINION_DTYPE_U8 = 1,
	PINION_DTYPE_I8,
	PINION_DTYPE_U32,
	PINION_DTYPE_I16,
	PINION_DTYPE_I32,
	PINION_DTYPE_I64,
	PINION_DTYPE_BF16,
	PINION_DTYPE_F16,
	PINION_DTYPE_F32,
	PINION_DTYPE_F64,
	PINION_DTYPE_F8E4M3, /* finite: largest 448, no infinity, one NaN of each sign */
	PINION_DTYPE_F8E5M2,
	PINION_DTYPE_F6E2M3, /* packed, 6 bits */
	PINION_DTYPE_F6E3M2, /* packed, 6 bits */
	PINION_DTYPE_F4,     /* packed, 4 bits */
	PINION_DTYPE_F8E8M0, /* powers of two, 2^(X - 127); X 255 is NaN; no sign, no zero, no infinity */
	PINION_DTYPE_F8E6M2, /* a name without an agreed encoding: it has a size and nothing else */
	PINION_DTYPE_BOOL,   /* one byte, 0 or 1 */
};

/* Bytes of one element; 0 for the packed dtypes, whose elements have no address, and for what is not a dtype. */
size_t pinion_dtype_bytes(enum pinion_dtype dtype);

/* "f32", "bool"; NULL when it is not a dtype. Static. */
const char *pinion_dtype_name(enum pinion_dtype dtype);

/* The dtype of that name, exactly as pinion_dtype_name() has it. -EINVAL. */
int pinion_dtype_parse(const char *text, enum pinion_dtype *out);

/* Classes. Bool is neither an integer nor a float; the packed dtypes are floats. */
bool pinion_dtype_is_integer(enum pinion_dtype dtype);
bool pinion_dtype_is_float(enum pinion_dtype dtype);
bool pinion_dtype_is_packed(enum pinion_dtype dtype);

/* Bytes of @n elements. Errors, in this order: -EINVAL not a dtype; -EOPNOTSUPP packed; -EOVERFLOW. */
int pinion_dtype_size(enum pinion_dtype dtype, uint64_t n, uint64_t *bytes);

/*
 * The dtype of a model file's plain type (enum pinion_type), and back. -EINVAL the argument is no code; -EOPNOTSUPP the
 * other table has nothing for it: block formats, u16 and u64 have no dtype; the packed dtypes and f8e6m2 have no type.
 */
int pinion_dtype_of_type(uint32_t type, enum pinion_dtype *out);
int pinion_dtype_to_type(enum pinion_dtype dtype, uint32_t *type);

/* One element and what it is. Set by pinion_dtype_scalar(), or member by member. */
struct pinion_scalar {
	enum pinion_dtype dtype;
	union {
		uint8_t bytes[8]; /* as in memory; dtypes of one byte that have no member of their own use bytes[0] */
		uint8_t u8;
		int8_t i8;
		uint32_t u32;
		int16_t i16;
		int32_t i32;
		int64_t i64;
		uint16_t half; /* f16 and bf16 */
		float f32;
		double f64;
	};
};

/*
 * @value as an element of @dtype, by the rules of pinion_view_cast() except for f8e8m0, where it is the power of two
 * nearest on a logarithmic scale. Errors: -EINVAL not a dtype, or f8e8m0 and the value is zero, negative, not finite or
 * out of range; -EOPNOTSUPP f8e6m2, and the packed dtypes.
 */
int pinion_dtype_scalar(enum pinion_dtype dtype, double value, struct pinion_scalar *out);

/*
 * Element by element. Narrowing rounds to the nearest, ties to even, whatever the rounding mode of the thread is, and
 * keeps NaN and the sign. Too large: infinity for f16, bf16 and f8e5m2; NaN for f8e4m3 and f8e8m0. To f8e8m0, what is
 * below its least value becomes that, and zero and negative values become NaN. Widening is exact.
 */
uint16_t pinion_f32_to_f16(float value);
uint16_t pinion_f32_to_bf16(float value);
uint8_t pinion_f32_to_f8e4m3(float value);
uint8_t pinion_f32_to_f8e5m2(float value);
uint8_t pinion_f32_to_f8e8m0(float value);
float pinion_f16_to_f32(uint16_t code);
float pinion_bf16_to_f32(uint16_t code);
float pinion_f8e4m3_to_f32(uint8_t code);
float pinion_f8e5m2_to_f32(uint8_t code);
float pinion_f8e8m0_to_f32(uint8_t code);

#ifdef __cplusplus
}
#endif
#endif
