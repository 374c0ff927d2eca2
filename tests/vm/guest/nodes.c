// SPDX-License-Identifier: MIT
/*
 * Placement, on a machine whose node 0 has memory and a processor, node 1 a processor alone and node 2 memory alone: a strict
 * request is met on its node or refused, a preferred one goes on elsewhere, and what is placed stays. "nodes fake": the kernel
 * made nodes 0 and 1 of the memory of one.
 */
#define _GNU_SOURCE
#include "mem.h"
#include "state.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define GROUP "/sys/fs/cgroup/nodes"
#define SCAN  "/sys/kernel/debug/sched/numa_balancing/"
#define NEAR  0
#define BYTES (8 * MIB)
#define SEED  31

static int dev;
static int bare = 1; /* no memory */
static int far = 2;  /* no processor */

static int alloc_on(uint64_t bytes, int node, uint32_t flags)
{
	struct pinion_alloc a = { .size = sizeof(a), .bytes = bytes, .flags = flags, .node = node, .name = "node" };
	int ret = dev_call(dev, PINION_IOC_ALLOC, &a);

	return ret ? ret : a.fd;
}

/* Bytes of a buffer on a node, as BUFINFO says. */
static uint64_t bytes_on(int fd, unsigned int node)
{
	uint64_t nodes[64] = { 0 };
	struct pinion_bufinfo info = {
		.size = sizeof(info), .fd = fd, .nr_nodes = 64, .nodes = (uintptr_t)nodes, .node_size = 8
	};

	expect(dev_call(dev, PINION_IOC_BUFINFO, &info), 0, "BUFINFO");
	return nodes[node];
}

/* Pages of a mapping on a node, as the kernel counts them: of the mapping's own page size. */
static uint64_t mapped_on(const void *map, unsigned int node)
{
	char *text = file_get("/proc/self/numa_maps"), key[32], *line, *at;
	unsigned long pages = 0, kib = 4;

	snprintf(key, sizeof(key), "%lx ", (unsigned long)map);
	line = strstr(text, key);
	if (line && strchr(line, '\n'))
		*strchr(line, '\n') = 0;
	snprintf(key, sizeof(key), " N%u=", node);
	at = line ? strstr(line, key) : NULL;
	if (at)
		pages = strtoul(at + strlen(key), NULL, 10);
	at = line ? strstr(line, "kernelpagesize_kB=") : NULL;
	if (at)
		kib = strtoul(at + 18, NULL, 10);
	free(text);
	return pages * (kib << 10);
}

static uint64_t node_free(unsigned int node)
{
	char path[64], line[128];
	unsigned long long kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Node %*u MemFree: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib << 10;
}

static bool machine(bool fake)
{
	char *online = file_get("/sys/devices/system/node/online"), *memory = file_get("/sys/devices/system/node/has_memory");

	online[strcspn(online, "\n")] = memory[strcspn(memory, "\n")] = 0;
	if (fake) {
		far = 1;
		bare = 3;
	}
	if (strcmp(memory, fake ? "0-1" : "0,2"))
		wrong("nodes with memory: %s, online: %s", memory, online);
	free(online);
	free(memory);
	return point("the machine", "two nodes with memory");
}

static void try_strict(void)
{
	static const uint32_t flags[] = { 0, PINION_ALLOC_HUGE_NEVER, PINION_ALLOC_HUGE_REQUIRE };

	for (int node = NEAR; node <= far; node += far)
		for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
			int fd = alloc_on(BYTES, node, PINION_ALLOC_NODE_STRICT | flags[i]);
			char *map;

			if (!expect(fd, 0, "ALLOC on node %d with %x", node, flags[i]))
				continue;
			map = dev_map_aligned(fd, BYTES, PROT_READ | PROT_WRITE);
			mem_fill(map, BYTES, 0, SEED);
			if (bytes_on(fd, node) != BYTES || bytes_on(fd, far - node))
				wrong("BUFINFO: of node %d %llu bytes", node, (unsigned long long)bytes_on(fd, node));
			if (!mapped_on(map, node) || mapped_on(map, far - node))
				wrong("numa_maps: %llu bytes on node %d, %llu on the other",
				      (unsigned long long)mapped_on(map, node), node,
				      (unsigned long long)mapped_on(map, far - node));
			munmap(map, BYTES);
			close(fd);
		}
	point("a strict request", "is met on its node, also one without a processor");
}

static void try_refused(void)
{
	expect(alloc_on(BYTES, 7, 0), -EINVAL, "node 7");
	expect(alloc_on(BYTES, 7, PINION_ALLOC_NODE_STRICT), -EINVAL, "node 7, strict");
	expect(alloc_on(BYTES, 1 << 20, 0), -EINVAL, "node 2^20");
	expect(alloc_on(BYTES, -2, 0), -EINVAL, "node -2");
	expect(alloc_on(BYTES, INT32_MIN, 0), -EINVAL, "the smallest node");
	expect(alloc_on(BYTES, PINION_NODE_ANY, PINION_ALLOC_NODE_STRICT), -EINVAL, "any node, strict");
	expect(alloc_on(BYTES, bare, 0), -EINVAL, "a node without memory");
	expect(alloc_on(BYTES, bare, PINION_ALLOC_NODE_STRICT), -EINVAL, "a node without memory, strict");
	point("a node that is none, or has no memory", "is refused");
}

/* More than a node has, but not more than the machine has. */
static void try_short(void)
{
	uint64_t kills = mem_count("/proc/vmstat", "oom_kill"), bytes = (node_free(far) + 32 * MIB) / HUGE * HUGE;
	int fd;

	parameter_set("max_bytes", 1ULL << 40);
	parameter_set("max_user_bytes", 1ULL << 40);
	expect(alloc_on(bytes, far, PINION_ALLOC_NODE_STRICT), -ENOMEM, "ALLOC of %llu MiB, strict",
	       (unsigned long long)bytes >> 20);
	expect(alloc_on(bytes, far, PINION_ALLOC_NODE_STRICT | PINION_ALLOC_HUGE_NEVER), -ENOMEM, "the same of small pages");
	expect(alloc_on(bytes, far, PINION_ALLOC_NODE_STRICT | PINION_ALLOC_HUGE_REQUIRE), -ENOMEM, "the same of huge pages");
	fd = alloc_on(bytes, far, 0);
	if (expect(fd, 0, "ALLOC of %llu MiB, preferred", (unsigned long long)bytes >> 20)) {
		if (bytes_on(fd, far) < bytes / 2 || bytes_on(fd, NEAR) + bytes_on(fd, far) != bytes)
			wrong("%llu bytes on the near node, %llu on the far one", (unsigned long long)bytes_on(fd, NEAR),
			      (unsigned long long)bytes_on(fd, far));
		close(fd);
	}
	parameter_set("max_bytes", 0);
	parameter_set("max_user_bytes", 0);
	if (mem_count("/proc/vmstat", "oom_kill") != kills)
		wrong("somebody was killed");
	point("more than a node has", "is refused when strict, and goes on elsewhere when preferred");
}

/* Without a node, the caller's memory policy counts. */
static void try_policy(void)
{
	enum { DEFAULT = 0, BIND = 2 };
	unsigned long mask = 1UL << far;
	int fd;

	if (syscall(SYS_set_mempolicy, BIND, &mask, 64))
		wrong("set_mempolicy: %s", strerror(errno));
	fd = alloc_on(BYTES, PINION_NODE_ANY, 0);
	syscall(SYS_set_mempolicy, DEFAULT, NULL, 0);
	if (expect(fd, 0, "ALLOC") && bytes_on(fd, far) != BYTES)
		wrong("%llu bytes on the far node", (unsigned long long)bytes_on(fd, far));
	close(fd);
	point("any node", "follows the caller's memory policy");
}

static void try_cpuset(void)
{
	pid_t pid;

	if ((mkdir(GROUP, 0755) && errno != EEXIST) || file_put(GROUP "/cpuset.mems", "0")) {
		tap_skip("cpuset", "no cgroup v2 with the cpuset controller");
		return;
	}
	pid = fork();
	if (!pid) {
		int fd;

		if (file_put(GROUP "/cgroup.procs", "0"))
			_exit(2);
		if (alloc_on(BYTES, far, 0) != -EPERM || alloc_on(BYTES, far, PINION_ALLOC_NODE_STRICT) != -EPERM)
			_exit(3);
		fd = alloc_on(BYTES, PINION_NODE_ANY, 0);
		_exit(fd < 0 || bytes_on(fd, NEAR) != BYTES || alloc_on(BYTES, NEAR, PINION_ALLOC_NODE_STRICT) < 0 ? 4 : 0);
	}
	expect(-mem_wait(pid), 0, "the child in the cpuset");
	if (!eventually(!rmdir(GROUP)))
		wrong("rmdir: %s", strerror(errno));
	point("a node outside the cpuset", "is EPERM");
}

/* Reads @bytes at @map from a processor of node 0 for a while; how many entries the kernel took away to see who comes. */
static uint64_t taken_away(char *map, size_t bytes)
{
	uint64_t was = mem_count("/proc/vmstat", "numa_pte_updates");
	double began = mem_clock();
	volatile uint64_t sum = 0;

	while (mem_clock() - began < 8)
		for (size_t at = 0; at < bytes; at += PAGE)
			sum += *(volatile uint64_t *)(map + at);
	return mem_count("/proc/vmstat", "numa_pte_updates") - was;
}

static void try_balancing(void)
{
	enum { PREFERRED = 1, DEFAULT = 0 };
	const size_t bytes = 32 * MIB;
	unsigned long mask = 1UL << far;
	uint64_t ours, others;
	int fd;
	char *map;
	cpu_set_t cpu;

	if (file_put("/proc/sys/kernel/numa_balancing", "1")) {
		tap_skip("NUMA balancing", "a kernel without it");
		return;
	}
	file_put(SCAN "scan_delay_ms", "50");
	file_put(SCAN "scan_period_min_ms", "50");
	CPU_ZERO(&cpu);
	CPU_SET(0, &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	fd = alloc_on(bytes, far, PINION_ALLOC_NODE_STRICT | PINION_ALLOC_HUGE_NEVER);
	map = dev_map(fd, bytes, PROT_READ | PROT_WRITE);
	mem_fill(map, bytes, 0, SEED);
	ours = taken_away(map, bytes);
	if (bytes_on(fd, far) != bytes || mem_wrong(map, bytes, 0, SEED) >= 0)
		wrong("the pages or their bytes are not what they were");
	munmap(map, bytes);
	close(fd);
	syscall(SYS_set_mempolicy, PREFERRED, &mask, 64);
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(map, bytes, MADV_NOHUGEPAGE);
	mem_fill(map, bytes, 0, SEED);
	syscall(SYS_set_mempolicy, DEFAULT, NULL, 0);
	others = taken_away(map, bytes);
	munmap(map, bytes);
	file_put("/proc/sys/kernel/numa_balancing", "0");
	printf("# entries taken away: %llu of ours, %llu of anonymous memory\n", (unsigned long long)ours,
	       (unsigned long long)others);
	if (ours > bytes / PAGE / 4)
		wrong("%llu of %zu entries were taken away", (unsigned long long)ours, bytes / PAGE);
	point("NUMA balancing", "leaves the mapping alone");
}

int main(int argc, char **argv)
{
	struct pinion_info before, after;
	uint64_t was;

	dev = dev_open(O_RDWR);
	if (!tap_ok(dev >= 0 && !dev_info(dev, &before), "open", "%d", dev) || !machine(argc > 1 && !strcmp(argv[1], "fake")))
		return tap_end();
	was = mem_free();
	try_strict();
	try_refused();
	try_short();
	try_policy();
	try_cpuset();
	try_balancing();
	dev_info(dev, &after);
	if (after.bytes != before.bytes || after.buffers != before.buffers)
		wrong("%llu bytes and %llu buffers are left", after.bytes - before.bytes, after.buffers - before.buffers);
	if (!mem_free_again(was, 16 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("everything", "memory is back");
	close(dev);
	return tap_end();
}
