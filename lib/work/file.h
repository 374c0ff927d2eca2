/* SPDX-License-Identifier: MIT */
/* file: a file as a stream reads or writes it, through the page cache or past it. */
#ifndef PINION_LIB_FILE_H
#define PINION_LIB_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "ring_files.h"

/* Operations behind one another share it. */
struct stream_file {
	uint32_t refs; /* atomic */
	dev_t dev;
	ino_t ino;
	int fd;		       /* through the page cache; a duplicate, ours */
	int direct_fd;	       /* past it; -1: not to be had */
	int cached_fd;	       /* for what the page cache holds, without read-ahead; -1 where direct_fd is */
	int sync;	       /* O_SYNC, O_DSYNC, or 0: of the caller's descriptor, where it is written to */
	bool writing;
	bool append;	       /* the end is where what is written goes */
	bool regular;
	bool in_order;	       /* no positions: each read takes what comes next, so one at a time */
	bool no_cachestat; /* the kernel has none, or will not answer for this file */
	uint32_t block;	       /* file offsets and lengths of direct requests are multiples of this */
	uint32_t memory_align; /* and addresses of this */
	const char *why;       /* why direct_fd is -1 */
	struct ring_file direct_place, place; /* of direct_fd, and of what else requests are on; the stream's thread's */
};

/* A file for @fd, to read or to write, with one reference. -errno with a sentence. */
int file_open(int fd, bool writing, struct stream_file **out);
struct stream_file *file_ref(struct stream_file *file);
void file_unref(struct stream_file *file); /* NULL: nothing; the stream's engine must still be there */

/* Where the file ends; @pos, where a read found nothing, when it does not say. */
uint64_t file_end(const struct stream_file *file, uint64_t pos);

/* Whether @fd is the file that @file has open already, for the same. */
bool file_is(const struct stream_file *file, int fd, bool writing);

/*
 * How many pages of the range, which is not empty, the page cache holds, by cachestat() (Linux 6.5), in one call. False: the
 * kernel has none, or will not say for this file (@no_cachestat).
 */
bool file_count_cached(struct stream_file *file, uint64_t pos, uint64_t len, uint64_t *pages);

/*
 * Whether the page cache holds most of the range, judged by a few pages at random places: by cachestat() where it may be
 * asked (Linux 6.5, one's own file), else by bytes that are read only if they are there.
 */
bool file_is_cached(struct stream_file *file, uint64_t pos, uint64_t len);

#endif
