/* SPDX-License-Identifier: MIT */
/* pages: what is the same for the pages of every ground. */
#include "provider.h"

#include "../error.h"
#include "kmod.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int pages_round(uint64_t bytes, uint64_t page, uint64_t *rounded)
{
	uint64_t up;

	if (__builtin_add_overflow(bytes, page - 1, &up) || up > INT64_MAX)
		return fail(EOVERFLOW, "a buffer of %llu bytes does not fit an address space", (unsigned long long)bytes);
	*rounded = up - up % page;
	return 0;
}

int pages_map_aligned(int fd, uint64_t bytes, uint64_t offset, uint64_t align, uint64_t phase, int prot, int flags, void **addr)
{
	uint64_t span;
	char *base, *at;

	if (__builtin_add_overflow(bytes, 2 * align, &span))
		return fail(EOVERFLOW, "mapping %llu bytes", (unsigned long long)bytes);
	base = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return fail_errno(errno, "no address space for a mapping of %llu bytes", (unsigned long long)bytes);
	at = (char *)(((uintptr_t)base + align - 1) & ~(uintptr_t)(align - 1)) + phase;
	if (mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED | flags, fd, offset) == MAP_FAILED) {
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

int pages_check_said(uint64_t said, uint64_t bytes, uint32_t page_size)
{
	if (said != bytes)
		return fail(EPROTO, "the buffer received is said to have %llu bytes and has %llu", (unsigned long long)said,
			    (unsigned long long)bytes);
	if (!bytes)
		return fail(EPROTO, "the buffer received has no bytes");
	if (page_size < 4096 || (page_size & (page_size - 1)) || bytes % page_size)
		return fail(EPROTO, "the buffer received is said to have pages of %u bytes", page_size);
	return 0;
}

int pages_window(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t rights, struct pages *out)
{
	if (pages_of_pool(pages) && (offset % pages->page_size || bytes % pages->page_size))
		return fail(EINVAL, "a slice of this buffer is whole pages of %u bytes, as they are of a pool", pages->page_size);
	*out = *pages;
	out->fd = fcntl(pages->fd, F_DUPFD_CLOEXEC, 0);
	if (out->fd < 0)
		return fail_errno(errno, "duplicating the buffer's descriptor");
	out->pin = pin_ref(pages->pin);
	if (pages->hold == PINION_HOLD_LOCKED) {
		out->hold = PINION_HOLD_NONE;
		snprintf(out->hold_why, sizeof(out->hold_why), "locked by the buffer it is a slice of");
	}
	out->offset += offset;
	out->bytes = bytes;
	out->huge_bytes = pages->huge_bytes == pages->bytes ? bytes : 0;
	out->node_bytes = pages->node_bytes == pages->bytes ? bytes : 0;
	out->reader = pages->reader || (rights == PINION_READ && !pages->sealed);
	out->window = pages->window || out->reader || bytes != pages->bytes;
	if (bytes % out->page_size)
		out->page_size = sysconf(_SC_PAGESIZE);
	return 0;
}

int pages_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages)
{
	int ret;

	if (fcntl(fd, F_GET_SEALS) < 0 && kmod_may_be(fd))
		return kmod_adopt(fd, bytes, page_size, pages);
	ret = memfd_adopt(fd, bytes, page_size, pages);
	/* A page of a pool that this process's control group does not allow is a bus fault. */
	if (!ret && pages_of_pool(pages) && memfd_missing(pages))
		return fail(EPROTO, "the buffer received is of a pool of huge pages, and %llu bytes of it are not there",
			    (unsigned long long)memfd_missing(pages));
	return ret;
}
