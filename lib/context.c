/* SPDX-License-Identifier: MIT */
#include "context.h"

#include "deadline.h"
#include "error.h"
#include "provider/counts_ops.h"
#include "provider/kmod.h"
#include "provider/kmod_counts.h"
#include "work/account.h"
#include "work/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

PINION_API const char *pinion_version(void)
{
	return PINION_VERSION;
}

PINION_API int64_t pinion_deadline_in(int64_t ns)
{
	int64_t now = deadline_now(), deadline;

	if (ns <= 0)
		return now;
	return __builtin_add_overflow(now, ns, &deadline) ? PINION_FOREVER : deadline;
}

/* Chooses the ground: the one that was named, else the module's where it can be had; why not is kept for who asks. */
static int take_ground(struct pinion_context *ctx, const char *named)
{
	int ret;

	if (!named || !*named)
		named = secure_getenv("PINION_GROUND");
	if (!named || !*named)
		named = "auto";
	ctx->provider = &provider_memfd;
	if (!strcmp(named, provider_memfd.name)) {
		snprintf(ctx->ground_why, sizeof(ctx->ground_why), "memfd was asked for");
		return 0;
	}
	if (strcmp(named, provider_kmod.name) && strcmp(named, "auto"))
		return fail(EINVAL, "the ground is \"kmod\", \"memfd\" or \"auto\", not \"%.64s\"", named);
	ret = kmod_open(O_RDWR, &ctx->device);
	if (!ret)
		ctx->provider = &provider_kmod;
	else if (strcmp(named, "auto"))
		return ret;
	else
		sentence_get(ctx->ground_why);
	return 0;
}

PINION_API int pinion_open(const struct pinion_open_opts *opts, struct pinion_context **out)
{
	struct pinion_open_opts own = { .size = sizeof(own) };
	struct pinion_context *ctx;
	int ret = opts_in(&own, sizeof(own), opts, "pinion_open_opts");

	if (ret)
		return ret;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return fail(ENOMEM, "no memory for a context");
	ret = take_ground(ctx, own.ground);
	if (ret) {
		free(ctx);
		return ret;
	}
	pthread_mutex_init(&ctx->lock, NULL);
	ret = process_mark(&ctx->mark);
	if (ret)
		goto err_free;
	ret = rundir_open(own.dir, &ctx->dir);
	if (ret)
		goto err_free;
	ret = counts_open(&ctx->dir, &ctx->counts);
	if (!ret && kmod_counts_exist(ctx->device)) {
		ret = kmod_counts_open(ctx->counts);
		if (ret)
			counts_close(ctx->counts);
	}
	if (ret)
		goto err_dir;
	*out = ctx;
	return 0;

err_dir:
	rundir_close(&ctx->dir);
err_free:
	kmod_close(ctx->device);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
	return ret;
}

PINION_API void pinion_close(struct pinion_context *ctx)
{
	struct pinion_device *dev, *next;

	if (!ctx)
		return;
	for (dev = ctx->devices; dev; dev = next) {
		next = dev->next;
		account_free(dev);
	}
	counts_close(ctx->counts);
	rundir_close(&ctx->dir);
	kmod_close(ctx->device);
	free(ctx);
}

PINION_API int pinion_context_info(const struct pinion_context *ctx, struct pinion_context_info *info)
{
	struct pinion_context_info own = { .size = sizeof(own) };
	struct rlimit lim;
	int ret = context_check(ctx);

	if (ret)
		return ret;
	own.ground = ctx->provider->name;
	own.ground_why = ctx->ground_why;
	own.dir = ctx->dir.path;
	own.engine = engine_default(&own.engine_why);
	own.counts = ctx->counts->ops->name;
	own.apart = counts_apart(ctx->counts);
	own.page_size = sysconf(_SC_PAGESIZE);
	own.huge_size = ctx->provider->huge_size(ctx->device, &own.huge_why);
	own.memlock_limit = getrlimit(RLIMIT_MEMLOCK, &lim) || lim.rlim_cur == RLIM_INFINITY ? UINT64_MAX : lim.rlim_cur;
	return opts_out(info, &own, sizeof(own), "pinion_context_info");
}
