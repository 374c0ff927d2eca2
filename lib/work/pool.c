/* SPDX-License-Identifier: MIT */
#include "pool.h"

#include "../advice.h"
#include "../deadline.h"
#include "../error.h"
#include "../fork.h"
#include "../machine/cpus.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

/* A worker that had nothing to do for so long ends. */
#define IDLE_NS INT64_C(2000000000)

static struct {
	pthread_mutex_t lock; /* all below; nothing else is taken under it */
	pthread_cond_t work;
	struct pool_job *first, *last;
	unsigned int limit; /* 0: not asked yet */
	unsigned int workers, idle, most;
} pool = { .lock = PTHREAD_MUTEX_INITIALIZER };

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void init_work(void)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&pool.work, &attr);
	pthread_condattr_destroy(&attr);
}

/* The jobs are the parent's, like the workers that will do them. */
static void renew(void)
{
	pool.first = pool.last = NULL;
	pool.workers = pool.idle = pool.most = pool.limit = 0;
	init_work();
}

DEFINE_WATCH_FORKS_AND(pool.lock, renew)

static void start(void)
{
	init_work();
	watch_forks();
}

/* Under lock. */
static void take(struct pool_job *job)
{
	*(job->prev ? &job->prev->next : &pool.first) = job->next;
	*(job->next ? &job->next->prev : &pool.last) = job->prev;
	job->queued = false;
}

/* Under lock: false when nothing came for long enough. */
static bool await_job(void)
{
	struct timespec until = deadline_timespec(deadline_now() + IDLE_NS);
	int err = 0;

	pool.idle++;
	while (!pool.first && err != ETIMEDOUT)
		err = pthread_cond_timedwait(&pool.work, &pool.lock, &until);
	pool.idle--;
	return pool.first;
}

static void *worker(void *arg)
{
	prctl(PR_SET_NAME, "pinion-worker");
	pthread_mutex_lock(&pool.lock);
	while (pool.first || await_job()) {
		struct pool_job *job = pool.first;

		take(job);
		pthread_mutex_unlock(&pool.lock);
		job->run(job);
		pthread_mutex_lock(&pool.lock);
	}
	pool.workers--;
	pthread_mutex_unlock(&pool.lock);
	return arg;
}

/* Under lock. 0 or an errno. */
static int start_worker(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, &attr, worker, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return err;
	pool.workers++;
	pool.most = pool.workers > pool.most ? pool.workers : pool.most;
	return 0;
}

unsigned int pool_limit(void)
{
	unsigned int limit;

	pthread_once(&once, start);
	pthread_mutex_lock(&pool.lock);
	limit = pool.limit;
	pthread_mutex_unlock(&pool.lock);
	if (limit)
		return limit;
	limit = cpus_usable();
	pthread_mutex_lock(&pool.lock);
	pool.limit = limit;
	pthread_mutex_unlock(&pool.lock);
	return limit;
}

unsigned int pool_most(void)
{
	unsigned int most;

	pthread_mutex_lock(&pool.lock);
	most = pool.most;
	pthread_mutex_unlock(&pool.lock);
	return most;
}

int pool_submit(struct pool_job *job)
{
	unsigned int limit = pool_limit(), waiting = 1;
	int err = 0;

	pthread_mutex_lock(&pool.lock);
	for (const struct pool_job *j = pool.first; j && waiting <= pool.idle; j = j->next)
		waiting++;
	if (waiting > pool.idle && pool.workers < limit)
		err = start_worker();
	if (err && !pool.workers) {
		pthread_mutex_unlock(&pool.lock);
		return fail_thread(err, "starting a worker thread");
	}
	job->next = NULL;
	job->prev = pool.last;
	*(pool.last ? &pool.last->next : &pool.first) = job;
	pool.last = job;
	job->queued = true;
	pthread_cond_signal(&pool.work);
	pthread_mutex_unlock(&pool.lock);
	return 0;
}

bool pool_withdraw(struct pool_job *job)
{
	bool was;

	pthread_mutex_lock(&pool.lock);
	was = job->queued;
	if (was)
		take(job);
	pthread_mutex_unlock(&pool.lock);
	return was;
}
