/* SPDX-License-Identifier: MIT */
/*
 * transfer probe: what staging from one device to another takes, found out by doing it. Once for each pair in a process,
 * on the first question, and never again: what it was then is what is answered from then on. Nobody waits: who asks while
 * another thread measures gets no figure, nor does a child that was forked meanwhile.
 */
#include "../deadline.h"
#include "array.h"

#include <stdlib.h>

#define SMALL	    UINT64_C(4096)
#define LARGE	    (UINT64_C(4) << 20)
#define RUNS	    4		      /* of each size; the first one finds cold memory */
#define PATIENCE_NS INT64_C(20000000) /* after which no further run begins */

enum state { MEASURING, KNOWN, UNKNOWN };

struct pair {
	struct pair *next;
	const struct backend_device *from, *to;
	enum state state; /* with acquire and release: the figures below are set before it is KNOWN */
	double bytes_per_ns;
	uint64_t latency_ns;
};

static struct pair *pairs; /* made once, never changed in their order or freed */

static struct pair *find(struct pair *p, const struct backend_device *from, const struct backend_device *to)
{
	while (p && (p->from != from || p->to != to))
		p = p->next;
	return p;
}

/* The shortest of some runs, in ns. A copy takes more than no time, whatever the clock says. */
static int time_copy(const struct pinion_storage *src, struct pinion_storage *dst, int64_t *best)
{
	int64_t end = deadline_now() + PATIENCE_NS;
	int ret = 0;

	*best = INT64_MAX;
	for (int i = 0; !ret && i < RUNS; i++) {
		int64_t begin = deadline_now(), took;

		if (i && begin >= end)
			break;
		ret = array_storage_copy(src, dst);
		took = deadline_now() - begin;
		if (took < *best)
			*best = took > 0 ? took : 1;
	}
	return ret;
}

static int measure_size(const struct pair *p, uint64_t bytes, int64_t *ns)
{
	struct storage_layout layout = { .dtype = PINION_DTYPE_U8, .elements = bytes, .bytes = bytes, .total = bytes };
	struct pinion_storage *src = NULL, *dst = NULL;
	int ret = array_storage_new(p->from, &layout, true, &src);

	if (!ret)
		ret = array_storage_new(p->to, &layout, false, &dst);
	if (!ret)
		ret = time_copy(src, dst, ns);
	pinion_storage_free(src);
	pinion_storage_free(dst);
	return ret;
}

/*
 * What a page takes is the latency, and what more bytes take beyond it is the bandwidth. Where it took longer than all of them
 * somebody else had the processor meanwhile: then the figures are those of the larger copy alone.
 */
static int measure(struct pair *p)
{
	int64_t small, large;
	int ret = measure_size(p, SMALL, &small);

	if (!ret)
		ret = measure_size(p, LARGE, &large);
	if (ret)
		return ret;
	p->latency_ns = small < large ? small : 0;
	p->bytes_per_ns = small < large ? (double)(LARGE - SMALL) / (large - small) : (double)LARGE / large;
	return 0;
}

/* The pair, which is new where the caller has to measure it; NULL: no memory for it. */
static struct pair *enter(const struct backend_device *from, const struct backend_device *to, bool *fresh)
{
	struct pair *head = __atomic_load_n(&pairs, __ATOMIC_ACQUIRE), *found = find(head, from, to), *own;

	*fresh = false;
	if (found)
		return found;
	own = calloc(1, sizeof(*own));
	if (!own)
		return NULL;
	own->from = from;
	own->to = to;
	do {
		found = find(head, from, to);
		own->next = head;
	} while (!found && !__atomic_compare_exchange_n(&pairs, &head, own, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	*fresh = !found;
	if (!found)
		return own;
	free(own);
	return found;
}

bool transfer_probe(const struct backend_device *from, const struct backend_device *to, struct pinion_transfer *t)
{
	char before[SENTENCE_MAX];
	bool fresh;
	struct pair *p = enter(from, to, &fresh);

	if (!p)
		return false;
	if (fresh) {
		/* That it could not be measured is no failure of the caller's. */
		sentence_get(before);
		__atomic_store_n(&p->state, measure(p) ? UNKNOWN : KNOWN, __ATOMIC_RELEASE);
		sentence_set(before);
	}
	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) != KNOWN)
		return false;
	t->measured = true;
	t->bytes_per_ns = p->bytes_per_ns;
	t->latency_ns = p->latency_ns;
	return true;
}
