/* SPDX-License-Identifier: MIT */
/* share: messages with descriptors over a Unix socket, one message a packet. */
#ifndef PINION_LIB_SHARE_H
#define PINION_LIB_SHARE_H

#include <stddef.h>
#include <sys/types.h>

/* Sends @bytes at @data with @nfds descriptors, which stay the caller's. 0 or -errno. Never raises SIGPIPE. */
int share_send(int sock, const void *data, size_t bytes, const int *fds, unsigned int nfds);

/*
 * Receives one message of at most @room bytes and at most @max_fds descriptors, close-on-exec, which are the caller's.
 * Returns its length, 0 at the end, and then no descriptors; -EPROTO when the message or its descriptors were cut. *@nfds is set.
 */
ssize_t share_recv(int sock, void *data, size_t room, int *fds, unsigned int max_fds, unsigned int *nfds);

void share_close(const int *fds, unsigned int nfds);

#endif
