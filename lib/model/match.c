/* SPDX-License-Identifier: MIT */
/* match: whether a model in memory is what its files are now, and what differs where it is not. */
#include "model.h"

#include "../error.h"
#include "hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TICK_NS INT64_C(100000000)

/* "2026-11-30 01:55:02.000000001 UTC" */
static void time_shown(char out[64], int64_t sec, int64_t nsec)
{
	time_t t = sec;
	struct tm tm;
	size_t len = 0;

	if (gmtime_r(&t, &tm))
		len = strftime(out, 40, "%F %T", &tm);
	snprintf(out + len, 64 - len, ".%09lld UTC", (long long)nsec);
}

/* Whether file @i of @now is the one that was loaded, as it was: by inode or by name, and by size and time. */
static int match_stamp(const struct index_block *was, const struct index_block *now, uint32_t i)
{
	const struct index_shard *a = &index_shards(was)[i], *b = &index_shards(now)[i];
	char name[INDEX_SHOWN], then[64], today[64];

	path_shown(name, sizeof(name), index_string(now, b->name));
	if ((a->stamp.dev != b->stamp.dev || a->stamp.ino != b->stamp.ino) &&
	    strcmp(index_string(was, a->name), index_string(now, b->name)))
		return fail(ESTALE, "%s is another file", name);
	if (a->stamp.bytes != b->stamp.bytes)
		return fail(ESTALE, "%s had %" PRIu64 " bytes when it was loaded and has %" PRIu64 " now", name, a->stamp.bytes,
			    b->stamp.bytes);
	if (a->stamp.mtime_sec == b->stamp.mtime_sec && a->stamp.mtime_nsec == b->stamp.mtime_nsec)
		return 0;
	time_shown(then, a->stamp.mtime_sec, a->stamp.mtime_nsec);
	time_shown(today, b->stamp.mtime_sec, b->stamp.mtime_nsec);
	return fail(ESTALE, "%s was of %s when it was loaded and is of %s now", name, then, today);
}

static bool same_tensor(const struct index_block *was, const struct index_block *now, uint64_t i)
{
	const struct index_tensor *a = &index_tensors(was)[i], *b = &index_tensors(now)[i];

	return a->type == b->type && a->rank == b->rank && a->bytes == b->bytes && a->file_offset == b->file_offset &&
	       a->shard == b->shard && !memcmp(a->shape, b->shape, sizeof(a->shape)) &&
	       !strcmp(index_string(was, a->name), index_string(now, b->name));
}

static int match_index(const struct index_block *was, const struct index_block *now)
{
	char name[INDEX_SHOWN];
	int ret = 0;

	if (was->format != now->format)
		return fail(ESTALE, "the format is another one");
	if (was->shard_count != now->shard_count)
		return fail(ESTALE, "it was loaded from %" PRIu32 " files, now there are %" PRIu32, was->shard_count, now->shard_count);
	for (uint32_t i = 0; i < was->shard_count && !ret; i++)
		ret = match_stamp(was, now, i);
	if (ret)
		return ret;
	if (was->tensor_count != now->tensor_count)
		return fail(ESTALE, "it had %" PRIu64 " tensors when it was loaded and has %" PRIu64 " now", was->tensor_count,
			    now->tensor_count);
	for (uint64_t i = 0; i < was->tensor_count; i++)
		if (!same_tensor(was, now, i)) {
			path_shown(name, sizeof(name), index_string(now, index_tensors(now)[i].name));
			return fail(ESTALE, "tensor '%s' is not what it was when it was loaded", name);
		}
	return 0;
}

static int hash_now(const struct index_block *block, uint32_t i, int fd, const char *data, const bool *cancel,
		    char hex[INDEX_SHA256_ROOM])
{
	struct file_hash *hash;
	int ret = hash_begin(block, i, fd, data, &hash);

	if (ret)
		return ret;
	hash_reach(hash, UINT64_MAX);
	do
		ret = cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED) ? fail(ECANCELED, "the comparison was cancelled") :
									    hash_wait(hash, pinion_deadline_in(TICK_NS), hex);
	while (ret == -ETIMEDOUT);
	hash_end(hash);
	return ret;
}

/* Against the SHA-256 of the load, or of what is in memory where the load made none. */
static int match_contents(const struct pinion_model *m, const char *path, uint32_t i, const bool *cancel)
{
	const struct index_shard *shard = &index_shards(m->block)[i];
	char held[INDEX_SHA256_ROOM], now[INDEX_SHA256_ROOM], name[INDEX_SHOWN];
	int fd = index_open(path), ret;

	if (fd < 0)
		return fail_errno(-fd, "%s", path);
	memcpy(held, shard->sha256, sizeof(held));
	ret = hash_now(m->block, i, fd, NULL, cancel, now);
	if (!ret && !*held)
		ret = m->data ? hash_now(m->block, i, fd, m->data, cancel, held) :
				fail(ENODATA, "this process gave its mapping of the model up, and no SHA-256 was made when it was loaded");
	close(fd);
	if (ret || !strcmp(held, now))
		return ret;
	path_shown(name, sizeof(name), index_string(m->block, shard->name));
	return fail(ESTALE, "the SHA-256 of %s was %s when it was loaded and is %s now", name, held, now);
}

static int match_all_contents(const struct pinion_model *m, const char *path, const struct index_block *now, const bool *cancel)
{
	int ret = 0;

	for (uint32_t i = 0; i < now->shard_count && !ret; i++) {
		char *file = shard_path(path, index_string(now, index_shards(now)[i].name));

		ret = file ? match_contents(m, file, i, cancel) : fail(ENOMEM, "no memory for a path");
		free(file);
	}
	return ret;
}

int model_match(const struct pinion_model *m, const char *path, bool contents, const bool *cancel)
{
	struct index_block *now;
	char shown[INDEX_SHOWN];
	int ret = index_read_path(path, &now);

	if (ret)
		return ret;
	ret = match_index(m->block, now);
	if (!ret && contents)
		ret = match_all_contents(m, path, now, cancel);
	free(now);
	if (ret != -ESTALE)
		return ret;
	path_shown(shown, sizeof(shown), path);
	return fail(ESTALE, "%s is not what is in memory: %s", shown, pinion_error());
}

PINION_API int pinion_model_match(const struct pinion_model *m, const char *path, bool contents)
{
	return model_match(m, path, contents, NULL);
}
