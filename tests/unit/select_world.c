/* SPDX-License-Identifier: MIT */
#include "select_world.h"

#include <stdlib.h>

static const struct signals *signals_of(struct pinion_runtime *rt)
{
	const struct handle *h = (const struct handle *)rt;

	return &h->world->at[h->location.kind][h->location.index];
}

int handle_available(struct pinion_runtime *rt, uint64_t *bytes)
{
	if (!signals_of(rt)->has_available)
		return -ENODATA;
	*bytes = signals_of(rt)->available;
	return 0;
}

int handle_total(struct pinion_runtime *rt, uint64_t *bytes)
{
	if (!signals_of(rt)->has_total)
		return -ENODATA;
	*bytes = signals_of(rt)->total;
	return 0;
}

/* Derived as without it, and counted. */
static enum pinion_fit handle_would_fit(struct pinion_runtime *rt, uint64_t bytes)
{
	struct handle *h = (struct handle *)rt;
	const struct signals *s = signals_of(rt);

	atomic_fetch_add(&h->world->fits[h->location.kind][h->location.index], 1);
	return pinion_fit_of(s->has_available ? &s->available : NULL, s->has_total ? &s->total : NULL, bytes);
}

int handle_pending(struct pinion_runtime *rt, uint32_t *n)
{
	if (!signals_of(rt)->has_pending)
		return -ENODATA;
	*n = signals_of(rt)->pending;
	return 0;
}

static int handle_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	*n = signals_of(rt)->capacity;
	return 0;
}

static int handle_flush(struct pinion_runtime *rt, int64_t deadline_ns)
{
	(void)rt;
	return deadline_ns ? 0 : -ETIMEDOUT;
}

static void handle_free(struct pinion_runtime *rt)
{
	struct handle *h = (struct handle *)rt;

	atomic_fetch_sub(&h->world->handles, 1);
	free(h);
}

/* The four that there are: synchronous or with a queue, the selector's or lent. */
static const struct pinion_runtime_ops plain = {
	.available = handle_available,
	.total = handle_total,
	.free = handle_free,
};

static const struct pinion_runtime_ops queued = {
	.available = handle_available,
	.total = handle_total,
	.would_fit = handle_would_fit,
	.pending = handle_pending,
	.capacity = handle_capacity,
	.flush = handle_flush,
	.free = handle_free,
};

static const struct pinion_runtime_ops plain_lent = { .available = handle_available, .total = handle_total };

static const struct pinion_runtime_ops queued_lent = {
	.available = handle_available,
	.total = handle_total,
	.would_fit = handle_would_fit,
	.pending = handle_pending,
	.capacity = handle_capacity,
	.flush = handle_flush,
};

static struct handle *handle_new(struct world *w, struct pinion_location location)
{
	struct handle *h = calloc(1, sizeof(*h));
	bool streams = w->at[location.kind][location.index].streams;

	h->runtime.ops = w->lends ? (streams ? &queued_lent : &plain_lent) : (streams ? &queued : &plain);
	h->world = w;
	h->location = location;
	return h;
}

struct pinion_runtime *lookup(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	struct world *w = arg;
	int handles;

	(void)backend;
	atomic_fetch_add(&w->lookups[device.kind][device.index], 1);
	if (!w->at[device.kind][device.index].there)
		return NULL;
	if (w->lends)
		return &w->lent[device.kind][device.index]->runtime;
	handles = atomic_fetch_add(&w->handles, 1) + 1;
	if (handles > atomic_load(&w->handles_most))
		atomic_store(&w->handles_most, handles);
	return &handle_new(w, device)->runtime;
}

struct pinion_runtime *lend(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	(void)backend;
	return device.kind == PINION_BACKEND_CUDA ? arg : NULL;
}

uint64_t estimate_must_not_run(void *arg, const struct pinion_candidate *c)
{
	(void)arg;
	(void)c;
	ck_abort_msg("an estimator ran");
	return 0;
}

struct pinion_runtime *lookup_must_not_run(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	(void)arg;
	(void)backend;
	(void)device;
	ck_abort_msg("a lookup ran");
	return NULL;
}

void world_lends(struct world *w)
{
	w->lends = true;
	for (unsigned int kind = 1; kind < COUNT(w->lent); kind++)
		for (uint32_t i = 0; i < COUNT(w->lent[0]); i++)
			w->lent[kind][i] = handle_new(w, (struct pinion_location){ (enum pinion_backend_id)kind, i });
}

void world_end(struct world *w)
{
	ck_assert_int_eq(atomic_load(&w->handles), 0);
	for (unsigned int kind = 0; kind < COUNT(w->lent); kind++)
		for (uint32_t i = 0; i < COUNT(w->lent[0]); i++)
			free(w->lent[kind][i]);
}

static int no_kernel(const struct pinion_kernel_call *call)
{
	(void)call;
	return 0;
}

struct pinion_candidate candidate(enum pinion_backend_id backend, uint32_t index, uint64_t flops, uint64_t bytes)
{
	return (struct pinion_candidate){
		.kernel = no_kernel,
		.backend = backend,
		.device = { backend, index },
		.precision = pinion_precision_deterministic(),
		.static_cost = { .flops = flops, .bytes_moved = bytes },
		.kernel_source = "",
	};
}

const struct pinion_task task = { PINION_OP_MATMUL, PINION_DTYPE_F32, 20 };

struct pinion_set *set_of(const struct pinion_candidate *list, size_t n, bool with_task)
{
	struct pinion_set *set = NULL;

	ck_ok(pinion_set_from(list, n, &set));
	pinion_set_set_task(set, &task);
	if (!with_task)
		pinion_set_set_task(set, NULL);
	return set;
}

struct pinion_set *pair(uint64_t cuda, uint64_t cpu)
{
	struct pinion_candidate list[] = {
		candidate(PINION_BACKEND_CUDA, 0, cuda, cuda),
		candidate(PINION_BACKEND_CPU, 0, cpu, cpu),
	};

	return set_of(list, 2, true);
}

struct pinion_set *twins(void)
{
	struct pinion_candidate list[] = {
		candidate(PINION_BACKEND_CUDA, 0, 300, 300),
		candidate(PINION_BACKEND_CUDA, 1, 300, 300),
	};

	return set_of(list, 2, true);
}

void put(struct pinion_judge *judge, enum pinion_backend_id backend, const char *source, uint64_t ns)
{
	struct pinion_measure measure = { .ns = ns };

	ck_ok(pinion_judge_put(judge, &task, backend, source, &measure));
}

int (*const makers[KINDS])(const struct pinion_selector_opts *opts, struct pinion_selector **out) = {
	[WINNER] = pinion_selector_winner,     [PRESSURE] = pinion_selector_vram_pressure, [LOAD] = pinion_selector_device_load,
	[JUDGE] = pinion_selector_judge_aware, [CHAINED] = pinion_selector_chained,
};

struct pinion_selector *selector(enum kind kind, const struct pinion_selector_opts *opts)
{
	struct pinion_selector_opts own = { .size = sizeof(own) };
	struct pinion_selector *s = NULL;

	if (opts)
		own = *opts;
	own.size = sizeof(own);
	ck_ok(makers[kind](opts ? &own : NULL, &s));
	return s;
}

size_t pick(struct pinion_selector *s, const struct pinion_set *set)
{
	size_t index = NONE;
	int ret = pinion_select(s, set, &index);

	ck_assert_int_eq(ret, pinion_set_size(set) ? 0 : -ENOENT);
	ck_assert(ret ? index == NONE : index < pinion_set_size(set));
	return index;
}
