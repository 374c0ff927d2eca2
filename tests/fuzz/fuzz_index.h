/* SPDX-License-Identifier: MIT */
/* What both parsers' fuzz targets do with bytes: a file of them, parsed, built, and if that went well used in full. */
#ifndef PINION_FUZZ_INDEX_H
#define PINION_FUZZ_INDEX_H

#include "fuzz.h"
#include "model/index.h"

#include <pinion/type.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* One file for all runs; making one each time is most of a run's time. */
static int fuzz_file(const uint8_t *data, size_t bytes)
{
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	EXPECT(fd >= 0);
	EXPECT(ftruncate(fd, 0) == 0);
	EXPECT(pwrite(fd, data, bytes, 0) == (ssize_t)bytes);
	return fd;
}

static void fuzz_use(const struct index_block *block)
{
	struct pinion_index_info info;
	struct pinion_tensor t;
	uint64_t bytes = 0;

	index_describe_file(block, &info);
	EXPECT(strlen(info.architecture) <= INDEX_LABEL_MAX && strlen(info.name) <= INDEX_LABEL_MAX);
	for (uint64_t i = 0; i < info.tensors; i++) {
		index_describe(block, i, &t);
		EXPECT(pinion_type_info(t.type));
		EXPECT(strlen(t.name) <= INDEX_NAME_MAX);
		EXPECT(t.file_offset <= info.file_bytes && t.bytes <= info.file_bytes - t.file_offset);
		EXPECT(t.offset <= info.buffer_bytes && t.bytes <= info.buffer_bytes - t.offset);
		EXPECT(index_find(block, t.name) == (int64_t)i);
		bytes += t.bytes;
	}
	EXPECT(bytes == info.tensor_bytes && bytes <= info.file_bytes);
}

static inline int fuzz_index(const uint8_t *data, size_t bytes, int (*parse)(int fd, struct index_builder *b))
{
	struct index_builder b = {.file_bytes = bytes};
	struct index_block *block;
	int ret = parse(fuzz_file(data, bytes), &b);

	if (!ret)
		ret = index_build(&b, 1, &block);
	builder_free(&b);
	if (ret)
		return 0;
	EXPECT(index_check(block, block->bytes) == 0);
	fuzz_use(block);
	free(block);
	return 0;
}

#endif
