/* SPDX-License-Identifier: MIT */
#include "share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int share_read(pid_t pid, struct share *out)
{
	char path[64], line[4096];
	bool is_model = false;
	uint64_t start, end, kib;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	if (!f)
		return -errno;
	*out = (struct share){ 0 };
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &start, &end) == 2)
			is_model = strstr(line, "/memfd:pinion-model") != NULL;
		else if (is_model && sscanf(line, "Rss: %" SCNu64, &kib) == 1)
			out->rss += kib * 1024;
		else if (is_model && sscanf(line, "Pss: %" SCNu64, &kib) == 1)
			out->pss += kib * 1024;
	}
	fclose(f);
	return 0;
}
