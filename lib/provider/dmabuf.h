/* SPDX-License-Identifier: MIT */
/* dmabuf: dma-bufs of drivers other than our module's, and memfds made into one. */
#ifndef PINION_LIB_DMABUF_H
#define PINION_LIB_DMABUF_H

#include <stdbool.h>
#include <stdint.h>

struct pages;

/* Takes over @fd, a dma-buf of any driver. -EINVAL, -EOPNOTSUPP it cannot be mapped: @fd stays the caller's. */
int dmabuf_adopt(int fd, struct pages *pages);

/*
 * A new dma-buf of the pages, a memfd's, by /dev/udmabuf; the caller's. From then on the memfd takes no more seals, in any
 * process: a dma-buf may be written whatever they say. -EPERM it is sealed against writing; -EOPNOTSUPP there is no
 * /dev/udmabuf; -EACCES; -EINVAL its limit.
 */
int dmabuf_of_memfd(const struct pages *pages);

/* DMA_BUF_IOCTL_SYNC of @rights. */
int dmabuf_sync(int fd, uint32_t rights, bool begin);

#endif
