/* SPDX-License-Identifier: MIT */
/* named: of many who load one file under one name, the first loads it and the others attach. */
#include "model.h"

#include "../advice.h"
#include "../error.h"
#include "publish.h"

#include <errno.h>
#include <pinion/holder.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_NS INT64_C(100000000)
/* How often a name is asked for whose holder is just going; a name that nobody can reach stays so. */
#define TAKE_TRIES 20
#define TAKE_PAUSE_US 10000
/* How often in a row a holder may leave the question unanswered how far it is (2 s each) before it is not waited for any more. */
#define SILENT_MAX 3

struct named {
	struct pinion_context *ctx;
	const char *name;
	const char *path;
	struct pinion_load_opts opts; /* the caller's */
	struct pinion_holder *holder;
	unsigned int silent; /* questions in a row that the name's holder did not answer */
};

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
	const struct named *n = arg;

	pinion_holder_progress(n->holder, done, total);
	return n->opts.progress ? n->opts.progress(n->opts.progress_arg, done, total) : 0;
}

/* With the name taken. */
static int load(struct named *n, struct pinion_model **out)
{
	struct pinion_load_opts opts = n->opts;
	int ret;

	opts.progress = on_progress;
	opts.progress_arg = n;
	ret = pinion_model_load(n->ctx, n->path, &opts, out);
	if (!ret) {
		ret = model_publish(n->holder, *out, true);
		if (ret)
			pinion_model_free(*out);
	}
	if (ret) {
		pinion_holder_free(n->holder);
		n->holder = NULL;
	}
	return ret;
}

/* 0: go on waiting for the one who loads. Else the caller has enough of that, or who has the name is stopped. */
static int report(struct named *n)
{
	struct pinion_name_info info = { .size = sizeof(info) };

	if (n->opts.cancel && __atomic_load_n(n->opts.cancel, __ATOMIC_RELAXED))
		return fail(ECANCELED, "waiting for '%s' was cancelled", n->name);
	/* It went: the next attach says so. */
	if (pinion_name_show(n->ctx, n->name, &info, NULL, 0, NULL))
		return 0;
	n->silent = strcmp(info.state, "not answering") ? 0 : n->silent + 1;
	if (n->silent)
		return n->silent < SILENT_MAX ? 0 : -ETIMEDOUT;
	if (n->opts.progress && n->opts.progress(n->opts.progress_arg, info.done, info.total))
		return fail(ECANCELED, "waiting for '%s' was cancelled", n->name);
	return 0;
}

/* Waits for whoever loads. */
static int attach(struct named *n, struct pinion_model **out)
{
	struct pinion_attach_opts opts = { .size = sizeof(opts) };
	int ret, enough = 0;

	do {
		opts.deadline_ns = pinion_deadline_in(TICK_NS);
		ret = pinion_model_attach(n->ctx, n->name, &opts, out);
		if (ret == -ETIMEDOUT)
			enough = report(n);
	} while (ret == -ETIMEDOUT && !enough);
	return enough ? enough : ret;
}

static int attach_to_same(struct named *n, struct pinion_model **out)
{
	struct pinion_model *m;
	int ret = attach(n, &m);

	if (ret)
		return ret;
	ret = model_match(m, n->path, n->opts.hash, n->opts.cancel);
	if (!ret) {
		*out = m;
		return 0;
	}
	pinion_model_free(m);
	if (ret == -ESTALE)
		ret = fail_advise(EEXIST, PINION_ADVICE_NAME_HELD, n->name, "'%s' is held already, and %s", n->name,
				  pinion_error());
	return ret;
}

/* The name's holder may go between the two steps, or fail in what it loads: then the name is asked for once more. */
static int take_or_attach(struct named *n, struct pinion_model **out)
{
	char *shown = realpath(n->path, NULL);
	int ret = 0;

	for (unsigned int i = 0; i < TAKE_TRIES; i++) {
		ret = pinion_holder_open(n->ctx, n->name, shown ? shown : n->path, &n->holder);
		if (ret != -EEXIST)
			break;
		ret = attach_to_same(n, out);
		if (ret != -ENOENT && ret != -EPIPE)
			break;
		usleep(TAKE_PAUSE_US);
	}
	free(shown);
	return ret;
}

PINION_API int pinion_model_load_named(struct pinion_context *ctx, const char *name, const char *path,
				       const struct pinion_load_opts *opts, struct pinion_holder **holder, struct pinion_model **out)
{
	struct named n = { .ctx = ctx, .name = name, .path = path, .opts = { .size = sizeof(n.opts) } };
	struct pinion_model *m;
	int ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&n.opts, sizeof(n.opts), opts, "pinion_load_opts");
	if (!ret)
		ret = take_or_attach(&n, &m);
	if (!ret && n.holder)
		ret = load(&n, &m);
	if (ret)
		return ret;
	*holder = n.holder;
	*out = m;
	return 0;
}
