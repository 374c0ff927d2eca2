/* SPDX-License-Identifier: MIT */
#include "devices.h"
#include "format.h"
#include "json.h"
#include "pinion.h"
#include "table.h"
#include "want.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct devices_cmd {
	bool json;
	const char *add, *remove;
	struct pinion_device_opts opts;
};

static const struct argp_option options[] = {
	{ .name = "json", .key = 'j', .doc = "Print an array of objects" },
	{ .name = "add", .key = 'a', .arg = "KEY", .doc = "Add a device; one that is there keeps its values" },
	{ .name = "budget", .key = 'b', .arg = "SIZE", .doc = "With --add: bytes that may be claimed on it" },
	{ .name = "capacity", .key = 'c', .arg = "UNITS", .doc = "With --add: units it works on at once" },
	{ .name = "remove", .key = 'r', .arg = "KEY", .doc = "Remove a device that no other process counts on and nobody has claimed" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct devices_cmd *c = state->input;

	switch (key) {
	case 'j':
		c->json = true;
		return 0;
	case 'a':
		if (!strcmp(arg, DEVICE_AUTO))
			usage_error(state, "a device that is called auto could not be named: --on auto is every device");
		c->add = arg;
		return 0;
	case 'r':
		c->remove = arg;
		return 0;
	case 'b':
		if (size_parse(arg, &c->opts.budget))
			usage_error(state, "--budget is a size like 6GiB, not '%s'", arg);
		return 0;
	case 'c':
		if (count_parse(arg, &c->opts.capacity))
			usage_error(state, "--capacity is a whole number, not '%s'", arg);
		return 0;
	case ARGP_KEY_END:
		if (!c->add && (c->opts.budget || c->opts.capacity))
			usage_error(state, "--budget and --capacity go with --add");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static json_t *backends(const struct device_row *row)
{
	json_t *array = json_new_array();

	if (row->backend)
		json_add(array, json_string(row->backend));
	return array;
}

static void print_json(const struct devices *d)
{
	json_t *array = json_new_array();

	for (size_t i = 0; i < d->rows; i++) {
		const struct device_row *row = &d->row[i];
		const struct pinion_device_info *info = &row->info;
		json_t *object = json_new_object();

		json_set_text(object, "key", info->key);
		json_set_number(object, "generation", info->generation);
		json_set_number(object, "budget", info->budget);
		json_set_number(object, "reserved", info->reserved);
		json_set_number(object, "capacity", info->capacity);
		json_set_number(object, "reserved_units", info->reserved_units);
		json_set_number(object, "claims", info->claims);
		json_set(object, "pending", row->queue ? json_integer((json_int_t)info->pending_high) : json_null());
		json_set_number(object, "sessions", info->sessions);
		json_set(object, "numa", row->nodes.s[0] ? json_string(row->nodes.s) : json_null());
		json_set(object, "backends", backends(row));
		json_add(array, object);
	}
	json_print(array);
}

/* "-" of a device without a queue: none can be in flight. */
static struct text number_text(bool is_one, uint64_t number)
{
	struct text t = { "-" };

	if (is_one)
		snprintf(t.s, sizeof(t.s), "%" PRIu64, number);
	return t;
}

static void print_text(const struct devices *d)
{
	struct table table = { 0 };

	table_add(&table,
		  "DEVICE\tNUMA\t>BUDGET\t>RESERVED\t>FREE\t>CAPACITY\t>CLAIMED\t>CLAIMS\t>IN FLIGHT\t>SESSIONS\tBACKENDS");
	for (size_t i = 0; i < d->rows; i++) {
		const struct device_row *row = &d->row[i];
		const struct pinion_device_info *info = &row->info;
		uint64_t left = info->budget > info->reserved ? info->budget - info->reserved : 0;
		char key[PINION_KEY_MAX + 1];

		table_add(&table, "%s\t%s\t%s\t%s\t%s\t%s\t%" PRIu32 "\t%" PRIu32 "\t%s\t%" PRIu32 "\t%s",
			  text_copy(key, sizeof(key), info->key), row->nodes.s[0] ? row->nodes.s : "-",
			  info->budget ? size_text(info->budget).s : "-", size_text(info->reserved).s,
			  info->budget ? size_text(left).s : "-", number_text(row->queue, info->capacity).s, info->reserved_units,
			  info->claims, number_text(row->queue, info->pending_high).s, info->sessions,
			  row->backend ? row->backend : "-");
	}
	table_print(&table, stdout);
}

/* What a backend says of its device is not the user's to choose; the library would keep quiet about it. */
static bool is_a_backends(struct pinion_context *ctx, const struct devices_cmd *c)
{
	struct pinion_device *dev;

	if (!c->opts.budget && !c->opts.capacity)
		return false;
	if (pinion_device_find(ctx, c->add, &dev) || !pinion_device_caps(dev))
		return false;
	complain("'%s' is a device of pinion's own, whose memory and queue are what they are: "
		 "--budget and --capacity are for devices that are added by their key",
		 c->add);
	return true;
}

/* To the module a device is what somebody refers to. */
static void warn_of_end(struct pinion_context *ctx, const char *key)
{
	struct pinion_context_info info = { .size = sizeof(info) };

	if (!pinion_context_info(ctx, &info) && !strcmp(info.counts, "kmod"))
		complain("on the kernel module '%s' lives as long as somebody refers to it: unless another process does, it ends with "
			 "this command", key);
}

/* Returns the exit code. */
static int change(struct pinion_context *ctx, const struct devices_cmd *c)
{
	struct pinion_device *dev;
	int ret = 0;

	if (c->add && is_a_backends(ctx, c))
		return EXIT_USAGE;
	if (c->add)
		ret = pinion_device_add(ctx, c->add, &c->opts, &dev);
	if (ret)
		return refused(ret);
	if (c->add)
		warn_of_end(ctx, c->add);
	if (c->remove)
		ret = pinion_device_find(ctx, c->remove, &dev);
	if (ret)
		return refused_device(ret);
	if (c->remove)
		ret = pinion_device_remove(dev);
	return ret ? refused(ret) : EXIT_OK;
}

/* Returns the exit code. */
static int show(struct pinion_context *ctx, bool json)
{
	struct devices d;
	int ret = devices_read(ctx, DEVICES_ALL, &d);

	if (ret)
		return refused(ret);
	if (json)
		print_json(&d);
	else
		print_text(&d);
	devices_free(&d);
	return EXIT_OK;
}

int cmd_devices(const struct command *cmd, int argc, char **argv)
{
	struct devices_cmd c = { .opts = { .size = sizeof(c.opts) } };
	struct pinion_context *ctx;
	int ret;

	command_parse(cmd, argc, argv, options, parse, &c);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = change(ctx, &c);
	if (!ret)
		ret = show(ctx, c.json);
	pinion_close(ctx);
	return ret;
}
