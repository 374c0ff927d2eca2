/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "select.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_AT_FIRST 64

/*
 * A key and its present measurement. It is read without a lock, because selectors do so for each candidate of each
 * call. The measurement's two words belong together: seq is odd while they are written.
 */
struct finding {
	struct pinion_task task;
	enum pinion_backend_id backend;
	uint64_t hash;
	_Atomic uint32_t seq;
	_Atomic uint64_t ns;
	_Atomic uint64_t error; /* bits of a double */
	char source[];
};

/* Open addressing, at most half full. Once a slot is taken it stays so: readers need no lock. */
struct table {
	struct table *outgrown; /* kept until the judge goes, as a reader may be in it */
	size_t slots;		/* a power of two */
	_Atomic(struct finding *) slot[];
};

struct pinion_judge {
	pthread_mutex_t writing;
	_Atomic(struct table *) table;
	atomic_size_t size;
};

/* FNV-1a: sources are short. */
uint64_t source_hash(const char *kernel_source)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (const unsigned char *c = (const unsigned char *)kernel_source; *c; c++)
		hash = (hash ^ *c) * 0x100000001b3;
	return hash;
}

static uint64_t key_hash(const struct pinion_task *task, enum pinion_backend_id backend, uint64_t source)
{
	uint64_t hash = hash_mix(source, (uint64_t)task->op << 32 | task->size_class);

	return hash_mix(hash, (uint64_t)task->dtype << 32 | (uint64_t)backend);
}

static bool has_key(const struct finding *v, const struct pinion_task *task, enum pinion_backend_id backend,
		    const char *source)
{
	return v->task.op == task->op && v->task.dtype == task->dtype && v->task.size_class == task->size_class &&
	       v->backend == backend && !strcmp(v->source, source);
}

/* The finding of that key, NULL: none. */
static struct finding *find(const struct pinion_judge *judge, const struct pinion_task *task,
			    enum pinion_backend_id backend, const char *source, uint64_t hash)
{
	const struct table *t = atomic_load_explicit(&judge->table, memory_order_acquire);
	size_t i = hash & (t->slots - 1);
	struct finding *v;

	while ((v = atomic_load_explicit(&t->slot[i], memory_order_acquire))) {
		if (v->hash == hash && has_key(v, task, backend, source))
			return v;
		i = (i + 1) & (t->slots - 1);
	}
	return NULL;
}

/* The words' release and acquire order them with seq without fences. */
static void write_measure(struct finding *v, const struct pinion_measure *measure)
{
	uint32_t seq = atomic_load_explicit(&v->seq, memory_order_relaxed);
	uint64_t error;

	memcpy(&error, &measure->error, sizeof(error));
	atomic_store_explicit(&v->seq, seq + 1, memory_order_relaxed);
	atomic_store_explicit(&v->ns, measure->ns, memory_order_release);
	atomic_store_explicit(&v->error, error, memory_order_release);
	atomic_store_explicit(&v->seq, seq + 2, memory_order_release);
}

static void read_measure(const struct finding *v, struct pinion_measure *measure)
{
	uint64_t error;
	uint32_t seq;

	do {
		seq = atomic_load_explicit(&v->seq, memory_order_acquire);
		measure->ns = atomic_load_explicit(&v->ns, memory_order_acquire);
		error = atomic_load_explicit(&v->error, memory_order_acquire);
	} while (seq & 1 || atomic_load_explicit(&v->seq, memory_order_relaxed) != seq);
	memcpy(&measure->error, &error, sizeof(error));
}

static const struct finding *find_entry(const struct pinion_judge *judge, const struct pinion_task *task,
					const struct entry *e)
{
	const struct pinion_candidate *c = &e->candidate;

	return find(judge, task, c->backend, c->kernel_source, key_hash(task, c->backend, e->source));
}

bool judge_ns(const struct pinion_judge *judge, const struct pinion_task *task, const struct entry *e, uint64_t *ns)
{
	const struct finding *v = find_entry(judge, task, e);

	if (v)
		*ns = atomic_load_explicit(&v->ns, memory_order_relaxed);
	return v;
}

bool judge_measure(const struct pinion_judge *judge, const struct pinion_task *task, const struct entry *e,
		   struct pinion_measure *out)
{
	const struct finding *v = find_entry(judge, task, e);

	if (v)
		read_measure(v, out);
	return v;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static struct table *table_new(size_t slots)
{
	struct table *t = calloc(1, sizeof(*t) + slots * sizeof(t->slot[0]));

	if (t)
		t->slots = slots;
	return t;
}

static void insert(struct table *t, struct finding *v)
{
	size_t i = v->hash & (t->slots - 1);

	while (atomic_load_explicit(&t->slot[i], memory_order_relaxed))
		i = (i + 1) & (t->slots - 1);
	atomic_store_explicit(&t->slot[i], v, memory_order_release);
}

/* A table of twice the slots, with all that is in the present one, takes its place. */
static int grow(struct pinion_judge *judge)
{
	struct table *old = atomic_load_explicit(&judge->table, memory_order_relaxed);
	struct table *t = table_new(old->slots * 2);

	if (!t)
		return fail(ENOMEM, "no memory for %zu measurements", old->slots);
	for (size_t i = 0; i < old->slots; i++) {
		struct finding *v = atomic_load_explicit(&old->slot[i], memory_order_relaxed);

		if (v)
			insert(t, v);
	}
	t->outgrown = old;
	atomic_store_explicit(&judge->table, t, memory_order_release);
	return 0;
}

static int add(struct pinion_judge *judge, const struct pinion_task *task, enum pinion_backend_id backend,
	       const char *source, uint64_t hash, const struct pinion_measure *measure)
{
	size_t size = atomic_load_explicit(&judge->size, memory_order_relaxed), length = strlen(source) + 1;
	struct finding *v;
	int ret = 0;

	if (2 * (size + 1) > atomic_load_explicit(&judge->table, memory_order_relaxed)->slots)
		ret = grow(judge);
	if (ret)
		return ret;
	v = calloc(1, sizeof(*v) + length);
	if (!v)
		return fail(ENOMEM, "no memory for a measurement: %zu bytes", sizeof(*v) + length);
	v->task = *task;
	v->backend = backend;
	v->hash = hash;
	memcpy(v->source, source, length);
	write_measure(v, measure);
	insert(atomic_load_explicit(&judge->table, memory_order_relaxed), v);
	atomic_store_explicit(&judge->size, size + 1, memory_order_relaxed);
	return 0;
}

PINION_API int pinion_judge_new(struct pinion_judge **out)
{
	struct pinion_judge *judge = calloc(1, sizeof(*judge));
	struct table *t = table_new(SLOTS_AT_FIRST);

	if (!judge || !t) {
		free(t);
		free(judge);
		return fail(ENOMEM, "no memory for %d measurements", SLOTS_AT_FIRST / 2);
	}
	pthread_mutex_init(&judge->writing, NULL);
	atomic_init(&judge->table, t);
	*out = judge;
	return 0;
}

PINION_API void pinion_judge_free(struct pinion_judge *judge)
{
	struct table *t, *outgrown;

	if (!judge)
		return;
	t = atomic_load(&judge->table);
	for (size_t i = 0; i < t->slots; i++)
		free(atomic_load_explicit(&t->slot[i], memory_order_relaxed));
	for (; t; t = outgrown) {
		outgrown = t->outgrown;
		free(t);
	}
	pthread_mutex_destroy(&judge->writing);
	free(judge);
}

/* ---- measurements ------------------------------------------------------------------------------------------------ */

PINION_API int pinion_judge_put(struct pinion_judge *judge, const struct pinion_task *task,
				enum pinion_backend_id backend, const char *kernel_source,
				const struct pinion_measure *measure)
{
	const char *source = kernel_source ? kernel_source : "";
	uint64_t hash = key_hash(task, backend, source_hash(source));
	struct finding *v;
	int ret = 0;

	if (!pinion_backend_name(backend))
		return fail(EINVAL, "a measurement's backend is %u, which is none", (unsigned int)backend);
	if (!(measure->error >= 0 && isfinite(measure->error)))
		return fail(EINVAL, "a measured error is finite and not below 0; this one is %g", measure->error);
	pthread_mutex_lock(&judge->writing);
	v = find(judge, task, backend, source, hash);
	if (v)
		write_measure(v, measure);
	else
		ret = add(judge, task, backend, source, hash, measure);
	pthread_mutex_unlock(&judge->writing);
	return ret;
}

PINION_API int pinion_judge_get(const struct pinion_judge *judge, const struct pinion_task *task,
				enum pinion_backend_id backend, const char *kernel_source, struct pinion_measure *out)
{
	const char *source = kernel_source ? kernel_source : "", *op = pinion_op_name(task->op);
	const struct finding *v = find(judge, task, backend, source, key_hash(task, backend, source_hash(source)));

	if (!v)
		return fail(ENODATA, "%s of size class %" PRIu32 " by '%s' was not measured", op ? op : "an unknown op",
			    task->size_class, source);
	read_measure(v, out);
	return 0;
}

PINION_API size_t pinion_judge_size(const struct pinion_judge *judge)
{
	return atomic_load_explicit(&judge->size, memory_order_relaxed);
}
