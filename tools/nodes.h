/* SPDX-License-Identifier: MIT */
/* nodes: which NUMA nodes a device is at. */
#ifndef PINION_TOOLS_NODES_H
#define PINION_TOOLS_NODES_H

#include "format.h"

#include <pinion/device.h>

/*
 * "0", "0-1": of a device in the host's memory all nodes that have some; of one whose key ends in a PCI address
 * ("gpu:0000:3b:00.0") the one that the kernel has for it. "": not known, as where the kernel has no nodes.
 */
struct text device_nodes(const struct pinion_device *dev);

#endif
