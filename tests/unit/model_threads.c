/* SPDX-License-Identifier: MIT */
#include "model_threads.h"

#include <string.h>

#include "model_calls.h"
#include "model_memory.h"
#include "model_module.h"
#include "model_truth.h"

/* ---- what comes after a call ------------------------------------------------------------------------------------ */

void thread_enter(struct thread *th, enum call call)
{
	th->call = call;
	th->done = 0;
	th->loads = 0;
	memset(th->fold, 0xff, sizeof(th->fold));
	if (call == CALL_NONE || call == CALL_OVER)
		th->arg = th->local = th->phase = 0;
}

static void after_begin(struct state *s, unsigned int t, const struct outcome *o)
{
	struct thread *th = &s->thread[t];
	__u8 *unit = &s->ghost.unit[th->arg];

	if (o->word != ((*unit & UNIT_ODD) ? 1u : 0u))
		broke(INEXACT);
	if ((*unit & UNIT_LIFE) == BEGINNING)
		*unit += OPEN - BEGINNING;
	memory_hand_over(s, t, th->arg);
	thread_enter(th, CALL_NONE);
}

static void after_end(struct state *s, struct thread *th, const struct outcome *o)
{
	struct thread *flusher = &s->thread[FLUSHER];

	thread_enter(th, CALL_NONE);
	if (!o->word || flusher->call == CALL_NONE || model.cfg->sleep != 1)
		return;
	s->ghost.kicked = 1;
	if (flusher->waiting) {
		s->ghost.kicked = 0;
		flusher->waiting = 0;
		thread_advance(s, FLUSHER);
	}
}

static void flush_ended(struct state *s, struct thread *th)
{
	thread_enter(th, CALL_NONE);
	if (model.cfg->bare)
		truth_flush_over(s);
	else
		truth_flush_end(s);
	s->ghost.flushes--;
}

static void after_start(struct state *s, struct thread *th, const struct outcome *o)
{
	th->local = o->word - (__u32)model.first[WORD_EPOCH];
	th->arg = o->lanes;
	truth_flush_agreed(s);
	th->phase = 0;
	if (o->again) {
		th->phase = 1;
		thread_enter(th, CALL_DRAIN);
	} else if (model.cfg->bare || is(NO_IDLE_DRAIN) || is(FLIP_FIRST)) {
		th->phase = !is(FLIP_FIRST);
		th->local++;
		thread_enter(th, CALL_FLIP);
	} else {
		thread_enter(th, CALL_DRAIN);
	}
}

/*
 * A drain that found something looks again. When all it loaded is still so, looking again can only come to the same
 * until something changes; what others do between its loads was tried in this drain already, because loads hinder
 * nobody. So the flusher waits for a change, and no schedule is lost.
 */
static void drain_failed(struct state *s, struct thread *th, int stale)
{
	if (model.cfg->sleep == 1) {
		stale = s->ghost.kicked;
		s->ghost.kicked = 0;
	}
	if (model.cfg->sleep && !s->mem[WORD_ARMED] && !th->waiting) {
		thread_enter(th, CALL_ARM);
		return;
	}
	thread_enter(th, CALL_DRAIN);
	th->waiting = !stale;
	if (!stale)
		model.reached |= REACHED_WAIT;
}

static void after_drain(struct state *s, struct thread *th, const struct outcome *o, int stale)
{
	if (o->lanes > th->arg) {
		th->arg = o->lanes;
		s->ghost.stage[1] = is(NO_FLIP_AGAIN) ? 1 + th->phase : 0;
		thread_enter(th, is(NO_FLIP_AGAIN) ? CALL_DRAIN : CALL_FLIP);
	} else if (!o->empty) {
		drain_failed(s, th, stale);
	} else if (th->phase == 0) {
		th->phase = 1;
		if (!is(FLIP_FIRST)) {
			th->local++;
			thread_enter(th, CALL_FLIP);
		} else {
			thread_enter(th, CALL_DRAIN);
		}
	} else {
		flush_ended(s, th);
	}
}

static void after_flip(struct state *s, struct thread *th)
{
	if (model.cfg->bare || (is(NO_OLD_DRAIN) && th->phase))
		flush_ended(s, th);
	else
		thread_enter(th, CALL_DRAIN);
}

static void after_arm(struct state *s, struct thread *th)
{
	thread_enter(th, CALL_DRAIN);
	if (is(NO_ARM_CHECK)) {
		th->waiting = !s->ghost.kicked;
		s->ghost.kicked = 0;
	}
}

static void after_read(struct state *s, struct thread *th, const struct outcome *o)
{
	if (o->asked) {
		model.reached |= REACHED_ASKED;
		thread_enter(th, CALL_OVER);
	} else if (!o->again) {
		if (o->marked)
			broke(INEXACT);
		truth_read(s, o->sum);
		thread_enter(th, CALL_OVER);
	} else {
		model.reached |= REACHED_AGAIN;
		thread_enter(th, CALL_READ);
	}
	truth_read_begin(s);
}

/* The steps of a takeover in their order. The new owner is the taker itself: what it has not drained comes with it. */
static void taker_next(struct state *s, struct thread *th)
{
	static const __u8 order[] = { CALL_BUMP, CALL_RETIRE, CALL_RETIRE, CALL_BUMP, CALL_OWN, CALL_OVER };
	static const __u8 hasty[] = { CALL_OWN, CALL_BUMP, CALL_RETIRE, CALL_RETIRE, CALL_BUMP, CALL_OVER };
	const __u8 *steps = is(OWNER_FIRST) ? hasty : order;
	struct thread *heir = &s->thread[WRITER_A];

	do {
		thread_enter(th, steps[th->phase++]);
	} while (th->call == CALL_BUMP && is(NO_BUMP_BEFORE) && th->phase == 1);
	if (th->call == CALL_RETIRE)
		th->arg = steps[th->phase] == CALL_RETIRE ? 0 : 1;
	if (th->call != CALL_OVER || is(OUTLIVES_MARK))
		return;
	memcpy(heir->buffer, th->buffer, sizeof(th->buffer));
	heir->depth = th->depth;
	th->depth = 0;
	thread_enter(heir, CALL_NONE);
	if (!heir->depth)
		thread_enter(&s->thread[WRITER_B], CALL_NONE);
}

/*
 * The lane is in the roster, and then the sequence tells of it, before its first unit begins: its units may end in
 * lanes that a reading has looked at already, so that reading must be made again.
 */
static void grow_next(struct thread *th)
{
	static const __u8 after[] = { CALL_GROW, CALL_BUMP, CALL_NONE };
	static const __u8 none[] = { CALL_GROW, CALL_NONE };
	static const __u8 before[] = { CALL_BUMP, CALL_GROW, CALL_NONE };
	const __u8 *steps = is(GROW_NO_BUMP) ? none : is(GROW_BUMP_BEFORE) ? before : after;

	thread_enter(th, steps[th->phase++]);
	if (th->call == CALL_NONE)
		th->phase = 0;
}

static void go_on(struct state *s, unsigned int t, const struct outcome *o, int stale)
{
	struct thread *th = &s->thread[t];

	if (module_go_on(s, t, o, stale))
		return;
	switch (th->call) {
	case CALL_BEGIN:
		after_begin(s, t, o);
		break;
	case CALL_END:
		after_end(s, th, o);
		break;
	case CALL_START:
		after_start(s, th, o);
		break;
	case CALL_DRAIN:
		after_drain(s, th, o, stale);
		break;
	case CALL_FLIP:
		after_flip(s, th);
		break;
	case CALL_ARM:
		after_arm(s, th);
		break;
	case CALL_READ:
		after_read(s, th, o);
		break;
	default:
		if (t == TAKER)
			taker_next(s, th);
		else
			grow_next(th);
	}
}

/* ---- going on --------------------------------------------------------------------------------------------------- */

void thread_advance(struct state *s, unsigned int t)
{
	struct thread *th = &s->thread[t];
	struct outcome o;
	int stale;

	for (;;) {
		th->next = (struct op){ OP_NONE, 0, 0, TAG_NONE };
		if (th->call == CALL_NONE || th->call == CALL_OVER || th->call == CALL_LOCK || th->waiting)
			return;
		th->next = call_run(s, t, &o, &stale);
		if (th->next.kind == OP_NONE)
			go_on(s, t, &o, stale);
		else if (memory_private(s, t, &th->next))
			memory_access(s, t);
		else
			return;
	}
}

int thread_ready(const struct state *s, unsigned int t)
{
	unsigned int kind = s->thread[t].next.kind;

	if (module_blocks(s, t))
		return 0;
	return kind == OP_LOAD || ((kind == OP_STORE || kind == OP_RELEASE) && model.cfg->order == ORDER_SC);
}

void thread_step(struct state *s, unsigned int t)
{
	memory_access(s, t);
	thread_advance(s, t);
}

void thread_drain(struct state *s, unsigned int t, unsigned int i)
{
	memory_drain(s, t, i);
	thread_advance(s, t);
	/* The second writer of a new owner starts when everyone can see that owner. */
	if (t == WRITER_A && s->ghost.incarnation == 2 && s->mem[WORD_OWNER] == OWNER_TWO &&
	    s->thread[WRITER_B].call == CALL_OVER && !is(OUTLIVES_MARK))
		thread_enter(&s->thread[WRITER_B], CALL_NONE);
}

/* ---- writers ---------------------------------------------------------------------------------------------------- */

int thread_may_begin(const struct state *s, unsigned int t, unsigned int *unit)
{
	unsigned int mine = model.of[s->ghost.killed && !is(OUTLIVES_MARK) ? 2 : 1] & model.of_writer[t];

	if (s->thread[t].call != CALL_NONE)
		return 0;
	for (*unit = 0; *unit < model.units; ++*unit)
		if ((mine & (1u << *unit)) && (s->ghost.unit[*unit] & UNIT_LIFE) == UNBORN)
			return 1;
	return 0;
}

static int handed_over(const struct state *s, unsigned int unit)
{
	if (is(EARLY_HANDOVER))
		return (s->ghost.unit[unit] & UNIT_LIFE) != UNBORN;
	return (s->ghost.handed >> unit) & 1;
}

static int may_end(const struct state *s, unsigned int t, unsigned int unit)
{
	unsigned int life = s->ghost.unit[unit] & UNIT_LIFE;
	int mine = (model.of_writer[t] >> unit) & 1;

	if ((life != OPEN && !is(EARLY_HANDOVER)) || life == UNBORN || life == OVER)
		return 0;
	if (model.cfg->cross != END_ANY && mine != (model.cfg->cross == END_OWN))
		return 0;
	if (!mine && !handed_over(s, unit))
		return 0;
	return !truth_held(s, unit);
}

/* Of units that nothing tells apart only the first is ended: the others would come to the same. */
int thread_may_end(const struct state *s, unsigned int t, unsigned int unit)
{
	const struct ghost *g = &s->ghost;
	unsigned int i;

	if (s->thread[t].call != CALL_NONE || !may_end(s, t, unit))
		return 0;
	for (i = 0; i < unit; i++)
		if (g->unit[i] == g->unit[unit] &&
		    ((model.of_writer[0] >> i) & 1) == ((model.of_writer[0] >> unit) & 1) &&
		    ((g->handed >> i) & 1) == ((g->handed >> unit) & 1) &&
		    ((g->must >> i) & 1) == ((g->must >> unit) & 1) && module_waits(s, i) == module_waits(s, unit))
			return 0;
	return 1;
}

static void enter_unit(struct state *s, unsigned int t, enum call call, unsigned int unit)
{
	thread_enter(&s->thread[t], call);
	s->thread[t].arg = unit;
	thread_advance(s, t);
	if (thread_ready(s, t))
		thread_step(s, t);
}

void thread_begin(struct state *s, unsigned int t, unsigned int unit)
{
	s->ghost.unit[unit] = BEGINNING;
	enter_unit(s, t, CALL_BEGIN, unit);
}

void thread_end(struct state *s, unsigned int t, unsigned int unit)
{
	unsigned int odd = s->ghost.unit[unit] & UNIT_ODD;

	s->ghost.unit[unit] = odd | OVER;
	s->thread[t].local = odd != 0;
	enter_unit(s, t, CALL_END, unit);
}

/* ---- the flusher ------------------------------------------------------------------------------------------------ */

int thread_may_flush(const struct state *s)
{
	const struct thread *th = &s->thread[FLUSHER];

	if (model.cfg->turns)
		return module_may_flush(s);
	return s->ghost.flushes && th->call == CALL_NONE && th->depth == 0;
}

void thread_flush(struct state *s)
{
	if (model.cfg->turns) {
		module_flush(s);
		return;
	}
	truth_flush_begin(s);
	thread_enter(&s->thread[FLUSHER], CALL_START);
	thread_advance(s, FLUSHER);
}

void threads_stored(struct state *s, unsigned int word)
{
	struct thread *th = &s->thread[FLUSHER];
	unsigned int odd = (model.first[WORD_EPOCH] + th->local + 1) & 1;

	if (model.cfg->turns)
		odd = th->local != PINION_EVEN;
	if (!th->waiting || model.cfg->sleep == 1 || (word >= WORD_EPOCH && word < WORD_SEQ))
		return;
	if (counts(word) && ((word & WORD_COST) || (!is(FLIP_FIRST) && ((word & WORD_PARITY) != 0) != odd)))
		return;
	th->waiting = 0;
	thread_advance(s, FLUSHER);
}

/* ---- death ------------------------------------------------------------------------------------------------------ */

static void stop(struct state *s, unsigned int t, enum call call)
{
	struct thread *th = &s->thread[t];

	memory_drop(s, t);
	thread_enter(th, call);
	th->waiting = 0;
	th->next = (struct op){ OP_NONE, 0, 0, TAG_NONE };
}

int thread_may_die(const struct state *s, unsigned int t)
{
	const struct thread *th = &s->thread[t];

	if (t == FLUSHER)
		return s->ghost.deaths && s->ghost.flushes > 1 && th->call != CALL_NONE;
	return t == TAKER && s->ghost.takers > 1 && th->call != CALL_OVER && th->phase;
}

void thread_die(struct state *s, unsigned int t)
{
	if (t == FLUSHER) {
		if (s->mem[WORD_EPOCH] != s->mem[WORD_EPOCH + 1])
			model.reached |= REACHED_SPLIT;
		stop(s, t, CALL_NONE);
		truth_flush_over(s);
		s->ghost.deaths--;
		s->ghost.flushes--;
		return;
	}
	s->ghost.takers--;
	stop(s, TAKER, CALL_OVER);
	taker_next(s, &s->thread[TAKER]);
	thread_advance(s, TAKER);
}

int thread_may_kill(const struct state *s)
{
	return model.cfg->kill && !s->ghost.killed;
}

/* All threads of the owner stop, the kernel marks the owner word, and whoever wants the page takes over. */
void thread_kill(struct state *s)
{
	s->mem[WORD_OWNER] = OWNER_DEAD;
	if (!is(OUTLIVES_MARK)) {
		truth_killed(s);
		stop(s, WRITER_A, CALL_OVER);
		stop(s, WRITER_B, CALL_OVER);
	}
	s->ghost.killed = 1;
	threads_stored(s, WORD_OWNER);
	if (!s->ghost.takers)
		return;
	if (model.cfg->module) {
		module_killed(s);
		return;
	}
	taker_next(s, &s->thread[TAKER]);
	thread_advance(s, TAKER);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

void threads_start(struct state *s)
{
	unsigned int t;

	memset(s, 0, sizeof(*s));
	truth_start(s);
	for (t = 0; t < THREADS; t++)
		thread_enter(&s->thread[t], CALL_NONE);
	thread_enter(&s->thread[TAKER], CALL_OVER);
	module_start(s);
	if (model.cfg->grow && !model.cfg->turns) {
		grow_next(&s->thread[WRITER_B]);
		thread_advance(s, WRITER_B);
	}
	thread_enter(&s->thread[READER], model.cfg->reader ? CALL_READ : CALL_OVER);
	thread_advance(s, READER);
	truth_watch(s);
}

void threads_over(const struct state *s)
{
	const struct thread *flusher = &s->thread[FLUSHER];
	unsigned int unit;

	if (s->ghost.flushes || s->kept.wanted > s->kept.covered)
		broke(flusher->waiting && model.cfg->sleep == 1 ? WAKE_LOST : FLUSH_STUCK);
	if (s->thread[READER].call != CALL_OVER)
		broke(READ_STUCK);
	for (unit = 0; unit < model.units; unit++)
		if ((s->ghost.unit[unit] & UNIT_LIFE) != OVER && (model.of[truth_alive(s)] & (1u << unit)))
			broke(WRITER_STUCK);
}
