/* SPDX-License-Identifier: MIT */
/* A file system on a disk: the boot's ext4 image behind a loop device, mounted at /mnt. */
#ifndef PINION_VM_DISK_H
#define PINION_VM_DISK_H

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#define DISK	  __attribute__((unused)) static
#define DISK_PATH "/mnt"

static char disk_loop[32];
static const char *disk_step = "";

/* 0 or -errno; disk_step says of what. */
DISK int disk_mount(void)
{
	int image = open("/t/ext4.img", O_RDWR | O_CLOEXEC), control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), loop = -1,
	    ret = 0;
	struct loop_config config = { .fd = (unsigned int)image };

	disk_step = image < 0 ? "the boot's ext4 image" : "/dev/loop-control";
	if (image < 0 || control < 0)
		return -errno;
	snprintf(disk_loop, sizeof(disk_loop), "/dev/loop%d", ioctl(control, LOOP_CTL_GET_FREE));
	disk_step = disk_loop;
	loop = open(disk_loop, O_RDWR | O_CLOEXEC);
	if (loop < 0 || ioctl(loop, LOOP_CONFIGURE, &config))
		ret = -errno;
	else
		disk_step = "mount";
	if (!ret && mount(disk_loop, DISK_PATH, "ext4", 0, "")) {
		ret = -errno;
		ioctl(loop, LOOP_CLR_FD);
	}
	close(loop);
	close(control);
	close(image);
	return ret;
}

DISK int disk_unmount(void)
{
	int ret = umount(DISK_PATH) ? -errno : 0, loop = open(disk_loop, O_RDWR | O_CLOEXEC);

	if (loop >= 0 && ioctl(loop, LOOP_CLR_FD) && !ret)
		ret = -errno;
	close(loop);
	return ret;
}

/* A file there of @bytes zeros, opened anew with @flags; a descriptor or -errno. */
DISK int disk_file(const char *name, size_t bytes, int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), DISK_PATH "/%s", name);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)bytes))
		return -errno;
	close(fd);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

#endif
