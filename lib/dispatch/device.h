/* SPDX-License-Identifier: MIT */
/* device: what the calls on a device ask first. */
#ifndef PINION_LIB_DEVICE_H
#define PINION_LIB_DEVICE_H

#include "../work/account.h"
#include "registry.h"

static inline int device_check(const struct pinion_device *dev)
{
	return process_is_maker(&dev->mark) ? 0 : process_fail("device");
}

#endif
