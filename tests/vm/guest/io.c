// SPDX-License-Identifier: MIT
/*
 * The kernel's own users of a mapping's pages: direct I/O, pipes, other processes, io_uring, sockets. A buffer above 2 GiB,
 * where a count of an int would be too small, does not fit into these guests.
 */
#define _GNU_SOURCE
#include "bytes.h"
#include "disk.h"
#include "until.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/io_uring.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PAGES  576UL /* a huge page, and small ones */
#define BUFFER (PAGES * PAGE)

static int dev;

/* A buffer, mapped and painted; where the io_uring of this kernel wants it, shared memory. */
static char *buffer(int *fd, uint64_t bytes, uint32_t flags, uint64_t seed)
{
	char *p;

	*fd = dev_alloc(dev, bytes, flags);
	p = dev_map_aligned(*fd, bytes, PROT_READ | PROT_WRITE);
	if (*fd < 0 || p == MAP_FAILED)
		wrong("buffer: %d, %s", *fd, strerror(errno));
	else
		paint(p, seed, 0, bytes / PAGE);
	return p;
}

static void drop(int fd, char *p, uint64_t bytes)
{
	munmap(p, bytes);
	close(fd);
}

/* ---- direct I/O ---------------------------------------------------------------------------------------------------- */

static bool moved(ssize_t n, const char *what)
{
	if (n == (ssize_t)BUFFER)
		return true;
	wrong("%s: %zd of %lu, %s", what, n, BUFFER, n < 0 ? strerror(errno) : "short");
	return false;
}

static void direct(uint32_t flags, const char *what)
{
	int from, to, file = disk_file("direct", BUFFER, O_RDWR | O_DIRECT), slice;
	char *a = buffer(&from, BUFFER, flags, 1), *b = buffer(&to, BUFFER, flags, 2), *ro;

	if (expect(file, 0, "O_DIRECT") && moved(pwrite(file, a, BUFFER, 0), "write") && moved(pread(file, b, BUFFER, 0), "read"))
		is_painted(b, 1, 0, PAGES, "read");
	/* From memory that may only be read, and never into it. */
	slice = dev_slice(dev, from, 0, BUFFER, PINION_RIGHT_READ);
	ro = dev_map(slice, BUFFER, PROT_READ);
	moved(pwrite(file, ro, BUFFER, 0), "write from a read-only slice");
	if (pread(file, ro, BUFFER, 0) >= 0 || errno != EFAULT)
		wrong("read into a read-only slice is not EFAULT");
	is_painted(a, 1, 0, PAGES, "the buffer");
	munmap(ro, BUFFER);
	close(slice);
	close(file);
	drop(from, a, BUFFER);
	drop(to, b, BUFFER);
	point(what, "O_DIRECT to and from ext4");
}

/* ---- pipes --------------------------------------------------------------------------------------------------------- */

static void pipes(uint32_t flags, const char *what)
{
	int fd, end[2];
	char *p = buffer(&fd, 8 * PAGE, flags, 3), *got = malloc(8 * PAGE);
	struct iovec iov = { p, 8 * PAGE };

	if (pipe2(end, O_CLOEXEC)) {
		wrong("pipe: %s", strerror(errno));
		goto out;
	}
	fcntl(end[1], F_SETPIPE_SZ, 16 * PAGE);
	if (vmsplice(end[1], &iov, 1, 0) != (ssize_t)iov.iov_len)
		wrong("vmsplice: %s", strerror(errno));
	/* The pipe holds the very pages: what is written later is read too. */
	paint(p, 4, 0, 8);
	drop(fd, p, 8 * PAGE);
	/* And keeps them when nobody else does. */
	if (!*state_wrong && read(end[0], got, 8 * PAGE) != 8 * (ssize_t)PAGE)
		wrong("read: %s", strerror(errno));
	is_painted(got, 4, 0, 8, "the pipe");
	close(end[0]);
	close(end[1]);
out:
	free(got);
	point(what, "vmsplice gives the pages to a pipe, which keeps them");
}

/* ---- other processes ----------------------------------------------------------------------------------------------- */

struct peer {
	pid_t pid;
	char *at;
};

static bool peer_reads_and_writes(void *data)
{
	const struct peer *peer = data;
	char *own = malloc(BUFFER);
	struct iovec here = { own, BUFFER }, there = { peer->at, BUFFER };

	munmap(peer->at, BUFFER);
	if (process_vm_readv(peer->pid, &here, 1, &there, 1, 0) != (ssize_t)BUFFER || !is_page(own, 5, 0) ||
	    !is_page(own + BUFFER - PAGE, 5, PAGES - 1))
		return false;
	paint(own, 6, 0, PAGES);
	return process_vm_writev(peer->pid, &here, 1, &there, 1, 0) == (ssize_t)BUFFER;
}

static void processes(uint32_t flags, const char *what)
{
	int fd;
	char *p = buffer(&fd, BUFFER, flags, 5);
	struct peer peer = { getpid(), p };

	if (!child(peer_reads_and_writes, &peer))
		wrong("the other process failed");
	is_painted(p, 6, 0, PAGES, "the buffer");
	drop(fd, p, BUFFER);
	point(what, "process_vm_readv and process_vm_writev from another process");
}

/* ---- io_uring ------------------------------------------------------------------------------------------------------ */

struct ring {
	int fd;
	struct io_uring_params params;
	char *sq, *cq;
	struct io_uring_sqe *sqe;
};

static int ring_open(struct ring *r)
{
	memset(r, 0, sizeof(*r));
	r->fd = (int)syscall(SYS_io_uring_setup, 8, &r->params);
	if (r->fd < 0)
		return -errno;
	r->sq = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_CQ_RING);
	r->sqe = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, IORING_OFF_SQES);
	return r->sq == MAP_FAILED || r->cq == MAP_FAILED || (void *)r->sqe == MAP_FAILED ? -ENOMEM : 0;
}

static void ring_close(struct ring *r)
{
	munmap(r->sq, PAGE);
	munmap(r->cq, PAGE);
	munmap(r->sqe, PAGE);
	close(r->fd);
}

static int ring_register(struct ring *r, void *at, size_t bytes)
{
	struct iovec iov = { at, bytes };

	return syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_BUFFERS, &iov, 1) ? -errno : 0;
}

/* One transfer of the registered buffer, all of it; the result of its completion. */
static int ring_move(struct ring *r, int op, int file, uint64_t at, size_t bytes)
{
	unsigned int *tail = (unsigned int *)(r->sq + r->params.sq_off.tail);
	unsigned int *index = (unsigned int *)(r->sq + r->params.sq_off.array);
	unsigned int *head = (unsigned int *)(r->cq + r->params.cq_off.head);
	unsigned int slot = *tail & (r->params.sq_entries - 1);
	struct io_uring_cqe *cqe;
	int res;

	r->sqe[slot] = (struct io_uring_sqe){ .opcode = op, .fd = file, .addr = at, .len = bytes };
	index[slot] = slot;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1)
		return -errno;
	cqe = (struct io_uring_cqe *)(r->cq + r->params.cq_off.cqes) + (*head & (r->params.cq_entries - 1));
	res = cqe->res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
	return res;
}

static void uring_works(uint32_t flags, const char *what)
{
	int fd, file = disk_file("uring", BUFFER, O_RDWR | O_DIRECT);
	char *p = buffer(&fd, BUFFER, flags, 7), *check = aligned_alloc(PAGE, BUFFER);
	struct ring r;

	if (!expect(ring_open(&r), 0, "io_uring_setup") || !expect(ring_register(&r, p, BUFFER), 0, "IORING_REGISTER_BUFFERS"))
		goto out;
	expect(ring_move(&r, IORING_OP_WRITE_FIXED, file, (uintptr_t)p, BUFFER), BUFFER, "WRITE_FIXED");
	paint(p, 8, 0, PAGES);
	expect(ring_move(&r, IORING_OP_READ_FIXED, file, (uintptr_t)p, BUFFER), BUFFER, "READ_FIXED");
	is_painted(p, 7, 0, PAGES, "read");
	paint(p, 9, 0, PAGES);
	/* The registration holds the pages, whoever lets go of the buffer. */
	drop(fd, p, BUFFER);
	expect(ring_move(&r, IORING_OP_WRITE_FIXED, file, (uintptr_t)p, BUFFER), BUFFER,
	       "WRITE_FIXED of a buffer that was closed");
	moved(pread(file, check, BUFFER, 0) + 0, "file");
	is_painted(check, 9, 0, PAGES, "the file");
	fd = -1;
out:
	ring_close(&r);
	if (fd >= 0)
		drop(fd, p, BUFFER);
	close(file);
	free(check);
	point(what, "io_uring reads and writes a registered buffer");
}

static void uring(void)
{
	struct pinion_info info;
	struct ring r;
	char *p;
	int fd;

	fd = ring_open(&r);
	if (fd == -ENOSYS || fd == -EPERM) {
		tap_skip("io: io_uring", "this kernel has none");
		return;
	}
	expect(fd, 0, "io_uring_setup");
	expect(dev_info(dev, &info), 0, "INFO");
	if (info.features & PINION_FEATURE_GUP_REGISTER) {
		ring_close(&r);
		uring_works(0, "io");
		uring_works(PINION_ALLOC_HUGE_NEVER, "io of small pages");
		expect(dev_alloc(dev, PAGE, PINION_ALLOC_SHMEM), -EOPNOTSUPP, "ALLOC of SHMEM");
		point("io", "a kernel that does without has no shared memory");
		return;
	}
	p = buffer(&fd, PAGE, 0, 1);
	expect(ring_register(&r, p, PAGE), -EOPNOTSUPP, "IORING_REGISTER_BUFFERS");
	drop(fd, p, PAGE);
	ring_close(&r);
	point("io", "an old io_uring refuses the default memory");
	uring_works(PINION_ALLOC_SHMEM, "io of shared memory");
}

/* ---- sockets ------------------------------------------------------------------------------------------------------- */

static bool loopback_up(void)
{
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &lo);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* A pair of connected sockets; false without. */
static bool connection(int end[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	bool ok;

	end[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ok = !bind(listener, (void *)&at, len) && !listen(listener, 1) && !getsockname(listener, (void *)&at, &len) &&
	     !connect(end[0], (void *)&at, len) && (end[1] = accept(listener, NULL, NULL)) >= 0 &&
	     !setsockopt(end[0], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one));
	close(listener);
	return ok;
}

static void zero_copy(void)
{
	const size_t bytes = 16 * PAGE;
	char *got = malloc(bytes), *p, control[128];
	struct msghdr note = { .msg_control = control, .msg_controllen = sizeof(control) };
	int fd, end[2] = { -1, -1 };

	if (!loopback_up()) {
		free(got);
		tap_skip("io: MSG_ZEROCOPY over loopback", "no network: %s", strerror(errno));
		return;
	}
	p = buffer(&fd, bytes, 0, 10);
	if (!connection(end))
		wrong("connection: %s", strerror(errno));
	else if (send(end[0], p, bytes, MSG_ZEROCOPY) != (ssize_t)bytes)
		wrong("send: %s", strerror(errno));
	drop(fd, p, bytes);
	if (!*state_wrong && recv(end[1], got, bytes, MSG_WAITALL) != (ssize_t)bytes)
		wrong("recv: %s", strerror(errno));
	is_painted(got, 10, 0, bytes / PAGE, "received");
	/* The kernel says when it is done with the pages. */
	if (!*state_wrong && poll(&(struct pollfd){ .fd = end[0] }, 1, PATIENCE_MS) != 1)
		wrong("no notice of the end in half a minute");
	if (!*state_wrong && recvmsg(end[0], &note, MSG_ERRQUEUE) < 0)
		wrong("no notice of the end: %s", strerror(errno));
	close(end[0]);
	close(end[1]);
	free(got);
	point("io", "MSG_ZEROCOPY over loopback");
}

/* A device would write into the page when the session has ended. */
static void counter_page(void)
{
	int file = disk_file("counters", PAGE, O_RDWR | O_DIRECT), second = dev_open(O_RDWR);
	char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, second, PINION_MMAP_COUNTERS);
	char *full = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* A hole would be zeroed by the processor. */
	if (page == MAP_FAILED || pwrite(file, full, PAGE, 0) != (ssize_t)PAGE)
		wrong("a page or a file: %s", strerror(errno));
	else if (pread(file, page, PAGE, 0) >= 0 || errno != EFAULT)
		wrong("read into it is not EFAULT");
	else
		munmap(page, PAGE);
	munmap(full, PAGE);
	close(second);
	close(file);
	point("io", "a counter page cannot be pinned, by O_DIRECT to begin with");
}

/* What was given back is not kept from being swapped, whoever still has it mapped. */
static void shared_memory_let_go(void)
{
	uint64_t start = meminfo("Unevictable:");
	int fd = dev_alloc(dev, 4 * HUGE, PINION_ALLOC_SHMEM);
	char *p = dev_map(fd, 4 * HUGE, PROT_READ | PROT_WRITE);
	uint64_t left = 0;

	close(fd);
	if (p == MAP_FAILED || !eventually((left = meminfo("Unevictable:")) <= start + HUGE))
		wrong("%llu KiB are unevictable yet", (unsigned long long)(left - start) >> 10);
	munmap(p, 4 * HUGE);
	point("io of shared memory", "memory that was let go can be swapped while it is mapped");
}

int main(void)
{
	struct pinion_info info;
	struct state start;
	int ret;

	dev = dev_open(O_RDWR);
	start = state_now(dev);
	ret = disk_mount();
	if (expect(ret, 0, "%s", disk_step)) {
		direct(0, "io");
		direct(PINION_ALLOC_HUGE_NEVER, "io of small pages");
		pipes(0, "io");
		pipes(PINION_ALLOC_HUGE_NEVER, "io of small pages");
		processes(0, "io");
		if (!dev_info(dev, &info) && info.features & PINION_FEATURE_SHMEM) {
			direct(PINION_ALLOC_SHMEM, "io of shared memory");
			processes(PINION_ALLOC_SHMEM, "io of shared memory");
			shared_memory_let_go();
		}
		counter_page();
		uring();
		expect(disk_unmount(), 0, "umount");
	}
	zero_copy();
	state_same(dev, &start);
	point("io", "bytes, buffers and descriptors are what they were");
	return tap_end();
}
