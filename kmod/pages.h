/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * pages: the storage behind buffers, refcounted by the slices over it. What kind it is shows only in its ops.
 *
 * Lifetime: every slice (dma-buf) holds a reference; a mapping or a device's attachment holds the slice. The last
 * reference gives pages and charge back, in any context that may sleep and in whatever task that happens to be.
 *
 * Locking: refs is a kref. lock, a mutex, guards mappings; it nests inside the dma_resv and nothing is called under it but
 * the DMA API. Everything else is written before the first slice is published and read-only after.
 */
#ifndef PINION_PAGES_H
#define PINION_PAGES_H

#include <linux/dma-resv.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pinion.h>

#include "layout.h"
#include "payer.h"

struct pages;

/* Fails where the killer would be called, and does not warn: a refusal is an answer. */
#define GFP_MAYFAIL (__GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/* The array of chunks is one allocation, which cannot exceed INT_MAX bytes. */
#define PINION_MAX_BUFFER_BYTES ((u64)(INT_MAX / sizeof(struct page *)) << PAGE_SHIFT)

struct pages_ops {
	enum pinion_kind kind;
	/* Gives the memory back: chunks, files. Not the charge nor the array. */
	void (*release)(struct pages *pages);
	/* Whether mappings, of processes and devices, from now on may not write, whatever the slice's rights; NULL: never. */
	bool (*write_sealed)(const struct pages *pages);
	bool mappable;
};

struct pages {
	struct kref refs;
	const struct pages_ops *ops;
	u64 id;
	u32 flags; /* PINION_ALLOC_* it was made with */
	char name[PINION_NAME_BYTES];

	struct layout layout;
	struct page **chunk;	/* layout_chunks() heads, the first room of them allocated */
	unsigned long room;
	struct folio **folio;	/* what a memfd's pin holds, where it is not the chunks themselves */
	unsigned long nr_folio;
	struct file *file;	/* shmem: the writable file; memfd: the memfd */
	struct file *map_file;	/* what a mapping is handed over to, from page map_first on; NULL: our own fault handler */
	unsigned long map_first;
	unsigned long map_pages; /* a mapping handed over begins and ends on a multiple of this (huge pages of a memfd) */
	bool writes_denied;	/* a memfd's F_SEAL_WRITE is kept off */
	struct charge charge;

	struct dma_resv resv;	/* shared by all slices: fences are about memory */
	struct mutex lock;
	struct list_head mappings; /* of devices: struct mapping (slice.c); guarded by lock */
	unsigned int nr_mappings;  /* guarded by lock */
};

/* New pages as ALLOC asks for, present and zeroed, charged to @payer. */
struct pages *pages_alloc(struct payer *payer, const struct pinion_alloc *args);

/* For those who make the other kinds: charged, with no chunk yet and room for @chunks; pages_put() undoes it at any stage. */
struct pages *pages_new(struct payer *payer, const struct pages_ops *ops, u64 bytes, unsigned long chunks, const char *name);
/* Appends a chunk; the caller's reference goes to the pages. */
int pages_add(struct pages *pages, struct page *page, unsigned int kind);
/*
 * Before each page of a call that may take long, with no lock held: -EINTR when it is killed. Lets others run, and freezes where
 * a suspend asks for it, which would else wait for the call and fail after 20 s.
 */
int pages_pause(void);

struct pages *pages_get(struct pages *pages);
void pages_put(struct pages *pages);

/* Page @index, below pages_nr(). */
struct page *pages_page(const struct pages *pages, unsigned long index);

static inline unsigned long pages_nr(const struct pages *pages)
{
	return layout_pages(&pages->layout);
}

u64 pages_huge_bytes(const struct pages *pages);
/* Adds the bytes on each node below @nr to @bytes. */
void pages_nodes(const struct pages *pages, u64 *bytes, unsigned int nr);

/* A run of pages from @index on: contiguous, not past @end, of at most @most pages, never over a huge chunk's end. */
unsigned long pages_run(const struct pages *pages, unsigned long index, unsigned long end, unsigned long most,
			struct page **first);

/* Bytes that were not given back because a page in them was poisoned; bytes that WIPE_ON_FREE could not wipe. */
u64 pages_poisoned_bytes(void);
u64 pages_unwiped_bytes(void);

/* shmem.c: the backing for kernels whose io_uring refuses the default one. */
struct pages *pages_alloc_shmem(struct payer *payer, const struct pinion_alloc *args, u64 bytes);

#endif
