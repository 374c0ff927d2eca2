/* SPDX-License-Identifier: MIT */
#include <pinion/pick.h>

#include "../error.h"
#include "device.h"
#include "select.h"

#include <errno.h>
#include <pinion/signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one device looks like to a pick, which is also how the selector asks about it. */
struct choice {
	struct pinion_runtime runtime; /* first: the selector's handle */
	struct pinion_device *dev;
	struct pinion_device_info info;
	bool refused; /* tried, and another was faster, or it never had so much */
};

struct choices {
	struct choice *choice;
	size_t n;
	char why[SENTENCE_MAX]; /* of each that was refused */
	int err;		/* of the last that has it not; of the first, where none has any */
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

static int gather_named(struct pinion_context *ctx, const struct pinion_want *want, struct choices *cs)
{
	struct pinion_device *dev;
	int ret = 0;

	if (want->key_count > PINION_SET_MAX)
		return fail(EINVAL, "pinion_want.key_count is %zu, and a pick is from at most %d devices", want->key_count,
			    PINION_SET_MAX);
	for (size_t i = 0; !ret && i < want->key_count; i++) {
		ret = pinion_device_find(ctx, want->keys[i], &dev);
		if (!ret)
			ret = add(cs, dev);
	}
	return ret || cs->n ? ret : fail(ENOENT, "pinion_want.keys names no device; NULL is all that have a queue");
}

static int gather_all(struct pinion_context *ctx, struct choices *cs)
{
	struct pinion_device *dev;
	uint32_t place = 0;
	int ret;

	while (!(ret = device_next(ctx, &place, &dev)))
		if (dev->at.has_queue && (ret = add(cs, dev)))
			return ret;
	if (ret != -ENOENT)
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

/* *@out: the best of those not refused; NULL: none is left. */
static int choose(const struct choices *cs, struct pinion_selector *selector, const struct pinion_want *want, struct choice **out)
{
	struct pinion_set *set;
	size_t index;
	int ret = set_of(cs, want, &set);

	if (ret)
		return ret;
	*out = NULL;
	if (pinion_set_size(set) && !pinion_select(selector, set, &index))
		*out = &cs->choice[pinion_set_at(set, index)->device.index];
	pinion_set_free(set);
	return 0;
}

static void note_refusal(struct choices *cs, struct choice *c, int err)
{
	char sentence[SENTENCE_MAX];
	size_t at = strlen(cs->why);

	sentence_get(sentence);
	c->refused = true;
	/* That one has no room, or somebody has it, says more than that another was removed or has nothing to claim. */
	if (!cs->err || err == -ENOSPC || err == -EBUSY)
		cs->err = err == -ESTALE ? -ENOENT : err;
	snprintf(cs->why + at, sizeof(cs->why) - at, "%s%s", at ? "; " : "", sentence);
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
		if (ret != -ENOSPC && ret != -EBUSY && ret != -ESTALE && ret != -ENODATA)
			return ret;
		note_refusal(cs, c, ret);
		look(cs);
	}
	if (ret)
		return ret;
	return cs->err ? fail(-cs->err, "%s", cs->why) : fail(ENOENT, "every device to pick from was removed meanwhile");
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

PINION_API int pinion_pick(struct pinion_context *ctx, const struct pinion_want *want, struct pinion_reservation **out)
{
	struct pinion_want own = { .size = sizeof(own) };
	struct choices cs = { 0 };
	int ret = context_check(ctx);

	if (!ret)
		ret = opts_in(&own, sizeof(own), want, "pinion_want");
	if (!ret && !pinion_policy_name(own.policy))
		ret = fail(EINVAL, "pinion_want.policy is %d, not one of enum pinion_policy", own.policy);
	if (!ret)
		ret = own.keys ? gather_named(ctx, &own, &cs) : gather_all(ctx, &cs);
	if (!ret)
		ret = pick(ctx, &cs, &own, out);
	free(cs.choice);
	return ret;
}
