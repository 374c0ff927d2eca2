/* SPDX-License-Identifier: MIT */
#include "storage_file.h"

#include "../advice.h"
#include "../error.h"
#include "../machine/filesize.h"
#include "../machine/room.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SHOWN_MAX 192

const char *file_shown(const char *path)
{
	size_t len = strlen(path);

	return len > SHOWN_MAX ? path + len - SHOWN_MAX : path;
}

static const char *kind_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "a directory";
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	case S_IFCHR:
	case S_IFBLK:
		return "a device";
	default:
		return "no file of bytes";
	}
}

int file_check_kind(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return 0;
	if (S_ISLNK(st->st_mode))
		return fail(ELOOP, "it is a symbolic link; give the path of the file itself");
	return fail(EINVAL, "it is %s, a regular file is needed", kind_of(st->st_mode));
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

int file_place_open(const char *path, struct file_place *place)
{
	const char *slash = strrchr(path, '/');
	char *dir;

	place->name = slash ? slash + 1 : path;
	if (!*place->name || !strcmp(place->name, ".") || !strcmp(place->name, ".."))
		return fail(EINVAL, "it names a directory, a regular file is needed");
	dir = slash ? strndup(path, slash - path + 1) : strdup(".");
	if (!dir)
		return fail(ENOMEM, "no memory for a path");
	place->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	free(dir);
	return place->dir < 0 ? fail_errno(errno, "opening its folder") : 0;
}

void file_place_close(struct file_place *place)
{
	close(place->dir);
}

int file_find(const struct file_place *place, int flags, int *fd, struct stat *st)
{
	int ret;

	/* Looked at before it is opened: opening a device may do something. */
	if (fstatat(place->dir, place->name, st, AT_SYMLINK_NOFOLLOW))
		return fail_errno(errno, "looking at it");
	ret = file_check_kind(st);
	if (ret)
		return ret;
	*fd = openat(place->dir, place->name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (*fd < 0)
		return fail_errno(errno, "opening it for reading%s",
				  (flags & O_ACCMODE) == O_RDONLY ? "" : " and writing");
	if (fstat(*fd, st))
		ret = fail_errno(errno, "looking at it");
	else
		ret = file_check_kind(st);
	if (ret)
		close(*fd);
	return ret;
}

/* ---- new files --------------------------------------------------------------------------------------------------- */

static void draw_name(char name[FILE_DRAFT_MAX])
{
	uint64_t number = 0;

	/* Short of random numbers, a name that is taken is an error and no more. */
	if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
		number = getpid();
	snprintf(name, FILE_DRAFT_MAX, ".pinion-%016llx", (unsigned long long)number);
}

/* Without a name where the file system can do that, so that a death on the way leaves nothing. */
static int draft_open(const struct file_place *place, struct file_draft *draft)
{
	draft->name[0] = 0;
	draft->fd = openat(place->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (draft->fd >= 0)
		return 0;
	if (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL) {
		draw_name(draft->name);
		draft->fd = openat(place->dir, draft->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	}
	return draft->fd < 0 ? fail_errno(errno, "making a file in its folder") : 0;
}

/*
 * What a file needs to have all of its first bytes, and what the file system has left for users. Blocks that it has
 * may lie behind those bytes: hence least and most.
 */
struct space {
	uint64_t least, most;
	uint64_t left;
};

static struct space look_at_space(int fd, uint64_t bytes)
{
	struct space space = { .least = bytes, .most = bytes, .left = UINT64_MAX };
	struct statvfs fs;
	struct stat file;

	if (!fstat(fd, &file)) {
		uint64_t have = (uint64_t)file.st_blocks * 512;
		uint64_t end = (uint64_t)file.st_size > bytes ? (uint64_t)file.st_size : bytes;

		space.least = bytes > have ? bytes - have : 0;
		space.most = end <= have ? 0 : end - have < bytes ? end - have : bytes;
	}
	/* Without a limit it says that there are no blocks at all. What is kept back for emergencies is not for storages. */
	if (!fstatvfs(fd, &fs) && fs.f_blocks)
		space.left = (uint64_t)fs.f_bavail * fs.f_frsize;
	return space;
}

static int allocation_failed(int err, const struct space *space)
{
	if (err != ENOSPC || space->left == UINT64_MAX)
		return fail_errno(err, "allocating its %llu bytes", (unsigned long long)space->least);
	return fail_advise(ENOSPC, PINION_ADVICE_DISK_FULL, NULL, "allocating its %llu bytes: the file system has %llu free",
			   (unsigned long long)space->least, (unsigned long long)space->left);
}

/*
 * Before any are taken. Pages of a file in memory are charged to this process's cgroup, whose kernel kills rather than
 * refuses; a disk refuses only when everyone's blocks are gone.
 */
static int check_space(int fd, const struct space *space)
{
	struct statfs fs;
	int ret = 0;

	if (!fstatfs(fd, &fs) && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC))
		ret = room_check(space->most, "the storage");
	if (!ret && space->least > space->left)
		ret = allocation_failed(ENOSPC, space);
	return ret;
}

static int draft_fill(const struct file_draft *draft, uint32_t mode, uint64_t bytes)
{
	struct space space = look_at_space(draft->fd, bytes);
	int err, ret = check_space(draft->fd, &space);

	if (!ret)
		ret = filesize_check("the storage", bytes);
	if (ret)
		return ret;
	do {
		err = posix_fallocate(draft->fd, 0, bytes);
	} while (err == EINTR);
	if (err)
		return allocation_failed(err, &space);
	return fchmod(draft->fd, mode) ? fail_errno(errno, "setting its mode to 0%o", mode) : 0;
}

int file_draft(const struct file_place *place, uint32_t mode, uint64_t bytes, struct file_draft *draft)
{
	int ret = draft_open(place, draft);

	if (ret)
		return ret;
	ret = draft_fill(draft, mode, bytes);
	if (ret)
		file_discard(place, draft);
	return ret;
}

void file_discard(const struct file_place *place, struct file_draft *draft)
{
	close(draft->fd);
	if (draft->name[0])
		unlinkat(place->dir, draft->name, 0);
}

/* Links a file without a name to @name. */
static int link_draft(const struct file_place *place, const struct file_draft *draft, const char *name)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", draft->fd);
	return linkat(AT_FDCWD, path, place->dir, name, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

static int show_beside(const struct file_place *place, const struct file_draft *draft)
{
	int ret = 0;

	if (!draft->name[0])
		return link_draft(place, draft, place->name);
	if (linkat(place->dir, draft->name, place->dir, place->name, 0))
		ret = -errno;
	else
		unlinkat(place->dir, draft->name, 0);
	return ret;
}

/* A link cannot replace a file; a rename can. */
static int show_over(const struct file_place *place, struct file_draft *draft)
{
	int ret = 0;

	if (!draft->name[0]) {
		draw_name(draft->name);
		ret = link_draft(place, draft, draft->name);
		if (ret) {
			draft->name[0] = 0;
			return ret;
		}
	}
	return renameat(place->dir, draft->name, place->dir, place->name) ? -errno : 0;
}

int file_show(const struct file_place *place, struct file_draft *draft, bool replace)
{
	int ret = replace ? show_over(place, draft) : show_beside(place, draft);

	return ret ? fail_errno(-ret, "giving the file its name") : 0;
}

int file_fill_holes(int fd, uint64_t bytes)
{
	off_t hole = lseek(fd, 0, SEEK_HOLE);
	struct space space;
	int ret;

	if (hole < 0 || (uint64_t)hole >= bytes)
		return 0;
	space = look_at_space(fd, bytes);
	ret = check_space(fd, &space);
	if (ret)
		return ret;
	do {
		ret = fallocate(fd, 0, 0, bytes);
	} while (ret && errno == EINTR);
	return ret && errno != EOPNOTSUPP ? allocation_failed(errno, &space) : 0;
}
