/* SPDX-License-Identifier: MIT */
#include "model_calls.h"

#include <string.h>

#include "model_memory.h"
#include "model_module.h"

static const struct pinion_lane *const *all_lanes(void)
{
	static const struct pinion_lane *lane[2];

	lane[0] = memory_lane(0);
	lane[1] = memory_lane(1);
	return lane;
}

struct pinion_control *const *call_controls(void)
{
	static struct pinion_control *control[2];

	control[0] = memory_control(0);
	control[1] = memory_control(1);
	return control;
}

static unsigned int cost_of_unit(unsigned int unit)
{
	return model.cost[(model.of_writer[WRITER_B] >> unit) & 1];
}

static void end_plain(struct pinion_lane *lane, __u32 parity, __u64 cost)
{
	struct pinion_count *c = &lane->completed[parity];

	pinion_store(&c->cost, pinion_load(&c->cost) + cost);
	pinion_store(&c->ops, pinion_load(&c->ops) + 1);
}

static void call_end(unsigned int t, const struct thread *th, struct outcome *o)
{
	__u32 parity = th->local;

	if (is(END_UNDER_EPOCH))
		parity = pinion_load(&memory_control(t)->epoch) & 1;
	if (is(END_PLAIN))
		end_plain(memory_lane(t), parity, cost_of_unit(th->arg));
	else
		o->word = pinion_lane_end(memory_control(t), memory_lane(t), parity, cost_of_unit(th->arg));
}

static void call_start(struct outcome *o)
{
	struct pinion_control *const *control = call_controls();
	__u32 second;

	o->lanes = pinion_load_acquire(&roster.lanes);
	if (is(NO_AGREEMENT)) {
		o->word = pinion_load(&control[0]->epoch);
		return;
	}
	second = o->lanes > 1 && is(TRUST_PREDECESSOR) ? pinion_load(&control[1]->epoch) : 0;
	o->word = pinion_flush_start(control, o->lanes);
	o->again = is(TRUST_PREDECESSOR) && second != o->word;
}

__s64 call_high(__u32 lanes, __u32 parities)
{
	const struct pinion_lane *const *lane = all_lanes();
	__u64 sum = 0;
	__u32 i;

	if (is(SUBMITTED_FIRST)) {
		for (i = 0; i < lanes; i++)
			sum += pinion_lane_submitted(lane[i], parities);
		for (i = 0; i < lanes; i++)
			sum -= pinion_lane_completed(lane[i], parities);
		return (__s64)sum;
	}
	if (is(LANE_BY_LANE)) {
		for (i = 0; i < lanes; i++) {
			sum -= pinion_lane_completed(lane[i], parities);
			sum += pinion_lane_submitted(lane[i], parities);
		}
		return (__s64)sum;
	}
	return pinion_lanes_high(lane, lanes, parities);
}

static int owner_counts(__u32 owner)
{
	return is(READ_DEAD) || pinion_owner_alive(owner);
}

/* The parity that the flusher waits for is always the one that the epoch it set last does not name. */
static void call_drain(const struct thread *th, struct outcome *o)
{
	__u32 parities =
		PINION_PARITY(model.first[WORD_EPOCH] + th->local + (is(FLIP_FIRST) && th->phase == 0 ? 0 : 1));
	__u64 seq = pinion_load_acquire(&roster.seq);

	o->empty = 1;
	o->lanes = 0;
	if (owner_counts(pinion_load_acquire(&roster.owner))) {
		o->lanes = pinion_load_acquire(&roster.lanes);
		o->empty = call_high(o->lanes, parities) == 0;
	}
	if (!is(NO_SEQ_CHECK) && pinion_load_acquire(&roster.seq) != seq)
		o->empty = 0;
}

static void call_read(struct outcome *o)
{
	__u64 seq = pinion_load_acquire(&roster.seq);
	__u32 lanes;

	memset(&o->sum, 0, sizeof(o->sum));
	if (owner_counts(pinion_load_acquire(&roster.owner))) {
		lanes = pinion_load_acquire(&roster.lanes);
		if (model.cfg->reader == READ_SUM)
			o->sum = pinion_lanes_sum(all_lanes(), lanes);
		else
			o->sum.high = call_high(lanes, model.cfg->reader);
	}
	if (is(LOW_FROM_FIRST))
		o->sum.low = o->sum.high;
	o->again = !is(NO_SEQ_CHECK) && pinion_load_acquire(&roster.seq) != seq;
}

/* By window: the lanes are those that LIST shows, and where something is not in the page, the module is asked instead. */
static void call_read_window(struct outcome *o)
{
	__u32 lanes = 0;
	__u64 seq;

	if (is(LIST_FIRST))
		lanes = pinion_load_acquire(&roster.lanes);
	seq = pinion_load_acquire(&roster.seq);
	o->asked = pinion_load_acquire(&roster.held) != 0;
	if (o->asked)
		return;
	if (!is(LIST_FIRST))
		lanes = pinion_load_acquire(&roster.lanes);
	o->sum = pinion_lanes_sum(all_lanes(), lanes);
	o->again = !is(NO_SEQ_CHECK) && pinion_load_acquire(&roster.seq) != seq;
}

static void retire_wrong(struct pinion_lane *lane)
{
	__u32 p;

	for (p = 0; p < 2; p++) {
		struct pinion_count *s = &lane->submitted[p], *c = &lane->completed[p];

		if (is(RETIRE_LOWERS)) {
			pinion_store(&s->cost, pinion_load(&c->cost));
			pinion_store(&s->ops, pinion_load(&c->ops));
		} else if (is(RETIRE_SUBMITTED)) {
			pinion_store(&c->cost, pinion_load(&s->cost));
			pinion_store(&c->ops, pinion_load(&s->ops));
		} else if (is(RETIRE_COMPLETED)) {
			if ((__s64)(pinion_load(&s->cost) - pinion_load(&c->cost)) > 0)
				pinion_store(&c->cost, pinion_load(&s->cost));
			if ((__s64)(pinion_load(&s->ops) - pinion_load(&c->ops)) > 0)
				pinion_store(&c->ops, pinion_load(&s->ops));
		} else {
			__u64 ops = pinion_load(&s->ops);

			if ((__s64)(pinion_load(&c->ops) - ops) > 0)
				ops = pinion_load(&c->ops);
			pinion_store(&s->ops, ops);
			pinion_store(&c->ops, ops);
		}
	}
}

static void call_retire(struct pinion_lane *lane)
{
	if (is(RETIRE_LOWERS) || is(RETIRE_SUBMITTED) || is(RETIRE_COMPLETED) || is(RETIRE_OPS))
		retire_wrong(lane);
	else
		pinion_lane_retire(lane);
}

static void call_arm(struct outcome *o)
{
	o->lanes = 2;
	pinion_flush_arm(call_controls(), 2, 1);
	pinion_fence();
}

struct op call_run(const struct state *s, unsigned int t, struct outcome *o, int *stale)
{
	const struct thread *th = &s->thread[t];

	memset(o, 0, sizeof(*o));
	replay_begin(s, th);
	switch (th->call) {
	case CALL_BEGIN:
		o->word = pinion_lane_begin(memory_control(t), memory_lane(t), model.cost[t]);
		break;
	case CALL_END:
		call_end(t, th, o);
		break;
	case CALL_START:
		call_start(o);
		break;
	case CALL_DRAIN:
		call_drain(th, o);
		break;
	case CALL_FLIP:
		pinion_flush_flip(call_controls(), th->arg, (__u32)model.first[WORD_EPOCH] + th->local);
		break;
	case CALL_ARM:
		call_arm(o);
		break;
	case CALL_READ:
		if (model.cfg->module)
			call_read_window(o);
		else if (model.cfg->reader == READ_SESSIONS)
			module_call(s, th, o);
		else
			call_read(o);
		break;
	case CALL_BUMP:
		if (is(BUMP_NO_FENCE))
			pinion_store_release(&roster.seq, pinion_load(&roster.seq) + 1);
		else
			pinion_roster_bump(&roster.seq);
		break;
	case CALL_RETIRE:
		call_retire(memory_lane(th->arg));
		break;
	case CALL_OWN:
		pinion_store_release(&roster.owner, OWNER_SECOND_TID);
		break;
	case CALL_GROW:
		pinion_store_release(&roster.lanes, 2);
		break;
	default:
		module_call(s, th, o);
	}
	return replay_end(stale);
}

struct pinion_sum call_read_with(const struct state *s, const __u8 *log, unsigned int done)
{
	struct thread th = { .call = CALL_READ, .done = done };
	struct outcome o;

	memcpy(th.log, log, sizeof(th.log));
	replay_begin(s, &th);
	call_read(&o);
	return o.sum;
}
