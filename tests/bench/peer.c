/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 4

int peer_start(struct peer *p, void (*body)(int sock, void *arg), void *arg)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return broke(errno, "socketpair: %s", strerror(errno));
	fflush(NULL);
	p->pid = fork();
	if (p->pid == 0) {
		close(pair[0]);
		body(pair[1], arg);
		_exit(1);
	}
	close(pair[1]);
	p->sock = pair[0];
	if (p->pid < 0) {
		p->pid = 0;
		close(p->sock);
		return broke(errno, "fork: %s", strerror(errno));
	}
	if (peer_hear(p->sock))
		return 0;
	peer_stop(p);
	return broke(EPROTO, "the process at the other end did not get ready");
}

void peer_stop(struct peer *p)
{
	if (!p->pid)
		return;
	close(p->sock);
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	p->pid = 0;
}

bool peer_say(int sock)
{
	return send(sock, "", 1, MSG_NOSIGNAL) == 1;
}

bool peer_hear(int sock)
{
	char byte;

	return recv(sock, &byte, 1, 0) == 1;
}

union control {
	struct cmsghdr align;
	char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

bool raw_send(int sock, const int *fds, unsigned int nfds)
{
	struct iovec iov = { .iov_base = "", .iov_len = 1 };
	union control control = { 0 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room };
	struct cmsghdr *h;

	msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
	h = CMSG_FIRSTHDR(&msg);
	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
	memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
	return sendmsg(sock, &msg, MSG_NOSIGNAL) == 1;
}

bool raw_recv(int sock, int *fds, unsigned int nfds)
{
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	union control control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)
	};
	struct cmsghdr *h;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1)
		return false;
	h = CMSG_FIRSTHDR(&msg);
	if (!h || h->cmsg_type != SCM_RIGHTS || h->cmsg_len != CMSG_LEN(nfds * sizeof(int)))
		return false;
	memcpy(fds, CMSG_DATA(h), nfds * sizeof(int));
	return true;
}
