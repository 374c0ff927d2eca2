// SPDX-License-Identifier: GPL-2.0-only
#include "call.h"

#include <linux/file.h>
#include <linux/stddef.h>
#include <linux/uaccess.h>

#include "claim.h"
#include "fault.h"
#include "lane.h"
#include "list.h"
#include "pages.h"
#include "queue.h"
#include "reading.h"
#include "session.h"
#include "wait.h"

/* The size of INFO before there were counts. */
#define PINION_INFO_LEAST offsetofend(struct pinion_info, unwiped_bytes)

/* Every call there is. least: the size of its first version. */
static const struct call_entry {
	unsigned int cmd;
	unsigned int size;
	unsigned int least;
	bool writes;
	bool tells; /* what it saw, also when it ends with ETIMEDOUT */
	bool stays; /* what it did cannot be taken back: that the struct can be written is seen before */
	int (*run)(struct call *call);
} calls[] = {
	{ PINION_IOC_INFO, sizeof(struct pinion_info), PINION_INFO_LEAST, false, false, false, module_info },
	{ PINION_IOC_ALLOC, sizeof(struct pinion_alloc), sizeof(struct pinion_alloc), true, false, false, buffer_alloc },
	{ PINION_IOC_SLICE, sizeof(struct pinion_slice), sizeof(struct pinion_slice), true, false, false, buffer_slice },
	{ PINION_IOC_PIN, sizeof(struct pinion_pin), sizeof(struct pinion_pin), true, false, false, buffer_pin },
	{ PINION_IOC_BUFINFO, sizeof(struct pinion_bufinfo), sizeof(struct pinion_bufinfo), false, false, false, buffer_info },
	{ PINION_IOC_LIST, sizeof(struct pinion_list), sizeof(struct pinion_list), false, false, false, list_call },
	{ PINION_IOC_DEV_ADD, sizeof(struct pinion_dev), sizeof(struct pinion_dev), true, false, true, queue_add },
	{ PINION_IOC_DEV_GET, sizeof(struct pinion_dev), sizeof(struct pinion_dev), false, false, false, queue_get },
	{ PINION_IOC_DEV_SET, sizeof(struct pinion_dev), sizeof(struct pinion_dev), true, false, true, queue_set },
	{ PINION_IOC_DEV_DEL, sizeof(struct pinion_dev_del), sizeof(struct pinion_dev_del), true, false, true, queue_del },
	{ PINION_IOC_ATTACH, sizeof(struct pinion_attach), sizeof(struct pinion_attach), true, false, true, lane_attach },
	{ PINION_IOC_DETACH, sizeof(struct pinion_handle), sizeof(struct pinion_handle), true, false, true, lane_detach },
	{ PINION_IOC_RESET, sizeof(struct pinion_handle), sizeof(struct pinion_handle), true, false, true, lane_reset },
	{ PINION_IOC_ADD, sizeof(struct pinion_add), sizeof(struct pinion_add), true, false, true, lane_add },
	{ PINION_IOC_READ, sizeof(struct pinion_read), sizeof(struct pinion_read), false, false, false, reading_call },
	{ PINION_IOC_KICK, sizeof(struct pinion_handle), sizeof(struct pinion_handle), true, false, true, lane_kick },
	{ PINION_IOC_RESERVE, sizeof(struct pinion_reserve), sizeof(struct pinion_reserve), true, false, false, claim_reserve },
	{ PINION_IOC_CLAIMINFO, sizeof(struct pinion_reserve), sizeof(struct pinion_reserve), false, false, false, claim_info },
	{ PINION_IOC_WAIT, sizeof(struct pinion_wait), sizeof(struct pinion_wait), false, true, false, wait_call },
	{ PINION_IOC_WATCH, sizeof(struct pinion_watch), sizeof(struct pinion_watch), false, false, false, watch_call },
};

/* The structs are the ABI: a size that moves is a mistake. */
static_assert(sizeof(struct pinion_info) == 184);
static_assert(sizeof(struct pinion_alloc) == 80);
static_assert(sizeof(struct pinion_slice) == 40);
static_assert(sizeof(struct pinion_pin) == 72);
static_assert(sizeof(struct pinion_bufinfo) == 128);
static_assert(sizeof(struct pinion_list) == 40);
static_assert(sizeof(struct pinion_list_buffer) == 112);
static_assert(sizeof(struct pinion_dev) == 112);
static_assert(sizeof(struct pinion_dev_del) == 24);
static_assert(sizeof(struct pinion_attach) == 56);
static_assert(sizeof(struct pinion_handle) == 24);
static_assert(sizeof(struct pinion_add) == 40);
static_assert(sizeof(struct pinion_reading) == 128);
static_assert(sizeof(struct pinion_read) == 24);
static_assert(sizeof(struct pinion_reserve) == 48);
static_assert(sizeof(struct pinion_wait) == 80);
static_assert(sizeof(struct pinion_watch) == 48);
static_assert(sizeof(struct pinion_event) == 32);
static_assert(sizeof(struct pinion_list_session) == 120);
static_assert(sizeof(struct pinion_list_claim) == 56);
static_assert(sizeof(struct pinion_list_watch) == 56);
static_assert(sizeof(struct pinion_info_head) == 64);
static_assert(sizeof(struct pinion_info_device) == 64);
static_assert(sizeof(struct pinion_uring_add) == 16);
static_assert(sizeof(struct pinion_uring_call) == 16);
static_assert(sizeof(struct pinion_counter_page) == 4096);
/* No call's struct reaches past what is copied. */
static_assert(sizeof_field(struct call, info) <= sizeof_field(struct call, all));
static_assert(sizeof_field(struct call, bufinfo) <= sizeof_field(struct call, all));

static const struct call_entry *entry_of(unsigned int cmd)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(calls); i++)
		if (calls[i].cmd == cmd)
			return &calls[i];
	return NULL;
}

int call_reserve_fd(struct call *call)
{
	int fd = fault_here() ? -EMFILE : get_unused_fd_flags(O_CLOEXEC);

	if (fd < 0)
		return fd;
	call->fd = fd;
	return 0;
}

/*
 * The file and inode of a new descriptor are charged to the caller's cgroup by code that, at its limit, calls the killer. So more
 * than they need is charged first in a way that fails instead, and given back: then there is room for them, unless others of
 * the same cgroup take it meanwhile, who would meet the killer with any system call.
 */
#define HEADROOM_ORDER 2

int call_headroom(void)
{
	struct page *page = fault_here() ? NULL : alloc_pages(GFP_KERNEL_ACCOUNT | GFP_MAYFAIL, HEADROOM_ORDER);

	if (!page)
		return -ENOMEM;
	__free_pages(page, HEADROOM_ORDER);
	return 0;
}

/*
 * Everything has worked but the copy: either the caller sees all of it, or nothing is left. What stays is left also where the
 * caller took its memory away during the call.
 */
static int finish(struct call *call, void __user *arg, size_t size, bool stays, int ret)
{
	if (!ret && ((!stays && fault_here()) || copy_to_user(arg, call->all, size)))
		ret = -EFAULT;
	if (!ret) {
		if (call->made)
			fd_install(call->fd, call->made);
		return 0;
	}
	if (call->made)
		fput(call->made);
	if (call->fd >= 0)
		put_unused_fd(call->fd);
	return ret;
}

long call_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	const struct call_entry *entry = entry_of(cmd);
	struct call call = { .session = file->private_data, .file = file, .fd = -1 };
	void __user *user = (void __user *)arg;
	size_t part;
	u32 size;
	int ret;

	if (!entry)
		return -ENOTTY;
	if (entry->writes && !call_writes(&call))
		return -EACCES;
	if (get_user(size, (u32 __user *)user))
		return -EFAULT;
	if (size > PAGE_SIZE)
		return -E2BIG;
	if (size < entry->least)
		return -EINVAL;
	ret = copy_struct_from_user(call.all, entry->size, user, size);
	if (ret)
		return ret;
	/* It was read twice; the first one counts. */
	call.size = size;
	part = min_t(size_t, size, entry->size);
	if (entry->stays && (fault_here() || copy_to_user(user, call.all, part)))
		return -EFAULT;
	ret = entry->run(&call);
	if (entry->tells && ret == -ETIMEDOUT && copy_to_user(user, call.all, part))
		ret = -EFAULT;
	return finish(&call, user, part, entry->stays, ret);
}
