/* SPDX-License-Identifier: MIT */
/* vgem, a graphics driver without a device: an importer and an exporter of dma-bufs. The little of DRM's ABI that needs. */
#ifndef PINION_VM_VGEM_H
#define PINION_VM_VGEM_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define VGEM	    __attribute__((unused)) static
#define VGEM_DEVICE "/dev/dri/card0"

struct vgem_close {
	uint32_t handle, pad;
};

struct vgem_prime {
	uint32_t handle, flags;
	int32_t fd;
};

struct vgem_dumb {
	uint32_t height, width, bpp, flags, handle, pitch;
	uint64_t size;
};

#define VGEM_IOCTL_CLOSE     _IOW('d', 0x09, struct vgem_close)
#define VGEM_IOCTL_TO_FD     _IOWR('d', 0x2d, struct vgem_prime)
#define VGEM_IOCTL_TO_HANDLE _IOWR('d', 0x2e, struct vgem_prime)
#define VGEM_IOCTL_DUMB	     _IOWR('d', 0xb2, struct vgem_dumb)

/* A descriptor or -errno: where the module is not, ENOENT. */
VGEM int vgem_open(void)
{
	int fd = open(VGEM_DEVICE, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* A dma-buf of a page, or -errno. */
VGEM int vgem_export(int vgem)
{
	struct vgem_dumb dumb = { .width = 32, .height = 32, .bpp = 32 };
	struct vgem_prime prime = { .flags = O_CLOEXEC | O_RDWR };

	if (ioctl(vgem, VGEM_IOCTL_DUMB, &dumb))
		return -errno;
	prime.handle = dumb.handle;
	return ioctl(vgem, VGEM_IOCTL_TO_FD, &prime) ? -errno : prime.fd;
}

/* Attaches to a dma-buf and maps it both ways; 0 or -errno. */
VGEM int vgem_import(int vgem, int fd, uint32_t *handle)
{
	struct vgem_prime prime = { .fd = fd };

	if (ioctl(vgem, VGEM_IOCTL_TO_HANDLE, &prime))
		return -errno;
	*handle = prime.handle;
	return 0;
}

/* Drops the handle: the last one unmaps and detaches. */
VGEM int vgem_drop(int vgem, uint32_t handle)
{
	struct vgem_close drop = { .handle = handle };

	return ioctl(vgem, VGEM_IOCTL_CLOSE, &drop) ? -errno : 0;
}

#endif
