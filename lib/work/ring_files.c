/* SPDX-License-Identifier: MIT */
#include "ring_files.h"

#include "../machine/ring.h"

#include <stdbool.h>

/* From so many requests on a place in the table is worth the two calls that it costs. */
#define REQUESTS_PAY 8

void ring_files_open(struct ring_files *t, int ring_fd)
{
	*t = (struct ring_files){ .fd = ring_fd };
	pthread_mutex_init(&t->lock, NULL);
}

void ring_files_close(struct ring_files *t)
{
	pthread_mutex_destroy(&t->lock);
}

/* Under lock. */
static bool has_table(struct ring_files *t)
{
	if (!t->state)
		t->state = ring_files_make(t->fd, RING_FILES) ? -1 : 1;
	return t->state > 0;
}

/* Under lock. */
static void take_place(struct ring_files *t, struct ring_file *file, int fd)
{
	uint32_t slot = __builtin_ffs(~t->taken) - 1;

	if (!has_table(t) || t->taken == UINT32_MAX || ring_files_set(t->fd, slot, fd))
		return;
	t->taken |= UINT32_C(1) << slot;
	file->slot = slot;
	file->table = t;
}

int ring_files_find(struct ring_files *t, struct ring_file *file, int fd)
{
	if (file->table)
		return file->slot;
	/* Where there is no place it is asked for again after as many requests. */
	if (++file->requests % REQUESTS_PAY)
		return -1;
	pthread_mutex_lock(&t->lock);
	take_place(t, file, fd);
	pthread_mutex_unlock(&t->lock);
	return file->table ? (int)file->slot : -1;
}

void ring_files_leave(struct ring_file *file)
{
	struct ring_files *t = file->table;

	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	/* A place that the kernel does not empty is not filled again either: it goes with the ring. */
	if (!ring_files_set(t->fd, file->slot, -1))
		t->taken &= ~(UINT32_C(1) << file->slot);
	pthread_mutex_unlock(&t->lock);
	file->table = NULL;
}
