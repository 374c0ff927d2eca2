/* SPDX-License-Identifier: MIT */
#include "devices.h"
#include "format.h"
#include "json.h"
#include "pinion.h"
#include "screen.h"
#include "table.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define INTERVAL_MIN 0.1
#define INTERVAL_MAX 86400.0

struct top {
	bool once;
	bool json;
	double interval;
};

enum order { ORDER_TABLE, ORDER_PENDING, ORDER_RATE, ORDERS };

/* What the user has chosen by keys. */
struct view {
	enum order order;
	bool users, paused, help;
	double interval;
};

/* The last two readings; a rate needs both. */
struct reading {
	struct devices now, before, nothing;
	bool has_before;
};

static const struct argp_option options[] = {
	{ .name = "once", .key = 'o', .doc = "Print one reading and end" },
	{ .name = "json", .key = 'j', .doc = "Print one reading as an object and end" },
	{ .name = "interval", .key = 'i', .arg = "SECONDS", .doc = "Between two readings, 0.1 to 86400 (1)" },
	{ 0 },
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct top *top = state->input;

	switch (key) {
	case 'o':
		top->once = true;
		return 0;
	case 'j':
		top->json = true;
		return 0;
	case 'i':
		if (number_parse(arg, &top->interval) || top->interval < INTERVAL_MIN || top->interval > INTERVAL_MAX)
			usage_error(state, "--interval is a number from 0.1 to 86400, not '%s'", arg);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------- */

static json_t *user_object(const struct pinion_device_user *user, int64_t now_ns)
{
	json_t *object = json_new_object();

	json_set(object, "pid", json_integer(user->pid));
	json_set_number(object, "uid", user->uid);
	json_set_text(object, "comm", user->comm);
	json_set_number(object, "pending", user->pending);
	json_set_number(object, "submitted", user->submitted);
	json_set_number(object, "age_seconds", (now_ns - (int64_t)user->since_ns) / 1000000000);
	return object;
}

static json_t *device_object(const struct device_row *row, int64_t now_ns)
{
	json_t *object = json_new_object(), *users = json_new_array();
	const struct pinion_device_info *info = &row->info;

	json_set_text(object, "key", info->key);
	json_set_number(object, "generation", info->generation);
	json_set_number(object, "capacity", info->capacity);
	json_set_number(object, "pending_low", info->pending_low);
	json_set_number(object, "pending_high", info->pending_high);
	json_set_number(object, "pending_cost", info->pending_cost);
	json_set_number(object, "submitted", info->submitted);
	json_set_number(object, "reclaimed", info->reclaimed);
	json_set_number(object, "sessions", info->sessions);
	json_set_number(object, "shared_lanes", info->shared_lanes);
	for (size_t i = 0; i < row->users; i++)
		json_add(users, user_object(&row->user[i], now_ns));
	json_set(object, "users", users);
	return object;
}

static void print_json(const struct pinion_context *ctx, const struct devices *d)
{
	json_t *object = json_new_object(), *array = json_new_array();
	struct pinion_context_info info = { .size = sizeof(info) };

	for (size_t i = 0; i < d->rows; i++)
		json_add(array, device_object(&d->row[i], d->at_ns));
	json_set(object, "devices", array);
	if (!pinion_context_info(ctx, &info)) {
		json_set_text(object, "counts", info.counts);
		json_set_number(object, "apart", info.apart);
	}
	json_print(object);
}

/* ---- text ---------------------------------------------------------------------------------------------------------- */

static struct text pending_text(const struct pinion_device_info *info)
{
	struct text t;

	if (info->pending_low == info->pending_high)
		snprintf(t.s, sizeof(t.s), "%" PRIu64, info->pending_high);
	else
		snprintf(t.s, sizeof(t.s), "%" PRIu64 "..%" PRIu64, info->pending_low, info->pending_high);
	return t;
}

static struct text capacity_text(const struct pinion_device_info *info)
{
	struct text t = { "-" };

	if (info->capacity)
		snprintf(t.s, sizeof(t.s), "%" PRIu32, info->capacity);
	return t;
}

static double done_per_second(const struct devices *d, const struct devices *before, const struct pinion_device_info *info)
{
	const struct device_row *old = before ? devices_find(before, info) : NULL;
	uint64_t done = device_completed(info), was = old ? device_completed(&old->info) : done;

	return old && d->at_ns > before->at_ns && done > was ? (done - was) * 1e9 / (d->at_ns - before->at_ns) : 0;
}

/* Units done per second since the reading before; "-" without one. */
static struct text done_text(const struct devices *d, const struct devices *before, const struct pinion_device_info *info)
{
	struct text t = { "-" };

	if (devices_find(before, info) && d->at_ns > before->at_ns)
		snprintf(t.s, sizeof(t.s), "%.1f", done_per_second(d, before, info));
	return t;
}

static void add_device(struct table *table, const struct devices *d, const struct devices *before, struct device_row *row,
		       bool users)
{
	const struct pinion_device_info *info = &row->info;
	char key[PINION_KEY_MAX + 1];

	table_add(table, "%s\t%s\t%" PRIu64 "\t%s\t%" PRIu32 "\t%" PRIu64 "\t%" PRIu64 "%s%s",
		  text_copy(key, sizeof(key), info->key), pending_text(info).s, info->pending_cost, capacity_text(info).s,
		  info->sessions, info->submitted, info->reclaimed, before ? "\t" : "",
		  before ? done_text(d, before, info).s : "");
	for (size_t i = 0; users && i < row->users; i++) {
		struct pinion_device_user *user = &row->user[i];

		text_clean(user->comm);
		table_add(table, "  %" PRId32 " %s\t%" PRIu64 "\t\t\t\t%" PRIu64, user->pid, user->comm, user->pending,
			  user->submitted);
	}
}

/* What @view sorts by, the largest first; the place in the table where that is equal. */
static double weight(const struct view *view, const struct devices *d, const struct devices *before, const struct device_row *row)
{
	return view->order == ORDER_PENDING ? (double)row->info.pending_high :
	       view->order == ORDER_RATE    ? done_per_second(d, before, &row->info) :
					      0;
}

/* @before is NULL where there is to be no rate. */
static void print_text(struct devices *d, const struct devices *before, const struct view *view, FILE *out)
{
	struct device_row **row = calloc(d->rows + 1, sizeof(*row));
	struct table table = { 0 };

	if (!row)
		no_memory();
	for (size_t i = 0; i < d->rows; i++) {
		size_t at = i;

		for (; at && weight(view, d, before, row[at - 1]) < weight(view, d, before, &d->row[i]); at--)
			row[at] = row[at - 1];
		row[at] = &d->row[i];
	}
	table_add(&table, "DEVICE\t>IN FLIGHT\t>COST\t>CAPACITY\t>SESSIONS\t>SUBMITTED\t>RECLAIMED%s", before ? "\t>DONE/S" : "");
	for (size_t i = 0; i < d->rows; i++)
		add_device(&table, d, before, row[i], view->users);
	table_print(&table, out);
	free(row);
}

/* ---- the command --------------------------------------------------------------------------------------------------- */

/* Returns the exit code. */
static int show_once(struct pinion_context *ctx, bool json)
{
	struct view view = { .users = true };
	struct devices d;
	int ret = devices_read(ctx, DEVICES_COUNTED, &d);

	if (ret)
		return refused(ret);
	if (json)
		print_json(ctx, &d);
	else
		print_text(&d, NULL, &view, stdout);
	devices_free(&d);
	return EXIT_OK;
}

static const char help_text[] = "KEY            WHAT IT DOES\n"
				"q              end\n"
				"p              pause, and go on\n"
				"r              read now\n"
				"u              show users, or devices only\n"
				"s              sort: as in the table, by units in flight, by units done per second\n"
				"+ -            a longer, a shorter interval\n"
				"arrows, j k    move the text; page up, page down, blank, home, end\n"
				"Ctrl-L         paint all of the terminal again\n"
				"h ?            this, and back\n";

static void paint(struct screen *screen, const struct view *view, struct reading *r)
{
	static const char *const order[] = { "as in the table", "by units in flight", "by units done" };
	struct view plain = *view;
	char head[160], *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		no_memory();
	if (!screen->paints)
		plain = (struct view){ .users = true };
	print_text(&r->now, r->has_before ? &r->before : &r->nothing, &plain, out);
	if (fclose(out))
		no_memory();
	snprintf(head, sizeof(head), "pinion top: %zu devices, every %.1f s, %s%s%s", r->now.rows, view->interval,
		 order[view->order], view->users ? "" : ", without users", view->paused ? ", paused" : "");
	screen_paint(screen, head, view->help ? help_text : text, " q end  p pause  s sort  u users  + - interval  h help ");
	free(text);
}

static void change_interval(struct view *view, double factor)
{
	double interval = view->interval * factor;

	view->interval = interval < INTERVAL_MIN ? INTERVAL_MIN : interval > INTERVAL_MAX ? INTERVAL_MAX : interval;
}

/* What a key asks for. False: to end. @read: for another reading. */
static bool obey(struct view *view, int key, bool *read)
{
	switch (key) {
	case 'q':
		return false;
	case 'p':
		view->paused = !view->paused;
		break;
	case 'r':
		*read = true;
		break;
	case 'u':
		view->users = !view->users;
		break;
	case 's':
		view->order = (view->order + 1) % ORDERS;
		break;
	case '+':
		change_interval(view, 2);
		break;
	case '-':
		change_interval(view, 0.5);
		break;
	case 'h':
	case '?':
		view->help = !view->help;
		break;
	}
	return true;
}

static int read_next(struct pinion_context *ctx, struct reading *r)
{
	struct devices d;
	int ret = devices_read(ctx, DEVICES_COUNTED, &d);

	if (ret)
		return ret;
	devices_free(&r->before);
	r->before = r->now;
	r->has_before = r->before.at_ns != 0;
	r->now = d;
	return 0;
}

/* Paints, and waits until it is time for another reading (true) or to end. */
static bool show(struct screen *screen, struct view *view, struct reading *r)
{
	int64_t next = pinion_deadline_in((int64_t)(view->interval * 1e9));
	bool read = false;

	paint(screen, view, r);
	for (;;) {
		double left = view->paused ? INTERVAL_MAX : (next - pinion_deadline_in(0)) / 1e9;
		int event = flush_stdout() ? SCREEN_END : screen_wait(screen, left);

		if (event == SCREEN_END || !obey(view, event, &read))
			return false;
		if (read || (event == SCREEN_TIME && !view->paused))
			return true;
		paint(screen, view, r);
	}
}

/* Returns the exit code. */
static int show_often(struct pinion_context *ctx, double interval)
{
	struct view view = { .users = true, .interval = interval };
	struct reading r = { 0 };
	struct screen screen;
	int ret;

	if (screen_open(&screen))
		return EXIT_PROBLEM;
	do
		ret = read_next(ctx, &r);
	while (!ret && show(&screen, &view, &r));
	screen_close(&screen);
	devices_free(&r.before);
	devices_free(&r.now);
	return ret ? refused(ret) : EXIT_OK;
}

int cmd_top(const struct command *cmd, int argc, char **argv)
{
	struct top top = { .interval = 1 };
	struct pinion_context *ctx;
	int ret;

	command_parse(cmd, argc, argv, options, parse, &top);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = top.once || top.json ? show_once(ctx, top.json) : show_often(ctx, top.interval);
	pinion_close(ctx);
	return ret;
}
