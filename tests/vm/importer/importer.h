/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * /dev/pinion-importer: a device that maps a dma-buf, for the tests. One open file is one attachment of one device; its
 * close unmaps and detaches. mmap of the file is dma_buf_mmap() of the buffer, as a graphics driver's would be, and before
 * there is a buffer a page of the driver's own.
 */
#ifndef PINION_IMPORTER_H
#define PINION_IMPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Devices there are; each is a struct device of its own, with a 64-bit mask. The first takes segments of any length, the second
 * those of 64 KiB at most. */
#define IMPORTER_DEVICES     2

#define IMPORTER_TO_DEVICE   1 /* the device reads */
#define IMPORTER_FROM_DEVICE 2
#define IMPORTER_BOTH_WAYS   3

#define IMPORTER_DYNAMIC     1 /* an importer that could follow a move; the core then maps both ways at once, at attach */
#define IMPORTER_LAZY	     2 /* attach only; MAP and UNMAP follow */

struct importer_attach {
	__s32 fd;
	__u32 device;
	__u32 direction;
	__u32 flags;
};

struct importer_table {
	__u64 table;		 /* which one: equal only for the same */
	__u64 bytes;		 /* of all entries, as the device sees them */
	__u64 most_bytes;	 /* the longest entry */
	__u64 max_mapping_bytes; /* what an entry may be at most */
	__u32 pages_entries;	 /* as they were made */
	__u32 device_entries;	 /* as they were mapped */
};

/* The device reads or writes, by its own addresses, at @offset of the buffer. */
struct importer_access {
	__u64 offset;
	__u64 bytes;
	__u64 data;
};

#define IMPORTER_ATTACH _IOW(0xBC, 1, struct importer_attach)
#define IMPORTER_MAP	_IO(0xBC, 2)
#define IMPORTER_UNMAP	_IO(0xBC, 3)
#define IMPORTER_TABLE	_IOR(0xBC, 4, struct importer_table)
#define IMPORTER_READ	_IOW(0xBC, 5, struct importer_access)
#define IMPORTER_WRITE	_IOW(0xBC, 6, struct importer_access)
#define IMPORTER_VMAP	_IO(0xBC, 7) /* a mapping in the kernel: EINVAL where the exporter offers none */
#define IMPORTER_SPOIL	_IO(0xBC, 8) /* overwrites the table's device addresses, as RDMA does to split them */

#endif
