/* SPDX-License-Identifier: MIT */
/*
 * The memfd ground's pages: a memfd that cannot change its size, every page present before anyone sees it, pinned by an
 * io_uring registration where the kernel and RLIMIT_MEMLOCK allow it, else locked, else neither, and it says which.
 */
#include "provider.h"

#include "../error.h"
#include "../machine/memfile.h"
#include "../machine/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

static uint32_t memfd_huge_size(const struct kmod_device *dev, const char **why)
{
	char choice[32], sized[32], path[128], text[32];
	int fd = open(THP_DIR "hpage_pmd_size", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	uint32_t bytes;

	(void)dev;
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
	uint64_t small = sysconf(_SC_PAGESIZE);
	const char *why = "";
	uint64_t huge = req->pages == PINION_PAGES_SMALL ? 0 : memfd_huge_size(NULL, &why);

	if (req->pages == PINION_PAGES_HUGE && !huge)
		return fail(EOPNOTSUPP, "huge pages were asked for: %s", why);
	pages->page_size = huge && (req->bytes >= huge || req->pages == PINION_PAGES_HUGE) ? huge : small;
	return pages_round(req->bytes, pages->page_size, &pages->bytes);
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

/* ---- the ops ------------------------------------------------------------------------------------------------------- */

static int memfd_pages_alloc(const struct pages_request *req, struct pages *pages, void **addr)
{
	int ret;

	if (req->hold == PINION_HOLD_PINNED)
		return fail(EOPNOTSUPP, "pages pinned for every device need the kernel module, and this context stands on memfd");
	*pages = (struct pages){ .ops = &provider_memfd, .fd = -1, .pin_fd = -1 };
	ret = choose_page(req, pages);
	if (!ret)
		ret = room_check(pages->bytes, "the buffer");
	if (ret)
		return ret;
	pages->fd = memfile_create(req->label, 0);
	if (pages->fd < 0)
		return fail_errno(-pages->fd, "memfd_create");
	if (ftruncate(pages->fd, pages->bytes)) {
		ret = fail_errno(errno, "sizing a memfd to %llu bytes", (unsigned long long)pages->bytes);
		goto err_close;
	}
	if (fcntl(pages->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW)) {
		ret = fail_errno(errno, "sealing a memfd's size");
		goto err_close;
	}
	ret = pages_map_aligned(pages->fd, pages->bytes, pages->page_size, 0, PROT_READ | PROT_WRITE, 0, addr);
	if (ret)
		goto err_close;
	madvise(*addr, pages->bytes, pages->page_size > sysconf(_SC_PAGESIZE) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	ret = populate(pages, *addr);
	if (!ret && pages->page_size > sysconf(_SC_PAGESIZE))
		pages->huge_bytes = huge_bytes(*addr);
	if (!ret)
		ret = pages_hold(pages, req->hold, *addr);
	if (!ret)
		return 0;
	munmap(*addr, pages->bytes);
err_close:
	close(pages->fd);
	return ret;
}

int memfd_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages)
{
	int seals = fcntl(fd, F_GET_SEALS), ret;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return fail(EPROTO, "the descriptor received is neither a memfd whose size is sealed nor the module's, so it could "
				    "shrink under us");
	ret = pages_check_said(bytes, fstat(fd, &st) || st.st_size < 0 ? 0 : st.st_size, page_size);
	if (ret)
		return ret;
	*pages = (struct pages){
		.ops = &provider_memfd,
		.fd = fd,
		.bytes = bytes,
		.page_size = page_size,
		.sealed = seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE),
		.pin_fd = -1,
		.hold = PINION_HOLD_NONE,
		.hold_why = "held, if at all, by the process it came from",
	};
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

/* A memfd's rights are those of every descriptor of it, so a slice is all of it, with what rights there are. */
static int memfd_pages_slice(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t rights, struct pages *out)
{
	if (offset || bytes != pages->bytes)
		return fail(EOPNOTSUPP, "part of a buffer as a buffer of its own needs the kernel module; this one is a memfd");
	if (rights == PINION_READ && !memfd_pages_sealed(pages))
		return fail(EOPNOTSUPP, "a reader beside writers needs the kernel module; this buffer is a memfd: seal it first");
	*out = *pages;
	out->pin_fd = -1;
	out->fd = fcntl(pages->fd, F_DUPFD_CLOEXEC, 0);
	if (out->fd < 0)
		return fail_errno(errno, "duplicating the buffer's descriptor");
	if (pages->hold == PINION_HOLD_REGISTERED) {
		out->pin_fd = fcntl(pages->pin_fd, F_DUPFD_CLOEXEC, 0);
		if (out->pin_fd < 0) {
			int err = errno;

			close(out->fd);
			return fail_errno(err, "duplicating the descriptor of the pin");
		}
	}
	if (pages->hold == PINION_HOLD_LOCKED) {
		out->hold = PINION_HOLD_NONE;
		snprintf(out->hold_why, sizeof(out->hold_why), "locked by the buffer it is a slice of");
	}
	return 0;
}

static int memfd_pages_map(const struct pages *pages, uint32_t prot, void **addr)
{
	char path[64];
	int fd, ret;

	if (prot & PINION_WRITE)
		return pages_map_aligned(pages->fd, pages->bytes, pages->page_size, 0, PROT_READ | PROT_WRITE, 0, addr);
	/* Through a descriptor that cannot write, so that mprotect() cannot make a writer of the mapping, sealed or not yet. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", pages->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ret = pages_map_aligned(fd < 0 ? pages->fd : fd, pages->bytes, pages->page_size, 0, PROT_READ, 0, addr);
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
	.pages_alloc = memfd_pages_alloc,
	.pages_close = memfd_pages_close,
	.pages_map = memfd_pages_map,
	.pages_seal = memfd_pages_seal,
	.pages_sealed = memfd_pages_sealed,
	.pages_slice = memfd_pages_slice,
};
