/* SPDX-License-Identifier: MIT */
#include "format.h"
#include "pinion.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdio.h>

static error_t parse(int key, char *arg, struct argp_state *state)
{
	(void)key, (void)arg, (void)state;
	return ARGP_ERR_UNKNOWN;
}

static void print_module(void)
{
	struct pinion_module_info info = { .size = sizeof(info) };
	char why[512];

	if (pinion_module_info(&info)) {
		printf("module: %s\n", text_copy(why, sizeof(why), pinion_error()));
		return;
	}
	printf("module: loaded, ABI %" PRIu32 "\n", info.abi);
	printf("module bytes: %s of %s\n", size_text(info.bytes).s, size_text(info.max_bytes).s);
	printf("module bytes of this user: %s of %s\n", size_text(info.user_bytes).s, size_text(info.max_user_bytes).s);
	printf("module buffers of this user: %" PRIu64 " of %" PRIu64 "\n", info.user_buffers, info.max_user_buffers);
}

static void print_info(const struct pinion_context_info *info)
{
	char dir[1024];

	printf("version: %s\n", pinion_version());
	printf("ground: %s\n", info->ground);
	printf("counts: %s\n", info->counts);
	print_module();
	printf("runtime directory: %s\n", text_copy(dir, sizeof(dir), info->dir));
	printf("engine: %s\n", info->engine);
	printf("small pages: %s\n", size_text(info->page_size).s);
	printf("huge pages: %s (%s)\n", info->huge_size ? size_text(info->huge_size).s : "none", info->huge_why);
	printf("memlock limit: %s\n", info->memlock_limit == UINT64_MAX ? "none" : size_text(info->memlock_limit).s);
}

int cmd_info(const struct command *cmd, int argc, char **argv)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_context *ctx;
	int ret;

	command_parse(cmd, argc, argv, NULL, parse, NULL);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = pinion_context_info(ctx, &info);
	if (!ret)
		print_info(&info);
	pinion_close(ctx);
	return ret ? refused(ret) : EXIT_OK;
}
