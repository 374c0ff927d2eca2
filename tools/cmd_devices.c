/* SPDX-License-Identifier: MIT */
#include "devices.h"
#include "format.h"
#include "json.h"
#include "pinion.h"
#include "table.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdlib.h>

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
	{ .name = "remove", .key = 'r', .arg = "KEY", .doc = "Remove a device that no other process counts on" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct devices_cmd *c = state->input;
	unsigned long n;
	char *end;

	switch (key) {
	case 'j':
		c->json = true;
		return 0;
	case 'a':
		c->add = arg;
		return 0;
	case 'r':
		c->remove = arg;
		return 0;
	case 'b':
		if (size_parse(arg, &c->opts.budget))
			argp_error(state, "--budget is a size like 6GiB, not '%s'", arg);
		return 0;
	case 'c':
		n = strtoul(arg, &end, 10);
		if (end == arg || *end || n > UINT32_MAX || *arg == '-')
			argp_error(state, "--capacity is a whole number, not '%s'", arg);
		c->opts.capacity = n;
		return 0;
	case ARGP_KEY_END:
		if (!c->add && (c->opts.budget || c->opts.capacity))
			argp_error(state, "--budget and --capacity go with --add");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void print_json(const struct devices *d)
{
	json_t *array = json_new_array();

	for (size_t i = 0; i < d->rows; i++) {
		const struct pinion_device_info *info = &d->row[i].info;
		json_t *object = json_new_object();

		json_set_text(object, "key", info->key);
		json_set_number(object, "generation", info->generation);
		json_set_number(object, "budget", info->budget);
		json_set_number(object, "reserved", info->reserved);
		json_set_number(object, "capacity", info->capacity);
		json_set_number(object, "reserved_units", info->reserved_units);
		json_set_number(object, "claims", info->claims);
		json_set_number(object, "pending", info->pending_high);
		json_set_number(object, "sessions", info->sessions);
		json_add(array, object);
	}
	json_print(array);
}

static void print_text(const struct devices *d)
{
	struct table table = { 0 };

	table_add(&table, "DEVICE\t>BUDGET\t>RESERVED\t>FREE\t>CAPACITY\t>CLAIMED\t>CLAIMS\t>IN FLIGHT\t>SESSIONS");
	for (size_t i = 0; i < d->rows; i++) {
		const struct pinion_device_info *info = &d->row[i].info;
		uint64_t left = info->budget > info->reserved ? info->budget - info->reserved : 0;
		char key[PINION_KEY_MAX + 1];

		table_add(&table, "%s\t%s\t%s\t%s\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu32,
			  text_copy(key, sizeof(key), info->key), info->budget ? size_text(info->budget).s : "-",
			  size_text(info->reserved).s, info->budget ? size_text(left).s : "-", info->capacity, info->reserved_units,
			  info->claims, info->pending_high, info->sessions);
	}
	table_print(&table, stdout);
}

static int change(struct pinion_context *ctx, const struct devices_cmd *c)
{
	struct pinion_device *dev;
	int ret = 0;

	if (c->add)
		ret = pinion_device_add(ctx, c->add, &c->opts, &dev);
	if (!ret && c->remove)
		ret = pinion_device_find(ctx, c->remove, &dev);
	if (!ret && c->remove)
		ret = pinion_device_remove(dev);
	return ret;
}

int cmd_devices(const struct command *cmd, int argc, char **argv)
{
	struct devices_cmd c = { .opts = { .size = sizeof(c.opts) } };
	struct pinion_context *ctx;
	struct devices d;
	int ret;

	command_parse(cmd, argc, argv, options, parse, &c);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = change(ctx, &c);
	if (!ret)
		ret = devices_read(ctx, &d);
	if (ret) {
		ret = refused(ret);
	} else {
		if (c.json)
			print_json(&d);
		else
			print_text(&d);
		devices_free(&d);
	}
	pinion_close(ctx);
	return ret;
}
