/* SPDX-License-Identifier: MIT */
/*
 * The memfd ground's pages: a memfd that cannot change its size, every page present before anyone sees it, pinned by an
 * io_uring registration where the kernel and RLIMIT_MEMLOCK allow it, else locked, else neither, and it says which.
 */
#include "provider.h"

#include "../error.h"
#include "../memory/room.h"
#include "../work/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The room is looked at again after each part, because others take memory at the same time. */
#define POPULATE_BYTES (UINT64_C(64) << 20)
/* Entries of a ring that must still be had after a registration: as much as the rings of a few streams take. */
#define SPARE_RING 256
#define RINGS_BYTES (UINT64_C(64) << 10) /* what such a ring and that of the pin take, roughly */
/* io_uring takes at most this much in one registered buffer. */
#define REGISTER_BYTES (UINT64_C(1) << 30)

#define THP_DIR "/sys/kernel/mm/transparent_hugepage/"

/* The word in brackets of a sysfs file that lists its choices; "" when it cannot be read. */
static void read_choice(const char *path, char choice[32])
{
	char text[128], *open_at, *close_at;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	open_at = strchr(text, '[');
	close_at = open_at ? strchr(open_at, ']') : NULL;
	snprintf(choice, 32, "%.*s", close_at ? (int)(close_at - open_at - 1) : 0, close_at ? open_at + 1 : "");
}

static bool choice_gives(const char *choice)
{
	return !strcmp(choice, "always") || !strcmp(choice, "within_size") || !strcmp(choice, "advise") || !strcmp(choice, "force");
}

static uint32_t memfd_huge_size(const char **why)
{
	char choice[32], sized[32], path[128], text[32];
	int fd = open(THP_DIR "hpage_pmd_size", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	uint32_t bytes;

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	bytes = strtoul(text, NULL, 10);
	if (!bytes) {
		*why = "this kernel has no transparent huge pages";
		return 0;
	}
	read_choice(THP_DIR "shmem_enabled", choice);
	snprintf(path, sizeof(path), THP_DIR "hugepages-%ukB/shmem_enabled", bytes / 1024);
	read_choice(path, sized);
	if (!strcmp(choice, "deny") || (!choice_gives(choice) && !choice_gives(sized))) {
		*why = THP_DIR "shmem_enabled gives none to shared memory; as root: echo advise > " THP_DIR "shmem_enabled";
		return 0;
	}
	*why = THP_DIR "shmem_enabled gives them to shared memory";
	return bytes;
}

/* Chooses the page and rounds the size to it. */
static int choose_page(const struct pages_request *req, struct pages *pages)
{
	uint64_t small = sysconf(_SC_PAGESIZE), rounded;
	const char *why = "";
	uint64_t huge = req->pages == PINION_PAGES_SMALL ? 0 : memfd_huge_size(&why);

	if (req->pages == PINION_PAGES_HUGE && !huge)
		return fail(EOPNOTSUPP, "huge pages were asked for: %s", why);
	pages->page_size = huge && (req->bytes >= huge || req->pages == PINION_PAGES_HUGE) ? huge : small;
	if (__builtin_add_overflow(req->bytes, pages->page_size - 1, &rounded) || rounded > INT64_MAX)
		return fail(EOVERFLOW, "a buffer of %llu bytes does not fit an address space", (unsigned long long)req->bytes);
	pages->bytes = rounded - rounded % pages->page_size;
	return 0;
}

/* Maps at an address that is a multiple of the page, so that a huge page maps as one. */
static int map_aligned(int fd, uint64_t bytes, uint64_t align, int prot, void **addr)
{
	uint64_t span;
	char *base, *at;

	if (__builtin_add_overflow(bytes, align, &span))
		return fail(EOVERFLOW, "mapping %llu bytes", (unsigned long long)bytes);
	base = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return fail_errno(errno, "no address space for a mapping of %llu bytes", (unsigned long long)bytes);
	at = (char *)(((uintptr_t)base + align - 1) & ~(uintptr_t)(align - 1));
	if (mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int err = errno;

		munmap(base, span);
		return fail_errno(err, "mapping a buffer of %llu bytes", (unsigned long long)bytes);
	}
	if (at > base)
		munmap(base, at - base);
	if (base + span > at + bytes)
		munmap(at + bytes, base + span - (at + bytes));
	*addr = at;
	return 0;
}

static int populate(const struct pages *pages, char *addr)
{
	uint64_t done, part;
	int ret;

	for (done = 0; done < pages->bytes; done += part) {
		part = pages->bytes - done < POPULATE_BYTES ? pages->bytes - done : POPULATE_BYTES;
		/* At first all of it must fit; later what is left. */
		ret = room_check(pages->bytes - done, "the buffer");
		if (ret)
			return ret;
		while (madvise(addr + done, part, MADV_POPULATE_WRITE)) {
			if (errno == EINTR || errno == EAGAIN)
				continue;
			if (errno == EINVAL)
				return fail(EOPNOTSUPP, "MADV_POPULATE_WRITE needs Linux 5.14");
			return fail_errno(errno == EFAULT ? ENOMEM : errno, "making %llu of %llu bytes present",
					  (unsigned long long)part, (unsigned long long)pages->bytes);
		}
	}
	return 0;
}

/* What the kernel says of the mapping at @addr: bytes of it mapped by huge pages. */
static uint64_t huge_bytes(const void *addr)
{
	char line[512], head[32];
	unsigned long long kb = 0;
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "re");

	if (!f)
		return 0;
	snprintf(head, sizeof(head), "%lx-", (unsigned long)addr);
	while (fgets(line, sizeof(line), f)) {
		if (here && sscanf(line, "ShmemPmdMapped: %llu kB", &kb) == 1)
			break;
		here = here || !strncmp(line, head, strlen(head));
	}
	fclose(f);
	return kb * 1024;
}

/* ---- hold ---------------------------------------------------------------------------------------------------------- */

static uint64_t memlock_limit(void)
{
	struct rlimit lim;

	return getrlimit(RLIMIT_MEMLOCK, &lim) ? 0 : lim.rlim_cur;
}

/* Whether the pages and a few rings fit the limit at all: what never can is not waited for. */
static bool may_fit(const struct pages *pages)
{
	uint64_t limit = memlock_limit();

	return pages->bytes <= limit && limit - pages->bytes >= RINGS_BYTES;
}

/* Pins the pages by registering them with a ring that is never used for I/O; its descriptor is the hold. */
static int hold_registered(struct pages *pages, char *addr)
{
	uint64_t n = (pages->bytes + REGISTER_BYTES - 1) / REGISTER_BYTES;
	struct iovec *iov;
	struct io_uring ring;
	int ret;

	if (n > 16384) /* IORING_MAX_REG_BUFFERS */
		return -E2BIG;
	iov = calloc(n, sizeof(*iov));
	if (!iov)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++) {
		iov[i].iov_base = addr + i * REGISTER_BYTES;
		iov[i].iov_len = i + 1 < n ? REGISTER_BYTES : pages->bytes - i * REGISTER_BYTES;
	}
	ret = may_fit(pages) ? ring_open(1, &ring) : io_uring_queue_init(1, &ring, 0);
	if (ret)
		goto out;
	ret = may_fit(pages) ? ring_register(&ring, iov, n) : io_uring_register_buffers(&ring, iov, n);
	pages->pin_fd = ret ? -1 : fcntl(ring.ring_fd, F_DUPFD_CLOEXEC, 0);
	if (!ret && pages->pin_fd < 0)
		ret = -errno;
	io_uring_queue_exit(&ring);
out:
	free(iov);
	return ret;
}

/*
 * Some kernels count rings against the same limit as registrations. One that left no room for the next ring would stop
 * every further stream of the user.
 */
static int spare_ring(const struct pages *pages)
{
	struct io_uring ring;
	int ret = may_fit(pages) ? ring_open(SPARE_RING, &ring) : io_uring_queue_init(SPARE_RING, &ring, 0);

	if (!ret)
		io_uring_queue_exit(&ring);
	return ret;
}

static int hold_pages(struct pages *pages, enum pinion_hold want, char *addr)
{
	char why[64] = "";
	int err, ret;

	pages->hold = PINION_HOLD_NONE;
	if (want == PINION_HOLD_NONE) {
		snprintf(pages->hold_why, sizeof(pages->hold_why), "not asked for");
		return 0;
	}
	if (want != PINION_HOLD_LOCKED) {
		ret = hold_registered(pages, addr);
		if (!ret && want == PINION_HOLD_AUTO && spare_ring(pages)) {
			close(pages->pin_fd);
			pages->pin_fd = -1;
			ret = -ENOMEM;
		}
		if (!ret) {
			pages->hold = PINION_HOLD_REGISTERED;
			return 0;
		}
		snprintf(why, sizeof(why), "io_uring registration: %s; ", strerrordesc_np(-ret));
		if (want == PINION_HOLD_REGISTERED)
			return fail(-ret, "io_uring registration of %llu bytes: %s; RLIMIT_MEMLOCK is %lld bytes (ulimit -l)",
				    (unsigned long long)pages->bytes, strerrordesc_np(-ret), (long long)memlock_limit());
	}
	if (!mlock(addr, pages->bytes)) {
		pages->hold = PINION_HOLD_LOCKED;
		snprintf(pages->hold_why, sizeof(pages->hold_why), "%s%s", why, *why ? "locked instead" : "asked for");
		return 0;
	}
	err = errno;
	snprintf(pages->hold_why, sizeof(pages->hold_why), "%smlock: %s (RLIMIT_MEMLOCK is %llu KiB, need %llu KiB; ulimit -l)", why,
		 strerrordesc_np(err), (unsigned long long)memlock_limit() / 1024, (unsigned long long)pages->bytes / 1024);
	return want == PINION_HOLD_LOCKED ? fail(err, "%s", pages->hold_why) : 0;
}

/* ---- the ops ------------------------------------------------------------------------------------------------------- */

static int memfd_pages_alloc(const struct pages_request *req, struct pages *pages, void **addr)
{
	int ret;

	memset(pages, 0, sizeof(*pages));
	pages->pin_fd = -1;
	ret = choose_page(req, pages);
	if (!ret)
		ret = room_check(pages->bytes, "the buffer");
	if (ret)
		return ret;
	pages->fd = memfd_create(req->label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (pages->fd < 0)
		return fail_errno(errno, "memfd_create");
	if (ftruncate(pages->fd, pages->bytes)) {
		ret = fail_errno(errno, "sizing a memfd to %llu bytes", (unsigned long long)pages->bytes);
		goto err_close;
	}
	if (fcntl(pages->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		ret = fail_errno(errno, "sealing a memfd's size");
		goto err_close;
	}
	ret = map_aligned(pages->fd, pages->bytes, pages->page_size, PROT_READ | PROT_WRITE, addr);
	if (ret)
		goto err_close;
	madvise(*addr, pages->bytes, pages->page_size > sysconf(_SC_PAGESIZE) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	ret = populate(pages, *addr);
	if (!ret && pages->page_size > sysconf(_SC_PAGESIZE))
		pages->huge_bytes = huge_bytes(*addr);
	if (!ret)
		ret = hold_pages(pages, req->hold, *addr);
	if (!ret)
		return 0;
	munmap(*addr, pages->bytes);
err_close:
	close(pages->fd);
	return ret;
}

static int memfd_pages_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return fail(EPROTO, "the descriptor received is not a memfd whose size is sealed, so it could shrink under us");
	if (fstat(fd, &st) || st.st_size < 0 || (uint64_t)st.st_size != bytes)
		return fail(EPROTO, "the buffer received is said to have %llu bytes and has %lld", (unsigned long long)bytes,
			    (long long)st.st_size);
	if (!bytes)
		return fail(EPROTO, "the buffer received has no bytes");
	if (page_size < 4096 || (page_size & (page_size - 1)) || bytes % page_size)
		return fail(EPROTO, "the buffer received is said to have pages of %u bytes", page_size);
	memset(pages, 0, sizeof(*pages));
	pages->fd = fd;
	pages->bytes = bytes;
	pages->page_size = page_size;
	pages->sealed = seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE);
	pages->pin_fd = -1;
	pages->hold = PINION_HOLD_NONE;
	snprintf(pages->hold_why, sizeof(pages->hold_why), "held, if at all, by the process it came from");
	return 0;
}

static bool memfd_pages_sealed(const struct pages *pages)
{
	int seals = fcntl(pages->fd, F_GET_SEALS);

	return seals >= 0 && (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE));
}

static int memfd_pages_seal(struct pages *pages)
{
	if (!memfd_pages_sealed(pages) && fcntl(pages->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL))
		return fail_errno(errno, "sealing the buffer against new writers (F_SEAL_FUTURE_WRITE, Linux 5.1)");
	pages->sealed = true;
	return 0;
}

static int memfd_pages_map(const struct pages *pages, uint32_t prot, void **addr)
{
	char path[64];
	int fd, ret;

	if (prot & PINION_WRITE)
		return map_aligned(pages->fd, pages->bytes, pages->page_size, PROT_READ | PROT_WRITE, addr);
	/* Through a descriptor that cannot write, so that mprotect() cannot make a writer of the mapping, sealed or not yet. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pages->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ret = map_aligned(fd < 0 ? pages->fd : fd, pages->bytes, pages->page_size, PROT_READ, addr);
	if (fd >= 0)
		close(fd);
	return ret;
}

static void memfd_pages_close(struct pages *pages)
{
	if (pages->pin_fd >= 0)
		close(pages->pin_fd);
	close(pages->fd);
}

const struct provider_ops provider_memfd = {
	.name = "memfd",
	.huge_size = memfd_huge_size,
	.pages_adopt = memfd_pages_adopt,
	.pages_alloc = memfd_pages_alloc,
	.pages_close = memfd_pages_close,
	.pages_map = memfd_pages_map,
	.pages_seal = memfd_pages_seal,
	.pages_sealed = memfd_pages_sealed,
};
