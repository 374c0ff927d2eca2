/* SPDX-License-Identifier: MIT */
/*
 * provider: the ground a context stands on. Pages and counts come from here; everything above is the same on every
 * ground. A ground brings its own pages; where counts are is counts_ops.h.
 */
#ifndef PINION_LIB_PROVIDER_H
#define PINION_LIB_PROVIDER_H

#include <pinion/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#include "counter_file.h"
#include "pin.h"

struct kmod_device;

/* The memory behind a buffer. Owned by the buffer; every field is set by the provider. */
struct pages {
	const struct provider_ops *ops; /* of the ground these pages come from, which need not be the context's */
	int fd;
	uint64_t bytes;
	uint32_t page_size;  /* bytes was rounded to this */
	uint64_t huge_bytes; /* in huge pages when it was made; 0 where that is not known */
	enum pinion_pages got; /* which pages; AUTO where that is not known */
	char pages_why[320];   /* why not those that were wished for */
	uint64_t node_bytes;   /* on the node asked for, when it was made */
	bool sealed;	     /* nobody can make a writer any more */
	enum pinion_hold hold;
	struct pin *pin;    /* the registration that holds the pages, from their first byte on; NULL: none */
	char hold_why[160]; /* why the hold is no better */
	struct kmod_device *device; /* the module's, for slices; NULL: opened when one is wanted, and on other grounds */
	uint64_t offset;	    /* of the slice in the pages; the module's huge pages lie below huge_end there */
	uint64_t huge_end;
	bool reader; /* may not be written through this object, though its descriptor may */
	bool window; /* a slice whose descriptor is a right to more than it, so it cannot be handed out */
};

struct pages_request {
	uint64_t bytes;
	enum pinion_pages pages;
	bool prefer; /* pages is a wish */
	enum pinion_hold hold;
	enum pinion_numa numa;
	unsigned int node;
	const char *label;
	pinion_progress_fn progress; /* NULL: nobody is told */
	void *progress_arg;
	struct kmod_device *device; /* the context's, NULL on the memfd ground */
};

struct provider_ops {
	const char *name;
	/* A descriptor has rights of its own: a reader is handed out without a seal, and writers stay. */
	bool has_rights;
	/* The memory is another driver's: it is neither made nor sealed here, and no peer takes it for a buffer. */
	bool is_foreign;
	/* Makes pages, all present, mapped writable at *@addr, which stays with the caller (locked there if hold says so). */
	int (*pages_alloc)(const struct pages_request *req, struct pages *pages, void **addr);
	int (*pages_seal)(struct pages *pages);
	/* Whether anybody, in any process, has sealed them. */
	bool (*pages_sealed)(const struct pages *pages);
	/* Part of the pages with no more rights than asked for. */
	int (*pages_slice)(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t rights, struct pages *out);
	int (*pages_map)(const struct pages *pages, uint32_t prot, void **addr);
	void (*pages_close)(struct pages *pages);
	/* Bytes of a huge page that pages may get, 0 for none, and why. */
	uint32_t (*huge_size)(const struct kmod_device *dev, const char **why);
};

extern const struct provider_ops provider_dmabuf;
extern const struct provider_ops provider_kmod;
extern const struct provider_ops provider_memfd;

/*
 * Takes over @fd, received from a peer that stands on either ground; checks that it cannot shrink. On failure @fd stays the
 * caller's. -EPROTO: it is no buffer, or not the one it is said to be.
 */
int pages_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages);
int memfd_adopt(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages);

/* Bytes of a memfd that are not there yet. */
uint64_t memfd_missing(const struct pages *pages);

/* Whether a memfd that the program made can be a buffer. -EINVAL, -EACCES with what to do about it. */
int memfd_check_import(int fd);

/*
 * Takes over @fd, a memfd that the program made, holds it as @hold says and makes every page of it present. *@addr: the mapping
 * that carries a lock, writable unless the pages are sealed, or NULL. On failure @fd stays the caller's.
 */
int memfd_import(int fd, enum pinion_hold hold, struct pages *pages, void **addr);

/* ---- what the grounds share (pages.c, hold.c) ---------------------------------------------------------------------- */

/* @bytes rounded up to a multiple of @page. -EOVERFLOW. */
int pages_round(uint64_t bytes, uint64_t page, uint64_t *rounded);

/*
 * Maps @bytes from @offset of @fd on, at an address that is @phase behind a multiple of @align, a power of two, so that a huge
 * page maps as one.
 */
int pages_map_aligned(int fd, uint64_t bytes, uint64_t offset, uint64_t align, uint64_t phase, int prot, int flags, void **addr);

/* A slice where a descriptor is a right to all of the memory: a window of this process's own, held as the whole is. */
int pages_window(const struct pages *pages, uint64_t offset, uint64_t bytes, uint32_t rights, struct pages *out);

/* Whether what a peer says of a buffer can be true. -EPROTO. */
int pages_check_said(uint64_t said, uint64_t bytes, uint32_t page_size);

/* Holds the pages mapped at @addr as well as @want says, or fails; sets hold, hold_why and pin. */
int pages_hold(struct pages *pages, enum pinion_hold want, void *addr);

/* -EOPNOTSUPP: PINION_HOLD_PINNED was asked for where there is no module. */
int pages_need_module(void);

/*
 * Whether they are of a pool of huge pages. The kernel swaps none of those and charges none when they are locked, though mlock()
 * refuses them where RLIMIT_MEMLOCK is less than they have.
 */
static inline bool pages_of_pool(const struct pages *pages)
{
	return pages->got == PINION_PAGES_2M || pages->got == PINION_PAGES_1G;
}

/* Locks their mapping at @addr. 0 or an errno, without a sentence. */
int pages_lock(const struct pages *pages, void *addr);

#endif
