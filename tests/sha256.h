/* SPDX-License-Identifier: MIT */
/* sha256: the digest that the manifests and references name tensors' bytes by (FIPS 180-4). */
#ifndef PINION_TEST_SHA256_H
#define PINION_TEST_SHA256_H

#include <stddef.h>

/* The digest of @len bytes at @data as 64 hexadecimal digits and a NUL. */
void sha256_hex(const void *data, size_t len, char hex[65]);

#endif
