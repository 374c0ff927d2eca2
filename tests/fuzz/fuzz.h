/* SPDX-License-Identifier: MIT */
/* What the fuzz targets share. */
#ifndef PINION_FUZZ_H
#define PINION_FUZZ_H

#include <fcntl.h>
#include <pinion/context.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)         \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* What is left of an input. */
struct fuzz_input {
	const uint8_t *data;
	size_t size;
};

/* The next @bytes, zeros where the input is at its end; how many there were. */
static inline size_t fuzz_take(struct fuzz_input *in, void *out, size_t bytes)
{
	size_t n = bytes < in->size ? bytes : in->size;

	memset(out, 0, bytes);
	memcpy(out, in->data, n);
	in->data += n;
	in->size -= n;
	return n;
}

/* An error is one of the kernel's numbers with a sentence. */
static inline int fuzz_said(int ret)
{
	EXPECT(ret <= 0 && ret > -4096);
	EXPECT(!ret || *pinion_error());
	return ret;
}

/* An input leaves as many descriptors as there were. All that are open here have low numbers. */
static inline unsigned int fuzz_open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* The runtime directory is the one that run.sh made, or a new one; the ground is the memfd's. */
static inline void fuzz_place(void)
{
	static char dir[] = "/tmp/pinion-fuzz-XXXXXX";

	EXPECT(getenv("PINION_DIR") || (mkdtemp(dir) && !setenv("PINION_DIR", dir, 1)));
	EXPECT(!setenv("PINION_GROUND", "memfd", 1));
}

static inline void fuzz_save(const char *dir, const char *name, const void *data, size_t bytes)
{
	char path[4096];
	FILE *f;

	EXPECT(snprintf(path, sizeof(path), "%s/%s", dir, name) < (int)sizeof(path));
	f = fopen(path, "w");
	EXPECT(f && fwrite(data, 1, bytes, f) == bytes && !fclose(f));
}

#endif
