/* SPDX-License-Identifier: MIT */
/*
 * conform: what every backend is held to, whatever it is made of. A test program adds conform_case() to its suite, and
 * every test in it runs once for each device. Which devices: $PINION_CONFORM_DEVICES, keys with commas between them,
 * else the ones that every library has. What a device can do is what its capabilities say: that is tested, and that the
 * rest is refused; no test skips. All devices have alloc, 3 axes and 64 elements along each. $PINION_TEST_SCALE above
 * 100 multiplies sizes. The ground is the one that the context stands on; $PINION_CONFORM_GROUND names the
 * one it has to be.
 */
#ifndef PINION_TEST_CONFORM_H
#define PINION_TEST_CONFORM_H

#include "harness.h"

TCase *conform_case(void);

#endif
