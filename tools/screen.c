/* SPDX-License-Identifier: MIT */
#include "screen.h"

#include "ending.h"
#include "pinion.h"

#include <errno.h>
#include <pinion/context.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

int screen_open(struct screen *s)
{
	struct termios raw;
	sigset_t set;

	ending_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (s->signal_fd < 0) {
		complain("making a signalfd: %s", strerror(errno));
		return -errno;
	}
	s->paints = isatty(STDOUT_FILENO);
	s->hears = s->paints && !tcgetattr(STDIN_FILENO, &s->before);
	if (s->hears) {
		raw = s->before;
		raw.c_lflag &= ~(ICANON | ECHO);
		raw.c_cc[VMIN] = 1;
		raw.c_cc[VTIME] = 0;
		tcsetattr(STDIN_FILENO, TCSANOW, &raw);
	}
	return 0;
}

void screen_close(struct screen *s)
{
	if (s->hears)
		tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
	close(s->signal_fd);
}

/* Where the first @lines lines of @text end. */
static size_t first_lines(const char *text, unsigned int lines)
{
	const char *at = text;

	while (lines-- && *at)
		at = strchrnul(at, '\n') + (*strchrnul(at, '\n') != 0);
	return at - text;
}

void screen_paint(const struct screen *s, const char *text)
{
	struct winsize size;
	size_t bytes = strlen(text);

	if (!s->paints) {
		printf("%s\n", text);
		return;
	}
	/* One line less than there are, because the cursor stands below the last. */
	if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row > 1)
		bytes = first_lines(text, size.ws_row - 1);
	printf("\033[H\033[J%.*s", (int)bytes, text);
}

bool screen_wait(const struct screen *s, double seconds)
{
	struct pollfd p[2] = { { .fd = s->signal_fd, .events = POLLIN },
			       { .fd = s->hears ? STDIN_FILENO : -1, .events = POLLIN } };
	int64_t end = pinion_deadline_in(seconds * 1e9), left;
	char key;

	while ((left = end - pinion_deadline_in(0)) > 0) {
		if (poll(p, 2, (left + 999999) / 1000000) < 0 && errno != EINTR)
			return false;
		if (p[0].revents)
			return false;
		/* A terminal that was hung up reads as the end of the file. */
		if (p[1].revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q'))
			return false;
	}
	return true;
}
