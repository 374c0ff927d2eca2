/* SPDX-License-Identifier: MIT */
/* kmod show: what the module says of itself, in the library's own terms. */
#include "kmod.h"

#include "../deadline.h"
#include "../error.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/buffer.h>
#include <pinion/context.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#define ROWS 64

/* The device, for writing where that is allowed: to readers the module shows less of others. */
static int open_to_look(struct kmod_device **dev)
{
	int ret = kmod_open(O_RDWR, dev);

	return ret == -EACCES ? kmod_open(O_RDONLY, dev) : ret;
}

PINION_API int pinion_module_info(struct pinion_module_info *info)
{
	struct pinion_module_info own = { .size = sizeof(own) };
	struct pinion_info raw;
	struct kmod_device *dev;
	int ret = open_to_look(&dev);

	if (ret)
		return ret;
	ret = kmod_info(dev->fd, &raw);
	kmod_close(dev);
	if (ret)
		return fail_errno(-ret, "asking the kernel module for its limits");
	own.abi = raw.abi;
	own.huge_size = raw.huge_size;
	own.max_bytes = raw.max_bytes;
	own.bytes = raw.bytes;
	own.max_user_bytes = raw.max_user_bytes;
	own.user_bytes = raw.user_bytes;
	own.max_user_buffers = raw.max_user_buffers;
	own.user_buffers = raw.user_buffers;
	own.buffers = raw.buffers;
	own.max_buffer_bytes = raw.max_buffer_bytes;
	own.memlock_limit = raw.memlock_bytes;
	own.poisoned_bytes = raw.poisoned_bytes;
	own.unwiped_bytes = raw.unwiped_bytes;
	return opts_out(info, &own, sizeof(own), "pinion_module_info");
}

static const char *kind_name(uint32_t kind)
{
	static const char *const name[] = { "?", "pages", "shmem", "range", "memfd" };

	return kind < sizeof(name) / sizeof(name[0]) ? name[kind] : name[0];
}

static struct pinion_module_buffer row_of(const struct pinion_list_buffer *raw)
{
	uint64_t now = deadline_now();
	struct pinion_module_buffer row = {
		.size = sizeof(row),
		.id = raw->id,
		.pages_id = raw->pages_id,
		.offset = raw->offset,
		.bytes = raw->bytes,
		.pages_bytes = raw->pages_bytes,
		.huge_bytes = raw->huge_bytes,
		.age_ns = raw->made_ns && now > raw->made_ns ? now - raw->made_ns : 0,
		.uid = raw->uid,
		.pid = raw->pid,
		.rights = PINION_READ | (raw->rights & PINION_RIGHT_WRITE ? PINION_WRITE : 0),
		.buffers = raw->buffers,
		.devices = raw->attachments,
	};

	snprintf(row.kind, sizeof(row.kind), "%s", kind_name(raw->kind));
	snprintf(row.name, sizeof(row.name), "%.*s", PINION_NAME_BYTES - 1, raw->name);
	return row;
}

static int list(int fd, struct pinion_list_buffer *raw, pinion_module_fn fn, void *arg)
{
	struct pinion_list args = {
		.size = sizeof(args), .kind = PINION_LIST_BUFFERS, .rows = (uintptr_t)raw, .row_size = sizeof(*raw)
	};
	struct pinion_module_buffer row;
	int ret = 0;

	do {
		args.count = ROWS;
		if (ioctl(fd, PINION_IOC_LIST, &args))
			return fail_errno(errno, "listing the buffers of the kernel module");
		for (uint32_t i = 0; i < args.out_count && !ret; i++) {
			row = row_of(&raw[i]);
			ret = fn(arg, &row);
		}
	} while (!ret && args.out_count == ROWS);
	return ret;
}

PINION_API int pinion_module_buffers(pinion_module_fn fn, void *arg)
{
	struct pinion_list_buffer *raw;
	struct kmod_device *dev;
	int ret = open_to_look(&dev);

	if (ret)
		return ret;
	raw = calloc(ROWS, sizeof(*raw));
	ret = raw ? list(dev->fd, raw, fn, arg) : fail(ENOMEM, "no memory for a list of buffers");
	free(raw);
	kmod_close(dev);
	return ret;
}
