/* SPDX-License-Identifier: MIT */
/*
 * run: a claim and a unit in flight for as long as a command runs. The command inherits the claim's descriptor, so the
 * claim stands while it lives, whatever becomes of this process, and is told which it is, so that it may adopt the claim or
 * hand it on; the unit is this process's.
 */
#include "pinion.h"
#include "want.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_NOT_RUN 126
#define EXIT_NOT_FOUND 127

struct run {
	struct want want;
	char **command;
};

static volatile sig_atomic_t child;

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run *run = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &run->want;
		return 0;
	case ARGP_KEY_ARG:
		/* The rest is the command's own. */
		run->command = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (!run->command)
			usage_error(state, "a COMMAND is missing");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static void pass_on(int sig)
{
	if (child > 0)
		kill(child, sig);
}

/* What asks this process to end waits, so that it is not lost between the command's start and pass_signals(). */
static void hold_signals(sigset_t *before)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, before);
}

/* The command hears what asks this process to end; a terminal sends SIGINT to both, so that one is left to it. */
static void pass_signals(const sigset_t *before)
{
	struct sigaction pass = { .sa_handler = pass_on, .sa_flags = SA_RESTART };

	sigaction(SIGTERM, &pass, NULL);
	sigaction(SIGHUP, &pass, NULL);
	signal(SIGINT, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	sigprocmask(SIG_SETMASK, before, NULL);
}

static void become(char **command, int claim_fd, const sigset_t *before)
{
	char number[16];
	int err;

	signals_as_given();
	sigprocmask(SIG_SETMASK, before, NULL);
	fcntl(claim_fd, F_SETFD, 0);
	snprintf(number, sizeof(number), "%d", claim_fd);
	setenv("PINION_CLAIM_FD", number, 1);
	execvp(command[0], command);
	err = errno;
	complain("%s: %s", command[0], strerror(err));
	_exit(err == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN);
}

/* The exit code of a shell. */
static int wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_PROBLEM;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Returns the exit code. */
static int run_claimed(const struct run *run, struct pinion_reservation *r)
{
	struct pinion_ticket ticket = { 0 };
	struct pinion_device *dev;
	sigset_t before;
	pid_t pid;
	int code, ret = pinion_reservation_device(r, &dev);

	if (!ret) {
		ret = pinion_work_begin(dev, run->want.want.bytes, &ticket);
		/* A device without a queue counts nothing. */
		ret = ret == -ENODATA ? 0 : ret;
	}
	if (ret)
		return refused(ret);
	setenv("PINION_DEVICE", pinion_device_key(dev), 1);
	hold_signals(&before);
	pid = fork();
	if (pid == 0)
		become(run->command, pinion_reservation_fd(r), &before);
	ret = errno;
	child = pid;
	pass_signals(&before);
	if (pid < 0) {
		complain_process(ret, "starting the command");
		code = EXIT_NOT_RUN;
	} else {
		code = wait_for(pid);
	}
	pinion_work_end(&ticket);
	return code;
}

int cmd_run(const struct command *cmd, int argc, char **argv)
{
	struct run run = { .want = { .want = { .size = sizeof(run.want.want) } } };
	struct pinion_pick_row *rows;
	struct pinion_reservation *r;
	struct pinion_context *ctx;
	size_t n;
	int ret;

	command_parse_with(cmd, argc, argv, NULL, parse, &run, want_children, ARGP_IN_ORDER);
	ret = pinion_open(NULL, &ctx);
	if (ret)
		return refused(ret);
	ret = want_pick(ctx, &run.want, &rows, &n, &r);
	free(rows);
	if (!ret) {
		ret = run_claimed(&run, r);
		pinion_reservation_free(r);
	}
	pinion_close(ctx);
	return ret;
}
