/* SPDX-License-Identifier: MIT */
/* Memory in shreds: what a machine looks like that has run for long. */
#ifndef PINION_VM_SHRED_H
#define PINION_VM_SHRED_H

#include "bytes.h"

#include <sys/resource.h>

#define SHRED __attribute__((unused)) static

/*
 * Free memory that has no huge page left: all of it populated, a page in each 256 KiB pinned, the rest given back. What
 * compaction could move is not there any more.
 */
#define SHRED_STEP (64 * PAGE)

static struct {
	char *at;
	size_t bytes;
	int *pin;
	size_t pins;
} shreds;

/* @spare: so much is left alone. */
SHRED void shred(int dev, uint64_t spare)
{
	struct rlimit files = { 8192, 8192 };
	uint64_t have = meminfo("MemAvailable");

	setrlimit(RLIMIT_NOFILE, &files);
	shreds.bytes = have > spare + (32UL << 20) ? (have - spare) & ~(HUGE - 1) : 0;
	shreds.at = mmap(NULL, shreds.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	madvise(shreds.at, shreds.bytes, MADV_NOHUGEPAGE);
	shreds.pin = calloc(shreds.bytes / SHRED_STEP, sizeof(*shreds.pin));
	if (madvise(shreds.at, shreds.bytes, MADV_POPULATE_WRITE))
		wrong("populating %zu bytes: %s", shreds.bytes, strerror(errno));
	for (size_t at = 0; at < shreds.bytes && !*state_wrong; at += SHRED_STEP) {
		int fd = dev_pin(dev, shreds.at + at, PAGE);

		if (expect(fd, 0, "PIN at %zu of %zu", at, shreds.bytes))
			shreds.pin[shreds.pins++] = fd;
	}
	munmap(shreds.at, shreds.bytes);
}

SHRED void unshred(void)
{
	while (shreds.pins)
		close(shreds.pin[--shreds.pins]);
	free(shreds.pin);
}

#endif
