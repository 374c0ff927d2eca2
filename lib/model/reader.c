/* SPDX-License-Identifier: MIT */
#include "reader.h"

#include "../error.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int reader_open(struct reader *r, int fd, uint64_t file_bytes)
{
	*r = (struct reader){.fd = fd, .limit = file_bytes, .limit_is = "the file has", .where = "the header"};
	r->window = aligned_alloc(READER_ALIGN, READER_WINDOW);
	if (!r->window)
		return fail(ENOMEM, "no memory for a window of %u bytes to read a header", READER_WINDOW);
	return 0;
}

void reader_close(struct reader *r)
{
	free(r->window);
	r->window = NULL;
}

int reader_need(struct reader *r, uint64_t bytes, const char *what)
{
	if (bytes <= reader_left(r))
		return 0;
	return fail(EBADMSG, "%s: %s needs %" PRIu64 " bytes at offset %" PRIu64 ", %s %" PRIu64, r->where, what, bytes,
		    r->offset, r->limit_is, r->limit);
}

/* Moves the window so that it holds at least the byte at offset; a short read only makes it smaller. */
static int fill(struct reader *r)
{
	uint64_t start = r->offset - r->offset % READER_ALIGN;
	uint64_t have = 0;

	r->window_bytes = 0;
	while (start + have <= r->offset) {
		ssize_t got = pread(r->fd, r->window + have, READER_WINDOW - have, start + have);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return fail_errno(errno, "%s: reading at offset %" PRIu64, r->where, start + have);
		if (got == 0)
			return fail(EBADMSG, "%s: the file now ends at %" PRIu64 ", it shrank while it was read",
				    r->where, start + have);
		have += got;
	}
	r->window_offset = start;
	r->window_bytes = have;
	return 0;
}

int reader_read(struct reader *r, void *dst, uint64_t bytes, const char *what)
{
	unsigned char *to = dst;
	int ret = reader_need(r, bytes, what);

	while (!ret && bytes) {
		/* Before the window this wraps to a huge number, which is outside too. */
		uint64_t at = r->offset - r->window_offset;
		uint64_t part;

		if (at >= r->window_bytes) {
			ret = fill(r);
			continue;
		}
		part = r->window_bytes - at < bytes ? r->window_bytes - at : bytes;
		memcpy(to, r->window + at, part);
		to += part;
		bytes -= part;
		r->offset += part;
	}
	return ret;
}

int reader_skip(struct reader *r, uint64_t bytes, const char *what)
{
	int ret = reader_need(r, bytes, what);

	if (!ret)
		r->offset += bytes;
	return ret;
}

int reader_u32(struct reader *r, uint32_t *value, const char *what)
{
	int ret = reader_read(r, value, sizeof(*value), what);

	if (!ret)
		*value = le32toh(*value);
	return ret;
}

int reader_u64(struct reader *r, uint64_t *value, const char *what)
{
	int ret = reader_read(r, value, sizeof(*value), what);

	if (!ret)
		*value = le64toh(*value);
	return ret;
}
