/* SPDX-License-Identifier: MIT */
#include "node.h"

#include "../advice.h"
#include "../error.h"

#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_PAGES 4096 /* in one call */

/* A kernel without NUMA has all of its memory on what would be node 0. */
static bool kernel_has_nodes(void)
{
	return numa_available() >= 0;
}

/* "0, 2": those with memory. */
static void name_nodes(char *text, size_t room)
{
	size_t n = 0;

	*text = 0;
	for (int i = 0; i <= numa_max_node() && n < room; i++)
		if (numa_node_size64(i, NULL) > 0)
			n += snprintf(text + n, room - n, "%s%d", n ? ", " : "", i);
}

int node_check(unsigned int node)
{
	struct bitmask *allowed;
	char names[128];
	bool may;

	if (!kernel_has_nodes())
		return node ? fail(EINVAL, "there is no NUMA node %u: this kernel has one node, 0", node) : 0;
	if (node > (unsigned int)numa_max_node() || numa_node_size64(node, NULL) <= 0) {
		name_nodes(names, sizeof(names));
		return fail(EINVAL, "there is no NUMA node %u with memory; those with memory are: %s", node, names);
	}
	allowed = numa_get_mems_allowed();
	may = !allowed || numa_bitmask_isbitset(allowed, node);
	if (allowed)
		numa_bitmask_free(allowed);
	return may ? 0 : fail(EINVAL, "NUMA node %u is not one that this process's cpuset allows (cpuset.mems)", node);
}

/* A line of the node's meminfo, "Node 0 MemFree: 1234 kB", in bytes. */
static uint64_t meminfo(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

int node_room_check(uint64_t need, unsigned int node)
{
	char path[96], text[8192];
	uint64_t have;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
	f = fopen(path, "re");
	if (!f)
		return 0;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	have = meminfo(text, " MemFree:") + meminfo(text, " Active(file):") + meminfo(text, " Inactive(file):") +
	       meminfo(text, " SReclaimable:") / 2;
	if (need > have)
		return fail_advise(ENOMEM, PINION_ADVICE_MEMORY, NULL,
				   "the buffer needs %llu bytes of NUMA node %u, of which %llu can be had (%s)",
				   (unsigned long long)need, node, (unsigned long long)have, path);
	return 0;
}

int node_bind(void *addr, uint64_t bytes, enum pinion_numa numa, unsigned int node)
{
	struct bitmask *mask;
	long ret;

	if (!kernel_has_nodes())
		return 0;
	mask = numa_allocate_nodemask();
	if (!mask)
		return fail(ENOMEM, "no memory for a mask of NUMA nodes");
	numa_bitmask_setbit(mask, node);
	ret = mbind(addr, bytes, numa == PINION_NUMA_STRICT ? MPOL_BIND : MPOL_PREFERRED, mask->maskp, mask->size + 1, 0);
	numa_bitmask_free(mask);
	return ret ? fail_errno(errno, "asking for memory of NUMA node %u (mbind)", node) : 0;
}

int node_count(void *addr, uint64_t bytes, uint64_t page, unsigned int node, uint64_t *on_node)
{
	uint64_t n = bytes / page, on = 0;
	void **at;
	int *status;
	int ret = 0;

	if (!kernel_has_nodes()) {
		*on_node = bytes;
		return 0;
	}
	at = calloc(ASK_PAGES, sizeof(*at) + sizeof(*status));
	if (!at)
		return fail(ENOMEM, "no memory to ask where pages are");
	status = (int *)(at + ASK_PAGES);
	for (uint64_t i = 0; i < n && !ret; i += ASK_PAGES) {
		uint64_t part = n - i < ASK_PAGES ? n - i : ASK_PAGES;

		for (uint64_t k = 0; k < part; k++)
			at[k] = (char *)addr + (i + k) * page;
		if (move_pages(0, part, at, NULL, status, 0))
			ret = fail_errno(errno, "asking on which NUMA node pages are (move_pages)");
		for (uint64_t k = 0; k < part; k++)
			on += status[k] == (int)node ? page : 0;
	}
	free(at);
	if (!ret)
		*on_node = on;
	return ret;
}
