/* SPDX-License-Identifier: MIT */
#include "../error.h"

#include <pinion/select.h>

PINION_API uint32_t pinion_size_class(uint64_t elements)
{
	return elements ? 63 - (uint32_t)__builtin_clzll(elements) : 0;
}

static uint64_t mul_saturating(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Each logarithm is below 64, so none reaches into the next byte. */
static uint32_t pack(uint64_t whole, uint64_t a, uint64_t b)
{
	return pinion_size_class(whole) << 16 | pinion_size_class(a) << 8 | pinion_size_class(b);
}

PINION_API uint32_t pinion_size_class_matmul(uint64_t m, uint64_t n, uint64_t k)
{
	return pack(mul_saturating(m, n), m, k);
}

PINION_API uint32_t pinion_size_class_attention(uint64_t heads, uint64_t k_len, uint64_t d)
{
	return pack(mul_saturating(mul_saturating(heads, k_len), d), k_len, d);
}
