/* SPDX-License-Identifier: MIT */
/* pages: what page size memory got, and buffers for baselines that get the same as pinion's. */
#ifndef PINION_BENCH_PAGES_H
#define PINION_BENCH_PAGES_H

#include <pinion/buffer.h>
#include <pinion/context.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGES_TEXT 32

/* Whether shared memory gets huge pages at present. */
bool pages_huge(struct pinion_context *ctx);

/* "4 KiB", "2 MiB", or "2 MiB 75 %" where only a part is. */
void pages_text(char text[PAGES_TEXT], uint64_t bytes, uint64_t huge_bytes);
void pages_of_buffer(char text[PAGES_TEXT], struct pinion_buffer *buf);
void pages_of_mapping(char text[PAGES_TEXT], const void *addr, uint64_t bytes);

/* Reads a byte of each page. */
void pages_touch(const void *addr, size_t bytes);

/* A buffer as pinion makes it, mapped for writing; every page is there. */
struct touched {
	struct pinion_buffer *buf;
	char *addr;
	uint64_t bytes;
};

int touched_open(struct pinion_context *ctx, uint64_t bytes, struct touched *out);
void touched_close(struct touched *t);

#endif
