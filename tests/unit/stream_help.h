/* SPDX-License-Identifier: MIT */
/* stream_help: what the tests of streams begin with: a context, a device and a stream, and files whose bytes are known. */
#ifndef PINION_TEST_STREAM_HELP_H
#define PINION_TEST_STREAM_HELP_H

#include "harness.h"

#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB  UINT64_C(1024)
#define MIB  (KIB * KIB)
#define MS   INT64_C(1000000)
#define SOON pinion_deadline_in(3600000 * MS) /* for what comes, however busy the machine is: the test's own limit is shorter */
#define BOTH (PINION_READ | PINION_WRITE)

/* What every test here begins with. */
struct ground {
	struct pinion_context *ctx;
	struct pinion_device *dev;
	struct pinion_stream *stream;
};

static inline void ground_open(struct ground *g, const struct pinion_stream_opts *opts)
{
	int ret;

	memset(g, 0, sizeof(*g));
	ck_ok(pinion_open(NULL, &g->ctx));
	ck_ok(pinion_device_add(g->ctx, "stream", NULL, &g->dev));
	ret = pinion_stream_new(g->dev, opts, &g->stream);
	ck_assert_msg(ret == 0, "%d (%s)", ret, pinion_error());
}

static inline void ground_close(struct ground *g)
{
	pinion_stream_free(g->stream);
	pinion_close(g->ctx);
}

static inline struct pinion_buffer *buffer(struct pinion_context *ctx, size_t size)
{
	struct pinion_buffer *buf = NULL;

	ck_ok(pinion_buffer_alloc(ctx, size, NULL, &buf));
	return buf;
}

/* The result of what was submitted as @seq, if it was: @ret. A flush tells the same. */
static inline int result_of(struct ground *g, int ret, uint64_t seq)
{
	if (ret)
		return ret;
	ret = pinion_stream_wait(g->stream, seq, SOON);
	ck_assert_int_eq(pinion_stream_flush(g->stream, SOON), ret);
	return ret;
}

static inline struct pinion_stream_stats stats_of(struct pinion_stream *s)
{
	struct pinion_stream_stats stats = { .size = sizeof(stats) };

	ck_ok(pinion_stream_stats(s, &stats));
	return stats;
}

static inline uint32_t in_flight(struct pinion_device *dev)
{
	uint32_t n = UINT32_MAX;

	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
	return n;
}

static inline int reap(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static inline unsigned char byte_at(uint64_t pos)
{
	return pos * 31 + (pos >> 12) * 7 + (pos >> 21);
}

/* A file of @bytes in @dir whose name is gone already. */
static inline int file_in(const char *dir, uint64_t bytes)
{
	char path[PATH_MAX];
	unsigned char *text = malloc(bytes + 1);
	int fd;

	snprintf(path, sizeof(path), "%.4000s/file-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	unlink(path);
	for (uint64_t i = 0; i < bytes; i++)
		text[i] = byte_at(i);
	for (uint64_t done = 0; done < bytes;) {
		ssize_t n = write(fd, text + done, bytes - done);

		ck_assert_int_gt(n, 0);
		done += n;
	}
	free(text);
	return fd;
}

static inline int file(uint64_t bytes)
{
	return file_in(test_tmp(), bytes);
}

static inline void drop_cache(int fd)
{
	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* Bytes [off, off + len) of @buf are those of the file from @foff on, and what is around them is untouched. */
static inline void same_bytes(struct pinion_buffer *buf, uint64_t off, uint64_t foff, uint64_t len)
{
	unsigned char *p;

	ck_ok(pinion_buffer_map(buf, PINION_READ, (void **)&p));
	for (uint64_t i = 0; i < len; i++)
		if (p[off + i] != byte_at(foff + i))
			ck_abort_msg("byte %llu of %llu is %u, not %u", (unsigned long long)i, (unsigned long long)len,
				     p[off + i], byte_at(foff + i));
	ck_assert(off == 0 || p[off - 1] == 0);
	ck_assert(off + len == pinion_buffer_size(buf) || p[off + len] == 0);
	ck_ok(pinion_buffer_unmap(buf, PINION_READ));
}

#endif
