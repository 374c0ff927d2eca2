/* SPDX-License-Identifier: MIT */
/*
 * reader: goes through a file's header with pread and one small window, never by mmap, so that a file that shrinks
 * meanwhile is an error and not a SIGBUS. Nothing is read past the size the file had when the reader was opened.
 */
#ifndef PINION_LIB_READER_H
#define PINION_LIB_READER_H

#include <stddef.h>
#include <stdint.h>

#define READER_WINDOW (256u << 10)
#define READER_ALIGN 4096u /* windows start and lie at multiples of this, so a descriptor opened O_DIRECT works too */

struct reader {
	int fd;
	uint64_t offset;      /* of the next byte, in the file */
	uint64_t limit;	      /* no byte at or after this is read */
	const char *limit_is; /* how a sentence introduces limit */
	char where[128];      /* what is being read, begins a sentence */
	unsigned char *window;
	uint64_t window_offset;
	uint64_t window_bytes;
};

int reader_open(struct reader *r, int fd, uint64_t file_bytes);
void reader_close(struct reader *r);

static inline uint64_t reader_left(const struct reader *r)
{
	return r->limit - r->offset;
}

/* All of these: -EBADMSG when @what does not fit before the limit or the file ends early; the errno of a read. */
int reader_need(struct reader *r, uint64_t bytes, const char *what);
int reader_read(struct reader *r, void *dst, uint64_t bytes, const char *what);
int reader_skip(struct reader *r, uint64_t bytes, const char *what);
int reader_u32(struct reader *r, uint32_t *value, const char *what);
int reader_u64(struct reader *r, uint64_t *value, const char *what);

#endif
