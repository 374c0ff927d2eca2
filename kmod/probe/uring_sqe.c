// SPDX-License-Identifier: GPL-2.0-only
// 6.5: a command leads to its submission entry, no more to the bytes in it.
#include <linux/io_uring.h>
#ifdef PINION_HAS_URING_CMD_H
#include <linux/io_uring/cmd.h>
#endif
const void *probe(struct io_uring_cmd *cmd);
const void *probe(struct io_uring_cmd *cmd)
{
	return cmd->sqe->cmd;
}
