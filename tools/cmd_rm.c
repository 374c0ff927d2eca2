/* SPDX-License-Identifier: MIT */
#include "format.h"
#include "pinion.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

/* Between two times that a name is asked for; short at first, because most wait for a process that is just ending. */
#define PAUSE_FIRST_NS INT64_C(5000000)
#define PAUSE_MOST_NS  INT64_C(200000000)

struct wish {
	const char *name;
	bool waits;
	double seconds; /* how long; 0: without end */
};

enum { OPT_TIMEOUT = 256 };

static const struct argp_option options[] = {
	{ .name = "when-unused", .key = 'w', .doc = "Wait until no process is attached any more, then remove it" },
	{ .name = "timeout", .key = OPT_TIMEOUT, .arg = "SECONDS", .doc = "With --when-unused: give up after so long" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wish *wish = state->input;

	switch (key) {
	case 'w':
		wish->waits = true;
		return 0;
	case OPT_TIMEOUT:
		if (number_parse(arg, &wish->seconds) || wish->seconds <= 0 || wish->seconds > 1e9)
			usage_error(state, "--timeout is a number of seconds above 0, not '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		if (wish->seconds > 0 && !wish->waits)
			usage_error(state, "--timeout goes with --when-unused");
	}
	return command_argument(key, arg, state, "NAME", &wish->name);
}

/* The holder refuses as long as anybody is attached, so that nobody slips in between a look and the removal. */
static int remove_when_unused(struct pinion_context *ctx, const struct wish *wish)
{
	int64_t end = wish->seconds > 0 ? pinion_deadline_in((int64_t)(wish->seconds * 1e9)) : PINION_FOREVER;
	int64_t pause = PAUSE_FIRST_NS;
	int ret;

	while ((ret = pinion_name_remove(ctx, wish->name)) == -EBUSY && pinion_deadline_in(0) < end) {
		struct timespec t = { .tv_nsec = pause };

		nanosleep(&t, NULL);
		pause = 2 * pause < PAUSE_MOST_NS ? 2 * pause : PAUSE_MOST_NS;
	}
	return ret;
}

int cmd_rm(const struct command *cmd, int argc, char **argv)
{
	struct pinion_context *ctx;
	struct wish wish = { 0 };
	int ret;

	command_parse(cmd, argc, argv, options, parse, &wish);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = wish.waits ? remove_when_unused(ctx, &wish) : pinion_name_remove(ctx, wish.name);
	if (ret)
		ret = refused(ret);
	pinion_close(ctx);
	return ret;
}
