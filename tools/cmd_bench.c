/* SPDX-License-Identifier: MIT */
/* bench: the door to pinion-bench, which has the measurements and their baselines. */
#include "format.h"
#include "pinion.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "pinion-bench"
#define ARGS	16

struct bench {
	bool json;
	uint64_t bytes;
	char *argv[ARGS];
	int argc;
};

/* What is asked for here, and the groups of the program that it is. */
static const struct {
	const char *name, *about;
	const char *group[4];
} parts[] = {
	{ "alloc", "pinned memory", { "alloc" } },
	{ "io", "a model file that the page cache does not hold, and one that it does", { "cold", "warm" } },
	{ "counter", "begin and end of a unit, reading the totals, a choice among devices", { "counts", "totals", "select" } },
	{ "handover", "a buffer and a model to another process", { "handover" } },
	{ "stream", "a file through streams: by requests, in place, and moved byte by byte", { "stream", "cold", "moved" } },
};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

static const struct argp_option options[] = {
	{ .name = "size", .key = 's', .arg = "SIZE", .doc = "Of the model file that is written, 64MiB at least (1GiB)" },
	{ .name = "json", .key = 'j', .doc = "Print JSON instead of a table" },
	{ 0 },
};

static void add(struct bench *b, const char *arg)
{
	for (int i = 1; i < b->argc; i++)
		if (!strcmp(b->argv[i], arg))
			return;
	b->argv[b->argc++] = (char *)arg;
}

static void add_part(struct bench *b, const char *name, const struct argp_state *state)
{
	for (size_t i = 0; i < PARTS; i++) {
		if (strcmp(parts[i].name, name))
			continue;
		for (int g = 0; g < 4 && parts[i].group[g]; g++)
			add(b, parts[i].group[g]);
		return;
	}
	usage_error(state, "there is alloc, io, counter, handover and stream to measure, not '%s'", name);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct bench *b = state->input;

	switch (key) {
	case 's':
		if (size_parse(arg, &b->bytes) || b->bytes < UINT64_C(64) << 20)
			usage_error(state, "--size is a size of at least 64MiB, not '%s'", arg);
		return 0;
	case 'j':
		b->json = true;
		return 0;
	case ARGP_KEY_ARG:
		add_part(b, arg, state);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

/* Where it was built beside this command, where it was installed with it. */
static bool find_program(char path[PATH_MAX])
{
	static const char *const beside[] = { "/../tests/bench/" PROGRAM, "/../libexec/pinion/" PROGRAM };
	char self[PATH_MAX - 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = 0;
	if (strrchr(self, '/'))
		*strrchr(self, '/') = 0;
	for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
		snprintf(path, PATH_MAX, "%s%s", self, beside[i]);
		if (!access(path, X_OK))
			return true;
	}
	snprintf(path, PATH_MAX, "%s", PINION_LIBEXEC "/" PROGRAM);
	return !access(path, X_OK);
}

int cmd_bench(const struct command *cmd, int argc, char **argv)
{
	struct bench b = { .argc = 1 };
	char path[PATH_MAX], bytes[32];

	command_parse(cmd, argc, argv, options, parse, &b);
	if (!find_program(path)) {
		complain("%s is not installed; it is built with the tests: meson configure -Dtests=true, then install anew",
			 path);
		return EXIT_ABSENT;
	}
	b.argv[0] = path;
	if (b.json)
		b.argv[b.argc++] = "--json";
	snprintf(bytes, sizeof(bytes), "%" PRIu64, b.bytes);
	if (b.bytes)
		setenv("BENCH_BYTES", bytes, 1);
	signals_as_given();
	execv(path, b.argv);
	complain("%s: %s", path, strerror(errno));
	return EXIT_PROBLEM;
}
