/* SPDX-License-Identifier: MIT */
/* access: the elements of a contiguous view as an array of C's type for them. */
#include "../error.h"
#include "view.h"

#include <errno.h>

static void *access_as(const struct pinion_view *view, enum pinion_dtype dtype)
{
	char text[VIEW_TEXT_MAX];

	if (view_check(view))
		return NULL;
	if (view->dtype != dtype) {
		fail(EINVAL, "unexpected dtype: expected %s, got %s", pinion_dtype_name(dtype),
		     pinion_dtype_name(view->dtype));
		return NULL;
	}
	if (!pinion_view_is_contiguous(view)) {
		pinion_view_describe(view, text, sizeof(text));
		fail(EINVAL, "requires contiguous: %s", text);
		return NULL;
	}
	return view_first(view);
}

#define ACCESS(name, code, type)                                            \
	PINION_API type *pinion_view_##name(const struct pinion_view *view) \
	{                                                                   \
		return access_as(view, PINION_DTYPE_##code);                \
	}

ACCESS(u8, U8, uint8_t)
ACCESS(i8, I8, int8_t)
ACCESS(u32, U32, uint32_t)
ACCESS(i16, I16, int16_t)
ACCESS(i32, I32, int32_t)
ACCESS(i64, I64, int64_t)
ACCESS(bf16, BF16, uint16_t)
ACCESS(f16, F16, uint16_t)
ACCESS(f32, F32, float)
ACCESS(f64, F64, double)
ACCESS(f8e4m3, F8E4M3, uint8_t)
ACCESS(f8e5m2, F8E5M2, uint8_t)
ACCESS(f8e8m0, F8E8M0, uint8_t)
ACCESS(bool, BOOL, uint8_t)
