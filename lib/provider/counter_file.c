/* SPDX-License-Identifier: MIT */
#include "counter_file.h"
#include "counter_roster.h"
#include "counts_ops.h"
#include "kmod_counts.h"

#include "../advice.h"
#include "../deadline.h"
#include "../error.h"
#include "../machine/filesize.h"
#include "../sanitizer.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the robust mutexes -------------------------------------------------------------------------------------------- */

/*
 * What a dead holder can leave half done is safe to find: a claim ends with the owner word, so an unfinished one is a
 * dead slot again; a device is there once its generation is; a sequence that was bumped once too often costs a reader one
 * more look.
 */
static int recovered(pthread_mutex_t *lock, int err)
{
	if (err == EOWNERDEAD) {
		pthread_mutex_consistent(lock);
		return 0;
	}
	/* What one of ours never says. */
	return err == ETIMEDOUT ? err : err ? EPROTO : 0;
}

/* The C library believes what a mutex says of its kind, ends the program over some, and waits for ever on others. */
bool counter_mutex_is_one(const pthread_mutex_t *lock)
{
	pthread_mutex_t one;

	counter_mutex_init(&one);
	return __atomic_load_n(&lock->__data.__kind, __ATOMIC_RELAXED) == one.__data.__kind;
}

int counter_fail_damaged(const char *what)
{
	return fail_advise(EPROTO, PINION_ADVICE_DIR_DAMAGED, NULL,
			   "%s in the counter file is none: something has written over it", what);
}

#if THREAD_SANITIZED
/* Its runtimes before GCC 13 do not know pthread_mutex_clocklock(): to them such a lock is given back and never taken. */
static int lock_until(pthread_mutex_t *lock, int64_t deadline_ns)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	ts = deadline_timespec(ts.tv_sec * 1000000000 + ts.tv_nsec + (deadline_ns - deadline_now()));
	return pthread_mutex_timedlock(lock, &ts);
}
#else
static int lock_until(pthread_mutex_t *lock, int64_t deadline_ns)
{
	struct timespec ts = deadline_timespec(deadline_ns);

	return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &ts);
}
#endif

int counter_mutex_lock(pthread_mutex_t *lock, int64_t deadline_ns)
{
	if (!counter_mutex_is_one(lock))
		return -EPROTO;
	if (deadline_ns == INT64_MAX)
		return -recovered(lock, pthread_mutex_lock(lock));
	return -recovered(lock, lock_until(lock, deadline_ns));
}

void counter_mutex_unlock(pthread_mutex_t *lock)
{
	pthread_mutex_unlock(lock);
}

void counter_mutex_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

/* ---- head.lock ----------------------------------------------------------------------------------------------------- */

/* Time in which this process does not run, stopped or frozen with the holder, is one look at most. */
#define LOOK_NS INT64_C(250000000)
#define LOOKS	8

/* The process that thread @tid is of, and its name; @tid itself where it cannot be seen from here. */
static int process_of(int tid, char comm[16])
{
	char path[64], line[128];
	int pid = tid;
	FILE *status;

	strcpy(comm, "?");
	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	status = fopen(path, "re");
	while (status && fgets(line, sizeof(line), status)) {
		sscanf(line, "Name: %15[^\n]", comm);
		if (sscanf(line, "Tgid: %d", &pid) == 1)
			break;
	}
	if (status)
		fclose(status);
	return pid;
}

/* The lock's first word is the futex, which has the holder's thread id. */
static int fail_held(const pthread_mutex_t *lock)
{
	int tid = __atomic_load_n((const int *)lock, __ATOMIC_RELAXED) & FUTEX_TID_MASK, pid;
	char comm[16], who[16];

	pid = process_of(tid, comm);
	snprintf(who, sizeof(who), "%d", pid);
	return fail_advise(
		ETIMEDOUT, PINION_ADVICE_DIR_LOCKED, who,
		"process %d (%s) has held the counter file's lock for 2 s, and all who open a context, find a device or "
		"claim wait for it",
		pid, comm);
}

int counter_lock(struct counts *c)
{
	struct counter_head *head = &c->file->head;
	int ret = -ETIMEDOUT;

	for (int looks = 0; ret == -ETIMEDOUT && looks < LOOKS; looks++) {
		uint32_t turns = __atomic_load_n(&head->turns, __ATOMIC_RELAXED);

		ret = counter_mutex_lock(&head->lock, deadline_now() + LOOK_NS);
		if (__atomic_load_n(&head->turns, __ATOMIC_RELAXED) != turns)
			looks = -1;
	}
	if (!ret)
		__atomic_store_n(&head->turns, head->turns + 1, __ATOMIC_RELAXED);
	else if (ret == -ETIMEDOUT)
		fail_held(&head->lock);
	else
		ret = counter_fail_damaged("the lock");
	return ret;
}

void counter_unlock(struct counts *c)
{
	counter_mutex_unlock(&c->file->head.lock);
}

/* ---- the file ------------------------------------------------------------------------------------------------------ */

int counter_room(struct counts *c, const void *from, size_t bytes)
{
	off_t offset = (const char *)from - (const char *)c->file;
	int err;

	do {
		err = posix_fallocate(c->fd, offset, bytes);
	} while (err == EINTR);
	if (err)
		return fail_errno(err, "the counter file needs %zu more bytes in the runtime directory", bytes);
	return 0;
}

static void read_boot(char boot[40])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, boot, 36);

	memset(boot + (n > 0 ? n : 0), 0, 40 - (n > 0 ? n : 0));
	if (fd >= 0)
		close(fd);
}

static int map_file(struct counts *c)
{
	void *p = mmap(NULL, sizeof(struct counter_file), PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);

	if (p == MAP_FAILED)
		return fail_errno(errno, "mapping the counter file");
	if (madvise(p, sizeof(struct counter_file), MADV_DONTFORK)) {
		int err = errno;

		munmap(p, sizeof(struct counter_file));
		return fail_errno(err, "keeping the counter file from children");
	}
	c->file = p;
	return 0;
}

/* Under the directory's lock: fills a fresh file. The magic comes last, so a maker that dies leaves none. */
static int fill_file(struct counts *c, const char boot[40])
{
	struct counter_head *head = &c->file->head;
	int ret = counter_room(c, c->file, offsetof(struct counter_file, facts));

	if (ret)
		return ret;
	memcpy(head->boot, boot, sizeof(head->boot));
	head->bytes = sizeof(struct counter_file);
	counter_mutex_init(&head->lock);
	__atomic_store_n(&head->magic, COUNTER_MAGIC, __ATOMIC_RELEASE);
	return 0;
}

/* 1: the file is whole and of this boot; 0: to be made anew; -errno. */
static int judge_file(struct counts *c, struct rundir *dir, const char boot[40])
{
	struct stat st;
	struct counter_head head;
	ssize_t n;

	if (fstat(c->fd, &st))
		return fail_errno(errno, "%s/%s", dir->path, COUNTER_NAME);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
		return fail(EPERM, "%s/%s is not a regular file of uid %u; remove it", dir->path, COUNTER_NAME, geteuid());
	n = pread(c->fd, &head, sizeof(head), 0);
	if (n < 0)
		return fail_errno(errno, "%s/%s", dir->path, COUNTER_NAME);
	if (n < (ssize_t)sizeof(head) || head.magic != COUNTER_MAGIC || memcmp(head.boot, boot, sizeof(head.boot)))
		return 0;
	if (head.bytes != sizeof(struct counter_file))
		return fail(EPROTO, "%s/%s has another layout (%llu bytes, this library's has %zu); end the processes that use it and remove it",
			    dir->path, COUNTER_NAME, (unsigned long long)head.bytes, sizeof(struct counter_file));
	if (st.st_size != (off_t)sizeof(struct counter_file))
		return fail_advise(EPROTO, PINION_ADVICE_DIR_DAMAGED, dir->path,
				   "%s/%s has %lld bytes and was made with %zu: who counts in what was cut off is ended by SIGBUS",
				   dir->path, COUNTER_NAME, (long long)st.st_size, sizeof(struct counter_file));
	return 1;
}

static int open_at(struct rundir *dir, int flags)
{
	int fd = openat(dir->fd, COUNTER_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600);

	return fd < 0 ? fail_errno(errno, "%s/%s", dir->path, COUNTER_NAME) : fd;
}

/*
 * Without the directory's lock, which a process that is stopped may hold: nobody replaces a file that is whole. 1: it is
 * mapped; 0: not there, or to be made anew; -errno.
 */
static int open_whole(struct counts *c, struct rundir *dir, const char boot[40])
{
	int ret;

	c->fd = openat(dir->fd, COUNTER_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (c->fd < 0)
		return 0; /* what is wrong with it is said under the lock */
	ret = judge_file(c, dir, boot);
	if (ret > 0) {
		ret = map_file(c);
		if (!ret)
			return 1;
	}
	close(c->fd);
	return ret;
}

/* Under the directory's lock. */
static int open_file(struct counts *c, struct rundir *dir, const char boot[40])
{
	int ret;

	c->fd = open_at(dir, O_CREAT);
	if (c->fd < 0)
		return c->fd;
	ret = judge_file(c, dir, boot);
	if (ret < 0)
		goto err_close;
	if (ret) {
		ret = map_file(c);
		if (ret)
			goto err_close;
		return 0;
	}

	/* A file of an earlier boot may still be mapped by nobody; a name of its own makes sure of that. */
	close(c->fd);
	ret = filesize_check("the counter file", sizeof(struct counter_file));
	if (ret)
		return ret;
	unlinkat(dir->fd, COUNTER_NAME, 0);
	c->fd = open_at(dir, O_CREAT | O_EXCL);
	if (c->fd < 0)
		return c->fd;
	if (ftruncate(c->fd, sizeof(struct counter_file))) {
		ret = fail_errno(errno, "%s/%s", dir->path, COUNTER_NAME);
		goto err_close;
	}
	ret = map_file(c);
	if (ret)
		goto err_close;
	ret = fill_file(c, boot);
	if (!ret)
		return 0;
	munmap(c->file, sizeof(struct counter_file));
err_close:
	close(c->fd);
	return ret;
}

int counts_open(struct rundir *dir, struct counts **out)
{
	struct counts *c = calloc(1, sizeof(*c));
	char boot[40];
	int lock_fd, ret;

	if (!c)
		return fail(ENOMEM, "no memory for a context");
	ret = process_mark(&c->mark);
	if (ret)
		goto err_free;
	ret = roster_open(c);
	if (ret)
		goto err_free;
	read_boot(boot);
	ret = open_whole(c, dir, boot);
	if (ret < 0)
		goto err_roster;
	if (!ret) {
		ret = rundir_lock(dir, &lock_fd);
		if (ret)
			goto err_roster;
		ret = open_file(c, dir, boot);
		rundir_unlock(lock_fd);
		if (ret)
			goto err_roster;
	}
	ret = counter_slot_claim(c);
	if (ret)
		goto err_unmap;
	c->file->facts[c->slot].on_module = 0;
	c->ops = &counts_memfd;
	c->page = &c->file->page[c->slot];
	c->roster->seq_now = &c->file->head.seq;
	*out = c;
	return 0;

err_unmap:
	munmap(c->file, sizeof(struct counter_file));
	close(c->fd);
err_roster:
	roster_close(c);
err_free:
	free(c);
	return ret;
}

void counts_close(struct counts *c)
{
	if (c->kmod)
		kmod_counts_close(c);
	/* In a child the mapping is not there, and its addresses may be someone else's by now. */
	if (process_is_maker(&c->mark)) {
		counter_slot_leave(c);
		munmap(c->file, sizeof(struct counter_file));
	}
	close(c->fd);
	roster_close(c);
	free(c);
}
