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
	{ "explain", "[ID]", "Explain what stands in brackets at the end of a sentence, or list all there are.", cmd_explain },
	{ "check", "FILE", "Check the header of a model file and show what a load of it needs.", cmd_check },
	{ "load", "FILE --name NAME", "Load a model file; a holder process keeps it under the name.", cmd_load },
	{ "alloc", "[NAME] --size SIZE", "Hold memory until the input ends, under a name or without; or leave a holder.",
	  cmd_alloc },
	{ "ls", "", "List the names that are held.", cmd_ls },
	{ "show", "NAME", "Show everything known of a name, and which processes are attached.", cmd_show },
	{ "rm", "NAME", "Ask the holder of a name to go; refused while processes are attached.", cmd_rm },
	{ "leaks", "", "Show what nobody that lives stands for, and what somebody keeps who is stopped.", cmd_leaks },
	{ "devices", "", "List the devices: budget, claims, work in flight; add and remove them.", cmd_devices },
	{ "pick", "--need SIZE", "Print the device that would be picked; its claim ends with this command.", cmd_pick },
	{ "run", "--need SIZE -- COMMAND...", "Run a command with a claim on a device, counted as work in flight.", cmd_run },
	{ "top", "", "Show the work in flight on each device, and whose it is.", cmd_top },
	{ "selftest", "", "Try on this machine, in some seconds, what pinion promises.", cmd_selftest },
	{ "bench", "[PART...]", "Measure alloc, io, counter, handover, stream: each figure against its baseline.", cmd_bench },
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

enum pinion_advice process_advice(int err)
{
	return err == EAGAIN ? PINION_ADVICE_THREADS : err == EMFILE ? PINION_ADVICE_OPEN_FILES : PINION_ADVICE_NONE;
}

void sentence_advise(char *text, size_t room, enum pinion_advice advice, const char *value)
{
	struct pinion_advice_info info = { .size = sizeof(info) };
	size_t len = strlen(text);
	char line[512];

	if (advice && !pinion_advice_info(advice, &info))
		snprintf(text + len, room - len, "; %s [%s]", pinion_advice_line(advice, value, line, sizeof(line)), info.id);
}

void complain_process(int err, const char *what)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s: %s", what, strerror(err));
	sentence_advise(text, sizeof(text), process_advice(err), NULL);
	complain("%s", text);
}

void usage_error(const struct argp_state *state, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_clean(text);
	argp_error(state, "%s", text);
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

int refused(int ret)
{
	complain("%s", pinion_error());
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

static error_t parse_json(int key, char *arg, struct argp_state *state)
{
	(void)arg;
	if (key != 'j')
		return ARGP_ERR_UNKNOWN;
	*(bool *)state->input = true;
	return 0;
}

bool command_parse_json(const struct command *cmd, int argc, char **argv, const char *doc)
{
	const struct argp_option options[] = { { .name = "json", .key = 'j', .doc = doc }, { 0 } };
	bool json = false;

	command_parse(cmd, argc, argv, options, parse_json, &json);
	return json;
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
			usage_error(state, "one %s at a time, '%s' is too much", what, arg);
		*value = arg;
		return 0;
	case ARGP_KEY_END:
		if (!*value)
			usage_error(state, "%s is missing", what);
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
	       "Next: pinion check FILE; pinion doctor, if something is refused. All commands: pinion help. The\n"
	       "manual: man pinion, man pinion-load.\n",
	       pinion_version());
}

static void list_commands(void)
{
	printf("Usage: pinion COMMAND [OPTION...] [ARGUMENT...]\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-8s %-26s %s\n", commands[i].name, commands[i].args, commands[i].help);
	printf("\n  help     [COMMAND]                  List the commands, or the options of one.\n"
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

/*
 * A reader that went away shows as EPIPE, and a holder must not die of it; a file that would pass RLIMIT_FSIZE (ulimit -f) is an
 * error with a sentence, EFBIG.
 */
static const int ignored[] = { SIGPIPE, SIGXFSZ };
static sighandler_t given[sizeof(ignored) / sizeof(ignored[0])];

static void set_signals(void)
{
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		given[i] = signal(ignored[i], SIG_IGN);
	/* Who was started by one that has no use for its children would hear nothing of how its own ended. */
	signal(SIGCHLD, SIG_DFL);
}

void signals_as_given(void)
{
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], given[i]);
}

/* However the program ends: argp leaves by itself when it has printed help. */
static void flush_at_exit(int code, void *arg)
{
	int ret = flush_stdout();

	(void)arg;
	if (!code && ret && ret != -EPIPE)
		_exit(EXIT_PROBLEM);
}

int main(int argc, char **argv)
{
	fill_standard_fds();
	set_signals();
	on_exit(flush_at_exit, NULL);
	argp_err_exit_status = EXIT_USAGE;
	return dispatch(argc, argv);
}
