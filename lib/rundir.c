/* SPDX-License-Identifier: MIT */
#include "rundir.h"

#include "advice.h"
#include "deadline.h"
#include "error.h"
#include "fork.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NAME	 ".lock"
#define LOCK_PATIENCE_NS INT64_C(2000000000)

static int fail_open(const char *path, int err)
{
	struct stat st;

	if (!lstat(path, &st) && S_ISLNK(st.st_mode))
		return fail_advise(err, PINION_ADVICE_DIR_PLACE, NULL, "runtime directory %s is a link, which is not followed",
				   path);
	if (err == ENOTDIR || err == EACCES)
		return fail_advise(err, err == EACCES ? PINION_ADVICE_DIR_OWNER : PINION_ADVICE_DIR_PLACE, NULL,
				   "runtime directory %s: %s", path, strerrordesc_np(err));
	return fail_errno(err, "runtime directory %s", path);
}

static int is_no_dot(const struct dirent *entry)
{
	return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

/* Whether it is nobody's but this library's, so that closing it to others takes nothing from them: /tmp and / are not. */
static bool is_for_this(int fd)
{
	struct dirent **entry;
	int n;

	if (!faccessat(fd, LOCK_NAME, F_OK, 0))
		return true;
	n = scandirat(fd, ".", &entry, is_no_dot, NULL);
	for (int i = 0; i < n; i++)
		free(entry[i]);
	if (n >= 0)
		free(entry);
	return n == 0;
}

static int fail_open_to_others(const char *path, int fd, mode_t mode)
{
	bool ours = is_for_this(fd);

	return fail_advise(EPERM, ours ? PINION_ADVICE_DIR_MODE : PINION_ADVICE_DIR_OWNER, ours ? path : NULL,
			   "runtime directory %s has mode %04o, it must be 0700, closed to others", path, mode & 07777);
}

/* Opens @path when it is ours alone. */
static int open_ours(const char *path)
{
	struct stat st;
	int fd, ret;

	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail_open(path, errno);
	if (fstat(fd, &st)) {
		int err = errno;

		close(fd);
		return fail_errno(err, "runtime directory %s", path);
	}
	if (st.st_uid != geteuid()) {
		close(fd);
		return fail_advise(EPERM, PINION_ADVICE_DIR_OWNER, NULL,
				   "runtime directory %s belongs to uid %u, it must be yours (uid %u)", path, st.st_uid,
				   geteuid());
	}
	if (st.st_mode & 077) {
		ret = fail_open_to_others(path, fd, st.st_mode);
		close(fd);
		return ret;
	}
	return fd;
}

static int make_and_open(const char *path)
{
	if (mkdir(path, 0700) && errno != EEXIST)
		return errno == ENOENT || errno == EACCES || errno == EPERM || errno == ENOTDIR ?
			       fail_advise(errno, PINION_ADVICE_DIR_PLACE, NULL, "making the runtime directory %s: %s", path,
					   strerrordesc_np(errno)) :
			       fail_errno(errno, "making the runtime directory %s", path);
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
	/* What clears old files out of /tmp passes a directory by that somebody holds so: systemd-tmpfiles(8). */
	flock(fd, LOCK_SH | LOCK_NB);
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

	return !fcntl(fd, F_GETLK, &lock) && lock.l_type != F_UNLCK ? lock.l_pid : NOBODY;
}

/*
 * The sections are short, so one process that stays in its own for LOCK_PATIENCE_NS is stopped, and all would hang with it:
 * -ETIMEDOUT, and *@holder is who. Many that come and go are waited for; those without a pid here look like one.
 */
static int lock_wait(int fd, pid_t *holder)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	const struct timespec pause = { .tv_nsec = 1000000 };
	int64_t since = deadline_now();
	pid_t now;

	*holder = NOBODY;
	while (fcntl(fd, F_SETLK, &lock)) {
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return -errno;
		now = lock_holder(fd);
		if (now != *holder)
			since = deadline_now();
		*holder = now;
		if (now != NOBODY && deadline_now() - since > LOCK_PATIENCE_NS)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int fail_locked(pid_t pid, const struct rundir *rundir)
{
	char who[16];

	if (!pid)
		return fail_advise(ETIMEDOUT, PINION_ADVICE_DIR_LOCKED, NULL,
				   "a process of another pid namespace, a container or the host, has held %s/.lock for 2 s",
				   rundir->path);
	snprintf(who, sizeof(who), "%d", pid);
	return fail_advise(ETIMEDOUT, PINION_ADVICE_DIR_LOCKED, who, "process %d has held %s/.lock for 2 s", pid, rundir->path);
}

int rundir_lock(struct rundir *rundir, int *lock_fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pid_t holder = NOBODY;
	int fd, ret;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&lock_turn);
	fd = openat(rundir->fd, LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		ret = -errno;
		goto err_turn;
	}
	ret = lock_wait(fd, &holder);
	if (!ret) {
		*lock_fd = fd;
		return 0;
	}
	close(fd);
err_turn:
	pthread_mutex_unlock(&lock_turn);
	if (holder != NOBODY && ret == -ETIMEDOUT)
		return fail_locked(holder, rundir);
	return fail_errno(-ret, "locking %s/.lock", rundir->path);
}

void rundir_unlock(int lock_fd)
{
	close(lock_fd);
	pthread_mutex_unlock(&lock_turn);
}
