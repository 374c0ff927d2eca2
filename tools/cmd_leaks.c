/* SPDX-License-Identifier: MIT */
/* leaks: what nobody that lives stands for, and what somebody keeps who does not run. */
#include "devices.h"
#include "format.h"
#include "json.h"
#include "pinion.h"
#include "table.h"

#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct leaks {
	bool json, remove;
	double unused; /* seconds; below 0: names that nobody uses are no leak */
	json_t *array;
	struct table table;
	unsigned int n;
};

/* One line of the answer. */
struct row {
	const char *kind, *what, *why;
	int32_t pid;
	uint64_t bytes, age_ns;
	enum pinion_advice advice;
	bool removed;
};

enum { OPT_UNUSED = 256 };

static const struct argp_option options[] = {
	{ .name = "remove", .key = 'r', .doc = "Remove what dead processes left" },
	{ .name = "unused",
	  .key = OPT_UNUSED,
	  .arg = "SECONDS",
	  .doc = "Show too names that nobody is attached to, held for so long at least" },
	{ .name = "json", .key = 'j', .doc = "Print an array with an object for each" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct leaks *l = state->input;

	switch (key) {
	case 'r':
		l->remove = true;
		return 0;
	case OPT_UNUSED:
		if (number_parse(arg, &l->unused))
			usage_error(state, "--unused is a number of seconds, not '%s'", arg);
		return 0;
	case 'j':
		l->json = true;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void set_fix(json_t *object, const struct row *row)
{
	struct pinion_advice_info info = { .size = sizeof(info) };
	char value[PINION_NAME_MAX + 16], line[320];

	if (row->removed || pinion_advice_info(row->advice, &info)) {
		json_set(object, "fix", json_null());
		json_set(object, "id", json_null());
		return;
	}
	if (row->advice == PINION_ADVICE_NAME_SILENT)
		snprintf(value, sizeof(value), "%" PRId32, row->pid);
	else
		snprintf(value, sizeof(value), "%.64s", row->what);
	json_set_text(object, "fix", pinion_advice_line(row->advice, value, line, sizeof(line)));
	json_set_text(object, "id", info.id);
}

static void add(struct leaks *l, const struct row *row)
{
	char what[128], why[256];
	json_t *object;

	l->n++;
	if (!l->json) {
		if (!l->table.rows)
			table_add(&l->table, "KIND\tWHAT\t>PID\t>SIZE\t>AGE\tWHY");
		table_add(&l->table, "%s\t%s\t%" PRId32 "\t%s\t%s\t%s%s", row->kind, text_copy(what, sizeof(what), row->what),
			  row->pid, size_text(row->bytes).s, age_text(row->age_ns).s, text_copy(why, sizeof(why), row->why),
			  row->removed ? "; removed" : "");
		return;
	}
	object = json_new_object();
	json_set_text(object, "kind", row->kind);
	json_set_text(object, "what", row->what);
	json_set(object, "pid", json_integer(row->pid));
	json_set_number(object, "bytes", row->bytes);
	json_set_number(object, "age_seconds", row->age_ns / 1000000000);
	json_set_text(object, "why", row->why);
	json_set(object, "removed", json_boolean(row->removed));
	set_fix(object, row);
	json_add(l->array, object);
}

static int on_leak(void *arg, const struct pinion_leak *leak)
{
	struct leaks *l = arg;
	struct row row = { .kind = leak->kind,
			   .what = leak->what,
			   .why = leak->why,
			   .pid = leak->pid,
			   .bytes = leak->bytes,
			   .age_ns = leak->age_ns,
			   .removed = l->remove && leak->removable };

	if (leak->removable)
		row.advice = PINION_ADVICE_ORPHANS;
	else if (!strcmp(leak->kind, "silent"))
		row.advice = PINION_ADVICE_NAME_SILENT;
	else if (!strcmp(leak->kind, "unused"))
		row.advice = PINION_ADVICE_NAME_HELD;
	if (strcmp(leak->kind, "unused") || (l->unused >= 0 && leak->age_ns >= l->unused * 1e9))
		add(l, &row);
	return 0;
}

/* T: it was told to stop, and what it has in flight will not end. */
static bool is_stopped(int32_t pid)
{
	char path[64], text[512], *end;
	FILE *f;
	bool stopped = false;

	snprintf(path, sizeof(path), "/proc/%" PRId32 "/stat", pid);
	f = fopen(path, "re");
	if (f && fgets(text, sizeof(text), f)) {
		end = strrchr(text, ')');
		stopped = end && end[1] && (end[2] == 'T' || end[2] == 't');
	}
	if (f)
		fclose(f);
	return stopped;
}

static int look_at_units(struct pinion_context *ctx, struct leaks *l)
{
	struct devices d;
	int ret = devices_read(ctx, DEVICES_COUNTED, &d);

	if (ret)
		return ret;
	for (size_t i = 0; i < d.rows; i++)
		for (size_t k = 0; k < d.row[i].users; k++) {
			const struct pinion_device_user *user = &d.row[i].user[k];
			char why[96];

			if (!user->pending || user->pid <= 0 || !is_stopped(user->pid))
				continue;
			snprintf(why, sizeof(why), "%" PRIu64 " units in flight, and the process is stopped", user->pending);
			add(l, &(struct row){ .kind = "units",
					      .what = d.row[i].info.key,
					      .why = why,
					      .pid = user->pid,
					      .age_ns = d.at_ns - user->since_ns,
					      .advice = PINION_ADVICE_NAME_SILENT });
		}
	devices_free(&d);
	return 0;
}

int cmd_leaks(const struct command *cmd, int argc, char **argv)
{
	struct leaks l = { .unused = -1 };
	struct pinion_context *ctx;
	int ret;

	command_parse(cmd, argc, argv, options, parse, &l);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	l.array = json_new_array();
	ret = pinion_leak_list(ctx, l.remove, on_leak, &l);
	if (!ret)
		ret = look_at_units(ctx, &l);
	pinion_close(ctx);
	/* Half a list would be taken for the whole. */
	if (ret) {
		json_decref(l.array);
		return refused(ret);
	}
	if (l.json) {
		json_print(l.array);
	} else {
		json_decref(l.array);
		table_print(&l.table, stdout);
		if (!l.n)
			puts("none");
	}
	return l.n && !l.remove ? EXIT_PROBLEM : EXIT_OK;
}
