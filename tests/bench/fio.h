/* SPDX-License-Identifier: MIT */
/* fio: the reading that a load is compared with, by io_uring past the page cache, four requests of 4 MiB at a time. */
#ifndef PINION_BENCH_FIO_H
#define PINION_BENCH_FIO_H

#include <stdbool.h>

#include "bench.h"
#include "model_file.h"

struct fio {
	const struct model_file *file;
	const char *log; /* where fio writes what it found */
	bool huge;	 /* memory of fio's own from the pool of huge pages */
};

bool fio_here(void);

/* Sees that the pool has huge pages for a run; false when it has not and cannot be given them. */
bool fio_pool(void);

/* A way: nanoseconds for a GiB. */
int fio_way(void *fio, struct sample *out);

#endif
