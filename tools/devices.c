/* SPDX-License-Identifier: MIT */
#include "devices.h"

#include "nodes.h"
#include "pinion.h"

#include <errno.h>
#include <pinion/caps.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TABLE_DEVICES 64 /* as many as the table has room for: pinion_device_add() */

/* Asks until the rows have room for all. */
static int read_users(struct pinion_device *dev, struct device_row *row)
{
	size_t cap = 16;
	int ret;

	for (;;) {
		row->user = calloc(cap, sizeof(*row->user));
		if (!row->user)
			no_memory();
		ret = pinion_device_users(dev, row->user, cap, &row->users);
		if (!ret && row->users <= cap)
			return 0;
		free(row->user);
		row->user = NULL;
		if (ret)
			return ret;
		cap = 2 * row->users;
	}
}

static int read_device(struct pinion_device *dev, enum devices_which which, struct devices *d)
{
	struct device_row row = { .info = { .size = sizeof(row.info) } };
	const struct pinion_caps *caps = pinion_device_caps(dev);
	uint32_t n;
	int ret = pinion_device_pending(dev, PINION_SCOPE_ALL, &n);

	row.queue = ret != -ENODATA;
	if (!row.queue && which == DEVICES_COUNTED)
		return 0;
	row.backend = caps ? pinion_backend_name(caps->backend) : NULL;
	row.nodes = device_nodes(dev);
	ret = pinion_device_info(dev, &row.info);
	if (!ret)
		ret = read_users(dev, &row);
	if (ret)
		return ret;
	d->row = reallocarray(d->row, d->rows + 1, sizeof(*d->row));
	if (!d->row)
		no_memory();
	d->row[d->rows++] = row;
	return 0;
}

/*
 * Some are always there, but in the table only once somebody has looked for them. Not where the table is full: one that
 * nobody counts on at the moment would have to go for that.
 */
static int find_built_in(struct pinion_context *ctx, enum devices_which which)
{
	static const char *const keys[] = { "hostio", "cpu", "reference" };
	size_t n = which == DEVICES_COUNTED ? 1 : sizeof(keys) / sizeof(keys[0]);
	struct pinion_device *dev;
	int ret = 0;

	for (size_t i = 0; !ret && i < n; i++)
		if (pinion_device_at(ctx, TABLE_DEVICES - 1, &dev))
			ret = pinion_device_find(ctx, keys[i], &dev);
	return ret;
}

int devices_read(struct pinion_context *ctx, enum devices_which which, struct devices *out)
{
	struct devices d = { 0 };
	struct pinion_device *dev;
	struct timespec ts;
	int ret;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	d.at_ns = ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
	ret = find_built_in(ctx, which);
	for (size_t i = 0; !ret && !(ret = pinion_device_at(ctx, i, &dev)); i++) {
		ret = read_device(dev, which, &d);
		/* Removed since it was found. */
		if (ret == -ESTALE)
			ret = 0;
	}
	if (ret != -ENOENT) {
		devices_free(&d);
		return ret;
	}
	*out = d;
	return 0;
}

void devices_free(struct devices *d)
{
	for (size_t i = 0; i < d->rows; i++)
		free(d->row[i].user);
	free(d->row);
	*d = (struct devices){ 0 };
}

const struct device_row *devices_find(const struct devices *d, const struct pinion_device_info *info)
{
	for (size_t i = 0; i < d->rows; i++)
		if (d->row[i].info.generation == info->generation && !strcmp(d->row[i].info.key, info->key))
			return &d->row[i];
	return NULL;
}

uint64_t device_completed(const struct pinion_device_info *info)
{
	uint64_t others = info->pending_high + info->reclaimed;

	/* The words are read one after another while others write them. */
	return info->submitted > others ? info->submitted - others : 0;
}
