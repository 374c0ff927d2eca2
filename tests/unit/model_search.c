/* SPDX-License-Identifier: MIT */
#include "model_search.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "model_memory.h"
#include "model_module.h"
#include "model_path.h"
#include "model_threads.h"
#include "model_truth.h"

#define MOVES_MAX 32

/* ---- moments seen ----------------------------------------------------------------------------------------------- */

struct key {
	__u64 a, b;
};

/* A moment whose schedules are not counted yet is on the path: to meet it again is a loop. */
#define SCHEDULES_OPEN (-1.0)

struct seen {
	struct key key;
	double schedules;
};

#define SEEN_ALIGN ((size_t)2 << 20)

static struct {
	struct seen *slot;
	__u64 size, used;
} seen;

static struct seen *seen_find(struct key key)
{
	__u64 i = key.a & (seen.size - 1);

	while (seen.slot[i].key.a && (seen.slot[i].key.a != key.a || seen.slot[i].key.b != key.b))
		i = (i + 1) & (seen.size - 1);
	return &seen.slot[i];
}

/* Every look-up misses the caches; with large pages it does not miss the TLB as well. */
static void *seen_alloc(size_t bytes)
{
	void *p = aligned_alloc(SEEN_ALIGN, (bytes + SEEN_ALIGN - 1) & -SEEN_ALIGN);

	if (!p) {
		fprintf(stderr, "model: no memory for %zu bytes of moments\n", bytes);
		exit(1);
	}
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 0, bytes);
	return p;
}

static void seen_resize(__u64 size)
{
	struct seen *old = seen.slot;
	__u64 i, n = seen.size;

	seen.slot = seen_alloc(size * sizeof(*seen.slot));
	seen.size = size;
	for (i = 0; i < n; i++)
		if (old[i].key.a)
			*seen_find(old[i].key) = old[i];
	free(old);
}

static struct seen *seen_add(struct key key)
{
	struct seen *slot = seen_find(key);

	if (slot->key.a)
		return slot;
	if (++seen.used * 4 > seen.size * 3) {
		seen_resize(seen.size * 2);
		slot = seen_find(key);
	}
	slot->key = key;
	slot->schedules = SCHEDULES_OPEN;
	return slot;
}

static __u64 mix(__u64 x, __u64 factor)
{
	unsigned __int128 wide = (unsigned __int128)x * factor;

	return (__u64)wide ^ (__u64)(wide >> 64);
}

/* Only what the rest of the schedule can depend on: the live part of each log and buffer. */
static unsigned int canonical(const struct state *s, __u8 *out)
{
	const struct thread *th;
	unsigned int t, n = offsetof(struct state, thread);

	memcpy(out, s, n);
	for (t = 0; t < THREADS; t++) {
		th = &s->thread[t];
		memcpy(out + n, th, offsetof(struct thread, next));
		n += offsetof(struct thread, next);
		memcpy(out + n, th->log, th->loads);
		n += th->loads;
		memcpy(out + n, th->buffer, th->depth * sizeof(th->buffer[0]));
		n += th->depth * sizeof(th->buffer[0]);
	}
	memset(out + n, 0, 8);
	return n;
}

static struct key key_of(const struct state *s)
{
	__u8 bytes[sizeof(struct state) + 8] __attribute__((aligned(8)));
	unsigned int n = canonical(s, bytes), i;
	struct key key = { 0x6a09e667f3bcc909, n };
	__u64 w;

	for (i = 0; i < n; i += 8) {
		memcpy(&w, bytes + i, 8);
		key.a = mix(key.a ^ w, 0x9e3779b97f4a7c15);
		key.b = mix(key.b + w, 0xc2b2ae3d27d4eb4f) ^ key.a;
	}
	key.a |= key.a == 0;
	return key;
}

/* ---- moves ------------------------------------------------------------------------------------------------------ */

static unsigned int add(struct move *moves, unsigned int n, unsigned int kind, unsigned int t, unsigned int unit)
{
	if (n == MOVES_MAX)
		abort();
	moves[n] = (struct move){ kind, t, unit };
	return n + 1;
}

/* What the threads do by themselves. */
static unsigned int list_moves(const struct state *s, struct move *moves)
{
	unsigned int t, unit, i, n = 0;

	for (t = 0; t < THREADS; t++) {
		for (i = 0; i < s->thread[t].depth; i++)
			if (memory_may_drain(s, t, i))
				n = add(moves, n, MOVE_DRAIN, t, i);
		if (thread_ready(s, t))
			n = add(moves, n, MOVE_STEP, t, 0);
	}
	for (t = WRITER_A; t <= WRITER_B; t++) {
		if (thread_may_begin(s, t, &unit))
			n = add(moves, n, MOVE_BEGIN, t, unit);
		for (unit = 0; unit < model.units; unit++)
			if (thread_may_end(s, t, unit))
				n = add(moves, n, MOVE_END, t, unit);
	}
	if (thread_may_flush(s))
		n = add(moves, n, MOVE_FLUSH, FLUSHER, 0);
	for (t = WRITER_B; t <= TAKER; t++)
		if (module_may_lock(s, t))
			n = add(moves, n, MOVE_LOCK, t, 0);
	return n;
}

/* What befalls them. */
static unsigned int list_deaths(const struct state *s, struct move *moves, unsigned int n)
{
	if (thread_may_die(s, FLUSHER))
		n = add(moves, n, MOVE_DIE, FLUSHER, 0);
	if (thread_may_die(s, TAKER))
		n = add(moves, n, MOVE_DIE, TAKER, 0);
	if (thread_may_kill(s))
		n = add(moves, n, MOVE_KILL, TAKER, 0);
	return n;
}

static void make(struct state *s, const struct move *move)
{
	switch (move->kind) {
	case MOVE_STEP:
		thread_step(s, move->thread);
		break;
	case MOVE_DRAIN:
		thread_drain(s, move->thread, move->unit);
		break;
	case MOVE_BEGIN:
		thread_begin(s, move->thread, move->unit);
		break;
	case MOVE_END:
		thread_end(s, move->thread, move->unit);
		break;
	case MOVE_FLUSH:
		thread_flush(s);
		break;
	case MOVE_LOCK:
		module_lock(s, move->thread);
		break;
	case MOVE_DIE:
		thread_die(s, move->thread);
		break;
	case MOVE_KILL:
		thread_kill(s);
		break;
	}
	truth_watch(s);
}

/* ---- all of them ------------------------------------------------------------------------------------------------ */

static double explore(const struct state *s, struct search_result *r);

static double follow(const struct state *s, struct search_result *r)
{
	struct key key = key_of(s);
	__u64 used = seen.used, size;
	struct seen *slot = seen_add(key);
	double schedules = slot->schedules;

	if (seen.used == used) {
		if (schedules == SCHEDULES_OPEN)
			broke(ENDLESS);
		return schedules;
	}
	size = seen.size;
	schedules = explore(s, r);
	if (seen.size != size)
		slot = seen_find(key);
	slot->schedules = schedules;
	return schedules;
}

static double explore(const struct state *s, struct search_result *r)
{
	struct move moves[MOVES_MAX];
	unsigned int i, n = list_moves(s, moves);
	double schedules = 0;
	struct state next;

	truth_check(s);
	/* Nobody may need a death to go on. */
	if (!n)
		threads_over(s);
	n = list_deaths(s, moves, n);
	if (path_length() > r->longest)
		r->longest = path_length();
	for (i = 0; i < n && model.broken == HOLDS; i++) {
		path_push(s, &moves[i]);
		next = *s;
		make(&next, &moves[i]);
		r->moves++;
		if (model.broken == HOLDS)
			schedules += follow(&next, r);
		if (model.broken == HOLDS)
			path_pop();
	}
	return n ? schedules : 1;
}

void search_setup(const struct config *cfg, struct state *s)
{
	model.cfg = cfg;
	truth_setup();
	memory_setup();
	threads_start(s);
}

struct search_result search(const struct config *cfg)
{
	struct search_result r = { HOLDS, 0, 0, 0, 0, 0 };
	struct state s;

	search_setup(cfg, &s);
	path_clear();
	seen.used = 0;
	seen_resize(1 << 16);
	r.schedules = follow(&s, &r);
	r.moments = seen.used;
	r.broken = model.broken;
	r.reached = model.reached;
	free(seen.slot);
	memset(&seen, 0, sizeof(seen));
	return r;
}
