/* SPDX-License-Identifier: MIT */
/*
 * state: everything that one moment of the counter model consists of.
 *
 * A moment is the shared words, the store buffers, how far each thread is, and the ghosts: what really is true, kept by
 * the model beside the words and never shown to the protocol. It is plain bytes, so that it is copied to try a move and
 * hashed to know whether it was seen before.
 */
#ifndef PINION_MODEL_STATE_H
#define PINION_MODEL_STATE_H

#include "model_protocol.h"

/* Two lanes of eight words as they lie in struct pinion_lane, their control words, and the roster. */
enum word {
	WORD_LANES = 0,
	WORD_EPOCH = 16,
	WORD_ARMED = 18,
	WORD_SEQ = 20,
	WORD_OWNER,
	WORD_ROSTER,
	WORD_HANDOVER, /* not a word: the release by which a unit's work is made visible */
	WORD_HELD,     /* the module's: it has counts that the page does not show */
	WORDS = 25,
};

#define LANE_WORDS     8
#define WORD_COST      1u
#define WORD_PARITY    2u
#define WORD_COMPLETED 4u

/* What the checker asks of every moment. */
enum property {
	HOLDS,
	HIGH_BELOW,
	HIGH_ABOVE,
	LOW_ABOVE,
	LOW_BELOW,
	COST_BELOW,
	COST_ABOVE,
	INEXACT,
	WENT_DOWN,
	TWO_WRITERS,
	FLUSH_EARLY,
	FLUSH_STUCK,
	WAKE_LOST,
	READ_STUCK,
	WRITER_STUCK,
	ENDLESS,
	PROPERTIES,
};

/* One thing done wrong on purpose. */
enum mutant {
	FAITHFUL,
	SUBMITTED_FIRST,   /* the reader takes submitted before completed */
	LANE_BY_LANE,	   /* the reader takes each lane's two words before the next lane's */
	LOW_FROM_FIRST,	   /* low is computed from the first pass */
	NO_IDLE_DRAIN,	   /* the flusher flips without draining the idle parity */
	NO_OLD_DRAIN,	   /* the flusher returns after the flip */
	FLIP_FIRST,	   /* the flusher flips before it drains the idle parity */
	NO_AGREEMENT,	   /* a restarted flush does not make the control words agree */
	TRUST_PREDECESSOR, /* a restarted flush resumes after the half-done flip */
	END_UNDER_EPOCH,   /* end counts under the parity of now */
	EARLY_HANDOVER,	   /* the work is visible before its begin is counted */
	RETIRE_LOWERS,	   /* takeover sets submitted to completed */
	RETIRE_SUBMITTED,  /* takeover sets completed to submitted, although that may lower it */
	RETIRE_COMPLETED,  /* takeover raises completed only */
	RETIRE_OPS,	   /* takeover forgets cost */
	NO_BUMP_BEFORE,	   /* takeover does not bump before */
	NO_SEQ_CHECK,	   /* the reader does not look at the sequence again */
	READ_DEAD,	   /* the reader sums whatever the owner word says */
	OWNER_FIRST,	   /* the new owner's word is stored before the lanes are retired */
	OUTLIVES_MARK,	   /* a thread of the owner still runs when the owner word is marked */
	GROW_NO_BUMP,	   /* a lane is added without a bump */
	GROW_BUMP_BEFORE,  /* a lane is added with the bump before instead of after */
	NO_FLIP_AGAIN,	   /* the flusher does not set the control word of a lane that was added meanwhile */
	NO_ARM_CHECK,	   /* the sleeper does not look again after arming */
	END_PLAIN,	   /* end stores completed without release */
	BUMP_NO_FENCE,	   /* the sequence is bumped without a fence */
	TURN_COVERS_ALL,   /* a turn covers what was begun after its flip as well */
	TURN_NO_IDLE,	   /* a turn flips without draining the idle parity */
	TURN_NO_OLD,	   /* a turn ends with its flip */
	TURN_NO_SHOW,	   /* a turn does not write the control words */
	TURN_UNLOCKED,	   /* flushes begin between a look and the step it is for */
	BOUND_STALE,	   /* a lane is bound without the epoch in its control word */
	DROP_NO_BUMP,	   /* the module gives a lane back without a bump */
	DROP_BUMP_AFTER,   /* with the one after it alone */
	DROP_BUMP_BEFORE,  /* with both before it, outside of the lock */
	DROP_NO_HELD,	   /* and does not say that it keeps counts of the lane */
	DROP_HELD_OPS,	   /* or does where they are units, not where they are cost alone */
	LIST_FIRST,	   /* the reader by window looks at the sequence after it has listed the lanes */
	DROP_FORGETS,	   /* what the lane had counted is not kept */
	BY_SESSION,	   /* the module's reader makes all passes of a session before the next session's */
};

enum cross {
	END_OWN,   /* whoever begins a unit ends it */
	END_OTHER, /* the other writer ends it, in its own lane */
	END_ANY,   /* either of them does */
};

/*
 * What stands between a store and memory. TSO: a queue for each thread, which it looks into first. RELAXED: a queue in
 * which plain stores to different words overtake, and release stores are overtaken but do not overtake. Loads are made
 * in their order in all three; the protocol's loads are acquire where another thread's order matters.
 */
enum order { ORDER_SC, ORDER_TSO, ORDER_RELAXED };

/* A sum in three passes, or pinion_lanes_high() of the parities 1, 2 or 3. */
#define READ_SUM 4
/* Each lane is a session's of its own: the module's count_read() over both. */
#define READ_SESSIONS 5

/* One bounded world. Zero is none of it. */
struct config {
	const char *name;
	enum mutant mutant;
	enum cross cross;
	enum order order;
	__u8 units[2][2]; /* [first owner, owner after takeover][writer] */
	__u8 reader;
	__u8 flushes; /* one after the other, each by a flusher of its own */
	__u8 deaths;  /* how many flushers may die; the last one never does */
	__u8 bare;    /* flushers only start and flip, at any time: what a writer may ever see of them */
	__u8 hold;    /* a unit is not ended before the phase ends that it must not block */
	__u8 kill;    /* the owner may be killed, and is then taken over */
	__u8 takers;  /* how many take over, if any; all but the last may die of it */
	__u8 grow;    /* the second lane is added while others count */
	__u8 sleep;   /* the flusher sleeps and is woken by end only: 1, or by a backstop too: 2 */
	__u8 turns;   /* the flusher is the module's: flushes begin whenever its lock is free, and share its turns */
	__u8 foreign; /* bit n: flush n + 1 is one of this device that does not wait for this session */
	__u8 module;  /* whose owner is killed, is taken off by the module: lanes are given back, the page is zeroed */
	__u8 shrink;  /* the second lane is given back while others count */
	__u8 large;   /* only above the common scale */
	__u32 epoch[2];
	__u64 start; /* what every counter shows at first */
};

enum actor { WRITER_A, WRITER_B, FLUSHER, TAKER, READER, THREADS };

enum call {
	CALL_NONE,
	CALL_BEGIN,
	CALL_END,
	CALL_START,
	CALL_DRAIN,
	CALL_FLIP,
	CALL_ARM,
	CALL_READ,
	CALL_BUMP,
	CALL_RETIRE,
	CALL_OWN,
	CALL_GROW,
	CALL_LOOK,
	CALL_SHOW,
	CALL_LOCK,
	CALL_UNBIND,
	CALL_HOLD,
	CALL_UNLOCK,
	CALL_OVER, /* this thread does no more */
};

enum op_kind { OP_NONE, OP_LOAD, OP_STORE, OP_RELEASE, OP_FENCE };

/* A buffered store that was overtaken: it was made for certain, even if its thread dies now. */
#define OP_OVERTAKEN 0x80u

/* Words are kept as what they are above their first value. */
struct op {
	__u8 kind;
	__u8 word;
	__u8 raw;
	__u8 tag;
};

/* What a store means, for the ghosts; the low three bits are the unit or the number. */
enum tag {
	TAG_NONE = 0,
	TAG_BEGIN = 8,
	TAG_END = 16,
	TAG_STAGE = 24,
	TAG_BUMP = 32,
	TAG_RETIRE = 40,
	TAG_HANDOVER = 48
};

#define LOG_MAX	   24
#define BUFFER_MAX 20

/*
 * A thread stands in one call, and where it stands there is what it has loaded so far: the call is run again from its
 * beginning with these values, up to the access that comes next.
 */
struct thread {
	__u8 call;
	__u8 arg;
	__u8 local;
	__u8 phase;
	__u8 done;  /* accesses made in this call */
	__u8 loads; /* and how many of them were loads */
	__u8 waiting;
	__u8 depth; /* of the store buffer */
	struct op next;
	__u8 fold[4];
	__u8 log[LOG_MAX];
	struct op buffer[BUFFER_MAX];
};

#define UNITS 8
enum life { UNBORN, BEGINNING, OPEN, OVER };
#define UNIT_LIFE  3u
#define UNIT_ODD   4u
#define UNIT_STAGE 8u /* times 0 to 2 */

/* The truth. Masks have a bit for each unit; a unit counts when its word has reached memory. */
struct ghost {
	__u8 unit[UNITS];
	__u8 begun, ended;
	__u8 handed; /* begun, and that is known: the work is visible */
	__u8 begun_cost, ended_cost;
	__u8 must;     /* what the running flush must see ended */
	__u8 stage[2]; /* how far the running flush is on each control word */
	__u8 incarnation;
	__u8 killed;
	__u8 retiring;
	__u8 flushes, deaths, takers;
	/* of the one reading */
	__u8 gap;
	__u8 expect; /* whose units it is about: 0 none */
	__u8 high, low, cost_high;
	__u8 first_begun, first_ended, first_ended_cost;
	__u8 started;
	__u8 kicked; /* an end said that someone sleeps, since the last drain began */
};

/* What the module keeps of the session under its lock; the epoch above its first value. */
struct kept {
	__u8 wanted, covering, covered, epoch, state;
	__u8 flushes;	      /* begun */
	__u8 must[4];	      /* of each: what it must see ended */
	__u8 own[LANE_WORDS]; /* counts of lanes that were given back */
	__u8 locked;	      /* by the one who takes the session off */
};

struct state {
	__u8 mem[WORDS];
	struct ghost ghost;
	struct kept kept;
	struct thread thread[THREADS];
};

/* What is the same in all moments of one world. */
struct model {
	const struct config *cfg;
	__u64 first[WORDS]; /* what raw 0 stands for */
	__u8 written[WORDS];
	__u8 units;
	__u8 of[3]; /* units of each incarnation; of none */
	__u8 of_writer[2];
	__u8 cost[2];
	enum property broken;
	unsigned int reached;
};

/* Events that a world must come by, or what it shows is empty. */
enum reached {
	REACHED_NEGATIVE = 1, /* a lane has completed more than it has submitted */
	REACHED_LATE = 2,     /* a unit was counted under a parity that its lane had left */
	REACHED_WAIT = 4,     /* a flusher waited */
	REACHED_SPLIT = 8,    /* a flusher died while the control words differed */
	REACHED_AGAIN = 16,   /* a reading was made again */
	REACHED_HELD = 32,    /* a flush ended before units that had begun after its flip */
	REACHED_IDLE = 64,    /* a turn waited for its idle parity */
	REACHED_JOINED = 128, /* a flush was covered by a turn that had begun before it */
	REACHED_MISSED = 256, /* a flush began after the flip of the turn in progress */
	REACHED_OWN = 512,    /* a look met counts of a lane that was given back */
	REACHED_ASKED = 1024, /* a reader by window was told to ask the module */
};

extern struct model model;

static inline void broke(enum property p)
{
	if (model.broken == HOLDS)
		model.broken = p;
}

static inline int is(enum mutant mutant)
{
	return model.cfg->mutant == mutant;
}

/* The word counts something: not one of control or roster. */
static inline int counts(unsigned int word)
{
	return word < WORD_EPOCH;
}

static inline unsigned int count_bits(unsigned int mask)
{
	unsigned int n = 0;

	for (; mask; mask &= mask - 1)
		n++;
	return n;
}

#endif
