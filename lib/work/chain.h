/* SPDX-License-Identifier: MIT */
/*
 * chain: an I/O that the kernel counts while it goes on: a unit begins, the I/O, the unit ends, as three linked entries of an
 * io_uring ring. <linux/pinion.h>, "io_uring", says why they are linked as they are.
 */
#ifndef PINION_LIB_CHAIN_H
#define PINION_LIB_CHAIN_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#define CHAIN_ENTRIES 3

/* Where the calling thread's chains count now. */
struct chain_lane {
	int fd;
	uint32_t handle;
	uint32_t parity;
};

struct pinion_device;

/* Whether chains may count on @dev: -EOPNOTSUPP where no kernel counts or its io_uring takes no commands, -ENODATA, -ESTALE. */
int chain_check(const struct pinion_device *dev);

/* The calling thread's lane of @dev. As pinion_work_begin() fails. */
int chain_lane(struct pinion_device *dev, struct chain_lane *out);

/*
 * Fills the entries before and after one I/O of @cost. The first entries of a link are read when they are submitted, but some
 * kernels read the last when it runs. @copied: it is for a worker of the kernel, which has it copied at once, for a few
 * microseconds; else its place in the ring must be left alone until it has completed.
 */
void chain_begin(struct io_uring_sqe *sqe, const struct chain_lane *lane, uint32_t cost);
void chain_end(struct io_uring_sqe *sqe, const struct chain_lane *lane, uint32_t cost, bool copied);

#endif
