/* SPDX-License-Identifier: MIT */
#include <pinion/pick.h>

#include "../error.h"
#include "../work/account.h"

#include <errno.h>
#include <pinion/device.h>
#include <pinion/select.h>
#include <pinion/signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one device looks like to a pick. */
struct choice {
	struct pinion_device *dev;
	struct pinion_device_info info;
	enum pinion_fit fit;
	bool refused; /* tried, and another was faster, or it never had so much */
};

struct choices {
	struct choice *choice;
	size_t n;
	char why[SENTENCE_MAX]; /* of each that was refused */
	int err;		/* of the last */
};

static const char *const policies[] = {
	[PINION_POLICY_CHAINED] = "chained",
	[PINION_POLICY_LEAST_INFLIGHT] = "least-inflight",
	[PINION_POLICY_FIT] = "fit",
};

#define POLICIES (sizeof(policies) / sizeof(*policies))

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

static int add(struct choices *cs, struct pinion_device *dev)
{
	struct choice *grown = reallocarray(cs->choice, cs->n + 1, sizeof(*grown));

	if (!grown)
		return fail(ENOMEM, "no memory to pick from %zu devices", cs->n + 1);
	cs->choice = grown;
	cs->choice[cs->n++] = (struct choice){ .dev = dev, .info = { .size = sizeof(grown->info) } };
	return 0;
}

static int gather(struct pinion_context *ctx, const struct pinion_want *want, struct choices *cs)
{
	struct pinion_device *dev;
	int ret = 0;

	for (size_t i = 0; want->keys && !ret && i < want->key_count; i++) {
		ret = pinion_device_find(ctx, want->keys[i], &dev);
		if (!ret)
			ret = add(cs, dev);
	}
	for (size_t i = 0; !want->keys && !ret && !pinion_device_at(ctx, i, &dev); i++)
		if (dev->at.entry->has_queue)
			ret = add(cs, dev);
	if (!ret && !cs->n)
		ret = fail(ENOENT, "there is no device with a queue to pick; add one");
	return ret;
}

/* Fit as its budget and the claims on it say; a device without a budget is asked for its memory's own answer. */
static enum pinion_fit fit_of(struct choice *c, uint64_t bytes)
{
	uint64_t left;

	if (!c->info.budget)
		return pinion_device_would_fit(c->dev, bytes);
	left = c->info.budget > c->info.reserved ? c->info.budget - c->info.reserved : 0;
	return pinion_fit_of(&left, &c->info.budget, bytes);
}

static void look(struct choices *cs, const struct pinion_want *want)
{
	for (size_t i = 0; i < cs->n; i++) {
		struct choice *c = &cs->choice[i];

		if (pinion_device_info(c->dev, &c->info))
			c->refused = true;
		else
			c->fit = fit_of(c, want->bytes);
	}
}

/* ---- choosing ------------------------------------------------------------------------------------------------------ */

/* A key to compare by, the lowest first, of what the policy looks at. */
struct rank {
	unsigned int pressure;
	uint64_t load;
};

static unsigned int load_tier(uint64_t pending, uint64_t capacity)
{
	return pinion_load_tier(pending < UINT32_MAX ? pending : UINT32_MAX, capacity < UINT32_MAX ? capacity : UINT32_MAX);
}

static struct rank rank_of(const struct choice *c, enum pinion_policy policy)
{
	struct rank r = { 0, 0 };

	if (policy != PINION_POLICY_LEAST_INFLIGHT)
		r.pressure = c->fit == PINION_FIT_TIGHT ? 1 : c->fit == PINION_FIT_NO ? 2 : 0;
	/* Claims are work to come: what was picked a moment ago has not begun yet. */
	if (policy == PINION_POLICY_LEAST_INFLIGHT)
		r.load = c->info.pending_high + c->info.reserved_units;
	else if (policy == PINION_POLICY_CHAINED)
		r.load = load_tier(c->info.pending_high + c->info.reserved_units, c->info.capacity);
	return r;
}

static int compare(struct rank a, struct rank b)
{
	if (a.pressure != b.pressure)
		return a.pressure < b.pressure ? -1 : 1;
	return a.load < b.load ? -1 : a.load > b.load;
}

/* The best of those not refused, in turn where several tie; NULL: none is left. */
static struct choice *choose(struct pinion_context *ctx, struct choices *cs, enum pinion_policy policy)
{
	struct choice *best = NULL;
	size_t ties = 0, turn;

	for (size_t i = 0; i < cs->n; i++) {
		struct choice *c = &cs->choice[i];
		int order;

		if (c->refused)
			continue;
		order = best ? compare(rank_of(c, policy), rank_of(best, policy)) : -1;
		if (order < 0)
			best = c;
		ties = order < 0 ? 1 : ties + (order == 0);
	}
	if (ties < 2)
		return best;
	turn = __atomic_fetch_add(&ctx->pick_turn, 1, __ATOMIC_RELAXED) % ties;
	for (size_t i = best - cs->choice; i < cs->n; i++) {
		struct choice *c = &cs->choice[i];

		if (!c->refused && compare(rank_of(c, policy), rank_of(best, policy)) == 0 && turn-- == 0)
			return c;
	}
	return best;
}

static void note_refusal(struct choices *cs, struct choice *c, int err)
{
	char sentence[SENTENCE_MAX];
	size_t at = strlen(cs->why);

	sentence_get(sentence);
	c->refused = true;
	cs->err = err;
	snprintf(cs->why + at, sizeof(cs->why) - at, "%s%s", at ? "; " : "", sentence);
}

/* Claims on the best, then on the next best where that is refused: what was seen may not be true any more. */
static int claim(struct pinion_context *ctx, struct choices *cs, const struct pinion_want *want, struct pinion_reservation **out)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .bytes = want->bytes, .units = want->units,
					    .exclusive = want->exclusive };
	struct choice *c;

	while ((c = choose(ctx, cs, want->policy))) {
		int ret = pinion_device_reserve(c->dev, &opts, out);

		if (!ret)
			return 0;
		if (ret != -ENOSPC && ret != -EBUSY && ret != -ESTALE && ret != -ENODATA)
			return ret;
		note_refusal(cs, c, ret);
		look(cs, want);
	}
	return cs->err ? fail(-cs->err, "%s", cs->why) : fail(ENOENT, "every device to pick from was removed meanwhile");
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
		ret = gather(ctx, &own, &cs);
	if (!ret) {
		look(&cs, &own);
		ret = claim(ctx, &cs, &own, out);
	}
	free(cs.choice);
	return ret;
}
