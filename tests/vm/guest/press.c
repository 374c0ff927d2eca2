// SPDX-License-Identifier: MIT
/*
 * Memory that is short: a cgroup at its limit, a machine that is full, death in the middle. What cannot be had is refused with
 * ENOMEM while the caller and everybody else lives on, and what is dropped comes back, wiped where that was asked for.
 */
#define _GNU_SOURCE
#include "mem.h"
#include "state.h"

#include <elf.h>
#include <linux/loop.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/uio.h>

#define ROOT_GROUP   "/sys/fs/cgroup"
#define GROUP	     ROOT_GROUP "/press"
#define SEED	     23
#define KILLS	     1000
#define KILL_SECONDS 60

static int dev;
static uint64_t base_bytes, base_buffers;

static void gone(const char *after)
{
	if (!mem_bytes_again(dev, base_bytes, base_buffers))
		wrong("after %s %llu bytes and %llu buffers are left", after, (unsigned long long)(dev_bytes(dev) - base_bytes),
		      (unsigned long long)(dev_buffers(dev) - base_buffers));
}

static uint64_t oom_kills(void)
{
	return mem_count("/proc/vmstat", "oom_kill");
}

/* ---- a cgroup ------------------------------------------------------------------------------------------------------ */

static bool group_make(const char *max)
{
	if (mkdir(GROUP, 0755) && errno != EEXIST)
		return false;
	return !file_put(GROUP "/memory.max", max);
}

/* The dead leave a cgroup a moment after they were waited for. */
static void group_drop(void)
{
	if (mem_count(GROUP "/memory.events", "oom_kill") != 0)
		wrong("the cgroup counts %llu kills", (unsigned long long)mem_count(GROUP "/memory.events", "oom_kill"));
	if (!eventually(!rmdir(GROUP)))
		wrong("rmdir: %s", strerror(errno));
	gone("the cgroup");
}

static uint64_t group_bytes(void)
{
	return file_number(GROUP "/memory.current");
}

/* A child inside the cgroup, and two pipes to it. */
struct inside {
	pid_t pid;
	int said, go;
};

static struct inside group_run(void (*body)(int say, int wait))
{
	int say[2], wait[2];
	struct inside in = { .pid = -1 };

	if (pipe2(say, O_CLOEXEC) || pipe2(wait, O_CLOEXEC))
		return in;
	in = (struct inside){ .pid = fork(), .said = say[0], .go = wait[1] };
	if (!in.pid) {
		close(in.said);
		close(in.go);
		if (file_put(GROUP "/cgroup.procs", "0"))
			_exit(99);
		body(say[1], wait[0]);
		if (*state_wrong)
			printf("# %s\n", state_wrong);
		fflush(stdout);
		_exit(*state_wrong != 0);
	}
	close(say[1]);
	close(wait[0]);
	return in;
}

/* The child's next word, 0 when it is dead. */
static char group_hear(const struct inside *in)
{
	char byte = 0;

	return read(in->said, &byte, 1) == 1 ? byte : 0;
}

static void tell(int say)
{
	if (write(say, "+", 1) != 1)
		_exit(98);
}

static void rest(int wait)
{
	char byte;

	if (read(wait, &byte, 1) < 0)
		_exit(97);
}

static void group_end(struct inside *in, const char *who)
{
	int status;

	close(in->go);
	close(in->said);
	status = mem_wait(in->pid);
	if (status)
		wrong("%s ended with %d", who, status);
}

/* Makes a buffer, shows every byte of it, and keeps it until told. */
static void body_32(int say, int wait)
{
	int fd;
	char *map;

	tell(say);
	rest(wait);
	fd = dev_alloc(dev, 32 * MIB, 0);
	if (!expect(fd, 0, "ALLOC of 32 MiB"))
		return;
	map = dev_map(fd, 32 * MIB, PROT_READ | PROT_WRITE);
	mem_fill(map, 32 * MIB, 0, SEED);
	tell(say);
	rest(wait);
	rest(wait);
}

static void try_charge(void)
{
	struct inside in;
	uint64_t before, with, after;

	if (!group_make("64M"))
		wrong("cgroup: %s", strerror(errno));
	in = group_run(body_32);
	group_hear(&in);
	before = group_bytes();
	if (write(in.go, "+", 1) != 1 || group_hear(&in) != '+')
		wrong("no buffer was made");
	with = group_bytes();
	/* Before, a processor may have had some of it in store. */
	if (with + MIB < before + 32 * MIB || with > before + 36 * MIB)
		wrong("memory.current was %llu and is %llu", (unsigned long long)before, (unsigned long long)with);
	kill(in.pid, SIGKILL);
	mem_wait(in.pid);
	gone("SIGKILL");
	if (!eventually((after = group_bytes()) <= before + MIB))
		wrong("memory.current was %llu and is %llu after SIGKILL", (unsigned long long)before, (unsigned long long)after);
	close(in.go);
	close(in.said);
	group_drop();
	point("memory cgroup", "32 MiB show, charged to who allocates and not to who opened; SIGKILL gives them back");
}

static void body_128(int say, int wait)
{
	(void)wait;
	expect(dev_alloc(dev, 128 * MIB, 0), -ENOMEM, "ALLOC of 128 MiB");
	expect(dev_alloc(dev, 128 * MIB, PINION_ALLOC_HUGE_REQUIRE), -ENOMEM, "ALLOC of 128 MiB, all huge");
	expect(dev_alloc(dev, 128 * MIB, PINION_ALLOC_HUGE_NEVER), -ENOMEM, "ALLOC of 128 MiB, none huge");
	if (dev_bytes(dev) != base_bytes)
		wrong("%llu bytes stay", (unsigned long long)(dev_bytes(dev) - base_bytes));
	/* Everything is as it was: what fits can still be had. */
	for (int i = 0; i < 3; i++) {
		int fd = dev_alloc(dev, 32 * MIB, 0);

		expect(fd, 0, "ALLOC of 32 MiB afterwards");
		close(fd);
	}
	tell(say);
}

static void body_shmem(int say, int wait)
{
	int fd = dev_alloc(dev, 128 * MIB, PINION_ALLOC_SHMEM);

	(void)wait;
	if (fd != -EOPNOTSUPP)
		expect(fd, -ENOMEM, "ALLOC of 128 MiB of SHMEM");
	tell(say);
}

/* @body in a cgroup of @max: it ends by itself, and nobody is killed. */
static void alone(const char *max, void (*body)(int say, int wait), const char *what)
{
	struct inside in;

	if (!group_make(max))
		wrong("cgroup: %s", strerror(errno));
	in = group_run(body);
	while (group_hear(&in))
		;
	group_end(&in, "the child");
	group_drop();
	point("memory cgroup", what);
}

/* The page cache that fills a cgroup makes way. */
static void body_cache(int say, int wait)
{
	char *room = malloc(MIB);
	int fd = open("/mnt/sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600), buffer;

	(void)wait;
	if (fd < 0 || ftruncate(fd, 100 * MIB))
		wrong("a sparse file: %s", strerror(errno));
	while (fd >= 0 && read(fd, room, MIB) > 0)
		;
	if (group_bytes() < 48 * MIB)
		wrong("the cache holds only %llu bytes", (unsigned long long)group_bytes());
	buffer = dev_alloc(dev, 48 * MIB, 0);
	expect(buffer, 0, "ALLOC of 48 MiB in a full cgroup");
	close(buffer);
	close(fd);
	unlink("/mnt/sparse");
	free(room);
	tell(say);
}

static void try_cache(void)
{
	if (system("mount -o loop -t ext4 /t/ext4.img /mnt 2>/dev/null")) {
		tap_skip("a cgroup full of page cache", "no file system to read from");
		return;
	}
	alone("64M", body_cache, "full of page cache: the buffer is had");
	expect(umount("/mnt") ? -errno : 0, 0, "umount");
}

/* The last byte of a cgroup: pages run out in one call, what is needed around them in another. */
static void until_full(uint64_t bytes, int most)
{
	int fd = 0, n = 0;

	while (n < most && (fd = dev_alloc(dev, bytes, 0)) >= 0)
		n++;
	/* What is said from here on must not need memory. */
	printf("# %d buffers of %llu bytes, then %d\n", n, (unsigned long long)bytes, fd);
	if (fd >= 0)
		wrong("%d buffers of %llu bytes fit into the cgroup", n, (unsigned long long)bytes);
	else
		expect(fd, -ENOMEM, "ALLOC of %llu bytes at the limit", (unsigned long long)bytes);
}

static void many_files(void)
{
	struct rlimit limit = { 16384, 16384 };

	setrlimit(RLIMIT_NOFILE, &limit);
	/* The table of descriptors grows by the kernel's own rules, which call the killer: before it is tight. */
	close(fcntl(0, F_DUPFD_CLOEXEC, 16000));
	/* So do the pages that a child writes to for the first time. */
	wrong(" ");
	*state_wrong = 0;
	printf("# filling a cgroup\n");
	fflush(stdout);
}

static void body_full(int say, int wait)
{
	(void)say;
	(void)wait;
	many_files();
	until_full(MIB, 64);
	until_full(16 * PAGE, 1024);
	until_full(PAGE, 8192);
	until_full(PAGE, 8192);
	close_range(3, ~0U, 0);
}

/* Hardly anything but what is needed around the pages. */
static void body_small(int say, int wait)
{
	(void)say;
	(void)wait;
	many_files();
	until_full(PAGE, 8192);
	close_range(3, ~0U, 0);
}

static void body_slices(int say, int wait)
{
	int fd, of, n = 0;

	(void)say;
	(void)wait;
	many_files();
	of = dev_alloc(dev, 2 * PAGE, 0);
	while (n < 12000 && (fd = dev_slice(dev, of, 0, PAGE, PINION_RIGHT_READ)) >= 0)
		n++;
	printf("# %d slices, then %d\n", n, fd);
	expect(fd, -ENOMEM, "SLICE at the limit");
	close_range(3, ~0U, 0);
}

/* Pages that are there need nothing but what is around them. */
static void body_pins(int say, int wait)
{
	char *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	int fd, n = 0;

	(void)say;
	(void)wait;
	many_files();
	while (n < 12000 && (fd = dev_pin(dev, map, PAGE)) >= 0)
		n++;
	printf("# %d pins, then %d\n", n, fd);
	expect(fd, -ENOMEM, "PIN at the limit");
	close_range(3, ~0U, 0);
}

/* A cgroup goes while what was charged to it stays, with its bytes and limits. The kernel frees the rest of it when it likes. */
static void try_group_gone(void)
{
	char *map;
	int fd;

	if (!group_make("max") || file_put(GROUP "/cgroup.procs", "0"))
		wrong("cgroup: %s", strerror(errno));
	fd = dev_alloc(dev, 8 * MIB, 0);
	map = dev_map(fd, 8 * MIB, PROT_READ | PROT_WRITE);
	mem_fill(map, 8 * MIB, 0, SEED);
	if (file_put(ROOT_GROUP "/cgroup.procs", "0"))
		wrong("out of the cgroup: %s", strerror(errno));
	expect(rmdir(GROUP) ? -errno : 0, 0, "rmdir");
	if (mem_wrong(map, 8 * MIB, 0, SEED) >= 0 || dev_bytes(dev) != base_bytes + 8 * MIB)
		wrong("%llu bytes", (unsigned long long)(dev_bytes(dev) - base_bytes));
	munmap(map, 8 * MIB);
	close(fd);
	gone("the cgroup");
	point("memory cgroup", "removed while a buffer of it lives");
}

/* A memfd that does not fit, but for what is swapped: what PIN has looked at goes while it looks at the rest. */
static void body_memfd(int say, int wait)
{
	static const size_t bytes = 48 * MIB;
	int fd = memfd_create("press", MFD_CLOEXEC | MFD_ALLOW_SEALING), pin;

	(void)wait;
	if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		wrong("memfd: %s", strerror(errno));
	pin = dev_pin_fd(dev, fd, 0, bytes, NULL);
	expect(pin, -ENOMEM, "PIN of a memfd of 48 MiB");
	/* And what does fit is had, though all of it was used before. */
	pin = dev_pin_fd(dev, fd, 0, 16 * MIB, NULL);
	expect(pin, 0, "PIN of 16 MiB of it");
	close(pin);
	close(fd);
	tell(say);
}

/* 64 MiB to swap to: a loop device over memory that is there already, so that no write to it has to be charged to anybody. */
static int swap_on(char device[static 32])
{
	static const uint32_t version = 1, last = 64 * MIB / PAGE - 1;
	int memory = memfd_create("swap", MFD_CLOEXEC), control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), loop = -1,
	    ret = 0;
	struct loop_config config = { .fd = (unsigned int)memory };

	snprintf(device, 32, "/dev/loop%d", ioctl(control, LOOP_CTL_GET_FREE));
	if (posix_fallocate(memory, 0, 64 * MIB) || pwrite(memory, &version, sizeof(version), 1024) < 0 ||
	    pwrite(memory, &last, sizeof(last), 1028) < 0 || pwrite(memory, "SWAPSPACE2", 10, PAGE - 10) < 0)
		ret = -errno;
	loop = ret ? -1 : open(device, O_RDWR | O_CLOEXEC);
	if (!ret && (loop < 0 || ioctl(loop, LOOP_CONFIGURE, &config)))
		ret = -errno;
	if (!ret && swapon(device, 0)) {
		ret = -errno;
		ioctl(loop, LOOP_CLR_FD);
	}
	close(loop);
	close(control);
	close(memory);
	return ret;
}

static void swap_off(const char *device)
{
	int loop = open(device, O_RDWR | O_CLOEXEC);

	expect(swapoff(device) ? -errno : 0, 0, "swapoff");
	expect(ioctl(loop, LOOP_CLR_FD) ? -errno : 0, 0, "the loop device");
	close(loop);
}

static void try_swap(void)
{
	char device[32];
	int ret = swap_on(device);

	if (ret) {
		tap_skip("a cgroup that swaps", "no swap: %s", strerror(-ret));
		return;
	}
	alone("32M", body_memfd, "a memfd that fits only by swapping is refused, and nobody is killed");
	swap_off(device);
}

/* ---- the whole machine --------------------------------------------------------------------------------------------- */

static void limits_set(bool lifted)
{
	parameter_set("max_bytes", lifted ? 1ULL << 40 : 0);
	parameter_set("max_user_bytes", lifted ? 1ULL << 40 : 0);
}

static void try_too_much(void)
{
	uint64_t ram = mem_info("MemTotal"), was = mem_free(), kills = oom_kills();
	double began = mem_clock();

	expect(dev_alloc(dev, 2 * ram, 0), -ENOMEM, "ALLOC of twice the RAM");
	limits_set(true);
	expect(dev_alloc(dev, 2 * ram, 0), -ENOMEM, "ALLOC of twice the RAM without limits");
	expect(dev_alloc(dev, 2 * ram, PINION_ALLOC_HUGE_NEVER), -ENOMEM, "the same of small pages");
	expect(dev_alloc(dev, ram / HUGE * HUGE, PINION_ALLOC_HUGE_REQUIRE), -ENOMEM, "ALLOC of all RAM in huge pages");
	expect(dev_alloc(dev, ram, 0), -ENOMEM, "ALLOC of all RAM");
	limits_set(false);
	gone("refusals");
	printf("# five refusals took %.1f s\n", mem_clock() - began);
	if (oom_kills() != kills)
		wrong("%llu processes were killed", (unsigned long long)(oom_kills() - kills));
	if (!mem_free_again(was, 16 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("the machine", "twice the RAM is refused, with limits and without, and all of it is back");
}

/* Buffer by buffer until there is no more. */
static void try_all(void)
{
	uint64_t was = mem_free(), kills = oom_kills();
	int fd[512], n = 0, last = 0;

	limits_set(true);
	while (n < 512 && (last = dev_alloc(dev, 16 * MIB, 0)) >= 0)
		fd[n++] = last;
	expect(last, -ENOMEM, "the last ALLOC");
	printf("# %d buffers of 16 MiB", n);
	/* Whoever asks for memory now in a way that must not fail, if only to look at a file of /proc, meets the killer. */
	if (n > 0)
		close(fd[--n]);
	printf(", with one of them given back %llu KiB are free\n", (unsigned long long)mem_info("MemFree") >> 10);
	while (n > 0)
		close(fd[--n]);
	limits_set(false);
	gone("all of it");
	if (oom_kills() != kills)
		wrong("%llu processes were killed", (unsigned long long)(oom_kills() - kills));
	if (!mem_free_again(was, 16 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("the machine", "memory taken to the end gives ENOMEM and kills nobody");
}

/* No two pages of 2 MiB lie together when every other small one is taken. */
static void try_fragments(void)
{
	uint64_t bytes = mem_info("MemAvailable") / 10 * 8 / PAGE * PAGE;
	char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pinion_bufinfo info;
	int fd;

	limits_set(true);
	madvise(map, bytes, MADV_NOHUGEPAGE);
	for (uint64_t i = 0; i < bytes; i += PAGE)
		map[i] = 1;
	/* Pages that are pinned where they are cannot be moved together. */
	for (uint64_t i = 0; i + PAGE <= bytes; i += 16 * PAGE)
		madvise(map + i, 15 * PAGE, MADV_DONTNEED);
	fd = dev_alloc(dev, bytes / 2 / HUGE * HUGE, 0);
	expect(fd, 0, "ALLOC of what is free in pieces");
	if (fd >= 0 && !dev_bufinfo(dev, fd, &info))
		printf("# %llu of %llu MiB in huge pages\n", info.huge_bytes >> 20, info.bytes >> 20);
	close(fd);
	munmap(map, bytes);
	limits_set(false);
	gone("pieces");
	point("the machine", "free memory in pieces still makes a buffer");
}

static void *allocate(void *arg)
{
	long *wrongs = arg;

	for (int i = 0; i < 20; i++) {
		int fd = dev_alloc(dev, 8 * MIB, 0);
		char *map = fd < 0 ? MAP_FAILED : dev_map(fd, 8 * MIB, PROT_READ | PROT_WRITE);

		if (map == MAP_FAILED) {
			*wrongs += 1;
			continue;
		}
		for (size_t at = 0; at < 8 * MIB; at += PAGE)
			*wrongs += *(uint64_t *)(map + at) != 0 || *(uint64_t *)(map + at + PAGE - 8) != 0;
		mem_fill(map, 8 * MIB, 0, (uintptr_t)arg);
		*wrongs += mem_wrong(map, 8 * MIB, 0, (uintptr_t)arg) >= 0;
		munmap(map, 8 * MIB);
		close(fd);
	}
	return NULL;
}

static void try_threads(void)
{
	long wrongs[2] = { 0 };
	pthread_t thread[2];
	double began = mem_clock();

	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, allocate, &wrongs[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	printf("# 320 MiB by two threads in %.2f s\n", mem_clock() - began);
	if (wrongs[0] || wrongs[1])
		wrong("%ld and %ld pages were not zero, or not the thread's own", wrongs[0], wrongs[1]);
	gone("two threads");
	point("the machine", "two threads allocate at once, each its own zeroed pages");
}

/* ---- death --------------------------------------------------------------------------------------------------------- */

static void try_kills(void)
{
	uint64_t was = mem_free(), kills = oom_kills();
	double began = mem_clock();
	int done = 0;

	srand(4711);
	while (done < KILLS && mem_clock() - began < KILL_SECONDS && !*state_wrong) {
		pid_t pid = fork();

		if (!pid)
			while (true)
				close(dev_alloc(dev, 16 * MIB, done & 1 ? PINION_ALLOC_HUGE_NEVER : 0));
		mem_sleep(rand() % 20000);
		kill(pid, SIGKILL);
		mem_wait(pid);
		done++;
	}
	printf("# %d of %d kills in %.0f s\n", done, KILLS, mem_clock() - began);
	gone("kills during ALLOC");
	if (oom_kills() != kills)
		wrong("%llu processes were killed for memory", (unsigned long long)(oom_kills() - kills));
	if (!mem_free_again(was, 16 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("SIGKILL", "at any moment of ALLOC leaves nothing");
}

/* Killed on its way: how much of its bytes an ALLOC has before it ends. */
static uint64_t most_of(uint64_t bytes)
{
	uint64_t free = mem_info("MemFree"), least = free, now;
	pid_t pid = fork();

	if (!pid)
		while (true)
			close(dev_alloc(dev, bytes, PINION_ALLOC_HUGE_NEVER));
	/* An eighth is there, most of it is still to come. */
	if (!eventually(mem_info("MemFree") + bytes / 8 < free))
		wrong("no ALLOC begins");
	kill(pid, SIGKILL);
	while (!waitpid(pid, NULL, WNOHANG)) {
		now = mem_info("MemFree");
		least = now < least ? now : least;
	}
	return free - least;
}

/*
 * An ALLOC of most of the memory ends when its process is killed. One that went on would have all its bytes in the end, each
 * time: that one of several never had three quarters of them says that it does not go on, however the machine is loaded.
 */
static void try_kill_large(void)
{
	uint64_t bytes = mem_free() / 10 * 7 / PAGE * PAGE, best = ~0ULL;

	limits_set(true);
	for (int i = 0; i < 5 || (best > bytes / 4 * 3 && i < 30); i++) {
		uint64_t most = most_of(bytes);

		best = most < best ? most : best;
		gone("SIGKILL");
	}
	printf("# an ALLOC of %llu MiB that was killed had %llu\n", (unsigned long long)bytes >> 20,
	       (unsigned long long)best >> 20);
	if (best > bytes / 4 * 3)
		wrong("an ALLOC of %llu MiB that was killed went on to %llu", (unsigned long long)bytes >> 20,
		      (unsigned long long)best >> 20);
	limits_set(false);
	point("SIGKILL", "ends a large ALLOC");
}

/* ---- wiping -------------------------------------------------------------------------------------------------------- */

/* A frame's bytes, whoever it belongs to. */
static bool frame_read(int kcore, uint64_t pfn, char *page)
{
	Elf64_Ehdr head;
	Elf64_Phdr part;

	if (pread(kcore, &head, sizeof(head), 0) != sizeof(head))
		return false;
	for (int i = 0; i < head.e_phnum; i++) {
		if (pread(kcore, &part, sizeof(part), head.e_phoff + i * sizeof(part)) != sizeof(part))
			return false;
		if (part.p_type == PT_LOAD && part.p_paddr != ~0ULL && pfn * PAGE >= part.p_paddr &&
		    pfn * PAGE < part.p_paddr + part.p_memsz)
			return pread(kcore, page, PAGE, part.p_offset + pfn * PAGE - part.p_paddr) == (ssize_t)PAGE;
	}
	return false;
}

/* Of the pages of a buffer that is gone, how many still have its bytes; -1: cannot look. */
static int left_behind(int kcore, uint32_t flags)
{
	const size_t bytes = 2 * HUGE;
	static uint64_t pfn[2 * HUGE / PAGE];
	int fd = dev_alloc(dev, bytes, flags), left = 0;
	char *map, page[PAGE] __attribute__((aligned(8)));

	if (!expect(fd, 0, "ALLOC"))
		return -1;
	map = dev_map(fd, bytes, PROT_READ | PROT_WRITE);
	mem_fill(map, bytes, 0, SEED);
	for (size_t i = 0; i < bytes / PAGE; i++)
		pfn[i] = mem_pfn(map + i * PAGE);
	munmap(map, bytes);
	close(fd);
	for (size_t i = 0; i < bytes / PAGE; i++) {
		if (!frame_read(kcore, pfn[i], page))
			return -1;
		left += mem_wrong(page, PAGE, i, SEED) < 0;
	}
	return left;
}

static void try_wipe(void)
{
	int kcore = open("/proc/kcore", O_RDONLY | O_CLOEXEC), with, without;

	if (kcore < 0) {
		tap_skip("wiped pages", "no /proc/kcore to look at free memory with");
		return;
	}
	without = left_behind(kcore, 0);
	with = left_behind(kcore, PINION_ALLOC_WIPE_ON_FREE);
	close(kcore);
	printf("# pages with the old bytes: %d, with WIPE_ON_FREE %d\n", without, with);
	if (without <= 0)
		wrong("this way of looking finds nothing (%d)", without);
	if (with)
		wrong("%d wiped pages have the old bytes", with);
	gone("wiping");
	point("WIPE_ON_FREE", "leaves no byte behind");
}

static void try_unwiped(void)
{
	struct pinion_info before, after;
	struct iovec iov = { .iov_len = PAGE };
	char *map, page[PAGE] __attribute__((aligned(8)));
	int pipes[2], fd;

	if (pipe2(pipes, O_CLOEXEC))
		return;
	fd = dev_alloc(dev, 64 * PAGE, PINION_ALLOC_HUGE_NEVER | PINION_ALLOC_WIPE_ON_FREE);
	map = dev_map(fd, 64 * PAGE, PROT_READ | PROT_WRITE);
	mem_fill(map, 64 * PAGE, 0, SEED);
	iov.iov_base = map + 3 * PAGE;
	if (vmsplice(pipes[1], &iov, 1, 0) != (ssize_t)PAGE)
		wrong("vmsplice: %s", strerror(errno));
	dev_info(dev, &before);
	munmap(map, 64 * PAGE);
	close(fd);
	dev_info(dev, &after);
	if (after.unwiped_bytes < before.unwiped_bytes + PAGE || after.unwiped_bytes > before.unwiped_bytes + 63 * PAGE)
		wrong("unwiped_bytes was %llu and is %llu", before.unwiped_bytes, after.unwiped_bytes);
	if (read(pipes[0], page, PAGE) != (ssize_t)PAGE || mem_wrong(page, PAGE, 3, SEED) >= 0)
		wrong("the page was wiped under who held it");
	close(pipes[0]);
	close(pipes[1]);
	gone("the pipe");
	point("WIPE_ON_FREE", "says what it could not wipe, and leaves it alone");
}

int main(void)
{
	uint64_t was;

	dev = dev_open(O_RDWR);
	if (!tap_ok(dev >= 0, "open", "%d", dev))
		return tap_end();
	base_bytes = dev_bytes(dev);
	base_buffers = dev_buffers(dev);
	was = mem_free();
	if (group_make("max")) {
		rmdir(GROUP);
		try_charge();
		alone("64M", body_128, "128 MiB of 64 are refused, and nobody is killed");
		alone("64M", body_shmem, "SHMEM is refused alike");
		try_cache();
		alone("24M", body_full, "filled to the last byte, nobody is killed");
		alone("8M", body_small, "filled with the smallest buffers, nobody is killed");
		alone("8M", body_slices, "filled with slices, nobody is killed");
		alone("8M", body_pins, "filled with pins, nobody is killed");
		try_group_gone();
		try_swap();
	} else {
		tap_skip("memory cgroup", "no cgroup v2 with the memory controller");
	}
	try_wipe();
	try_unwiped();
	try_threads();
	try_kills();
	try_kill_large();
	try_fragments();
	try_too_much();
	try_all();
	gone("everything");
	if (!mem_free_again(was, 16 * MIB))
		wrong("%llu KiB are missing", (unsigned long long)(was - mem_free()) >> 10);
	point("everything", "memory is back");
	close(dev);
	return tap_end();
}
