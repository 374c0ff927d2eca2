/* SPDX-License-Identifier: MIT */
/* ring: an io_uring ring, had although one that was just closed may still be counted against the same limit. */
#ifndef PINION_LIB_RING_H
#define PINION_LIB_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

/* As io_uring_queue_init() without flags: 0 or -errno, no sentence. Waits up to 0.2 s where memory is short. */
int ring_open(unsigned int entries, struct io_uring *ring);

/* Whether @ring can be entered: a filter may let one be set up, and refuse that. 0 or -errno, which will stay so. */
int ring_enter(struct io_uring *ring);

/* Whether the number @err, of setting a ring up or of entering it, says that io_uring is not to be used here. */
bool ring_is_refused(int err);

/* As io_uring_register_buffers(), in the same way. */
int ring_register(struct io_uring *ring, const struct iovec *iov, unsigned int n);

/*
 * The ring @fd shares the @n buffers that the ring @from has registered, all of them, from its slot @at on, behind all that
 * are in use. 0 or -errno: -EINVAL the kernel cannot (before Linux 6.12; 6.12 itself for a second time).
 */
int ring_clone_buffers(int fd, int from, uint32_t n, uint32_t at);

/* Empties slots of the ring's table of buffers, and gives up the table. Requests in flight keep what they have. */
void ring_clear_buffers(int fd, uint32_t at, uint32_t n);
void ring_forget_buffers(int fd);

/* A table of @n registered files, all empty; and what is in one place of it: a file, or none (-1). 0 or -errno. */
int ring_files_make(int fd, unsigned int n);
int ring_files_set(int fd, uint32_t at, int file);

#endif
