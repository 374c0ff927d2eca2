/* SPDX-License-Identifier: MIT */
#include "format.h"
#include "json.h"
#include "pinion.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>

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
	printf(*info->engine_why ? "engine: %s (%s)\n" : "engine: %s\n", info->engine, info->engine_why);
	printf("small pages: %s\n", size_text(info->page_size).s);
	printf("huge pages: %s (%s)\n", info->huge_size ? size_text(info->huge_size).s : "none", info->huge_why);
	printf("memlock limit: %s\n", info->memlock_limit == UINT64_MAX ? "none" : size_text(info->memlock_limit).s);
}

static json_t *module_object(void)
{
	struct pinion_module_info info = { .size = sizeof(info) };
	json_t *object;

	if (pinion_module_info(&info))
		return json_null();
	object = json_new_object();
	json_set_number(object, "abi", info.abi);
	json_set_number(object, "bytes", info.bytes);
	json_set_number(object, "max_bytes", info.max_bytes);
	json_set_number(object, "user_bytes", info.user_bytes);
	json_set_number(object, "max_user_bytes", info.max_user_bytes);
	json_set_number(object, "user_buffers", info.user_buffers);
	json_set_number(object, "max_user_buffers", info.max_user_buffers);
	return object;
}

static void print_json(const struct pinion_context_info *info)
{
	json_t *object = json_new_object();

	json_set_text(object, "version", pinion_version());
	json_set_text(object, "ground", info->ground);
	json_set_text(object, "ground_why", info->ground_why);
	json_set_text(object, "counts", info->counts);
	json_set(object, "module", module_object());
	json_set_text(object, "dir", info->dir);
	json_set_text(object, "engine", info->engine);
	json_set_number(object, "page_size", info->page_size);
	json_set_number(object, "huge_size", info->huge_size);
	json_set_text(object, "huge_why", info->huge_why);
	json_set(object, "memlock_limit",
		 info->memlock_limit == UINT64_MAX ? json_null() : json_integer((json_int_t)info->memlock_limit));
	json_print(object);
}

int cmd_info(const struct command *cmd, int argc, char **argv)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct pinion_context *ctx;
	bool json;
	int ret;

	json = command_parse_json(cmd, argc, argv, "Print an object");
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = pinion_context_info(ctx, &info);
	if (!ret)
		(json ? print_json : print_info)(&info);
	pinion_close(ctx);
	return ret ? refused(ret) : EXIT_OK;
}
