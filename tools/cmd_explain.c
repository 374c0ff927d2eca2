/* SPDX-License-Identifier: MIT */
#include "json.h"
#include "pinion.h"
#include "table.h"

#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct wish {
	const char *id;
	bool json;
};

static const struct argp_option options[] = {
	{ .name = "json", .key = 'j', .doc = "Print an array with an object for each" },
	{ 0 },
};

/* It may be given with the brackets that it stands in. */
static char *without_brackets(char *id)
{
	size_t len = strlen(id);

	if (len < 2 || *id != '[' || id[len - 1] != ']')
		return id;
	id[len - 1] = 0;
	return id + 1;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wish *wish = state->input;

	switch (key) {
	case 'j':
		wish->json = true;
		return 0;
	case ARGP_KEY_ARG:
		return command_argument(key, without_brackets(arg), state, "ID", &wish->id);
	}
	return ARGP_ERR_UNKNOWN;
}

static void add(json_t *array, struct table *table, const struct pinion_advice_info *info, enum pinion_advice advice)
{
	json_t *object;
	char line[512];

	pinion_advice_line(advice, NULL, line, sizeof(line));
	if (!array) {
		table_add(table, "%s\t%s", info->id, line);
		return;
	}
	object = json_new_object();
	json_set_text(object, "id", info->id);
	json_set_text(object, "when", info->when);
	json_set_text(object, "fix", line);
	json_add(array, object);
}

static int explain_one(const struct wish *wish)
{
	struct pinion_advice_info info = { .size = sizeof(info) };
	enum pinion_advice advice;
	char line[512];
	json_t *array;

	if (pinion_advice_find(wish->id, &advice) || pinion_advice_info(advice, &info)) {
		complain("%s; pinion explain lists them", pinion_error());
		return EXIT_PROBLEM;
	}
	if (wish->json) {
		array = json_new_array();
		add(array, NULL, &info, advice);
		json_print(array);
	} else {
		printf("%s\n\n%s\n\n  %s\n", info.id, info.when, pinion_advice_line(advice, NULL, line, sizeof(line)));
	}
	return EXIT_OK;
}

static int explain_all(bool json)
{
	struct pinion_advice_info info = { .size = sizeof(info) };
	json_t *array = json ? json_new_array() : NULL;
	struct table table = { 0 };

	if (!json)
		table_add(&table, "ID\tWHAT TO TYPE");
	for (unsigned int i = PINION_ADVICE_NONE + 1; !pinion_advice_info(i, &info); i++)
		add(array, &table, &info, i);
	if (json)
		json_print(array);
	else
		table_print(&table, stdout);
	return EXIT_OK;
}

int cmd_explain(const struct command *cmd, int argc, char **argv)
{
	struct wish wish = { 0 };

	command_parse(cmd, argc, argv, options, parse, &wish);
	return wish.id ? explain_one(&wish) : explain_all(wish.json);
}
