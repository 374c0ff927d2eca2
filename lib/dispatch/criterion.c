/* SPDX-License-Identifier: MIT */
#include "../error.h"
#include "select.h"

#include <errno.h>
#include <math.h>

/* So that an error of 1 % makes a kernel count as twice as slow. */
#define BALANCED_WEIGHT 100

PINION_API double pinion_criterion_score(enum pinion_criterion criterion, const struct pinion_measure *measure)
{
	double ns = (double)measure->ns;

	switch (criterion) {
	case PINION_CRITERION_ACCURATE:
		return measure->error;
	case PINION_CRITERION_BALANCED:
		return ns * (1 + BALANCED_WEIGHT * measure->error);
	case PINION_CRITERION_FASTEST:
		break;
	}
	return ns;
}

struct contender {
	size_t index;
	double score;
	uint64_t ns;
};

static bool is_better(const struct contender *a, const struct contender *b)
{
	return a->score < b->score || (a->score == b->score && a->ns < b->ns);
}

PINION_API int pinion_judge_best(const struct pinion_judge *judge, const struct pinion_set *set,
				 enum pinion_criterion criterion, size_t *index)
{
	const struct pinion_task *task = pinion_set_task(set);
	struct contender best = { .score = INFINITY, .ns = UINT64_MAX }, now;
	struct pinion_measure m;
	bool any = false;

	for (size_t i = 0; task && i < set->size; i++) {
		const struct pinion_candidate *c = &set->entries[i].candidate;

		if (!judge_measure(judge, task, &set->entries[i], &m))
			continue;
		m.ns = add_saturating(m.ns, c->inbound_transfer_ns);
		now = (struct contender){ i, pinion_criterion_score(criterion, &m), m.ns };
		if (!any || is_better(&now, &best))
			best = now;
		any = true;
	}
	if (!any)
		return fail(ENODATA, "none of %zu candidates %s", set->size,
			    task ? "was measured" : "can be looked up: the set has no task");
	*index = best.index;
	return 0;
}
