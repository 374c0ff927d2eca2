/* SPDX-License-Identifier: MIT */
/* file: a file as a stream reads it, through the page cache or past it. */
#ifndef PINION_LIB_FILE_H
#define PINION_LIB_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Reference counted by hand under the stream's lock: operations behind one another share it. */
struct stream_file {
	uint32_t refs;
	dev_t dev;
	ino_t ino;
	int fd;		       /* through the page cache; a duplicate, ours */
	int direct_fd;	       /* past it; -1: not to be had */
	int cached_fd;	       /* for what the page cache holds, without read-ahead; -1 where direct_fd is */
	bool regular;
	bool in_order;	       /* no positions: each read takes what comes next, so one at a time */
	bool no_cachestat; /* the kernel has none, or will not answer for this file */
	uint32_t block;	       /* file offsets and lengths of direct reads are multiples of this */
	uint32_t memory_align; /* and addresses of this */
	const char *why;       /* why direct_fd is -1 */
};

/* A file for @fd, with one reference. -errno with a sentence. */
int file_open(int fd, struct stream_file **out);
void file_close(struct stream_file *file);

/* Where the file ends; @pos, where a read found nothing, when it does not say. */
uint64_t file_end(const struct stream_file *file, uint64_t pos);

/* Whether @fd is the file that @file has open already. */
bool file_is(const struct stream_file *file, int fd);

/*
 * Whether the page cache holds most of the range, judged by a few pages at random places: by cachestat() where it may be
 * asked (Linux 6.5, one's own file), else by bytes that are read only if they are there.
 */
bool file_is_cached(struct stream_file *file, uint64_t pos, uint64_t len);

#endif
