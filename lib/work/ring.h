/* SPDX-License-Identifier: MIT */
/* ring: an io_uring ring, had although one that was just closed may still be counted against the same limit. */
#ifndef PINION_LIB_RING_H
#define PINION_LIB_RING_H

#include <liburing.h>

/* As io_uring_queue_init() without flags: 0 or -errno, no sentence. Waits up to 0.2 s where memory is short. */
int ring_open(unsigned int entries, struct io_uring *ring);

/* As io_uring_register_buffers(), in the same way. */
int ring_register(struct io_uring *ring, const struct iovec *iov, unsigned int n);

#endif
