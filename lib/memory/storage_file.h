/* SPDX-License-Identifier: MIT */
/* storage file: finding, making and showing the files that storages are in, without touching what is there. */
#ifndef PINION_LIB_STORAGE_FILE_H
#define PINION_LIB_STORAGE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* The last component of a path, in the folder that the rest leads to; open, so that renaming it leads nobody astray. */
struct file_place {
	int dir;
	const char *name; /* borrowed from the path */
};

#define FILE_DRAFT_MAX 32

/* A file that nobody finds under its name yet. */
struct file_draft {
	int fd;
	char name[FILE_DRAFT_MAX]; /* "": it has no name at all */
};

/* As much of the end of a path as leaves room for the rest of a sentence. */
const char *file_shown(const char *path);

/* -EINVAL not a regular file, -ELOOP a link, with a sentence that says what it is. */
int file_check_kind(const struct stat *st);

/* -EINVAL the path names no file; errors of opening its folder. Closed by file_place_close(). */
int file_place_open(const char *path, struct file_place *place);
void file_place_close(struct file_place *place);

/* Opens what is there, if it is a regular file. -ENOENT leaves a sentence too. */
int file_find(const struct file_place *place, int flags, int *fd, struct stat *st);

/* A new file in the folder of @place, of @bytes zero bytes that all have their blocks. -ENOSPC, -ENOMEM, -EFBIG. */
int file_draft(const struct file_place *place, uint32_t mode, uint64_t bytes, struct file_draft *draft);

/* Gives the draft its name; the descriptor stays open. -EEXIST there is one and not @replace; the draft stays one. */
int file_show(const struct file_place *place, struct file_draft *draft, bool replace);

/* Closes and removes a draft that was not shown. */
void file_discard(const struct file_place *place, struct file_draft *draft);

/*
 * Gives blocks to what has none in the first @bytes of a writable file, where the file system can. What there is no room
 * for is refused before any is taken: -ENOSPC, -ENOMEM.
 */
int file_fill_holes(int fd, uint64_t bytes);

#endif
