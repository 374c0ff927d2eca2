// SPDX-License-Identifier: GPL-2.0-only
// 6.7: io_uring cancels commands. The header moved before that.
#include <linux/io_uring/cmd.h>
void probe(struct io_uring_cmd *cmd);
void probe(struct io_uring_cmd *cmd)
{
	io_uring_cmd_mark_cancelable(cmd, IO_URING_F_CANCEL);
}
