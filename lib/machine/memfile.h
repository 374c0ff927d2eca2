/* SPDX-License-Identifier: MIT */
/* memfile: files in memory that have no name and are never executed. */
#ifndef PINION_LIB_MEMFILE_H
#define PINION_LIB_MEMFILE_H

/*
 * memfd_create() with close-on-exec, sealable, and with @flags, of a file that nobody can make executable, as sysctl
 * vm.memfd_noexec=2 wants it; a kernel before 6.3, which does not know such files, makes one as any. -errno without a sentence.
 */
int memfile_create(const char *name, unsigned int flags);

#endif
