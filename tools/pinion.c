/* SPDX-License-Identifier: MIT */
#include "pinion.h"

#include "format.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command commands[] = {
	{ "info", "", "Show what pinion stands on here: ground, runtime directory, pages, limits.", cmd_info },
	{ "doctor", "", "Say what works here, what could be better, and the line to type.", cmd_doctor },
	{ "check", "FILE", "Check the header of a model file and show what a load of it needs.", cmd_check },
	{ "load", "FILE --name NAME", "Load a model file; a holder process keeps it under the name.", cmd_load },
	{ "ls", "", "List the names that are held.", cmd_ls },
	{ "show", "NAME", "Show everything known of a name, and which processes are attached.", cmd_show },
	{ "rm", "NAME", "Ask the holder of a name to go; refused while processes are attached.", cmd_rm },
	{ "devices", "", "List the devices: budget, claims, work in flight; add and remove them.", cmd_devices },
	{ "pick", "--need SIZE", "Print the device that would be picked; its claim ends with this command.", cmd_pick },
	{ "run", "--need SIZE -- COMMAND...", "Run a command with a claim on a device, counted as work in flight.", cmd_run },
	{ "top", "", "Show the work in flight on each device, and whose it is.", cmd_top },
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* What complain() says before the sentence; "" before a command is known. */
static const char *speaker = "";

void complain(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_clean(text);
	fprintf(stderr, "pinion%s%s: %s\n", *speaker ? " " : "", speaker, text);
}

int exit_code_of(int ret)
{
	switch (ret) {
	case 0:
		return EXIT_OK;
	case -ENODEV:
	case -ENXIO:
		return EXIT_ABSENT;
	case -ENOMEM:
	case -ENOSPC:
		return EXIT_NO_ROOM;
	case -EBUSY:
	case -EEXIST:
		return EXIT_BUSY;
	}
	return EXIT_PROBLEM;
}

/* Elsewhere the same errors speak of files and names. */
int refused_device(int ret)
{
	return refused(ret == -ENOENT || ret == -EOPNOTSUPP ? -ENODEV : ret);
}

/* The library's advice names calls of its own; here they are commands. */
static const struct {
	const char *call, *command;
} advice[] = {
	{ "pinion_device_add()", "pinion devices --add KEY" },
};

int refused(int ret)
{
	const char *sentence = pinion_error();

	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++) {
		const char *at = strstr(sentence, advice[i].call);

		if (at) {
			complain("%.*s%s%s", (int)(at - sentence), sentence, advice[i].command, at + strlen(advice[i].call));
			return exit_code_of(ret);
		}
	}
	complain("%s", sentence);
	return exit_code_of(ret);
}

void no_memory(void)
{
	complain("no memory");
	exit(EXIT_NO_ROOM);
}

int flush_stdout(void)
{
	static int failed;

	if (failed || !fflush(stdout))
		return failed;
	failed = -errno;
	if (failed != -EPIPE)
		complain("writing to standard output: %s", strerror(-failed));
	return failed;
}

void command_parse(const struct command *cmd, int argc, char **argv, const struct argp_option *options, argp_parser_t parser,
		   void *input)
{
	command_parse_with(cmd, argc, argv, options, parser, input, NULL, 0);
}

void command_parse_with(const struct command *cmd, int argc, char **argv, const struct argp_option *options, argp_parser_t parser,
			void *input, const struct argp_child *children, unsigned int flags)
{
	struct argp argp = { .options = options, .parser = parser, .args_doc = cmd->args, .doc = cmd->help, .children = children };
	static char name[32]; /* argv keeps it */

	snprintf(name, sizeof(name), "pinion %s", cmd->name);
	argv[0] = name;
	/* Leaves by itself when the user got it wrong; an error that comes back is one of memory. */
	if (argp_parse(&argp, argc, argv, flags, NULL, input))
		no_memory();
}

error_t command_argument(int key, char *arg, struct argp_state *state, const char *what, const char **value)
{
	switch (key) {
	case ARGP_KEY_ARG:
		if (*value)
			argp_error(state, "one %s at a time, '%s' is too much", what, arg);
		*value = arg;
		return 0;
	case ARGP_KEY_END:
		if (!*value)
			argp_error(state, "%s is missing", what);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct command *find(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static void introduce(void)
{
	printf("pinion %s loads a model file once into pinned shared memory; other processes attach to it\n"
	       "without a copy, and everyone sees how much work is in flight on each device.\n"
	       "\n"
	       "  pinion check FILE              what is in a GGUF or safetensors file and what it needs\n"
	       "  pinion load FILE --name NAME   load it and hold it under that name\n"
	       "  pinion ls                      what is held now\n"
	       "\n"
	       "Next: pinion check FILE. All commands: pinion help. The manual: man pinion.\n",
	       pinion_version());
}

static void list_commands(void)
{
	printf("Usage: pinion COMMAND [OPTION...] [ARGUMENT...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-6s %-17s %s\n", commands[i].name, commands[i].args, commands[i].help);
	printf("\n  help   [COMMAND]         List the commands, or the options of one.\n"
	       "\n`pinion COMMAND --help' lists the options of a command. Exit codes: 0 done, 1 failed, 2 usage,\n"
	       "3 a device is absent, 4 does not fit, 5 busy.\n");
}

static int unknown_command(const char *name)
{
	complain("there is no command '%s'; `pinion help' lists them", name);
	return EXIT_USAGE;
}

static int help(int argc, char **argv)
{
	const struct command *cmd;
	char option[] = "--help";
	char *args[] = { NULL, option, NULL };

	if (argc < 2) {
		list_commands();
		return EXIT_OK;
	}
	cmd = find(argv[1]);
	if (!cmd || argc > 2)
		return unknown_command(argv[argc > 2 ? 2 : 1]);
	speaker = cmd->name;
	return cmd->fn(cmd, 2, args);
}

static int dispatch(int argc, char **argv)
{
	const struct command *cmd;

	if (argc < 2) {
		introduce();
		return EXIT_OK;
	}
	if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return help(argc - 1, argv + 1);
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("pinion %s\n", pinion_version());
		return EXIT_OK;
	}
	cmd = find(argv[1]);
	if (!cmd)
		return unknown_command(argv[1]);
	speaker = cmd->name;
	return cmd->fn(cmd, argc - 1, argv + 1);
}

/* A file opened later must not get the number of a stream that the caller closed: it would be printed into. */
static void fill_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	int code, ret;

	fill_standard_fds();
	/* A reader that went away shows as EPIPE; a holder must not die of it. */
	signal(SIGPIPE, SIG_IGN);
	/* A file that would pass RLIMIT_FSIZE (ulimit -f) is an error with a sentence, EFBIG. */
	signal(SIGXFSZ, SIG_IGN);
	argp_err_exit_status = EXIT_USAGE;
	code = dispatch(argc, argv);
	ret = flush_stdout();
	return code || !ret || ret == -EPIPE ? code : EXIT_PROBLEM;
}
