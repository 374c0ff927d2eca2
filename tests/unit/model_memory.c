/* SPDX-License-Identifier: MIT */
#include "model_memory.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "model_threads.h"
#include "model_truth.h"

/* Only their addresses are used: what they hold is in the state. */
static struct pinion_counter_page page;
struct memory_roster roster;
struct model model;

static struct {
	const struct state *state;
	const struct thread *thread;
	unsigned int access, load;
	struct op next;
	int stale;
} replay;

struct pinion_control *memory_control(unsigned int lane)
{
	return pinion_lane_control(&page, lane);
}

struct pinion_lane *memory_lane(unsigned int lane)
{
	return &page.lane[lane];
}

static unsigned int word_at(const void *p)
{
	__u64 at = (__u64)((const char *)p - (const char *)&page);

	if (at < sizeof(page)) {
		if (at >= offsetof(struct pinion_counter_page, lane))
			return (at - offsetof(struct pinion_counter_page, lane)) / 8;
		at -= PINION_CONTROL_LINES * sizeof(struct pinion_control);
		return ((at & 4) ? WORD_ARMED : WORD_EPOCH) + at / 8;
	}
	if (p == &roster.seq)
		return WORD_SEQ;
	if (p == &roster.owner)
		return WORD_OWNER;
	if (p == &roster.lanes)
		return WORD_ROSTER;
	if (p == &roster.held)
		return WORD_HELD;
	abort();
}

/* A lane that is added may be ahead of the others, and is set back to their epoch. */
static int is_epoch(unsigned int word)
{
	return word == WORD_EPOCH || word == WORD_EPOCH + 1;
}

static __u64 value_of(unsigned int word, __u8 raw)
{
	static const __u32 owner[] = { OWNER_FIRST_TID, PINION_OWNER_DIED, OWNER_SECOND_TID };

	if (word == WORD_OWNER)
		return owner[raw];
	return model.first[word] + (is_epoch(word) ? (__u64)(__s8)raw : raw);
}

/* A count below its first value becomes 255, which none climbs to: memory_commit() sees it as a step down. */
static __u8 raw_of(unsigned int word, __u64 value)
{
	__u64 above = value - model.first[word];

	if (word == WORD_OWNER)
		return value == OWNER_SECOND_TID ? OWNER_TWO : value == OWNER_FIRST_TID ? OWNER_ONE : OWNER_DEAD;
	if (is_epoch(word))
		return above;
	return above < 255 ? above : 255;
}

/* ---- the primitives --------------------------------------------------------------------------------------------- */

__u64 model_load(const void *p)
{
	unsigned int word = word_at(p);
	__u8 raw;

	if (!replay.thread)
		return value_of(word, replay.state->mem[word]);
	if (replay.access++ < replay.thread->done) {
		raw = replay.thread->log[replay.load++];
		replay.stale |= raw != replay.state->mem[word];
		return value_of(word, raw);
	}
	if (replay.next.kind == OP_NONE)
		replay.next = (struct op){ OP_LOAD, word, 0, TAG_NONE };
	return 0;
}

static void store(const void *p, __u64 value, enum op_kind kind)
{
	unsigned int word = word_at(p);

	if (!replay.thread)
		abort();
	if (replay.access++ >= replay.thread->done && replay.next.kind == OP_NONE)
		replay.next = (struct op){ kind, word, raw_of(word, value), TAG_NONE };
}

void model_store(const void *p, __u64 value)
{
	store(p, value, OP_STORE);
}

void model_store_release(const void *p, __u64 value)
{
	store(p, value, OP_RELEASE);
}

void model_fence(void)
{
	if (replay.access++ >= replay.thread->done && replay.next.kind == OP_NONE)
		replay.next = (struct op){ OP_FENCE, 0, 0, TAG_NONE };
}

void replay_begin(const struct state *s, const struct thread *th)
{
	replay.state = s;
	replay.thread = th;
	replay.access = 0;
	replay.load = 0;
	replay.stale = 0;
	replay.next = (struct op){ OP_NONE, 0, 0, TAG_NONE };
}

struct op replay_end(int *stale)
{
	*stale = replay.stale;
	return replay.next;
}

void replay_still(const struct state *s)
{
	replay.state = s;
	replay.thread = NULL;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

static void set_up_written(const struct config *cfg)
{
	memset(model.written, 0, sizeof(model.written));
	memset(model.written, 1, WORD_EPOCH);
	model.written[WORD_EPOCH] = model.written[WORD_EPOCH + 1] = cfg->flushes != 0;
	model.written[WORD_ARMED] = model.written[WORD_ARMED + 1] = cfg->sleep != 0;
	model.written[WORD_SEQ] = cfg->kill || cfg->grow;
	model.written[WORD_OWNER] = cfg->kill && !cfg->module;
	model.written[WORD_ROSTER] = cfg->grow || cfg->module;
	model.written[WORD_HELD] = cfg->module;
}

void memory_setup(void)
{
	const struct config *cfg = model.cfg;
	unsigned int w;

	set_up_written(cfg);
	memset(model.first, 0, sizeof(model.first));
	for (w = 0; w < WORD_EPOCH; w++)
		model.first[w] = cfg->start;
	model.first[WORD_EPOCH] = cfg->epoch[0];
	model.first[WORD_EPOCH + 1] = cfg->epoch[1];
	model.first[WORD_ROSTER] = cfg->turns || cfg->module ? 0 : cfg->grow ? 1 : 2;
}

/* Its only writer: the protocol says that there is one, memory_commit() checks it, memory_private() builds on it. */
int memory_owns(const struct state *s, unsigned int t, unsigned int word)
{
	switch (t) {
	case WRITER_A:
	case WRITER_B:
		if (model.cfg->grow && t == WRITER_B && (word == WORD_SEQ || word == WORD_ROSTER))
			return 1;
		/* What the taker has not drained when it becomes writer A. */
		if (t == WRITER_A && s->ghost.killed && s->thread[TAKER].call == CALL_OVER && word != WORD_ROSTER)
			return word < WORD_EPOCH || word >= WORD_SEQ;
		return counts(word) && word / LANE_WORDS == t;
	case FLUSHER:
		return word >= WORD_EPOCH && word < WORD_SEQ;
	case TAKER:
		return s->ghost.killed && (counts(word) || word == WORD_SEQ || word == WORD_OWNER || word == WORD_HELD);
	default:
		return 0;
	}
}

__u8 memory_view(const struct state *s, unsigned int t, unsigned int word)
{
	const struct thread *th = &s->thread[t];
	unsigned int i;

	for (i = th->depth; i > 0; i--)
		if (th->buffer[i - 1].word == word)
			return th->buffer[i - 1].raw;
	return s->mem[word];
}

/* Costs are looked at by a sum and by a takeover only. */
static int unseen(const struct state *s, const struct op *op)
{
	int costs = model.cfg->reader == READ_SUM || model.cfg->kill || model.cfg->shrink;

	if (op->word == WORD_HANDOVER)
		return 1;
	return s->mem[op->word] == op->raw || (!costs && counts(op->word) && (op->word & WORD_COST));
}

int memory_private(const struct state *s, unsigned int t, const struct op *op)
{
	switch (op->kind) {
	case OP_LOAD:
		return memory_owns(s, t, op->word) || !model.written[op->word];
	case OP_STORE:
	case OP_RELEASE:
		return model.cfg->order == ORDER_SC ? unseen(s, op) : s->thread[t].depth < BUFFER_MAX;
	default:
		return s->thread[t].depth == 0;
	}
}

static void memory_commit(struct state *s, unsigned int t, const struct op *op)
{
	if (op->word == WORD_HANDOVER) {
		truth_stored(s, op);
		return;
	}
	if (!memory_owns(s, t, op->word))
		broke(TWO_WRITERS);
	/* The module zeroes what it has taken over. */
	if ((counts(op->word) || op->word == WORD_SEQ) && !(t == TAKER && model.cfg->module) &&
	    (op->raw == 255 || op->raw < s->mem[op->word]))
		broke(WENT_DOWN);
	s->mem[op->word] = op->raw;
	if (counts(op->word) && s->mem[op->word | WORD_COMPLETED] > s->mem[op->word & ~WORD_COMPLETED])
		model.reached |= REACHED_NEGATIVE;
	truth_stored(s, op);
	threads_stored(s, op->word);
}

int memory_may_drain(const struct state *s, unsigned int t, unsigned int i)
{
	const struct op *buffer = s->thread[t].buffer;
	unsigned int j;

	if (i == 0 || model.cfg->order != ORDER_RELAXED || (buffer[i].kind & ~OP_OVERTAKEN) == OP_RELEASE)
		return i == 0;
	for (j = 0; j < i; j++)
		if (buffer[j].word == buffer[i].word)
			return 0;
	return 1;
}

static void drain(struct state *s, unsigned int t, unsigned int i)
{
	struct thread *th = &s->thread[t];
	struct op op = th->buffer[i];
	unsigned int j;

	for (j = 0; j < i; j++)
		th->buffer[j].kind |= OP_OVERTAKEN;
	th->depth--;
	memmove(th->buffer + i, th->buffer + i + 1, (th->depth - i) * sizeof(th->buffer[0]));
	memory_commit(s, t, &op);
}

/* Stores that nobody can see go with those before them. */
static void drain_unseen(struct state *s, unsigned int t)
{
	while (s->thread[t].depth && unseen(s, &s->thread[t].buffer[0]))
		drain(s, t, 0);
}

void memory_drain(struct state *s, unsigned int t, unsigned int i)
{
	drain(s, t, i);
	drain_unseen(s, t);
}

/*
 * What a thread has in its buffer when it dies reaches memory before anyone learns of the death, so draining it first
 * and dying then is the same. Dropping it stands for a death before those stores were made.
 */
void memory_drop(struct state *s, unsigned int t)
{
	struct thread *th = &s->thread[t];

	while (th->depth && (th->buffer[0].kind & OP_OVERTAKEN))
		drain(s, t, 0);
	th->depth = 0;
}

static void memory_store(struct state *s, unsigned int t, const struct op *op)
{
	struct thread *th = &s->thread[t];

	if (model.cfg->order == ORDER_SC) {
		memory_commit(s, t, op);
		return;
	}
	th->buffer[th->depth++] = *op;
	drain_unseen(s, t);
}

void memory_hand_over(struct state *s, unsigned int t, unsigned int unit)
{
	struct op op = { OP_RELEASE, WORD_HANDOVER, 0, TAG_HANDOVER + unit };

	if (s->thread[t].depth == BUFFER_MAX)
		abort();
	memory_store(s, t, &op);
}

/*
 * A reading adds up what it loads, so what it loaded of one kind in one pass may stand in one entry, and moments that
 * differ only in which lane showed what become one. That this is so is tested by itself (test_counters_model.c).
 */
static void fold(struct thread *th, const struct op *op)
{
	unsigned int kind = op->word & (WORD_COST | WORD_COMPLETED), i = (kind & 1) + (kind >> 1);

	if (!(kind & WORD_COMPLETED))
		th->fold[2] = th->fold[3] = 0xff;
	if (th->fold[i] == 0xff) {
		th->fold[i] = th->loads - 1;
	} else {
		th->log[th->fold[i]] += op->raw;
		th->log[th->loads - 1] = 0;
	}
}

void memory_access(struct state *s, unsigned int t)
{
	struct thread *th = &s->thread[t];
	struct op op = th->next;

	if (op.kind == OP_LOAD) {
		op.raw = memory_view(s, t, op.word);
		th->log[th->loads++] = op.raw;
		if (th->call == CALL_READ && counts(op.word) && model.cfg->reader != READ_SESSIONS)
			fold(th, &op);
		truth_loaded(s, t, &op);
	} else if (op.kind != OP_FENCE) {
		op.tag = truth_tag(s, t, &op);
		memory_store(s, t, &op);
	}
	th->done++;
}
