/* SPDX-License-Identifier: MIT */
/*
 * conform: what every backend is held to, whatever it is made of. A test program adds conform_case() to its suite, and
 * every test in it runs once for each device. Which devices: $PINION_CONFORM_DEVICES, keys with commas between them, else the
 * ones that every library has. What a device does not support is refused, and that is tested too: no test skips.
 * All devices have alloc, fill, copy for u8, i32 and f32, 4 axes, and extents from 2^31 on but not up to UINT64_MAX.
 * $PINION_TEST_SCALE (1 where it is not set) multiplies sizes.
 */
#ifndef PINION_TEST_CONFORM_H
#define PINION_TEST_CONFORM_H

#include "harness.h"

TCase *conform_case(void);

#endif
