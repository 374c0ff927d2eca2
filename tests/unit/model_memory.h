/* SPDX-License-Identifier: MIT */
/* memory: shared words, store buffers, and the access that a thread makes next. */
#ifndef PINION_MODEL_MEMORY_H
#define PINION_MODEL_MEMORY_H

#include "model_state.h"

struct pinion_control *memory_control(unsigned int lane);
struct pinion_lane *memory_lane(unsigned int lane);

struct memory_roster {
	__u64 seq;
	__u32 owner;
	__u32 lanes;
	__u32 held;
};
extern struct memory_roster roster;

/* The owner word of the first owner, of nobody after its death, and of the one who took over. */
#define OWNER_FIRST_TID	 101u
#define OWNER_SECOND_TID 202u
enum { OWNER_ONE, OWNER_DEAD, OWNER_TWO };

void memory_setup(void);

/* From here on the primitives run this thread's call again; replay_end() gives the access that comes after it. */
void replay_begin(const struct state *s, const struct thread *th);
struct op replay_end(int *stale);

/* From here on loads see memory as it is. */
void replay_still(const struct state *s);

__u8 memory_view(const struct state *s, unsigned int t, unsigned int word);
int memory_owns(const struct state *s, unsigned int t, unsigned int word);

/*
 * Nobody but @t can tell when this access is made, so it is made at once: a load of a word that no other thread stores
 * to, a store into a buffer, a store that changes nothing or nothing that is ever loaded, a fence over an empty buffer.
 */
int memory_private(const struct state *s, unsigned int t, const struct op *op);

/* Makes the access that thread @t comes to next. */
void memory_access(struct state *s, unsigned int t);

/* Store @i of thread @t's buffer may reach memory now; does so. */
int memory_may_drain(const struct state *s, unsigned int t, unsigned int i);
void memory_drain(struct state *s, unsigned int t, unsigned int i);

/*
 * The unit that thread @t has begun is handed over. As early as it may: what others can do with a unit that is handed
 * over later, they can do with this one.
 */
void memory_hand_over(struct state *s, unsigned int t, unsigned int unit);

/* Thread @t dies: what it may not have stored yet is dropped. */
void memory_drop(struct state *s, unsigned int t);

#endif
