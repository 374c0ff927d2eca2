/* SPDX-License-Identifier: MIT */
/* The calls of /dev/pinion as functions: 0 or more, or -errno. */
#ifndef PINION_VM_DEV_H
#define PINION_VM_DEV_H

#include <errno.h>
#include <fcntl.h>
#include <linux/pinion.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEV __attribute__((unused)) static

#define PAGE 4096UL
#define HUGE (2UL << 20)

DEV int dev_open(int flags)
{
	int fd = open(PINION_DEVICE, flags | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

DEV int dev_call(int dev, unsigned int cmd, void *arg)
{
	return ioctl(dev, cmd, arg) ? -errno : 0;
}

DEV int dev_info(int dev, struct pinion_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return dev_call(dev, PINION_IOC_INFO, info);
}

/* A descriptor. */
DEV int dev_alloc(int dev, uint64_t bytes, uint32_t flags)
{
	struct pinion_alloc a = { .size = sizeof(a), .bytes = bytes, .flags = flags, .node = PINION_NODE_ANY, .name = "test" };
	int ret = dev_call(dev, PINION_IOC_ALLOC, &a);

	return ret ? ret : a.fd;
}

DEV int dev_slice(int dev, int fd, uint64_t offset, uint64_t length, uint32_t rights)
{
	struct pinion_slice s = { .size = sizeof(s), .fd = fd, .rights = rights, .offset = offset, .length = length };
	int ret = dev_call(dev, PINION_IOC_SLICE, &s);

	return ret ? ret : s.out_fd;
}

DEV int dev_pin(int dev, void *addr, uint64_t bytes)
{
	struct pinion_pin p = { .size = sizeof(p), .addr = (uintptr_t)addr, .bytes = bytes, .fd = -1, .name = "pin" };
	int ret = dev_call(dev, PINION_IOC_PIN, &p);

	return ret ? ret : p.out_fd;
}

DEV int dev_pin_fd(int dev, int fd, uint64_t offset, uint64_t bytes, uint32_t *rights)
{
	struct pinion_pin p = { .size = sizeof(p), .flags = PINION_PIN_FD, .addr = offset, .bytes = bytes, .fd = fd, .name = "memfd" };
	int ret = dev_call(dev, PINION_IOC_PIN, &p);

	if (!ret && rights)
		*rights = p.out_rights;
	return ret ? ret : p.out_fd;
}

DEV int dev_bufinfo(int dev, int fd, struct pinion_bufinfo *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->fd = fd;
	return dev_call(dev, PINION_IOC_BUFINFO, info);
}

/* Bytes that all users hold, as INFO says; buffers likewise. */
DEV uint64_t dev_bytes(int dev)
{
	struct pinion_info info;

	return dev_info(dev, &info) ? ~0ULL : info.bytes;
}

DEV uint64_t dev_buffers(int dev)
{
	struct pinion_info info;

	return dev_info(dev, &info) ? ~0ULL : info.buffers;
}

/* A mapping, or MAP_FAILED with errno. */
DEV void *dev_map(int fd, size_t bytes, int prot)
{
	return mmap(NULL, bytes, prot, MAP_SHARED, fd, 0);
}

/* At a multiple of 2 MiB. */
DEV void *dev_map_aligned(int fd, size_t bytes, int prot)
{
	char *span = mmap(NULL, bytes + HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at;

	if (span == MAP_FAILED)
		return span;
	at = (char *)(((uintptr_t)span + HUGE - 1) & ~(HUGE - 1));
	return mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0);
}

#endif
