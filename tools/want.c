/* SPDX-License-Identifier: MIT */
#include "want.h"

#include "format.h"

#include <pinion/pinion.h>
#include <string.h>

static const struct argp_option options[] = {
	{ .name = "on", .key = 'd', .arg = "DEVICE", .doc = "A device to pick from, or auto: all that have a queue (auto)" },
	{ .name = "need", .key = 'n', .arg = "SIZE", .doc = "Bytes of the budget to claim" },
	{ .name = "units", .key = 'u', .arg = "N", .doc = "Units of the capacity to claim" },
	{ .name = "exclusive", .key = 'x', .doc = "Claim the whole device" },
	{ .name = "policy", .key = 'p', .arg = "POLICY", .doc = "chained, least-inflight or fit (chained)" },
	{ 0 },
};

static void add_key(struct want *w, const char *key, struct argp_state *state)
{
	if (!strcmp(key, DEVICE_AUTO)) {
		w->all = true;
		return;
	}
	if (w->want.key_count == WANT_KEYS)
		argp_error(state, "--on was given more than %d times", WANT_KEYS);
	w->key[w->want.key_count++] = key;
}

static void finish(struct want *w, struct argp_state *state)
{
	if (!w->want.bytes && !w->want.units && !w->want.exclusive)
		argp_error(state, "say what is needed: --need, --units or --exclusive");
	if (w->all && w->want.key_count)
		argp_error(state, "--on auto is every device that has a queue; it does not go with --on %s", w->key[0]);
	w->want.keys = w->want.key_count ? w->key : NULL;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct want *w = state->input;

	switch (key) {
	case 'd':
		add_key(w, arg, state);
		return 0;
	case 'n':
		if (size_parse(arg, &w->want.bytes))
			argp_error(state, "--need is a size like 512MiB, not '%s'", arg);
		return 0;
	case 'u':
		if (count_parse(arg, &w->want.units))
			argp_error(state, "--units is a whole number, not '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		finish(w, state);
		return 0;
	case 'x':
		w->want.exclusive = true;
		return 0;
	case 'p':
		if (pinion_policy_parse(arg, &w->want.policy))
			argp_error(state, "%s", pinion_error());
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = { .options = options, .parser = parse };

const struct argp_child want_children[] = {
	{ .argp = &argp },
	{ 0 },
};
