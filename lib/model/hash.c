/* SPDX-License-Identifier: MIT */
#include "hash.h"

#include "../deadline.h"
#include "../advice.h"
#include "../error.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <pinion/context.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define CHUNK (UINT64_C(1) << 20) /* hashed between two looks at what was reached */

_Static_assert(INDEX_SHA256_ROOM == 2 * SHA256_DIGEST_SIZE + 1, "two digits for a byte, and the end");

struct hash_sum {
	struct sha256_ctx sha;
	uint64_t pos; /* of the file, summed */
	uint8_t window[CHUNK];
};

struct file_hash {
	const struct index_block *block;
	const struct index_shard *shard;
	int fd;
	const char *data;
	struct hash_sum *sum; /* the thread's own */
	pthread_t thread;

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t changed;
	uint64_t reached;
	bool stop;
	bool done;
	int err;
	char sentence[SENTENCE_MAX];
	char hex[INDEX_SHA256_ROOM];
};

/* ---- the sum ------------------------------------------------------------------------------------------------------- */

int hash_sum_new(struct hash_sum **out)
{
	struct hash_sum *s = malloc(sizeof(*s));

	if (!s)
		return fail(ENOMEM, "no memory to hash a file");
	sha256_init(&s->sha);
	s->pos = 0;
	*out = s;
	return 0;
}

void hash_sum_free(struct hash_sum *s)
{
	free(s);
}

void hash_sum_bytes(struct hash_sum *s, const void *data, uint64_t bytes)
{
	sha256_update(&s->sha, bytes, data);
	s->pos += bytes;
}

/* One read's worth of what comes before @to. */
static int sum_some(struct hash_sum *s, int fd, uint64_t to)
{
	size_t want = to - s->pos < CHUNK ? to - s->pos : CHUNK;
	ssize_t got = pread(fd, s->window, want, s->pos);

	if (got < 0 && errno != EINTR)
		return fail_errno(errno, "reading at offset %llu to hash it", (unsigned long long)s->pos);
	if (got == 0)
		return fail(ENODATA, "the file ends at %llu, it shrank while it was hashed", (unsigned long long)s->pos);
	if (got > 0)
		hash_sum_bytes(s, s->window, got);
	return 0;
}

int hash_sum_file(struct hash_sum *s, int fd, uint64_t to)
{
	int ret = 0;

	while (s->pos < to && !ret)
		ret = sum_some(s, fd, to);
	return ret;
}

void hash_sum_end(struct hash_sum *s, char hex[INDEX_SHA256_ROOM])
{
	uint8_t digest[SHA256_DIGEST_SIZE];

	sha256_digest(&s->sha, sizeof(digest), digest);
	for (unsigned int i = 0; i < sizeof(digest); i++)
		sprintf(hex + 2 * i, "%02x", digest[i]);
}

/* ---- the thread that follows a load -------------------------------------------------------------------------------- */

/* Until the tensors' bytes before @to are in place; -ECANCELED where nobody wants to know any more. */
static int await(struct file_hash *h, uint64_t to)
{
	int ret = 0;

	pthread_mutex_lock(&h->lock);
	while (h->reached < to && !h->stop)
		pthread_cond_wait(&h->changed, &h->lock);
	if (h->stop)
		ret = fail(ECANCELED, "the hash is not wanted any more");
	pthread_mutex_unlock(&h->lock);
	return ret;
}

/* Hashes the file itself up to @to. */
static int hash_read(struct file_hash *h, uint64_t to)
{
	int ret = 0;

	while (h->sum->pos < to && !ret) {
		ret = await(h, 0);
		if (!ret)
			ret = sum_some(h->sum, h->fd, to);
	}
	return ret;
}

static int hash_tensor(struct file_hash *h, const struct index_tensor *t)
{
	uint64_t part;
	int ret = 0;

	for (uint64_t at = 0; at < t->bytes && !ret; at += part) {
		part = t->bytes - at < CHUNK ? t->bytes - at : CHUNK;
		ret = await(h, t->file_offset + at + part);
		if (!ret)
			hash_sum_bytes(h->sum, h->data + t->offset + at, part);
	}
	return ret;
}

static int hash_all(struct file_hash *h)
{
	const struct index_tensor *t = index_tensors(h->block) + h->shard->first;
	int ret = 0;

	for (uint64_t i = 0; h->data && i < h->shard->count && !ret; i++) {
		if (!t[i].bytes)
			continue;
		ret = hash_read(h, t[i].file_offset);
		if (!ret)
			ret = hash_tensor(h, &t[i]);
	}
	return ret ? ret : hash_read(h, h->shard->stamp.bytes);
}

static void *run(void *hash)
{
	struct file_hash *h = hash;
	int err;

	prctl(PR_SET_NAME, "pinion-hash");
	err = hash_all(h);
	pthread_mutex_lock(&h->lock);
	h->err = err;
	if (err)
		sentence_get(h->sentence);
	else
		hash_sum_end(h->sum, h->hex);
	h->done = true;
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

static void free_hash(struct file_hash *h)
{
	pthread_cond_destroy(&h->changed);
	pthread_mutex_destroy(&h->lock);
	hash_sum_free(h->sum);
	free(h);
}

/* Without signals, which are for the caller's threads. */
static int start(struct file_hash *h)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&h->thread, NULL, run, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err ? fail_thread(err, "starting a thread to hash") : 0;
}

int hash_begin(const struct index_block *block, uint32_t shard, int fd, const char *data, struct file_hash **out)
{
	struct file_hash *h = calloc(1, sizeof(*h));
	pthread_condattr_t attr;
	int ret;

	if (!h)
		return fail(ENOMEM, "no memory to hash a file");
	h->block = block;
	h->shard = &index_shards(block)[shard];
	h->fd = fd;
	h->data = data;
	pthread_mutex_init(&h->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&h->changed, &attr);
	pthread_condattr_destroy(&attr);
	ret = hash_sum_new(&h->sum);
	if (!ret)
		ret = start(h);
	if (ret) {
		free_hash(h);
		return ret;
	}
	*out = h;
	return 0;
}

void hash_reach(struct file_hash *h, uint64_t file_offset)
{
	pthread_mutex_lock(&h->lock);
	if (file_offset > h->reached) {
		h->reached = file_offset;
		pthread_cond_broadcast(&h->changed);
	}
	pthread_mutex_unlock(&h->lock);
}

int hash_wait(struct file_hash *h, int64_t deadline_ns, char hex[INDEX_SHA256_ROOM])
{
	struct timespec ts = deadline_timespec(deadline_ns);
	int err = 0, ret = 0;

	pthread_mutex_lock(&h->lock);
	while (!h->done && err != ETIMEDOUT)
		err = deadline_ns == PINION_FOREVER ? pthread_cond_wait(&h->changed, &h->lock) :
						      pthread_cond_timedwait(&h->changed, &h->lock, &ts);
	if (!h->done)
		ret = fail(ETIMEDOUT, "the file is not hashed yet");
	else if (h->err)
		ret = fail(-h->err, "%s", h->sentence);
	pthread_mutex_unlock(&h->lock);
	if (!ret)
		memcpy(hex, h->hex, sizeof(h->hex));
	return ret;
}

void hash_end(struct file_hash *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->stop = true;
	pthread_cond_broadcast(&h->changed);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	free_hash(h);
}
