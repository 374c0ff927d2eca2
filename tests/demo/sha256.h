/* SPDX-License-Identifier: MIT */
/* sha256: FIPS 180-4, small and without a library, because a digest of decoded floats is all that is needed of it. */
#ifndef PINION_DEMO_SHA256_H
#define PINION_DEMO_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

void sha256(const void *data, size_t len, uint8_t digest[SHA256_BYTES]);

#endif
