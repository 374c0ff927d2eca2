/* SPDX-License-Identifier: MIT */
#include "held.h"

#include "loaded.h"
#include "pinion.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <string.h>

#define TICK_NS INT64_C(100000000)
/* How often in a row a holder may leave the question unanswered how far it is (2 s each) before it is not waited for any more. */
#define SILENT_MAX 3

/* Whether the holder answers, which is passed on. */
static bool answers(const struct hold *h, struct pinion_context *ctx)
{
	struct pinion_name_info info = { .size = sizeof(info) };

	/* It went: the next attach says so. */
	if (pinion_name_show(ctx, h->name, &info, NULL, 0, NULL))
		return true;
	if (!strcmp(info.state, "loading"))
		hold_tell_progress(h, info.done, info.total);
	return strcmp(info.state, "not answering") != 0;
}

/* Waits for the load of another, showing how far it is. -ETIMEDOUT: who has the name is stopped. */
static int attach(const struct hold *h, struct pinion_context *ctx, struct pinion_model **m)
{
	struct pinion_attach_opts opts = { .size = sizeof(opts) };
	unsigned int silent = 0;
	int ret;

	do {
		opts.deadline_ns = pinion_deadline_in(TICK_NS);
		ret = pinion_model_attach(ctx, h->name, &opts, m);
		if (ret == -ETIMEDOUT)
			silent = answers(h, ctx) ? 0 : silent + 1;
	} while (ret == -ETIMEDOUT && silent < SILENT_MAX);
	return ret;
}

/* That the name is held, the last failure, and what to type, which the failure may say itself. */
static void say_held(const struct hold *h, int pid, const char *joint, char *why, size_t room)
{
	snprintf(why, room, "%s is already held by pid %d%s%s", h->name, pid, joint, pinion_error());
	if (!pinion_error_advice())
		sentence_advise(why, room, PINION_ADVICE_NAME_HELD, h->name);
}

/* What there is to say: a sentence or, of the same as of what was loaded here, an object. */
static int say_same(const struct hold *h, struct pinion_context *ctx, struct pinion_model *m, int pid, char **text)
{
	if (h->json)
		return loaded_elsewhere(h, ctx, m, text);
	if (asprintf(text, "%s: already held by pid %d, loaded from the same file; %s", h->name, pid,
		     h->opts.hash ? "its SHA-256 is the same" : "nothing was read") < 0)
		no_memory();
	return 0;
}

int held_is_same(const struct hold *h, struct pinion_context *ctx, int pid, char *why, size_t room, char **text)
{
	struct pinion_model *m;
	int ret = attach(h, ctx, &m), same;

	if (ret) {
		say_held(h, pid, "; ", why, room);
		return ret;
	}
	same = pinion_model_match(m, h->path, h->opts.hash);
	if (same)
		say_held(h, pid, same == -ESTALE ? ", and " : "; ", why, room);
	ret = same ? -EEXIST : say_same(h, ctx, m, pid, text);
	pinion_model_free(m);
	return ret;
}
