/* SPDX-License-Identifier: MIT */
#include "rundir.h"

#include "deadline.h"
#include "error.h"
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_PATIENCE_NS INT64_C(2000000000)

/* Opens @path when it is ours alone. */
static int open_ours(const char *path)
{
	struct stat st;
	int fd;

	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail_errno(errno, "runtime directory %s", path);
	if (fstat(fd, &st)) {
		int err = errno;

		close(fd);
		return fail_errno(err, "runtime directory %s", path);
	}
	if (st.st_uid != geteuid()) {
		close(fd);
		return fail(EPERM, "runtime directory %s belongs to uid %u, it must be yours (uid %u): name another one in PINION_DIR", path,
			    st.st_uid, geteuid());
	}
	if (st.st_mode & 077) {
		close(fd);
		return fail(EPERM, "runtime directory %s has mode %04o, it must be 0700, closed to others: chmod 700 it, or name another one in "
				   "PINION_DIR", path, st.st_mode & 07777);
	}
	return fd;
}

static int make_and_open(const char *path)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return fail_errno(errno, "making the runtime directory %s", path);
	return open_ours(path);
}

static int take(struct rundir *out, const char *path)
{
	int fd;

	if (snprintf(out->path, sizeof(out->path), "%s", path) >= (int)sizeof(out->path))
		return fail(ENAMETOOLONG, "runtime directory: the path is longer than %d bytes", PATH_MAX - 1);
	fd = make_and_open(path);
	if (fd < 0)
		return fd;
	out->fd = fd;
	return 0;
}

int rundir_open(const char *dir, struct rundir *out)
{
	const char *named = dir ? dir : secure_getenv("PINION_DIR");
	const char *xdg = secure_getenv("XDG_RUNTIME_DIR");
	char path[PATH_MAX];

	if (named && *named)
		return take(out, named);
	if (xdg && *xdg == '/' && snprintf(path, sizeof(path), "%s/pinion", xdg) < (int)sizeof(path) && !take(out, path))
		return 0;
	if (!take(out, "/run/pinion"))
		return 0;
	snprintf(path, sizeof(path), "/tmp/pinion-%u", geteuid());
	return take(out, path);
}

void rundir_close(struct rundir *rundir)
{
	close(rundir->fd);
}

static pthread_mutex_t lock_turn = PTHREAD_MUTEX_INITIALIZER;

DEFINE_WATCH_FORKS(lock_turn)

#define NOBODY (-1)

/* Who is in the section: a pid; 0: a process that this pid namespace does not have; NOBODY any more. */
static pid_t lock_holder(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return !fcntl(fd, F_GETLK, &lock) && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

/*
 * The sections are short, so one process that stays in its own for LOCK_PATIENCE_NS is stopped, and all would hang with it: 0;
 * its pid; or -errno. Many that come and go are waited for.
 */
static int lock_wait(int fd)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const struct timespec pause = { .tv_nsec = 1000000 };
	int64_t since = deadline_now();
	pid_t holder = 0, now;

	while (fcntl(fd, F_SETLK, &lock)) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -errno;
		now = lock_holder(fd);
		if (now != holder)
			since = deadline_now();
		holder = now;
		if (holder && deadline_now() - since > LOCK_PATIENCE_NS)
			return holder;
		nanosleep(&pause, NULL);
	}
	return 0;
}

int rundir_lock(struct rundir *rundir, int *lock_fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int fd, ret;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock_turn);
	fd = openat(rundir->fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		ret = -errno;
		goto err_turn;
	}
	ret = lock_wait(fd);
	if (!ret) {
		*lock_fd = fd;
		return 0;
	}
	close(fd);
err_turn:
	pthread_mutex_unlock(&lock_turn);
	if (ret > 0)
		return fail(ETIMEDOUT, "process %d has held %s/.lock for 2 s: if it is stopped let it go on (kill -CONT %d), else end it",
			    ret, rundir->path, ret);
	return fail_errno(-ret, "locking %s/.lock", rundir->path);
}

void rundir_unlock(int lock_fd)
{
	close(lock_fd);
	pthread_mutex_unlock(&lock_turn);
}
