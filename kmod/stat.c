// SPDX-License-Identifier: GPL-2.0-only
#include "stat.h"

#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/sysfs.h>

#include "pages.h"
#include "slice.h"
#include "table.h"
#include "payer.h"

/* One value a file, under /sys/class/misc/pinion/: bytes and counts over all users. */
#define STAT_SHOW(name, value) \
	static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *buf) \
	{ \
		struct payer_use use; \
		\
		payer_use(NULL, &use); \
		return sysfs_emit(buf, "%llu\n", (u64)(value)); \
	} \
	static DEVICE_ATTR_RO(name)

STAT_SHOW(bytes, use.bytes);
STAT_SHOW(max_bytes, use.max_bytes);
STAT_SHOW(max_user_bytes, use.max_user_bytes);
STAT_SHOW(max_user_buffers, use.max_user[PAYER_BUFFERS]);
STAT_SHOW(buffers, use.all[PAYER_BUFFERS]);
STAT_SHOW(devices, use.all[PAYER_DEVICES]);
STAT_SHOW(sessions, use.all[PAYER_SESSIONS]);
STAT_SHOW(claims, use.all[PAYER_CLAIMS]);
STAT_SHOW(watches, use.all[PAYER_WATCHES]);
STAT_SHOW(poisoned_bytes, pages_poisoned_bytes());
STAT_SHOW(unwiped_bytes, pages_unwiped_bytes());

static struct attribute *stat_attrs[] = {
	&dev_attr_bytes.attr,
	&dev_attr_max_bytes.attr,
	&dev_attr_max_user_bytes.attr,
	&dev_attr_max_user_buffers.attr,
	&dev_attr_buffers.attr,
	&dev_attr_devices.attr,
	&dev_attr_sessions.attr,
	&dev_attr_claims.attr,
	&dev_attr_watches.attr,
	&dev_attr_poisoned_bytes.attr,
	&dev_attr_unwiped_bytes.attr,
	NULL,
};

static const struct attribute_group stat_group = {
	.attrs = stat_attrs,
};

const struct attribute_group *stat_groups[] = {
	&stat_group,
	NULL,
};

/* /sys/kernel/debug/pinion/buffers: a line a slice, for root. */
static bool show_slice(void *object, void *data)
{
	struct slice *slice = object;
	struct seq_file *m = data;

	seq_printf(m, "%llu pages=%llu offset=%lu bytes=%lu of=%lu huge=%llu kind=%d rights=%x uid=%u pid=%d attachments=%u name=%s\n",
		   slice->id, slice->pages->id, slice->first << PAGE_SHIFT, slice->nr << PAGE_SHIFT,
		   pages_nr(slice->pages) << PAGE_SHIFT, pages_huge_bytes(slice->pages), slice->pages->ops->kind, slice->rights,
		   from_kuid(&init_user_ns, payer_uid(slice->payer)), pid_nr(slice->maker), slice_attachments(slice),
		   slice->pages->name);
	return seq_has_overflowed(m);
}

static int slices_show(struct seq_file *m, void *unused)
{
	table_walk(&table_slices, 0, show_slice, m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(slices);

static struct dentry *stat_dir;

void stat_init(void)
{
	stat_dir = debugfs_create_dir("pinion", NULL);
	debugfs_create_file("buffers", 0400, stat_dir, NULL, &slices_fops);
}

void stat_exit(void)
{
	debugfs_remove_recursive(stat_dir);
}
