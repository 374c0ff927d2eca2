/* SPDX-License-Identifier: MIT */
/*
 * populate: rounds of 64 MiB, each divided among the threads. Between two rounds all of them stand still and the room may be
 * looked at again, because others take memory at the same time. A look takes as long as 2 MiB of huge pages, so there is none
 * where the last was a moment ago.
 */
#include "populate.h"

#include "../advice.h"
#include "../deadline.h"
#include "../error.h"
#include "../machine/cpus.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define ROUND_BYTES  (UINT64_C(64) << 20)
#define LOOK_NS	     10000000		 /* for which a look at the room holds, */
#define LOOK_BYTES   (4 * ROUND_BYTES)	 /* and after how much it does not, however fast that came */
#define SHARE_ALIGN  (UINT64_C(2) << 20) /* no huge page is divided between two threads */
#define THREADS_MAX  16
#define THREAD_BYTES (UINT64_C(32) << 20) /* below this much for each, threads cost more than they save (tests/bench, alloc) */
#define STACK_BYTES  (128u << 10)

struct team;

struct helper {
	struct team *team;
	unsigned int place; /* 0 is the caller */
	pthread_t thread;
};

struct team {
	const struct populate *p;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t start, end;
	unsigned int round; /* counts up; 0: none yet */
	unsigned int busy;  /* threads that are in it */
	bool over;
	uint64_t at, until; /* this round's bytes */
	uint64_t share;	    /* of each thread */
	int err;	    /* of the first that failed */
	unsigned int helpers;
	struct helper helper[THREADS_MAX - 1];
};

/* 0 or an errno. */
static int advise(const struct populate *p, uint64_t at, uint64_t until)
{
	int advice = p->for_reading ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;

	if (at >= until)
		return 0;
	while (madvise(p->addr + at, until - at, advice))
		if (errno != EINTR && errno != EAGAIN)
			return errno;
	return 0;
}

/*
 * Small pages are cheaper made by the file, which goes through them in one loop, and then mapped, than each by a fault that finds
 * none: a seventh of the CPU time of both. Little at a time, as a signal takes all of it back. What it does not do the mapping will.
 */
static void make_in_file(const struct populate *p, uint64_t at, uint64_t until)
{
	if (p->file > 0)
		(void)!fallocate(p->file, 0, at, until - at);
}

/* 0 or an errno. */
static int make_present(const struct populate *p, uint64_t at, uint64_t until)
{
	uint64_t step = p->file > 0 ? SHARE_ALIGN : until - at, end;
	int err = 0;

	for (; at < until && !err; at = end) {
		end = until - at < step ? until : at + step;
		make_in_file(p, at, end);
		err = advise(p, at, end);
	}
	return err;
}

static int do_share(const struct team *t, unsigned int place)
{
	uint64_t at = t->at + place * t->share, until = at + t->share;

	return make_present(t->p, at, until < t->until ? until : t->until);
}

static void *help(void *arg)
{
	const struct helper *self = arg;
	struct team *t = self->team;
	unsigned int seen = 0;
	int err;

	pthread_mutex_lock(&t->lock);
	for (;;) {
		while (t->round == seen && !t->over)
			pthread_cond_wait(&t->start, &t->lock);
		if (t->over)
			break;
		seen = t->round;
		pthread_mutex_unlock(&t->lock);
		err = do_share(t, self->place);
		pthread_mutex_lock(&t->lock);
		if (err && !t->err)
			t->err = err;
		if (--t->busy == 0)
			pthread_cond_signal(&t->end);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static int start_helper(struct team *t, const pthread_attr_t *attr)
{
	struct helper *self = &t->helper[t->helpers];
	int err;

	self->team = t;
	self->place = t->helpers + 1;
	err = pthread_create(&self->thread, attr, help, self);
	t->helpers += !err;
	return err;
}

/* As many as are wanted and can be had; none of them takes a signal that is meant for the program. */
static void start_helpers(struct team *t, unsigned int n)
{
	sigset_t all, before;
	pthread_attr_t attr;

	if (!n || pthread_attr_init(&attr))
		return;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (t->helpers < n && !start_helper(t, &attr))
		;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
}

static void end_helpers(struct team *t)
{
	pthread_mutex_lock(&t->lock);
	t->over = true;
	pthread_cond_broadcast(&t->start);
	pthread_mutex_unlock(&t->lock);
	while (t->helpers)
		pthread_join(t->helper[--t->helpers].thread, NULL);
}

/* 0 or an errno. */
static int do_round(struct team *t, uint64_t at, uint64_t until)
{
	unsigned int n = t->helpers + 1;
	int err;

	pthread_mutex_lock(&t->lock);
	t->at = at;
	t->until = until;
	t->share = ((until - at) / n + SHARE_ALIGN - 1) / SHARE_ALIGN * SHARE_ALIGN;
	t->busy = t->helpers;
	t->round++;
	pthread_cond_broadcast(&t->start);
	pthread_mutex_unlock(&t->lock);
	err = do_share(t, 0);
	pthread_mutex_lock(&t->lock);
	while (t->busy)
		pthread_cond_wait(&t->end, &t->lock);
	if (!err)
		err = t->err;
	pthread_mutex_unlock(&t->lock);
	return err;
}

static int failed(const struct populate *p, int err)
{
	if (err == EINVAL)
		return fail_advise(EOPNOTSUPP, PINION_ADVICE_KERNEL_OLD, NULL, "MADV_POPULATE_WRITE is not there");
	return fail_errno(err == EFAULT ? ENOMEM : err, "making all of %llu bytes present", (unsigned long long)p->bytes);
}

/* The last look at the room: when, and before which byte. */
struct look {
	int64_t ns;
	uint64_t at;
};

static int look_again(const struct populate *p, uint64_t at, struct look *last)
{
	uint64_t left = p->bytes - at < p->missing ? p->bytes - at : p->missing;
	int ret;

	if (!p->room || (deadline_now() - last->ns < LOOK_NS && at - last->at < LOOK_BYTES))
		return 0;
	ret = p->room(p, left);
	*last = (struct look){ deadline_now(), at };
	return ret;
}

static int run(struct team *t)
{
	const struct populate *p = t->p;
	struct look last = { deadline_now(), 0 };
	uint64_t at, until;
	int ret;

	for (at = 0; at < p->bytes; at = until) {
		until = p->bytes - at < ROUND_BYTES ? p->bytes : at + ROUND_BYTES;
		ret = look_again(p, at, &last);
		if (ret)
			return ret;
		ret = do_round(t, at, until);
		if (ret)
			return failed(p, ret);
		if (p->progress && p->progress(p->progress_arg, until, p->bytes))
			return fail(ECANCELED, "the program called it off after %llu of %llu bytes", (unsigned long long)until,
				    (unsigned long long)p->bytes);
	}
	return 0;
}

static unsigned int threads_for(const struct populate *p)
{
	uint64_t n = p->bytes / THREAD_BYTES;
	unsigned int most = p->threads ? p->threads : THREADS_MAX;

	if (n > most)
		n = most;
	if (n > 1 && !p->threads) {
		most = cpus_usable();
		n = n < most ? n : most;
	}
	return n < 1 ? 1 : n < THREADS_MAX ? n : THREADS_MAX;
}

int populate(const struct populate *p)
{
	struct team team = {
		.p = p, .lock = PTHREAD_MUTEX_INITIALIZER, .start = PTHREAD_COND_INITIALIZER, .end = PTHREAD_COND_INITIALIZER
	};
	int ret;

	start_helpers(&team, threads_for(p) - 1);
	ret = run(&team);
	end_helpers(&team);
	return ret;
}
