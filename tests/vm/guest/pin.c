// SPDX-License-Identifier: MIT
/* PIN: of which memory, what the buffer then is, and what its owner can do to it. */
#define _GNU_SOURCE
#include "bytes.h"
#include "disk.h"
#include "import.h"
#include "mem.h"
#include "until.h"
#include "vgem.h"

#include <linux/falloc.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define PAGES	   8UL
#define RANGE	   (PAGES * PAGE)
#define HUGE_PAGES "/proc/sys/vm/nr_hugepages"

static int dev;
static bool hugetlb; /* there are huge pages to be had */

static char *anon(size_t bytes, int prot)
{
	char *p = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	return p;
}

static int memfd(size_t bytes, unsigned int flags, int seals)
{
	int fd = memfd_create("pin", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd < 0 || ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, seals))
		wrong("memfd: %s", strerror(errno));
	return fd;
}

static char *mapped(int fd, size_t bytes, int prot, int flags)
{
	char *p = mmap(NULL, bytes, prot, flags, fd, 0);

	if (p == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	return p;
}

/* A mapping at @offset, refused with @want; one that is made is undone. */
static void map_at_refused(int fd, int prot, off_t offset, int want, const char *what)
{
	void *p = mmap(NULL, PAGE, prot, MAP_SHARED, fd, offset);

	expect(p == MAP_FAILED ? -errno : 0, -want, "%s", what);
	if (p != MAP_FAILED)
		munmap(p, PAGE);
}

static void map_refused(int fd, int prot, int want, const char *what)
{
	map_at_refused(fd, prot, 0, want, what);
}

/* What a device reads of a buffer is a pattern. Without an importer nobody can look. */
static void device_sees(int buffer, uint64_t seed, uint64_t first, uint64_t pages, const char *what)
{
	char *bytes;
	int at;

	if (!import_is_there())
		return;
	bytes = malloc(pages * PAGE);
	at = import(buffer, IMPORTER_TO_DEVICE);
	if (expect(at, 0, "%s: import", what) && expect(import_read(at, 0, bytes, pages * PAGE), 0, "%s: read", what))
		is_painted(bytes, seed, first, pages, what);
	close(at);
	free(bytes);
}

static void refused(void *at, uint64_t bytes, int want, const char *what)
{
	int fd = dev_pin(dev, at, bytes);

	expect(fd, want, "%s", what);
	if (fd >= 0)
		close(fd);
}

/* ---- ranges -------------------------------------------------------------------------------------------------------- */

/* @p is present and writable. Pinned it is for devices and for nobody to map; what they write is the owner's. */
static void range_works(char *p, uint64_t pages, const char *what)
{
	uint64_t bytes = dev_bytes(dev);
	struct pinion_bufinfo info;
	int fd, slice;

	paint(p, 1, 0, pages);
	fd = dev_pin(dev, p, pages * PAGE);
	if (!expect(fd, 0, "PIN of %s", what))
		return;
	if (dev_bytes(dev) != bytes + pages * PAGE)
		wrong("%s: %llu bytes charged", what, (unsigned long long)(dev_bytes(dev) - bytes));
	if (dev_bufinfo(dev, fd, &info) || info.kind != PINION_KIND_RANGE || info.rights != PINION_RIGHTS ||
	    info.bytes != pages * PAGE)
		wrong("%s: BUFINFO", what);
	slice = dev_slice(dev, fd, PAGE, (pages - 1) * PAGE, PINION_RIGHTS);
	expect(slice, 0, "SLICE of %s", what);
	map_refused(fd, PROT_READ, ENXIO, what);
	map_refused(slice, PROT_READ, ENXIO, what);
	device_sees(fd, 1, 0, pages, what);
	device_sees(slice, 1, 1, pages - 1, what);
	if (import_is_there()) {
		char page[PAGE] __attribute__((aligned(8)));
		int at = import(fd, IMPORTER_FROM_DEVICE);

		paint(page, 2, 2, 1);
		expect(import_write(at, 2 * PAGE, page, PAGE), 0, "a device's write to %s", what);
		close(at);
		is_painted(p + 2 * PAGE, 2, 2, 1, what);
	}
	close(slice);
	close(fd);
	if (dev_bytes(dev) != bytes)
		wrong("%s: not given back", what);
}

static void ranges(void)
{
	int fd = memfd(RANGE, 0, 0);
	char *p;

	p = anon(RANGE, PROT_READ | PROT_WRITE);
	range_works(p, PAGES, "anonymous memory");
	munmap(p, RANGE);
	p = mapped(fd, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	range_works(p, PAGES, "a memfd");
	munmap(p, RANGE);
	p = mapped(fd, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	range_works(p, PAGES, "a private mapping of a memfd");
	munmap(p, RANGE);
	close(fd);
	p = mmap(NULL, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	range_works(p, PAGES, "shared anonymous memory");
	munmap(p, RANGE);
	/* Two kinds in one range. */
	p = anon(RANGE, PROT_READ | PROT_WRITE);
	mmap(p + 3 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	range_works(p, PAGES, "a mixed range");
	munmap(p, RANGE);
	point("pin", "memory that stays is pinned");
}

static void huge_range(void)
{
	char *p;

	if (!hugetlb) {
		tap_skip("pin: huge pages", "no hugetlb pages to be had");
		return;
	}
	p = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (p == MAP_FAILED)
		wrong("MAP_HUGETLB: %s", strerror(errno));
	else
		range_works(p, HUGE / PAGE, "huge pages");
	munmap(p, HUGE);
	point("pin", "huge pages are pinned");
}

static void not_populated(void)
{
	char *p = anon(RANGE, PROT_READ | PROT_WRITE), *q;
	int fd;

	refused(p, RANGE, -ENODATA, "nothing there");
	paint(p, 1, 0, PAGES / 2);
	refused(p, RANGE, -ENODATA, "half of it there");
	madvise(p, RANGE, MADV_POPULATE_READ);
	refused(p, RANGE, -ENODATA, "only read");
	if (madvise(p, RANGE, MADV_POPULATE_WRITE))
		wrong("MADV_POPULATE_WRITE: %s", strerror(errno));
	fd = dev_pin(dev, p, RANGE);
	expect(fd, 0, "populated");
	device_sees(fd, 1, 0, PAGES / 2, "populated");
	close(fd);
	munmap(p, RANGE);
	fd = memfd(RANGE, 0, 0);
	q = mapped(fd, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	refused(q, RANGE, -ENODATA, "a memfd with nothing there");
	munmap(q, RANGE);
	close(fd);
	point("pin", "what is not there is ENODATA until it is populated");
}

static void other_memory(void)
{
	int own = dev_alloc(dev, RANGE, 0), fd = memfd(RANGE, 0, 0), file, zero;
	char *p = anon(RANGE, PROT_READ | PROT_WRITE), *q;

	paint(p, 1, 0, PAGES);
	munmap(p + 4 * PAGE, PAGE);
	refused(p, RANGE, -EFAULT, "a hole");
	refused(p + 4 * PAGE, PAGE, -EFAULT, "nothing mapped");
	mprotect(p, RANGE / 2, PROT_READ);
	refused(p, PAGE, -EACCES, "memory that may be read");
	refused(p + 3 * PAGE, PAGE, -EACCES, "its last page");
	mprotect(p, RANGE / 2, PROT_NONE);
	refused(p, PAGE, -EACCES, "memory that nobody may touch");
	munmap(p, RANGE);
	refused((void *)0xffff800000000000UL, PAGE, -EFAULT, "the kernel's memory");
	refused((void *)0x7ffffffff000UL, PAGE, -EFAULT, "the end of memory");
	refused((void *)0xfffffffffffff000UL, PAGE, -EINVAL, "a range without an end");
	q = mapped(fd, RANGE, PROT_READ, MAP_SHARED);
	touch(q, false);
	refused(q, RANGE, -EACCES, "a memfd mapped for reading");
	munmap(q, RANGE);
	close(fd);
	q = dev_map(own, RANGE, PROT_READ | PROT_WRITE);
	paint(q, 1, 0, PAGES);
	refused(q, RANGE, -EOPNOTSUPP, "a mapping of a buffer");
	munmap(q, RANGE);
	close(own);
	zero = open("/dev/zero", O_RDWR | O_CLOEXEC);
	q = mapped(zero, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	paint(q, 1, 0, PAGES);
	/* A private mapping of it is anonymous memory. */
	refused(q, RANGE, 0, "/dev/zero");
	munmap(q, RANGE);
	close(zero);
	if (import_is_there()) {
		file = open(IMPORTER, O_RDWR | O_CLOEXEC);
		q = mapped(file, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
		touch(q, true);
		refused(q, PAGE, -EOPNOTSUPP, "a driver's page");
		munmap(q, PAGE);
		close(file);
	}
	file = disk_file("pin", RANGE, O_RDWR);
	q = mapped(file, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	paint(q, 1, 0, PAGES);
	refused(q, RANGE, -EOPNOTSUPP, "a file of ext4");
	munmap(q, RANGE);
	q = mapped(file, RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	paint(q, 1, 0, PAGES);
	refused(q, RANGE, -EOPNOTSUPP, "a private mapping of a file of ext4");
	munmap(q, RANGE);
	close(file);
	point("pin", "memory that does not stay, or may not be written, is refused");
}

/* ---- a range and its owner ------------------------------------------------------------------------------------------ */

static bool paint_in_child(void *data)
{
	paint(data, 3, 0, PAGES);
	return is_painted(data, 3, 0, PAGES, "the child");
}

static void forked(void)
{
	char *p = anon(RANGE, PROT_READ | PROT_WRITE);
	int fd;

	paint(p, 1, 0, PAGES);
	fd = dev_pin(dev, p, RANGE);
	expect(fd, 0, "PIN");
	if (!child(paint_in_child, p))
		wrong("the child");
	is_painted(p, 1, 0, PAGES, "the parent");
	device_sees(fd, 1, 0, PAGES, "after a child wrote");
	/* The parent's pages stay the parent's: a write after a fork must not leave the device behind. */
	paint(p, 4, 0, PAGES);
	device_sees(fd, 4, 0, PAGES, "after the parent wrote");
	munmap(p, RANGE);
	device_sees(fd, 4, 0, PAGES, "after munmap");
	close(fd);
	point("pin", "a child's copies are its own and the device sees the parent's");
}

static int mappings(void)
{
	char *text = file_get("/proc/self/maps");
	int n = 0;

	for (char *at = text; *at; at++)
		n += *at == '\n';
	free(text);
	return n;
}

/* A range is not marked in its mapping, so that none is split, whatever the ranges overlap. */
static void many_ranges(void)
{
	enum { HELD = 16, TIMES = 70000, LEAST = 3000 };
	const size_t bytes = 64 * PAGE;
	char *p = anon(bytes, PROT_READ | PROT_WRITE);
	int held[HELD], done, before;
	time_t late = time(NULL) + 40;

	paint(p, 1, 0, 64);
	for (int i = 0; i < HELD; i++)
		held[i] = -1;
	before = mappings();
	for (done = 0; done < TIMES && (done < LEAST || time(NULL) < late) && !*state_wrong; done++) {
		uint64_t pages = 1 + done * 7 % 61, first = done * 13 % (64 - pages);

		if (held[done % HELD] >= 0)
			close(held[done % HELD]);
		held[done % HELD] = dev_pin(dev, p + first * PAGE, pages * PAGE);
		expect(held[done % HELD], 0, "PIN of %lu pages, number %d", pages, done);
		if (done % 5000 == 0 && mappings() > before)
			wrong("%d mappings after %d ranges, not %d", mappings(), done, before);
	}
	device_sees(held[(done - 1) % HELD], 1, (done - 1) * 13 % (64 - (1 + (done - 1) * 7 % 61)), 1, "the last");
	for (int i = 0; i < HELD; i++)
		close(held[i]);
	if (mappings() > before)
		wrong("%d mappings at the end, not %d", mappings(), before);
	is_painted(p, 1, 0, 64, "the range");
	munmap(p, bytes);
	printf("# %d of %d ranges\n", done, TIMES);
	point("pin", "ranges of every size, tens of thousands, split no mapping");
}

/* What the owner can do to its range: the device has what it had. */
static void undone_by_owner(void)
{
	int fd = memfd(RANGE, 0, 0), pin;
	char *p = mapped(fd, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	char *q = anon(RANGE, PROT_READ | PROT_WRITE);

	paint(p, 1, 0, PAGES);
	pin = dev_pin(dev, p, RANGE);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RANGE / 2) ||
	    madvise(p + RANGE / 2, RANGE / 2, MADV_REMOVE))
		wrong("punching holes: %s", strerror(errno));
	if (*p || p[RANGE - 1])
		wrong("the hole is not empty");
	device_sees(pin, 1, 0, PAGES, "after holes were punched");
	if (ftruncate(fd, 0))
		wrong("ftruncate: %s", strerror(errno));
	device_sees(pin, 1, 0, PAGES, "after the file was cut");
	close(pin);
	munmap(p, RANGE);
	close(fd);
	paint(q, 2, 0, PAGES);
	pin = dev_pin(dev, q, RANGE);
	madvise(q, RANGE, MADV_DONTNEED);
	device_sees(pin, 2, 0, PAGES, "after MADV_DONTNEED");
	if (mprotect(q, RANGE, PROT_NONE))
		wrong("mprotect: %s", strerror(errno));
	device_sees(pin, 2, 0, PAGES, "after mprotect");
	close(pin);
	munmap(q, RANGE);
	point("pin", "an owner that lets its memory go leaves the device what it had");
}

static int passed[2];

/* Hands a pin over by being forked from: the process that pinned is gone when it is used. */
static bool pin_and_go(void *data)
{
	char *p = anon(RANGE, PROT_READ | PROT_WRITE);
	struct iovec iov = { "x", 1 };
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	int fd;

	paint(p, 5, 0, PAGES);
	fd = dev_pin(dev, p, RANGE);
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return fd >= 0 && sendmsg(*(int *)data, &msg, 0) == 1;
}

static void outlived(void)
{
	char byte, room[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8)));
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	uint64_t bytes = dev_bytes(dev);
	int fd = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, passed) || !child(pin_and_go, &passed[1]) ||
	    recvmsg(passed[0], &msg, 0) != 1)
		wrong("handing over: %s", strerror(errno));
	else
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	if (dev_bytes(dev) != bytes + RANGE)
		wrong("%llu bytes charged", (unsigned long long)(dev_bytes(dev) - bytes));
	device_sees(fd, 5, 0, PAGES, "after the owner's end");
	close(fd);
	close(passed[0]);
	close(passed[1]);
	if (dev_bytes(dev) != bytes)
		wrong("not given back");
	point("pin", "a range outlives the process it was of");
}

static void by_vgem(void)
{
	char *p = anon(RANGE, PROT_READ | PROT_WRITE);
	int vgem = vgem_open(), fd;
	uint32_t handle;

	if (vgem < 0) {
		munmap(p, RANGE);
		tap_skip("pin: a graphics driver takes a range and cannot map it", VGEM_DEVICE ": %s", strerror(-vgem));
		return;
	}
	paint(p, 1, 0, PAGES);
	fd = dev_pin(dev, p, RANGE);
	if (expect(vgem_import(vgem, fd, &handle), 0, "import")) {
		/* Where DRM shows its first object. */
		map_at_refused(vgem, PROT_READ, 0x100000000LL, ENXIO, "a mapping of the object");
		close(fd);
		munmap(p, RANGE);
		expect(vgem_drop(vgem, handle), 0, "drop");
	}
	close(vgem);
	point("pin", "a graphics driver takes a range and cannot map it");
}

/* ---- memfds -------------------------------------------------------------------------------------------------------- */

static void fd_refused(int fd, uint64_t offset, uint64_t bytes, int want, const char *what)
{
	int pin = dev_pin_fd(dev, fd, offset, bytes, NULL);

	expect(pin, want, "%s", what);
	if (pin >= 0)
		close(pin);
}

static void seal_refused(int seals, int want, const char *what)
{
	int fd = memfd(RANGE, 0, seals);

	fd_refused(fd, 0, RANGE, want, what);
	close(fd);
}

static void path_refused(const char *path, int flags, int want)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		wrong("%s: %s", path, strerror(errno));
	else if (flags & O_CREAT && ftruncate(fd, HUGE))
		wrong("%s: ftruncate: %s", path, strerror(errno));
	fd_refused(fd, 0, PAGE, want, path);
	close(fd);
}

static void other_files(void)
{
	char path[64];
	int fd = memfd(RANGE, 0, F_SEAL_SHRINK), own, wo;

	seal_refused(0, -EINVAL, "no seal");
	seal_refused(F_SEAL_GROW, -EINVAL, "F_SEAL_GROW alone");
	seal_refused(F_SEAL_SHRINK | F_SEAL_WRITE, -EPERM, "F_SEAL_WRITE");
	seal_refused(F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, -EPERM, "F_SEAL_FUTURE_WRITE");
	seal_refused(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, 0, "F_SEAL_GROW and F_SEAL_SEAL too");
	fd_refused(fd, 0, RANGE + PAGE, -EINVAL, "past the end");
	fd_refused(fd, PAGE, RANGE, -EINVAL, "past the end, from the second page");
	fd_refused(fd, RANGE, PAGE, -EINVAL, "behind the end");
	fd_refused(fd, ~0ULL << 12, PAGE, -EINVAL, "a range without an end");
	fd_refused(fd, 1ULL << 62, PAGE, -EINVAL, "far behind the end");
	fd_refused(-1, 0, PAGE, -EBADF, "no descriptor");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	wo = open(path, O_WRONLY | O_CLOEXEC);
	fd_refused(wo, 0, PAGE, -EACCES, "a memfd open for writing only");
	close(wo);
	wo = open(path, O_PATH | O_CLOEXEC);
	fd_refused(wo, 0, PAGE, -EBADF, "O_PATH");
	close(wo);
	own = dev_alloc(dev, PAGE, 0);
	fd_refused(own, 0, PAGE, -EOPNOTSUPP, "a buffer");
	close(own);
	fd_refused(dev, 0, PAGE, -EOPNOTSUPP, "the device");
	path_refused("/tmp", O_RDONLY, -EOPNOTSUPP);
	path_refused("/dev/zero", O_RDWR, -EOPNOTSUPP);
	path_refused("/tmp/pin", O_RDWR | O_CREAT, -EINVAL);
	unlink("/tmp/pin");
	path_refused(DISK_PATH "/pin", O_RDWR | O_CREAT, -EOPNOTSUPP);
	close(fd);
	point("pin", "files that are no memfd sealed as it must be are refused");
}

static void unsealable_hugetlb(void)
{
	char dir[] = "pinion-huge-XXXXXX", path[sizeof(dir) + 4];

	if (!hugetlb) {
		tap_skip("pin: a file of hugetlbfs", "no hugetlb pages to be had");
		return;
	}
	if (!mkdtemp(dir) || mount("none", dir, "hugetlbfs", 0, "")) {
		wrong("mount: %s", strerror(errno));
	} else {
		snprintf(path, sizeof(path), "%s/pin", dir);
		path_refused(path, O_RDWR | O_CREAT, -EINVAL);
		unlink(path);
		expect(umount(dir) ? -errno : 0, 0, "umount");
	}
	rmdir(dir);
	point("pin", "a file of hugetlbfs cannot be sealed and is refused");
}

static void memfd_works(void)
{
	int fd = memfd(2 * RANGE, 0, F_SEAL_SHRINK), pin, slice;
	char *p = mapped(fd, 2 * RANGE, PROT_READ | PROT_WRITE, MAP_SHARED), *q;
	struct pinion_bufinfo info;
	uint32_t rights = 0;

	paint(p, 1, 0, 2 * PAGES - 2);
	pin = dev_pin_fd(dev, fd, 2 * PAGE, 2 * RANGE - 2 * PAGE, &rights);
	expect(pin, 0, "PIN");
	if (dev_bufinfo(dev, pin, &info) || info.kind != PINION_KIND_MEMFD || rights != PINION_RIGHTS || info.rights != rights)
		wrong("BUFINFO, rights %u", rights);
	slice = dev_slice(dev, pin, 3 * PAGE, 4 * PAGE, PINION_RIGHT_READ | PINION_RIGHT_WRITE);
	map_refused(slice, PROT_READ | PROT_WRITE, EACCES, "a mapping of a part for writing, which could be moved to the rest");
	q = mapped(slice, 4 * PAGE, PROT_READ, MAP_SHARED);
	is_painted(q, 1, 5, 4, "the slice");
	device_sees(slice, 1, 5, 4, "a device");
	paint(p + 5 * PAGE, 2, 5, 4);
	is_painted(q, 2, 5, 4, "the slice after the memfd was written");
	if (touch(q + 4 * PAGE, false) == 0 && is_page(q + 4 * PAGE, 1, 9))
		wrong("the slice shows what is behind it");
	/* What was never there is made, and is zero. */
	if (p[2 * RANGE - 1])
		wrong("the last page is not zero");
	munmap(q, 4 * PAGE);
	q = mmap(NULL, 5 * PAGE, PROT_READ, MAP_SHARED, slice, 0);
	if (q != MAP_FAILED)
		wrong("a page more is mapped");
	q = mapped(slice, 2 * PAGE, PROT_READ, MAP_SHARED);
	if (mremap(q, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED)
		wrong("a mapping grows");
	munmap(q, 2 * PAGE);
	if (!ftruncate(fd, PAGE))
		wrong("the memfd shrinks");
	close(slice);
	close(pin);
	munmap(p, 2 * RANGE);
	close(fd);
	point("pin", "a memfd is pinned, mapped and sliced");
}

/* The weaker seal holds for devices as for mappings: one that was there before it writes on, none is added. */
static void devices_after_seal(int pin, int before)
{
	static const char bytes[PAGE];
	int reads = import(pin, IMPORTER_TO_DEVICE);

	expect(import_write(before, 0, bytes, PAGE), 0, "a device of before F_SEAL_FUTURE_WRITE writes");
	expect(import(pin, IMPORTER_BOTH_WAYS), -EPERM, "a device that writes after F_SEAL_FUTURE_WRITE");
	expect(import(pin, IMPORTER_FROM_DEVICE), -EPERM, "a device that only writes after F_SEAL_FUTURE_WRITE");
	expect(reads, 0, "a device that reads after F_SEAL_FUTURE_WRITE");
	close(reads);
	close(before);
}

static void no_write_seal(void)
{
	int fd = memfd(RANGE, 0, F_SEAL_SHRINK), pin = dev_pin_fd(dev, fd, 0, RANGE, NULL), slice, before;
	void *p;

	expect(pin, 0, "PIN");
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) ? -errno : 0, -EBUSY, "F_SEAL_WRITE");
	slice = dev_slice(dev, pin, 0, PAGE, PINION_RIGHT_DMA_RW);
	close(pin);
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) ? -errno : 0, -EBUSY, "F_SEAL_WRITE with a slice left");
	close(slice);
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) ? -errno : 0, 0, "F_SEAL_WRITE without");
	close(fd);
	/* The weaker seal can be added, and counts for mappings that come later. */
	fd = memfd(RANGE, 0, F_SEAL_SHRINK);
	pin = dev_pin_fd(dev, fd, 0, RANGE, NULL);
	before = import_is_there() ? import(pin, IMPORTER_BOTH_WAYS) : -ENOENT;
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) ? -errno : 0, 0, "F_SEAL_FUTURE_WRITE");
	if (import_is_there())
		devices_after_seal(pin, before);
	map_refused(pin, PROT_READ | PROT_WRITE, EPERM, "a writable mapping after F_SEAL_FUTURE_WRITE");
	p = mapped(pin, RANGE, PROT_READ, MAP_SHARED);
	if (!mprotect(p, RANGE, PROT_READ | PROT_WRITE) || errno != EACCES)
		wrong("mprotect after F_SEAL_FUTURE_WRITE is not EACCES");
	munmap(p, RANGE);
	close(pin);
	close(fd);
	/* A call that fails keeps nothing off. */
	fd = memfd(RANGE, 0, F_SEAL_SHRINK);
	fd_refused(fd, 0, RANGE + PAGE, -EINVAL, "past the end");
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) ? -errno : 0, 0, "F_SEAL_WRITE after a PIN that failed");
	close(fd);
	point("pin", "F_SEAL_WRITE waits for the last writable slice");
}

/* Memory at whose first touch everybody waits, the kernel too; the descriptor that lets them go on, or -errno. */
static int never_there(void *at, size_t bytes)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .range = { (uintptr_t)at, bytes }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && !ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &reg))
		return fd;
	close(fd);
	return -errno;
}

struct writer {
	int fd;
	void *from;
	pthread_t thread;
};

static void *writes(void *data)
{
	struct writer *w = data;

	if (pwrite(w->fd, w->from, PAGE, 0) != (ssize_t)PAGE)
		wrong("the write: %s", strerror(errno));
	return NULL;
}

/* Without what lets the others go on, which would wait for this child. */
static pid_t pins_in_child(int fd, int faults)
{
	pid_t pid = fork();

	if (!pid)
		_exit(close(faults) || dev_pin_fd(dev, fd, 0, RANGE, NULL) < 0);
	return pid;
}

/* Who hands a memfd on can write to it from memory that never comes, and holds its lock. Who pins it can be killed even then. */
static void locked_memfd(void)
{
	struct writer w = { .fd = memfd(RANGE, 0, F_SEAL_SHRINK), .from = anon(PAGE, PROT_READ | PROT_WRITE) };
	int faults = never_there(w.from, PAGE), status;
	struct uffd_msg fault;
	pid_t pid;

	if (faults < 0) {
		tap_skip("pin: a memfd that somebody keeps locked", "userfaultfd: %s", strerror(-faults));
		goto out;
	}
	if (pthread_create(&w.thread, NULL, writes, &w) || !eventually(read(faults, &fault, sizeof(fault)) == sizeof(fault)))
		wrong("nobody waits for the memory");
	pid = pins_in_child(w.fd, faults);
	if (!eventually(task_state(pid) == 'D'))
		wrong("who pins it does not wait");
	kill(pid, SIGKILL);
	if (!eventually(waitpid(pid, &status, WNOHANG) == pid))
		wrong("who pins it cannot be killed");
	close(faults);
	pthread_join(w.thread, NULL);
	point("pin", "a memfd that somebody keeps locked: who pins it can be killed");
out:
	munmap(w.from, PAGE);
	close(w.fd);
}

static void by_readers(int pin)
{
	void *p;
	int fd;

	map_refused(pin, PROT_READ | PROT_WRITE, EACCES, "a writable mapping");
	p = mapped(pin, RANGE, PROT_READ, MAP_SHARED);
	is_painted(p, 1, 0, PAGES, "the mapping");
	if (!mprotect(p, RANGE, PROT_READ | PROT_WRITE) || errno != EACCES || touch(p, true) != SIGSEGV)
		wrong("mprotect is not EACCES but %s", strerror(errno));
	if (!madvise(p, PAGE, MADV_REMOVE))
		wrong("MADV_REMOVE punches a hole");
	munmap(p, RANGE);
	expect(dev_slice(dev, pin, 0, PAGE, PINION_RIGHT_WRITE), -EACCES, "SLICE with WRITE");
	expect(dev_slice(dev, pin, 0, PAGE, PINION_RIGHT_DMA_RW), -EACCES, "SLICE with DMA_RW");
	if (!import_is_there())
		return;
	expect(import(pin, IMPORTER_BOTH_WAYS), -EACCES, "a device that writes");
	expect(import(pin, IMPORTER_FROM_DEVICE), -EACCES, "a device that only writes");
	device_sees(pin, 1, 0, PAGES, "a device that reads");
	fd = import(pin, IMPORTER_TO_DEVICE);
	map_refused(fd, PROT_READ | PROT_WRITE, EACCES, "a writable mapping by an importer");
	p = mapped(fd, RANGE, PROT_READ, MAP_SHARED);
	is_painted(p, 1, 0, PAGES, "an importer's mapping");
	if (!mprotect(p, RANGE, PROT_READ | PROT_WRITE) || errno != EACCES)
		wrong("mprotect of an importer's mapping is not EACCES but %s", strerror(errno));
	munmap(p, RANGE);
	close(fd);
}

static void read_only_memfd(void)
{
	int fd = memfd(RANGE, 0, F_SEAL_SHRINK), ro, pin, vgem = vgem_open();
	char path[64], *p = mapped(fd, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	uint32_t rights = 0, handle;

	paint(p, 1, 0, PAGES);
	munmap(p, RANGE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	pin = dev_pin_fd(dev, ro, 0, RANGE, &rights);
	expect(pin, 0, "PIN");
	if (rights != PINION_RIGHT_READ)
		wrong("rights %u", rights);
	/* The kernel cannot know what a pin is for. */
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) ? -errno : 0, -EBUSY, "F_SEAL_WRITE while it is pinned for reading");
	close(fd);
	by_readers(pin);
	if (vgem >= 0) {
		expect(vgem_import(vgem, pin, &handle), -EACCES, "import by a graphics driver");
		close(vgem);
	}
	close(pin);
	expect(fcntl(ro, F_GET_SEALS) & F_SEAL_WRITE, 0, "seals");
	close(ro);
	point("pin", "a memfd opened for reading gives a buffer that nobody can write");
}

static void holes_in_a_memfd(void)
{
	int fd = memfd(RANGE, 0, F_SEAL_SHRINK), pin = dev_pin_fd(dev, fd, 0, RANGE, NULL);
	char *p = mapped(pin, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED),
	     *q = mapped(fd, RANGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	uint64_t bytes = dev_bytes(dev);

	paint(p, 1, 0, PAGES);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, 2 * PAGE))
		wrong("fallocate: %s", strerror(errno));
	if (madvise(q + 4 * PAGE, PAGE, MADV_REMOVE) || madvise(p + 6 * PAGE, PAGE, MADV_REMOVE))
		wrong("MADV_REMOVE: %s", strerror(errno));
	/* Mappings are the memfd's and show the holes; the device has the pages that were pinned. */
	if (p[PAGE] || p[2 * PAGE] || p[4 * PAGE] || p[6 * PAGE] || !is_page(p, 1, 0) || !is_page(p + 3 * PAGE, 1, 3))
		wrong("the mapping does not show the holes");
	device_sees(pin, 1, 0, PAGES, "a device");
	paint(p, 2, 0, PAGES);
	is_painted(q, 2, 0, PAGES, "the memfd");
	for (int i = 0; i < 50; i++) {
		fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, RANGE);
		paint(p, 3, 0, PAGES);
	}
	if (dev_bytes(dev) != bytes)
		wrong("%llu bytes charged", (unsigned long long)dev_bytes(dev));
	munmap(p, RANGE);
	close(pin);
	is_painted(q, 3, 0, PAGES, "the memfd after all");
	munmap(q, RANGE);
	close(fd);
	point("pin", "holes that the owner punches do no harm");
}

/* What another had in these pages is nobody's to see: the kernel makes the pages of holes for the pin itself. */
static void huge_holes(void)
{
	int other = memfd(2 * HUGE, MFD_HUGETLB, F_SEAL_SHRINK), fd, pin;
	char *p = mapped(other, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED);

	paint(p, 1, 0, 2 * HUGE / PAGE);
	munmap(p, 2 * HUGE);
	close(other);
	fd = memfd(2 * HUGE, MFD_HUGETLB, F_SEAL_SHRINK);
	pin = dev_pin_fd(dev, fd, 0, 2 * HUGE, NULL);
	expect(pin < 0 ? pin : 0, 0, "PIN");
	p = mapped(fd, 2 * HUGE, PROT_READ, MAP_SHARED);
	for (size_t i = 0; i < 2 * HUGE; i += sizeof(uint64_t))
		if (*(uint64_t *)(p + i)) {
			wrong("byte %zu is another's", i);
			break;
		}
	munmap(p, 2 * HUGE);
	close(pin);
	close(fd);
	point("pin", "holes of a memfd of huge pages are zeros");
}

static void huge_memfd(void)
{
	int fd, pin, part;
	struct pinion_info info;
	char *p, *q;

	if (!hugetlb) {
		tap_skip("pin: a memfd of huge pages", "no hugetlb pages to be had");
		return;
	}
	expect(dev_info(dev, &info), 0, "INFO");
	if (info.features & PINION_FEATURE_PIN_HUGETLB)
		huge_holes();
	fd = memfd(2 * HUGE, MFD_HUGETLB, F_SEAL_SHRINK);
	fd_refused(fd, 0, HUGE, info.features & PINION_FEATURE_PIN_HUGETLB ? 0 : -ENODATA, "with nothing there");
	p = mapped(fd, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	paint(p, 1, 0, 2 * HUGE / PAGE);
	pin = dev_pin_fd(dev, fd, 0, 2 * HUGE, NULL);
	part = dev_pin_fd(dev, fd, HUGE - 3 * PAGE, 7 * PAGE, NULL);
	expect(pin, 0, "PIN");
	expect(part, 0, "PIN of small parts of them");
	device_sees(pin, 1, 0, 2 * HUGE / PAGE, "a device");
	device_sees(part, 1, HUGE / PAGE - 3, 7, "a device that has a part");
	q = dev_map_aligned(pin, 2 * HUGE, PROT_READ | PROT_WRITE);
	if (q == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	else
		is_painted(q, 1, 0, 2 * HUGE / PAGE, "the mapping");
	munmap(q, 2 * HUGE);
	map_refused(part, PROT_READ, EINVAL, "a mapping of a part of a huge page");
	q = mmap(NULL, 3 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mmap((char *)(((uintptr_t)q + HUGE) & ~(HUGE - 1)) + PAGE, HUGE, PROT_READ, MAP_SHARED | MAP_FIXED, pin, 0) !=
	    MAP_FAILED)
		wrong("a mapping at a small page");
	munmap(q, 3 * HUGE);
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) ? -errno : 0, -EBUSY, "F_SEAL_WRITE");
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE))
		wrong("fallocate: %s", strerror(errno));
	device_sees(part, 1, HUGE / PAGE - 3, 3, "after a hole was punched");
	close(part);
	device_sees(pin, 1, 0, 2 * HUGE / PAGE, "after a hole was punched");
	close(pin);
	munmap(p, 2 * HUGE);
	expect(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) ? -errno : 0, 0, "F_SEAL_WRITE after all");
	close(fd);
	point("pin", "a memfd of huge pages");
}

int main(void)
{
	uint64_t huge_before = 0;
	struct state start;
	int ret;

	dev = dev_open(O_RDWR);
	start = state_now(dev);
	if (!file_put(HUGE_PAGES, "8"))
		huge_before = mem_huge_free();
	hugetlb = huge_before >= 4;
	ret = disk_mount();
	expect(ret, 0, "%s", disk_step);
	ranges();
	huge_range();
	not_populated();
	other_memory();
	forked();
	many_ranges();
	undone_by_owner();
	outlived();
	by_vgem();
	other_files();
	unsealable_hugetlb();
	memfd_works();
	no_write_seal();
	locked_memfd();
	read_only_memfd();
	holes_in_a_memfd();
	huge_memfd();
	if (mem_huge_free() != huge_before)
		wrong("%llu huge pages are free, not %llu", (unsigned long long)mem_huge_free(), (unsigned long long)huge_before);
	file_put(HUGE_PAGES, "0");
	expect(disk_unmount(), 0, "umount");
	state_same(dev, &start);
	point("pin", "bytes, buffers, descriptors and huge pages are what they were");
	return tap_end();
}
