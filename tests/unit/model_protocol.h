/* SPDX-License-Identifier: MIT */
/* protocol: the counter protocol as it is shipped, over primitives that stop at every access. */
#ifndef PINION_MODEL_PROTOCOL_H
#define PINION_MODEL_PROTOCOL_H

#include <linux/types.h>

__u64 model_load(const void *p);
void model_store(const void *p, __u64 value);
void model_store_release(const void *p, __u64 value);
void model_fence(void);

#define PINION_COUNTERS_PRIMITIVES
#define pinion_load(p)		   ((__typeof__(*(p) + 0))model_load(p))
#define pinion_load_acquire(p)	   pinion_load(p)
#define pinion_store(p, v)	   model_store(p, v)
#define pinion_store_release(p, v) model_store_release(p, v)
#define pinion_fence()		   model_fence()

#include <linux/pinion_counters.h>

#endif
