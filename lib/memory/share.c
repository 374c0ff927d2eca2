/* SPDX-License-Identifier: MIT */
/* share: hands buffers to another process over a Unix socket. */
#include "share.h"

#include "../context.h"
#include "../error.h"
#include "buffer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHARE_FDS 4
#define SHARE_MAGIC 0x31465542u /* "BUF1" */

#ifndef SCM_PIDFD
#define SCM_PIDFD 0x04 /* Linux 6.5 */
#endif

/* For what a program has its socket say beside: who sent (SO_PASSCRED, SO_PASSPIDFD, SO_PASSSEC), and when. */
#define ELSE_BYTES 512

/* What travels with a buffer's descriptor. */
struct share_buffer {
	uint32_t magic;
	uint32_t rights;
	uint64_t bytes;
	uint32_t page_size;
	uint32_t reserved;
};

union share_control {
	struct cmsghdr align;
	char room[CMSG_SPACE(SHARE_FDS * sizeof(int)) + ELSE_BYTES];
};

int share_send(int sock, const void *data, size_t bytes, const int *fds, unsigned int nfds)
{
	struct iovec iov = { .iov_base = (void *)data, .iov_len = bytes };
	union share_control control = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *head;
	ssize_t n;

	if (nfds) {
		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		head = CMSG_FIRSTHDR(&msg);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(head), fds, nfds * sizeof(int));
	}
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -EMSGSIZE;
}

void share_close(const int *fds, unsigned int nfds)
{
	while (nfds)
		close(fds[--nfds]);
}

/*
 * Collects the descriptors of a message; those that are too many are closed, and counted all the same. One of the sender's
 * process, which the program's socket is set to bring, is nobody's here.
 */
static unsigned int take_fds(struct msghdr *msg, int *fds, unsigned int max_fds)
{
	unsigned int n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		bool sent = h->cmsg_type == SCM_RIGHTS;
		size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (h->cmsg_level != SOL_SOCKET || (!sent && h->cmsg_type != SCM_PIDFD))
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
			if (sent && n < max_fds)
				fds[n] = fd;
			else if (fd >= 0)
				close(fd);
			n += sent;
		}
	}
	return n;
}

ssize_t share_recv(int sock, void *data, size_t room, int *fds, unsigned int max_fds, unsigned int *nfds)
{
	struct iovec iov = { .iov_base = data, .iov_len = room };
	union share_control control;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room) };
	ssize_t n;

	do {
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	*nfds = 0;
	if (n < 0)
		return -errno;
	*nfds = take_fds(&msg, fds, max_fds);
	/* Cut although there was room for all that came: this process may have no more descriptors. */
	if ((msg.msg_flags & MSG_CTRUNC) && *nfds < SHARE_FDS) {
		share_close(fds, *nfds < max_fds ? *nfds : max_fds);
		*nfds = 0;
		return -EMFILE;
	}
	if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || *nfds > max_fds) {
		share_close(fds, *nfds < max_fds ? *nfds : max_fds);
		*nfds = 0;
		return -EPROTO;
	}
	/* An empty packet is the end to whoever reads, and its descriptors would be nobody's. */
	if (!n) {
		share_close(fds, *nfds);
		*nfds = 0;
	}
	return n;
}

PINION_API int pinion_buffer_send(struct pinion_buffer *buf, int sock, uint32_t rights)
{
	struct share_buffer msg = { .magic = SHARE_MAGIC, .rights = rights, .bytes = buf->pages.bytes,
				    .page_size = buf->pages.page_size };
	int fd, ret;

	if (rights != PINION_READ && rights != (PINION_READ | PINION_WRITE))
		return fail(EINVAL, "rights are PINION_READ or PINION_READ | PINION_WRITE, not 0x%x", rights);
	fd = buffer_hand_out(buf, rights);
	if (fd < 0)
		return fd;
	ret = share_send(sock, &msg, sizeof(msg), &fd, 1);
	close(fd);
	return ret ? fail_errno(-ret, "sending a buffer") : 0;
}

PINION_API int pinion_buffer_recv(struct pinion_context *ctx, int sock, struct pinion_buffer **out)
{
	struct share_buffer msg;
	struct pages pages;
	unsigned int nfds;
	ssize_t n;
	int fd, ret = context_check(ctx);

	if (ret)
		return ret;
	n = share_recv(sock, &msg, sizeof(msg), &fd, 1, &nfds);
	if (n < 0)
		return fail_errno(-n, "receiving a buffer");
	if (n == 0)
		return fail(ECONNRESET, "the peer closed the connection before it sent a buffer");
	if (n != sizeof(msg) || msg.magic != SHARE_MAGIC || nfds != 1) {
		share_close(&fd, nfds);
		return fail(EPROTO, "the message received is not a buffer (%zd bytes, %u descriptors)", n, nfds);
	}
	ret = pages_adopt(fd, msg.bytes, msg.page_size, &pages);
	if (!ret)
		ret = buffer_new(&pages, NULL, out);
	if (ret)
		close(fd);
	return ret;
}
