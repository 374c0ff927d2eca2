/* SPDX-License-Identifier: MIT */
/*
 * alloc: memory that is held while the command runs, until the end of its input; or that a holder keeps. With a name it is a
 * storage of bytes, which other processes open; without one it only shows that so much can be had, and how.
 */
#include "behind.h"
#include "ending.h"
#include "format.h"
#include "hold.h"
#include "json.h"
#include "pinion.h"
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

/* How often a name is looked at that somebody may have removed. */
#define LOOK_MS 200

struct alloc {
	uint64_t bytes;
	bool keep, json;
	struct memory memory;
	struct hold hold; /* the name, and where the command listens when this is its holder */
};

/* What is held. */
struct held {
	struct pinion_context *ctx;
	struct pinion_storage *storage; /* of a name */
	struct pinion_buffer *buf;	/* without one; of the storage's otherwise */
};

static const struct argp_option options[] = {
	{ .name = "size", .key = 's', .arg = "SIZE", .doc = "How much; required" },
	{ .name = "keep", .key = 'k', .doc = "Leave a holder behind that keeps it until rm" },
	{ .name = "huge", .key = 'H', .doc = "Huge pages or none: --pages huge" },
	{ .name = "json", .key = 'j', .doc = "Print an object" },
	{ 0 },
};

static void finish(const struct alloc *a, struct argp_state *state)
{
	if (!a->bytes)
		usage_error(state, "--size SIZE is missing");
	if (a->keep && !a->hold.name)
		usage_error(state, "--keep needs a NAME, by which it is found and removed");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct alloc *a = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &a->memory;
		return 0;
	case 's':
		if (size_parse(arg, &a->bytes) || !a->bytes)
			usage_error(state, "--size is a size like 512MiB, not '%s'", arg);
		return 0;
	case 'k':
		a->keep = true;
		return 0;
	case 'H':
		a->memory.opts.pages = PINION_PAGES_HUGE;
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case ARGP_KEY_ARG:
		return command_argument(key, arg, state, "NAME", &a->hold.name);
	case ARGP_KEY_END:
		finish(a, state);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* ---- the memory ---------------------------------------------------------------------------------------------------- */

static int take(const struct alloc *a, struct held *held)
{
	struct pinion_storage_opts opts = { .size = sizeof(opts), .buffer = &a->memory.opts };
	uint64_t offset;
	int ret = pinion_open(NULL, &held->ctx);

	if (ret)
		return ret;
	if (!a->hold.name)
		return pinion_buffer_alloc(held->ctx, a->bytes, &a->memory.opts, &held->buf);
	ret = pinion_storage_create_named(held->ctx, a->hold.name, PINION_DTYPE_U8, a->bytes, &opts, &held->storage);
	return ret ? ret : pinion_storage_buffer(held->storage, &held->buf, &offset);
}

static void give_back(struct held *held)
{
	if (held->storage)
		pinion_storage_free(held->storage);
	else
		pinion_buffer_unref(held->buf);
	pinion_close(held->ctx);
}

static char *object_of(const struct alloc *a, const struct pinion_buffer_info *info, uint64_t ns)
{
	json_t *object = json_new_object();

	json_set(object, "name", a->hold.name ? json_string(a->hold.name) : json_null());
	json_set_number(object, "asked_bytes", a->bytes);
	memory_set(object, &a->memory, info);
	json_set(object, "pid", json_integer(getpid()));
	json_set_number(object, "ns", ns);
	return json_line(object);
}

static char *line_of(const struct alloc *a, const struct pinion_buffer_info *info, uint64_t ns)
{
	size_t bytes;
	char *text;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		no_memory();
	fprintf(out, "%s%s%s", a->hold.name ? a->hold.name : "", a->hold.name ? ": " : "", size_text(info->bytes).s);
	if (info->huge_bytes)
		fprintf(out, ", huge pages %u %%", percent(info->huge_bytes, info->bytes));
	else
		fprintf(out, ", pages of %s", size_text(info->page_size).s);
	memory_print_node(out, &a->memory, info);
	memory_print_hold(out, info);
	fprintf(out, ", held by process %d, ready in %s", getpid(), seconds_text(ns).s);
	if (fclose(out))
		no_memory();
	return text;
}

/* *@text is to be freed. */
static int describe(const struct alloc *a, const struct held *held, char **text)
{
	struct pinion_buffer_info info = { .size = sizeof(info) };
	uint64_t ns = pinion_deadline_in(0) - a->hold.start_ns;
	int ret = pinion_buffer_info(held->buf, &info);

	if (!ret)
		*text = (a->json ? object_of : line_of)(a, &info, ns);
	return ret;
}

/* ---- holding ------------------------------------------------------------------------------------------------------- */

/* Somebody removed the name, or has taken it since. */
static bool is_gone(const struct alloc *a, const struct held *held)
{
	struct pinion_name_info info = { .size = sizeof(info) };
	int ret;

	if (!a->hold.name)
		return false;
	ret = pinion_name_show(held->ctx, a->hold.name, &info, NULL, 0, NULL);
	return ret == -ENOENT || (!ret && info.pid != getpid());
}

/* Until the input ends (@input), a signal asks to end, or the name is removed. */
static void hold_it(const struct alloc *a, const struct held *held, bool input, int signal_fd)
{
	struct pollfd p[2] = { { .fd = signal_fd, .events = POLLIN }, { .fd = input ? STDIN_FILENO : -1, .events = POLLIN } };
	char text[4096];

	for (;;) {
		int n = poll(p, 2, a->hold.name ? LOOK_MS : -1);

		if (n > 0 && p[0].revents)
			return;
		/* What is typed is of no interest. */
		if (n > 0 && p[1].revents && read(STDIN_FILENO, text, sizeof(text)) <= 0)
			return;
		if (!n && is_gone(a, held))
			return;
	}
}

static int in_front(const struct alloc *a)
{
	struct held held = { 0 };
	int signal_fd = ending_fd(NULL), ret;
	char *text = NULL;

	if (signal_fd < 0)
		return EXIT_PROBLEM;
	ret = take(a, &held);
	if (!ret)
		ret = describe(a, &held, &text);
	if (ret) {
		ret = refused(ret);
	} else {
		puts(text);
		if (!flush_stdout())
			hold_it(a, &held, true, signal_fd);
	}
	free(text);
	give_back(&held);
	return ret;
}

/* The process that stays. It ends with the command until it has told it that the memory is there. */
static int keep(void *alloc)
{
	struct report failed = { .kind = REPORT_FAILED };
	struct held held = { 0 };
	struct alloc *a = alloc;
	char *text = NULL;
	int signal_fd, ret;

	hold_close_inherited(&a->hold);
	signal_fd = ending_fd(NULL);
	if (signal_fd < 0)
		return EXIT_PROBLEM;
	ret = take(a, &held);
	if (!ret)
		ret = describe(a, &held, &text);
	if (ret) {
		failed.err = -ret;
		snprintf(failed.text, sizeof(failed.text), "%s", pinion_error());
	}
	hold_detach(&a->hold);
	prctl(PR_SET_PDEATHSIG, 0);
	if (ret)
		report_send(a->hold.report_fd, &failed);
	else if (!report_result(a->hold.report_fd, REPORT_READY, text))
		hold_it(a, &held, false, signal_fd);
	free(text);
	give_back(&held);
	return exit_code_of(ret);
}

int cmd_alloc(const struct command *cmd, int argc, char **argv)
{
	struct alloc a = { .memory = { .opts = { .size = sizeof(a.memory.opts) } }, .hold = { .report_fd = -1 } };

	a.hold.start_ns = pinion_deadline_in(0);
	command_parse_with(cmd, argc, argv, options, parse, &a, memory_children, 0);
	a.memory.opts.label = a.hold.name;
	return a.keep ? behind_run(&a.hold, keep, &a) : in_front(&a);
}
