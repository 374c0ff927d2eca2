/* SPDX-License-Identifier: MIT */
#include "file.h"

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

/* What the kernel says of direct I/O on the file; a kernel before 6.1 says nothing and gets the page size. */
static bool direct_alignment(struct stream_file *file)
{
	struct statx st = { 0 };

	file->block = file->memory_align = 4096;
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

	file->direct_fd = -1;
	if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode)) {
		file->why = "not a regular file";
		return;
	}
	if (!direct_alignment(file))
		return;
	/* A new open file: O_DIRECT set on a duplicate would change the caller's reads too. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
	file->direct_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (file->direct_fd < 0)
		file->why = errno == EINVAL ? "the file system has no direct I/O" : "the file could not be opened again for direct I/O";
}

int file_open(int fd, struct stream_file **out)
{
	struct stream_file *file = calloc(1, sizeof(*file));
	struct stat st;
	int err;

	if (!file)
		return fail(ENOMEM, "no memory for a file");
	file->refs = 1;
	file->why = "";
	file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (file->fd < 0)
		goto err_free;
	if (fstat(file->fd, &st))
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
	return fail_errno(err, "the file to read (descriptor %d)", fd);
}

void file_close(struct stream_file *file)
{
	if (file->direct_fd >= 0)
		close(file->direct_fd);
	close(file->fd);
	free(file);
}

bool file_is(const struct stream_file *file, int fd)
{
	struct stat st;

	/* Without an inode of its own (a pipe, say) the descriptor is the file. */
	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_dev == file->dev && st.st_ino == file->ino;
}

bool file_is_cached(const struct stream_file *file, uint64_t pos, uint64_t len)
{
	unsigned int hits = 0;

	for (unsigned int i = 0; i < CACHE_SAMPLES; i++) {
		char byte;
		struct iovec iov = { &byte, 1 };

		hits += preadv2(file->fd, &iov, 1, pos + len / CACHE_SAMPLES * i, RWF_NOWAIT) == 1;
	}
	return hits >= CACHE_SAMPLES / 2;
}
