/* SPDX-License-Identifier: MIT */
#include "behind.h"

#include "ending.h"
#include "pinion.h"
#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static int reap(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 0;
	return status;
}

/* Ends the holder and then this process, as the signal would have. */
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
		complain("the holder process was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		complain("the holder process ended with exit code %d", WEXITSTATUS(status));
	return EXIT_PROBLEM;
}

/* Shows what the holder says on @fd until it is ready, has failed or is dead. */
static int watch(const char *name, pid_t child, int fd, int signal_fd)
{
	struct pollfd p[2] = { { .fd = signal_fd, .events = POLLIN }, { .fd = fd, .events = POLLIN } };
	struct report report = { .kind = REPORT_PROGRESS };
	struct signalfd_siginfo info;
	int code = EXIT_PROBLEM;

	while (report.kind == REPORT_PROGRESS || report.kind == REPORT_PART) {
		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents && read(signal_fd, &info, sizeof(info)) == sizeof(info))
			interrupted(child, info.ssi_signo);
		if (p[1].revents && read(fd, &report, sizeof(report)) != sizeof(report))
			return died(child);
		if (p[1].revents)
			code = report_show(name, &report);
	}
	/* The name is free when a failed command is over. And who keeps nothing is not killed by our end while it tidies up. */
	if (report.kind == REPORT_FAILED || report.kind == REPORT_HELD)
		reap(child);
	return code;
}

/* In the child. */
static int stay(pid_t parent, const sigset_t *old, int (*keep)(void *arg), void *arg)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have died before that call, and then nothing comes. */
	if (getppid() != parent)
		return EXIT_PROBLEM;
	setsid();
	sigprocmask(SIG_SETMASK, old, NULL);
	return keep(arg);
}

/* Returns the exit code. */
static int not_started(const char *what)
{
	int err = errno;

	complain_process(err, what);
	return exit_code_of(-err);
}

int behind_run(struct hold *h, int (*keep)(void *arg), void *arg)
{
	pid_t parent = getpid(), child;
	int pipe_fd[2], signal_fd;
	sigset_t old;

	signal_fd = ending_fd(&old);
	if (signal_fd < 0)
		return EXIT_PROBLEM;
	if (pipe2(pipe_fd, O_CLOEXEC))
		return not_started("making a pipe");
	fflush(NULL);
	child = fork();
	if (child < 0)
		return not_started("starting a holder process");
	if (!child) {
		h->report_fd = pipe_fd[1];
		exit(stay(parent, &old, keep, arg));
	}
	close(pipe_fd[1]);
	return watch(h->name, child, pipe_fd[0], signal_fd);
}
