/* SPDX-License-Identifier: MIT */
/* The importer module's calls as functions: 0 or more, or -errno. */
#ifndef PINION_VM_IMPORT_H
#define PINION_VM_IMPORT_H

#include "../importer/importer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define IMPORT	 __attribute__((unused)) static
#define IMPORTER "/dev/pinion-importer"

IMPORT int import_is_there(void)
{
	return !access(IMPORTER, F_OK);
}

/* A descriptor of the attachment, mapped unless it is lazy; closing it ends both. */
IMPORT int import_by(int device, int fd, uint32_t direction, uint32_t flags)
{
	struct importer_attach a = { .fd = fd, .device = device, .direction = direction, .flags = flags };
	int import = open(IMPORTER, O_RDWR | O_CLOEXEC), ret;

	if (import < 0)
		return -errno;
	if (!ioctl(import, IMPORTER_ATTACH, &a))
		return import;
	ret = -errno;
	close(import);
	return ret;
}

IMPORT int import(int fd, uint32_t direction)
{
	return import_by(0, fd, direction, 0);
}

IMPORT int import_call(int import, unsigned long cmd)
{
	return ioctl(import, cmd, 0) ? -errno : 0;
}

IMPORT int import_table(int import, struct importer_table *table)
{
	return ioctl(import, IMPORTER_TABLE, table) ? -errno : 0;
}

IMPORT int import_read(int import, uint64_t offset, void *data, uint64_t bytes)
{
	struct importer_access a = { .offset = offset, .bytes = bytes, .data = (uintptr_t)data };

	return ioctl(import, IMPORTER_READ, &a) ? -errno : 0;
}

IMPORT int import_write(int import, uint64_t offset, const void *data, uint64_t bytes)
{
	struct importer_access a = { .offset = offset, .bytes = bytes, .data = (uintptr_t)data };

	return ioctl(import, IMPORTER_WRITE, &a) ? -errno : 0;
}

#endif
