/* SPDX-License-Identifier: MIT */
/* kmod: the module's device, as an open that contexts and buffers share. */
#ifndef PINION_LIB_KMOD_H
#define PINION_LIB_KMOD_H

#include <linux/pinion.h>
#include <stdbool.h>
#include <stdint.h>

struct pages;

struct kmod_device {
	uint32_t refs; /* atomic */
	int fd;
	uint32_t huge_size;
	uint64_t features; /* PINION_FEATURE_... */
};

/*
 * Opens /dev/pinion with the open(2) flags @access and checks that it speaks our ABI. -ENODEV: no module; -EACCES; -EPROTO:
 * another ABI. The caller owns *@out (kmod_close()).
 */
int kmod_open(int access, struct kmod_device **out);
struct kmod_device *kmod_ref(struct kmod_device *dev);
void kmod_close(struct kmod_device *dev);

/* The module's limits and their use, by an open @fd of the device. 0 or -errno, without a sentence. */
int kmod_info(int fd, struct pinion_info *info);

/* Whether @fd is a dma-buf, so that the module may know it. */
bool kmod_may_be(int fd);

/* Whether the dma-buf @fd is one of the module's, as the kernel says. */
bool kmod_exported(int fd);

/*
 * Pins a memfd whose size is sealed; @memfd stays the caller's. Before Linux 6.1 and where a page is missing the module makes
 * it present. -EPERM it is sealed against writing; -ENOMEM, -ENOSPC the module's limits.
 */
int kmod_pin(struct kmod_device *dev, int memfd, struct pages *pages);

/* pages_adopt() of a dma-buf: the module answers for it, or, for who may not open the device, what the kernel shows of it. */
int kmod_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages);

#endif
