/* SPDX-License-Identifier: MIT */
/* hugetlb: Documentation/admin-guide/mm/hugetlbpage.rst of the kernel says what the files mean. */
#include "hugetlb.h"

#include "../advice.h"
#include "../error.h"
#include "../machine/cgroup.h"
#include "../machine/room.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef HUGETLBFS_MAGIC
#define HUGETLBFS_MAGIC 0x958458f6
#endif
#ifndef MFD_HUGE_SHIFT
#define MFD_HUGE_SHIFT 26
#endif

uint64_t hugetlb_page_of(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == HUGETLBFS_MAGIC ? fs.f_bsize : 0;
}

unsigned int hugetlb_memfd_flags(uint64_t size)
{
	return MFD_HUGETLB | (unsigned int)__builtin_ctzll(size) << MFD_HUGE_SHIFT;
}

/* "2 MiB", "1 GiB". */
static const char *size_name(uint64_t size, char text[32])
{
	if (size >> 30)
		snprintf(text, 32, "%llu GiB", (unsigned long long)(size >> 30));
	else
		snprintf(text, 32, "%llu MiB", (unsigned long long)(size >> 20));
	return text;
}

/* One pool in pages. */
struct pool {
	uint64_t all, free;
	uint64_t more; /* that the kernel may still add to it by itself */
};

static uint64_t figure(const char *dir, const char *name)
{
	uint64_t value = 0;

	cgroup_number(dir, name, &value);
	return value;
}

static struct pool read_pool(const char *dir)
{
	uint64_t reserved = figure(dir, "resv_hugepages"), over = figure(dir, "nr_overcommit_hugepages"),
		 surplus = figure(dir, "surplus_hugepages");
	struct pool pool = { .all = figure(dir, "nr_hugepages"), .free = figure(dir, "free_hugepages") };

	pool.free = pool.free > reserved ? pool.free - reserved : 0;
	pool.more = over > surplus ? over - surplus : 0;
	return pool;
}

/* As root the line to type makes the pool so much larger as is missing. */
static int is_short(uint64_t need, uint64_t size, const struct pool *pool, const char *dir)
{
	uint64_t have = pool->free + pool->more;
	char text[32], pages[PATH_MAX + 48];

	snprintf(pages, sizeof(pages), "%llu > %s/nr_hugepages", (unsigned long long)(pool->all + need - have), dir);
	return fail_advise(pool->all || pool->more ? ENOMEM : EOPNOTSUPP, PINION_ADVICE_HUGE_NONE, pages,
			   "the buffer needs %llu huge pages of %s, %llu of %llu in the pool are free", (unsigned long long)need,
			   size_name(size, text), (unsigned long long)have, (unsigned long long)pool->all);
}

/*
 * Pages that were pinned by a ring come back some time after it was closed, from a work queue. So what could be had of a pool
 * this large is waited for a little.
 */
#define TRIES	 40
#define PAUSE_US 5000

static int check_pool(uint64_t need, uint64_t size, const char *dir)
{
	struct pool pool = read_pool(dir);

	for (unsigned int i = 0; i < TRIES && need > pool.free + pool.more && need <= pool.all + pool.more; i++) {
		usleep(PAUSE_US);
		pool = read_pool(dir);
	}
	return need > pool.free + pool.more ? is_short(need, size, &pool, dir) : 0;
}

/* The pool of @node. */
static int check_node(uint64_t need, uint64_t size, int node)
{
	char dir[128];

	snprintf(dir, sizeof(dir), "/sys/devices/system/node/node%d/hugepages/hugepages-%llukB", node,
		 (unsigned long long)size / 1024);
	return check_pool(need, size, dir);
}

int hugetlb_check(uint64_t bytes, uint64_t size, int node)
{
	char dir[128], text[32];
	int ret;

	snprintf(dir, sizeof(dir), "/sys/kernel/mm/hugepages/hugepages-%llukB", (unsigned long long)size / 1024);
	if (access("/sys/kernel/mm", X_OK))
		return 0; /* not shown here: who takes them will see */
	if (access(dir, X_OK))
		return fail(EOPNOTSUPP, "this kernel and CPU have no pool of huge pages of %s", size_name(size, text));
	ret = check_pool(bytes / size, size, dir);
	if (!ret && node >= 0)
		ret = check_node(bytes / size, size, node);
	return ret ? ret : room_check_pool(bytes, size, false, "the buffer");
}

int hugetlb_check_reserved(uint64_t bytes, uint64_t size, int node)
{
	int ret = room_check_pool(bytes, size, true, "what is missing of the buffer");

	return ret || node < 0 ? ret : check_node(bytes / size, size, node);
}
