/* SPDX-License-Identifier: MIT */
#include "../error.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pinion/dtype.h>
#include <pinion/type.h>
#include <string.h>

enum class {
	CLASS_NONE,
	CLASS_INTEGER,
	CLASS_FLOAT,
};

#define NO_TYPE UINT32_MAX

struct dtype_row {
	const char *name;
	size_t bytes;
	enum class class;
	uint32_t type; /* in model files, NO_TYPE: none */
};

#define ROW(code, text, size, kind, file_type) \
	[PINION_DTYPE_##code] = { .name = (text), .bytes = (size), .class = CLASS_##kind, .type = (file_type) }

static const struct dtype_row rows[] = {
	ROW(U8, "u8", 1, INTEGER, PINION_TYPE_U8),
	ROW(I8, "i8", 1, INTEGER, PINION_TYPE_I8),
	ROW(U32, "u32", 4, INTEGER, PINION_TYPE_U32),
	ROW(I16, "i16", 2, INTEGER, PINION_TYPE_I16),
	ROW(I32, "i32", 4, INTEGER, PINION_TYPE_I32),
	ROW(I64, "i64", 8, INTEGER, PINION_TYPE_I64),
	ROW(BF16, "bf16", 2, FLOAT, PINION_TYPE_BF16),
	ROW(F16, "f16", 2, FLOAT, PINION_TYPE_F16),
	ROW(F32, "f32", 4, FLOAT, PINION_TYPE_F32),
	ROW(F64, "f64", 8, FLOAT, PINION_TYPE_F64),
	ROW(F8E4M3, "f8e4m3", 1, FLOAT, PINION_TYPE_F8_E4M3),
	ROW(F8E5M2, "f8e5m2", 1, FLOAT, PINION_TYPE_F8_E5M2),
	ROW(F6E2M3, "f6e2m3", 0, FLOAT, NO_TYPE),
	ROW(F6E3M2, "f6e3m2", 0, FLOAT, NO_TYPE),
	ROW(F4, "f4", 0, FLOAT, NO_TYPE),
	ROW(F8E8M0, "f8e8m0", 1, FLOAT, PINION_TYPE_F8_E8M0),
	ROW(F8E6M2, "f8e6m2", 1, FLOAT, NO_TYPE),
	ROW(BOOL, "bool", 1, NONE, PINION_TYPE_BOOL),
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* NULL: not a dtype. Through an unsigned type, because an enum from outside may hold anything. */
static const struct dtype_row *row_of(enum pinion_dtype dtype)
{
	uint32_t code = (uint32_t)dtype;

	return code < ROWS && rows[code].name ? &rows[code] : NULL;
}

PINION_API size_t pinion_dtype_bytes(enum pinion_dtype dtype)
{
	const struct dtype_row *row = row_of(dtype);

	return row ? row->bytes : 0;
}

PINION_API const char *pinion_dtype_name(enum pinion_dtype dtype)
{
	const struct dtype_row *row = row_of(dtype);

	return row ? row->name : NULL;
}

PINION_API int pinion_dtype_parse(const char *text, enum pinion_dtype *out)
{
	assert(text);
	for (uint32_t code = 0; code < ROWS; code++) {
		if (rows[code].name && !strcmp(rows[code].name, text)) {
			*out = (enum pinion_dtype)code;
			return 0;
		}
	}
	return fail(EINVAL, "cannot parse '%s' as a dtype", text);
}

PINION_API bool pinion_dtype_is_integer(enum pinion_dtype dtype)
{
	const struct dtype_row *row = row_of(dtype);

	return row && row->class == CLASS_INTEGER;
}

PINION_API bool pinion_dtype_is_float(enum pinion_dtype dtype)
{
	const struct dtype_row *row = row_of(dtype);

	return row && row->class == CLASS_FLOAT;
}

PINION_API bool pinion_dtype_is_packed(enum pinion_dtype dtype)
{
	const struct dtype_row *row = row_of(dtype);

	return row && !row->bytes;
}

PINION_API int pinion_dtype_size(enum pinion_dtype dtype, uint64_t n, uint64_t *bytes)
{
	const struct dtype_row *row = row_of(dtype);
	uint64_t product;

	if (!row)
		return fail(EINVAL, "%" PRIu32 " is not a dtype", (uint32_t)dtype);
	if (!row->bytes)
		return fail(EOPNOTSUPP, "dtype has zero size: elements of %s are packed and have no address",
			    row->name);
	if (__builtin_mul_overflow(n, (uint64_t)row->bytes, &product))
		return fail(EOVERFLOW,
			    "elem_count overflow: %" PRIu64 " elements of %s take more bytes than 64 bits count", n,
			    row->name);
	*bytes = product;
	return 0;
}

PINION_API int pinion_dtype_of_type(uint32_t type, enum pinion_dtype *out)
{
	const struct pinion_type_info *info = pinion_type_info(type);

	if (!info)
		return fail(EINVAL, "%" PRIu32 " is not the code of a type", type);
	for (uint32_t code = 0; code < ROWS; code++) {
		if (rows[code].name && rows[code].type == type) {
			*out = (enum pinion_dtype)code;
			return 0;
		}
	}
	if (info->quantized)
		return fail(EOPNOTSUPP, "%s is a block format: its elements have no dtype", info->name);
	return fail(EOPNOTSUPP, "no dtype holds the elements of %s", info->name);
}

PINION_API int pinion_dtype_to_type(enum pinion_dtype dtype, uint32_t *type)
{
	const struct dtype_row *row = row_of(dtype);

	if (!row)
		return fail(EINVAL, "%" PRIu32 " is not a dtype", (uint32_t)dtype);
	if (row->type == NO_TYPE)
		return fail(EOPNOTSUPP, "no type of a model file is %s", row->name);
	*type = row->type;
	return 0;
}
