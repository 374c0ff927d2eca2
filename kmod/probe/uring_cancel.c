// SPDX-License-Identifier: GPL-2.0-only
// 6.10: io_uring cancels commands (6.7), their own bytes have a name, and what runs in their task always holds the ring's
// lock: a cancel never meets a command that is being ended (uring_wait_done()).
#include <linux/io_uring/cmd.h>
void **probe(struct io_uring_cmd *cmd);
void **probe(struct io_uring_cmd *cmd)
{
	io_uring_cmd_mark_cancelable(cmd, IO_URING_F_CANCEL);
	return io_uring_cmd_to_pdu(cmd, void *);
}
