/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * call: the frame of every call. Arguments are copied once, checked, and a struct of the kernel's own is worked on; what a
 * call made is shown to the caller only when everything, the copy back included, has worked.
 */
#ifndef PINION_CALL_H
#define PINION_CALL_H

#include <linux/dma-buf.h>
#include <linux/fs.h>
#include <linux/pinion.h>

#include "session.h"

struct call {
	struct session *session;
	struct file *file;
	union {
		__u32 size;
		__u8 all[192]; /* what is copied in and out, as large as the largest */
		struct pinion_info info;
		struct pinion_alloc alloc;
		struct pinion_slice slice;
		struct pinion_pin pin;
		struct pinion_bufinfo bufinfo;
		struct pinion_list list;
		struct pinion_dev dev;
		struct pinion_dev_del del;
		struct pinion_attach attach;
		struct pinion_handle handle;
		struct pinion_add add;
		struct pinion_read read;
		struct pinion_reserve reserve;
		struct pinion_wait wait;
		struct pinion_watch watch;
	};
	/* A descriptor that is reserved and a file for it, installed after the copy back. */
	int fd;
	struct file *made;
};

/* Reserves call->fd. To be called before the dma-buf is exported: an export can only be dropped, not undone. */
int call_reserve_fd(struct call *call);
/* Before a file is made; -ENOMEM. */
int call_headroom(void);
long call_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

/* Whether the open may change anything. */
static inline bool call_writes(const struct call *call)
{
	return call->file->f_mode & FMODE_WRITE;
}

/* buffer.c */
int buffer_alloc(struct call *call);
int buffer_slice(struct call *call);
int buffer_pin(struct call *call);
int buffer_info(struct call *call);
/* main.c */
int module_info(struct call *call);

#endif
