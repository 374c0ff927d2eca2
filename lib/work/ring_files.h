/* SPDX-License-Identifier: MIT */
/*
 * ring_files: the table of registered files of a stream's ring, which spares each request the look-up and the count of a
 * descriptor. A file in it is one that the stream opened or duplicated for itself (file.h), never a number of the caller's:
 * a number that is closed and used again means another file to the caller, and must to the stream.
 */
#ifndef PINION_LIB_RING_FILES_H
#define PINION_LIB_RING_FILES_H

#include <pthread.h>
#include <stdint.h>

#define RING_FILES 32

struct ring_files {
	int fd;		      /* the ring's */
	pthread_mutex_t lock; /* what follows */
	uint32_t taken;	      /* a bit for each slot */
	int state;	      /* 0: no table yet; 1: there is one; -1: none is to be had */
};

/* A descriptor's place in a ring's table. */
struct ring_file {
	struct ring_files *table; /* NULL: none yet */
	uint32_t requests;	  /* on it so far, until it has one */
	uint32_t slot;
};

void ring_files_open(struct ring_files *t, int ring_fd);
void ring_files_close(struct ring_files *t);

/*
 * Where @fd, of which this is the place, is in the table; -1: requests must name it by its number. On the stream's thread.
 */
int ring_files_find(struct ring_files *t, struct ring_file *file, int fd);

/* Before the descriptor is closed, with no request on it in flight; the ring must still be there. Any thread. */
void ring_files_leave(struct ring_file *file);

#endif
