// SPDX-License-Identifier: MIT
/*
 * Buffers as large as weights are, where 32 bits of bytes, an int of bytes or a GiB at once would be too small: every part of 3
 * GiB is there and where it belongs, io_uring takes it in pieces of at most 1 GiB, and 1 GiB is had on a machine whose memory is
 * in shreds.
 */
#define _GNU_SOURCE
#include "bytes.h"
#include "ring.h"
#include "shred.h"

#include <sys/uio.h>

#define GIB   (1UL << 30)
#define LARGE (3 * GIB)
#define EDGE  (16 * PAGE) /* looked at on both sides of where something may overflow */

static int dev;
static uint32_t backing; /* what the io_uring of this kernel registers */

static void limits(uint64_t bytes)
{
	parameter_set("max_bytes", bytes);
	parameter_set("max_user_bytes", bytes);
}

static char *make(uint64_t bytes, uint32_t flags, int *fd)
{
	char *p;

	*fd = dev_alloc(dev, bytes, flags);
	if (!expect(*fd, 0, "ALLOC of %lu MiB with flags %x", bytes >> 20, flags))
		return MAP_FAILED;
	p = dev_map_aligned(*fd, bytes, PROT_READ | PROT_WRITE);
	if (p == MAP_FAILED)
		wrong("mmap of %lu MiB: %s", bytes >> 20, strerror(errno));
	return p;
}

static const uint64_t edges[] = { EDGE, GIB, 2 * GIB, LARGE - EDGE };

#define EDGES (sizeof(edges) / sizeof(edges[0]))

/* The pages around each edge: of a pattern by their number. */
static void mark(char *p, uint64_t seed)
{
	for (size_t i = 0; i < EDGES; i++)
		paint(p + edges[i] - EDGE, seed, (edges[i] - EDGE) / PAGE, 2 * EDGE / PAGE);
}

static void marked(const char *p, uint64_t seed, const char *what)
{
	for (size_t i = 0; i < EDGES; i++)
		is_painted(p + edges[i] - EDGE, seed, (edges[i] - EDGE) / PAGE, 2 * EDGE / PAGE, what);
}

static void all_of_it(int fd, char *p)
{
	struct pinion_bufinfo info;
	char *part;
	int slice;

	if (dev_bufinfo(dev, fd, &info) || info.bytes != LARGE || lseek(fd, 0, SEEK_END) != (off_t)LARGE)
		wrong("BUFINFO says %llu bytes, lseek %lld", info.bytes, (long long)lseek(fd, 0, SEEK_END));
	if (dev_bytes(dev) != LARGE)
		wrong("INFO says %lu bytes in use", dev_bytes(dev));
	mark(p, 1);
	slice = dev_slice(dev, fd, 2 * GIB - EDGE, GIB + EDGE, PINION_RIGHT_READ);
	part = mmap(NULL, 2 * EDGE, PROT_READ, MAP_SHARED, slice, 0);
	if (part == MAP_FAILED)
		wrong("a slice's mapping: %s", strerror(errno));
	else
		is_painted(part, 1, (2 * GIB - EDGE) / PAGE, 2 * EDGE / PAGE, "a slice over 2 GiB");
	munmap(part, 2 * EDGE);
	part = mmap(NULL, EDGE, PROT_READ, MAP_SHARED, slice, GIB);
	if (part == MAP_FAILED || !is_painted(part, 1, (LARGE - EDGE) / PAGE, EDGE / PAGE, "its last pages"))
		wrong("its last pages: %s", strerror(errno));
	munmap(part, EDGE);
	close(slice);
	marked(p, 1, "the buffer");
	point("large", "3 GiB are there, and a slice over their end shows them");
}

/* What another process reads crosses 2 GiB in one call. */
static void by_another(char *p)
{
	const uint64_t from = 2 * GIB - EDGE;
	pid_t pid = fork();
	int status;

	if (!pid) {
		char *own = malloc(2 * EDGE);
		struct iovec here = { own, 2 * EDGE }, there = { p + from, 2 * EDGE };

		_exit(process_vm_readv(getppid(), &here, 1, &there, 1, 0) != 2 * (ssize_t)EDGE ||
		      !is_painted(own, 1, from / PAGE, 2 * EDGE / PAGE, "the other"));
	}
	if (waitpid(pid, &status, 0) != pid || status)
		wrong("another process reads something else");
	point("large", "another process reads over 2 GiB");
}

/* One registered buffer is at most 1 GiB: what the library splits, and the kernel takes split. */
static void registered(char *p)
{
	struct iovec whole = { p, LARGE }, parts[3];
	struct io_uring_sqe *sqe;
	struct ring r;
	int zero, ret, n;

	ret = ring_open(&r, 0);
	if (ret == -ENOSYS || ret == -EPERM) {
		tap_skip("io: io_uring", "this kernel has none");
		return;
	}
	expect(ret, 0, "io_uring_setup");
	zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	ret = syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_BUFFERS, &whole, 1) ? -errno : 0;
	if (!ret)
		wrong("3 GiB are registered as one buffer");
	for (int i = 0; i < 3; i++)
		parts[i] = (struct iovec){ p + i * GIB, GIB };
	expect(syscall(SYS_io_uring_register, r.fd, IORING_REGISTER_BUFFERS, parts, 3) ? -errno : 0, 0,
	       "IORING_REGISTER_BUFFERS of 3 x 1 GiB");
	mark(p, 2);
	/* The last page of each part becomes zero, and nothing behind it does. Of more than a page a read may be short. */
	for (int i = 0; i < 3 && !*state_wrong; i++) {
		sqe = ring_next(&r, IORING_OP_READ_FIXED, zero, i);
		sqe->addr = (uintptr_t)p + (i + 1) * GIB - PAGE;
		sqe->len = PAGE;
		sqe->buf_index = i;
		n = ring_do(&r);
		if (n != (int)PAGE)
			wrong("READ_FIXED into part %d: %d", i, n);
	}
	for (int i = 0; i < 3 && !*state_wrong; i++) {
		for (uint64_t at = (i + 1) * GIB - PAGE; at < (i + 1) * GIB; at += 8)
			if (*(uint64_t *)(p + at))
				wrong("part %d: byte %lu was not read into", i, at);
		if (i < 2)
			is_painted(p + (i + 1) * GIB, 2, (i + 1) * GIB / PAGE, EDGE / PAGE, "behind a part");
	}
	close(zero);
	ring_close(&r);
	point("large", "io_uring takes it in parts of 1 GiB, and no more at once");
}

/* A ring lets go of what was registered some time after its last close. */
static void until_free(uint64_t bytes)
{
	if (!eventually(meminfo("MemAvailable") >= bytes))
		wrong("%lu MiB are free, not %lu", meminfo("MemAvailable") >> 20, bytes >> 20);
}

/* Of what was @available at the start one large buffer takes most, the rest is shredded. */
static void in_shreds(uint64_t available)
{
	uint64_t keep = GIB + GIB / 4;
	struct pinion_bufinfo info = { 0 };
	int most, fd;
	char *p;

	until_free(available - GIB / 8);
	most = dev_alloc(dev, (available - GIB / 8 - keep) & ~(HUGE - 1), 0);
	expect(most, 0, "ALLOC of what is not needed");
	shred(dev, 64UL << 20);
	p = make(GIB, 0, &fd);
	if (p != MAP_FAILED) {
		if (dev_bufinfo(dev, fd, &info) || info.bytes != GIB || info.huge_bytes >= GIB / 2)
			wrong("BUFINFO says %llu bytes, %llu in huge pages", info.bytes, info.huge_bytes);
		printf("# %llu of 1024 MiB in huge pages\n", info.huge_bytes >> 20);
		paint(p, 4, 0, 16);
		paint(p + GIB - EDGE, 4, (GIB - EDGE) / PAGE, 16);
		is_painted(p, 4, 0, 16, "its start");
		is_painted(p + GIB - EDGE, 4, (GIB - EDGE) / PAGE, 16, "its end");
		munmap(p, GIB);
	}
	close(fd);
	unshred();
	close(most);
	point("large", "1 GiB is had where memory is in shreds");
}

int main(void)
{
	struct pinion_info info;
	uint64_t available = meminfo("MemAvailable");
	struct state start;
	char *p;
	int fd;

	dev = dev_open(O_RDWR);
	if (!tap_ok(dev >= 0 && !dev_info(dev, &info), "open", "%d", dev))
		return tap_end();
	start = state_now(dev);
	backing = info.features & PINION_FEATURE_GUP_REGISTER ? 0 : PINION_ALLOC_SHMEM;
	limits(1ULL << 40);
	p = make(LARGE, backing, &fd);
	if (p != MAP_FAILED) {
		all_of_it(fd, p);
		by_another(p);
		registered(p);
		munmap(p, LARGE);
	}
	close(fd);
	in_shreds(available);
	limits(0);
	state_same(dev, &start);
	point("large", "bytes, buffers and descriptors are what they were");
	return tap_end();
}
