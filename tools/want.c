/* SPDX-License-Identifier: MIT */
#include "want.h"

#include "format.h"
#include "pinion.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <stdlib.h>
#include <string.h>

static const struct argp_option options[] = {
	{ .name = "on", .key = 'd', .arg = "DEVICE", .doc = "A device to pick from, or auto: all that have a queue (auto)" },
	{ .name = "need", .key = 'n', .arg = "SIZE", .doc = "Bytes of the budget to claim" },
	{ .name = "units", .key = 'u', .arg = "N", .doc = "Units of the capacity to claim" },
	{ .name = "exclusive", .key = 'x', .doc = "Claim the whole device" },
	{ .name = "require", .key = 'r', .doc = "Fail if a DEVICE is not there, also where another would do" },
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
		usage_error(state, "--on was given more than %d times", WANT_KEYS);
	w->key[w->want.key_count++] = key;
}

static void finish(struct want *w, struct argp_state *state)
{
	if (!w->want.bytes && !w->want.units && !w->want.exclusive)
		usage_error(state, "say what is needed: --need, --units or --exclusive");
	if (w->all && w->want.key_count)
		usage_error(state, "--on auto is every device that has a queue; it does not go with --on %s", w->key[0]);
	if (w->want.require && !w->want.key_count)
		usage_error(state, "--require is of the devices that --on names");
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
			usage_error(state, "--need is a size like 512MiB, not '%s'", arg);
		return 0;
	case 'u':
		if (count_parse(arg, &w->want.units))
			usage_error(state, "--units is a whole number, not '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		finish(w, state);
		return 0;
	case 'x':
		w->want.exclusive = true;
		return 0;
	case 'r':
		w->want.require = true;
		return 0;
	case 'p':
		if (pinion_policy_parse(arg, &w->want.policy))
			usage_error(state, "%s", pinion_error());
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = { .options = options, .parser = parse };

const struct argp_child want_children[] = {
	{ .argp = &argp },
	{ 0 },
};

/* Others were there, and had no room or nothing to claim. */
static bool was_absent(const struct pinion_pick_row *row)
{
	return row->err && row->err != -ENOSPC && row->err != -EBUSY && row->err != -ESTALE && row->err != -ENODATA;
}

int want_pick(struct pinion_context *ctx, const struct want *w, struct pinion_pick_row **rows, size_t *n,
	      struct pinion_reservation **out)
{
	int ret;

	*rows = calloc(WANT_ROWS, sizeof(**rows));
	if (!*rows)
		no_memory();
	ret = pinion_pick_explain(ctx, &w->want, *rows, WANT_ROWS, n, out);
	if (ret)
		return refused_device(ret);
	if (*n > WANT_ROWS)
		*n = WANT_ROWS;
	for (size_t i = 0; i < *n; i++)
		if (was_absent(&(*rows)[i]))
			complain("passed over: %s", (*rows)[i].why);
	return EXIT_OK;
}
