/* SPDX-License-Identifier: MIT */
#include "pages.h"

#include "bench.h"

#include <stdio.h>
#include <string.h>

#define SMALL 4096

bool pages_huge(struct pinion_context *ctx)
{
	struct pinion_context_info info = { .size = sizeof(info) };

	return !pinion_context_info(ctx, &info) && info.huge_size;
}

void pages_text(char text[PAGES_TEXT], uint64_t bytes, uint64_t huge_bytes)
{
	if (!huge_bytes)
		snprintf(text, PAGES_TEXT, "4 KiB");
	else if (huge_bytes >= bytes)
		snprintf(text, PAGES_TEXT, "2 MiB");
	else
		snprintf(text, PAGES_TEXT, "2 MiB %u %%", (unsigned int)(100.0 * huge_bytes / bytes));
}

void pages_of_buffer(char text[PAGES_TEXT], struct pinion_buffer *buf)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };

	if (pinion_buffer_info(buf, &info))
		snprintf(text, PAGES_TEXT, "?");
	else
		pages_text(text, info.bytes, info.huge_bytes);
}

void pages_of_mapping(char text[PAGES_TEXT], const void *addr, uint64_t bytes)
{
	uint64_t huge = 0, kib, from, to;
	bool here = false;
	char line[512];
	FILE *f = fopen("/proc/self/smaps", "re");

	/* Neighbours that look alike are merged into one entry, so it need not begin at @addr. */
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", (unsigned long *)&from, (unsigned long *)&to) == 2)
			here = from <= (uintptr_t)addr && (uintptr_t)addr < to;
		else if (here && (sscanf(line, "AnonHugePages: %lu kB", (unsigned long *)&kib) == 1 ||
				  sscanf(line, "ShmemPmdMapped: %lu kB", (unsigned long *)&kib) == 1))
			huge += kib * 1024;
	}
	if (f)
		fclose(f);
	pages_text(text, bytes, huge);
}

void pages_touch(const void *addr, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += SMALL)
		(void)*((const volatile char *)addr + i);
}

int touched_open(struct pinion_context *ctx, uint64_t bytes, struct touched *out)
{
	void *addr;
	int ret = pinion_buffer_alloc(ctx, bytes, NULL, &out->buf);

	if (ret)
		return broke_pinion(ret, "a buffer for the baseline");
	ret = pinion_buffer_map(out->buf, PINION_READ | PINION_WRITE, &addr);
	if (ret) {
		pinion_buffer_unref(out->buf);
		return broke_pinion(ret, "mapping the baseline's buffer");
	}
	out->addr = addr;
	out->bytes = bytes;
	return 0;
}

void touched_close(struct touched *t)
{
	pinion_buffer_unref(t->buf);
	memset(t, 0, sizeof(*t));
}
