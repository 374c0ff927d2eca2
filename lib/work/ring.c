/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include <errno.h>
#include <unistd.h>

/*
 * Kernels that count rings, and what is registered with them, against RLIMIT_MEMLOCK give both back some time after the
 * descriptor is closed, from a work queue. Until then the user's next ring may be refused for no lasting reason.
 */
#define TRIES 40
#define PAUSE_US 5000

int ring_open(unsigned int entries, struct io_uring *ring)
{
	int ret;

	for (unsigned int i = 0; (ret = io_uring_queue_init(entries, ring, 0)) == -ENOMEM && i < TRIES; i++)
		usleep(PAUSE_US);
	return ret;
}

int ring_register(struct io_uring *ring, const struct iovec *iov, unsigned int n)
{
	int ret;

	for (unsigned int i = 0; (ret = io_uring_register_buffers(ring, iov, n)) == -ENOMEM && i < TRIES; i++)
		usleep(PAUSE_US);
	return ret;
}
