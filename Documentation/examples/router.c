/* SPDX-License-Identifier: MIT */
/*
 * A router over workers in other processes. For each client it picks a device and claims what the client needs, in one
 * step, and hands the claim to a worker as a descriptor. The claim is in nobody's table by number and has no time to live: it
 * ends when its last holder closes it, or dies.
 *
 *     cc router.c $(pkg-config --cflags --libs pinion) && ./a.out [CLIENTS]
 *
 * Prints what each worker did and, at the end, that nothing is claimed and nothing in flight.
 */
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED (UINT64_C(256) << 20)

static const char *const keys[] = { "example:0", "example:1" };

static int complain(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, pinion_error());
	return 1;
}

/* Passes @fd over @sock. */
static int send_fd(int sock, int fd)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { "", 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room) };

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -1;
}

static int recv_fd(int sock)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room) };
	int fd = -1;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* A worker: the unit in flight is this process's from begin on; killed, it takes unit and claim with it. */
static int work(int sock, int number)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_ticket ticket = { 0 };
	struct pinion_reservation *claim;
	struct pinion_context *ctx;
	struct pinion_device *dev;
	uint32_t pending;
	int fd = recv_fd(sock);

	if (fd < 0 || pinion_open(NULL, &ctx) || pinion_reservation_adopt(ctx, fd, &claim) ||
	    pinion_reservation_info(claim, &info) || pinion_reservation_device(claim, &dev))
		return complain("worker");
	close(fd);
	if (pinion_work_begin(dev, info.bytes, &ticket) || pinion_device_pending(dev, PINION_SCOPE_ALL, &pending))
		return complain("begin");
	printf("worker %d: %llu MiB on %s, %u in flight there\n", number, (unsigned long long)info.bytes >> 20, info.key, pending);
	fflush(stdout);
	usleep(20000);
	if (pinion_work_end(&ticket))
		return complain("end");
	pinion_reservation_free(claim);
	pinion_close(ctx);
	return 0;
}

/* Starts a worker and hands it a claim. */
static int route(struct pinion_context *ctx, int number)
{
	struct pinion_want want = { .size = sizeof(want), .bytes = NEED, .units = 1, .keys = keys, .key_count = 2 };
	struct pinion_reservation *claim;
	int sock[2], ret;

	if (pinion_pick(ctx, &want, &claim)) {
		printf("client %d is refused: %s\n", number, pinion_error());
		return 0;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock))
		return complain("socketpair");
	fflush(stdout);
	if (fork() == 0) {
		/* Only what the router sends is the worker's: not the descriptor that fork() left it. */
		close(pinion_reservation_fd(claim));
		exit(work(sock[1], number));
	}
	ret = send_fd(sock[0], pinion_reservation_fd(claim));
	close(sock[0]);
	close(sock[1]);
	pinion_reservation_free(claim);
	return ret;
}

int main(int argc, char **argv)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 4 * NEED, .capacity = 4 };
	struct pinion_device_info info = { .size = sizeof(info) };
	int clients = argc > 1 ? atoi(argv[1]) : 12, failures = 0, status;
	struct pinion_context *ctx;
	struct pinion_device *dev[2];

	if (pinion_open(NULL, &ctx) || pinion_device_add(ctx, keys[0], &opts, &dev[0]) || pinion_device_add(ctx, keys[1], &opts, &dev[1]))
		return complain("router");
	for (int i = 0; i < clients; i++)
		failures += route(ctx, i) != 0;
	while (wait(&status) > 0)
		failures += status != 0;
	for (int d = 0; d < 2; d++) {
		if (pinion_device_info(dev[d], &info))
			return complain("info");
		printf("%s: %llu units done, %llu in flight, %u claims\n", info.key, (unsigned long long)info.submitted,
		       (unsigned long long)info.pending_high, info.claims);
		failures += info.pending_high || info.claims;
	}
	return failures != 0;
}
