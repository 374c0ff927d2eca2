// SPDX-License-Identifier: GPL-2.0-only
#include "call.h"

#include <linux/file.h>
#include <linux/stddef.h>
#include <linux/uaccess.h>

#include "fault.h"

/* Every call there is. least: the size of its first version. */
static const struct call_entry {
	unsigned int cmd;
	unsigned int size;
	unsigned int least;
	bool writes;
	int (*run)(struct call *call);
} calls[] = {
	{ PINION_IOC_INFO, sizeof(struct pinion_info), sizeof(struct pinion_info), false, module_info },
	{ PINION_IOC_ALLOC, sizeof(struct pinion_alloc), sizeof(struct pinion_alloc), true, buffer_alloc },
	{ PINION_IOC_SLICE, sizeof(struct pinion_slice), sizeof(struct pinion_slice), true, buffer_slice },
	{ PINION_IOC_PIN, sizeof(struct pinion_pin), sizeof(struct pinion_pin), true, buffer_pin },
	{ PINION_IOC_BUFINFO, sizeof(struct pinion_bufinfo), sizeof(struct pinion_bufinfo), false, buffer_info },
	{ PINION_IOC_LIST, sizeof(struct pinion_list), sizeof(struct pinion_list), false, buffer_list },
};

/* The structs are the ABI: a size that moves is a mistake. */
static_assert(sizeof(struct pinion_info) == 120);
static_assert(sizeof(struct pinion_alloc) == 80);
static_assert(sizeof(struct pinion_slice) == 40);
static_assert(sizeof(struct pinion_pin) == 72);
static_assert(sizeof(struct pinion_bufinfo) == 128);
static_assert(sizeof(struct pinion_list) == 40);
static_assert(sizeof(struct pinion_list_buffer) == 112);
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

/* Everything has worked but the copy: either the caller sees all of it, or nothing is left. */
static int finish(struct call *call, void __user *arg, size_t size, int ret)
{
	if (!ret && (fault_here() || copy_to_user(arg, call->all, size)))
		ret = -EFAULT;
	if (!ret) {
		if (call->dmabuf)
			fd_install(call->fd, call->dmabuf->file);
		return 0;
	}
	if (call->dmabuf)
		dma_buf_put(call->dmabuf);
	if (call->fd >= 0)
		put_unused_fd(call->fd);
	return ret;
}

long call_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	const struct call_entry *entry = entry_of(cmd);
	struct call call = { .opener = file->private_data, .file = file, .fd = -1 };
	void __user *user = (void __user *)arg;
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
	ret = entry->run(&call);
	return finish(&call, user, min_t(size_t, size, entry->size), ret);
}
