/* SPDX-License-Identifier: MIT */
/* pages: what is the same for the pages of every ground. */
#include "provider.h"

#include "../error.h"
#include "kmod.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

int pages_round(uint64_t bytes, uint64_t page, uint64_t *rounded)
{
	uint64_t up;

	if (__builtin_add_overflow(bytes, page - 1, &up) || up > INT64_MAX)
		return fail(EOVERFLOW, "a buffer of %llu bytes does not fit an address space", (unsigned long long)bytes);
	*rounded = up - up % page;
	return 0;
}

int pages_map_aligned(int fd, uint64_t bytes, uint64_t align, uint64_t phase, int prot, int flags, void **addr)
{
	uint64_t span;
	char *base, *at;

	if (__builtin_add_overflow(bytes, 2 * align, &span))
		return fail(EOVERFLOW, "mapping %llu bytes", (unsigned long long)bytes);
	base = mmap(NULL, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return fail_errno(errno, "no address space for a mapping of %llu bytes", (unsigned long long)bytes);
	at = (char *)(((uintptr_t)base + align - 1) & ~(uintptr_t)(align - 1)) + phase;
	if (mmap(at, bytes, prot, MAP_SHARED | MAP_FIXED | flags, fd, 0) == MAP_FAILED) {
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

int pages_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages)
{
	if (fcntl(fd, F_GET_SEALS) < 0 && kmod_may_be(fd))
		return kmod_adopt(fd, bytes, page_size, pages);
	return memfd_adopt(fd, bytes, page_size, pages);
}
