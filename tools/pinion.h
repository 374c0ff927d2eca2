/* SPDX-License-Identifier: MIT */
/* pinion: what the subcommands share: the table they are in, exit codes, how an option or a failure is answered. */
#ifndef PINION_TOOLS_PINION_H
#define PINION_TOOLS_PINION_H

#include <argp.h>
#include <pinion/advice.h>
#include <stdbool.h>
#include <stddef.h>

/* Documented in pinion(1). */
enum exit_code {
	EXIT_OK = 0,
	EXIT_PROBLEM = 1,
	EXIT_USAGE = 2,
	EXIT_ABSENT = 3,
	EXIT_NO_ROOM = 4,
	EXIT_BUSY = 5,
};

struct command {
	const char *name;
	const char *args;
	const char *help;
	int (*fn)(const struct command *cmd, int argc, char **argv);
};

int cmd_alloc(const struct command *cmd, int argc, char **argv);
int cmd_bench(const struct command *cmd, int argc, char **argv);
int cmd_check(const struct command *cmd, int argc, char **argv);
int cmd_devices(const struct command *cmd, int argc, char **argv);
int cmd_doctor(const struct command *cmd, int argc, char **argv);
int cmd_explain(const struct command *cmd, int argc, char **argv);
int cmd_info(const struct command *cmd, int argc, char **argv);
int cmd_leaks(const struct command *cmd, int argc, char **argv);
int cmd_load(const struct command *cmd, int argc, char **argv);
int cmd_ls(const struct command *cmd, int argc, char **argv);
int cmd_pick(const struct command *cmd, int argc, char **argv);
int cmd_rm(const struct command *cmd, int argc, char **argv);
int cmd_run(const struct command *cmd, int argc, char **argv);
int cmd_selftest(const struct command *cmd, int argc, char **argv);
int cmd_show(const struct command *cmd, int argc, char **argv);
int cmd_top(const struct command *cmd, int argc, char **argv);

/* Parses what follows the command's name; does not return from a usage error (exit 2) or --help. */
void command_parse(const struct command *cmd, int argc, char **argv, const struct argp_option *options, argp_parser_t parser,
		   void *input);

/* The same with options of others, and flags of argp_parse(). The parser fills child_inputs at ARGP_KEY_INIT. */
void command_parse_with(const struct command *cmd, int argc, char **argv, const struct argp_option *options, argp_parser_t parser,
			void *input, const struct argp_child *children, unsigned int flags);

/* For a command whose only option is --json, which @doc explains: whether it was given. */
bool command_parse_json(const struct command *cmd, int argc, char **argv, const char *doc);

/* For the parser of a command with one argument, called @what: takes it into *@value and refuses none and a second. */
error_t command_argument(int key, char *arg, struct argp_state *state, const char *what, const char **value);

/* argp_error(), with what a terminal would obey taken out of what the user wrote. Exits, as parsers here let it. */
void usage_error(const struct argp_state *state, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Says "pinion CMD: SENTENCE" on stderr. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same of a process, a thread or a pipe that cannot be made, with the text of @err and what to type. */
void complain_process(int err, const char *what);

/* Ends the sentence in @text in what to type and its name; @value as of pinion_advice_line(). */
void sentence_advise(char *text, size_t room, enum pinion_advice advice, const char *value);

/* What to type where a process, a thread or a pipe cannot be made for @err. */
enum pinion_advice process_advice(int err);

/* Complains with pinion_error() and returns the exit code that belongs to @ret, a -errno. */
int refused(int ret);
/* Of a device that was named: where it is not there, the exit code says absent. */
int refused_device(int ret);
int exit_code_of(int ret);

/* Complains and exits; for the few allocations of this program. */
void no_memory(void) __attribute__((noreturn));

/* For what this program becomes: the signals that it ignores are as it was given them. */
void signals_as_given(void);

/* Writes out what stdio holds for stdout. -EPIPE: nobody reads any more, no problem; else complains, -errno. */
int flush_stdout(void);

#endif
