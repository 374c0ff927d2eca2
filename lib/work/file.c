/* SPDX-License-Identifier: MIT */
#include "file.h"

#include "../deadline.h"
#include "../error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CACHE_SAMPLES 8

#ifndef SYS_cachestat
#define NR_CACHESTAT 451
#else
#define NR_CACHESTAT SYS_cachestat
#endif

/* Whether @flags are those of a descriptor that may be read from, or written to. */
static bool may_use(int flags, bool writing)
{
	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != (writing ? O_RDONLY : O_WRONLY);
}

/* How durable what is written is when the write is done. */
static int sync_of(int flags, bool writing)
{
	return writing ? flags & (O_SYNC | O_DSYNC) : 0;
}

static int access_of(const struct stream_file *file)
{
	return (file->writing ? O_WRONLY : O_RDONLY) | file->sync | O_CLOEXEC;
}

/* Whether the file has positions to read and write at, and an end to append to. */
static bool has_positions(const struct stat *st)
{
	return S_ISREG(st->st_mode) || S_ISBLK(st->st_mode);
}

/* What the kernel says of direct I/O on the file; a kernel before 6.1 says nothing and gets the page size. */
static bool direct_alignment(struct stream_file *file)
{
	struct statx st = { 0 };

	if (syscall(SYS_statx, file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) || !(st.stx_mask & STATX_DIOALIGN))
		return true;
	if (!st.stx_dio_offset_align) {
		file->why = "the file system has no direct I/O";
		return false;
	}
	file->block = st.stx_dio_offset_align;
	file->memory_align = st.stx_dio_mem_align;
	return true;
}

static void open_direct(struct stream_file *file, const struct stat *st)
{
	char path[64];

	file->direct_fd = file->cached_fd = -1;
	file->regular = S_ISREG(st->st_mode);
	file->in_order = file->append || !has_positions(st);
	file->block = file->memory_align = 4096;
	if (!has_positions(st)) {
		file->why = "not a regular file";
		return;
	}
	if (file->append) {
		file->why = "what is written is appended";
		return;
	}
	if (!direct_alignment(file))
		return;
	/* A new open file: O_DIRECT set on a duplicate would change the caller's reads too. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	file->direct_fd = open(path, access_of(file) | O_DIRECT);
	file->cached_fd = file->direct_fd < 0 ? -1 : open(path, access_of(file));
	/* Read-ahead would bring in what is better read directly, and make it look cached. */
	if (file->cached_fd >= 0)
		posix_fadvise(file->cached_fd, 0, 0, POSIX_FADV_RANDOM);
	if (file->direct_fd < 0)
		file->why = errno == EINVAL ? "the file system has no direct I/O" :
					      "the file could not be opened again for direct I/O";
}

/* The caller's descriptor goes past the page cache; what is not aligned needs another. */
static int open_buffered(struct stream_file *file)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	fd = open(path, access_of(file) | (file->append ? O_APPEND : 0));
	if (fd < 0)
		return -errno;
	close(file->fd);
	file->fd = fd;
	return 0;
}

int file_open(int fd, bool writing, struct stream_file **out)
{
	struct stream_file *file = calloc(1, sizeof(*file));
	struct stat st;
	int err, flags;

	if (!file)
		return fail(ENOMEM, "no memory for a file");
	file->refs = 1;
	file->writing = writing;
	file->why = "";
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (file->fd < 0)
		goto err_free;
	flags = fcntl(file->fd, F_GETFL);
	if (!may_use(flags, writing)) {
		errno = flags < 0 ? errno : EBADF; /* a second open of it could do what this descriptor may not */
		goto err_close;
	}
	file->sync = sync_of(flags, writing);
	if (fstat(file->fd, &st))
		goto err_close;
	file->append = writing && flags & O_APPEND && has_positions(&st);
	/* O_DIRECT of a pipe is that it keeps packets apart. */
	if ((flags & O_DIRECT) && has_positions(&st) && open_buffered(file))
		goto err_close;
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	open_direct(file, &st);
	*out = file;
	return 0;

err_close:
	err = errno;
	close(file->fd);
	errno = err;
err_free:
	err = errno;
	free(file);
	return fail_errno(err, "the file to %s (descriptor %d)", writing ? "write" : "read", fd);
}

struct stream_file *file_ref(struct stream_file *file)
{
	__atomic_add_fetch(&file->refs, 1, __ATOMIC_RELAXED);
	return file;
}

void file_unref(struct stream_file *file)
{
	if (!file || __atomic_sub_fetch(&file->refs, 1, __ATOMIC_ACQ_REL))
		return;
	ring_files_leave(&file->direct_place);
	ring_files_leave(&file->place);
	if (file->direct_fd >= 0)
		close(file->direct_fd);
	if (file->cached_fd >= 0)
		close(file->cached_fd);
	close(file->fd);
	free(file);
}

uint64_t file_end(const struct stream_file *file, uint64_t pos)
{
	struct stat st;

	if (fstat(file->fd, &st) || !S_ISREG(st.st_mode) || st.st_size <= 0 || (uint64_t)st.st_size >= pos)
		return pos;
	return st.st_size;
}

bool file_is(const struct stream_file *file, int fd, bool writing)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;

	if (file->writing != writing || file->append || (writing && flags & O_APPEND))
		return false;
	/* Without an inode of its own (a pipe, say) the descriptor is the file. */
	return may_use(flags, writing) && sync_of(flags, writing) == file->sync && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
	       st.st_dev == file->dev && st.st_ino == file->ino;
}

bool file_count_cached(struct stream_file *file, uint64_t pos, uint64_t len, uint64_t *pages)
{
	struct {
		uint64_t off, len;
	} range = { pos, len };
	struct {
		uint64_t cache, dirty, writeback, evicted, recently_evicted;
	} stat = { 0 };

	if (!file->no_cachestat && syscall(NR_CACHESTAT, file->cached_fd, &range, &stat, 0))
		file->no_cachestat = true;
	*pages = stat.cache;
	return !file->no_cachestat;
}

/* Whether the page cache holds the page at @pos: as the kernel says, or by a byte that is read only if it is there. */
static bool page_is_cached(struct stream_file *file, uint64_t pos)
{
	char byte;
	struct iovec iov = { &byte, 1 };
	uint64_t pages;

	if (file_count_cached(file, pos, 1, &pages))
		return pages;
	return preadv2(file->cached_fd, &iov, 1, pos, RWF_NOWAIT) == 1;
}

/*
 * A byte that is not there is not waited for, but the kernel may read its page in afterwards: so the places differ from one
 * time to the next, or the second load of a file would find the pages that the first one asked for, and no others.
 */
bool file_is_cached(struct stream_file *file, uint64_t pos, uint64_t len)
{
	uint64_t part = len / CACHE_SAMPLES + 1, noise = (uint64_t)deadline_now() * UINT64_C(0x9e3779b97f4a7c15);
	unsigned int hits = 0;

	if (file->cached_fd < 0 || len == 0)
		return true;
	for (unsigned int i = 0; i < CACHE_SAMPLES; i++) {
		noise ^= noise >> 29;
		noise *= UINT64_C(0xbf58476d1ce4e5b9);
		hits += page_is_cached(file, pos + (part * i + (noise >> 16) % part) % len);
	}
	return hits >= CACHE_SAMPLES / 2;
}
