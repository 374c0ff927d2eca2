/* SPDX-License-Identifier: MIT */
#include "ring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Kernels that count rings, and what is registered with them, against RLIMIT_MEMLOCK give both back some time after the
 * descriptor is closed, from a work queue. Until then the user's next ring may be refused for no lasting reason.
 */
#define TRIES 40
#define PAUSE_US 5000

/* Newer than the headers this may be built with; they are of an enum, so no #ifndef sees them. */
#define CLONE_BUFFERS 30	/* IORING_REGISTER_CLONE_BUFFERS, Linux 6.12 */
#define CLONE_REPLACE (1u << 1) /* IORING_REGISTER_DST_REPLACE, Linux 6.13, and so are the fields after flags */

struct clone_buffers {
	uint32_t src_fd;
	uint32_t flags;
	uint32_t src_off, dst_off, nr;
	uint32_t pad[3];
};

int ring_open(unsigned int entries, struct io_uring *ring)
{
	int ret;

	for (unsigned int i = 0; (ret = io_uring_queue_init(entries, ring, 0)) == -ENOMEM && i < TRIES; i++)
		usleep(PAUSE_US);
	return ret;
}

bool ring_is_refused(int err)
{
	switch (err) {
	case 0:
	case EAGAIN:
	case EBUSY:
	case EINTR:
	case ETIME:
	/* What is short may be had another time. */
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return false;
	}
	return true;
}

int ring_enter(struct io_uring *ring)
{
	int err = syscall(__NR_io_uring_enter, ring->ring_fd, 0, 0, 0, NULL, 0) < 0 ? errno : 0;

	return ring_is_refused(err) ? -err : 0;
}

int ring_register(struct io_uring *ring, const struct iovec *iov, unsigned int n)
{
	int ret;

	for (unsigned int i = 0; (ret = io_uring_register_buffers(ring, iov, n)) == -ENOMEM && i < TRIES; i++)
		usleep(PAUSE_US);
	return ret;
}

static int call(int fd, unsigned int op, const void *arg, unsigned int n)
{
	return syscall(__NR_io_uring_register, fd, op, arg, n) < 0 ? -errno : 0;
}

/* With an empty table the first kernel that can will do: it takes the fields for padding, which must be 0. */
int ring_clone_buffers(int fd, int from, uint32_t n, uint32_t at)
{
	struct clone_buffers args = { .src_fd = from };

	if (at) {
		args.flags = CLONE_REPLACE;
		args.dst_off = at;
		args.nr = n;
	}
	return call(fd, CLONE_BUFFERS, &args, 1);
}

void ring_clear_buffers(int fd, uint32_t at, uint32_t n)
{
	struct iovec none = { 0 };
	struct io_uring_rsrc_update2 args = { .data = (uintptr_t)&none, .nr = 1 };

	for (args.offset = at; args.offset < at + n; args.offset++)
		call(fd, IORING_REGISTER_BUFFERS_UPDATE, &args, sizeof(args));
}

/* Up to Linux 6.12 the kernel waits for what the ring has in flight, and a signal ends that with nothing done. */
void ring_forget_buffers(int fd)
{
	while (call(fd, IORING_UNREGISTER_BUFFERS, NULL, 0) == -EINTR)
		;
}

int ring_files_make(int fd, unsigned int n)
{
	int *none = malloc(n * sizeof(*none)), ret;

	if (!none)
		return -ENOMEM;
	/* Places of -1 do since Linux 5.5, a table said to be sparse since 5.19. */
	for (unsigned int i = 0; i < n; i++)
		none[i] = -1;
	ret = call(fd, IORING_REGISTER_FILES, none, n);
	free(none);
	return ret;
}

int ring_files_set(int fd, uint32_t at, int file)
{
	struct io_uring_files_update args = { .offset = at, .fds = (uintptr_t)&file };

	return call(fd, IORING_REGISTER_FILES_UPDATE, &args, 1);
}
