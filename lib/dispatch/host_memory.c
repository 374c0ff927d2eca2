/* SPDX-License-Identifier: MIT */
/*
 * host memory: the figures of the machine's memory, measured by reading files and kept for a while. Any number of
 * threads read them without a lock.
 *
 * The figures are behind a sequence number, odd while they are written. Nobody waits: who finds it odd, or the figures
 * too old, measures for itself. Some time before they are too old one thread takes it on to measure anew, so that as a
 * rule the others never have to.
 */
#include "../machine/room.h"
#include "backend.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* The coarse clock is up to 10 ms behind; with that they are never over 100 ms old. */
#define TOO_OLD_NS INT64_C(90000000)
#define AGING_NS   INT64_C(45000000)

struct figures {
	uint64_t value[2];
	int err; /* 0, or why there are none */
};

struct kept {
	uint32_t seq;
	uint32_t busy; /* a thread is measuring ahead of time */
	int64_t at_ns; /* 0: never */
	struct figures figures;
	int (*measure)(uint64_t value[2]);
};

static int measure_room(uint64_t value[2])
{
	return room_measure(&value[0], &value[1]);
}

/* The kB of a line of /proc/self/status. */
static uint64_t status_bytes(const char *text, const char *key)
{
	const char *line = strstr(text, key);

	return line ? strtoull(line + strlen(key), NULL, 10) * 1024 : 0;
}

/* mlock() charges VmLck, registration with io_uring VmPin. */
static int measure_pinned(uint64_t value[2])
{
	char text[8192];
	struct rlimit lim;
	uint64_t used;
	size_t n;
	FILE *f;

	if (getrlimit(RLIMIT_MEMLOCK, &lim))
		return fail_errno(errno, "reading RLIMIT_MEMLOCK");
	if (lim.rlim_cur == RLIM_INFINITY)
		return fail(ENODATA, "RLIMIT_MEMLOCK is unlimited");
	f = fopen("/proc/self/status", "re");
	if (!f)
		return fail(ENODATA, "/proc/self/status cannot be read, so that it is not known how much is locked");
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = 0;
	used = status_bytes(text, "\nVmLck:") + status_bytes(text, "\nVmPin:");
	value[0] = lim.rlim_cur > used ? lim.rlim_cur - used : 0;
	value[1] = lim.rlim_cur;
	return 0;
}

static struct kept room = { .measure = measure_room };
static struct kept pinned = { .measure = measure_pinned };
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A thread of the parent may have been writing at the fork; it is not there to finish. And the child locked nothing. */
static void forked(void)
{
	struct kept *all[] = { &room, &pinned };

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		all[i]->seq = 0;
		all[i]->busy = 0;
		all[i]->at_ns = 0;
	}
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* When the figures were measured; 0: there are none that can be had now. */
static int64_t kept_read(struct kept *k, struct figures *out)
{
	uint32_t seq = __atomic_load_n(&k->seq, __ATOMIC_ACQUIRE);
	int64_t at_ns = __atomic_load_n(&k->at_ns, __ATOMIC_RELAXED);

	for (size_t i = 0; i < 2; i++)
		out->value[i] = __atomic_load_n(&k->figures.value[i], __ATOMIC_RELAXED);
	out->err = __atomic_load_n(&k->figures.err, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return seq & 1 || __atomic_load_n(&k->seq, __ATOMIC_RELAXED) != seq ? 0 : at_ns;
}

/* Where another thread writes at this moment, its figures are as good. */
static void kept_write(struct kept *k, int64_t at_ns, const struct figures *f)
{
	uint32_t seq = __atomic_load_n(&k->seq, __ATOMIC_RELAXED);

	if (seq & 1 || !__atomic_compare_exchange_n(&k->seq, &seq, seq + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (size_t i = 0; i < 2; i++)
		__atomic_store_n(&k->figures.value[i], f->value[i], __ATOMIC_RELAXED);
	__atomic_store_n(&k->figures.err, f->err, __ATOMIC_RELAXED);
	__atomic_store_n(&k->at_ns, at_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&k->seq, seq + 2, __ATOMIC_RELEASE);
}

static void measure(struct kept *k, struct figures *out)
{
	/* Before the files are read: the figures are from some moment after it. */
	int64_t at_ns = now_ns();

	pthread_once(&once, watch_forks);
	*out = (struct figures){ 0 };
	out->err = -k->measure(out->value);
	kept_write(k, at_ns, out);
}

static int figures_get(struct kept *k, struct figures *out)
{
	int64_t at_ns = kept_read(k, out), age = now_ns() - at_ns;

	if (!at_ns || age > TOO_OLD_NS) {
		measure(k, out);
	} else if (age > AGING_NS && !__atomic_exchange_n(&k->busy, 1, __ATOMIC_ACQUIRE)) {
		measure(k, out);
		__atomic_store_n(&k->busy, 0, __ATOMIC_RELEASE);
	}
	return out->err;
}

int backend_host_available(uint64_t *bytes)
{
	struct figures f;

	if (figures_get(&room, &f))
		return fail(ENODATA, "/proc/meminfo does not tell how much memory there is");
	*bytes = f.value[0];
	return 0;
}

/* Asked once: what a selector compares with must not move under it. */
int backend_host_total(uint64_t *bytes)
{
	static uint64_t total;
	uint64_t known = __atomic_load_n(&total, __ATOMIC_RELAXED), none = 0;
	struct figures f;

	if (!known) {
		if (figures_get(&room, &f))
			return fail(ENODATA, "/proc/meminfo does not tell how much memory there is");
		known = f.value[1];
		if (!__atomic_compare_exchange_n(&total, &none, known, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			known = none;
	}
	*bytes = known;
	return 0;
}

int backend_host_pinned(uint64_t *left, uint64_t *limit)
{
	struct figures f;

	if (figures_get(&pinned, &f))
		return fail(ENODATA,
			    "no limit of pinned memory is set: RLIMIT_MEMLOCK is unlimited, or cannot be told");
	*left = f.value[0];
	*limit = f.value[1];
	return 0;
}
