/* SPDX-License-Identifier: MIT */
/* rundir: the user's runtime directory, where the counter file and the names are. */
#ifndef PINION_LIB_RUNDIR_H
#define PINION_LIB_RUNDIR_H

#include <limits.h>

struct rundir {
	int fd; /* of the directory, for *at() calls that a rename of it cannot lead astray */
	char path[PATH_MAX];
};

/*
 * Opens @dir, or the first of $PINION_DIR, $XDG_RUNTIME_DIR/pinion, /run/pinion, /tmp/pinion-UID that is or can be made
 * ours: a directory, not a link, owned by us, closed to others. A directory that was named and is not so is an error.
 */
int rundir_open(const char *dir, struct rundir *out);
void rundir_close(struct rundir *rundir);

/*
 * Keeps every other process of the user out of the short sections that create or replace files here. The kernel lets
 * go of it when the process dies, forked children notwithstanding (a POSIX record lock), so it is taken by one thread of
 * the process at a time and the lock file is opened nowhere else. Returns 0 or -errno: -ETIMEDOUT one process has been in
 * there for 2 s.
 */
int rundir_lock(struct rundir *rundir, int *lock_fd);
void rundir_unlock(int lock_fd);

#endif
