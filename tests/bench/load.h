/* SPDX-License-Identifier: MIT */
/* load: the ways to bring a file into memory, pinion's and those it is compared with; nanoseconds for a GiB. */
#ifndef PINION_BENCH_LOAD_H
#define PINION_BENCH_LOAD_H

#include <pinion/context.h>
#include <pinion/model.h>

#include "bench.h"
#include "model_file.h"
#include "pages.h"

#define READ_BYTES (4u << 20) /* one request, as fio's and pinion's */

struct loading {
	struct pinion_context *ctx;
	const struct model_file *file;
	bool cold; /* out of the page cache before each measurement */
};

/* TIME: reading alone. CPU: of the threads that read. WHOLE: with making the buffer and sealing it. */
int load_way(void *loading, struct sample *out);

/*
 * pread() into a buffer like the load's, made anew as that is, and there before the reading begins; past the page cache
 * where cold. WHOLE: with making the buffer.
 */
int load_pread(void *loading, struct sample *out);

/* The same to staging, and from there to its place by memcpy(). */
int load_moved(void *loading, struct sample *out);

/* mmap() with MAP_POPULATE. */
int load_mmap(void *loading, struct sample *out);

/* One load to look at: the pages it got and what it says of itself, as a note. */
int load_look(struct loading *l, char pages[PAGES_TEXT], char *note, size_t room);

#endif
