/* SPDX-License-Identifier: MIT */
/*
 * setting: a value of /proc or /sys that a test needs, as root. Another process waits for the test to end, in whatever way, and
 * puts back what was there; nobody else sets one meanwhile.
 */
#ifndef PINION_TEST_SETTING_H
#define PINION_TEST_SETTING_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTING_LOCK "/sys" /* a folder that every program finds; nothing is left in it */

struct setting {
	pid_t keeper;
	int alive; /* the keeper's sign that this process lives */
	int lock;
};

static inline bool setting_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

static inline bool setting_read(const char *path, char *text, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, room - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	text[strcspn(text, "\n")] = 0;
	return n > 0;
}

/* What a list of choices has chosen, "a [b] c", or the whole. */
static inline void setting_chosen(char *text)
{
	char *open_at = strchr(text, '['), *close_at = open_at ? strchr(open_at, ']') : NULL;

	if (!close_at)
		return;
	*close_at = 0;
	memmove(text, open_at + 1, strlen(open_at + 1) + 1);
}

/* In a session of its own, so that whoever ends the test's process group does not end it. */
static inline void setting_keep(int alive, const char *path, const char *before)
{
	char c, text[256];
	sigset_t all;

	setsid();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	while (read(alive, &c, 1) < 0 && errno == EINTR)
		;
	setting_write(path, before);
	/* A pool of pages reaches the size that was written when those in use are back. */
	for (int i = 0; i < 500 && setting_read(path, text, sizeof(text)); i++) {
		setting_chosen(text);
		if (!strcmp(text, before))
			break;
		usleep(10000);
	}
	_exit(0);
}

static inline void setting_end(struct setting *s)
{
	if (s->alive >= 0)
		close(s->alive);
	if (s->keeper > 0)
		waitpid(s->keeper, NULL, 0);
	if (s->lock >= 0)
		close(s->lock);
	*s = (struct setting){ .alive = -1, .lock = -1 };
}

/* False: it cannot be set here, and is as it was. */
static inline bool setting_begin(struct setting *s, const char *path, const char *value)
{
	char before[256];
	int pipe_fds[2];

	*s = (struct setting){ .alive = -1, .lock = -1 };
	s->lock = open(SETTING_LOCK, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->lock < 0 || flock(s->lock, LOCK_EX) || !setting_read(path, before, sizeof(before)) || pipe2(pipe_fds, O_CLOEXEC)) {
		setting_end(s);
		return false;
	}
	setting_chosen(before);
	s->keeper = fork();
	if (!s->keeper) {
		close(pipe_fds[1]);
		setting_keep(pipe_fds[0], path, before);
	}
	close(pipe_fds[0]);
	s->alive = pipe_fds[1];
	if (s->keeper < 0 || !setting_write(path, value)) {
		setting_end(s);
		return false;
	}
	return true;
}

#endif
