/* SPDX-License-Identifier: MIT */
/* peer: a child process at the other end of a socket, and descriptors over sockets by the raw calls. */
#ifndef PINION_BENCH_PEER_H
#define PINION_BENCH_PEER_H

#include <stdbool.h>
#include <sys/types.h>

struct peer {
	pid_t pid; /* 0: none */
	int sock;
};

/* Runs @body with its end of a socket in a child, and waits for the byte with which it says that it is ready. */
int peer_start(struct peer *p, void (*body)(int sock, void *arg), void *arg);
void peer_stop(struct peer *p);

/* One byte there, or from there; false when the peer is gone. */
bool peer_say(int sock);
bool peer_hear(int sock);

bool raw_send(int sock, const int *fds, unsigned int nfds);
bool raw_recv(int sock, int *fds, unsigned int nfds);

#endif
