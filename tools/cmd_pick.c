/* SPDX-License-Identifier: MIT */
#include "format.h"
#include "json.h"
#include "pinion.h"
#include "want.h"

#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct pick {
	struct want want;
	bool json;
};

static const struct argp_option options[] = {
	{ .name = "json", .key = 'j', .doc = "Print an object" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct pick *pick = state->input;

	(void)arg;
	switch (key) {
	case 'j':
		pick->json = true;
		return 0;
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &pick->want;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* "refused", of those that are not there too, or what it was to the policy. */
static json_t *devices_of(const struct pinion_pick_row *rows, size_t n)
{
	json_t *array = json_new_array();

	for (size_t i = 0; i < n; i++) {
		json_t *object = json_new_object();

		json_set_text(object, "device", rows[i].key);
		json_set_text(object, "result", rows[i].err ? "refused" : pinion_reason_name(rows[i].reason));
		json_set_text(object, "why", rows[i].why);
		json_add(array, object);
	}
	return array;
}

static void print(const struct pinion_reservation_info *info, const struct pinion_pick_row *rows, size_t n, bool json)
{
	char key[PINION_KEY_MAX + 1];
	json_t *object;

	if (!json) {
		printf("%s\n", text_copy(key, sizeof(key), info->key));
		return;
	}
	object = json_new_object();
	json_set_text(object, "device", info->key);
	json_set_number(object, "generation", info->generation);
	json_set_number(object, "bytes", info->bytes);
	json_set_number(object, "units", info->units);
	json_set(object, "exclusive", json_boolean(info->exclusive));
	json_set(object, "devices", devices_of(rows, n));
	json_print(object);
}

int cmd_pick(const struct command *cmd, int argc, char **argv)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pick pick = { .want = { .want = { .size = sizeof(pick.want.want) } } };
	struct pinion_pick_row *rows;
	struct pinion_reservation *r;
	struct pinion_context *ctx;
	size_t n;
	int ret;

	command_parse_with(cmd, argc, argv, options, parse, &pick, want_children, 0);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = want_pick(ctx, &pick.want, &rows, &n, &r);
	if (!ret) {
		ret = pinion_reservation_info(r, &info);
		pinion_reservation_free(r);
		if (ret)
			ret = refused_device(ret);
		else
			print(&info, rows, n, pick.json);
	}
	free(rows);
	pinion_close(ctx);
	return ret;
}
