/* SPDX-License-Identifier: MIT */
#include "real.h"

#include "../error.h"

#include <pinion/dtype.h>

PINION_API uint16_t pinion_f32_to_f16(float value)
{
	return real_f16(value);
}

PINION_API uint16_t pinion_f32_to_bf16(float value)
{
	return real_bf16(value);
}

PINION_API uint8_t pinion_f32_to_f8e4m3(float value)
{
	return real_f8e4m3(value);
}

PINION_API uint8_t pinion_f32_to_f8e5m2(float value)
{
	return real_f8e5m2(value);
}

PINION_API uint8_t pinion_f32_to_f8e8m0(float value)
{
	return real_f8e8m0(value);
}

PINION_API float pinion_f16_to_f32(uint16_t code)
{
	return half_float(code);
}

PINION_API float pinion_bf16_to_f32(uint16_t code)
{
	return bf16_float(code);
}

PINION_API float pinion_f8e4m3_to_f32(uint8_t code)
{
	return f8e4m3_float(code);
}

PINION_API float pinion_f8e5m2_to_f32(uint8_t code)
{
	return f8e5m2_float(code);
}

PINION_API float pinion_f8e8m0_to_f32(uint8_t code)
{
	return f8e8m0_float(code);
}
