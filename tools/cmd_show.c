/* SPDX-License-Identifier: MIT */
#include "buffers.h"
#include "names.h"
#include "pinion.h"
#include "table.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wish {
	const char *name;
	bool json;
};

static const struct argp_option options[] = {
	{ .name = "json", .key = 'j', .doc = "Print an object" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct wish *wish = state->input;

	if (key == 'j') {
		wish->json = true;
		return 0;
	}
	return command_argument(key, arg, state, "NAME", &wish->name);
}

static void print_info(const struct pinion_name_info *info)
{
	printf("name: %s\n", info->name);
	printf("file: %s\n", info->path);
	printf("state: %s\n", info->state);
	printf("pid: %" PRId32 "\n", info->pid);
	printf("age: %s\n", age_text(info->age_ns).s);
	printf("done: %" PRIu64 " of %" PRIu64 " bytes\n", info->done, info->total);
	/* What follows is known when the model is loaded. */
	if (!*info->format)
		return;
	printf("format: %s\n", info->format);
	printf("tensors: %" PRIu64 "\n", info->tensors);
	printf("bytes: %s\n", bytes_text(info->bytes).s);
	printf("page size: %s\n", bytes_text(info->page_size).s);
	printf("bytes in huge pages: %s\n", bytes_text(info->huge_bytes).s);
	printf("hold: %s\n", name_hold(info).s);
	if (*info->hold_why)
		printf("hold why: %s\n", info->hold_why);
	printf("attached: %" PRIu32 "\n", info->attached);
	printf("locked: %" PRIu32 "\n", info->locked);
}

/* Of @n attached processes the rows that the holder sent, at most @n. */
static void print_users(struct pinion_name_user *user, size_t n)
{
	struct table table = { 0 };
	size_t i;

	table_add(&table, ">PID\t>UID\tCOMM\tLOCKED\t>SINCE");
	for (i = 0; i < n && user[i].pid; i++) {
		text_clean(user[i].comm);
		table_add(&table, "%" PRId32 "\t%" PRIu32 "\t%s\t%s\t%s", user[i].pid, user[i].uid, user[i].comm,
			  user[i].locked ? "yes" : "no", age_text(user[i].since_ns).s);
	}
	putchar('\n');
	table_print(&table, stdout);
	if (i < n)
		printf("and %zu more\n", n - i);
}

/* "users" are those rows that the holder sent, of "attached". */
static void print_json(const struct pinion_name_info *info, const struct pinion_name_user *user, size_t n)
{
	json_t *object = name_object(info), *users = json_new_array();

	for (size_t i = 0; i < n && user[i].pid; i++) {
		json_t *row = json_new_object();

		json_set(row, "pid", json_integer(user[i].pid));
		json_set_number(row, "uid", user[i].uid);
		json_set_text(row, "comm", user[i].comm);
		json_set(row, "locked", json_boolean(user[i].locked));
		json_set_number(row, "since_seconds", user[i].since_ns / 1000000000);
		json_add(users, row);
	}
	json_set(object, "users", users);
	json_print(object);
}

/* Asks until the rows have room for all; *@rows is the caller's. */
static int ask(struct pinion_context *ctx, const char *name, struct pinion_name_info *info, struct pinion_name_user **rows,
	       size_t *n)
{
	size_t cap = 64;
	int ret;

	for (;;) {
		*rows = calloc(cap, sizeof(**rows));
		if (!*rows)
			no_memory();
		ret = pinion_name_show(ctx, name, info, *rows, cap, n);
		if (ret || *n <= cap)
			return ret;
		cap = 2 * *n;
		free(*rows);
	}
}

int cmd_show(const struct command *cmd, int argc, char **argv)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	struct pinion_name_user *rows;
	struct pinion_context *ctx;
	struct wish wish = { 0 };
	size_t n = 0;
	int ret;

	command_parse(cmd, argc, argv, options, parse, &wish);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = ask(ctx, wish.name, &info, &rows, &n);
	if (ret) {
		ret = refused(ret);
	} else if (wish.json) {
		print_json(&info, rows, n);
	} else {
		name_clean(&info);
		print_info(&info);
		if (n)
			print_users(rows, n);
		/* Of what stands on memfd there is nothing to say, and why not is for doctor. */
		if (!strcmp(info.hold, "pinned"))
			buffers_print(info.pid);
	}
	free(rows);
	pinion_close(ctx);
	return ret;
}
