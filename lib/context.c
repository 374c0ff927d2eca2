/* SPDX-License-Identifier: MIT */
#include "context.h"

#include "deadline.h"
#include "error.h"
#include "work/account.h"

#include <errno.h>
#include <stdlib.h>
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
	ctx->provider = &provider_memfd;
	pthread_mutex_init(&ctx->lock, NULL);
	ret = process_mark(&ctx->mark);
	if (ret)
		goto err_free;
	ret = rundir_open(own.dir, &ctx->dir);
	if (ret)
		goto err_free;
	ret = counts_open(&ctx->dir, &ctx->counts);
	if (ret)
		goto err_dir;
	*out = ctx;
	return 0;

err_dir:
	rundir_close(&ctx->dir);
err_free:
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
	own.dir = ctx->dir.path;
	own.engine = "io_uring";
	own.page_size = sysconf(_SC_PAGESIZE);
	own.huge_size = ctx->provider->huge_size(&own.huge_why);
	own.memlock_limit = getrlimit(RLIMIT_MEMLOCK, &lim) || lim.rlim_cur == RLIM_INFINITY ? UINT64_MAX : lim.rlim_cur;
	return opts_out(info, &own, sizeof(own), "pinion_context_info");
}
