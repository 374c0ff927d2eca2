/* SPDX-License-Identifier: MIT */
/*
 * Failures of the kernel's own: with fault injection, the step number N of a thread that asks for memory or copies to or from
 * its process fails.
 */
#ifndef PINION_VM_FAIL_H
#define PINION_VM_FAIL_H

#include "state.h"

#define FAIL __attribute__((unused)) static

/* Allocations that may sleep fail too, pages of every size and kind, and the log is not told. */
FAIL void fail_prepare(void)
{
	static const char *const knobs[][2] = {
		{ "failslab/ignore-gfp-wait", "N" },	    { "failslab/verbose", "0" },
		{ "fail_page_alloc/ignore-gfp-wait", "N" }, { "fail_page_alloc/ignore-gfp-highmem", "N" },
		{ "fail_page_alloc/min-order", "0" },	    { "fail_page_alloc/verbose", "0" },
		{ "fail_usercopy/verbose", "0" },
	};
	char path[96];

	for (unsigned int i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		snprintf(path, sizeof(path), "/sys/kernel/debug/%s", knobs[i][0]);
		file_put(path, knobs[i][1]);
	}
}

/* The counter of the calling thread, or -errno: ENOENT without fault injection. */
FAIL int fail_open(void)
{
	int fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

FAIL bool fail_arm(int fd, unsigned int nth)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", nth);
	return pwrite(fd, text, strlen(text), 0) > 0;
}

/* Ends it. How many steps were still to come: 0 when one failed. */
FAIL unsigned int fail_end(int fd)
{
	char text[16] = "1";

	/* To read and to write are steps themselves; what fails then is not what was tried. */
	if (pread(fd, text, sizeof(text) - 1, 0) < 0)
		text[0] = '1';
	while (pwrite(fd, "0", 1, 0) < 0 && (errno == EINTR || errno == EFAULT))
		;
	return strtoul(text, NULL, 10);
}

#endif
