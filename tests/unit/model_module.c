/* SPDX-License-Identifier: MIT */
#include "model_module.h"

#include <string.h>

#include "model_memory.h"
#include "model_threads.h"
#include "model_truth.h"

/* ---- what it keeps ---------------------------------------------------------------------------------------------- */

static struct pinion_turns turns_of(const struct kept *k)
{
	return (struct pinion_turns){ k->wanted, k->covering, k->covered, (__u32)model.first[WORD_EPOCH] + k->epoch, k->state };
}

static void keep_turns(struct kept *k, const struct pinion_turns *turns)
{
	k->wanted = turns->wanted;
	k->covering = turns->covering;
	k->covered = turns->covered;
	k->epoch = turns->epoch - (__u32)model.first[WORD_EPOCH];
	k->state = turns->state;
}

static __s64 own_of(const struct state *s, unsigned int word)
{
	return (__s64)s->kept.own[word] - (__s64)s->kept.own[word | WORD_COMPLETED];
}

__s64 module_own(const struct state *s, __u32 parities)
{
	return ((parities & PINION_EVEN) ? own_of(s, 0) : 0) + ((parities & PINION_ODD) ? own_of(s, WORD_PARITY) : 0);
}

__s64 module_own_cost(const struct state *s)
{
	return own_of(s, WORD_COST) + own_of(s, WORD_COST | WORD_PARITY);
}

/* ---- the lock --------------------------------------------------------------------------------------------------- */

/* Between two looks it is given up, or might be. */
static int is_free(const struct state *s)
{
	const struct thread *th = &s->thread[FLUSHER];

	return !s->kept.locked && (th->call == CALL_NONE || th->waiting || (th->call == CALL_LOOK && !th->loads));
}

static int is_free_and_seen(const struct state *s)
{
	return is_free(s) && !s->thread[FLUSHER].depth && !s->thread[TAKER].depth;
}

/* A look takes it with its first load, a reader by window for LIST. */
int module_blocks(const struct state *s, unsigned int t)
{
	const struct thread *th = &s->thread[t];

	if (t == FLUSHER && th->call == CALL_LOOK && !th->loads)
		return s->kept.locked;
	return t == READER && model.cfg->module && th->call == CALL_READ && th->next.word == WORD_ROSTER && s->kept.locked;
}

/* ---- turns ------------------------------------------------------------------------------------------------------ */

static void turn_next(struct state *s)
{
	struct thread *th = &s->thread[FLUSHER];
	struct pinion_turns turns = turns_of(&s->kept);
	__u32 parities = pinion_turn_asks(&turns);

	thread_enter(th, parities ? CALL_LOOK : CALL_NONE);
	th->local = parities;
}

int module_may_flush(const struct state *s)
{
	return s->ghost.flushes && (is(TURN_UNLOCKED) || is_free(s));
}

/* Everything that is known to be in flight must have ended when it is covered. */
void module_flush(struct state *s)
{
	struct kept *k = &s->kept;

	if (k->state == PINION_TURN_DRAIN_OLD)
		model.reached |= REACHED_MISSED;
	k->must[k->flushes++] = s->ghost.handed & ~s->ghost.ended & model.of[truth_alive(s)];
	if (!((model.cfg->foreign >> (k->flushes - 1)) & 1))
		k->wanted = k->flushes;
	s->ghost.flushes--;
	if (s->thread[FLUSHER].call == CALL_NONE) {
		turn_next(s);
		thread_advance(s, FLUSHER);
	}
}

unsigned int module_waits(const struct state *s, unsigned int unit)
{
	unsigned int i, bits = 0;

	for (i = 0; i < sizeof(s->kept.must); i++)
		bits |= ((s->kept.must[i] >> unit) & 1u) << i;
	return bits;
}

static int step(struct pinion_turns *turns, __u64 flushes, int empty, int *show)
{
	__u32 state = turns->state;
	int more;

	if ((is(TURN_NO_IDLE) && state == PINION_TURN_DRAIN_IDLE) || (is(TURN_NO_OLD) && state == PINION_TURN_DRAIN_OLD))
		empty = 1;
	more = pinion_turn_step(turns, flushes, empty, show);
	if (is(TURN_COVERS_ALL) && more && state == PINION_TURN_DRAIN_OLD)
		turns->covered = flushes;
	if (is(TURN_NO_SHOW))
		*show = 0;
	return more;
}

static void after_look(struct state *s, const struct outcome *o, int stale)
{
	struct thread *th = &s->thread[FLUSHER];
	struct kept *k = &s->kept;
	struct pinion_turns turns = turns_of(k), before = turns;
	int show;

	if (!step(&turns, k->flushes, o->empty, &show)) {
		model.reached |= turns.state == PINION_TURN_DRAIN_IDLE ? REACHED_WAIT | REACHED_IDLE : REACHED_WAIT;
		thread_enter(th, CALL_LOOK);
		/* As in a drain: looking again comes to the same until something changes. */
		th->waiting = !stale;
		return;
	}
	if (before.state == PINION_TURN_DRAIN_IDLE && turns.covering != before.covering)
		model.reached |= REACHED_JOINED;
	if (turns.covered != before.covered)
		truth_covered(s, before.covered, turns.covered);
	keep_turns(k, &turns);
	if (show)
		thread_enter(th, CALL_SHOW);
	else
		turn_next(s);
}

/* Nobody is there any more for whom a flush could wait. */
static void leave(struct state *s)
{
	struct thread *th = &s->thread[FLUSHER];

	s->ghost.flushes = 0;
	s->kept.covered = s->kept.wanted;
	s->kept.state = PINION_TURN_NONE;
	th->waiting = 0;
	th->next = (struct op){ OP_NONE, 0, 0, TAG_NONE };
	thread_enter(th, CALL_NONE);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------ */

static void bind(struct state *s)
{
	unsigned int word = WORD_EPOCH + 1;

	if (!is(BOUND_STALE))
		s->mem[word] = (__u32)model.first[WORD_EPOCH] + s->kept.epoch - (__u32)model.first[word];
	s->mem[WORD_ROSTER] = 2;
	thread_enter(&s->thread[WRITER_B], CALL_NONE);
}

/* By its own writer, which counts no more: what it had begun may be ended by the other one. */
static void give_back(struct state *s)
{
	unsigned int unit, i;

	for (i = 0; i < LANE_WORDS; i++) {
		if (!is(DROP_FORGETS))
			s->kept.own[i] += s->mem[LANE_WORDS + i];
		s->mem[LANE_WORDS + i] = 0;
	}
	s->mem[WORD_ROSTER] = 1;
	for (unit = 0; unit < model.units; unit++)
		if (((model.of_writer[WRITER_B] >> unit) & 1) && (s->ghost.unit[unit] & UNIT_LIFE) == UNBORN)
			s->ghost.unit[unit] = OVER;
	thread_enter(&s->thread[WRITER_B], CALL_OVER);
}

int module_may_lock(const struct state *s, unsigned int t)
{
	const struct thread *th = &s->thread[t];

	if (!is_free_and_seen(s) || th->depth)
		return 0;
	if (t == WRITER_B && model.cfg->turns && model.cfg->shrink)
		return th->call == CALL_NONE;
	return th->call == CALL_LOCK;
}

/* ---- a session that has ended ----------------------------------------------------------------------------------- */

/*
 * For each lane, the last one first; the words are the page's, and that the page is cleared in the end is not seen by anyone
 * who has its lanes from LIST.
 */
static void drop_next(struct state *s)
{
	static const __u8 faithful[] = { CALL_LOCK, CALL_BUMP, CALL_UNBIND, CALL_HOLD, CALL_BUMP, CALL_UNLOCK, CALL_OVER };
	static const __u8 none[] = { CALL_LOCK, CALL_UNBIND, CALL_HOLD, CALL_UNLOCK, CALL_OVER };
	static const __u8 after[] = { CALL_LOCK, CALL_UNBIND, CALL_HOLD, CALL_BUMP, CALL_UNLOCK, CALL_OVER };
	static const __u8 before[] = { CALL_BUMP, CALL_BUMP, CALL_LOCK, CALL_UNBIND, CALL_HOLD, CALL_UNLOCK, CALL_OVER };
	const __u8 *steps = is(DROP_NO_BUMP) ? none : is(DROP_BUMP_AFTER) ? after : is(DROP_BUMP_BEFORE) ? before : faithful;
	struct thread *th = &s->thread[TAKER];

	if (steps[th->phase] == CALL_OVER && s->mem[WORD_ROSTER])
		th->phase = 0;
	thread_enter(th, steps[th->phase++]);
}

void module_killed(struct state *s)
{
	drop_next(s);
	thread_advance(s, TAKER);
}

void module_lock(struct state *s, unsigned int t)
{
	if (t == TAKER) {
		s->kept.locked = 1;
		drop_next(s);
		thread_advance(s, TAKER);
	} else if (model.cfg->shrink) {
		give_back(s);
	} else {
		bind(s);
	}
	/* The look that comes after it. */
	threads_stored(s, WORD_OWNER);
}

static void after_unbind(struct state *s, const struct outcome *o)
{
	unsigned int i;

	for (i = 0; i < LANE_WORDS; i++)
		s->kept.own[i] += o->own[i];
	if (!--s->mem[WORD_ROSTER])
		leave(s);
	drop_next(s);
}

static void call_unbind(const struct state *s, struct outcome *o)
{
	struct pinion_lane *lane = memory_lane(s->mem[WORD_ROSTER] - 1);
	struct pinion_count *count;
	unsigned int i;

	for (i = 0; i < LANE_WORDS; i++) {
		/* Completed first. */
		unsigned int word = i ^ WORD_COMPLETED;

		count = (word & WORD_COMPLETED) ? lane->completed : lane->submitted;
		count += (word & WORD_PARITY) != 0;
		o->own[word] = pinion_load_acquire((word & WORD_COST) ? &count->cost : &count->ops);
	}
	for (i = 0; i < LANE_WORDS; i++) {
		count = (i & WORD_COMPLETED) ? lane->completed : lane->submitted;
		count += (i & WORD_PARITY) != 0;
		pinion_store((i & WORD_COST) ? &count->cost : &count->ops, 0);
	}
}

/* Whether a reader of the page alone would miss something. */
static __u32 held(const struct state *s)
{
	if (is(DROP_NO_HELD) || !s->mem[WORD_ROSTER])
		return 0;
	return module_own(s, PINION_BOTH) || (!is(DROP_HELD_OPS) && module_own_cost(s));
}

/* ---- count_read() over two sessions of a lane each -------------------------------------------------------------- */

static void first_pass(__u64 *first, unsigned int i)
{
	*first = pinion_lane_completed(memory_lane(i), PINION_BOTH);
}

static void second_pass(struct pinion_sum *sum, unsigned int i)
{
	__u64 completed;

	sum->submitted = pinion_lane_submitted(memory_lane(i), PINION_BOTH);
	completed = pinion_lane_completed_cost(memory_lane(i));
	sum->cost_high = pinion_lane_submitted_cost(memory_lane(i)) - completed;
}

static void third_pass(struct pinion_sum *sum, __u64 first, unsigned int i)
{
	__u64 second = pinion_lane_completed(memory_lane(i), PINION_BOTH);

	sum->high = sum->submitted - first;
	sum->low = sum->submitted - (is(LOW_FROM_FIRST) ? first : second);
}

static void call_read_sessions(struct outcome *o)
{
	struct pinion_sum sum[2];
	__u64 first[2];
	unsigned int i;

	memset(sum, 0, sizeof(sum));
	if (is(BY_SESSION)) {
		for (i = 0; i < 2; i++) {
			first_pass(&first[i], i);
			second_pass(&sum[i], i);
			third_pass(&sum[i], first[i], i);
		}
	} else if (is(SUBMITTED_FIRST)) {
		for (i = 0; i < 2; i++)
			second_pass(&sum[i], i);
		for (i = 0; i < 2; i++)
			first_pass(&first[i], i);
		for (i = 0; i < 2; i++)
			third_pass(&sum[i], first[i], i);
	} else {
		for (i = 0; i < 2; i++)
			first_pass(&first[i], i);
		for (i = 0; i < 2; i++)
			second_pass(&sum[i], i);
		for (i = 0; i < 2; i++)
			third_pass(&sum[i], first[i], i);
	}
	for (i = 0; i < 2; i++) {
		unsigned int most = count_bits(model.of_writer[i]);
		struct pinion_sum bounded = pinion_sum_clamp(sum[i], most);

		o->marked |= sum[i].high < 0 || sum[i].low > (__s64)most;
		o->sum.low += bounded.low;
		o->sum.high += bounded.high;
		o->sum.cost_high += bounded.cost_high;
		o->sum.submitted += bounded.submitted;
	}
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

void module_start(struct state *s)
{
	const struct config *cfg = model.cfg;

	if (!cfg->turns && !cfg->module)
		return;
	s->mem[WORD_ROSTER] = cfg->grow ? 1 : 2;
	if (cfg->grow)
		thread_enter(&s->thread[WRITER_B], CALL_LOCK);
}

void module_call(const struct state *s, const struct thread *th, struct outcome *o)
{
	switch (th->call) {
	case CALL_LOOK:
		o->empty = call_high(s->mem[WORD_ROSTER], th->local) + module_own(s, th->local) <= 0;
		if (module_own(s, th->local))
			model.reached |= REACHED_OWN;
		break;
	case CALL_SHOW:
		pinion_flush_flip(call_controls(), s->mem[WORD_ROSTER], (__u32)model.first[WORD_EPOCH] + s->kept.epoch);
		break;
	case CALL_UNBIND:
		call_unbind(s, o);
		break;
	case CALL_HOLD:
		pinion_store(&roster.held, held(s));
		break;
	case CALL_UNLOCK:
		model_fence();
		break;
	case CALL_READ:
		call_read_sessions(o);
		break;
	}
}

int module_go_on(struct state *s, unsigned int t, const struct outcome *o, int stale)
{
	switch (s->thread[t].call) {
	case CALL_LOOK:
		after_look(s, o, stale);
		return 1;
	case CALL_SHOW:
		turn_next(s);
		return 1;
	case CALL_UNBIND:
		after_unbind(s, o);
		return 1;
	case CALL_UNLOCK:
		s->kept.locked = 0;
		break;
	}
	if (t != TAKER || !model.cfg->module)
		return 0;
	drop_next(s);
	return 1;
}
