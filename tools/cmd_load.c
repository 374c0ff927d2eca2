/* SPDX-License-Identifier: MIT */
/* load: starts the process that will hold the name, and stays in front of it until the model is ready. */
#include "behind.h"
#include "format.h"
#include "hold.h"
#include "pinion.h"
#include "report.h"
#include "through.h"
#include "words.h"

#include <errno.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct load {
	const char *file;
	bool foreground;
	bool streams; /* nothing is held: what follows */
	struct through through;
	const char *streamed; /* an option that --stream alone has */
	const char *held;     /* an option that it has not */
	struct hold hold;
};

enum {
	OPT_NAME = 'n',
	OPT_FOREGROUND = 'f',
	OPT_JSON = 'j',
	OPT_IO = 256,
	OPT_HASH,
	OPT_STREAM,
	OPT_PIPE,
	OPT_SHA256,
	OPT_BUFFERS,
	OPT_BUFFER_SIZE
};

static const struct argp_option options[] = {
	{ .name = "name", .key = OPT_NAME, .arg = "NAME", .doc = "The name to hold it under; required but with --stream" },
	{ .name = "foreground", .key = OPT_FOREGROUND, .doc = "Do not leave a holder behind: serve until SIGTERM, SIGINT or rm" },
	{ .name = "io", .key = OPT_IO, .arg = "auto|direct|buffered", .doc = "How the file is read (auto)" },
	{ .name = "hash",
	  .key = OPT_HASH,
	  .doc = "Compute the SHA-256 of each file while it is loaded, and keep it with the model" },
	{ .name = "stream",
	  .key = OPT_STREAM,
	  .doc = "Hold nothing: read the tensors through a few buffers, in the order of the files. For models larger than "
		 "memory" },
	{ .name = "pipe", .key = OPT_PIPE, .doc = "With --stream: write the tensors' bytes to standard output" },
	{ .name = "sha256", .key = OPT_SHA256, .arg = "DIGITS", .doc = "With --stream: exit 1 if FILE has another SHA-256" },
	{ .name = "buffers", .key = OPT_BUFFERS, .arg = "N", .doc = "With --stream: so many buffers (4)" },
	{ .name = "buffer-size", .key = OPT_BUFFER_SIZE, .arg = "SIZE", .doc = "With --stream: of this size each (8MiB)" },
	{ .name = "json", .key = OPT_JSON, .doc = "Print an object" },
	{ 0 },
};

static const char *const io_words[] = {
	[PINION_IO_AUTO] = "auto",
	[PINION_IO_BUFFERED] = "buffered",
	[PINION_IO_DIRECT] = "direct",
	NULL,
};

/* Whether @arg is 64 hexadecimal digits. */
static bool is_sha256(const char *arg)
{
	return strlen(arg) == 64 && strspn(arg, "0123456789abcdefABCDEF") == 64;
}

static error_t parse_streamed(int key, char *arg, struct argp_state *state)
{
	struct through *t = &((struct load *)state->input)->through;

	switch (key) {
	case OPT_PIPE:
		t->pipe = true;
		if (isatty(STDOUT_FILENO))
			usage_error(state, "--pipe writes the tensors to standard output, which is a terminal");
		break;
	case OPT_SHA256:
		t->sha256 = arg;
		t->opts.hash = true;
		if (!is_sha256(arg))
			usage_error(state, "--sha256 is 64 hexadecimal digits, not '%s'", arg);
		break;
	case OPT_BUFFERS:
		if (count_parse(arg, &t->opts.buffers) || !t->opts.buffers)
			usage_error(state, "--buffers is a number from 1 up, not '%s'", arg);
		break;
	case OPT_BUFFER_SIZE:
		if (size_parse(arg, &t->opts.buffer_bytes) || !t->opts.buffer_bytes)
			usage_error(state, "--buffer-size is a size like 8MiB, not '%s'", arg);
		break;
	}
	return 0;
}

static void check_options(struct load *load, struct argp_state *state)
{
	if (!load->held)
		load->held = load->hold.memory.given;
	if (load->streams && load->held)
		usage_error(state, "--stream holds nothing: %s has no meaning", load->held);
	if (!load->streams && load->streamed)
		usage_error(state, "%s is for --stream", load->streamed);
	if (!load->streams && !load->hold.name)
		usage_error(state, "--name NAME is missing");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct load *load = state->input;
	struct hold *hold = &load->hold;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &hold->memory;
		return 0;
	case OPT_NAME:
		load->held = "--name";
		hold->name = arg;
		return 0;
	case OPT_FOREGROUND:
		load->held = "--foreground";
		load->foreground = true;
		return 0;
	case OPT_IO:
		load->through.opts.io = hold->opts.io = word_parse(state, "--io", arg, io_words);
		return 0;
	case OPT_HASH:
		load->through.opts.hash = hold->opts.hash = true;
		return 0;
	case OPT_JSON:
		load->through.json = hold->json = true;
		return 0;
	case OPT_STREAM:
		load->streams = true;
		return 0;
	case OPT_PIPE:
	case OPT_SHA256:
	case OPT_BUFFERS:
	case OPT_BUFFER_SIZE:
		load->streamed = key == OPT_PIPE ? "--pipe" : key == OPT_SHA256 ? "--sha256" : key == OPT_BUFFERS ? "--buffers" : "--buffer-size";
		return parse_streamed(key, arg, state);
	case ARGP_KEY_END:
		command_argument(key, arg, state, "FILE", &load->file);
		check_options(load, state);
		return 0;
	}
	return command_argument(key, arg, state, "FILE", &load->file);
}

static int run(void *hold)
{
	return hold_run(hold);
}

/*
 * The absolute path of @file under its own name, whose folder alone is made real: the other files of a model are found by names
 * beside this one, and a link may lead to where they are called otherwise. @real is all resolved. False: errno says why not.
 */
static bool absolute(const char *file, char path[PATH_MAX], char real[PATH_MAX])
{
	const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
	char before[PATH_MAX], folder[PATH_MAX];
	struct stat st;

	if (!realpath(file, real))
		return false;
	/* Without a link there is one path; a folder is refused later, and may end in anything. */
	if (lstat(file, &st) || !S_ISLNK(st.st_mode)) {
		strcpy(path, real);
		return true;
	}
	snprintf(before, sizeof(before), "%.*s", slash ? (int)(slash - file + 1) : 1, slash ? file : ".");
	if (!realpath(before, folder))
		return false;
	errno = ENAMETOOLONG;
	return snprintf(path, PATH_MAX, "%s/%s", strcmp(folder, "/") ? folder : "", name) < PATH_MAX;
}

/* What was said of the memory, in the load's own words. */
static void take_memory(struct hold *hold)
{
	const struct pinion_buffer_opts *opts = &hold->memory.opts;

	hold->opts.pages = opts->pages;
	hold->opts.prefer_pages = opts->prefer_pages;
	hold->opts.hold = opts->hold;
	hold->opts.numa = opts->numa;
	hold->opts.node = opts->node;
}

int cmd_load(const struct command *cmd, int argc, char **argv)
{
	struct load load = { .hold = { .opts = { .size = sizeof(load.hold.opts) }, .report_fd = -1 },
			     .through = { .opts = { .size = sizeof(load.through.opts), .buffers = 4, .buffer_bytes = 8 << 20 } } };
	char path[PATH_MAX], real[PATH_MAX];

	load.hold.start_ns = pinion_deadline_in(0);
	command_parse_with(cmd, argc, argv, options, parse, &load, memory_children, 0);
	take_memory(&load.hold);
	if (load.streams) {
		load.through.file = load.file;
		return through_run(&load.through);
	}
	if (!absolute(load.file, path, real)) {
		complain("%s: %s", load.file, access(load.file, F_OK) ? strerror(errno) : "it has no path, a regular file is needed");
		return EXIT_PROBLEM;
	}
	load.hold.path = path;
	load.hold.shown = real;
	report_show(load.hold.name, &(struct report){ .kind = REPORT_PROGRESS });
	return load.foreground ? hold_run(&load.hold) : behind_run(&load.hold, run, &load.hold);
}
