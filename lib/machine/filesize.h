/* SPDX-License-Identifier: MIT */
/* filesize: what RLIMIT_FSIZE lets a file be, memory files too. */
#ifndef PINION_LIB_FILESIZE_H
#define PINION_LIB_FILESIZE_H

#include <stdint.h>

/*
 * Whether @what may have a file of @bytes: 0; -EFBIG, with a sentence. To be asked before a file of the library's grows: the kernel's
 * answer to one that is too large is SIGXFSZ, which ends a program that did not ask for that.
 */
int filesize_check(const char *what, uint64_t bytes);

#endif
