/* SPDX-License-Identifier: MIT */
/* cgroup: the control groups of this process, its own and every ancestor, of both versions. */
#ifndef PINION_LIB_CGROUP_H
#define PINION_LIB_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CGROUP_FILE_MAX (2 * PATH_MAX + 64)

/* One group: its folder, and whether its files are those of version 2. Other than 0 ends the walk. */
typedef int (*cgroup_fn)(void *arg, const char *dir, bool is_v2);

/*
 * Calls @fn for this process's group in each mounted hierarchy that may have @controller ("memory", "cpu"), then for its
 * ancestors up to the mount point. Returns the first result of @fn that is not 0; -ENOMEM. What cannot be read is left out.
 */
int cgroup_each(const char *controller, cgroup_fn fn, void *arg);

/* The text of a file, cut to @room; false when it cannot be read. */
bool cgroup_read_text(const char *path, char *text, size_t room);

/* The number that a file begins with; false when there is none, as in "max". */
bool cgroup_read_number(const char *path, uint64_t *value);

/* The same of the file @name in the folder @dir. */
bool cgroup_number(const char *dir, const char *name, uint64_t *value);

#endif
