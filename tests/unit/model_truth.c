/* SPDX-License-Identifier: MIT */
#include "model_truth.h"

#include <stdlib.h>
#include <string.h>

#include "model_memory.h"
#include "model_module.h"

void truth_setup(void)
{
	const struct config *cfg = model.cfg;
	unsigned int incarnation, writer, i;

	model.units = 0;
	memset(model.of, 0, sizeof(model.of));
	memset(model.of_writer, 0, sizeof(model.of_writer));
	for (incarnation = 0; incarnation < 2; incarnation++)
		for (writer = 0; writer < 2; writer++)
			for (i = 0; i < cfg->units[incarnation][writer]; i++, model.units++) {
				model.of[incarnation + 1] |= 1u << model.units;
				model.of_writer[writer] |= 1u << model.units;
			}
	if (model.units > UNITS)
		abort();
	/* So that no sum of one writer's costs is taken for one of the other's. */
	model.cost[WRITER_A] = 1;
	model.cost[WRITER_B] = 5;
	model.broken = HOLDS;
	model.reached = 0;
}

void truth_start(struct state *s)
{
	s->ghost.incarnation = 1;
	s->ghost.expect = model.cfg->reader == READ_SESSIONS;
	s->ghost.flushes = model.cfg->flushes;
	s->ghost.deaths = model.cfg->deaths;
	s->ghost.takers = model.cfg->takers;
}

unsigned int truth_alive(const struct state *s)
{
	return s->ghost.killed && s->ghost.incarnation == 1 ? 0 : s->ghost.incarnation;
}

static unsigned int cost_of(unsigned int mask)
{
	return count_bits(mask & model.of_writer[WRITER_A]) * model.cost[WRITER_A] +
	       count_bits(mask & model.of_writer[WRITER_B]) * model.cost[WRITER_B];
}

/* Where nothing is on its way between owners, a reading at this very moment is exact. */
void truth_check(const struct state *s)
{
	const struct pinion_lane *lane[2] = { memory_lane(0), memory_lane(1) };
	const struct ghost *g = &s->ghost;
	unsigned int of = model.of[g->incarnation];
	struct pinion_sum sum;

	if (g->retiring || s->kept.locked || (model.cfg->module && !s->mem[WORD_ROSTER]))
		return;
	replay_still(s);
	sum = pinion_lanes_sum(lane, pinion_load(&roster.lanes));
	sum.high += module_own(s, PINION_BOTH);
	sum.low += module_own(s, PINION_BOTH);
	sum.cost_high += module_own_cost(s);
	if (sum.high != sum.low || sum.high != (__s64)count_bits(g->begun & of) - (__s64)count_bits(g->ended & of) ||
	    sum.cost_high != (__s64)cost_of(g->begun_cost & of) - (__s64)cost_of(g->ended_cost & of))
		broke(INEXACT);
}

/* Units of an owner that was taken over are no longer told apart. */
static void forget(struct ghost *g)
{
	g->begun &= ~model.of[1];
	g->handed &= ~model.of[1];
	g->ended &= ~model.of[1];
	g->begun_cost &= ~model.of[1];
	g->ended_cost &= ~model.of[1];
}

/* ---- stores and loads ------------------------------------------------------------------------------------------- */

static __u8 flusher_tag(const struct thread *th)
{
	unsigned int flipped = is(FLIP_FIRST) ? 1 : th->phase;

	return TAG_STAGE + (th->call == CALL_FLIP && flipped ? 2 : 1);
}

__u8 truth_tag(const struct state *s, unsigned int t, const struct op *op)
{
	const struct thread *th = &s->thread[t];

	switch (th->call) {
	case CALL_BEGIN:
		return TAG_BEGIN + th->arg;
	case CALL_END:
		return TAG_END + th->arg;
	case CALL_START:
	case CALL_FLIP:
		return counts(op->word) ? TAG_NONE : flusher_tag(th);
	case CALL_BUMP:
		return t == TAKER && !model.cfg->module ? TAG_BUMP + th->arg : TAG_NONE;
	case CALL_RETIRE:
		return TAG_RETIRE;
	default:
		return TAG_NONE;
	}
}

static void note_late(const struct state *s, unsigned int unit)
{
	unsigned int word = WORD_EPOCH + ((model.of_writer[WRITER_B] >> unit) & 1);
	unsigned int now = (model.first[word] + s->mem[word]) & 1;

	if (now != ((s->ghost.unit[unit] & UNIT_ODD) ? 1u : 0u))
		model.reached |= REACHED_LATE;
}

static void waits_no_more(struct state *s, unsigned int units)
{
	unsigned int i;

	s->ghost.must &= ~units;
	for (i = 0; i < sizeof(s->kept.must); i++)
		s->kept.must[i] &= ~units;
}

static void unit_stored(struct state *s, const struct op *op)
{
	struct ghost *g = &s->ghost;
	unsigned int unit = op->tag & 7, cost = op->word & WORD_COST;

	if ((op->tag & ~7u) == TAG_BEGIN) {
		note_late(s, unit);
		*(cost ? &g->begun_cost : &g->begun) |= 1u << unit;
	} else {
		*(cost ? &g->ended_cost : &g->ended) |= 1u << unit;
		if (!cost) {
			g->unit[unit] = OVER;
			waits_no_more(s, 1u << unit);
		}
	}
}

static void taken_over(struct state *s)
{
	s->ghost.retiring = 0;
	s->ghost.incarnation = 2;
	if (s->thread[READER].call != CALL_READ || s->ghost.expect != 1)
		forget(&s->ghost);
}

void truth_stored(struct state *s, const struct op *op)
{
	switch (op->tag & ~7u) {
	case TAG_BEGIN:
	case TAG_END:
		unit_stored(s, op);
		break;
	case TAG_STAGE:
		if (s->thread[FLUSHER].call != CALL_NONE)
			s->ghost.stage[op->word - WORD_EPOCH] = op->tag & 7;
		break;
	case TAG_HANDOVER:
		s->ghost.handed |= 1u << (op->tag & 7);
		break;
	case TAG_RETIRE:
		s->ghost.retiring = 1;
		break;
	case TAG_BUMP:
		if (op->tag & 7)
			taken_over(s);
		else
			s->ghost.retiring = 1;
		break;
	}
}

/*
 * What the control word must have shown: while the module is about to show another epoch, what it does show. Above the first
 * one; a little of it is enough.
 */
static unsigned int epoch_meant(const struct state *s, const struct op *op)
{
	const struct thread *flusher = &s->thread[FLUSHER];
	__u32 shown = (__u32)model.first[op->word] + (__u32)(__s8)op->raw - (__u32)model.first[WORD_EPOCH];

	return (flusher->call == CALL_SHOW || flusher->depth ? shown : s->kept.epoch) & 7;
}

static void epoch_loaded(struct state *s, unsigned int t, const struct op *op)
{
	__u8 *unit = &s->ghost.unit[s->thread[t].arg];
	unsigned int stage = s->thread[FLUSHER].call != CALL_NONE && model.cfg->hold ? s->ghost.stage[t] : 0;

	if (model.cfg->turns)
		stage = model.cfg->hold ? epoch_meant(s, op) : 0;
	*unit = BEGINNING | (((model.first[op->word] + op->raw) & 1) ? UNIT_ODD : 0) | stage * UNIT_STAGE;
}

static void read_loaded(struct ghost *g, const struct op *op)
{
	unsigned int of = model.of[g->expect];

	if (!counts(op->word))
		return;
	if (!g->started) {
		g->started = 1;
		g->first_begun = count_bits(g->begun & of);
		g->first_ended = count_bits(g->ended & of);
		g->first_ended_cost = cost_of(g->ended_cost & of);
	}
	if (g->gap == 1 || g->gap == 3)
		g->gap++;
}

void truth_loaded(struct state *s, unsigned int t, const struct op *op)
{
	unsigned int call = s->thread[t].call;

	if (call == CALL_BEGIN && op->word == WORD_EPOCH + t)
		epoch_loaded(s, t, op);
	else if (call == CALL_READ && model.cfg->module && op->word == WORD_ROSTER)
		s->ghost.expect = op->raw != 0;
	else if (call == CALL_READ && op->word == WORD_OWNER)
		s->ghost.expect = truth_alive(s);
	else if (call == CALL_READ)
		read_loaded(&s->ghost, op);
}

void truth_killed(struct state *s)
{
	unsigned int unit;

	s->ghost.killed = 1;
	waits_no_more(s, model.of[1]);
	for (unit = 0; unit < model.units; unit++)
		if (model.of[1] & (1u << unit))
			s->ghost.unit[unit] = OVER;
}

/* ---- flush ------------------------------------------------------------------------------------------------------ */

void truth_flush_begin(struct state *s)
{
	struct ghost *g = &s->ghost;

	g->must = g->handed & ~g->ended & model.of[truth_alive(s)];
	memset(g->stage, 0, sizeof(g->stage));
}

/* The control words agree from here on, those apart that are still in the buffer. */
void truth_flush_agreed(struct state *s)
{
	const struct thread *th = &s->thread[FLUSHER];
	unsigned int lane, i;

	for (lane = 0; lane < th->arg; lane++) {
		for (i = 0; i < th->depth; i++)
			if (th->buffer[i].word == WORD_EPOCH + lane)
				break;
		if (i == th->depth)
			s->ghost.stage[lane] = 1;
	}
}

void truth_flush_end(struct state *s)
{
	unsigned int unit;

	for (unit = 0; unit < model.units; unit++)
		if (s->ghost.unit[unit] / UNIT_STAGE == 2)
			model.reached |= REACHED_HELD;
	if (s->ghost.must)
		broke(FLUSH_EARLY);
	truth_flush_over(s);
}

void truth_flush_over(struct state *s)
{
	unsigned int unit;

	s->ghost.must = 0;
	s->ghost.kicked = 0;
	memset(s->ghost.stage, 0, sizeof(s->ghost.stage));
	for (unit = 0; unit < UNITS; unit++)
		s->ghost.unit[unit] &= UNIT_LIFE | UNIT_ODD;
}

/* Stage 1 began after the control words agreed: it must not block the first wait. Stage 2 began after the flip. */
int truth_held(const struct state *s, unsigned int unit)
{
	unsigned int stage = s->ghost.unit[unit] / UNIT_STAGE;

	if (model.cfg->turns)
		return model.cfg->hold && s->kept.state != PINION_TURN_NONE && stage == (s->kept.epoch & 7u);
	return stage == 2 || (stage == 1 && s->thread[FLUSHER].phase == 0);
}

void truth_covered(struct state *s, unsigned int from, unsigned int to)
{
	unsigned int unit;

	if (to < from || to > s->kept.flushes)
		broke(FLUSH_EARLY);
	for (; from < to; from++)
		if (s->kept.must[from])
			broke(FLUSH_EARLY);
	for (unit = 0; unit < model.units; unit++)
		if ((s->ghost.unit[unit] & UNIT_LIFE) == OPEN && truth_held(s, unit))
			model.reached |= REACHED_HELD;
}

/* ---- the reading ------------------------------------------------------------------------------------------------ */

static unsigned int pending(const struct state *s)
{
	const struct ghost *g = &s->ghost;
	unsigned int mask = g->begun & ~g->ended & model.of[g->expect];
	unsigned int unit, parity;

	if (model.cfg->reader >= PINION_BOTH)
		return mask;
	for (unit = 0; unit < model.units; unit++) {
		parity = (g->unit[unit] & UNIT_ODD) ? PINION_ODD : PINION_EVEN;
		if (parity != model.cfg->reader)
			mask &= ~(1u << unit);
	}
	return mask;
}

void truth_read_begin(struct state *s)
{
	struct ghost *g = &s->ghost;

	g->gap = g->started = 0;
	g->expect = model.cfg->reader == READ_SESSIONS;
	g->high = g->low = g->cost_high = 0;
	g->first_begun = g->first_ended = g->first_ended_cost = 0;
	if (g->incarnation == 2)
		forget(g);
}

/*
 * The instant between two passes is not one: high is held against the largest truth from the last load of the first
 * pass to the first load of the second, low against the smallest between the second and the third.
 */
void truth_watch(struct state *s)
{
	const struct op *next = &s->thread[READER].next;
	struct ghost *g = &s->ghost;
	unsigned int truth, cost;

	if (s->thread[READER].call != CALL_READ || next->kind != OP_LOAD || !counts(next->word))
		return;
	truth = count_bits(pending(s));
	cost = cost_of(g->begun_cost & ~g->ended_cost & model.of[g->expect]);
	/* The module reads costs in the second pass, both sides of them. */
	if (model.cfg->reader == READ_SESSIONS && (next->word & WORD_COST))
		return;
	if (g->gap == 0 && !(next->word & WORD_COMPLETED)) {
		g->gap = 1;
	} else if (g->gap == 2 && (next->word & WORD_COMPLETED)) {
		g->gap = 3;
		g->low = truth;
	}
	if (g->gap == 1 && g->high < truth)
		g->high = truth;
	if (g->gap == 1 && g->cost_high < cost)
		g->cost_high = cost;
	if (g->gap == 3 && g->low > truth)
		g->low = truth;
}

/* No more than pended at some time while the lanes were read, each unit once; no less than pended all the while. */
static void check_sum(const struct ghost *g, const struct pinion_sum *sum, unsigned int of)
{
	struct pinion_sum clamped = pinion_sum_clamp(*sum, model.units);

	if (sum->low > g->low || clamped.low > g->low)
		broke(LOW_ABOVE);
	if (sum->low < (__s64)g->first_begun - (__s64)count_bits(g->ended & of))
		broke(LOW_BELOW);
	if (sum->cost_high < g->cost_high)
		broke(COST_BELOW);
	if (sum->cost_high > (__s64)cost_of(g->begun_cost & of) - (__s64)g->first_ended_cost)
		broke(COST_ABOVE);
	if (clamped.high < g->high)
		broke(HIGH_BELOW);
}

void truth_read(struct state *s, struct pinion_sum sum)
{
	const struct ghost *g = &s->ghost;
	unsigned int of = model.of[g->expect];

	if (sum.high < g->high)
		broke(HIGH_BELOW);
	if (model.cfg->reader >= PINION_BOTH && sum.high > (__s64)count_bits(g->begun & of) - (__s64)g->first_ended)
		broke(HIGH_ABOVE);
	if (sum.low > sum.high || (model.cfg->reader == READ_SESSIONS && sum.low > g->low))
		broke(LOW_ABOVE);
	if (model.cfg->reader == READ_SUM)
		check_sum(g, &sum, of);
}
