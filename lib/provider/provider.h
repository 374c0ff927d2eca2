/* SPDX-License-Identifier: MIT */
/*
 * provider: the ground a context stands on. Pages and counts come from here; everything above is the same on every
 * ground. The counts of the memfd ground are those of counter_file.h; a ground brings its own pages.
 */
#ifndef PINION_LIB_PROVIDER_H
#define PINION_LIB_PROVIDER_H

#include <pinion/buffer.h>
#include <stdbool.h>
#include <stdint.h>

#include "counter_file.h"

/* The memory behind a buffer. Owned by the buffer; every field is set by the provider. */
struct pages {
	int fd;
	uint64_t bytes;
	uint32_t page_size; /* bytes was rounded to this */
	uint64_t huge_bytes; /* in huge pages when it was made; 0 where it was not made here */
	bool sealed;	    /* nobody can make a writer any more */
	enum pinion_hold hold;
	int pin_fd;	    /* the ring whose registration pins the pages, -1: none */
	char hold_why[160]; /* why the hold is no better */
};

struct pages_request {
	uint64_t bytes;
	enum pinion_pages pages;
	enum pinion_hold hold;
	const char *label;
};

struct provider_ops {
	const char *name;
	/* Makes pages, all present, mapped writable at *@addr, which stays with the caller (locked there if hold says so). */
	int (*pages_alloc)(const struct pages_request *req, struct pages *pages, void **addr);
	/* Takes over @fd, received from a peer; checks that it cannot shrink. On failure @fd stays the caller's. */
	int (*pages_adopt)(int fd, uint64_t bytes, uint32_t page_size, struct pages *pages);
	int (*pages_seal)(struct pages *pages);
	/* Whether anybody, in any process, has sealed them. */
	bool (*pages_sealed)(const struct pages *pages);
	int (*pages_map)(const struct pages *pages, uint32_t prot, void **addr);
	void (*pages_close)(struct pages *pages);
	/* Bytes of a huge page that pages may get, 0 for none, and why. */
	uint32_t (*huge_size)(const char **why);
};

extern const struct provider_ops provider_memfd;

#endif
