/* SPDX-License-Identifier: GPL-2.0-only */
/* watch: a wait as a descriptor. It owns its waiter; its file owns it. */
#ifndef PINION_WATCH_H
#define PINION_WATCH_H

#include "wait.h"

struct watch {
	struct waiter waiter;
	struct mutex read_lock; /* one reader takes an event; outside of queue->lock, and held over copies */
	u64 id;
	struct pid *maker;
	u64 made_ns;
};

#endif
