/* SPDX-License-Identifier: MIT */
/* shared: an array in a file that other processes map by its path. */
#include "../error.h"
#include "storage.h"
#include "storage_file.h"
#include "storage_header.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pinion/context.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared {
	struct pinion_storage st;
	int fd;
	void *base;
	char path[];
};

/* Unmaps first: the memory is the file's. */
static void shared_close(struct pinion_storage *st)
{
	struct shared *sh = (struct shared *)st;

	munmap(sh->base, st->layout.total);
	close(sh->fd);
	free(sh);
}

/* Another name, by a rename or a link, is not this path. Where the path cannot be looked at, no name at all is one. */
static bool shared_unlinked(const struct pinion_storage *st)
{
	const struct shared *sh = (const struct shared *)st;
	struct stat file, there;

	if (fstat(sh->fd, &file))
		return false;
	if (!fstatat(AT_FDCWD, sh->path, &there, AT_SYMLINK_NOFOLLOW))
		return there.st_dev != file.st_dev || there.st_ino != file.st_ino;
	return errno == ENOENT || errno == ENOTDIR || !file.st_nlink;
}

static void shared_where(const struct pinion_storage *st, char text[STORAGE_WHERE_TEXT])
{
	snprintf(text, STORAGE_WHERE_TEXT, ", at %s%s", ((const struct shared *)st)->path,
		 shared_unlinked(st) ? ", unlinked" : "");
}

static const struct storage_ops shared_ops = {
	.name = "shared",
	.close = shared_close,
	.where = shared_where,
	.unlinked = shared_unlinked,
};

/* With the path as it is from anywhere, so that it leads where it led when the process has changed its folder. */
static struct shared *shared_alloc(const char *path)
{
	char cwd[PATH_MAX];
	bool from_here = *path != '/' && getcwd(cwd, sizeof(cwd)) && *cwd == '/';
	size_t len = (from_here ? strlen(cwd) + 1 : 0) + strlen(path) + 1;
	struct shared *sh = calloc(1, sizeof(*sh) + len);

	if (sh)
		snprintf(sh->path, len, "%s%s%s", from_here ? cwd : "", from_here ? "/" : "", path);
	return sh;
}

/* Maps @fd, which becomes the storage's on success. */
static int shared_new(int fd, const char *path, uint32_t rights, const struct storage_layout *layout,
		      struct pinion_storage **out)
{
	struct shared *sh = shared_alloc(path);

	if (!sh)
		return fail(ENOMEM, "no memory for a storage object");
	sh->base = mmap(NULL, layout->total, PROT_READ | (rights & PINION_WRITE ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (sh->base == MAP_FAILED) {
		int err = errno;

		free(sh);
		return fail_errno(err, "mapping its %" PRIu64 " bytes", layout->total);
	}
	sh->fd = fd;
	storage_init(&sh->st, &shared_ops, PINION_STORAGE_SHARED, layout, rights, sh->base);
	*out = &sh->st;
	return 0;
}

/* Takes back shared_new(): the descriptor is the caller's again. */
static void shared_undo(struct pinion_storage *st)
{
	munmap(((struct shared *)st)->base, st->layout.total);
	free(st);
}

/* What is at the front of the file, zeros where it ends. */
static int read_header(int fd, struct storage_header *header)
{
	ssize_t n;

	memset(header, 0, sizeof(*header));
	do {
		n = pread(fd, header, sizeof(*header), 0);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? fail_errno(errno, "reading its first bytes") : 0;
}

/* The layout that was asked for against the one that the file has. @layout gets the header's shape. */
static int check_content(int fd, struct storage_layout *layout)
{
	struct storage_header header;
	int ret = read_header(fd, &header);

	if (ret)
		return ret;
	if (layout->offset)
		return header_check(&header, layout);
	if (!header_is(&header))
		return 0;
	return fail(EBADMSG, "it has a header, and pinion_storage_opts.header does not ask for one");
}

/* Dtype, overflow, zero length, options, in this order, and no file. */
static int check_wish(enum pinion_dtype dtype, uint64_t n, const struct pinion_storage_opts *user,
		      struct pinion_storage_opts *opts, struct storage_layout *layout)
{
	int ret = storage_layout(layout, dtype, n, false);

	if (!ret)
		ret = storage_opts(opts, user);
	if (!ret)
		ret = storage_layout_shape(layout, opts);
	if (!ret && opts->header)
		ret = storage_layout_header(layout);
	if (!ret && (opts->deadline_ns || opts->buffer))
		ret = fail(EINVAL, "pinion_storage_opts.%s is for storages with a name",
			   opts->buffer ? "buffer" : "deadline_ns");
	return ret;
}

/* ---- create ------------------------------------------------------------------------------------------------------ */

static int write_header(int fd, const struct storage_layout *layout)
{
	struct storage_header header;
	ssize_t n;

	header_fill(&header, layout);
	do {
		n = pwrite(fd, &header, sizeof(header), 0);
	} while (n < 0 && errno == EINTR);
	return n == sizeof(header) ? 0 : fail_errno(n < 0 ? errno : EIO, "writing its header");
}

/* A file that is whole before it has its name. -EEXIST another was quicker. */
static int create_new(const struct file_place *place, const char *path, const struct pinion_storage_opts *opts,
		      const struct storage_layout *layout, struct pinion_storage **out)
{
	struct pinion_storage *st = NULL;
	struct file_draft draft;
	int ret = file_draft(place, opts->mode ? opts->mode : 0600, layout->total, &draft);

	if (ret)
		return ret;
	if (layout->offset)
		ret = write_header(draft.fd, layout);
	if (!ret)
		ret = shared_new(draft.fd, path, PINION_READ | PINION_WRITE, layout, &st);
	if (ret)
		goto err_discard;
	ret = file_show(place, &draft, opts->replace);
	if (ret)
		goto err_undo;
	*out = st;
	return 0;

err_undo:
	shared_undo(st);
err_discard:
	file_discard(place, &draft);
	return ret;
}

#define REPLACE_IT "; pinion_storage_opts.replace puts a new file in its place"

static int check_same(int fd, const struct stat *file, struct storage_layout *layout)
{
	int ret;

	/* Where many users make files, one that waits for us there may be a trap. */
	if (file->st_uid != geteuid())
		return fail(EPERM, "it is there and belongs to user %u" REPLACE_IT, (unsigned int)file->st_uid);
	/* Others may have it mapped. */
	if ((uint64_t)file->st_size != layout->total)
		return fail(EEXIST, "it is there and has %lld bytes, %" PRIu64 " are needed" REPLACE_IT,
			    (long long)file->st_size, layout->total);
	ret = check_content(fd, layout);
	return ret == -EBADMSG ? fail(EEXIST, "it is there, and %s" REPLACE_IT, pinion_error()) : ret;
}

/* Blocks come last, because a file that is given some is not as it was. On failure the descriptor is the caller's. */
static int map_whole(int fd, const char *path, uint32_t rights, const struct storage_layout *layout,
		     struct pinion_storage **out)
{
	struct pinion_storage *st;
	int ret = shared_new(fd, path, rights, layout, &st);

	if (ret)
		return ret;
	if (rights & PINION_WRITE)
		ret = file_fill_holes(fd, layout->total);
	if (ret)
		shared_undo(st);
	else
		*out = st;
	return ret;
}

/* The file that is there, if it is what would be made, zeroed in place. */
static int create_over(const struct file_place *place, const char *path, struct storage_layout *layout,
		       struct pinion_storage **out)
{
	struct pinion_storage *st;
	struct stat file;
	int fd, ret;

	/* A shape that was not said is one axis here, not any that the header has. */
	if (!layout->rank) {
		layout->rank = 1;
		layout->shape[0] = layout->elements;
	}
	ret = file_find(place, O_RDWR, &fd, &file);
	if (ret)
		return ret;
	ret = check_same(fd, &file, layout);
	if (!ret)
		ret = map_whole(fd, path, PINION_READ | PINION_WRITE, layout, &st);
	if (ret) {
		close(fd);
		return ret;
	}
	if (layout->offset)
		ret = storage_renew(st);
	else
		memset(st->data, 0, layout->bytes);
	if (ret)
		pinion_storage_free(st);
	else
		*out = st;
	return ret;
}

/* What a new file would replace. */
static int check_replaced(const struct file_place *place)
{
	struct stat file;

	if (fstatat(place->dir, place->name, &file, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : fail_errno(errno, "looking at it");
	return file_check_kind(&file);
}

/* Two creators may meet, and a file may come and go: whoever finds the other's file uses it. */
static int create_at(const struct file_place *place, const char *path, const struct pinion_storage_opts *opts,
		     struct storage_layout *layout, struct pinion_storage **out)
{
	int ret;

	if (opts->replace) {
		ret = check_replaced(place);
		return ret ? ret : create_new(place, path, opts, layout, out);
	}
	for (unsigned int i = 0; i < 16; i++) {
		ret = create_over(place, path, layout, out);
		if (ret != -ENOENT)
			return ret;
		ret = create_new(place, path, opts, layout, out);
		if (ret != -EEXIST)
			return ret;
	}
	return ret;
}

PINION_API int pinion_storage_create(const char *path, enum pinion_dtype dtype, uint64_t n,
				     const struct pinion_storage_opts *opts, struct pinion_storage **out)
{
	struct pinion_storage_opts own;
	struct storage_layout layout;
	struct file_place place;
	int ret = check_wish(dtype, n, opts, &own, &layout);

	if (!ret && own.rights != (PINION_READ | PINION_WRITE))
		ret = fail(EINVAL, "creating a storage needs PINION_WRITE in pinion_storage_opts.rights");
	if (ret)
		return ret;
	ret = file_place_open(path, &place);
	if (!ret) {
		ret = create_at(&place, path, &own, &layout, out);
		file_place_close(&place);
	}
	return ret ? fail(-ret, "creating %s: %s", file_shown(path), pinion_error()) : 0;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static int open_file(int fd, const struct stat *file, const char *path, uint32_t rights, struct storage_layout *layout,
		     struct pinion_storage **out)
{
	int ret;

	/* What a header has to say explains more than the size does. */
	if (layout->offset && file->st_size >= STORAGE_HEADER_BYTES) {
		ret = check_content(fd, layout);
		if (ret)
			return ret;
	}
	if ((uint64_t)file->st_size < layout->total)
		return fail(EBADMSG, "the file is too small: %lld < %" PRIu64 " bytes", (long long)file->st_size,
			    layout->total);
	ret = layout->offset ? 0 : check_content(fd, layout);
	return ret ? ret : map_whole(fd, path, rights, layout, out);
}

static int open_at(const char *path, uint32_t rights, struct storage_layout *layout, struct pinion_storage **out)
{
	struct file_place place;
	struct stat file;
	int fd, ret = file_place_open(path, &place);

	if (ret)
		return ret;
	ret = file_find(&place, rights & PINION_WRITE ? O_RDWR : O_RDONLY, &fd, &file);
	file_place_close(&place);
	if (ret)
		return ret;
	ret = open_file(fd, &file, path, rights, layout, out);
	if (ret)
		close(fd);
	return ret;
}

PINION_API int pinion_storage_open(const char *path, enum pinion_dtype dtype, uint64_t n,
				   const struct pinion_storage_opts *opts, struct pinion_storage **out)
{
	struct pinion_storage_opts own;
	struct storage_layout layout;
	int ret = check_wish(dtype, n, opts, &own, &layout);

	if (!ret && (own.replace || own.mode))
		ret = fail(EINVAL, "pinion_storage_opts.%s is for creating a storage",
			   own.replace ? "replace" : "mode");
	if (ret)
		return ret;
	ret = open_at(path, own.rights, &layout, out);
	return ret ? fail(-ret, "opening %s: %s", file_shown(path), pinion_error()) : 0;
}
