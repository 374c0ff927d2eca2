// SPDX-License-Identifier: MIT
/* The frame of the calls: sizes, flags, reserved fields, addresses, descriptors, numbers, read-only opens, 32-bit callers. */
#define _GNU_SOURCE
#include "calls.h"
#include "caller_32.h"
#include "vgem.h"

#include <limits.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define FILL	0xa5
#define NOWHERE 0x8000 /* below what may be mapped */

/* Two pages; before and behind them is nothing that can be read or written. */
static unsigned char *room;

static void room_open(void)
{
	unsigned char *span = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (span == MAP_FAILED || mprotect(span + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE))
		wrong("room: %s", strerror(errno));
	room = span + PAGE;
}

/* The arguments of @c at @at, so long as @size says, what is behind them for the call to leave alone. */
static void place(const struct call *c, unsigned char *at, uint32_t size)
{
	union args a = { 0 };
	size_t bytes = c->size;

	c->make(&a);
	a.size = size;
	memset(room, FILL, 2 * PAGE);
	if (size > c->size && at + size <= room + 2 * PAGE)
		memset(at + c->size, 0, size - c->size);
	/* A caller of the first version has no more than that. */
	if (size >= call_least(c) && size < c->size)
		bytes = size;
	memcpy(at, &a, size > c->size || at + bytes <= room + 2 * PAGE ? bytes : (size_t)(room + 2 * PAGE - at));
}

static int done(const struct call *c, const void *at)
{
	int ret = dev_call(given.dev, c->cmd, (void *)at);

	if (!ret)
		call_undo(c, at);
	return ret;
}

/* A call that must fail and leave the whole room as it is. */
static bool fails(const struct call *c, unsigned char *at, int want, const char *what, unsigned long which)
{
	static unsigned char copy[2 * PAGE];

	memcpy(copy, room, sizeof(copy));
	if (!expect(done(c, at), want, "%s %lu", what, which))
		return false;
	if (memcmp(copy, room, sizeof(copy)))
		wrong("%s %lu: the struct was written to", what, which);
	return true;
}

static void sizes_of_struct(const struct call *c)
{
	struct state was = state_now(given.dev);

	for (unsigned long size = 0; size <= PAGE + 8; size++) {
		place(c, room, size);
		if (size < call_least(c)) {
			fails(c, room, -EINVAL, "size", size);
		} else if (size > PAGE) {
			fails(c, room, -E2BIG, "size", size);
		} else {
			expect(done(c, room), 0, "size %lu", size);
			for (unsigned long i = size < c->size ? size : c->size; i < 2 * PAGE; i++)
				if (room[i] != (i < size ? 0 : FILL))
					wrong("size %lu: byte %lu was written to", size, i);
		}
	}
	for (unsigned int bit = 13; bit < 32; bit++) {
		place(c, room, PAGE);
		*(uint32_t *)room = 1U << bit;
		fails(c, room, -E2BIG, "size of bit", bit);
	}
	state_same(given.dev, &was);
	point(c->name, "every size of the struct");

	for (unsigned long size = c->size + 1; size <= PAGE; size += size < c->size + 64 ? 1 : 61) {
		place(c, room, size);
		room[size - 1] = 1;
		fails(c, room, -E2BIG, "last byte set in size", size);
		place(c, room, size);
		room[c->size] = 0x80;
		fails(c, room, -E2BIG, "first unknown byte set in size", size);
	}
	state_same(given.dev, &was);
	point(c->name, "an unknown tail that is not zero");
}

static void bits(const struct call *c, size_t offset, uint32_t allowed, const char *what)
{
	for (unsigned int bit = 0; bit < 32; bit++) {
		if (allowed & 1U << bit)
			continue;
		place(c, room, c->size);
		*(uint32_t *)(room + offset) |= 1U << bit;
		fails(c, room, -EINVAL, what, bit);
	}
}

static void flags_and_reserved(const struct call *c)
{
	struct state was = state_now(given.dev);

	bits(c, offsetof(struct pinion_alloc, flags), c->flags, "flag");
	state_same(given.dev, &was);
	point(c->name, "every unknown flag");
	for (unsigned int i = 0; i < 2 && c->reserved[i]; i++)
		bits(c, c->reserved[i], 0, "reserved bit");
	state_same(given.dev, &was);
	point(c->name, "every bit of a reserved field");
}

static void addresses(const struct call *c)
{
	const uintptr_t bad[] = { 0,
				  1,
				  4095,
				  NOWHERE,
				  (uintptr_t)room - PAGE,
				  (uintptr_t)room + 2 * PAGE,
				  0x7ffffffff000,
				  0x800000000000,
				  0x8000000000000000,
				  0xffff888000000000,
				  0xffffffff81000000,
				  ~0UL - 2,
				  ~0UL };
	struct state was = state_now(given.dev);
	unsigned char *end = room + 2 * PAGE, *beyond;
	int empty = memfd_create("empty", MFD_CLOEXEC);

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect(dev_call(given.dev, c->cmd, (void *)bad[i]), -EFAULT, "%#lx", bad[i]);
	/* A page of a file past its end: a signal to a program, an error to a call. */
	beyond = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, empty, 0);
	expect(dev_call(given.dev, c->cmd, beyond), -EFAULT, "past the end of a file");
	munmap(beyond, PAGE);
	close(empty);
	point(c->name, "an address that is none");

	place(c, end - c->size, c->size);
	expect(done(c, end - c->size), 0, "up to the end of the last page");
	for (unsigned long cut = 1; cut <= c->size; cut++) {
		place(c, end - c->size + cut, c->size);
		fails(c, end - c->size + cut, -EFAULT, "bytes beyond the end:", cut);
		place(c, room, c->size);
		fails(c, room - cut, -EFAULT, "bytes before the start:", cut);
	}
	for (unsigned long more = 1; more <= 64; more++) {
		place(c, end - c->size, c->size + more);
		fails(c, end - c->size, -EFAULT, "unknown bytes beyond the end:", more);
	}
	/* Over the boundary of two pages nothing is special. */
	for (unsigned long part = 1; part < c->size; part++) {
		place(c, room + PAGE - part, c->size);
		expect(done(c, room + PAGE - part), 0, "%lu bytes in the first page", part);
	}
	state_same(given.dev, &was);
	point(c->name, "the end of the mapped memory");

	place(c, room + PAGE, c->size);
	mprotect(room, 2 * PAGE, PROT_READ);
	fails(c, room + PAGE, -EFAULT, "read-only, at", 0);
	mprotect(room, 2 * PAGE, PROT_NONE);
	expect(dev_call(given.dev, c->cmd, room + PAGE), -EFAULT, "no access");
	mprotect(room, 2 * PAGE, PROT_READ | PROT_WRITE);
	/* All of it is read, part of it cannot be written: nothing is left that nobody was told of. */
	place(c, room + PAGE - 8, c->size);
	mprotect(room + PAGE, PAGE, PROT_READ);
	expect(dev_call(given.dev, c->cmd, room + PAGE - 8), -EFAULT, "read-only from byte 8 on");
	mprotect(room + PAGE, PAGE, PROT_READ | PROT_WRITE);
	state_same(given.dev, &was);
	point(c->name, "a struct in read-only memory");
}

static atomic_bool changing;

static void *change_size(void *unused)
{
	static const unsigned int sizes[] = { 0, 40, 72, 80, 120, 128, PAGE, ~0U };
	atomic_uint *size = (atomic_uint *)room;

	(void)unused;
	for (unsigned int i = 0; atomic_load(&changing); i++)
		atomic_store(size, sizes[i % 8]);
	return NULL;
}

/* The size is read once: what another thread makes of it meanwhile reaches no byte behind the struct. */
static void size_that_changes(const struct call *c)
{
	struct state was = state_now(given.dev);
	pthread_t thread;

	place(c, room, c->size);
	atomic_store(&changing, true);
	if (pthread_create(&thread, NULL, change_size, NULL))
		wrong("no thread");
	for (int i = 0; i < 3000; i++) {
		int ret = done(c, room);

		if (ret && ret != -EINVAL && ret != -E2BIG)
			wrong("call %d: %s", i, strerror(-ret));
	}
	atomic_store(&changing, false);
	pthread_join(thread, NULL);
	for (size_t i = c->size; i < 2 * PAGE; i++)
		if (room[i] != FILL)
			wrong("byte %zu was written to", i);
	state_same(given.dev, &was);
	point(c->name, "a size that another thread changes");
}

/* ---- descriptors ----------------------------------------------------------------------------------------------------- */

/* A dma-buf of somebody else, or -1. */
static int dmabuf_of_udmabuf(void)
{
	int dev = open("/dev/udmabuf", O_RDWR | O_CLOEXEC), memfd = given_memfd(F_SEAL_SHRINK), fd;
	struct udmabuf_create create = { .memfd = memfd, .flags = UDMABUF_FLAGS_CLOEXEC, .size = PAGE };

	fd = dev < 0 ? -1 : ioctl(dev, UDMABUF_CREATE, &create);
	close(memfd);
	if (dev >= 0)
		close(dev);
	return fd;
}

static int dmabuf_of_heap(void)
{
	struct dma_heap_allocation_data data = { .len = PAGE, .fd_flags = O_RDWR | O_CLOEXEC };
	int dev = open("/dev/dma_heap/system", O_RDWR | O_CLOEXEC);
	int ret = dev < 0 ? -1 : ioctl(dev, DMA_HEAP_IOCTL_ALLOC, &data);

	if (dev >= 0)
		close(dev);
	return ret ? -1 : (int)data.fd;
}

static int dmabuf_of_vgem(void)
{
	int vgem = vgem_open(), fd = vgem < 0 ? vgem : vgem_export(vgem);

	if (vgem >= 0)
		close(vgem);
	return fd;
}

/* What the three calls that take a descriptor say of @fd. */
static void descriptor(int fd, int slice, int pin, const char *what)
{
	union args a = { 0 };

	make_slice(&a);
	a.slice.fd = fd;
	expect(dev_call(given.dev, PINION_IOC_SLICE, &a), slice, "SLICE of %s", what);
	make_bufinfo(&a);
	a.bufinfo.fd = fd;
	expect(dev_call(given.dev, PINION_IOC_BUFINFO, &a), slice, "BUFINFO of %s", what);
	make_pin_fd(&a);
	a.pin.fd = fd;
	expect(dev_call(given.dev, PINION_IOC_PIN, &a), pin, "PIN of %s", what);
}

static void foreign(int (*make)(void), const char *name, const char *what)
{
	struct state was = state_now(given.dev);
	int fd = make();

	if (fd < 0) {
		tap_skip(name, "this kernel makes none");
		return;
	}
	descriptor(fd, -EINVAL, -EOPNOTSUPP, what);
	close(fd);
	state_same(given.dev, &was);
	point("descriptors", what);
}

static void descriptors(void)
{
	struct state was = state_now(given.dev);
	int fds[2], closed = dup(0), fd;
	char path[64];
	union args a;

	close(closed);
	for (int bad = INT_MIN; bad < 0; bad = bad < -1 ? bad / 2 : 0)
		descriptor(bad, -EBADF, -EBADF, "a negative number");
	descriptor(closed, -EBADF, -EBADF, "a closed descriptor");
	descriptor(INT_MAX, -EBADF, -EBADF, "a descriptor that cannot be");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", given.buffer);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd >= 0) {
		descriptor(fd, -EBADF, -EBADF, "a path");
		close(fd);
	}
	point("descriptors", "none");

	descriptor(given.dev, -EINVAL, -EOPNOTSUPP, "the device");
	descriptor(0, -EINVAL, -EOPNOTSUPP, "/dev/null");
	if (pipe2(fds, O_CLOEXEC))
		wrong("pipe: %s", strerror(errno));
	descriptor(fds[1], -EINVAL, -EOPNOTSUPP, "a pipe");
	close(fds[0]);
	close(fds[1]);
	fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	descriptor(fd, -EINVAL, -EOPNOTSUPP, "a file of proc");
	close(fd);
	fd = open("/dev/shm", O_RDONLY | O_CLOEXEC);
	descriptor(fd, -EINVAL, -EOPNOTSUPP, "a directory of tmpfs");
	close(fd);
	fd = open("/dev/shm/abi", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (ftruncate(fd, 2 * PAGE))
		wrong("ftruncate: %s", strerror(errno));
	descriptor(fd, -EINVAL, -EINVAL, "a file of tmpfs, which cannot be sealed");
	unlink("/dev/shm/abi");
	close(fd);
	fd = given_memfd(0);
	descriptor(fd, -EINVAL, -EINVAL, "a memfd without a seal");
	close(fd);
	fd = given_memfd(F_SEAL_SHRINK | F_SEAL_WRITE);
	descriptor(fd, -EINVAL, -EPERM, "a memfd sealed against writing");
	close(fd);
	make_pin_fd(&a);
	a.pin.fd = given.buffer;
	expect(dev_call(given.dev, PINION_IOC_PIN, &a), -EOPNOTSUPP, "PIN of a buffer");
	make_pin(&a);
	for (int n = -2; n < 3; n++) {
		if (n == -1)
			continue;
		a.pin.fd = n;
		expect(dev_call(given.dev, PINION_IOC_PIN, &a), -EINVAL, "PIN of a range with descriptor %d", n);
	}
	state_same(given.dev, &was);
	point("descriptors", "of something else");

	foreign(dmabuf_of_vgem, "a dma-buf of vgem", "a dma-buf of vgem");
	foreign(dmabuf_of_udmabuf, "a dma-buf of udmabuf", "a dma-buf of udmabuf");
	foreign(dmabuf_of_heap, "a dma-buf of a heap", "a dma-buf of a heap");
}

/* ---- numbers, opens, callers ----------------------------------------------------------------------------------------- */

/* Those of counts are counts_abi's. */
static bool known(unsigned int cmd)
{
	static const unsigned int counts[] = { PINION_IOC_DEV_ADD, PINION_IOC_DEV_GET, PINION_IOC_DEV_SET, PINION_IOC_DEV_DEL,
					       PINION_IOC_ATTACH,  PINION_IOC_DETACH,  PINION_IOC_RESET,   PINION_IOC_ADD,
					       PINION_IOC_READ,	   PINION_IOC_KICK,    PINION_IOC_RESERVE, PINION_IOC_CLAIMINFO,
					       PINION_IOC_WAIT,	   PINION_IOC_WATCH };

	for
		EACH_CALL(c)
	if (c->cmd == cmd)
		return true;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		if (counts[i] == cmd)
			return true;
	return false;
}

static void numbers(void)
{
	struct state was = state_now(given.dev);

	for (unsigned int nr = 0; nr < 256; nr++)
		for (unsigned int dir = 0; dir < 4; dir++)
			for (unsigned int size = 0; size < 129; size += 64) {
				unsigned int cmd = _IOC(dir, PINION_IOC_MAGIC, nr, size);

				if (known(cmd))
					continue;
				memset(room, 0, PAGE);
				expect(dev_call(given.dev, cmd, room), -ENOTTY, "%#x", cmd);
				expect(dev_call(given.read_only, cmd, NULL), -ENOTTY, "%#x read-only", cmd);
			}
	for (unsigned int magic = 1; magic < 256; magic++)
		/* The VFS has calls of its own with these. */
		if (magic != PINION_IOC_MAGIC && magic != 'T' && magic != 'X' && magic != 'f' && magic != 0x94)
			expect(dev_call(given.dev, _IO(magic, 0x10), room), -ENOTTY, "magic %#x", magic);
	/* 2 is the VFS's: the size of a block. Whoever answers, it is not this module. */
	expect(dev_call(given.dev, 1, room), -ENOTTY, "number 1");
	expect(dev_call(given.dev, 2, NULL), -EFAULT, "number 2, for which the VFS answers");
	state_same(given.dev, &was);
	point("numbers", "every one that is no call");
}

static void not_a_file(void)
{
	char byte = 0;

	expect(read(given.dev, &byte, 1) < 0 ? -errno : 0, -EINVAL, "read");
	expect(write(given.dev, &byte, 1) < 0 ? -errno : 0, -EINVAL, "write");
	expect(lseek(given.dev, 0, SEEK_SET) < 0 ? -errno : 0, -ESPIPE, "lseek");
	expect(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, given.dev, 2 * PAGE) == MAP_FAILED ? -errno : 0, -EINVAL, "mmap");
	point("device", "is no file to read, write or seek, and maps nothing at a place it does not know");
}

static void read_only(void)
{
	struct state was = state_now(given.dev);

	for
		EACH_CALL(c)
		{
			union args a = { 0 };

			c->make(&a);
			expect(dev_call(given.read_only, c->cmd, &a), c->fd ? -EACCES : 0, "%s", c->name);
			a.size = 0;
			expect(dev_call(given.read_only, c->cmd, &a), c->fd ? -EACCES : -EINVAL, "%s of no size", c->name);
			expect(dev_call(given.read_only, c->cmd, NULL), c->fd ? -EACCES : -EFAULT, "%s of nothing", c->name);
		}
	state_same(given.dev, &was);
	point("read-only open", "looks and changes nothing");
}

#ifdef __x86_64__
static void caller_32(void)
{
	struct state was;
	union args *a;

	if (!has_32()) {
		tap_skip("a 32-bit caller", "this kernel has none");
		return;
	}
	was = state_now(given.dev);
	a = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	for
		EACH_CALL(c)
		{
			if (!call_exists(c))
				continue;
			memset(a, 0, sizeof(*a));
			c->make(a);
			if (expect(call_32(given.dev, c->cmd, a), 0, "%s", c->name))
				call_undo(c, a);
			c->make(a);
			a->size = call_least(c) - 1;
			expect(call_32(given.dev, c->cmd, a), -EINVAL, "%s of a byte less", c->name);
			expect(call_32(given.dev, c->cmd, NULL), -EFAULT, "%s of nothing", c->name);
			expect(call_32(given.read_only, c->cmd, a), c->fd ? -EACCES : -EINVAL, "%s read-only", c->name);
		}
	expect(call_32(given.dev, PINION_IOC(0xff), a), -ENOTTY, "an unknown number");
	munmap(a, PAGE);
	state_same(given.dev, &was);
	point("a 32-bit caller", "every call");
}
#endif

/* ---- arguments ------------------------------------------------------------------------------------------------------- */

static int alloc_with(uint64_t bytes, uint32_t flags, int32_t node)
{
	union args a = { 0 };
	int ret;

	make_alloc(&a);
	a.alloc.bytes = bytes;
	a.alloc.flags = flags;
	a.alloc.node = node;
	ret = dev_call(given.dev, PINION_IOC_ALLOC, &a);
	if (ret)
		return ret;
	if (a.alloc.out_bytes != (bytes + PAGE - 1) / PAGE * PAGE || a.alloc.out_huge_bytes > a.alloc.out_bytes)
		wrong("%llu bytes for %lu asked for, %llu of them huge", a.alloc.out_bytes, bytes, a.alloc.out_huge_bytes);
	close(a.alloc.fd);
	return 0;
}

static void sizes_of_buffers(void)
{
	const uint64_t none[] = { 0,
				  1ULL << 62,
				  (1ULL << 63) - PAGE,
				  (1ULL << 63) - 1,
				  1ULL << 63,
				  (1ULL << 63) + 1,
				  ~0ULL - PAGE,
				  ~0ULL - PAGE + 1,
				  ~0ULL - PAGE + 2,
				  ~0ULL - 1,
				  ~0ULL,
				  (uint64_t)INT_MAX * PAGE,
				  ((uint64_t)INT_MAX + 1) * PAGE,
				  1ULL << 44 };
	const uint64_t some[] = {
		1, PAGE - 1, PAGE, PAGE + 1, 16 * PAGE - 1, 16 * PAGE + 1, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 17 * PAGE
	};
	struct state was = state_now(given.dev);
	uint64_t most = was.info.max_buffer_bytes;

	for (unsigned int i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		expect(alloc_with(none[i], 0, PINION_NODE_ANY), -EINVAL, "ALLOC of %#lx bytes", none[i]);
	expect(alloc_with(most + 1, 0, PINION_NODE_ANY), -EINVAL, "ALLOC of a byte more than the largest");
	expect(alloc_with(most, 0, PINION_NODE_ANY), -ENOMEM, "ALLOC of the largest");
	expect(alloc_with(most - 1, PINION_ALLOC_HUGE_NEVER, PINION_NODE_ANY), -ENOMEM, "ALLOC of nearly the largest");
	expect(alloc_with(most, PINION_ALLOC_SHMEM, PINION_NODE_ANY),
	       was.info.features & PINION_FEATURE_SHMEM ? -ENOMEM : -EOPNOTSUPP, "SHMEM of the largest");
	for (unsigned int i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
		expect(alloc_with(some[i], 0, PINION_NODE_ANY), 0, "ALLOC of %lu bytes", some[i]);
		expect(alloc_with(some[i], PINION_ALLOC_HUGE_NEVER, PINION_NODE_ANY), 0, "ALLOC of %lu bytes, small pages",
		       some[i]);
		expect(alloc_with(some[i], PINION_ALLOC_WIPE_ON_FREE, 0), 0, "ALLOC of %lu bytes on node 0, wiped", some[i]);
	}
	state_same(given.dev, &was);
	point("ALLOC", "every size of a buffer");
}

static void flags_together(void)
{
	const struct {
		uint64_t bytes;
		uint32_t flags;
		int32_t node;
		int want;
	} all[] = {
		{ HUGE, PINION_ALLOC_HUGE_REQUIRE | PINION_ALLOC_HUGE_NEVER, -1, -EINVAL },
		{ PAGE, PINION_ALLOC_HUGE_REQUIRE, -1, -EINVAL },
		{ HUGE + PAGE, PINION_ALLOC_HUGE_REQUIRE, -1, -EINVAL },
		{ HUGE - 1, PINION_ALLOC_HUGE_REQUIRE, -1, -EINVAL },
		{ HUGE, PINION_ALLOC_SHMEM | PINION_ALLOC_HUGE_REQUIRE, -1, -EINVAL },
		{ HUGE, PINION_ALLOC_SHMEM | PINION_ALLOC_WIPE_ON_FREE, -1, -EINVAL },
		{ PAGE, PINION_ALLOC_SHMEM, 0, -EOPNOTSUPP },
		{ PAGE, PINION_ALLOC_NODE_STRICT, -1, -EINVAL },
		{ PAGE, PINION_ALLOC_NODE_STRICT, 0, 0 },
		{ PAGE, 0, 0, 0 },
		{ PAGE, 0, -2, -EINVAL },
		{ PAGE, 0, INT_MIN, -EINVAL },
		{ PAGE, 0, INT_MAX, -EINVAL },
		{ PAGE, 0, 1023, -EINVAL },
		{ PAGE, 0, 1024, -EINVAL },
		{ PAGE, 0, 63, -EINVAL },
	};
	struct state was = state_now(given.dev);

	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		expect(alloc_with(all[i].bytes, all[i].flags, all[i].node), all[i].want, "ALLOC of %lu bytes, flags %#x, node %d",
		       all[i].bytes, all[i].flags, all[i].node);
	state_same(given.dev, &was);
	point("ALLOC", "flags and nodes together");
}

static int slice_with(int fd, uint64_t offset, uint64_t length, uint32_t rights)
{
	int ret = dev_slice(given.dev, fd, offset, length, rights);

	if (ret >= 0)
		close(ret);
	return ret;
}

static void slices(void)
{
	const uint64_t top = 1ULL << 63, all = ~0ULL - PAGE + 1;
	const struct {
		uint64_t offset, length;
		int want;
	} ranges[] = {
		{ 0, PAGE, 0 },
		{ 0, 2 * PAGE, 0 },
		{ PAGE, PAGE, 0 },
		{ 0, 0, -EINVAL },
		{ PAGE, 0, -EINVAL },
		{ 0, 1, -EINVAL },
		{ 1, PAGE, -EINVAL },
		{ 0, PAGE - 1, -EINVAL },
		{ 0, PAGE + 1, -EINVAL },
		{ 0, 3 * PAGE, -EINVAL },
		{ PAGE, 2 * PAGE, -EINVAL },
		{ 2 * PAGE, PAGE, -EINVAL },
		{ 2 * PAGE, 0, -EINVAL },
		{ top, PAGE, -EINVAL },
		{ PAGE, top, -EINVAL },
		{ top, top, -EINVAL },
		{ all, PAGE, -EINVAL },
		{ PAGE, all, -EINVAL },
		{ all, 2 * PAGE, -EINVAL },
		{ ~0ULL, ~0ULL, -EINVAL },
		{ 0, all, -EINVAL },
		{ 1ULL << 44, PAGE, -EINVAL },
	};
	struct state was = state_now(given.dev);
	union args a = { 0 };
	int part;

	for (unsigned int i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		expect(slice_with(given.buffer, ranges[i].offset, ranges[i].length, 0), ranges[i].want, "SLICE at %#lx of %#lx",
		       ranges[i].offset, ranges[i].length);
	for (unsigned int bit = 3; bit < 32; bit++)
		expect(slice_with(given.buffer, 0, PAGE, 1U << bit), -EINVAL, "right %u", bit);
	/* Rights only fall, and offsets are those of the slice. */
	part = dev_slice(given.dev, given.buffer, PAGE, PAGE, PINION_RIGHT_WRITE);
	expect(part, 0, "SLICE to write");
	expect(slice_with(part, 0, PAGE, PINION_RIGHT_WRITE), 0, "the same again");
	expect(slice_with(part, 0, PAGE, PINION_RIGHT_DMA_RW), -EACCES, "a right it has not");
	expect(slice_with(part, 0, PAGE, PINION_RIGHTS), -EACCES, "all rights");
	expect(slice_with(part, PAGE, PAGE, 0), -EINVAL, "what lies behind a slice");
	expect(slice_with(part, 0, 2 * PAGE, 0), -EINVAL, "more than a slice");
	expect(dev_bufinfo(given.dev, part, &a.bufinfo), 0, "BUFINFO");
	if (a.bufinfo.offset != PAGE || a.bufinfo.bytes != PAGE || a.bufinfo.pages_bytes != 2 * PAGE ||
	    a.bufinfo.rights != (PINION_RIGHT_READ | PINION_RIGHT_WRITE) || a.bufinfo.kind != PINION_KIND_PAGES)
		wrong("a slice at %llu of %llu of %llu, rights %#x, kind %u", a.bufinfo.offset, a.bufinfo.bytes,
		      a.bufinfo.pages_bytes, a.bufinfo.rights, a.bufinfo.kind);
	if ((fcntl(part, F_GETFL) & O_ACCMODE) != O_RDWR)
		wrong("a slice to write is not open for writing");
	close(part);
	part = dev_slice(given.dev, given.buffer, 0, PAGE, 0);
	if ((fcntl(part, F_GETFL) & O_ACCMODE) != O_RDONLY)
		wrong("a slice to read is open for writing");
	expect(slice_with(part, 0, PAGE, PINION_RIGHT_WRITE), -EACCES, "writing by a slice to read");
	close(part);
	state_same(given.dev, &was);
	point("SLICE", "ranges and rights");
}

static int pin_with(uint32_t flags, uint64_t addr, uint64_t bytes)
{
	union args a = { 0 };
	int ret;

	if (flags)
		make_pin_fd(&a);
	else
		make_pin(&a);
	a.pin.addr = addr;
	a.pin.bytes = bytes;
	ret = dev_call(given.dev, PINION_IOC_PIN, &a);
	if (!ret)
		close(a.pin.out_fd);
	return ret;
}

static void pins(void)
{
	const uint64_t top = 1ULL << 63, all = ~0ULL - PAGE + 1, at = (uintptr_t)given.range;
	struct state was = state_now(given.dev);
	uint64_t most = was.info.max_buffer_bytes;

	expect(pin_with(0, at, PAGE), 0, "a page");
	expect(pin_with(0, at + PAGE, PAGE), 0, "the other page");
	expect(pin_with(0, at, 0), -EINVAL, "nothing");
	expect(pin_with(0, at + 1, PAGE), -EINVAL, "an address in a page");
	expect(pin_with(0, at, PAGE + 1), -EINVAL, "part of a page");
	expect(pin_with(0, at, all), -EINVAL, "a range over the end of numbers");
	expect(pin_with(0, at, top), -EINVAL, "2^63 bytes");
	expect(pin_with(0, at, most + PAGE), -EINVAL, "more than the largest");
	expect(pin_with(0, all, PAGE), -EINVAL, "the last page");
	expect(pin_with(0, top, PAGE), -EFAULT, "2^63");
	expect(pin_with(0, 0x800000000000, PAGE), -EFAULT, "no address of a program");
	expect(pin_with(0, 0xffff888000000000, PAGE), -EFAULT, "an address of the kernel");
	expect(pin_with(0, NOWHERE, PAGE), -EFAULT, "nothing mapped");
	expect(pin_with(0, (uintptr_t)room - PAGE, PAGE), -EACCES, "memory that cannot be written");
	expect(pin_with(0, 0, PAGE), -EFAULT, "page 0");
	/* Within the limit of a buffer and beyond those of the user: refused before anything is taken. */
	expect(pin_with(0, PAGE, was.info.max_bytes / PAGE * PAGE + PAGE), -ENOMEM, "more than the limit");
	/* The addresses of user-mode Linux end before. */
	expect(pin_with(0, PAGE, most), user_mode() ? -EFAULT : -ENOMEM, "the largest");
	state_same(given.dev, &was);
	point("PIN", "addresses and sizes");

	expect(pin_with(PINION_PIN_FD, PAGE, PAGE), 0, "the second page");
	expect(pin_with(PINION_PIN_FD, 0, 0), -EINVAL, "nothing");
	expect(pin_with(PINION_PIN_FD, 1, PAGE), -EINVAL, "an offset in a page");
	expect(pin_with(PINION_PIN_FD, 0, PAGE - 1), -EINVAL, "part of a page");
	expect(pin_with(PINION_PIN_FD, 0, 3 * PAGE), -EINVAL, "more than the file has");
	expect(pin_with(PINION_PIN_FD, 2 * PAGE, PAGE), -EINVAL, "behind the file");
	expect(pin_with(PINION_PIN_FD, top, PAGE), -EINVAL, "offset 2^63");
	expect(pin_with(PINION_PIN_FD, all, PAGE), -EINVAL, "the last page");
	expect(pin_with(PINION_PIN_FD, PAGE, all), -EINVAL, "a range over the end of numbers");
	expect(pin_with(PINION_PIN_FD, 0, most), -ENOMEM, "the largest");
	state_same(given.dev, &was);
	point("PIN of a memfd", "offsets and sizes");
}

static int named(const struct call *c, size_t offset, const char *name, size_t bytes)
{
	place(c, room, c->size);
	memset(room + offset, 0, PINION_NAME_BYTES);
	memcpy(room + offset, name, bytes);
	return done(c, room);
}

static void names_of(const struct call *c, size_t offset)
{
	const char full[PINION_NAME_BYTES + 1] = "0123456789012345678901234567890X";
	struct state was = state_now(given.dev);

	expect(named(c, offset, "", 0), 0, "no name");
	expect(named(c, offset, full, PINION_NAME_BYTES - 1), 0, "31 bytes");
	expect(named(c, offset, full, PINION_NAME_BYTES), -EINVAL, "no end");
	expect(named(c, offset, " ~", 2), 0, "the first and the last printable");
	expect(named(c, offset, "a\0b", 3), -EINVAL, "bytes behind the end");
	expect(named(c, offset, "\0", 2), 0, "zeros");
	for (int i = 1; i < 256; i++) {
		const char byte[3] = { 'a', (char)i, 'b' };

		expect(named(c, offset, byte, 3), i < ' ' || i > '~' ? -EINVAL : 0, "byte %#x", i);
	}
	for (size_t i = 1; i < PINION_NAME_BYTES; i++) {
		char behind[PINION_NAME_BYTES] = { 0 };

		behind[i] = 'x';
		expect(named(c, offset, behind, sizeof(behind)), -EINVAL, "byte %zu behind the end of no name", i);
	}
	state_same(given.dev, &was);
	point(c->name, "every kind of name");
}

static void nodes_of_bufinfo(void)
{
	struct state was = state_now(given.dev);
	struct pinion_bufinfo info;
	uint64_t nodes[8];
	unsigned int have;

	expect(dev_bufinfo(given.dev, given.buffer, &info), 0, "no array");
	have = info.nr_nodes;
	if (!have)
		wrong("no node");
	for (unsigned int nr = 0; nr <= 8; nr++) {
		uint64_t sum = 0;

		memset(nodes, FILL, sizeof(nodes));
		memset(&info, 0, sizeof(info));
		info.size = sizeof(info);
		info.fd = given.buffer;
		info.nr_nodes = nr;
		info.nodes = nr ? (uintptr_t)nodes : 1;
		info.node_size = nr ? 8 : 0;
		expect(dev_call(given.dev, PINION_IOC_BUFINFO, &info), 0, "%u nodes", nr);
		if (info.nr_nodes != have)
			wrong("%u nodes, then %u", have, info.nr_nodes);
		for (unsigned int i = 0; i < 8; i++)
			if (i < nr && i < have)
				sum += nodes[i];
			else if (nodes[i] != 0x0101010101010101ULL * FILL)
				wrong("of %u nodes, number %u was written to", nr, i);
		if (nr >= have && sum != 2 * PAGE)
			wrong("%lu bytes on all nodes", sum);
	}
	for (unsigned int size = 0; size < 20; size++) {
		union args a = { 0 };

		make_bufinfo(&a);
		a.bufinfo.node_size = size;
		expect(dev_call(given.dev, PINION_IOC_BUFINFO, &a), size == 8 ? 0 : -EINVAL, "entries of %u bytes", size);
	}
	info = (struct pinion_bufinfo){ .size = sizeof(info), .fd = given.buffer, .nr_nodes = ~0U, .node_size = 8, .nodes = 0 };
	expect(dev_call(given.dev, PINION_IOC_BUFINFO, &info), -EFAULT, "nodes at 0");
	info.nodes = 0xffff888000000000;
	expect(dev_call(given.dev, PINION_IOC_BUFINFO, &info), -EFAULT, "nodes in the kernel");
	/* As many as there are lie before the end of the memory, however many are announced. */
	info.nodes = (uintptr_t)(room + 2 * PAGE) - 8UL * have;
	expect(dev_call(given.dev, PINION_IOC_BUFINFO, &info), 0, "2^32 - 1 nodes");
	state_same(given.dev, &was);
	point("BUFINFO", "nodes: none, fewer, more");
}

int main(void)
{
	struct state start;
	int dev = dev_open(O_RDWR);

	if (!tap_ok(dev >= 0, "open", "%s", strerror(-dev)))
		return tap_end();
	room_open();
	start = state_now(dev);
	close(dev);
	if (!given_open())
		return tap_end();
	for
		EACH_CALL(c)
		{
			if (!call_exists(c))
				continue;
			sizes_of_struct(c);
			flags_and_reserved(c);
			addresses(c);
			size_that_changes(c);
		}
	descriptors();
	numbers();
	not_a_file();
	read_only();
#ifdef __x86_64__
	caller_32();
#endif
	sizes_of_buffers();
	flags_together();
	slices();
	pins();
	names_of(&calls[1], offsetof(struct pinion_alloc, name));
	names_of(&calls[4], offsetof(struct pinion_pin, name));
	names_of(&calls[5], offsetof(struct pinion_pin, name));
	nodes_of_bufinfo();
	given_close(&start);
	return tap_end();
}
