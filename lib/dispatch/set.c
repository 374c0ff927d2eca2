/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

PINION_API int pinion_set_new(struct pinion_set **out)
{
	struct pinion_set *set = calloc(1, sizeof(*set));

	if (!set)
		return fail(ENOMEM, "no memory for a set of candidates: %zu bytes", sizeof(*set));
	set->entries = set->first;
	set->capacity = SET_INLINE;
	*out = set;
	return 0;
}

PINION_API void pinion_set_free(struct pinion_set *set)
{
	if (!set)
		return;
	if (set->entries != set->first)
		free(set->entries);
	free(set);
}

static int grow(struct pinion_set *set)
{
	size_t capacity = set->capacity * 2;
	struct entry *entries;

	if (set->size == PINION_SET_MAX)
		return fail(ENOSPC, "a set holds %d candidates, and this one is full", PINION_SET_MAX);
	entries = set->entries == set->first ? NULL : set->entries;
	entries = reallocarray(entries, capacity, sizeof(*entries));
	if (!entries)
		return fail(ENOMEM, "no memory for %zu candidates of %zu bytes", capacity, sizeof(*entries));
	if (set->entries == set->first)
		memcpy(entries, set->first, sizeof(set->first));
	set->entries = entries;
	set->capacity = capacity;
	return 0;
}

static int candidate_check(const struct pinion_candidate *c)
{
	if (!pinion_backend_name(c->backend))
		return fail(EINVAL, "a candidate's backend is %u, which is none", (unsigned int)c->backend);
	if (!pinion_backend_name(c->device.kind))
		return fail(EINVAL, "a candidate's device is of kind %u, which is none", (unsigned int)c->device.kind);
	if (c->op_params_size && !c->op_params)
		return fail(EINVAL, "a candidate has %zu bytes of op_params, and no op_params", c->op_params_size);
	if (c->couplings && !c->coupling)
		return fail(EINVAL, "a candidate has %zu couplings, and no coupling", c->couplings);
	return 0;
}

PINION_API int pinion_set_push(struct pinion_set *set, const struct pinion_candidate *candidate)
{
	int ret = candidate_check(candidate);
	struct entry *e;

	if (!ret && set->size == set->capacity)
		ret = grow(set);
	if (ret)
		return ret;
	e = &set->entries[set->size++];
	e->candidate = *candidate;
	if (!e->candidate.kernel_source)
		e->candidate.kernel_source = "";
	e->time_ns =
		add_saturating(pinion_cost_ns_on(&candidate->static_cost, candidate->backend), candidate->inbound_transfer_ns);
	e->source = source_hash(e->candidate.kernel_source);
	return 0;
}

PINION_API int pinion_set_from(const struct pinion_candidate *list, size_t n, struct pinion_set **out)
{
	struct pinion_set *set = NULL;
	int ret = pinion_set_new(&set);

	if (ret)
		return ret;
	for (size_t i = 0; i < n; i++) {
		ret = pinion_set_push(set, &list[i]);
		if (ret)
			goto free_set;
	}
	*out = set;
	return 0;

free_set:
	pinion_set_free(set);
	return ret;
}

PINION_API size_t pinion_set_size(const struct pinion_set *set)
{
	return set->size;
}

PINION_API const struct pinion_candidate *pinion_set_at(const struct pinion_set *set, size_t i)
{
	return i < set->size ? &set->entries[i].candidate : NULL;
}

PINION_API const struct pinion_candidate *pinion_set_winner(const struct pinion_set *set)
{
	return pinion_set_at(set, 0);
}

PINION_API const struct pinion_task *pinion_set_task(const struct pinion_set *set)
{
	return set->has_task ? &set->task : NULL;
}

PINION_API void pinion_set_set_task(struct pinion_set *set, const struct pinion_task *task)
{
	set->has_task = task;
	if (task)
		set->task = *task;
}

static int indices_check(const struct pinion_set *set, const size_t *index, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (index[i] >= set->size)
			return fail(EINVAL, "index %zu is %zu, and the set has %zu candidates", i, index[i], set->size);
		if (i && index[i] <= index[i - 1])
			return fail(EINVAL, "index %zu is %zu after %zu: indices to keep ascend", i, index[i],
				    index[i - 1]);
	}
	return 0;
}

PINION_API int pinion_set_keep(struct pinion_set *set, const size_t *index, size_t n)
{
	int ret = indices_check(set, index, n);

	if (ret)
		return ret;
	/* Index i is at least i, so nothing is overwritten before it is moved. */
	for (size_t i = 0; i < n; i++)
		if (index[i] != i)
			set->entries[i] = set->entries[index[i]];
	set->size = n;
	return 0;
}

static int order(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

int entry_compare(const struct entry *a, const struct entry *b)
{
	struct pinion_cost_vector va, vb;
	int ret;

	pinion_cost_vector_of(&a->candidate, &va);
	pinion_cost_vector_of(&b->candidate, &vb);
	ret = order(va.time_ns, vb.time_ns);
	if (!ret)
		ret = order(vb.digits, va.digits);
	if (!ret)
		ret = order(vb.accuracy, va.accuracy);
	/* One of the two is 0, so the sum does not overflow. */
	return ret ? ret : order(va.host_bytes + va.device_bytes, vb.host_bytes + vb.device_bytes);
}

/* qsort() may exchange equal elements; their places before keep them in order. */
static int compare_places(const void *a, const void *b)
{
	const struct entry *ea = a, *eb = b;
	int ret = entry_compare(ea, eb);

	return ret ? ret : order(ea->place, eb->place);
}

PINION_API void pinion_set_rank(struct pinion_set *set)
{
	for (size_t i = 0; i < set->size; i++)
		set->entries[i].place = i;
	qsort(set->entries, set->size, sizeof(*set->entries), compare_places);
}
