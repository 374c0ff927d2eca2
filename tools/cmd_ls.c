/* SPDX-License-Identifier: MIT */
#include "buffers.h"
#include "names.h"
#include "pinion.h"
#include "table.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct wish {
	bool json, buffers;
};

static const struct argp_option options[] = {
	{ .name = "buffers", .key = 'b', .doc = "List the buffers of the kernel module instead, and who made them" },
	{ .name = "json", .key = 'j', .doc = "Print an array with an object for each name" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wish *wish = state->input;

	(void)arg;
	switch (key) {
	case 'b':
		wish->buffers = true;
		return 0;
	case 'j':
		wish->json = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static int add_row(void *arg, const struct pinion_name_info *info)
{
	struct pinion_name_info shown = *info;
	struct table *table = arg;

	name_clean(&shown);
	if (!table->rows)
		table_add(table, "NAME\tSTATE\t>SIZE\t>TENSORS\t>PAGES\tHOLD\t>ATTACHED\t>PID\t>AGE\tFILE");
	table_add(table, "%s\t%s\t%s\t%" PRIu64 "\t%s\t%s\t%" PRIu32 "\t%" PRId32 "\t%s\t%s", shown.name, name_state(&shown).s,
		  size_text(*shown.format ? shown.bytes : shown.total).s, shown.tensors, name_pages(&shown).s,
		  name_hold(&shown).s, shown.attached, shown.pid, age_text(shown.age_ns).s, shown.path);
	return 0;
}

static int add_object(void *arg, const struct pinion_name_info *info)
{
	json_add(arg, name_object(info));
	return 0;
}

static int list_table(struct pinion_context *ctx)
{
	struct pinion_context_info info = { .size = sizeof(info) };
	struct table table = { 0 };
	int ret = pinion_name_list(ctx, add_row, &table);
	char dir[1024];

	/* A person is told; for a program nothing is nothing. */
	if (!ret && !table.rows && isatty(STDOUT_FILENO) && !pinion_context_info(ctx, &info))
		printf("No name is held in %s; pinion load FILE --name NAME takes one.\n", text_copy(dir, sizeof(dir), info.dir));
	table_print(&table, stdout);
	return ret;
}

static int list_json(struct pinion_context *ctx)
{
	json_t *array = json_new_array();
	int ret = pinion_name_list(ctx, add_object, array);

	/* Half a list would be taken for the whole. */
	if (ret)
		json_decref(array);
	else
		json_print(array);
	return ret;
}

int cmd_ls(const struct command *cmd, int argc, char **argv)
{
	struct pinion_context *ctx;
	struct wish wish = { 0 };
	int ret;

	command_parse(cmd, argc, argv, options, parse, &wish);
	if (wish.buffers) {
		ret = wish.json ? buffers_print_json() : buffers_print(0);
		return ret ? refused(ret) : EXIT_OK;
	}
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = wish.json ? list_json(ctx) : list_table(ctx);
	if (ret)
		ret = refused(ret);
	pinion_close(ctx);
	return ret;
}
