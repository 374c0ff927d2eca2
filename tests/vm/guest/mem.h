/* SPDX-License-Identifier: MIT */
/* What the kernel shows of memory, and bytes that can be known again. */
#ifndef PINION_VM_MEM_H
#define PINION_VM_MEM_H

#include "dev.h"
#include "until.h"

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#define MEM __attribute__((unused)) static
#define MIB (1UL << 20)

/* A field of a file of "name: value kB" lines, in bytes; 0 when it is not there. */
MEM uint64_t mem_field(const char *path, const char *name)
{
	char line[256];
	FILE *f = fopen(path, "re");
	unsigned long long value = 0;
	size_t len = strlen(name);

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ':') {
			sscanf(line + len + 1, "%llu", &value);
			break;
		}
	if (f)
		fclose(f);
	return value << 10;
}

MEM uint64_t mem_info(const char *name)
{
	return mem_field("/proc/meminfo", name);
}

/* Pages of hugetlb that nobody has. */
MEM uint64_t mem_huge_free(void)
{
	return mem_info("HugePages_Free") >> 10;
}

/* A number in a file that names it, as vmstat and a cgroup's events do; all ones when it is not there. */
MEM uint64_t mem_count(const char *path, const char *name)
{
	char word[64];
	unsigned long long value, found = ~0ULL;
	FILE *f = fopen(path, "re");

	while (f && found == ~0ULL && fscanf(f, "%63s %llu", word, &value) == 2)
		if (!strcmp(word, name))
			found = value;
	if (f)
		fclose(f);
	return found;
}

MEM void mem_sleep(unsigned long us)
{
	struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

MEM double mem_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* Pages that are free and kept in lists of the CPUs. */
MEM uint64_t mem_cpu_lists(void)
{
	char line[128];
	unsigned long long n, pages = 0;
	FILE *f = fopen("/proc/zoneinfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, " count: %llu", &n) == 1)
			pages += n;
	if (f)
		fclose(f);
	return pages * PAGE;
}

/* Free memory, as if what the kernel keeps only because nobody wanted it were free too. */
MEM uint64_t mem_free(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	/* 4: without a line in the log. */
	if (fd >= 0 && (write(fd, "4", 1) < 0 || write(fd, "3", 1) < 0))
		perror("drop_caches");
	if (fd >= 0)
		close(fd);
	return mem_info("MemFree") + mem_cpu_lists();
}

/* What a kernel with KASAN keeps of what was freed, to see whether somebody still uses it. */
MEM uint64_t mem_quarantine(void)
{
	char line[128];
	bool found = false;
	FILE *f = fopen("/proc/kallsyms", "re");

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, " kasan_quarantine_put\n");
	if (f)
		fclose(f);
	return found ? mem_info("MemTotal") / 32 : 0;
}

/* Work that is put off gives memory back late: waits until as much is free as was, but for @slack. */
MEM bool mem_free_again(uint64_t was, uint64_t slack)
{
	slack += mem_quarantine();
	return eventually(mem_free() + slack >= was);
}

/* Waits until no more than @bytes and @buffers are in use. A socket's garbage is collected by a worker. */
MEM bool mem_bytes_again(int dev, uint64_t bytes, uint64_t buffers)
{
	return eventually(dev_bytes(dev) == bytes && dev_buffers(dev) == buffers);
}

/* The frame behind an address that was touched; 0: none. For root. */
MEM uint64_t mem_pfn(const void *at)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0 || pread(fd, &entry, 8, (uintptr_t)at / PAGE * 8) != 8 || !(entry >> 63))
		entry = 0;
	if (fd >= 0)
		close(fd);
	return entry & ((1ULL << 55) - 1);
}

#define MEM_FRAME_BUDDY	 (1ULL << 10)
#define MEM_FRAME_POISON (1ULL << 19)

MEM uint64_t mem_frame_flags(uint64_t pfn)
{
	uint64_t flags = ~0ULL;
	int fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && pread(fd, &flags, 8, pfn * 8) != 8)
		flags = ~0ULL;
	if (fd >= 0)
		close(fd);
	return flags;
}

/* ---- bytes ---------------------------------------------------------------------------------------------------------- */

MEM uint64_t mem_word(uint64_t page, uint64_t seed)
{
	return (page + 1) * 0x9e3779b97f4a7c15ULL ^ seed * 0xff51afd7ed558ccdULL;
}

/* The first and the last word of every page; @first: the number of the page at @at. */
MEM void mem_fill(char *at, size_t bytes, uint64_t first, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i += PAGE) {
		*(volatile uint64_t *)(at + i) = mem_word(first + i / PAGE, seed);
		*(volatile uint64_t *)(at + i + PAGE - 8) = ~mem_word(first + i / PAGE, seed);
	}
}

/* The number of the first page that is not as it was filled, or -1. */
MEM long mem_wrong(const char *at, size_t bytes, uint64_t first, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i += PAGE)
		if (*(volatile const uint64_t *)(at + i) != mem_word(first + i / PAGE, seed) ||
		    *(volatile const uint64_t *)(at + i + PAGE - 8) != ~mem_word(first + i / PAGE, seed))
			return first + i / PAGE;
	return -1;
}

/* ---- faults --------------------------------------------------------------------------------------------------------- */

static sigjmp_buf mem_back;
static siginfo_t mem_signal;

static void mem_caught(int sig, siginfo_t *info, void *context)
{
	(void)context;
	mem_signal = *info;
	siglongjmp(mem_back, sig);
}

/* Reads, or writes what is there again: 0, or the signal that it gives, with what came along in mem_signal. */
MEM int mem_touch(volatile char *at, bool write)
{
	struct sigaction act = { .sa_sigaction = mem_caught, .sa_flags = SA_SIGINFO }, bus, segv;
	int sig;

	sigaction(SIGBUS, &act, &bus);
	sigaction(SIGSEGV, &act, &segv);
	sig = sigsetjmp(mem_back, 1);
	if (!sig) {
		char byte = *at;

		if (write)
			*at = byte;
	}
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return sig;
}

/* Waits for a child: its exit status, or -signal. */
MEM int mem_wait(pid_t pid)
{
	int status = 0;

	if (waitpid(pid, &status, 0) != pid)
		return -1000;
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

#endif
