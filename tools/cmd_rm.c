/* SPDX-License-Identifier: MIT */
#include "pinion.h"

#include <pinion/pinion.h>

static error_t parse(int key, char *arg, struct argp_state *state)
{
	return command_argument(key, arg, state, "NAME", state->input);
}

int cmd_rm(const struct command *cmd, int argc, char **argv)
{
	struct pinion_context *ctx;
	const char *name = NULL;
	int ret;

	command_parse(cmd, argc, argv, NULL, parse, &name);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = pinion_name_remove(ctx, name);
	if (ret)
		ret = refused(ret);
	pinion_close(ctx);
	return ret;
}
