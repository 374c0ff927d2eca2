/* SPDX-License-Identifier: MIT */
#include "member.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SILENCE_MS 60000

/* The flag is dropped here and not before the fork: others that are started must not hold the claim as well. */
static void become(char *const argv[], int in, int out, int fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || fcntl(fd, F_SETFD, 0))
		_exit(127);
	execv(argv[0], argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

int member_start(struct member *m, char *const argv[], int fd)
{
	int to[2], from[2], err;

	if (pipe2(to, O_CLOEXEC))
		return -errno;
	if (pipe2(from, O_CLOEXEC)) {
		err = errno;
		goto err_to;
	}
	m->pid = fork();
	if (m->pid < 0) {
		err = errno;
		m->pid = 0;
		goto err_from;
	}
	if (!m->pid)
		become(argv, to[0], from[1], fd);
	close(to[0]);
	close(from[1]);
	m->to = to[1];
	m->from = from[0];
	m->line_bytes = 0;
	return 0;

err_from:
	close(from[0]);
	close(from[1]);
err_to:
	close(to[0]);
	close(to[1]);
	return -err;
}

void member_say(struct member *m, char letter)
{
	/* One that died is noticed when it is heard. */
	if (write(m->to, &letter, 1) != 1)
		return;
}

/* More of the line into m->line; false when there is no more or not in time. */
static bool hear_more(struct member *m, const volatile int *interrupted)
{
	struct pollfd p = { .fd = m->from, .events = POLLIN };
	ssize_t n;
	int ready;

	do
		ready = poll(&p, 1, SILENCE_MS);
	while (ready < 0 && errno == EINTR && !*interrupted);
	if (*interrupted)
		return false;
	if (!ready) {
		fprintf(stderr, "%s says nothing for %d s\n", m->name, SILENCE_MS / 1000);
		return false;
	}
	n = read(m->from, m->line + m->line_bytes, sizeof(m->line) - 1 - m->line_bytes);
	if (n <= 0) {
		fprintf(stderr, "%s ended early\n", m->name);
		return false;
	}
	m->line_bytes += n;
	return true;
}

const char *member_hear(struct member *m, const char *word, const volatile int *interrupted)
{
	size_t len = strlen(word);
	char *end;

	/* It says one line and then waits or works without a word, so that what is in m->line is one line. */
	m->line_bytes = 0;
	do {
		if (!hear_more(m, interrupted))
			return NULL;
		m->line[m->line_bytes] = 0;
		end = strchr(m->line, '\n');
	} while (!end);
	*end = 0;
	if (strncmp(m->line, word, len)) {
		fprintf(stderr, "%s says '%s', not '%s'\n", m->name, m->line, word);
		return NULL;
	}
	return m->line + len;
}

int member_end(struct member *m, int sig)
{
	int status = 0;

	if (!m->pid)
		return 0;
	if (sig)
		kill(m->pid, sig);
	while (waitpid(m->pid, &status, 0) < 0 && errno == EINTR)
		;
	m->pid = 0;
	close(m->to);
	close(m->from);
	m->to = m->from = -1;
	return status;
}
