/* SPDX-License-Identifier: MIT */
/* mmapped: a part of a read-only mapping of a file. Any number of storages have the mapping together. */
#include "../error.h"
#include "storage.h"
#include "storage_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct pinion_mapping {
	uint32_t refs;
	uint64_t bytes;
	char *addr;  /* NULL when the file is empty */
	char path[]; /* "" when it was made of a descriptor */
};

struct mmapped {
	struct pinion_storage st;
	struct pinion_mapping *map;
	uint64_t offset;
};

/* ---- the mapping ------------------------------------------------------------------------------------------------- */

static int map_file(int fd, struct pinion_mapping *map)
{
	struct stat st;
	int ret;

	if (fstat(fd, &st))
		return fail_errno(errno, "looking at it");
	ret = file_check_kind(&st);
	if (ret || !st.st_size)
		return ret;
	map->addr = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map->addr == MAP_FAILED)
		return fail_errno(errno, "mapping its %lld bytes", (long long)st.st_size);
	map->bytes = st.st_size;
	return 0;
}

static int map_new(int fd, const char *path, struct pinion_mapping **out)
{
	size_t len = strlen(path) + 1;
	struct pinion_mapping *map = calloc(1, sizeof(*map) + len);
	int ret;

	if (!map)
		return fail(ENOMEM, "no memory for a mapping object");
	map->refs = 1;
	memcpy(map->path, path, len);
	ret = map_file(fd, map);
	if (ret)
		free(map);
	else
		*out = map;
	return ret;
}

PINION_API int pinion_mapping_open(const char *path, struct pinion_mapping **out)
{
	/* Without O_NONBLOCK the open of a FIFO would wait for a writer. */
	int ret, fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		return fail_errno(errno, "opening %s", file_shown(path));
	ret = map_new(fd, path, out);
	close(fd);
	return ret ? fail(-ret, "%s: %s", file_shown(path), pinion_error()) : 0;
}

PINION_API int pinion_mapping_open_fd(int fd, struct pinion_mapping **out)
{
	int ret = map_new(fd, "", out);

	return ret ? fail(-ret, "descriptor %d: %s", fd, pinion_error()) : 0;
}

PINION_API struct pinion_mapping *pinion_mapping_ref(struct pinion_mapping *map)
{
	__atomic_add_fetch(&map->refs, 1, __ATOMIC_RELAXED);
	return map;
}

PINION_API void pinion_mapping_unref(struct pinion_mapping *map)
{
	if (!map || __atomic_sub_fetch(&map->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (map->addr)
		munmap(map->addr, map->bytes);
	free(map);
}

PINION_API uint64_t pinion_mapping_bytes(const struct pinion_mapping *map)
{
	assert(map);
	return map->bytes;
}

/* ---- the storage ------------------------------------------------------------------------------------------------- */

static void mmapped_close(struct pinion_storage *st)
{
	struct mmapped *part = (struct mmapped *)st;

	pinion_mapping_unref(part->map);
	free(part);
}

static void mmapped_where(const struct pinion_storage *st, char text[STORAGE_WHERE_TEXT])
{
	const struct mmapped *part = (const struct mmapped *)st;

	snprintf(text, STORAGE_WHERE_TEXT, ", at byte %" PRIu64 " of %" PRIu64 " of %s", part->offset, part->map->bytes,
		 *part->map->path ? part->map->path : "a descriptor's file");
}

static const struct storage_ops mmapped_ops = {
	.name = "mmapped",
	.close = mmapped_close,
	.where = mmapped_where,
};

PINION_API int pinion_storage_mmapped(struct pinion_mapping *map, enum pinion_dtype dtype, uint64_t offset, uint64_t n,
				      struct pinion_storage **out)
{
	struct storage_layout layout;
	struct mmapped *part;
	int ret;

	assert(map);
	ret = storage_window(&layout, dtype, offset, n, map->bytes);
	if (ret)
		return ret;
	part = calloc(1, sizeof(*part));
	if (!part)
		return fail(ENOMEM, "no memory for a storage object");
	part->map = pinion_mapping_ref(map);
	part->offset = offset;
	storage_init(&part->st, &mmapped_ops, PINION_STORAGE_MMAPPED, &layout, PINION_READ,
		     map->addr ? map->addr + offset : NULL);
	*out = &part->st;
	return 0;
}
