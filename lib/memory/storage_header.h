/* SPDX-License-Identifier: MIT */
/* storage header: the page in front of the elements that says what they are, and the sequence that writers keep. */
#ifndef PINION_LIB_STORAGE_HEADER_H
#define PINION_LIB_STORAGE_HEADER_H

#include <pinion/view.h>
#include <stdbool.h>
#include <stdint.h>

#include "storage.h"

#define STORAGE_MAGIC UINT64_C(0x31524f54534e4950) /* "PINSTOR1" */
#define STORAGE_VERSION 1u
#define STORAGE_HEADER_BYTES 4096u

struct storage_header {
	uint64_t magic;
	uint32_t version;
	uint32_t header_bytes;
	uint32_t dtype;
	uint32_t rank;
	uint64_t shape[PINION_RANK_MAX];
	uint64_t elements;
	uint64_t bytes;
	/* What changes; by atomic accesses only. */
	_Alignas(64) uint64_t sequence; /* odd during a write */
	uint64_t writer;		/* who is inside, see storage_writer.h; 0: nobody */
	uint64_t generation;
	char pad[STORAGE_HEADER_BYTES - 152];
};

_Static_assert(sizeof(struct storage_header) == STORAGE_HEADER_BYTES, "the header is a page");

/* Fills a header for @layout, generation 1. */
void header_fill(struct storage_header *header, const struct storage_layout *layout);

/* Whether @header begins as a header does. */
bool header_is(const struct storage_header *header);

/*
 * Whether the private copy @header of a header is one and says what @want asks for, which then gets its shape.
 * -EBADMSG, the sentence names both.
 */
int header_check(const struct storage_header *header, struct storage_layout *want);

/* Sets every element to 0 as a write, and counts the generation up. */
int storage_renew(struct pinion_storage *st);

/* If a write is going on through this object, what it wrote is torn and nobody is inside any more. */
void storage_leave(struct pinion_storage *st);

#endif
