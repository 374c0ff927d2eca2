// SPDX-License-Identifier: MIT
/* Mappings of buffers: huge pages, every slice of a huge page, what is refused, and what memory is taken for them. */
#define _GNU_SOURCE
#include "bytes.h"
#include "shred.h"

static int dev;

/* ---- huge pages ---------------------------------------------------------------------------------------------------- */

#define BUFFER	 (2 * HUGE)
#define PAGES	 (BUFFER / PAGE)
#define PER_HUGE (HUGE / PAGE)

static int buffer;
static char *whole; /* of it, writable */

static void map_whole(void)
{
	buffer = dev_alloc(dev, BUFFER, PINION_ALLOC_HUGE_REQUIRE);
	expect(buffer, 0, "ALLOC");
	whole = dev_map_aligned(buffer, BUFFER, PROT_READ | PROT_WRITE);
	if (whole == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	else
		for (uint64_t i = 0; i < BUFFER; i += 8)
			if (*(uint64_t *)(whole + i)) {
				wrong("byte %llu is not zero", (unsigned long long)i);
				break;
			}
	point("map", "a buffer of huge pages is mapped and zero");
}

static void huge_entries(void)
{
	if (access("/sys/kernel/mm/transparent_hugepage", F_OK)) {
		tap_skip("map: mapped by pages of 2 MiB", "this kernel has none");
		return;
	}
	if (smaps_bytes(whole, "FilePmdMapped") != BUFFER)
		wrong("FilePmdMapped: %llu", (unsigned long long)smaps_bytes(whole, "FilePmdMapped"));
	point("map", "mapped by pages of 2 MiB");
}

static void flags_of_a_mapping(void)
{
	static const char *const not [] = { "io", "pf", "mm", "ex", "me" };

	for (size_t i = 0; i < sizeof(not ) / sizeof(not [0]); i++)
		if (smaps_flag(whole, not [i]))
			wrong("VmFlags has %s", not [i]);
	if (!smaps_flag(whole, "sh") || !smaps_flag(whole, "de") || !smaps_flag(whole, "dd"))
		wrong("VmFlags lacks sh, de or dd");
	if (smaps_bytes(whole, "Rss") != BUFFER)
		wrong("Rss: %llu", (unsigned long long)smaps_bytes(whole, "Rss"));
	point("map", "VmFlags has neither io nor pf nor mm");
}

/* ---- every slice --------------------------------------------------------------------------------------------------- */

/* An address space of its own, so that what is shown too much is shown where nothing may be. */
static char *arena;
#define ARENA (4 * HUGE)

static void arena_clear(void)
{
	arena = mmap(arena, ARENA + (arena ? 0 : HUGE), PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (arena ? MAP_FIXED : 0), -1, 0);
	if (arena != MAP_FAILED)
		arena = (char *)(((uintptr_t)arena + HUGE - 1) & ~(HUGE - 1));
}

/* Mapped at @at, a slice over pages @first to @first + @nr shows them and nothing beside. @thorough: all of them are read. */
static void slice_shows(int slice, char *at, uint64_t first, uint64_t nr, bool thorough, const char *how)
{
	const uint64_t look[] = { 0, 1, nr / 2, PER_HUGE - first % PER_HUGE - 1, PER_HUGE - first % PER_HUGE, nr - 1 };

	if (mmap(at, nr * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, slice, 0) != at) {
		wrong("%s of page %llu: %s", how, (unsigned long long)first, strerror(errno));
		return;
	}
	/* Touched first in the middle: a huge entry would be made here if anywhere. */
	for (size_t i = 0; i < sizeof(look) / sizeof(look[0]); i++)
		if (look[i] < nr)
			is_painted(at + look[i] * PAGE, 1, first + look[i], 1, how);
	if (thorough)
		is_painted(at, 1, first, nr, how);
	if (touch(at - 1, false) != SIGSEGV || touch(at + nr * PAGE, false) != SIGSEGV)
		wrong("%s of page %llu: something before or after", how, (unsigned long long)first);
	mmap(at, nr * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void slice_at(uint64_t first, uint64_t nr, bool thorough)
{
	int slice = dev_slice(dev, buffer, first * PAGE, nr * PAGE, PINION_RIGHT_READ);

	if (!expect(slice, 0, "SLICE of %llu pages at %llu", (unsigned long long)nr, (unsigned long long)first))
		return;
	/* Where address and index agree to 2 MiB, and where they do not. */
	slice_shows(slice, arena + HUGE + first % PER_HUGE * PAGE, first, nr, thorough, "in step");
	slice_shows(slice, arena + HUGE, first, nr, false, "at 2 MiB");
	if (mmap(arena + HUGE, (nr + 1) * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, slice, 0) != MAP_FAILED)
		wrong("%llu pages at %llu: one more is mapped", (unsigned long long)nr, (unsigned long long)first);
	if (mmap(arena + HUGE, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, slice, nr * PAGE) != MAP_FAILED)
		wrong("%llu pages at %llu: the one behind is mapped", (unsigned long long)nr, (unsigned long long)first);
	/* A mapping that is refused may have taken what was there with it. */
	mmap(arena + HUGE, (nr + 1) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	close(slice);
}

static void every_slice(void)
{
	paint(whole, 1, 0, PAGES);
	arena_clear();
	for (uint64_t first = 0; first < PER_HUGE; first++) {
		slice_at(first, 1, true);
		slice_at(first, PER_HUGE, first % 61 == 0);
	}
	point("map", "a slice at every page of a huge page shows its bytes and no other");
	slice_at(PER_HUGE, PER_HUGE, true);
	slice_at(0, PAGES, true);
	slice_at(3, PAGES - 3, true);
	slice_at(PAGES - 1, 1, true);
	point("map", "slices over a huge page's end");
}

/* A slice of a slice, mapped from somewhere in it. */
static void parts(void)
{
	int a = dev_slice(dev, buffer, 5 * PAGE, (PAGES - 7) * PAGE, PINION_RIGHT_READ);
	int b = dev_slice(dev, a, 11 * PAGE, 700 * PAGE, PINION_RIGHT_READ);
	static const uint64_t at[] = { 0, 1, 17, 495, 496, 497, 512, 699 };

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		for (size_t k = i; k < sizeof(at) / sizeof(at[0]); k++) {
			uint64_t nr = at[k] - at[i] + 1;
			char *p = mmap(NULL, nr * PAGE, PROT_READ, MAP_SHARED, b, at[i] * PAGE);

			if (p == MAP_FAILED)
				wrong("pages %llu to %llu: %s", (unsigned long long)at[i], (unsigned long long)at[k],
				      strerror(errno));
			else if (is_painted(p, 1, 16 + at[i], nr, "part"))
				munmap(p, nr * PAGE);
			else
				return;
		}
	close(a);
	close(b);
	point("map", "parts of a slice of a slice");
}

/* Others' writes are seen, everywhere, at once. */
static bool write_in_child(void *data)
{
	paint(data, 2, 0, 3);
	return true;
}

static void shared_by_all(void)
{
	int slice = dev_slice(dev, buffer, 510 * PAGE, 3 * PAGE, PINION_RIGHT_WRITE);
	char *p = dev_map(slice, 3 * PAGE, PROT_READ | PROT_WRITE);

	if (p == MAP_FAILED || !child(write_in_child, p))
		wrong("mapping or child");
	else
		is_painted(whole + 510 * PAGE, 2, 0, 3, "through the whole");
	paint(whole + 510 * PAGE, 1, 510, 3);
	if (p != MAP_FAILED)
		is_painted(p, 1, 510, 3, "through the slice");
	munmap(p, 3 * PAGE);
	close(slice);
	is_painted(whole, 1, 0, PAGES, "the whole");
	point("map", "a child's writes through a slice are everybody's");
}

/* ---- refused ------------------------------------------------------------------------------------------------------- */

static int try_map(size_t bytes, int prot, int flags, off_t offset)
{
	void *p = mmap(NULL, bytes, prot, flags, buffer, offset);
	int ret = p == MAP_FAILED ? -errno : 0;

	if (!ret)
		munmap(p, bytes);
	return ret;
}

static void refused(void)
{
	expect(try_map(BUFFER, PROT_READ, MAP_PRIVATE, 0), -EINVAL, "MAP_PRIVATE");
	expect(try_map(BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0), -EINVAL, "MAP_PRIVATE for writing");
	expect(try_map(BUFFER, PROT_READ | PROT_EXEC, MAP_SHARED, 0), -EACCES, "PROT_EXEC");
	expect(mprotect(whole, PAGE, PROT_READ | PROT_EXEC) ? -errno : 0, -EACCES, "mprotect to PROT_EXEC");
	expect(try_map(BUFFER + PAGE, PROT_READ, MAP_SHARED, 0), -EINVAL, "a page more");
	expect(try_map(BUFFER, PROT_READ, MAP_SHARED, PAGE), -EINVAL, "all from the second page on");
	expect(try_map(PAGE, PROT_READ, MAP_SHARED, BUFFER), -EINVAL, "the page behind");
	/* A large offset is past the dma-buf's end; the core says so in its own words. */
	if (!try_map(PAGE, PROT_READ, MAP_SHARED, (off_t)(~0ULL >> 1) & ~(PAGE - 1)))
		wrong("the last offset there is is mapped");
	point("map", "private, executable and too long mappings are refused");
}

static int try_remap(char *p, size_t old, size_t bytes, int flags)
{
	void *q = mremap(p, old, bytes, flags);

	return q == MAP_FAILED ? -errno : 0;
}

static void remap(void)
{
	int slice = dev_slice(dev, buffer, 4 * PAGE, 8 * PAGE, PINION_RIGHT_READ);
	char *p = dev_map(slice, 4 * PAGE, PROT_READ), *q;

	expect(try_remap(p, 4 * PAGE, 5 * PAGE, MREMAP_MAYMOVE), -EFAULT, "growing within the slice");
	expect(try_remap(p, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE), -EFAULT, "growing past the slice");
	expect(try_remap(p, 0, 64 * PAGE, MREMAP_MAYMOVE), -EFAULT, "a second mapping, longer");
	q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, arena + HUGE);
	if (q == MAP_FAILED)
		wrong("moving: %s", strerror(errno));
	else
		is_painted(q, 1, 4, 4, "moved");
	expect(try_remap(q, 4 * PAGE, 2 * PAGE, 0), 0, "shrinking");
	is_painted(q, 1, 4, 2, "shrunk");
	munmap(q, 2 * PAGE);
	close(slice);
	point("map", "mremap moves and shrinks and never grows");
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

static struct pinion_alloc alloc(uint64_t bytes, uint32_t flags, int *ret)
{
	struct pinion_alloc a = { .size = sizeof(a), .bytes = bytes, .flags = flags, .node = PINION_NODE_ANY, .name = "map" };

	*ret = dev_call(dev, PINION_IOC_ALLOC, &a);
	return a;
}

static void bytes_taken(void)
{
	static const uint64_t sizes[] = { 1,	    PAGE - 1,	     PAGE,	 PAGE + 1,    HUGE - 1,
					  HUGE + 1, 5 * (1UL << 20), 64UL << 20, 130UL << 20, 135790592 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t before = dev_bytes(dev), want = (sizes[i] + PAGE - 1) & ~(PAGE - 1);
		struct pinion_alloc a;
		int ret;

		a = alloc(sizes[i], 0, &ret);
		if (!expect(ret, 0, "ALLOC of %llu", (unsigned long long)sizes[i]))
			continue;
		if (a.out_bytes != want || dev_bytes(dev) - before != want || lseek(a.fd, 0, SEEK_END) != (off_t)want)
			wrong("%llu bytes: %llu of the buffer, %llu in INFO, not %llu", (unsigned long long)sizes[i],
			      (unsigned long long)a.out_bytes, (unsigned long long)(dev_bytes(dev) - before),
			      (unsigned long long)want);
		if (a.out_huge_bytes % HUGE || a.out_huge_bytes > want)
			wrong("%llu in huge pages of %llu", (unsigned long long)a.out_huge_bytes, (unsigned long long)want);
		close(a.fd);
		if (dev_bytes(dev) != before)
			wrong("%llu bytes: not given back", (unsigned long long)sizes[i]);
	}
	point("map", "what is pinned is the request rounded to a page");
}

/* 64 MiB with pages of every size in it: all is there and all is different. */
static void large(void)
{
	struct pinion_alloc a;
	uint64_t pages;
	char *p;
	int ret;

	a = alloc((64UL << 20) + 37 * PAGE, 0, &ret);
	if (!expect(ret, 0, "ALLOC"))
		goto out;
	pages = a.out_bytes / PAGE;
	p = dev_map_aligned(a.fd, a.out_bytes, PROT_READ | PROT_WRITE);
	if (p == MAP_FAILED) {
		wrong("mmap: %s", strerror(errno));
	} else {
		for (uint64_t i = 0; i < pages; i++)
			*(uint64_t *)(p + i * PAGE + 8) = i;
		for (uint64_t i = 0; i < pages; i++)
			if (*(uint64_t *)(p + i * PAGE + 8) != i || *(uint64_t *)(p + i * PAGE)) {
				wrong("page %llu", (unsigned long long)i);
				break;
			}
		munmap(p, a.out_bytes);
	}
	close(a.fd);
out:
	point("map", "64 MiB and a tail of small pages");
}

/* Had where memory is in pieces, with no more than so much in huge pages; read and written. */
static void in_pieces(uint64_t bytes, uint32_t flags, uint64_t most_huge)
{
	struct pinion_alloc a;
	char *p;
	int ret;

	a = alloc(bytes, flags, &ret);
	if (!expect(ret, 0, "ALLOC of %llu MiB with flags %x", (unsigned long long)bytes >> 20, flags))
		return;
	if (a.out_bytes != bytes || a.out_huge_bytes > most_huge)
		wrong("%llu of %llu in huge pages with flags %x", (unsigned long long)a.out_huge_bytes,
		      (unsigned long long)a.out_bytes, flags);
	p = dev_map(a.fd, bytes, PROT_READ | PROT_WRITE);
	if (p == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	for (uint64_t at = 0; p != MAP_FAILED && at < bytes; at += PAGE)
		*(uint64_t *)(p + at) = at;
	for (uint64_t at = 0; p != MAP_FAILED && at < bytes && !*state_wrong; at += PAGE)
		if (*(uint64_t *)(p + at) != at)
			wrong("page %llu of %llu MiB", (unsigned long long)(at / PAGE), (unsigned long long)bytes >> 20);
	munmap(p, bytes);
	close(a.fd);
}

static void fragmented(void)
{
	static const uint64_t sizes[] = { 4, 5, 8, 64, 256 };
	struct pinion_alloc a;
	int ret;

	shred(dev, 128UL << 20);
	point("map", "memory is fragmented");
	alloc(256UL << 20, PINION_ALLOC_HUGE_REQUIRE, &ret);
	expect(ret, -ENOMEM, "HUGE_REQUIRE");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		in_pieces(sizes[i] << 20, PINION_ALLOC_HUGE_NEVER, 0);
		/* What was spared has huge pages, but not so many. */
		in_pieces(sizes[i] << 20, 0, sizes[i] == 256 ? (sizes[i] << 20) - 1 : sizes[i] << 20);
	}
	unshred();
	a = alloc(HUGE, PINION_ALLOC_HUGE_REQUIRE, &ret);
	if (expect(ret, 0, "HUGE_REQUIRE of one page, where memory is whole again"))
		close(a.fd);
	point("map", "fragmented memory: HUGE_REQUIRE is ENOMEM and small pages will do otherwise");
}

int main(void)
{
	struct state start;

	dev = dev_open(O_RDWR);
	start = state_now(dev);
	map_whole();
	huge_entries();
	flags_of_a_mapping();
	every_slice();
	parts();
	shared_by_all();
	refused();
	remap();
	munmap(whole, BUFFER);
	close(buffer);
	bytes_taken();
	large();
	fragmented();
	state_same(dev, &start);
	point("map", "bytes and buffers are what they were");
	return tap_end();
}
