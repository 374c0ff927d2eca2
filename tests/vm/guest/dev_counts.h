/* SPDX-License-Identifier: MIT */
/* The calls about devices and counts as functions: 0 or more, or -errno. */
#ifndef PINION_VM_DEV_COUNTS_H
#define PINION_VM_DEV_COUNTS_H

#include "dev.h"

#include <linux/pinion_counters.h>
#include <time.h>

/* A device that is there or made: capacity 4, budget 1 MiB. */
DEV int dev_add(int dev, const char *key, struct pinion_dev *out)
{
	*out = (struct pinion_dev){ .size = sizeof(*out), .capacity = 4, .budget = 1 << 20 };
	strncpy(out->key, key, sizeof(out->key) - 1);
	return dev_call(dev, PINION_IOC_DEV_ADD, out);
}

DEV int dev_get(int dev, const char *key, struct pinion_dev *out)
{
	*out = (struct pinion_dev){ .size = sizeof(*out) };
	strncpy(out->key, key, sizeof(out->key) - 1);
	return dev_call(dev, PINION_IOC_DEV_GET, out);
}

DEV int dev_del(int dev, const struct pinion_dev *of, uint32_t flags)
{
	struct pinion_dev_del d = { .size = sizeof(d), .flags = flags, .index = of->index, .generation = of->generation };

	return dev_call(dev, PINION_IOC_DEV_DEL, &d);
}

DEV int dev_attach(int dev, const struct pinion_dev *to, uint32_t max_inflight, struct pinion_attach *out)
{
	*out = (struct pinion_attach){ .size = sizeof(*out),
				       .index = to->index,
				       .max_inflight = max_inflight,
				       .generation = to->generation,
				       .completed_fd = -1 };
	return dev_call(dev, PINION_IOC_ATTACH, out);
}

/* DETACH, RESET, KICK: the units, or -errno. */
DEV int64_t dev_handle(int dev, unsigned int cmd, uint32_t handle)
{
	struct pinion_handle h = { .size = sizeof(h), .handle = handle };
	int ret = dev_call(dev, cmd, &h);

	return ret ? ret : (int64_t)h.out_units;
}

/* The parity, or -errno. */
DEV int dev_count(int dev, uint32_t handle, int32_t ops, int64_t cost, uint32_t parity)
{
	struct pinion_add a = { .size = sizeof(a), .handle = handle, .ops = ops, .cost = cost, .parity = parity };
	int ret = dev_call(dev, PINION_IOC_ADD, &a);

	return ret ? ret : (int)a.out_parity;
}

DEV int dev_reading(int dev, const struct pinion_dev *of, struct pinion_reading *row)
{
	struct pinion_read r = { .size = sizeof(r), .rows = (uintptr_t)row, .count = 1, .row_size = sizeof(*row) };
	int ret;

	*row = (struct pinion_reading){ .index = of->index, .generation = of->generation };
	ret = dev_call(dev, PINION_IOC_READ, &r);
	return ret ? ret : row->status;
}

/* A descriptor. */
DEV int dev_reserve(int dev, const struct pinion_dev *of, uint64_t bytes, uint32_t units, uint32_t flags)
{
	struct pinion_reserve r = { .size = sizeof(r),
				    .flags = flags,
				    .index = of->index,
				    .units = units,
				    .generation = of->generation,
				    .bytes = bytes };
	int ret = dev_call(dev, PINION_IOC_RESERVE, &r);

	return ret ? ret : r.fd;
}

DEV int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

DEV int dev_wait(int dev, const struct pinion_dev *of, uint32_t scope, uint32_t cond, uint64_t value, int64_t deadline_ns,
		 struct pinion_wait *out)
{
	*out = (struct pinion_wait){ .size = sizeof(*out),
				     .index = of->index,
				     .scope = scope,
				     .generation = of->generation,
				     .cond = cond,
				     .value = value,
				     .deadline_ns = deadline_ns };
	return dev_call(dev, PINION_IOC_WAIT, out);
}

/* A descriptor. */
DEV int dev_watch(int dev, const struct pinion_dev *of, uint32_t scope, uint32_t cond, uint64_t value)
{
	struct pinion_watch w = { .size = sizeof(w),
				  .index = of->index,
				  .scope = scope,
				  .generation = of->generation,
				  .cond = cond,
				  .value = value };
	int ret = dev_call(dev, PINION_IOC_WATCH, &w);

	return ret ? ret : w.fd;
}

/* This open's counter page, or MAP_FAILED with errno. */
DEV struct pinion_counter_page *dev_counters(int dev)
{
	return mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dev, PINION_MMAP_COUNTERS);
}

/* The page of a living session. */
DEV const struct pinion_counter_page *dev_window(int dev, uint64_t session)
{
	return mmap(NULL, PAGE, PROT_READ, MAP_SHARED, dev, PINION_MMAP_WINDOW + session * PAGE);
}

DEV const struct pinion_info_head *dev_info_page(int dev)
{
	return mmap(NULL, 256 * 64, PROT_READ, MAP_SHARED, dev, PINION_MMAP_INFO);
}

DEV uint32_t page_begin(struct pinion_counter_page *page, const struct pinion_attach *lane)
{
	return pinion_lane_begin(pinion_lane_control(page, lane->lane), &page->lane[lane->lane], 1);
}

/* And kicks, as the library does. */
DEV void page_end(int dev, struct pinion_counter_page *page, const struct pinion_attach *lane, uint32_t parity)
{
	if (pinion_lane_end(pinion_lane_control(page, lane->lane), &page->lane[lane->lane], parity, 1))
		dev_handle(dev, PINION_IOC_KICK, lane->handle);
}

#endif
