/* SPDX-License-Identifier: MIT */
/* fio: what the tool of that name reads a file with, for comparison, where it is installed. */
#ifndef PINION_DEMO_FIO_H
#define PINION_DEMO_FIO_H

#include <stdbool.h>
#include <stdint.h>

#include "figure.h"

/* Reads @path past the page cache (@direct) or through it and adds the figure; false with @f->note when it cannot. */
bool fio_read(const char *path, bool direct, struct figure *f);

#endif
