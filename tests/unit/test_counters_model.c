/* SPDX-License-Identifier: MIT */
/*
 * The counter protocol under every schedule of small worlds (uapi/linux/pinion_counters.h, compiled as it is).
 *
 * model_state.h says what a world is. Each line of output names the bounds of one and what was explored. A table of
 * protocols that are wrong in one place each shows that the checker sees what it looks for.
 *
 * What the header leaves to its callers is taken for granted here, and what comes of it otherwise is in that table
 * where the model can tell: one flusher of a session at a time and one taker; an owner word that is marked when the
 * last thread of its owner has stopped, and that lives again only after the takeover; a unit's work handed over by a
 * release after its begin; a bump after a lane was added, before its first unit; readers and flushers that look at the
 * sequence again.
 *
 * The module's part of it (model_module.h) is taken over from kmod/wait.c and kmod/count.c by hand where it is not in the
 * header: the order in which a lane is given back, and in which sessions are read. Large worlds are for a
 * $PINION_TEST_SCALE above 100.
 */
#include "harness.h"
#include "model_calls.h"
#include "model_memory.h"
#include "model_path.h"
#include "model_search.h"
#include "model_threads.h"

#define TIMEOUT 120
#define WRAP	(~0ull)

/* ---- the protocol ----------------------------------------------------------------------------------------------- */

struct world {
	struct config cfg;
	unsigned int reached; /* what it must come by */
};

/* clang-format off */
static const struct world world[] = {
	{ { .name = "read", .units = { { 2, 2 } }, .reader = PINION_BOTH, .cross = END_ANY }, REACHED_NEGATIVE },
	{ { .name = "read sum", .units = { { 2, 1 } }, .reader = READ_SUM, .cross = END_ANY }, REACHED_NEGATIVE },
	{ { .name = "read sum, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .reader = READ_SUM,
	    .cross = END_OTHER },
	  REACHED_NEGATIVE },
	{ { .name = "read sum, wrap", .order = ORDER_TSO, .units = { { 1, 1 } }, .reader = READ_SUM, .cross = END_ANY,
	    .start = WRAP },
	  REACHED_NEGATIVE },
	{ { .name = "read sum, relaxed", .order = ORDER_RELAXED, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .cross = END_ANY },
	  REACHED_NEGATIVE },
	{ { .name = "read over flips", .units = { { 2, 1 } }, .reader = PINION_BOTH, .cross = END_ANY, .flushes = 2,
	    .bare = 1 },
	  REACHED_NEGATIVE | REACHED_LATE },
	{ { .name = "read sum over flips, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .cross = END_OTHER, .flushes = 2, .bare = 1 },
	  REACHED_NEGATIVE | REACHED_LATE },
	{ { .name = "read even over flips, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .reader = PINION_EVEN,
	    .cross = END_OTHER, .flushes = 2, .bare = 1 },
	  REACHED_NEGATIVE | REACHED_LATE },
	{ { .name = "read odd over flips, relaxed", .order = ORDER_RELAXED, .units = { { 1, 1 } }, .reader = PINION_ODD,
	    .cross = END_ANY, .flushes = 2, .bare = 1 },
	  REACHED_NEGATIVE | REACHED_LATE },

	{ { .name = "flush", .units = { { 2, 2 } }, .cross = END_ANY, .flushes = 3, .deaths = 2 },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT },
	{ { .name = "flush, new units never end", .units = { { 3, 2 } }, .flushes = 2, .deaths = 1, .hold = 1 },
	  REACHED_LATE | REACHED_WAIT | REACHED_SPLIT | REACHED_HELD },
	{ { .name = "flush, more new units never end", .units = { { 3, 3 } }, .flushes = 2, .deaths = 1, .hold = 1,
	    .large = 1 },
	  REACHED_LATE | REACHED_WAIT | REACHED_SPLIT | REACHED_HELD },
	{ { .name = "flush, TSO", .order = ORDER_TSO, .units = { { 2, 2 } }, .flushes = 2, .deaths = 1, .large = 1 },
	  REACHED_LATE | REACHED_WAIT | REACHED_SPLIT },
	{ { .name = "flush across lanes, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .cross = END_ANY,
	    .flushes = 2, .deaths = 1 },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT },
	{ { .name = "flush, new units never end, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .cross = END_ANY,
	    .flushes = 2, .deaths = 1, .hold = 1 },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT | REACHED_HELD },
	{ { .name = "flush, wrap, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .cross = END_ANY, .flushes = 3,
	    .deaths = 2, .hold = 1, .start = WRAP, .epoch = { 0xffffffff, 0xffffffff } },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT | REACHED_HELD },
	{ { .name = "flush, relaxed", .order = ORDER_RELAXED, .units = { { 1, 1 } }, .cross = END_ANY, .flushes = 2,
	    .deaths = 1, .hold = 1 },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT },

	{ { .name = "takeover, TSO", .order = ORDER_TSO, .units = { { 2, 2 }, { 1, 1 } }, .cross = END_ANY, .kill = 1,
	    .takers = 3 },
	  REACHED_NEGATIVE },
	{ { .name = "takeover, relaxed, wrap", .order = ORDER_RELAXED, .units = { { 2, 1 }, { 1, 1 } },
	    .cross = END_ANY, .kill = 1, .takers = 2, .start = WRAP },
	  REACHED_NEGATIVE },
	{ { .name = "takeover read", .units = { { 1, 1 }, { 1, 0 } }, .reader = READ_SUM, .cross = END_ANY, .kill = 1,
	    .takers = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN },
	{ { .name = "takeover read, TSO", .order = ORDER_TSO, .units = { { 1, 1 }, { 1, 0 } }, .reader = READ_SUM,
	    .cross = END_OTHER, .kill = 1, .takers = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN },
	{ { .name = "takeover of a takeover read, TSO", .order = ORDER_TSO, .units = { { 1, 1 }, { 1, 0 } },
	    .reader = READ_SUM, .cross = END_OTHER, .kill = 1, .takers = 2, .large = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN },
	{ { .name = "takeover read, relaxed", .order = ORDER_RELAXED, .units = { { 1, 0 }, { 1, 0 } },
	    .reader = READ_SUM, .cross = END_ANY, .kill = 1, .takers = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN },
	{ { .name = "takeover flush", .units = { { 1, 1 }, { 1, 1 } }, .cross = END_OTHER, .flushes = 2, .deaths = 1,
	    .kill = 1, .takers = 1 },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT },
	{ { .name = "takeover flush, TSO", .order = ORDER_TSO, .units = { { 1, 1 }, { 1, 0 } }, .cross = END_ANY,
	    .flushes = 2, .deaths = 1, .hold = 1, .kill = 1, .takers = 1 },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT },

	{ { .name = "owner dies, flush, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .cross = END_ANY, .flushes = 2,
	    .deaths = 1, .kill = 1 },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT },

	{ { .name = "lane added, read, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .cross = END_ANY, .grow = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN },
	{ { .name = "lane added, read, relaxed", .order = ORDER_RELAXED, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .cross = END_ANY, .grow = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN },
	{ { .name = "lane added, flush", .units = { { 1, 2 } }, .cross = END_ANY, .flushes = 2, .deaths = 1, .hold = 1,
	    .grow = 1, .epoch = { 1, 0 } },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT | REACHED_HELD },
	{ { .name = "lane added ahead, flush", .units = { { 1, 2 } }, .cross = END_ANY, .flushes = 2, .deaths = 1,
	    .hold = 1, .grow = 1, .epoch = { 0xffffffff, 2 } },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT | REACHED_HELD },
	{ { .name = "lane added ahead, flush, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .cross = END_ANY,
	    .flushes = 2, .deaths = 1, .hold = 1, .grow = 1, .epoch = { 0, 1 } },
	  REACHED_NEGATIVE | REACHED_LATE | REACHED_WAIT | REACHED_SPLIT | REACHED_HELD },

	{ { .name = "sleep", .units = { { 2, 1 } }, .cross = END_ANY, .flushes = 1, .sleep = 1 },
	  REACHED_NEGATIVE | REACHED_WAIT },
	{ { .name = "sleep with a backstop, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .cross = END_ANY,
	    .flushes = 1, .sleep = 2 },
	  REACHED_NEGATIVE | REACHED_WAIT },
};

#define REACHED_TURNS (REACHED_LATE | REACHED_WAIT | REACHED_IDLE | REACHED_JOINED | REACHED_MISSED)

/* The module: its flusher, sessions that end, a reader by window, and its own reader. */
static const struct world module[] = {
	{ { .name = "turns", .units = { { 2, 1 } }, .cross = END_ANY, .flushes = 3, .turns = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS },
	{ { .name = "turns, new units never end", .units = { { 3, 1 } }, .flushes = 2, .turns = 1, .hold = 1 },
	  REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, new units never end, across lanes", .units = { { 2, 2 } }, .cross = END_ANY, .flushes = 2,
	    .turns = 1, .hold = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, another's flush between, wrap, TSO", .order = ORDER_TSO, .units = { { 1, 1 } },
	    .cross = END_ANY, .flushes = 3, .turns = 1, .foreign = 2, .hold = 1, .start = WRAP, .epoch = { 0xffffffff, 0xffffffff } },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .cross = END_ANY, .flushes = 2, .turns = 1,
	    .hold = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, four flushes", .units = { { 2, 2 } }, .cross = END_ANY, .flushes = 4, .turns = 1,
	    .hold = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, three flushes, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .cross = END_ANY,
	    .flushes = 3, .turns = 1, .hold = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, more units, relaxed", .order = ORDER_RELAXED, .units = { { 2, 1 } }, .cross = END_ANY,
	    .flushes = 3, .turns = 1, .hold = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, lane given back, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .cross = END_ANY,
	    .flushes = 2, .turns = 1, .hold = 1, .shrink = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD | REACHED_OWN },
	{ { .name = "turns, lane bound, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .cross = END_ANY, .flushes = 3,
	    .turns = 1, .hold = 1, .grow = 1, .epoch = { 0, 1 }, .large = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, owner dies, more units, TSO", .order = ORDER_TSO, .units = { { 2, 1 } }, .cross = END_ANY,
	    .flushes = 3, .turns = 1, .kill = 1, .module = 1, .takers = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_OWN },
	{ { .name = "turns, relaxed", .order = ORDER_RELAXED, .units = { { 1, 1 } }, .cross = END_ANY, .flushes = 3,
	    .turns = 1, .hold = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, lane bound", .units = { { 2, 1 } }, .cross = END_ANY, .flushes = 2, .turns = 1, .hold = 1,
	    .grow = 1, .epoch = { 0, 1 } },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD },
	{ { .name = "turns, lane given back", .units = { { 2, 1 } }, .cross = END_ANY, .flushes = 2, .turns = 1,
	    .hold = 1, .shrink = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_HELD | REACHED_OWN },
	{ { .name = "turns, owner dies, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .cross = END_ANY, .flushes = 2,
	    .turns = 1, .kill = 1, .module = 1, .takers = 1 },
	  REACHED_NEGATIVE | REACHED_TURNS | REACHED_OWN },

	{ { .name = "owner dies, read by window", .units = { { 1, 1 } }, .reader = READ_SUM, .cross = END_ANY,
	    .kill = 1, .module = 1, .takers = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN | REACHED_ASKED },
	{ { .name = "owner dies, read by window, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .cross = END_OTHER, .kill = 1, .module = 1, .takers = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN | REACHED_ASKED },
	{ { .name = "owner dies, read by window, relaxed", .order = ORDER_RELAXED, .units = { { 1, 0 } },
	    .reader = READ_SUM, .cross = END_ANY, .kill = 1, .module = 1, .takers = 1, .large = 1 },
	  REACHED_NEGATIVE | REACHED_AGAIN | REACHED_ASKED },

	{ { .name = "two sessions", .units = { { 2, 1 } }, .reader = READ_SESSIONS }, 0 },
	{ { .name = "two sessions, TSO", .order = ORDER_TSO, .units = { { 1, 1 } }, .reader = READ_SESSIONS }, 0 },
	{ { .name = "two sessions, more units, TSO", .order = ORDER_TSO, .units = { { 2, 2 } }, .reader = READ_SESSIONS,
	    .large = 1 },
	  0 },
	{ { .name = "two sessions, relaxed, wrap", .order = ORDER_RELAXED, .units = { { 1, 1 } },
	    .reader = READ_SESSIONS, .start = WRAP },
	  0 },
};
/* clang-format on */

static void print_bounds(const struct config *cfg)
{
	static const char *const order[] = { "SC", "TSO", "relaxed" };
	static const char *const readings[] = {
		"", "high of even", "high of odd", "high of both", "sum", "sums of two sessions"
	};
	static const char *const cross[] = { "its beginner", "the other writer", "either writer" };

	printf("model: %s: %s, units %u+%u", cfg->name, order[cfg->order], cfg->units[0][0], cfg->units[0][1]);
	if (cfg->kill)
		printf(" and after takeover %u+%u", cfg->units[1][0], cfg->units[1][1]);
	printf(" ended by %s", cross[cfg->cross]);
	if (cfg->bare)
		printf(", %u flips", cfg->flushes);
	else if (cfg->turns)
		printf(", %u flushes that share turns%s", cfg->flushes, cfg->hold ? " (new units held)" : "");
	else if (cfg->flushes)
		printf(", %u flushes (%u may die%s)", cfg->flushes, cfg->deaths, cfg->hold ? ", new units held" : "");
	if (cfg->reader)
		printf(", one reading (%s)", readings[cfg->reader]);
	if (cfg->grow)
		printf(", a lane added");
	if (cfg->shrink)
		printf(", a lane given back");
	if (cfg->sleep)
		printf(", asleep between looks");
	if (cfg->module)
		printf(", owner dies, the module takes its lanes off");
	else if (cfg->kill)
		printf(", owner dies, %u takers", cfg->takers);
}

static struct search_result explore(const struct config *cfg)
{
	struct search_result r;

	print_bounds(cfg);
	r = search(cfg);
	printf(": %llu states, %llu moves, %.3e schedules, longest %u: %s\n", (unsigned long long)r.moments,
	       (unsigned long long)r.moves, r.schedules, r.longest, property_name(r.broken));
	return r;
}

static void check_world(const struct world *w)
{
	struct search_result r;

	if (w->cfg.large && test_scale() <= 100)
		return;
	r = explore(&w->cfg);
	if (r.broken != HOLDS)
		path_print();
	ck_assert_msg(r.broken == HOLDS, "%s: %s", w->cfg.name, property_name(r.broken));
	ck_assert_msg((r.reached & w->reached) == w->reached, "%s: came by %x of %x", w->cfg.name, r.reached,
		      w->reached);
}

START_TEST(protocol_holds)
{
	check_world(&world[_i]);
}
END_TEST

START_TEST(module_holds)
{
	check_world(&module[_i]);
}
END_TEST

/*
 * end looks at armed without a fence between it and its count, so a processor with store buffers lets a sleeper sleep:
 * whoever sleeps for a count needs a timer as well.
 */
START_TEST(sleeper_needs_backstop)
{
	const struct config cfg = {
		.name = "sleep without a backstop", .order = ORDER_TSO, .units = { { 1, 1 } }, .flushes = 1, .sleep = 1
	};

	ck_assert_int_eq(explore(&cfg).broken, WAKE_LOST);
}
END_TEST

/* ---- protocols that are wrong in one place ---------------------------------------------------------------------- */

#define BIT(p) (1u << (p))
/* A reading of lanes in two states of ownership comes out wrong one way or another. */
#define ANY_READING \
	(BIT(HIGH_BELOW) | BIT(HIGH_ABOVE) | BIT(LOW_ABOVE) | BIT(LOW_BELOW) | BIT(COST_BELOW) | BIT(COST_ABOVE))

struct wrong {
	struct config cfg;
	unsigned int caught; /* as one of these */
};

/* clang-format off */
static const struct wrong wrong[] = {
	{ { "submitted before completed", SUBMITTED_FIRST, .units = { { 1, 1 } }, .reader = PINION_BOTH },
	  BIT(HIGH_BELOW) },
	{ { "submitted before completed in a flush", SUBMITTED_FIRST, .units = { { 1, 1 } }, .flushes = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "lane by lane", LANE_BY_LANE, END_OTHER, .units = { { 1, 0 } }, .reader = PINION_BOTH }, BIT(HIGH_BELOW) },
	{ { "lane by lane in a flush", LANE_BY_LANE, END_ANY, .units = { { 2, 1 } }, .flushes = 2 }, BIT(FLUSH_EARLY) },
	{ { "low from the first pass", LOW_FROM_FIRST, .units = { { 1, 1 } }, .reader = READ_SUM }, BIT(LOW_ABOVE) },
	{ { "idle parity not drained", NO_IDLE_DRAIN, .units = { { 1, 1 } }, .flushes = 2 }, BIT(FLUSH_EARLY) },
	{ { "old parity not drained", NO_OLD_DRAIN, .units = { { 1, 1 } }, .flushes = 1 }, BIT(FLUSH_EARLY) },
	{ { "flip before the idle drain", FLIP_FIRST, .units = { { 1, 1 } }, .flushes = 1, .hold = 1 },
	  BIT(FLUSH_STUCK) },
	{ { "control words left different", NO_AGREEMENT, .units = { { 1, 1 } }, .flushes = 2, .deaths = 1, .hold = 1 },
	  BIT(FLUSH_STUCK) },
	{ { "half a flip trusted", TRUST_PREDECESSOR, .units = { { 1, 1 } }, .flushes = 2, .deaths = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "end under the parity of now", END_UNDER_EPOCH, .units = { { 2, 0 } }, .flushes = 1 },
	  BIT(FLUSH_STUCK) | BIT(FLUSH_EARLY) },
	{ { "end before begin is counted", EARLY_HANDOVER, END_OTHER, .units = { { 1, 0 } }, .reader = READ_SUM },
	  BIT(HIGH_BELOW) | BIT(COST_BELOW) | BIT(LOW_BELOW) },
	{ { "end before begin is counted, in a flush", EARLY_HANDOVER, END_OTHER, .units = { { 2, 0 } }, .flushes = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "end without release", END_PLAIN, .order = ORDER_RELAXED, .units = { { 1, 0 } }, .reader = READ_SUM },
	  BIT(HIGH_BELOW) | BIT(COST_BELOW) },
	{ { "takeover lowers submitted", RETIRE_LOWERS, END_OTHER, .units = { { 1, 1 } }, .kill = 1, .takers = 1 },
	  BIT(WENT_DOWN) },
	{ { "takeover lowers completed", RETIRE_SUBMITTED, END_OTHER, .units = { { 1, 1 } }, .kill = 1, .takers = 1 },
	  BIT(WENT_DOWN) },
	{ { "takeover raises completed only", RETIRE_COMPLETED, END_OTHER, .units = { { 1, 1 } }, .kill = 1,
	    .takers = 1 },
	  BIT(INEXACT) },
	{ { "takeover forgets cost", RETIRE_OPS, END_OTHER, .units = { { 1, 1 } }, .kill = 1, .takers = 1 },
	  BIT(INEXACT) },
	{ { "takeover without the first bump", NO_BUMP_BEFORE, END_OTHER, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .kill = 1, .takers = 1 },
	  ANY_READING },
	{ { "bump without a fence", BUMP_NO_FENCE, END_OTHER, .order = ORDER_RELAXED, .units = { { 1, 0 } },
	    .reader = READ_SUM, .kill = 1, .takers = 1 },
	  ANY_READING },
	{ { "sequence not looked at again", NO_SEQ_CHECK, END_OTHER, .units = { { 1, 0 }, { 1, 0 } },
	    .reader = READ_SUM, .kill = 1, .takers = 1 },
	  ANY_READING },
	{ { "dead owners summed", READ_DEAD, END_OTHER, .units = { { 1, 1 } }, .reader = READ_SUM, .kill = 1,
	    .takers = 1 },
	  ANY_READING },
	{ { "dead owners waited for", READ_DEAD, .units = { { 1, 0 } }, .flushes = 1, .kill = 1 }, BIT(FLUSH_STUCK) },
	{ { "owner word before the takeover", OWNER_FIRST, END_OTHER, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .kill = 1, .takers = 1 },
	  ANY_READING },
	{ { "owner marked before its threads are gone", OUTLIVES_MARK, .units = { { 2, 0 } }, .kill = 1, .takers = 1 },
	  BIT(INEXACT) | BIT(WENT_DOWN) },
	{ { "lane added without a bump, read", GROW_NO_BUMP, END_ANY, .units = { { 1, 1 } }, .reader = READ_SUM,
	    .grow = 1 },
	  ANY_READING },
	{ { "lane added without a bump, flush", GROW_NO_BUMP, END_ANY, .units = { { 1, 1 } }, .flushes = 1, .grow = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "lane added with the bump before, flush", GROW_BUMP_BEFORE, END_ANY, .units = { { 1, 1 } }, .flushes = 1,
	    .grow = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "lane added, sequence not looked at again", NO_SEQ_CHECK, END_ANY, .units = { { 1, 1 } }, .flushes = 1,
	    .grow = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "lane added, its control word not flipped", NO_FLIP_AGAIN, END_ANY, .units = { { 1, 1 } }, .flushes = 1,
	    .hold = 1, .grow = 1 },
	  BIT(FLUSH_STUCK) },
	{ { "asleep without a look after arming", NO_ARM_CHECK, .units = { { 1, 1 } }, .flushes = 1, .sleep = 1 },
	  BIT(WAKE_LOST) },
};

static const struct wrong module_wrong[] = {
	{ { "turn covers what began after its flip", TURN_COVERS_ALL, .units = { { 1, 1 } }, .flushes = 2, .turns = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "turn without an idle drain", TURN_NO_IDLE, .units = { { 2, 1 } }, .flushes = 2, .turns = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "turn without an old drain", TURN_NO_OLD, .units = { { 1, 1 } }, .flushes = 1, .turns = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "turn looks before the flush has its number", TURN_UNLOCKED, .units = { { 1, 1 } }, .flushes = 2,
	    .turns = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "turn does not show its epoch", TURN_NO_SHOW, .units = { { 2, 1 } }, .flushes = 1, .turns = 1, .hold = 1 },
	  BIT(FLUSH_STUCK) },
	{ { "turn, submitted before completed", SUBMITTED_FIRST, .units = { { 1, 1 } }, .flushes = 1, .turns = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "turn, lane by lane", LANE_BY_LANE, END_ANY, .units = { { 2, 1 } }, .flushes = 2, .turns = 1 },
	  BIT(FLUSH_EARLY) },
	{ { "turn, end under the parity of now", END_UNDER_EPOCH, .units = { { 2, 0 } }, .flushes = 1, .turns = 1 },
	  BIT(FLUSH_STUCK) | BIT(FLUSH_EARLY) },
	{ { "lane bound without its epoch", BOUND_STALE, END_ANY, .units = { { 1, 1 } }, .flushes = 1, .turns = 1,
	    .hold = 1, .grow = 1, .epoch = { 0, 1 } },
	  BIT(FLUSH_STUCK) },
	{ { "lane given back and forgotten", DROP_FORGETS, END_ANY, .units = { { 1, 1 } }, .flushes = 1, .turns = 1,
	    .shrink = 1 },
	  BIT(FLUSH_EARLY) | BIT(FLUSH_STUCK) | BIT(INEXACT) },

	{ { "death without a bump", DROP_NO_BUMP, END_OTHER, .units = { { 1, 0 } }, .reader = READ_SUM, .kill = 1,
	    .module = 1, .takers = 1 },
	  ANY_READING },
	{ { "zeroed before the bump", DROP_BUMP_AFTER, END_OTHER, .units = { { 1, 0 } }, .reader = READ_SUM, .kill = 1,
	    .module = 1, .takers = 1 },
	  ANY_READING },
	{ { "zeroed after the bumps", DROP_BUMP_BEFORE, END_OTHER, .units = { { 1, 0 } }, .reader = READ_SUM, .kill = 1,
	    .module = 1, .takers = 1 },
	  ANY_READING },
	{ { "zeroed over a bump without a fence", BUMP_NO_FENCE, END_OTHER, .order = ORDER_RELAXED,
	    .units = { { 1, 0 } }, .reader = READ_SUM, .kill = 1, .module = 1, .takers = 1 },
	  ANY_READING },
	{ { "kept counts not shown", DROP_NO_HELD, END_OTHER, .units = { { 1, 0 } }, .reader = READ_SUM, .kill = 1,
	    .module = 1, .takers = 1 },
	  ANY_READING },
	{ { "kept costs not shown", DROP_HELD_OPS, END_OTHER, .units = { { 1, 1 } }, .reader = READ_SUM, .kill = 1,
	    .module = 1, .takers = 1 },
	  BIT(COST_BELOW) | BIT(COST_ABOVE) },
	{ { "listed before the sequence", LIST_FIRST, END_OTHER, .units = { { 1, 0 } }, .reader = READ_SUM, .kill = 1,
	    .module = 1, .takers = 1 },
	  ANY_READING },
	{ { "lane in the list after the bump, read", GROW_BUMP_BEFORE, END_OTHER, .units = { { 1, 1 } },
	    .reader = READ_SUM, .grow = 1 },
	  ANY_READING },

	{ { "two sessions, submitted before completed", SUBMITTED_FIRST, .units = { { 1, 1 } },
	    .reader = READ_SESSIONS },
	  BIT(HIGH_BELOW) | BIT(INEXACT) },
	{ { "two sessions one after the other", BY_SESSION, .units = { { 1, 1 } }, .reader = READ_SESSIONS },
	  BIT(HIGH_BELOW) | BIT(LOW_ABOVE) },
	{ { "two sessions, low from the first pass", LOW_FROM_FIRST, .units = { { 1, 1 } }, .reader = READ_SESSIONS },
	  BIT(LOW_ABOVE) },
};
/* clang-format on */

/* The same world with the protocol as it is comes first: what is caught is the mistake and nothing else. */
static void check_wrong(const struct wrong *w)
{
	struct config right = w->cfg;
	struct search_result r;

	right.mutant = FAITHFUL;
	r = search(&right);
	ck_assert_msg(r.broken == HOLDS, "%s: %s without the mistake", w->cfg.name, property_name(r.broken));
	r = explore(&w->cfg);
	ck_assert_msg(w->caught & BIT(r.broken), "%s: %s", w->cfg.name, property_name(r.broken));
}

START_TEST(mistake_is_caught)
{
	check_wrong(&wrong[_i]);
}
END_TEST

START_TEST(module_mistake_is_caught)
{
	check_wrong(&module_wrong[_i]);
}
END_TEST

/* ---- what the checker builds on --------------------------------------------------------------------------------- */

static unsigned int some(unsigned int *seed, unsigned int below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 16) % below;
}

/* One reading over words that change between its loads: @plain gets the loads as they were, @folded as they are kept.
 */
static unsigned int read_over_changes(struct state *s, unsigned int *seed, __u8 plain[LOG_MAX], __u8 folded[LOG_MAX])
{
	struct thread *th = &s->thread[READER];
	unsigned int w, n;

	memcpy(plain, th->log, LOG_MAX);
	for (;;) {
		for (w = 0; w < WORD_EPOCH; w++)
			s->mem[w] += some(seed, 2);
		n = th->loads;
		memcpy(folded, th->log, LOG_MAX);
		plain[n] = folded[n] = s->mem[th->next.word];
		thread_step(s, READER);
		if (th->call != CALL_READ)
			return n + 1;
	}
}

/* memory_access() keeps a reading's loads added up. Whatever was loaded, the reading comes to the same. */
START_TEST(folded_readings_are_equal)
{
	const struct config cfg = { .name = "fold", .units = { { 1, 1 } }, .reader = READ_SUM, .start = WRAP - 5 };
	__u8 plain[LOG_MAX], folded[LOG_MAX];
	unsigned int seed = 1, i, n, folds = 0;
	struct pinion_sum a, b;
	struct state s;

	for (i = 0; i < 20000; i++) {
		search_setup(&cfg, &s);
		n = read_over_changes(&s, &seed, plain, folded);
		folds += memcmp(plain, folded, n) != 0;
		a = call_read_with(&s, plain, n + 1);
		b = call_read_with(&s, folded, n + 1);
		ck_assert(a.low == b.low && a.high == b.high && a.cost_high == b.cost_high &&
			  a.submitted == b.submitted);
	}
	ck_assert_uint_gt(folds, 10000);
}
END_TEST

/* The same world explored twice comes to the same numbers. */
START_TEST(search_is_deterministic)
{
	const struct config cfg = {
		.name = "twice", .order = ORDER_TSO, .units = { { 1, 1 } }, .cross = END_ANY, .flushes = 2, .deaths = 1
	};
	struct search_result a = search(&cfg), b = explore(&cfg);

	ck_assert(a.moments == b.moments && a.moves == b.moves && a.schedules == b.schedules && a.longest == b.longest);
}
END_TEST

/* Two threads of n steps that touch nothing in common: (2n)! / (n!)^2 schedules over (n+1)^2 states. */
START_TEST(search_counts_schedules)
{
	const struct config cfg = { .name = "two units", .units = { { 1, 1 } } };
	struct search_result r = explore(&cfg);

	ck_assert_double_eq(r.schedules, 6);
	ck_assert_uint_eq(r.moments, 9);
}
END_TEST

static void add_loop(Suite *suite, const char *name, const TTest *test, int n)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, TIMEOUT);
	tcase_add_loop_test(tc, test, 0, n);
	suite_add_tcase(suite, tc);
}

static Suite *counters_model_suite(void)
{
	Suite *suite = suite_create("counters_model");

	add_loop(suite, "checker counts", search_counts_schedules, 1);
	add_loop(suite, "checker repeats", search_is_deterministic, 1);
	add_loop(suite, "checker folds", folded_readings_are_equal, 1);
	add_loop(suite, "protocol", protocol_holds, sizeof(world) / sizeof(world[0]));
	add_loop(suite, "module", module_holds, sizeof(module) / sizeof(module[0]));
	add_loop(suite, "sleep", sleeper_needs_backstop, 1);
	add_loop(suite, "mistakes", mistake_is_caught, sizeof(wrong) / sizeof(wrong[0]));
	add_loop(suite, "module's mistakes", module_mistake_is_caught, sizeof(module_wrong) / sizeof(module_wrong[0]));
	return suite;
}

PINION_TEST_MAIN(counters_model_suite)
