/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * uring: calls by io_uring. ADD and READ are done at once; WAIT, where it can be cancelled, is a waiter whose firing ends the
 * command in its task.
 */
#ifndef PINION_URING_H
#define PINION_URING_H

struct io_uring_cmd;

int uring_call(struct io_uring_cmd *cmd, unsigned int flags);

#endif
