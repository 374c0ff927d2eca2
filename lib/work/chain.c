/* SPDX-License-Identifier: MIT */
#include "chain.h"

#include "../error.h"
#include "../provider/counts_ops.h"
#include "account.h"

#include <errno.h>
#include <linux/pinion.h>
#include <string.h>

int chain_check(const struct pinion_device *dev)
{
	const struct counts *counts = dev->counts;
	uint32_t handle;
	int fd;

	if (!counts->ops->uring_lane)
		return fail(EOPNOTSUPP,
			    "the counts of this context are in a file, which no kernel counts in: chains need the kernel "
			    "module (see 'pinion doctor'), PINION_COUNT_PAGE needs nothing");
	if (!dev->at.has_queue)
		return fail(ENODATA, "device '%s' is synchronous and has no queue to count", dev->key);
	if (!counts_device_current(&dev->at))
		return fail(ESTALE, "the device was removed; find it again by its key");
	return counts->ops->uring_lane(counts, &counts->page->lane[0], &fd, &handle);
}

int chain_lane(struct pinion_device *dev, struct chain_lane *out)
{
	const struct lane_ref *ref;
	int ret = chain_check(dev);

	if (!ret)
		ret = lane_get(dev, &ref);
	if (ret)
		return ret;
	out->parity = pinion_load(&ref->control->epoch) & 1;
	return dev->counts->ops->uring_lane(dev->counts, ref->lane, &out->fd, &out->handle);
}

static void count(struct io_uring_sqe *sqe, const struct chain_lane *lane, int32_t ops, int32_t cost)
{
	struct pinion_uring_add add = { .handle = lane->handle, .ops = ops, .cost = cost, .parity = lane->parity };

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = lane->fd;
	sqe->cmd_op = PINION_URING_ADD;
	memcpy(sqe->cmd, &add, sizeof(add));
}

void chain_begin(struct io_uring_sqe *sqe, const struct chain_lane *lane, uint32_t cost)
{
	count(sqe, lane, 1, cost);
	sqe->flags = IOSQE_IO_LINK;
}

void chain_end(struct io_uring_sqe *sqe, const struct chain_lane *lane, uint32_t cost, bool copied)
{
	count(sqe, lane, -1, -(int32_t)cost);
	if (copied)
		sqe->flags = IOSQE_ASYNC;
}
