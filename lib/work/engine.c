/* SPDX-License-Identifier: MIT */
/* engine: which one a stream gets. */
#include "engine.h"

#include "../error.h"
#include "../machine/ring.h"
#include "stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What the variable says, and why that is not io_uring. NULL: what is better here; -EINVAL: it says something else. */
static int forced(const struct engine_ops **out, const char **why)
{
	const char *name = secure_getenv("PINION_ENGINE");

	*out = NULL;
	*why = "";
	if (!name || !*name)
		return 0;
	if (!strcmp(name, "uring"))
		*out = &engine_uring;
	else if (!strcmp(name, "threads"))
		*out = &engine_threads, *why = "PINION_ENGINE says so";
	else
		return fail(EINVAL, "PINION_ENGINE is '%s'; it may be uring, threads, or not set", name);
	return 0;
}

/* What an io_uring that could not be had says. */
static const char *why_threads(int err)
{
	return err == ENOMEM ? "there was no memory for a ring" : "io_uring is refused here";
}

int engine_open(struct pinion_stream *s)
{
	int ret = forced(&s->ops, &s->stats.engine_why);

	if (ret)
		return ret;
	if (!s->ops && s->opts.count == PINION_COUNT_CHAIN)
		s->ops = &engine_uring;
	if (s->ops == &engine_threads && s->opts.count == PINION_COUNT_CHAIN)
		return fail(EOPNOTSUPP,
			    "chains are io_uring's, and PINION_ENGINE=threads: leave it, or count by PINION_COUNT_PAGE");
	if (!s->ops) {
		s->ops = &engine_uring;
		ret = s->ops->open(s);
		if (ret != -EOPNOTSUPP && ret != -ENOMEM)
			goto out;
		s->ops = &engine_threads;
		s->stats.engine_why = why_threads(-ret);
	}
	ret = s->ops->open(s);
out:
	s->stats.engine = s->ops->name;
	return ret;
}

/* 0, or why a stream gets no ring: a number of errno. */
static int try_ring(void)
{
	struct io_uring ring;
	int ret = ring_open(2, &ring);

	if (ret)
		return -ret;
	ret = ring_enter(&ring);
	io_uring_queue_exit(&ring);
	return -ret;
}

/* What threads do instead of. Anything else passes, or is the caller's to mend, and fails a stream. */
static bool is_refusal(int err)
{
	return ring_is_refused(err) || err == ENOMEM;
}

const char *engine_default(const char **why)
{
	const struct engine_ops *ops;
	int err;

	if (forced(&ops, why)) {
		*why = "PINION_ENGINE is neither uring nor threads";
		return ENGINE_NONE;
	}
	if (ops == &engine_threads)
		return ops->name;
	err = try_ring();
	if (!err)
		return engine_uring.name;
	*why = is_refusal(err) ? why_threads(err) : strerrordesc_np(err);
	return ops || !is_refusal(err) ? ENGINE_NONE : engine_threads.name;
}
