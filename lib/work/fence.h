/* SPDX-License-Identifier: MIT */
/*
 * fence: one stream waits for an operation of another. Both hold it, so either may go first: the one that waits may be cancelled,
 * the other one freed.
 */
#ifndef PINION_LIB_FENCE_H
#define PINION_LIB_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "../error.h"

struct fence;
struct pinion_stream;

/*
 * A fence that @waiter passes when operation @seq of @of is done; the caller's (fence_leave()). Takes of->lock. -EINVAL: that
 * operation was never submitted; -ENOMEM.
 */
int fence_new(struct pinion_stream *of, uint64_t seq, struct pinion_stream *waiter, struct fence **out);

/* Whether the operation is done, and how it ended. */
bool fence_passed(struct fence *f, int *err, char sentence[SENTENCE_MAX]);

/* The waiter needs it no more. */
void fence_leave(struct fence *f);

/* Under of->lock: takes out those whose operation is done. To be told without the lock. */
struct fence *fence_due(struct pinion_stream *of);
void fence_tell(struct fence *list);

#endif
