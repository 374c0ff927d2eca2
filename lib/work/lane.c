/* SPDX-License-Identifier: MIT */
/* lane: which thread counts in which lane of its context's counter page. */
#include "account.h"

#include "../advice.h"
#include "../error.h"
#include "../fork.h"
#include "../provider/counts_ops.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/*
 * So many lanes are kept back for devices to come, so that a crowd of threads on one does not shut out the next. Beyond
 * that each device that has a lane is promised a shared one, so that a unit which has begun can always be ended.
 */
#define LANES_KEPT 8

_Thread_local struct lane_ref lane_cache[LANE_CACHE];

/* A lane that a thread has; the thread's list hangs on the key below. */
struct thread_lane {
	struct thread_lane *next;
	uint64_t device_id;
	uint32_t lane;
	bool shared;
};

/* Guards the lists of every thread and device, also against fork. Slow paths only; taken before the provider's locks. */
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pinion_device *live;
static uint64_t last_id;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_err;

DEFINE_WATCH_FORKS(lanes_lock)

static void thread_ends(void *arg)
{
	struct thread_lane *t = arg, *next;

	pthread_mutex_lock(&lanes_lock);
	for (; t; t = next) {
		next = t->next;
		for (struct pinion_device *dev = live; dev && !t->shared; dev = dev->live_next)
			if (dev->id == t->device_id)
				dev->lanes_idle |= UINT64_C(1) << t->lane;
		free(t);
	}
	pthread_mutex_unlock(&lanes_lock);
	/* A destructor that runs after this one may count again: it must find no lane that is another's by then. */
	for (unsigned int i = 0; i < LANE_CACHE; i++)
		lane_cache[i].device_id = 0;
}

static void start(void)
{
	key_err = pthread_key_create(&key, thread_ends);
	watch_forks();
}

/* Under lanes_lock. */
static struct thread_lane *thread_has(uint64_t device_id)
{
	for (struct thread_lane *t = pthread_getspecific(key); t; t = t->next)
		if (t->device_id == device_id)
			return t;
	return NULL;
}

/* Under lanes_lock: the lane that the device's threads share, made at its first use. */
static int share(struct pinion_device *dev, struct thread_lane *t)
{
	struct counts *counts = dev->ctx->counts;

	if (dev->shared_lane == PINION_LANES) {
		int ret = counts->ops->lane_attach(counts, &dev->at, true, &dev->shared_lane);

		if (ret)
			return ret;
		if (dev->promised)
			counts->lanes_promised--;
		dev->promised = false;
	}
	t->lane = dev->shared_lane;
	t->shared = true;
	return 0;
}

static bool is_live(uint64_t device_id)
{
	for (struct pinion_device *dev = live; dev; dev = dev->live_next)
		if (dev->id == device_id)
			return true;
	return false;
}

/* Under lanes_lock: forgets the lanes of contexts that are closed, or a thread that outlives many would collect them. */
static void forget_closed(void)
{
	struct thread_lane *first = pthread_getspecific(key), **at = &first, *t;

	while ((t = *at)) {
		if (is_live(t->device_id)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		free(t);
	}
	/* Setting a key that has a value allocates nothing, so it does not fail. */
	pthread_setspecific(key, first);
}

/* Under lanes_lock: takes the calling thread's own lane of a device from it; 0 when it has none. */
static uint64_t thread_loses(const struct pinion_device *dev)
{
	struct thread_lane *first = pthread_getspecific(key), *prev = NULL, *t;
	uint64_t lane;

	for (t = first; t && (t->device_id != dev->id || t->shared); t = t->next)
		prev = t;
	if (!t)
		return 0;
	if (prev)
		prev->next = t->next;
	else if (pthread_setspecific(key, t->next))
		return 0;
	lane = UINT64_C(1) << t->lane;
	free(t);
	if (lane_cache[dev->id % LANE_CACHE].device_id == dev->id)
		lane_cache[dev->id % LANE_CACHE].device_id = 0;
	return lane;
}

/*
 * Under lanes_lock: lanes of removed devices that nobody can count in come back: those of threads that have ended and the
 * calling thread's own. So a process that adds and removes devices for ever does not run out.
 */
static void return_lanes(struct pinion_context *ctx)
{
	for (struct pinion_device *dev = live; dev; dev = dev->live_next) {
		uint64_t lanes;

		if (dev->ctx != ctx || counts_device_current(&dev->at))
			continue;
		if (dev->promised)
			ctx->counts->lanes_promised--;
		dev->promised = false;
		lanes = dev->lanes_idle | thread_loses(dev);
		dev->lanes_idle = 0;
		if (lanes)
			ctx->counts->ops->lanes_return(ctx->counts, lanes);
	}
}

/* Under lanes_lock: a lane for this thread, its own while there are enough. */
static int choose(struct pinion_device *dev, struct thread_lane *t)
{
	struct counts *counts = dev->ctx->counts;
	bool has_shared = dev->promised || dev->shared_lane != PINION_LANES;
	uint32_t left;
	int ret;

	if (dev->lanes_idle) {
		t->lane = __builtin_ctzll(dev->lanes_idle);
		dev->lanes_idle &= dev->lanes_idle - 1;
		return 0;
	}
	left = counts_lanes_free(counts) - counts->lanes_promised;
	if (!has_shared && left == 0)
		return fail_advise(EAGAIN, PINION_ADVICE_LANES, NULL,
				   "this context counts on as many devices as its %u lanes allow", PINION_LANES);
	if (left <= LANES_KEPT + (has_shared ? 0u : 1u))
		return share(dev, t);
	ret = counts->ops->lane_attach(counts, &dev->at, false, &t->lane);
	if (!ret && !has_shared) {
		dev->promised = true;
		counts->lanes_promised++;
	}
	return ret;
}

/* Under lanes_lock. */
static int thread_gets(struct pinion_device *dev, struct thread_lane **out)
{
	struct thread_lane *t = calloc(1, sizeof(*t));
	int ret;

	if (!t)
		return fail(ENOMEM, "no memory for a counter lane");
	forget_closed();
	return_lanes(dev->ctx);
	ret = choose(dev, t);
	if (ret) {
		free(t);
		return ret;
	}
	t->device_id = dev->id;
	t->next = pthread_getspecific(key);
	ret = pthread_setspecific(key, t);
	if (ret) {
		if (!t->shared)
			dev->lanes_idle |= UINT64_C(1) << t->lane;
		free(t);
		return fail_errno(ret, "keeping a counter lane for this thread");
	}
	*out = t;
	return 0;
}

/*
 * Under lanes_lock: for a thread without memory to remember a lane of its own. The shared one need not be remembered, so that
 * a unit which has begun can be ended, by whatever thread.
 */
static int share_unnoted(struct pinion_device *dev, struct thread_lane *t)
{
	if (!dev->promised && dev->shared_lane == PINION_LANES)
		return -ENOMEM;
	return share(dev, t);
}

int lane_find(struct pinion_device *dev, struct lane_ref *out)
{
	struct counts *counts = dev->ctx->counts;
	struct pinion_counter_page *page = counts->page;
	struct thread_lane *t, unnoted = { 0 };
	int ret = 0;

	pthread_mutex_lock(&lanes_lock);
	t = thread_has(dev->id);
	if (!t)
		ret = thread_gets(dev, &t);
	if (ret == -ENOMEM) {
		t = &unnoted;
		ret = share_unnoted(dev, t);
	}
	if (!ret) {
		out->lane = &page->lane[t->lane];
		out->control = pinion_lane_control(page, t->lane);
		out->shared = t->shared;
		out->device_id = dev->id;
	}
	pthread_mutex_unlock(&lanes_lock);
	return ret;
}

int account_new(struct pinion_context *ctx, const struct counts_device *at, struct pinion_device **out)
{
	struct pinion_device *dev;

	pthread_once(&once, start);
	if (key_err)
		return fail_errno(key_err, "making a thread-specific key");
	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return fail(ENOMEM, "no memory for a device");
	dev->at = *at;
	dev->ctx = ctx;
	dev->mark = ctx->mark;
	dev->counts = ctx->counts;
	dev->shared_lane = PINION_LANES;
	pthread_mutex_lock(&lanes_lock);
	dev->id = ++last_id;
	dev->live_next = live;
	live = dev;
	pthread_mutex_unlock(&lanes_lock);
	*out = dev;
	return 0;
}

void account_free(struct pinion_device *dev)
{
	pthread_mutex_lock(&lanes_lock);
	for (struct pinion_device **p = &live; *p; p = &(*p)->live_next) {
		if (*p == dev) {
			*p = dev->live_next;
			break;
		}
	}
	pthread_mutex_unlock(&lanes_lock);
	free(dev);
}
