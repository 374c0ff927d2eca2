/* SPDX-License-Identifier: MIT */
/*
 * decode: blocks of a storage type to floats. These are the plain decoders that say what a block means; whatever is
 * faster has to give the same bits.
 *
 * It can. A half has 11 significant bits, and a scale and a quant of these formats together have 12 at the most (q6_K),
 * so that every product fits the 24 bits of a float exactly. What is left to round is the one addition or subtraction
 * of the formats with a minimum. So neither the order of the factors nor a fused multiply-add changes a result, except
 * which NaN comes of two.
 */
#ifndef PINION_LIB_DECODE_H
#define PINION_LIB_DECODE_H

#include <stdbool.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are little-endian and are read as they lie");

bool quant_can_decode(uint32_t type);

/*
 * Decodes @elems elements, a whole number of blocks, from @src of any alignment. Errors, with @dst untouched:
 * -EOPNOTSUPP nothing here decodes @type; -EINVAL a part of a block; -EOVERFLOW more floats than an address space has.
 */
int quant_decode(uint32_t type, const void *src, float *dst, uint64_t elems);

/* One for each format, in the file of its name: @blocks blocks, nothing is checked. */
void f32_decode(const void *src, float *dst, uint64_t blocks);
void f16_decode(const void *src, float *dst, uint64_t blocks);
void bf16_decode(const void *src, float *dst, uint64_t blocks);
void q4_0_decode(const void *src, float *dst, uint64_t blocks);
void q4_1_decode(const void *src, float *dst, uint64_t blocks);
void q5_0_decode(const void *src, float *dst, uint64_t blocks);
void q5_1_decode(const void *src, float *dst, uint64_t blocks);
void q8_0_decode(const void *src, float *dst, uint64_t blocks);
void q2_k_decode(const void *src, float *dst, uint64_t blocks);
void q3_k_decode(const void *src, float *dst, uint64_t blocks);
void q4_k_decode(const void *src, float *dst, uint64_t blocks);
void q5_k_decode(const void *src, float *dst, uint64_t blocks);
void q6_k_decode(const void *src, float *dst, uint64_t blocks);

#endif
