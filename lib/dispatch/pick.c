/* SPDX-License-Identifier: MIT */
#include <pinion/pick.h>

#include "../error.h"
#include "device.h"
#include "registry.h"
#include "select.h"

#include <errno.h>
#include <pinion/signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_DEVICES 64 /* as many as the table has room for: pinion_device_add() */

/* What one device looks like to a pick, which is also how the selector asks about it. */
struct choice {
	struct pinion_runtime runtime; /* first: the selector's handle */
	struct pinion_device *dev;
	struct pinion_device_info info;
	bool refused; /* tried, and another was faster, or it never had so much */
	enum pinion_reason reason;
	char seen[256]; /* what the policy saw of it */
};

struct choices {
	struct choice *choice;
	size_t n;
	char why[SENTENCE_MAX]; /* of each that was refused, as long as they fit */
	unsigned int more;	/* that do not */
	int err;		/* of the last that has it not; of the first, where none has any */
	struct pinion_pick_row *row; /* the caller's, or none */
	size_t room, rows;
};

static const char *const policies[] = {
	[PINION_POLICY_CHAINED] = "chained",
	[PINION_POLICY_LEAST_INFLIGHT] = "least-inflight",
	[PINION_POLICY_FIT] = "fit",
};

#define POLICIES (sizeof(policies) / sizeof(*policies))

static const struct pinion_runtime_ops choice_ops;

PINION_API const char *pinion_policy_name(enum pinion_policy policy)
{
	return (unsigned int)policy < POLICIES ? policies[policy] : NULL;
}

PINION_API int pinion_policy_parse(const char *name, enum pinion_policy *out)
{
	for (unsigned int p = 0; name && p < POLICIES; p++) {
		if (!strcmp(name, policies[p])) {
			*out = p;
			return 0;
		}
	}
	return fail(EINVAL, "'%s' is no policy; there are chained, least-inflight and fit", name ? name : "");
}

/* ---- the devices to choose from ------------------------------------------------------------------------------------ */

static bool has(const struct choices *cs, const struct pinion_device *dev)
{
	for (size_t i = 0; i < cs->n; i++)
		if (cs->choice[i].dev == dev)
			return true;
	return false;
}

/* A device that was named twice is one. */
static int add(struct choices *cs, struct pinion_device *dev)
{
	struct choice *grown;

	if (has(cs, dev))
		return 0;
	grown = reallocarray(cs->choice, cs->n + 1, sizeof(*grown));
	if (!grown)
		return fail(ENOMEM, "no memory to pick from %zu devices", cs->n + 1);
	cs->choice = grown;
	cs->choice[cs->n++] = (struct choice){ .runtime.ops = &choice_ops, .dev = dev, .info.size = sizeof(grown->info) };
	return 0;
}

/* What became of one device: for the caller, if there is room. */
static void tell(struct choices *cs, const char *key, int err, enum pinion_reason reason, const char *why)
{
	struct pinion_pick_row *row = cs->rows < cs->room ? &cs->row[cs->rows] : NULL;

	cs->rows++;
	if (!row)
		return;
	*row = (struct pinion_pick_row){ .err = err, .reason = reason };
	snprintf(row->key, sizeof(row->key), "%s", key);
	snprintf(row->why, sizeof(row->why), "%s", why);
}

/* The present sentence is why that device will not do. */
static void note(struct choices *cs, const char *key, int err)
{
	char sentence[SENTENCE_MAX];
	size_t at = strlen(cs->why);

	sentence_get(sentence);
	tell(cs, key, err, 0, sentence);
	/* That one has no room, or somebody has it, says more than that another was removed or has nothing to claim. */
	if (!cs->err || err == -ENOSPC || err == -EBUSY)
		cs->err = err == -ESTALE ? -ENOENT : err;
	if (at + strlen("; ") + strlen(sentence) < sizeof(cs->why))
		stpcpy(stpcpy(cs->why + at, at ? "; " : ""), sentence);
	else
		cs->more++;
}

/* None has given. */
static int fail_all(const struct choices *cs)
{
	if (cs->more)
		return fail(-cs->err, "of %u more devices none would do; %s", cs->more, cs->why);
	return fail(-cs->err, "%s", cs->why);
}

/* Nobody has a device of that key, or the backend that would says why it has none. */
static bool is_absent(const char *key, int err)
{
	return err == -ENOENT || (key && err && registry_why_not(key) == err);
}

static int gather_named(struct pinion_context *ctx, const struct pinion_want *want, struct choices *cs)
{
	struct pinion_device *dev;
	int ret = 0;

	if (want->key_count > PINION_SET_MAX)
		return fail(EINVAL, "pinion_want.key_count is %zu, and a pick is from at most %d devices", want->key_count,
			    PINION_SET_MAX);
	for (size_t i = 0; !ret && i < want->key_count; i++) {
		ret = pinion_device_find(ctx, want->keys[i], &dev);
		if (!ret) {
			ret = add(cs, dev);
		} else if (is_absent(want->keys[i], ret)) {
			note(cs, want->keys[i], ret);
			ret = want->require ? ret : 0;
		}
	}
	if (ret || cs->n)
		return ret;
	return cs->err ? fail_all(cs) : fail(ENOENT, "pinion_want.keys names no device; NULL is all that have a queue");
}

/*
 * A backend's device is always there, but in the table only once somebody has looked for it. Not where the table is full: one
 * that nobody counts on at the moment would have to go for that.
 */
static int add_built_in(struct pinion_context *ctx, struct choices *cs)
{
	const struct backend_device *built_in;
	struct pinion_device *dev;
	int ret = 0;

	for (size_t i = 0; !ret && (built_in = registry_at(i)); i++) {
		bool there = !built_in->desc.caps.slot_capacity;

		for (size_t j = 0; !there && j < cs->n; j++)
			there = cs->choice[j].dev->backend == built_in;
		if (there || !pinion_device_at(ctx, TABLE_DEVICES - 1, &dev))
			continue;
		ret = pinion_device_find(ctx, built_in->desc.key, &dev);
		if (!ret)
			ret = add(cs, dev);
	}
	return ret;
}

static int gather_all(struct pinion_context *ctx, struct choices *cs)
{
	struct pinion_device *dev;
	uint32_t place = 0;
	int ret;

	while (!(ret = device_next(ctx, &place, &dev)))
		if (dev->at.has_queue && (ret = add(cs, dev)))
			return ret;
	if (ret == -ENOENT)
		ret = add_built_in(ctx, cs);
	if (ret)
		return ret;
	return cs->n ? 0 : fail(ENOENT, "there is no device with a queue to pick; add one");
}

static void look(struct choices *cs)
{
	for (size_t i = 0; i < cs->n; i++)
		if (pinion_device_info(cs->choice[i].dev, &cs->choice[i].info))
			cs->choice[i].refused = true;
}

/* ---- as the selector sees them ------------------------------------------------------------------------------------- */

/* Claims are work to come: what was picked a moment ago has not begun yet. */
static uint64_t units_of(const struct choice *c)
{
	return c->info.pending_high + c->info.reserved_units;
}

/* As its budget and the claims on it say; a device without a budget is asked for its memory's own answer. */
static enum pinion_fit choice_would_fit(struct pinion_runtime *rt, uint64_t bytes)
{
	const struct choice *c = (const struct choice *)rt;
	uint64_t left;

	if (!c->info.budget)
		return pinion_device_would_fit(c->dev, bytes);
	left = c->info.budget > c->info.reserved ? c->info.budget - c->info.reserved : 0;
	return pinion_fit_of(&left, &c->info.budget, bytes);
}

static int choice_pending(struct pinion_runtime *rt, uint32_t *n)
{
	uint64_t units = units_of((const struct choice *)rt);

	*n = units < UINT32_MAX ? units : UINT32_MAX;
	return 0;
}

static int choice_capacity(struct pinion_runtime *rt, uint32_t *n)
{
	*n = ((const struct choice *)rt)->info.capacity;
	return 0;
}

static const struct pinion_runtime_ops choice_ops = {
	.would_fit = choice_would_fit,
	.pending = choice_pending,
	.capacity = choice_capacity,
};

static struct pinion_runtime *look_up(void *arg, enum pinion_backend_id backend, struct pinion_location at)
{
	const struct choices *cs = arg;

	(void)backend;
	return &cs->choice[at.index].runtime;
}

static uint64_t estimate(void *arg, const struct pinion_candidate *candidate)
{
	(void)arg;
	return *(const uint64_t *)candidate->op_params;
}

/* What each policy looks at is one of the selectors. Fewest units is the least time, where each takes as long. */
static int selector_of(struct pinion_context *ctx, struct choices *cs, enum pinion_policy policy, struct pinion_selector **out)
{
	static int (*const make[POLICIES])(const struct pinion_selector_opts *opts, struct pinion_selector **out) = {
		[PINION_POLICY_CHAINED] = pinion_selector_chained,
		[PINION_POLICY_LEAST_INFLIGHT] = pinion_selector_judge_aware,
		[PINION_POLICY_FIT] = pinion_selector_vram_pressure,
	};
	struct pinion_selector_opts opts = {
		.size = sizeof(opts), .lookup = look_up, .lookup_arg = cs, .estimate = estimate, .rotate = true
	};
	int ret = make[policy](&opts, out);

	if (!ret) {
		/* Processes that pick once each would all begin with the first: they begin where their number says. */
		(*out)->turn_from = hash_mix(0, ctx->counts->slot_generation);
		(*out)->lent = &ctx->pick_turns;
	}
	return ret;
}

/*
 * Those not refused. All that a lookup is told of one is where it is: that is its place among the choices. Its key stands for the
 * kernel's source, so that picks from other devices have other turns.
 */
static int set_of(const struct choices *cs, const struct pinion_want *want, struct pinion_set **out)
{
	struct pinion_candidate c = { .backend = PINION_BACKEND_CPU,
				      .device.kind = PINION_BACKEND_CPU,
				      .op_params = &want->bytes,
				      .op_params_size = sizeof(want->bytes) };
	struct pinion_set *set = NULL;
	int ret = pinion_set_new(&set);

	for (size_t i = 0; !ret && i < cs->n; i++) {
		if (cs->choice[i].refused)
			continue;
		c.device.index = i;
		c.kernel_source = cs->choice[i].info.key;
		if (want->policy == PINION_POLICY_LEAST_INFLIGHT)
			c.inbound_transfer_ns = units_of(&cs->choice[i]);
		ret = pinion_set_push(set, &c);
	}
	if (ret)
		pinion_set_free(set);
	else
		*out = set;
	return ret;
}

/* ---- choosing ------------------------------------------------------------------------------------------------------ */

/* What was seen of each of @set, to its choice. By units of work in flight the selector takes the number of those for a time. */
static void keep_verdicts(const struct choices *cs, const struct pinion_want *want, const struct pinion_set *set,
			  const struct pinion_verdict *verdict)
{
	for (size_t i = 0; i < pinion_set_size(set); i++) {
		struct choice *c = &cs->choice[pinion_set_at(set, i)->device.index];

		c->reason = verdict[i].reason;
		if (want->policy != PINION_POLICY_LEAST_INFLIGHT) {
			pinion_verdict_describe(&verdict[i], c->seen, sizeof(c->seen));
			continue;
		}
		if (c->reason == PINION_REASON_SLOWER)
			c->reason = PINION_REASON_LOADED;
		snprintf(c->seen, sizeof(c->seen), "%s; %llu units in flight or claimed", pinion_reason_name(c->reason),
			 (unsigned long long)units_of(c));
	}
}

/* *@out: the best of those not refused; NULL: none is left. */
static int choose(const struct choices *cs, struct pinion_selector *selector, const struct pinion_want *want, struct choice **out)
{
	size_t index, n = cs->room ? cs->n : 0;
	struct pinion_verdict *verdict = n ? calloc(n, sizeof(*verdict)) : NULL;
	struct pinion_set *set;
	int ret;

	*out = NULL;
	if (n && !verdict)
		return fail(ENOMEM, "no memory to tell of %zu devices", n);
	ret = set_of(cs, want, &set);
	if (ret)
		goto out;
	if (pinion_set_size(set) && !pinion_select_explain(selector, set, &index, verdict, n)) {
		*out = &cs->choice[pinion_set_at(set, index)->device.index];
		if (verdict)
			keep_verdicts(cs, want, set, verdict);
	}
	pinion_set_free(set);
out:
	free(verdict);
	return ret;
}

/* With one claimed on: the others were not asked, and lose to it. */
static void tell_rest(struct choices *cs)
{
	for (size_t i = 0; i < cs->n; i++)
		if (!cs->choice[i].refused)
			tell(cs, cs->choice[i].dev->key, 0, cs->choice[i].reason, cs->choice[i].seen);
}

/* Claims on the best, then on the next best where that is refused: what was seen may not be true any more. */
static int claim(struct choices *cs, struct pinion_selector *selector, const struct pinion_want *want,
		 struct pinion_reservation **out)
{
	struct pinion_reserve_opts opts = {
		.size = sizeof(opts), .bytes = want->bytes, .units = want->units, .exclusive = want->exclusive
	};
	struct choice *c;
	int ret;

	while (!(ret = choose(cs, selector, want, &c)) && c) {
		ret = pinion_device_reserve(c->dev, &opts, out);
		if (!ret)
			tell_rest(cs);
		if (ret != -ENOSPC && ret != -EBUSY && ret != -ESTALE && ret != -ENODATA)
			return ret;
		note(cs, c->dev->key, ret);
		c->refused = true;
		look(cs);
	}
	if (ret)
		return ret;
	return cs->err ? fail_all(cs) : fail(ENOENT, "every device to pick from was removed meanwhile");
}

static int pick(struct pinion_context *ctx, struct choices *cs, const struct pinion_want *want, struct pinion_reservation **out)
{
	struct pinion_selector *selector;
	int ret = selector_of(ctx, cs, want->policy, &selector);

	if (ret)
		return ret;
	look(cs);
	ret = claim(cs, selector, want, out);
	pinion_selector_unref(selector);
	return ret;
}

PINION_API int pinion_pick_explain(struct pinion_context *ctx, const struct pinion_want *want, struct pinion_pick_row *rows,
				   size_t room, size_t *n, struct pinion_reservation **out)
{
	struct pinion_want own = { .size = sizeof(own) };
	struct choices cs = { .row = rows, .room = room };
	int ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&own, sizeof(own), want, "pinion_want");
	if (!ret && !pinion_policy_name(own.policy))
		ret = fail(EINVAL, "pinion_want.policy is %d, not one of enum pinion_policy", own.policy);
	if (!ret && own.require && !own.keys)
		ret = fail(EINVAL, "pinion_want.require says that keys must be there, and keys is NULL");
	if (!ret)
		ret = own.keys ? gather_named(ctx, &own, &cs) : gather_all(ctx, &cs);
	if (!ret)
		ret = pick(ctx, &cs, &own, out);
	*n = cs.rows;
	free(cs.choice);
	return ret;
}

PINION_API int pinion_pick(struct pinion_context *ctx, const struct pinion_want *want, struct pinion_reservation **out)
{
	size_t n;

	return pinion_pick_explain(ctx, want, NULL, 0, &n, out);
}
