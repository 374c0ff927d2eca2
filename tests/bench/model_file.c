/* SPDX-License-Identifier: MIT */
#include "model_file.h"

#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define COLUMNS	     4096u
#define ROW_BYTES    (COLUMNS * 2u) /* F16 */
#define CHUNK	     (4u << 20)
#define GGUF_F16     1u
#define GGUF_STRING  8u
#define GGUF_ALIGN   32u
#define LENGTH_BYTES 8u
#define OFF_BY	     2u /* so far from a multiple of 64 the unaligned tensors begin */
#define COOL_TRIES   20

/* Of the page cache this much may be left of a cold file: the header that a load has read. */
#define COOL_MAX (1u << 20)

static uint64_t rows_of(uint64_t bytes, unsigned int tensors)
{
	uint64_t rows = bytes / tensors / ROW_BYTES;

	return rows ? rows : 1;
}

/* ---- headers ------------------------------------------------------------------------------------------------- */

static void put(FILE *f, const void *p, size_t bytes)
{
	fwrite(p, 1, bytes, f);
}

static void put_u32(FILE *f, uint32_t v)
{
	put(f, &v, sizeof(v));
}

static void put_u64(FILE *f, uint64_t v)
{
	put(f, &v, sizeof(v));
}

static void put_string(FILE *f, const char *s)
{
	put_u64(f, strlen(s));
	put(f, s, strlen(s));
}

static void put_gguf(FILE *f, unsigned int tensors, uint64_t rows)
{
	char name[32];

	put(f, "GGUF", 4);
	put_u32(f, 3);
	put_u64(f, tensors);
	put_u64(f, 1);
	put_string(f, "general.architecture");
	put_u32(f, GGUF_STRING);
	put_string(f, "bench");
	for (unsigned int i = 0; i < tensors; i++) {
		snprintf(name, sizeof(name), "blk.%u.weight", i);
		put_string(f, name);
		put_u32(f, 2);
		put_u64(f, COLUMNS);
		put_u64(f, rows);
		put_u32(f, GGUF_F16);
		put_u64(f, i * rows * ROW_BYTES);
	}
	while (ftell(f) % GGUF_ALIGN)
		fputc(0, f);
}

static void put_json(FILE *f, unsigned int tensors, uint64_t rows)
{
	uint64_t bytes = rows * ROW_BYTES;

	for (unsigned int i = 0; i < tensors; i++)
		fprintf(f, "%s\"blk.%u.weight\":{\"dtype\":\"F16\",\"shape\":[%llu,%u],\"data_offsets\":[%llu,%llu]}",
			i ? "," : "{", i, (unsigned long long)rows, COLUMNS, (unsigned long long)(i * bytes),
			(unsigned long long)((i + 1) * bytes));
	fputc('}', f);
	while ((LENGTH_BYTES + ftell(f)) % 64 != OFF_BY)
		fputc(' ', f);
}

static void put_unaligned(FILE *f, unsigned int tensors, uint64_t rows)
{
	size_t length = 0;
	char *text = NULL;
	FILE *json = open_memstream(&text, &length);

	if (!json)
		return;
	put_json(json, tensors, rows);
	fclose(json);
	put_u64(f, length);
	put(f, text, length);
	free(text);
}

/* ---- the file ------------------------------------------------------------------------------------------------ */

static int write_all(int fd, const char *p, uint64_t bytes)
{
	while (bytes) {
		ssize_t n = write(fd, p, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		bytes -= n;
	}
	return 0;
}

/* Nothing that a disk or a host could compress or find twice. */
static void fill_noise(uint64_t *p, size_t bytes, uint64_t *state)
{
	uint64_t x = *state;

	for (size_t i = 0; i < bytes / sizeof(*p); i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = x;
	}
	*state = x;
}

static int write_noise(int fd, uint64_t bytes)
{
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
	char *chunk = malloc(CHUNK);
	int ret = chunk ? 0 : -ENOMEM;

	for (uint64_t part; !ret && bytes; bytes -= part) {
		part = bytes < CHUNK ? bytes : CHUNK;
		fill_noise((uint64_t *)chunk, CHUNK, &state);
		ret = write_all(fd, chunk, part);
	}
	if (!ret && fsync(fd))
		ret = -errno;
	free(chunk);
	return ret;
}

static int has_room(const char *dir, uint64_t bytes)
{
	struct statvfs fs;

	if (statvfs(dir, &fs))
		return broke(errno, "%s: %s", dir, strerror(errno));
	if (fs.f_bavail * (uint64_t)fs.f_frsize / 2 < bytes)
		return broke(ENOSPC, "%s has %llu MiB free, a file takes %llu; set BENCH_BYTES or TMPDIR", dir,
			     (unsigned long long)(fs.f_bavail * (uint64_t)fs.f_frsize >> 20),
			     (unsigned long long)(bytes >> 20));
	return 0;
}

static int write_file(struct model_file *f, const char *dir, const char *name, uint64_t bytes, unsigned int tensors,
		      void (*put_header)(FILE *f, unsigned int tensors, uint64_t rows))
{
	uint64_t rows = rows_of(bytes, tensors);
	size_t header_bytes = 0;
	char *header = NULL;
	FILE *mem;
	int fd, ret = has_room(dir, tensors * rows * ROW_BYTES);

	if (ret)
		return ret;
	if (snprintf(f->path, sizeof(f->path), "%s/%s", dir, name) >= (int)sizeof(f->path))
		return broke(ENAMETOOLONG, "%s/%s: the path is too long", dir, name);
	mem = open_memstream(&header, &header_bytes);
	if (!mem)
		return broke(errno, "no memory for a header");
	put_header(mem, tensors, rows);
	fclose(mem);
	fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ret = fd < 0 ? -errno : write_all(fd, header, header_bytes);
	if (!ret)
		ret = write_noise(fd, tensors * rows * ROW_BYTES);
	if (fd >= 0)
		close(fd);
	free(header);
	f->bytes = header_bytes + tensors * rows * ROW_BYTES;
	return ret ? broke(-ret, "writing %s: %s", f->path, strerror(-ret)) : 0;
}

int model_file_gguf(struct model_file *f, const char *dir, const char *name, uint64_t bytes, unsigned int tensors)
{
	return write_file(f, dir, name, bytes, tensors, put_gguf);
}

int model_file_unaligned(struct model_file *f, const char *dir, const char *name, uint64_t bytes, unsigned int tensors)
{
	return write_file(f, dir, name, bytes, tensors, put_unaligned);
}

void model_file_remove(const struct model_file *f)
{
	unlink(f->path);
}

/* ---- the page cache ------------------------------------------------------------------------------------------ */

/* By mincore(), which reads nothing; a read that must not wait may start reading ahead. */
static int cached_fd(int fd, uint64_t bytes, uint64_t *cached)
{
	uint64_t page = sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
	unsigned char *seen = malloc(pages);
	void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	int err = 0;

	*cached = 0;
	if (!seen || p == MAP_FAILED || mincore(p, bytes, seen))
		err = seen ? errno : ENOMEM;
	for (uint64_t i = 0; !err && i < pages; i++)
		*cached += seen[i] & 1 ? page : 0;
	if (p != MAP_FAILED)
		munmap(p, bytes);
	free(seen);
	return err ? broke(err, "what the page cache holds: %s", strerror(err)) : 0;
}

static int open_file(const struct model_file *f)
{
	int fd = open(f->path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? broke(errno, "%s: %s", f->path, strerror(errno)) : fd;
}

int model_file_cached(const struct model_file *f, uint64_t *bytes)
{
	int fd = open_file(f), ret = fd < 0 ? fd : cached_fd(fd, f->bytes, bytes);

	if (fd >= 0)
		close(fd);
	return ret;
}

int model_file_cool(const struct model_file *f)
{
	int fd = open_file(f), ret = fd < 0 ? fd : 0;
	uint64_t cached = UINT64_MAX;

	/* Pages that some other processor still has in a batch stay the first time. */
	for (unsigned int i = 0; !ret && cached > COOL_MAX && i < COOL_TRIES; i++) {
		if (i)
			usleep(1000);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		ret = cached_fd(fd, f->bytes, &cached);
	}
	if (fd >= 0)
		close(fd);
	if (!ret && cached > COOL_MAX)
		ret = broke(EBUSY, "%llu KiB of %s stay in the page cache", (unsigned long long)cached / 1024, f->path);
	return ret;
}

int model_file_heat(const struct model_file *f)
{
	int fd = open_file(f), ret = fd < 0 ? fd : 0;
	char *chunk = malloc(CHUNK);
	uint64_t cached = 0;
	ssize_t n = 1;

	for (uint64_t at = 0; !ret && chunk && n > 0; at += n) {
		n = pread(fd, chunk, CHUNK, at);
		if (n < 0)
			ret = broke(errno, "%s: %s", f->path, strerror(errno));
	}
	if (!ret)
		ret = cached_fd(fd, f->bytes, &cached);
	if (!ret && cached < f->bytes)
		ret = broke(EBUSY, "only %llu of %llu KiB of %s are in the page cache",
			    (unsigned long long)cached / 1024, (unsigned long long)f->bytes / 1024, f->path);
	free(chunk);
	if (fd >= 0)
		close(fd);
	return ret;
}
