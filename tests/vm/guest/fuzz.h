/* SPDX-License-Identifier: MIT */
/*
 * What a fuzzer's threads share: dice, descriptors, mappings, what is known of a buffer, and what went wrong. Whoever takes a
 * descriptor or a mapping out of its pool has it alone; what a thread remembers of a descriptor may be anything by now, so a
 * buffer is held by a duplicate before something is believed of it.
 */
#ifndef PINION_VM_FUZZ_H
#define PINION_VM_FUZZ_H

#include "dice.h"
#include "mem.h"
#include "state.h"

#include <stdatomic.h>

#define FUZZ	 __attribute__((unused)) static

#define POOL	 24
#define MAPS	 16
#define TRIES	 4 /* places of a pool that are looked at */
#define OPS_MOST 48

/* ---- what is wrong, and what was done ------------------------------------------------------------------------------ */

enum { CONTENT, ROWS, USE, RIGHTS, LIFE, BOOK, WRONGS };

static struct shared {
	_Atomic int stop;
	_Atomic int said[WRONGS];
	char why[WRONGS][256];
	_Atomic uint64_t tried[OPS_MOST], worked[OPS_MOST], kernel_failed;
} * shared;

/* The first of each kind is kept; the others follow from it more often than not. */
FUZZ __attribute__((format(printf, 2, 3))) void bad(int what, const char *why, ...)
{
	va_list args;

	if (atomic_exchange(&shared->said[what], 1))
		return;
	va_start(args, why);
	vsnprintf(shared->why[what], sizeof(shared->why[what]), why, args);
	va_end(args);
}

/* ---- dice ---------------------------------------------------------------------------------------------------------- */

/* An address that is none, or is of no use. */
FUZZ uint64_t bad_address(void)
{
	static const uint64_t list[] = {
		0, 1, PAGE, ~0ULL, ~0ULL << 12, 1ULL << 47, (1ULL << 47) - PAGE, 0xffff800000000000ULL, 1ULL << 63, 0xdead000,
	};

	return PICK(list);
}

FUZZ uint64_t some_bytes(void)
{
	static const uint64_t odd[] = { 0, 1, PAGE - 1, ~0ULL, ~0ULL << 12, 1ULL << 40, 1ULL << 52, 1ULL << 63, HUGE, 4 * HUGE };

	switch (roll(8)) {
	case 0:
		return PICK(odd);
	case 1:
		return (1 + roll(4)) * HUGE;
	case 2:
		return 1 + roll(4 * HUGE);
	case 3:
	case 4:
		return 1 + roll(64 * PAGE);
	default:
		return (1 + roll(16)) * PAGE;
	}
}

/* ---- descriptors --------------------------------------------------------------------------------------------------- */

static _Atomic int pool[POOL];

FUZZ void pool_put(int fd)
{
	int old;

	if (fd < 0)
		return;
	old = atomic_exchange(&pool[roll(POOL)], fd);
	if (old > 0)
		close(old);
}

/* A number that was a descriptor's a moment ago, or -1. */
FUZZ int pool_look(void)
{
	int fd = 0;

	for (int i = 0; fd <= 0 && i < TRIES; i++)
		fd = atomic_load(&pool[roll(POOL)]);
	return fd > 0 ? fd : -1;
}

FUZZ int pool_take(void)
{
	int fd = atomic_exchange(&pool[roll(POOL)], 0);

	return fd > 0 ? fd : -1;
}

/* ---- buffers ------------------------------------------------------------------------------------------------------- */

/* A buffer that is held. */
struct held {
	int fd;
	uint32_t kind, rights;
	uint64_t pages_id, first, pages;
};

/* BUFINFO fails like any call when a step is made to; not twice in a row for ever. */
FUZZ bool held_know(struct held *h, int dev)
{
	struct pinion_bufinfo info;

	for (int i = 0; i < 8; i++) {
		if (dev_bufinfo(dev, h->fd, &info))
			continue;
		if (info.kind < PINION_KIND_PAGES || info.kind > PINION_KIND_MEMFD || !(info.rights & PINION_RIGHT_READ) ||
		    info.offset + info.bytes > info.pages_bytes || (info.offset | info.bytes) % PAGE || !info.bytes)
			bad(ROWS, "BUFINFO: kind %u rights %x offset %llu bytes %llu of %llu", info.kind, info.rights,
			    info.offset, info.bytes, info.pages_bytes);
		h->kind = info.kind;
		h->rights = info.rights;
		h->pages_id = info.pages_id;
		h->first = info.offset / PAGE;
		h->pages = info.bytes / PAGE;
		return true;
	}
	return false;
}

/* A duplicate of a descriptor of the pool; false: none, or no buffer. */
FUZZ bool hold(struct held *h, int dev)
{
	int fd = pool_look();

	h->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (h->fd < 0)
		return false;
	if (held_know(h, dev))
		return true;
	close(h->fd);
	return false;
}

/* ---- content ------------------------------------------------------------------------------------------------------- */

/* Whatever word of a buffer is not zero is this one: made of the pages and the place in them, or for memory of others, of its
 * kind. */
FUZZ uint64_t stamp(const struct held *h, uint64_t page)
{
	return h->kind == PINION_KIND_PAGES || h->kind == PINION_KIND_SHMEM ? mem_word(page, h->pages_id) :
									      mem_word(0, ~(uint64_t)h->kind);
}

FUZZ bool word_fits(uint64_t word, const struct held *h, uint64_t page)
{
	return !word || word == stamp(h, page);
}

static __thread sigjmp_buf guard_back;
static __thread volatile int guarded;

static void guard_caught(int sig, siginfo_t *info, void *context)
{
	(void)context;
	if (guarded)
		siglongjmp(guard_back, sig);
	bad(LIFE, "signal %d at %p in process %d", sig, info->si_addr, getpid());
	_exit(1);
}

/* Page @page of the pages is at @at: a few words of it, or all. */
FUZZ void page_check(const char *at, const struct held *h, uint64_t page, bool all)
{
	const volatile uint64_t *word = (const volatile uint64_t *)at;
	unsigned int words = PAGE / 8, n = all ? words : 4;

	for (unsigned int i = 0; i < n; i++) {
		unsigned int k = all ? i : i == 0 ? 0 : roll(words);
		uint64_t is = word[k];

		if (!word_fits(is, h, page))
			bad(CONTENT, "word %u of page %llu of pages %llu, kind %u: %llx, not 0 or %llx", k,
			    (unsigned long long)page, (unsigned long long)h->pages_id, h->kind, (unsigned long long)is,
			    (unsigned long long)stamp(h, page));
	}
}

FUZZ void page_stamp(char *at, const struct held *h, uint64_t page)
{
	*((volatile uint64_t *)at + roll(PAGE / 8)) = stamp(h, page);
	*(volatile uint64_t *)at = stamp(h, page);
}

/* Looks at pages that are mapped, and writes to them; the signal that gives, 0: none. */
FUZZ int pages_use(char *at, const struct held *h, uint64_t first, uint64_t pages, bool write, bool all)
{
	int sig = sigsetjmp(guard_back, 1);

	if (!sig) {
		guarded = 1;
		for (uint64_t i = 0; i < pages; i++) {
			page_check(at + i * PAGE, h, first + i, all);
			if (write)
				page_stamp(at + i * PAGE, h, first + i);
		}
	}
	guarded = 0;
	return sig;
}

/* ---- mappings ------------------------------------------------------------------------------------------------------ */

enum { MAP_FREE, MAP_READY, MAP_TAKEN };

struct map {
	_Atomic int state;
	char *at;
	uint64_t pages;
	uint64_t first; /* of the pages */
	int prot;	/* what every part allows */
	uint64_t inode; /* of the buffer's descriptor */
	struct held of; /* its descriptor may be closed */
};

static struct map maps[MAPS];

FUZZ struct map *map_take(int state)
{
	for (int i = 0; i < TRIES; i++) {
		struct map *m = &maps[roll(MAPS)];
		int is = state;

		if (atomic_compare_exchange_strong(&m->state, &is, MAP_TAKEN))
			return m;
	}
	return NULL;
}

FUZZ void map_put(struct map *m)
{
	atomic_store(&m->state, m->pages ? MAP_READY : MAP_FREE);
}

/* Whether the kernel's list of mappings has all of @m where it is thought to be. */
FUZZ bool map_listed(const struct map *m)
{
	uint64_t at = (uintptr_t)m->at, end = at + m->pages * PAGE, from, to, offset, inode;
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];

	while (f && at < end && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %*s %lx %*s %lu", &from, &to, &offset, &inode) == 4 && from <= at && at < to) {
			if (inode != m->inode || offset + (at - from) != (m->first + (at - (uintptr_t)m->at) / PAGE) * PAGE)
				break;
			at = to;
		}
	if (!f)
		return true;
	fclose(f);
	return at >= end;
}

/*
 * A word of another buffer is the module's fault only where the fuzzer writes to what it means to. A mapping of pages has its
 * buffer's own inode; others' are of another file. The list is read in parts, between which neighbours may join.
 */
FUZZ void map_check(const struct map *m)
{
	if (m->of.kind == PINION_KIND_PAGES && !map_listed(m) && !map_listed(m) && !map_listed(m))
		bad(BOOK, "pages %llu from %llu on, %llu of them, are not mapped at %p", (unsigned long long)m->of.pages_id,
		    (unsigned long long)m->first, (unsigned long long)m->pages, m->at);
}

#endif
