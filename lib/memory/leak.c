/* SPDX-License-Identifier: MIT */
/*
 * leak: a name's record, socket and half-written record (name.c) go with whoever next asks for the name. Here they are looked
 * for. The module's buffers live as long as anybody has them, so that one may outlive its maker, and be forgotten.
 */
#include <pinion/leak.h>

#include "../advice.h"
#include "../provider/kmod.h"
#include "name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What is found is collected under the lock and shown after it, because who is shown it may ask for names. */
struct found {
	struct pinion_context *ctx;
	bool remove;
	struct pinion_leak *leak;
	size_t n, room;
};

static int add(struct found *found, const struct pinion_leak *leak)
{
	struct pinion_leak *more;

	if (found->n == found->room) {
		more = reallocarray(found->leak, 2 * found->room + 16, sizeof(*more));
		if (!more)
			return fail(ENOMEM, "no memory for a list of leaks");
		found->leak = more;
		found->room = 2 * found->room + 16;
	}
	found->leak[found->n++] = *leak;
	return 0;
}

/* ---- the runtime directory ----------------------------------------------------------------------------------------- */

static uint64_t age_of(const struct stat *st)
{
	struct timespec now;
	int64_t ns;

	clock_gettime(CLOCK_REALTIME, &now);
	ns = (now.tv_sec - st->st_mtim.tv_sec) * INT64_C(1000000000) + now.tv_nsec - st->st_mtim.tv_nsec;
	return ns > 0 ? ns : 0;
}

/* Looks at one file of a name; under rundir_lock(). */
static int look_at_file(void *arg, const char *file, const char *name, bool is_record)
{
	struct found *found = arg;
	struct pinion_context *ctx = found->ctx;
	struct pinion_leak leak = { .size = sizeof(leak), .kind = is_record ? "name" : "file", .removable = true };
	enum name_state state;
	struct stat st;
	int ret = name_state(ctx, name, &state, &leak.pid);

	if (ret)
		return ret;
	/* A socket and a record belong together; a record is half-written only under the lock, which is ours. */
	if (state == NAME_STATE_HELD && strcmp(strrchr(file, '.'), ".new"))
		return 0;
	/* The record stands for its socket too. */
	if (state == NAME_STATE_DEAD && !is_record)
		return 0;
	if (state != NAME_STATE_DEAD)
		leak.kind = "file";
	if (fstatat(ctx->dir.fd, file, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : fail_errno(errno, "%s/%s", ctx->dir.path, file);
	leak.age_ns = age_of(&st);
	leak.bytes = st.st_size;
	snprintf(leak.what, sizeof(leak.what), "%.80s", state == NAME_STATE_DEAD ? name : file);
	if (state == NAME_STATE_DEAD)
		snprintf(leak.why, sizeof(leak.why), "its holder, process %" PRId32 ", is dead", leak.pid);
	else
		snprintf(leak.why, sizeof(leak.why), "%s",
			 state == NAME_STATE_HELD ? "half-written by one who was killed" : "no record says whose it is");
	if (found->remove && state == NAME_STATE_DEAD)
		name_remove_files(ctx, name);
	else if (found->remove && unlinkat(ctx->dir.fd, file, 0))
		return fail_errno(errno, "removing %s/%s", ctx->dir.path, file);
	return add(found, &leak);
}

static int look_at_dir(struct found *found)
{
	int lock, ret = rundir_lock(&found->ctx->dir, &lock);

	if (ret)
		return ret;
	ret = name_each_file(found->ctx, look_at_file, found);
	rundir_unlock(lock);
	return ret;
}

/* ---- the module ---------------------------------------------------------------------------------------------------- */

static int look_at_buffer(void *arg, const struct pinion_module_buffer *row)
{
	struct pinion_leak leak = {
		.size = sizeof(leak), .kind = "buffer", .pid = row->pid, .bytes = row->bytes, .age_ns = row->age_ns
	};

	/* Of another pid namespace nothing is known; of other users only the sum. */
	if (row->uid == UINT32_MAX || row->pid <= 0 || !kill(row->pid, 0) || errno != ESRCH)
		return 0;
	snprintf(leak.what, sizeof(leak.what), "%" PRIu64 " %.32s", row->id, row->name);
	snprintf(leak.why, sizeof(leak.why), "its maker, process %" PRId32 ", is dead, and others still have it", row->pid);
	return add(arg, &leak);
}

/* ---- the living ---------------------------------------------------------------------------------------------------- */

static int look_at_name(void *arg, const struct pinion_name_info *info)
{
	struct pinion_leak leak = { .size = sizeof(leak), .pid = info->pid, .bytes = info->bytes, .age_ns = info->age_ns };

	if (!strcmp(info->state, "not answering")) {
		leak.kind = "silent";
		snprintf(leak.why, sizeof(leak.why), "its holder lives and does not answer");
	} else if (!strcmp(info->state, "ready") && !info->attached) {
		leak.kind = "unused";
		snprintf(leak.why, sizeof(leak.why), "nobody is attached to it");
	} else {
		return 0;
	}
	snprintf(leak.what, sizeof(leak.what), "%s", info->name);
	return add(arg, &leak);
}

PINION_API int pinion_leak_list(struct pinion_context *ctx, bool remove, pinion_leak_fn fn, void *arg)
{
	struct found found = { .ctx = ctx, .remove = remove };
	int ret = context_check(ctx);

	if (!ret)
		ret = look_at_dir(&found);
	if (!ret)
		ret = name_each(ctx, false, look_at_name, &found);
	if (!ret && ctx->device)
		ret = pinion_module_buffers(look_at_buffer, &found);
	for (size_t i = 0; i < found.n && !ret; i++)
		ret = fn(arg, &found.leak[i]);
	free(found.leak);
	return ret;
}
