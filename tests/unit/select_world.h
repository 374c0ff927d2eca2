/* SPDX-License-Identifier: MIT */
/* select world: devices that answer as a test says, candidates on them, and selectors that ask. */
#ifndef PINION_TESTS_SELECT_WORLD_H
#define PINION_TESTS_SELECT_WORLD_H

#include "harness.h"

#include <errno.h>
#include <pinion/context.h>
#include <pinion/select.h>
#include <stdatomic.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define NONE	     SIZE_MAX /* no choice */

/* What a device answers. Without has_ it cannot measure; without streams it has no queue. */
struct signals {
	bool there; /* the lookup has a handle */
	bool has_available;
	bool has_total;
	bool streams;
	bool has_pending;
	uint64_t available;
	uint64_t total;
	uint32_t pending;
	uint32_t capacity;
};

/* Memory alone; with a queue; with one that cannot be counted; no handle. */
#define MEMORY(a, t)                                           \
	{                                                      \
		true, true, true, false, false, (a), (t), 0, 0 \
	}
#define QUEUE(a, t, p, c)                                        \
	{                                                        \
		true, true, true, true, true, (a), (t), (p), (c) \
	}
#define MUTE(a, t, c)                                           \
	{                                                       \
		true, true, true, true, false, (a), (t), 0, (c) \
	}
#define GONE      \
	{         \
		0 \
	}

/* Devices by kind and index, and what was asked. */
struct world {
	struct signals at[PINION_BACKEND_METAL + 1][8];
	atomic_uint lookups[PINION_BACKEND_METAL + 1][8];
	atomic_uint fits[PINION_BACKEND_METAL + 1][8];
	atomic_int handles; /* given out and not freed */
	atomic_int handles_most;
	bool lends; /* handles are not the selector's to free */
	struct handle *lent[PINION_BACKEND_METAL + 1][8];
};

struct handle {
	struct pinion_runtime runtime;
	struct world *world;
	struct pinion_location location;
};

/* Operations of handles that are of use by themselves. */
int handle_available(struct pinion_runtime *rt, uint64_t *bytes);
int handle_total(struct pinion_runtime *rt, uint64_t *bytes);
int handle_pending(struct pinion_runtime *rt, uint32_t *n);

/* The lookup of a program whose devices are those of the world @arg. */
struct pinion_runtime *lookup(void *arg, enum pinion_backend_id backend, struct pinion_location device);

/* That of a program with one device, whose handle is @arg. */
struct pinion_runtime *lend(void *arg, enum pinion_backend_id backend, struct pinion_location device);

/* Those of a selector that has no use for them. */
struct pinion_runtime *lookup_must_not_run(void *arg, enum pinion_backend_id backend, struct pinion_location device);
uint64_t estimate_must_not_run(void *arg, const struct pinion_candidate *c);

/* From now on handles are made once and lent. */
void world_lends(struct world *w);

/* Every handle was freed. */
void world_end(struct world *w);

struct pinion_candidate candidate(enum pinion_backend_id backend, uint32_t index, uint64_t flops, uint64_t bytes);

extern const struct pinion_task task; /* of sets that have one */

struct pinion_set *set_of(const struct pinion_candidate *list, size_t n, bool with_task);

/* One on CUDA and one on the CPU, of so many flops and bytes. */
struct pinion_set *pair(uint64_t cuda, uint64_t cpu);

/* Two that are equal, on two devices. */
struct pinion_set *twins(void);

/* Records that the task takes @ns there. */
void put(struct pinion_judge *judge, enum pinion_backend_id backend, const char *source, uint64_t ns);

enum kind {
	WINNER,
	PRESSURE,
	LOAD,
	JUDGE,
	CHAINED,
	KINDS,
};

extern int (*const makers[KINDS])(const struct pinion_selector_opts *opts, struct pinion_selector **out);

struct pinion_selector *selector(enum kind kind, const struct pinion_selector_opts *opts);

/* The choice, NONE: there is none. */
size_t pick(struct pinion_selector *s, const struct pinion_set *set);

#endif
