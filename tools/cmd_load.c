/* SPDX-License-Identifier: MIT */
/*
 * load: starts the process that will hold the name, and stays in front of it until the model is ready. Until then the
 * two end together: the holder is killed with the command, and the command ends with the holder's sentence.
 */
#include "ending.h"
#include "hold.h"
#include "pinion.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pinion/pinion.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

struct load {
	const char *file;
	bool foreground;
	struct hold hold;
};

enum { OPT_NAME = 'n', OPT_FOREGROUND = 'f', OPT_PAGES = 256, OPT_IO, OPT_HOLD };

static const struct argp_option options[] = {
	{ .name = "name", .key = OPT_NAME, .arg = "NAME", .doc = "The name to hold it under; required" },
	{ .name = "foreground", .key = OPT_FOREGROUND, .doc = "Do not leave a holder behind: serve until SIGTERM, SIGINT or rm" },
	{ .name = "pages", .key = OPT_PAGES, .arg = "auto|small|huge", .doc = "Pages of the buffer (auto)" },
	{ .name = "io", .key = OPT_IO, .arg = "auto|direct|buffered", .doc = "How the file is read (auto)" },
	{ .name = "hold", .key = OPT_HOLD, .arg = "auto|none|locked|registered|pinned", .doc = "How the pages are kept in RAM (auto)" },
	{ 0 },
};

static const char *const page_words[] = {
	[PINION_PAGES_AUTO] = "auto",
	[PINION_PAGES_SMALL] = "small",
	[PINION_PAGES_HUGE] = "huge",
	NULL,
};
static const char *const io_words[] = {
	[PINION_IO_AUTO] = "auto",
	[PINION_IO_BUFFERED] = "buffered",
	[PINION_IO_DIRECT] = "direct",
	NULL,
};
static const char *const hold_words[] = {
	[PINION_HOLD_AUTO] = "auto",
	[PINION_HOLD_NONE] = "none",
	[PINION_HOLD_LOCKED] = "locked",
	[PINION_HOLD_REGISTERED] = "registered",
	[PINION_HOLD_PINNED] = "pinned",
	NULL,
};

/* The place of @arg in @words; a usage error when it is none of them. */
static int choose(const struct argp_state *state, const char *option, const char *arg, const char *const *words)
{
	char all[64] = "";

	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], arg))
			return i;
		strcat(strcat(all, i ? ", " : ""), words[i]);
	}
	argp_error(state, "%s is one of %s, not '%s'", option, all, arg);
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct load *load = state->input;
	struct hold *hold = &load->hold;

	switch (key) {
	case OPT_NAME:
		hold->name = arg;
		return 0;
	case OPT_FOREGROUND:
		load->foreground = true;
		return 0;
	case OPT_PAGES:
		hold->opts.pages = choose(state, "--pages", arg, page_words);
		return 0;
	case OPT_IO:
		hold->opts.io = choose(state, "--io", arg, io_words);
		return 0;
	case OPT_HOLD:
		hold->opts.hold = choose(state, "--hold", arg, hold_words);
		return 0;
	case ARGP_KEY_END:
		command_argument(key, arg, state, "FILE", &load->file);
		if (!hold->name)
			argp_error(state, "--name NAME is missing");
		return 0;
	}
	return command_argument(key, arg, state, "FILE", &load->file);
}

/* ---- the command, while its holder loads --------------------------------------------------------------------------- */

static int reap(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 0;
	return status;
}

/* Ends the load and then this process, as the signal would have. */
static void interrupted(pid_t child, int sig)
{
	kill(child, SIGKILL);
	/* When the command is gone, so are the memory and the name. */
	reap(child);
	end_by(sig);
}

/* The holder ended without a word. */
static int died(pid_t child)
{
	int status = reap(child);

	report_clear();
	if (WIFSIGNALED(status))
		complain("the process that loaded was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		complain("the process that loaded ended with exit code %d", WEXITSTATUS(status));
	return EXIT_PROBLEM;
}

/* Shows what the holder says on @fd until it is ready, has failed or is dead. */
static int watch(const char *name, pid_t child, int fd, int signal_fd)
{
	struct pollfd p[2] = { { .fd = signal_fd, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
	struct report report = { .kind = REPORT_PROGRESS };
	struct signalfd_siginfo info;
	int code = EXIT_PROBLEM;

	while (report.kind == REPORT_PROGRESS) {
		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents && read(signal_fd, &info, sizeof(info)) == sizeof(info))
			interrupted(child, info.ssi_signo);
		if (p[1].revents && read(fd, &report, sizeof(report)) != sizeof(report))
			return died(child);
		if (p[1].revents)
			code = report_show(name, &report);
	}
	/* The name is free when a failed command is over. */
	if (report.kind == REPORT_FAILED)
		reap(child);
	return code;
}

/* Signals that end the command, blocked so that they are read where the holder can be ended with it. */
static int open_signals(sigset_t *old)
{
	sigset_t set;
	int fd;

	ending_signals(&set);
	sigprocmask(SIG_BLOCK, &set, old);
	fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (fd < 0)
		complain("making a signalfd: %s", strerror(errno));
	return fd;
}

/* In the child: becomes the holder. */
static int become_holder(struct hold *h, pid_t parent, const sigset_t *old)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have died before that call, and then nothing comes. */
	if (getppid() != parent)
		return EXIT_PROBLEM;
	setsid();
	sigprocmask(SIG_SETMASK, old, NULL);
	return hold_run(h);
}

static int load_behind(struct load *load)
{
	pid_t parent = getpid(), child;
	int pipe_fd[2], signal_fd;
	sigset_t old;

	signal_fd = open_signals(&old);
	if (signal_fd < 0)
		return EXIT_PROBLEM;
	if (pipe2(pipe_fd, O_CLOEXEC)) {
		complain("making a pipe: %s", strerror(errno));
		return EXIT_PROBLEM;
	}
	fflush(NULL);
	child = fork();
	if (child < 0) {
		complain("starting a holder process: %s", strerror(errno));
		return exit_code_of(-errno);
	}
	if (!child) {
		load->hold.report_fd = pipe_fd[1];
		return become_holder(&load->hold, parent, &old);
	}
	close(pipe_fd[1]);
	return watch(load->hold.name, child, pipe_fd[0], signal_fd);
}

int cmd_load(const struct command *cmd, int argc, char **argv)
{
	struct load load = { .hold = { .opts = { .size = sizeof(load.hold.opts) }, .report_fd = -1 } };
	char path[PATH_MAX];

	load.hold.start_ns = pinion_deadline_in(0);
	command_parse(cmd, argc, argv, options, parse, &load);
	if (!realpath(load.file, path)) {
		complain("%s: %s", load.file, access(load.file, F_OK) ? strerror(errno) : "it has no path, a regular file is needed");
		return EXIT_PROBLEM;
	}
	load.hold.path = path;
	report_show(load.hold.name, &(struct report){ .kind = REPORT_PROGRESS });
	return load.foreground ? hold_run(&load.hold) : load_behind(&load);
}
