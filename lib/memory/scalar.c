/* SPDX-License-Identifier: MIT */
/* scalar: a number as one element, and the dtypes that cannot hold it. */
#include "../error.h"
#include "cast.h"
#include "real.h"

#include <errno.h>

/* Why a dtype has no scalars at all; 0: it has. */
static int scalar_check(enum pinion_dtype dtype, double value)
{
	const char *name = pinion_dtype_name(dtype);

	if (!name)
		return fail(EINVAL, "%u is not a dtype", (unsigned int)dtype);
	if (pinion_dtype_is_packed(dtype))
		return fail(EOPNOTSUPP, "packed element: %s has no elements that stand alone", name);
	if (dtype != PINION_DTYPE_F8E6M2)
		return 0;
	if (value == 0 || value == 1)
		return fail(EOPNOTSUPP, "f8e6m2 has no %s: no encoding of it is agreed on",
			    value == 0 ? "zero" : "one");
	return fail(EOPNOTSUPP, "f8e6m2 cannot represent %g: no encoding of it is agreed on", value);
}

/*
 * X = round(log2(value)) + 127. On that scale the power of two above is the nearer one for significands over sqrt(2),
 * which no double is: the constant is the first above it.
 */
static int exponent_scalar(double value, uint8_t *code)
{
	const uint64_t fraction = (UINT64_C(1) << DOUBLE_FRACTION) - 1;
	uint64_t bits = real_bits(value);
	int x = (int)(bits >> DOUBLE_FRACTION & 0x7ff) - DOUBLE_BIAS + 127;

	if (value == 0)
		return fail(EINVAL, "f8e8m0 has no zero");
	if (!isfinite(value) || value < 0)
		return fail(EINVAL, "f8e8m0 cannot represent %g: it needs a finite number over 0", value);
	x += (bits & fraction) >= (real_bits(0x1.6a09e667f3bcdp0) & fraction);
	if (x < 0 || x > 254)
		return fail(EINVAL, "f8e8m0 cannot represent %g: X would be %d, and it is from 0 to 254", value, x);
	*code = (uint8_t)x;
	return 0;
}

PINION_API int pinion_dtype_scalar(enum pinion_dtype dtype, double value, struct pinion_scalar *out)
{
	struct pinion_scalar made = { .dtype = dtype };
	int ret = scalar_check(dtype, value);

	if (ret)
		return ret;
	if (dtype == PINION_DTYPE_F8E8M0)
		ret = exponent_scalar(value, &made.u8);
	else
		cast_real(dtype, value, made.bytes);
	if (!ret)
		*out = made;
	return ret;
}
