/* SPDX-License-Identifier: MIT */
/* devices: one reading of every device and of who has work on it. */
#ifndef PINION_TOOLS_DEVICES_H
#define PINION_TOOLS_DEVICES_H

#include "format.h"

#include <pinion/device.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_row {
	struct pinion_device_info info;
	bool queue;	     /* else it is synchronous, and nothing is counted on it */
	const char *backend; /* that drives it, static; NULL: it was added by its key alone */
	struct text nodes;   /* as of device_nodes() */
	struct pinion_device_user *user;
	size_t users;
};

struct devices {
	int64_t at_ns; /* when it was read, CLOCK_BOOTTIME, as the users' since_ns is */
	struct device_row *row;
	size_t rows;
};

enum devices_which {
	DEVICES_ALL,
	DEVICES_COUNTED, /* those with a queue */
};

/* The caller frees *@out with devices_free(). 0 or -errno. */
int devices_read(struct pinion_context *ctx, enum devices_which which, struct devices *out);
void devices_free(struct devices *d);

/* The row of the same device in an earlier reading, or NULL. */
const struct device_row *devices_find(const struct devices *d, const struct pinion_device_info *info);

/* Units that were submitted and neither pend nor died with their owner. */
uint64_t device_completed(const struct pinion_device_info *info);

#endif
