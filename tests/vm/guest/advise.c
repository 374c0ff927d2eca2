// SPDX-License-Identifier: MIT
/*
 * Everything that a process can say to the kernel about its mapping of a buffer, on all of it and on parts, mapped by 2 MiB
 * and by 4 KiB entries and of the SHMEM backing: the answer is the one below, the bytes stay, the kernel is silent.
 *
 *   advice                              answer   SHMEM    why
 *   NORMAL RANDOM SEQUENTIAL WILLNEED   0        0        taken and without effect: nothing is read ahead
 *   COLD PAGEOUT                        0        0        without effect: the pages are on no list that reclaim looks at
 *   DONTNEED DONTNEED_LOCKED            0        0        the entries go, the next touch brings the same pages back
 *   FREE                                EINVAL   EINVAL   for private anonymous memory
 *   REMOVE                              ENODEV   EBADF    nobody punches a hole into a buffer
 *   DONTFORK DOFORK                     0        0        a child does or does not have the mapping
 *   WIPEONFORK                          EINVAL   EINVAL   for private anonymous memory
 *   KEEPONFORK                          0        0        as it is anyway
 *   MERGEABLE UNMERGEABLE               0        0        ignored: shared memory is not merged
 *   COLLAPSE                            EINVAL   EINVAL   ALLOC has decided the size of pages
 *   HUGEPAGE NOHUGEPAGE                 0        0        taken and without effect
 *   DONTDUMP                            0        0        as it is anyway
 *   DODUMP                              EINVAL   EINVAL   in no core dump
 *   POPULATE_READ POPULATE_WRITE        0        0        entries without touching; of what may not be written EINVAL
 *   HWPOISON                            kept     core's   the page is lost, SIGBUS from the next fault on, never given out again
 *   SOFT_OFFLINE                        refused  0        pages do not move: the answer is EBUSY or EIO
 *   mprotect                            0        0        but EACCES for PROT_EXEC, and for PROT_WRITE beyond the rights
 *   mremap: move, shrink                0        0
 *   mremap: grow, copy                  EFAULT   EFAULT   nobody maps past a slice
 *   mremap: DONTUNMAP                   EINVAL   EINVAL
 *   mlock, mlock2, munlock              0        0        without effect and not charged: it is never swapped
 *   msync: MS_SYNC                      EINVAL   0        there is nothing to write to
 *   msync: MS_ASYNC, MS_INVALIDATE      0        0
 *   userfaultfd                         EINVAL   0        asynchronous write tracking (from 6.7 on) too, or 0
 *   mbind, migrate_pages                0        0        for what comes; the pages stay
 *   move_pages                          EFAULT   -        of each page: not one that moves
 */
#define _GNU_SOURCE
#include "mem.h"
#include "state.h"

#include <linux/userfaultfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define BUS_AR 4 /* BUS_MCEERR_AR */
#define SEED   7

#define HUGE_PAGES "/proc/sys/vm/nr_hugepages"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static int dev;

/* One kind of mapping, and a fresh one of it for each row. */
struct kind {
	const char *name;
	size_t bytes;
	uint32_t flags;
	bool shmem;
	int fd;
};

struct part {
	const char *name;
	size_t at, bytes;
};

static char *fresh(const struct kind *kind, int prot)
{
	char *map = dev_map_aligned(kind->fd, kind->bytes, prot);

	if (map == MAP_FAILED) {
		wrong("mmap: %s", strerror(errno));
		return NULL;
	}
	if (mem_wrong(map, kind->bytes, 0, SEED) >= 0)
		wrong("the bytes were wrong before");
	return map;
}

/* Everything is there, can be written, and stays so when the entries are made anew. */
static void intact(const struct kind *kind, char *map, const char *what)
{
	long page = mem_wrong(map, kind->bytes, 0, SEED);

	if (page >= 0)
		wrong("%s: page %ld is not what it was", what, page);
	mem_fill(map, kind->bytes, 0, SEED);
}

static void unmap(const struct kind *kind, char *map)
{
	if (munmap(map, kind->bytes))
		wrong("munmap: %s", strerror(errno));
}

static void parts_of(const struct kind *kind, struct part *part)
{
	part[0] = (struct part){ "whole", 0, kind->bytes };
	part[1] = (struct part){ "middle", 5 * PAGE, 3 * PAGE };
	part[2] = (struct part){ "first page", 0, PAGE };
	part[3] = (struct part){ "last page", kind->bytes - PAGE, PAGE };
}

#define PARTS 4

/* ---- madvise ------------------------------------------------------------------------------------------------------- */

struct advice {
	const char *name;
	int advice;
	int own, shmem; /* errno */
};

static const struct advice advices[] = {
	{ "NORMAL", MADV_NORMAL, 0, 0 },
	{ "RANDOM", MADV_RANDOM, 0, 0 },
	{ "SEQUENTIAL", MADV_SEQUENTIAL, 0, 0 },
	{ "WILLNEED", MADV_WILLNEED, 0, 0 },
	{ "COLD", MADV_COLD, 0, 0 },
	{ "PAGEOUT", MADV_PAGEOUT, 0, 0 },
	{ "DONTNEED", MADV_DONTNEED, 0, 0 },
	{ "DONTNEED_LOCKED", MADV_DONTNEED_LOCKED, 0, 0 },
	{ "FREE", MADV_FREE, EINVAL, EINVAL },
	{ "REMOVE", MADV_REMOVE, ENODEV, EBADF },
	{ "DONTFORK", MADV_DONTFORK, 0, 0 },
	{ "DOFORK", MADV_DOFORK, 0, 0 },
	{ "WIPEONFORK", MADV_WIPEONFORK, EINVAL, EINVAL },
	{ "KEEPONFORK", MADV_KEEPONFORK, 0, 0 },
	{ "MERGEABLE", MADV_MERGEABLE, 0, 0 },
	{ "UNMERGEABLE", MADV_UNMERGEABLE, 0, 0 },
	{ "HUGEPAGE", MADV_HUGEPAGE, 0, 0 },
	{ "COLLAPSE", MADV_COLLAPSE, EINVAL, EINVAL },
	{ "NOHUGEPAGE", MADV_NOHUGEPAGE, 0, 0 },
	{ "DONTDUMP", MADV_DONTDUMP, 0, 0 },
	{ "DODUMP", MADV_DODUMP, EINVAL, EINVAL },
	{ "POPULATE_READ", MADV_POPULATE_READ, 0, 0 },
	{ "POPULATE_WRITE", MADV_POPULATE_WRITE, 0, 0 },
	{ "no such advice", 4711, EINVAL, EINVAL },
};

/* A kernel built without it says EINVAL of any memory. */
static bool kernel_has(int advice)
{
	char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool has = !madvise(map, PAGE, advice) || errno != EINVAL;

	munmap(map, PAGE);
	return has;
}

static void try_advices(const struct kind *kind)
{
	struct part part[PARTS];
	char what[64];

	parts_of(kind, part);
	for (size_t i = 0; i < sizeof(advices) / sizeof(*advices); i++) {
		const struct advice *a = &advices[i];
		int want = kind->shmem ? a->shmem : a->own;

		if (!want && !kernel_has(a->advice))
			want = EINVAL;
		for (int p = 0; p < PARTS; p++) {
			char *map = fresh(kind, PROT_READ | PROT_WRITE);

			if (!map)
				continue;
			expect(madvise(map + part[p].at, part[p].bytes, a->advice) ? -errno : 0, -want, "%s of the %s", a->name,
			       part[p].name);
			intact(kind, map, a->name);
			unmap(kind, map);
		}
		snprintf(what, sizeof(what), "madvise %s", a->name);
		point(kind->name, what);
	}
}

/* For others only four advices are taken; the answer is how many bytes were dealt with. */
static void try_process_madvise(const struct kind *kind)
{
	static const struct advice table[] = {
		{ "COLD", MADV_COLD, 0, 0 },
		{ "PAGEOUT", MADV_PAGEOUT, 0, 0 },
		{ "WILLNEED", MADV_WILLNEED, 0, 0 },
		{ "COLLAPSE", MADV_COLLAPSE, EINVAL, EINVAL },
		{ "REMOVE", MADV_REMOVE, EINVAL, EINVAL },
		{ "FREE", MADV_FREE, EINVAL, EINVAL },
		{ "HWPOISON", MADV_HWPOISON, EINVAL, EINVAL },
	};
	char *map = fresh(kind, PROT_READ | PROT_WRITE);
	int ready[2], pidfd;
	char byte = 0;
	pid_t pid;

	if (!map || pipe2(ready, O_CLOEXEC))
		return;
	pid = fork();
	if (!pid) {
		close(ready[1]);
		byte = read(ready[0], &byte, 1);
		_exit(mem_wrong(map, kind->bytes, 0, SEED) >= 0);
	}
	pidfd = syscall(SYS_pidfd_open, pid, 0);
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		struct iovec iov[2] = { { map, 2 * PAGE }, { map + 5 * PAGE, kind->bytes - 5 * PAGE } };
		ssize_t n = syscall(SYS_process_madvise, pidfd, iov, 2, table[i].advice, 0);

		expect(n < 0 ? -errno : (int)n, -table[i].own, "%s", table[i].name);
		if (n > 0 && n != (ssize_t)(kind->bytes - 3 * PAGE))
			wrong("%s: of %zu bytes %zd", table[i].name, kind->bytes - 3 * PAGE, n);
		intact(kind, map, table[i].name);
	}
	close(pidfd);
	close(ready[0]);
	close(ready[1]);
	if (mem_wait(pid))
		wrong("the child's bytes are not what they were");
	unmap(kind, map);
	point(kind->name, "process_madvise of a child");
}

/* ---- other calls --------------------------------------------------------------------------------------------------- */

static void try_mprotect(const struct kind *kind)
{
	struct part part[PARTS];

	parts_of(kind, part);
	for (int p = 0; p < PARTS; p++) {
		char *map = fresh(kind, PROT_READ | PROT_WRITE), *at;

		if (!map)
			continue;
		at = map + part[p].at;
		expect(mprotect(at, part[p].bytes, PROT_READ | PROT_EXEC) ? -errno : 0, -EACCES, "PROT_EXEC of the %s",
		       part[p].name);
		expect(mprotect(at, part[p].bytes, PROT_READ) ? -errno : 0, 0, "PROT_READ of the %s", part[p].name);
		if (mem_touch(at, false) || mem_touch(at, true) != SIGSEGV)
			wrong("PROT_READ is not in force");
		expect(mprotect(at, part[p].bytes, PROT_NONE) ? -errno : 0, 0, "PROT_NONE of the %s", part[p].name);
		if (mem_touch(at + part[p].bytes - 1, false) != SIGSEGV)
			wrong("PROT_NONE is not in force");
		expect(mprotect(at, part[p].bytes, PROT_READ | PROT_WRITE) ? -errno : 0, 0, "back");
		intact(kind, map, "mprotect");
		unmap(kind, map);
	}
	point(kind->name, "mprotect");
}

/* @to pages beyond a 2 MiB boundary: with 0 a huge entry moves as one. */
static void move_to(const struct kind *kind, size_t to)
{
	char *map = fresh(kind, PROT_READ | PROT_WRITE), *span, *moved;

	span = mmap(NULL, kind->bytes + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!map || span == MAP_FAILED)
		return;
	moved = (char *)(((uintptr_t)span + HUGE - 1) & ~(HUGE - 1)) + to * PAGE;
	if (mremap(map, kind->bytes, kind->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, moved) != moved)
		wrong("moving to page %zu: %s", to, strerror(errno));
	else
		intact(kind, moved, "moving");
	if (mem_touch(map, false) != SIGSEGV)
		wrong("the old place is still mapped");
	munmap(span, kind->bytes + 2 * HUGE);
}

static void try_mremap(const struct kind *kind)
{
	char *map, *to;

	move_to(kind, 0);
	move_to(kind, 3);
	map = fresh(kind, PROT_READ | PROT_WRITE);
	if (!map)
		return;
	expect(mremap(map, kind->bytes, kind->bytes + PAGE, MREMAP_MAYMOVE) == MAP_FAILED ? -errno : 0, -EFAULT, "growing");
	expect(mremap(map, kind->bytes, kind->bytes + PAGE, 0) == MAP_FAILED ? -errno : 0, -EFAULT, "growing in place");
	expect(mremap(map, 0, kind->bytes, MREMAP_MAYMOVE) == MAP_FAILED ? -errno : 0, -EFAULT, "copying");
	expect(mremap(map, kind->bytes, kind->bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP) == MAP_FAILED ? -errno : 0, -EINVAL,
	       "DONTUNMAP");
	intact(kind, map, "refused mremap");
	/* A part out of the middle, and back. */
	to = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mremap(map + 5 * PAGE, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
		wrong("moving a part: %s", strerror(errno));
	else if (mem_wrong(to, 3 * PAGE, 5, SEED) >= 0)
		wrong("the part's bytes are not what they were");
	else if (mremap(to, 3 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, map + 5 * PAGE) == MAP_FAILED)
		wrong("moving a part back: %s", strerror(errno));
	else
		intact(kind, map, "moving a part");
	if (mremap(map, kind->bytes, 7 * PAGE, 0) != map)
		wrong("shrinking: %s", strerror(errno));
	if (mem_wrong(map, 7 * PAGE, 0, SEED) >= 0 || mem_touch(map + 7 * PAGE, false) != SIGSEGV)
		wrong("what is left after shrinking is not right");
	munmap(map, 7 * PAGE);
	point(kind->name, "mremap");
}

static void try_munmap(const struct kind *kind)
{
	struct part part[PARTS];

	parts_of(kind, part);
	for (int p = 1; p < PARTS; p++) {
		char *map = fresh(kind, PROT_READ | PROT_WRITE), *at;

		if (!map)
			continue;
		at = map + part[p].at;
		if (munmap(at, part[p].bytes))
			wrong("munmap of the %s: %s", part[p].name, strerror(errno));
		if (mem_wrong(map, part[p].at, 0, SEED) >= 0 ||
		    mem_wrong(at + part[p].bytes, kind->bytes - part[p].at - part[p].bytes, (part[p].at + part[p].bytes) / PAGE,
			      SEED) >= 0)
			wrong("what is left without the %s is not what it was", part[p].name);
		if (mem_touch(at, false) != SIGSEGV)
			wrong("the %s is still mapped", part[p].name);
		if (mmap(at, part[p].bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, kind->fd, part[p].at) != at)
			wrong("mapping the %s again: %s", part[p].name, strerror(errno));
		else
			intact(kind, map, "mapping a part again");
		unmap(kind, map);
	}
	point(kind->name, "munmap of parts");
}

static void try_locks(const struct kind *kind)
{
	struct part part[PARTS];
	uint64_t locked = mem_field("/proc/self/status", "VmLck");

	parts_of(kind, part);
	for (int p = 0; p < PARTS; p++) {
		char *map = fresh(kind, PROT_READ | PROT_WRITE), *at;

		if (!map)
			continue;
		at = map + part[p].at;
		expect(mlock(at, part[p].bytes) ? -errno : 0, 0, "mlock of the %s", part[p].name);
		expect(mlock2(at, part[p].bytes, MLOCK_ONFAULT) ? -errno : 0, 0, "mlock2 of the %s", part[p].name);
		if (mem_field("/proc/self/status", "VmLck") != locked)
			wrong("it is charged as locked");
		expect(madvise(at, part[p].bytes, MADV_DONTNEED) ? -errno : 0, 0, "DONTNEED of the locked %s", part[p].name);
		expect(munlock(at, part[p].bytes) ? -errno : 0, 0, "munlock of the %s", part[p].name);
		intact(kind, map, "mlock");
		unmap(kind, map);
	}
	point(kind->name, "mlock, mlock2 and munlock");
}

static void try_sync(const struct kind *kind)
{
	char *map = fresh(kind, PROT_READ | PROT_WRITE);
	unsigned char *seen = calloc(kind->bytes / PAGE, 1);

	if (!map || !seen)
		return;
	expect(msync(map, kind->bytes, MS_ASYNC) ? -errno : 0, 0, "MS_ASYNC");
	expect(msync(map, kind->bytes, MS_INVALIDATE) ? -errno : 0, 0, "MS_INVALIDATE");
	expect(msync(map + PAGE, PAGE, MS_SYNC) ? -errno : 0, kind->shmem ? 0 : -EINVAL, "MS_SYNC");
	expect(mincore(map, kind->bytes, seen) ? -errno : 0, 0, "mincore");
	for (size_t i = 0; i < kind->bytes / PAGE; i++)
		if (!(seen[i] & 1))
			wrong("mincore: page %zu was touched and is said not to be there", i);
	free(seen);
	intact(kind, map, "msync and mincore");
	unmap(kind, map);
	point(kind->name, "msync and mincore");
}

/* The pages of a mapping in another order: those of the slice, and never others. */
static void try_remap(const struct kind *kind)
{
	int fd = dev_slice(dev, kind->fd, 8 * PAGE, 8 * PAGE, PINION_RIGHT_READ | PINION_RIGHT_WRITE), ret;
	char *map;

	if (!expect(fd, 0, "SLICE"))
		return;
	map = dev_map(fd, 8 * PAGE, PROT_READ);
	if (mem_wrong(map, 8 * PAGE, 8, SEED) >= 0)
		wrong("the slice's bytes are wrong");
	ret = syscall(SYS_remap_file_pages, map, PAGE, 0, 2, 0) ? -errno : 0;
	if (ret != -ENOSYS && !kind->shmem) {
		expect(ret, 0, "remap_file_pages");
		if (mem_wrong(map, PAGE, 10, SEED) >= 0)
			wrong("remap_file_pages shows another page");
	}
	/* Past the slice's end there are more pages of the storage. */
	ret = syscall(SYS_remap_file_pages, map, PAGE, 0, 8, 0) ? -errno : 0;
	if (!ret)
		wrong("remap_file_pages maps what is behind the slice");
	if (kind->shmem) {
		syscall(SYS_remap_file_pages, map, PAGE, 0, 0, 0);
		if (*(volatile uint64_t *)map == mem_word(0, SEED))
			wrong("remap_file_pages maps what is before the slice");
	}
	munmap(map, 8 * PAGE);
	close(fd);
	point(kind->name, "remap_file_pages stays inside the slice");
}

/* ---- userfaultfd --------------------------------------------------------------------------------------------------- */

static int uffd_new(uint64_t features)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		return -EINVAL;
	}
	return fd < 0 ? -errno : fd;
}

static int uffd_register(int fd, char *map, size_t bytes, uint64_t mode)
{
	struct uffdio_register reg = { .range = { (uintptr_t)map, bytes }, .mode = mode };

	return ioctl(fd, UFFDIO_REGISTER, &reg) ? -errno : 0;
}

/* The kernel on behalf of one who debugs itself, and of one who resolves its own faults: neither writes. */
static void try_force(const struct kind *kind, char *map)
{
	struct iovec from = { "not to be seen", 15 }, to = { map, 15 };
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC), fd = uffd_new(0), ret;

	if (pwrite(mem, from.iov_base, from.iov_len, (off_t)(uintptr_t)map) >= 0)
		wrong("/proc/self/mem writes");
	close(mem);
	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) >= 0)
		wrong("process_vm_writev writes");
	for (uint64_t mode = UFFDIO_REGISTER_MODE_MISSING; fd >= 0 && mode <= UFFDIO_REGISTER_MODE_MINOR; mode <<= 1) {
		ret = uffd_register(fd, map, kind->bytes, mode);
		if (ret != -EPERM)
			expect(ret, -EINVAL, "userfaultfd, mode %llu", (unsigned long long)mode);
	}
	close(fd);
}

/* A read-only slice: nothing becomes writable, nothing can be removed. */
static void try_read_only(const struct kind *kind)
{
	int fd = dev_slice(dev, kind->fd, 0, kind->bytes, PINION_RIGHT_READ);
	char *map;

	if (!expect(fd, 0, "SLICE"))
		return;
	map = dev_map_aligned(fd, kind->bytes, PROT_READ);
	if (map == MAP_FAILED) {
		wrong("mmap: %s", strerror(errno));
		return;
	}
	expect(madvise(map, kind->bytes, MADV_POPULATE_READ) ? -errno : 0, 0, "POPULATE_READ");
	expect(madvise(map, kind->bytes, MADV_POPULATE_WRITE) ? -errno : 0, -EINVAL, "POPULATE_WRITE");
	expect(madvise(map, kind->bytes, MADV_REMOVE) ? -errno : 0, -EACCES, "REMOVE");
	expect(madvise(map, kind->bytes, MADV_DONTNEED) ? -errno : 0, 0, "DONTNEED");
	expect(mprotect(map, PAGE, PROT_READ | PROT_WRITE) ? -errno : 0, -EACCES, "mprotect");
	expect(syscall(SYS_remap_file_pages, map, PAGE, 0, 1, 0) ? -errno : 0, -EINVAL, "remap_file_pages");
	try_force(kind, map);
	if (mem_touch(map, true) != SIGSEGV)
		wrong("a write was not refused");
	if (mem_wrong(map, kind->bytes, 0, SEED) >= 0)
		wrong("the bytes are not what they were");
	munmap(map, kind->bytes);
	close(fd);
	point(kind->name, "a read-only slice");
}

/* Read-only too of a memfd that was opened for writing, which the mapping has from then on. */
static void try_read_only_memfd(void)
{
	struct kind kind = { .name = "memfd", .bytes = 16 * PAGE };
	int memfd = memfd_create("advise", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char *map;

	if (ftruncate(memfd, (off_t)kind.bytes) || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		wrong("memfd: %s", strerror(errno));
	map = dev_map(memfd, kind.bytes, PROT_READ | PROT_WRITE);
	mem_fill(map, kind.bytes, 0, SEED);
	kind.fd = dev_pin_fd(dev, memfd, 0, kind.bytes, NULL);
	try_read_only(&kind);
	munmap(map, kind.bytes);
	close(kind.fd);
	close(memfd);
}

/*
 * A memfd's mapping is the memfd's own, and a shared one could be moved to the rest of it: the kernel asks nobody but the
 * memfd. So a part is mapped for reading only, whatever the rights.
 */
static void try_remap_memfd(void)
{
	int memfd = memfd_create("advise", MFD_CLOEXEC | MFD_ALLOW_SEALING), pin, fd;
	char *map;

	if (ftruncate(memfd, 16 * PAGE) || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		wrong("memfd: %s", strerror(errno));
	map = dev_map(memfd, 16 * PAGE, PROT_READ | PROT_WRITE);
	mem_fill(map, 16 * PAGE, 0, SEED);
	munmap(map, 16 * PAGE);
	pin = dev_pin_fd(dev, memfd, 8 * PAGE, 8 * PAGE, NULL);
	fd = dev_slice(dev, pin, 0, 4 * PAGE, PINION_RIGHT_READ);
	map = fd < 0 ? MAP_FAILED : dev_map(fd, 4 * PAGE, PROT_READ);
	if (map == MAP_FAILED) {
		wrong("PIN, SLICE and mmap: %d, %s", fd, strerror(errno));
	} else {
		expect(syscall(SYS_remap_file_pages, map, PAGE, 0, 0, 0) ? -errno : 0, -EINVAL, "remap_file_pages");
		if (mem_wrong(map, 4 * PAGE, 8, SEED) >= 0)
			wrong("the mapping shows another part");
		munmap(map, 4 * PAGE);
	}
	close(fd);
	close(pin);
	close(memfd);
	point("memfd", "remap_file_pages stays inside a read-only slice");
}

static void try_userfaultfd(const struct kind *kind)
{
	static const struct {
		const char *name;
		uint64_t mode;
	} modes[] = { { "MISSING", UFFDIO_REGISTER_MODE_MISSING },
		      { "WP", UFFDIO_REGISTER_MODE_WP },
		      { "MINOR", UFFDIO_REGISTER_MODE_MINOR } };
	char *map = fresh(kind, PROT_READ | PROT_WRITE);
	struct uffdio_range range = { (uintptr_t)map, kind->bytes };
	int fd = uffd_new(0), ret;

	if (fd == -ENOSYS) {
		tap_skip("userfaultfd", "this kernel has none");
		unmap(kind, map);
		return;
	}
	for (size_t i = 0; map && i < sizeof(modes) / sizeof(*modes); i++) {
		ret = uffd_register(fd, map, kind->bytes, modes[i].mode);
		/* Not every architecture has the mode for shmem. */
		if (!kind->shmem || ret)
			expect(ret, -EINVAL, "mode %s", modes[i].name);
		if (!ret)
			ioctl(fd, UFFDIO_UNREGISTER, &range);
		intact(kind, map, modes[i].name);
	}
	close(fd);
	unmap(kind, map);
	point(kind->name, "userfaultfd");
}

/* Write tracking that resolves itself is for any memory; kernels of late leave out what is special, as ours is. */
static void try_write_tracking(const struct kind *kind)
{
	const uint64_t wp_async = 1ULL << 15, wp_unpopulated = 1ULL << 13;
	int fd = uffd_new(wp_async | wp_unpopulated);
	char *map;

	if (fd < 0) {
		tap_skip("asynchronous write tracking", "this kernel's userfaultfd has none");
		return;
	}
	map = fresh(kind, PROT_READ | PROT_WRITE);
	for (int round = 0; map && round < 2; round++) {
		int ret = uffd_register(fd, map, kind->bytes, UFFDIO_REGISTER_MODE_WP);
		struct uffdio_writeprotect wp = { .range = { (uintptr_t)map, kind->bytes }, .mode = UFFDIO_WRITEPROTECT_MODE_WP };

		if (ret == -EINVAL)
			break;
		expect(ret, 0, "register");
		expect(ioctl(fd, UFFDIO_WRITEPROTECT, &wp) ? -errno : 0, 0, "protect");
		if (mem_wrong(map, kind->bytes, 0, SEED) >= 0)
			wrong("the bytes are not what they were");
		mem_fill(map + 5 * PAGE, PAGE, 5, SEED);
		wp.range = (struct uffdio_range){ (uintptr_t)map + 2 * PAGE, 2 * PAGE };
		wp.mode = 0;
		expect(ioctl(fd, UFFDIO_WRITEPROTECT, &wp) ? -errno : 0, 0, "let go of a part");
		intact(kind, map, "write tracking");
		madvise(map, kind->bytes, MADV_DONTNEED);
	}
	close(fd);
	if (map) {
		intact(kind, map, "after write tracking");
		unmap(kind, map);
	}
	point(kind->name, "asynchronous write tracking");
}

/* ---- memory policy ------------------------------------------------------------------------------------------------- */

/* What marks our pages as no page to move is that they may not be in the zones where pages are moved to: below all others. */
static bool has_lowest_zone(void)
{
	char *zones = file_get("/proc/zoneinfo");
	bool has = strstr(zones, "zone      DMA\n");

	free(zones);
	return has;
}

static void try_policy(const struct kind *kind)
{
	enum { BIND = 2, INTERLEAVE = 3, MOVE = 2, MOVE_ALL = 4 };
	unsigned long nodes = 1;
	char *map = fresh(kind, PROT_READ | PROT_WRITE);
	void *page[2] = { map, map + 5 * PAGE };
	int node[2] = { 0, 0 }, status[2] = { 1000, 1000 };

	if (map && syscall(SYS_mbind, map, kind->bytes, BIND, &nodes, 64, 0) && errno == ENOSYS) {
		tap_skip("memory policy", "a kernel without NUMA");
		unmap(kind, map);
		return;
	}
	expect(syscall(SYS_mbind, map, kind->bytes, BIND, &nodes, 64, MOVE) ? -errno : 0, 0, "mbind MOVE");
	expect(syscall(SYS_mbind, map + 5 * PAGE, 3 * PAGE, INTERLEAVE, &nodes, 64, MOVE_ALL) ? -errno : 0, 0,
	       "mbind MOVE_ALL of a part");
	intact(kind, map, "mbind");
	expect(syscall(SYS_move_pages, 0, 2, page, NULL, status, 0) ? -errno : 0, 0, "move_pages asked");
	if (status[0] || status[1])
		wrong("move_pages says node %d and %d, not 0", status[0], status[1]);
	expect(syscall(SYS_move_pages, 0, 2, page, node, status, MOVE_ALL) < 0 ? -errno : 0, 0, "move_pages");
	if (!kind->shmem && has_lowest_zone() && (status[0] != -EFAULT || status[1] != -EFAULT))
		wrong("move_pages: status %d and %d, not EFAULT", status[0], status[1]);
	expect(syscall(SYS_migrate_pages, 0, 64, &nodes, &nodes) < 0 ? -errno : 0, 0, "migrate_pages");
	intact(kind, map, "migration");
	unmap(kind, map);
	point(kind->name, "mbind, move_pages and migrate_pages");
}

/* ---- broken memory ------------------------------------------------------------------------------------------------- */

/* Nobody gets the frame again: not those who take most of what there is. */
static void never_again(uint64_t pfn)
{
	size_t bytes = mem_info("MemAvailable") / 10 * 7 / HUGE * HUGE;
	char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint64_t flags = mem_frame_flags(pfn), *entry = malloc(bytes / PAGE * 8);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (flags == ~0ULL || !(flags & MEM_FRAME_POISON) || flags & MEM_FRAME_BUDDY)
		wrong("the frame's flags are %llx", (unsigned long long)flags);
	if (map == MAP_FAILED || !entry ||
	    pread(fd, entry, bytes / PAGE * 8, (uintptr_t)map / PAGE * 8) != (ssize_t)(bytes / PAGE * 8))
		wrong("cannot take and look at %zu MiB: %s", bytes >> 20, strerror(errno));
	else
		for (size_t i = 0; i < bytes / PAGE; i++)
			if ((entry[i] & ((1ULL << 55) - 1)) == pfn)
				wrong("the frame was given out again");
	free(entry);
	close(fd);
	if (map != MAP_FAILED)
		munmap(map, bytes);
}

/* A buffer of its own, with a page that breaks. */
static void try_poison(const struct kind *like)
{
	struct kind kind = *like;
	size_t victim = 5 * PAGE;
	struct pinion_info before, after;
	uint64_t pfn;
	char *map;
	int ret;

	kind.fd = dev_alloc(dev, kind.bytes, kind.flags);
	dev_info(dev, &before);
	map = dev_map_aligned(kind.fd, kind.bytes, PROT_READ | PROT_WRITE);
	if (kind.fd < 0 || map == MAP_FAILED)
		return;
	mem_fill(map, kind.bytes, 0, SEED);
	pfn = mem_pfn(map + victim);
	ret = madvise(map + victim, PAGE, MADV_HWPOISON) ? -errno : 0;
	if (ret == -EINVAL) {
		tap_skip("broken memory", "a kernel without memory failure");
	} else {
		munmap(map, kind.bytes);
		map = dev_map_aligned(kind.fd, kind.bytes, PROT_READ | PROT_WRITE);
		if (mem_wrong(map, victim, 0, SEED) >= 0 ||
		    mem_wrong(map + victim + PAGE, kind.bytes - victim - PAGE, victim / PAGE + 1, SEED) >= 0)
			wrong("pages beside the broken one are not what they were");
		ret = mem_touch(map + victim, false);
		if (ret != SIGBUS || mem_signal.si_code != BUS_AR)
			wrong("the broken page gives signal %d, code %d", ret, ret ? mem_signal.si_code : 0);
		madvise(map, kind.bytes, MADV_DONTNEED);
		if (mem_wrong(map, victim, 0, SEED) >= 0)
			wrong("pages before the broken one are not what they were");
	}
	munmap(map, kind.bytes);
	close(kind.fd);
	if (ret == -EINVAL)
		return;
	dev_info(dev, &after);
	if (after.bytes != before.bytes - kind.bytes)
		wrong("%llu bytes in use, not %llu", after.bytes, before.bytes - kind.bytes);
	if (!kind.shmem && after.poisoned_bytes < before.poisoned_bytes + PAGE)
		wrong("poisoned_bytes has not grown");
	never_again(pfn);
	point(kind.name, "a broken page is kept from everybody");
}

/* 0 or -errno. 6.12 kills who breaks a page of a memfd's mapping, as if it had met it, and 6.1 does not: so a child does. */
static int poison_by_a_child(char *map)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(madvise(map, PAGE, MADV_HWPOISON) ? errno : 0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGBUS ? 0 : -EINTR;
	return -WEXITSTATUS(status);
}

/* A broken page is nobody's to pin: not by its memfd, nor by the mapping that had it. @flags: of the memfd. */
static void try_pin_poisoned(const char *name, unsigned int flags, size_t bytes)
{
	int memfd = memfd_create("broken", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	uint64_t pfn;
	char *map;
	int ret;

	if (ftruncate(memfd, (off_t)bytes) || fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK))
		wrong("memfd: %s", strerror(errno));
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
	mem_fill(map, bytes, 0, SEED);
	pfn = mem_pfn(map + bytes / 2);
	ret = poison_by_a_child(map + bytes / 2);
	if (ret == -EINVAL) {
		tap_skip("broken memory", "a kernel without memory failure");
	} else {
		expect(ret, 0, "MADV_HWPOISON");
		expect(dev_pin_fd(dev, memfd, 0, bytes, NULL), -EIO, "PIN of all of it");
		expect(dev_pin_fd(dev, memfd, bytes / 2, PAGE, NULL), -EIO, "PIN of the page");
		expect(dev_pin(dev, map + bytes / 2, PAGE), -ENODATA, "PIN of its mapping");
		munmap(map, bytes);
		map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0);
		expect(dev_pin(dev, map + bytes / 2, PAGE), -ENODATA, "PIN of a mapping that has nothing yet");
		never_again(pfn);
		point(name, "a broken page is pinned for nobody");
	}
	munmap(map, bytes);
	close(memfd);
}

static void try_soft_offline(const struct kind *kind)
{
	struct part part[PARTS];
	char *map = fresh(kind, PROT_READ | PROT_WRITE);

	parts_of(kind, part);
	for (int p = 1; map && p < PARTS; p++) {
		int ret = madvise(map + part[p].at, part[p].bytes, MADV_SOFT_OFFLINE) ? -errno : 0;

		if (ret == -EINVAL) {
			tap_skip("soft offline", "a kernel without memory failure");
			unmap(kind, map);
			return;
		}
		if (ret != -EBUSY && ret != -EIO && !(kind->shmem && !ret))
			wrong("SOFT_OFFLINE of the %s: %d", part[p].name, ret);
		intact(kind, map, "SOFT_OFFLINE");
	}
	if (map)
		unmap(kind, map);
	point(kind->name, "madvise SOFT_OFFLINE");
}

/* ---- all of it ------------------------------------------------------------------------------------------------------ */

static void try_kind(struct kind *kind)
{
	struct pinion_bufinfo info;
	char *map;

	kind->fd = dev_alloc(dev, kind->bytes, kind->flags);
	if (kind->fd == -EOPNOTSUPP) {
		tap_skip("advice on SHMEM", "this kernel has no need of that backing");
		return;
	}
	map = kind->fd < 0 ? MAP_FAILED : dev_map(kind->fd, kind->bytes, PROT_READ | PROT_WRITE);
	if (!tap_ok(map != MAP_FAILED, kind->name, "%s", strerror(errno)))
		return;
	if (!(kind->bytes % HUGE) && !dev_bufinfo(dev, kind->fd, &info) && info.huge_bytes != kind->bytes)
		wrong("%llu of %zu bytes in huge pages", info.huge_bytes, kind->bytes);
	mem_fill(map, kind->bytes, 0, SEED);
	munmap(map, kind->bytes);
	try_advices(kind);
	try_process_madvise(kind);
	try_read_only(kind);
	try_mprotect(kind);
	try_mremap(kind);
	try_munmap(kind);
	try_locks(kind);
	try_sync(kind);
	try_remap(kind);
	try_userfaultfd(kind);
	try_write_tracking(kind);
	try_policy(kind);
	try_soft_offline(kind);
	try_poison(kind);
	close(kind->fd);
}

int main(void)
{
	struct kind kinds[] = {
		{ .name = "2 MiB pages", .bytes = 2 * HUGE },
		{ .name = "4 KiB pages", .bytes = 64 * PAGE, .flags = PINION_ALLOC_HUGE_NEVER },
		{ .name = "odd pages", .bytes = 17 * PAGE },
		{ .name = "SHMEM", .bytes = 64 * PAGE, .flags = PINION_ALLOC_SHMEM, .shmem = true },
	};
	struct pinion_info before, after;
	uint64_t available;

	dev = dev_open(O_RDWR);
	if (!tap_ok(dev >= 0 && !dev_info(dev, &before), "open", "%d", dev))
		return tap_end();
	available = mem_free();
	/* While memory is in one piece. */
	file_put(HUGE_PAGES, "2");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		try_kind(&kinds[i]);
	try_read_only_memfd();
	try_remap_memfd();
	try_pin_poisoned("memfd", 0, 16 * PAGE);
	if (mem_huge_free() >= 2)
		try_pin_poisoned("memfd of huge pages", MFD_HUGETLB, 2 * HUGE);
	else
		tap_skip("broken huge pages", "no hugetlb pages to be had");
	file_put(HUGE_PAGES, "0");
	dev_info(dev, &after);
	tap_ok(after.bytes == before.bytes && after.buffers == before.buffers, "nothing is left", "%llu bytes, %llu buffers",
	       after.bytes - before.bytes, after.buffers - before.buffers);
	tap_ok(mem_free_again(available, after.poisoned_bytes - before.poisoned_bytes + 12 * MIB),
	       "memory is back but for what is broken", "%llu KiB missing, %llu KiB poisoned",
	       (unsigned long long)(available - mem_free()) >> 10, (after.poisoned_bytes - before.poisoned_bytes) >> 10);
	close(dev);
	return tap_end();
}
