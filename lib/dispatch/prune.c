/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "select.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define AXES 5

/* A value on an axis, and the member it is of. */
struct mark {
	uint64_t value;
	size_t member;
};

/* Of one device: a candidate that may stay. */
struct member {
	size_t index; /* in the set */
	double room;  /* crowding distance: how far its neighbours are, over all axes */
};

struct pruning {
	const struct pinion_set *set;
	size_t cap;
	struct pinion_cost_vector *vectors; /* of the set's candidates */
	bool *keep;			    /* likewise */
	struct member *members;
	size_t size; /* members of the device at hand */
	struct mark *marks;
};

static const struct pinion_candidate *candidate(const struct pruning *p, size_t i)
{
	return &p->set->entries[i].candidate;
}

static bool same_device(const struct pruning *p, size_t i, size_t j)
{
	return pinion_location_equal(candidate(p, i)->device, candidate(p, j)->device);
}

static bool same_backend(const struct pruning *p, size_t i, size_t j)
{
	return candidate(p, i)->backend == candidate(p, j)->backend && same_device(p, i, j);
}

/* By value, and by member where values are equal, so that the result does not hang on how qsort() works. */
static int compare_marks(const void *a, const void *b)
{
	const struct mark *ma = a, *mb = b;

	if (ma->value != mb->value)
		return ma->value < mb->value ? -1 : 1;
	return (ma->member > mb->member) - (ma->member < mb->member);
}

/* The most room first; where it is equal, the one that comes first in the set. */
static int compare_members(const void *a, const void *b)
{
	const struct member *ma = a, *mb = b;

	if (ma->room != mb->room)
		return ma->room > mb->room ? -1 : 1;
	return (ma->index > mb->index) - (ma->index < mb->index);
}

/* No worse on any axis and better on one. */
static bool dominates(const struct pinion_cost_vector *a, const struct pinion_cost_vector *b)
{
	bool no_worse = a->time_ns <= b->time_ns && a->host_bytes <= b->host_bytes &&
			a->device_bytes <= b->device_bytes && a->digits >= b->digits && a->accuracy >= b->accuracy;

	return no_worse && (a->time_ns < b->time_ns || a->host_bytes < b->host_bytes ||
			    a->device_bytes < b->device_bytes || a->digits > b->digits || a->accuracy > b->accuracy);
}

static bool on_front(const struct pruning *p, size_t i)
{
	for (size_t j = 0; j < p->set->size; j++)
		if (same_device(p, i, j) && dominates(&p->vectors[j], &p->vectors[i]))
			return false;
	return true;
}

/* Marks what may stay: candidate 0 and the fronts; then the best of each backend that has none on its front. */
static void mark_front(struct pruning *p)
{
	for (size_t i = 0; i < p->set->size; i++)
		p->keep[i] = !i || on_front(p, i);
	for (size_t i = 0; i < p->set->size; i++) {
		size_t best = i;
		bool stays = false;

		for (size_t j = 0; j < p->set->size && !stays; j++) {
			if (!same_backend(p, i, j))
				continue;
			stays = p->keep[j];
			if (entry_compare(&p->set->entries[j], &p->set->entries[best]) < 0)
				best = j;
		}
		if (!stays)
			p->keep[best] = true;
	}
}

static uint64_t axis_value(const struct pinion_cost_vector *v, int axis)
{
	const uint64_t values[AXES] = { v->time_ns, v->host_bytes, v->device_bytes, v->digits, v->accuracy };

	return values[axis];
}

/* Adds the room on one axis: at its ends all there is, in between the gap between the neighbours. */
static void measure_axis(struct pruning *p, int axis)
{
	uint64_t range;

	for (size_t m = 0; m < p->size; m++)
		p->marks[m] = (struct mark){ axis_value(&p->vectors[p->members[m].index], axis), m };
	qsort(p->marks, p->size, sizeof(*p->marks), compare_marks);
	range = p->marks[p->size - 1].value - p->marks[0].value;
	if (!range)
		return;
	p->members[p->marks[0].member].room = INFINITY;
	p->members[p->marks[p->size - 1].member].room = INFINITY;
	for (size_t m = 1; m + 1 < p->size; m++)
		p->members[p->marks[m].member].room +=
			(double)(p->marks[m + 1].value - p->marks[m - 1].value) / (double)range;
}

/* Whether no member of member @m's backend is kept so far. */
static bool is_without_backend(const struct pruning *p, size_t m)
{
	for (size_t other = 0; other < p->size; other++)
		if (p->keep[p->members[other].index] && same_backend(p, p->members[other].index, p->members[m].index))
			return false;
	return true;
}

/* Keeps cap members of a device that has more: first those that have to stay, then those with the most room. */
static void thin(struct pruning *p)
{
	size_t kept = 0;

	for (int axis = 0; axis < AXES; axis++)
		measure_axis(p, axis);
	qsort(p->members, p->size, sizeof(*p->members), compare_members);
	for (size_t m = 0; m < p->size; m++) {
		p->keep[p->members[m].index] = !p->members[m].index;
		kept += !p->members[m].index;
	}
	for (size_t m = 0; m < p->size; m++) {
		if (is_without_backend(p, m)) {
			p->keep[p->members[m].index] = true;
			kept++;
		}
	}
	for (size_t m = 0; m < p->size && kept < p->cap; m++) {
		kept += !p->keep[p->members[m].index];
		p->keep[p->members[m].index] = true;
	}
}

static void prune_device(struct pruning *p, size_t first)
{
	p->size = 0;
	for (size_t i = first; i < p->set->size; i++)
		if (p->keep[i] && same_device(p, first, i))
			p->members[p->size++] = (struct member){ .index = i };
	if (p->size > p->cap)
		thin(p);
}

static bool is_first_of_device(const struct pruning *p, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (same_device(p, i, j))
			return false;
	return true;
}

static int keep_marked(struct pinion_set *set, const bool *keep, size_t *index)
{
	size_t n = 0;

	for (size_t i = 0; i < set->size; i++)
		if (keep[i])
			index[n++] = i;
	return pinion_set_keep(set, index, n);
}

PINION_API int pinion_set_prune(struct pinion_set *set, size_t cap)
{
	struct pruning p = { .set = set, .cap = cap ? cap : 1 };
	size_t *index = calloc(set->size + 1, sizeof(*index));
	int ret = 0;

	p.vectors = calloc(set->size + 1, sizeof(*p.vectors));
	p.members = calloc(set->size + 1, sizeof(*p.members));
	p.marks = calloc(set->size + 1, sizeof(*p.marks));
	p.keep = calloc(set->size + 1, sizeof(*p.keep));
	if (!index || !p.vectors || !p.members || !p.marks || !p.keep) {
		ret = fail(ENOMEM, "no memory to prune %zu candidates", set->size);
		goto free_all;
	}
	for (size_t i = 0; i < set->size; i++)
		pinion_cost_vector_of(&set->entries[i].candidate, &p.vectors[i]);
	mark_front(&p);
	for (size_t i = 0; i < set->size; i++)
		if (is_first_of_device(&p, i))
			prune_device(&p, i);
	ret = keep_marked(set, p.keep, index);

free_all:
	free(p.keep);
	free(p.marks);
	free(p.members);
	free(p.vectors);
	free(index);
	return ret;
}
