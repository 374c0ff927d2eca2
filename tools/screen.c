/* SPDX-License-Identifier: MIT */
#include "screen.h"

#include "ending.h"

#include <errno.h>
#include <locale.h>
#include <ncurses.h>
#include <pinion/context.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

/* Wider than any line of a table. */
#define PAD_COLUMNS 512
#define STEP_RIGHT  8

int screen_open(struct screen *s)
{
	*s = (struct screen){ .signal_fd = ending_fd(NULL) };
	if (s->signal_fd < 0)
		return s->signal_fd;
	if (!isatty(STDOUT_FILENO))
		return 0;
	/* What characters there are; not how numbers are written. */
	setlocale(LC_CTYPE, "");
	s->term = newterm(NULL, stdout, stdin);
	if (!s->term)
		return 0;
	s->paints = true;
	s->hears = isatty(STDIN_FILENO);
	cbreak();
	noecho();
	curs_set(0);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	/* The first look at the keyboard would paint an empty screen. */
	refresh();
	return 0;
}

void screen_close(struct screen *s)
{
	if (s->paints) {
		endwin();
		delscreen(s->term);
	}
	close(s->signal_fd);
}

static unsigned int count_lines(const char *text)
{
	unsigned int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* As many as the head, the table's heading and the foot leave. */
static unsigned int body_lines(void)
{
	return LINES > 3 ? LINES - 3 : 0;
}

static void keep_in_sight(struct screen *s)
{
	unsigned int body = s->lines ? s->lines - 1 : 0;
	unsigned int most = body > body_lines() ? body - body_lines() : 0;

	s->down = s->down < most ? s->down : most;
	s->right = s->right + STEP_RIGHT < PAD_COLUMNS ? s->right : 0;
}

static void paint_body(const struct screen *s, const char *text)
{
	WINDOW *pad = newpad((int)s->lines + 2, PAD_COLUMNS);

	if (!pad)
		return;
	waddstr(pad, text);
	/* The heading of the table stays where it is. */
	mvwchgat(pad, 0, 0, -1, A_BOLD, 0, NULL);
	if (LINES > 2)
		pnoutrefresh(pad, 0, (int)s->right, 1, 0, 1, COLS - 1);
	if (body_lines())
		pnoutrefresh(pad, (int)s->down + 1, (int)s->right, 2, 0, (int)body_lines() + 1, COLS - 1);
	doupdate();
	delwin(pad);
}

void screen_paint(struct screen *s, const char *head, const char *text, const char *foot)
{
	if (!s->paints) {
		printf("%s\n", text);
		return;
	}
	s->lines = count_lines(text);
	keep_in_sight(s);
	erase();
	mvaddnstr(0, 0, head, COLS);
	if (LINES > 1) {
		mvaddnstr(LINES - 1, 0, foot, COLS - 1);
		mvchgat(LINES - 1, 0, -1, A_REVERSE, 0, NULL);
	}
	wnoutrefresh(stdscr);
	paint_body(s, text);
}

static bool move_by(struct screen *s, int key)
{
	unsigned int page = body_lines();

	switch (key) {
	case KEY_DOWN:
	case 'j':
		s->down++;
		return true;
	case KEY_UP:
	case 'k':
		s->down -= s->down > 0;
		return true;
	case KEY_NPAGE:
	case ' ':
		s->down += page;
		return true;
	case KEY_PPAGE:
		s->down -= s->down < page ? s->down : page;
		return true;
	case KEY_HOME:
		s->down = s->right = 0;
		return true;
	case KEY_END:
		s->down = s->lines;
		return true;
	case KEY_RIGHT:
		s->right += STEP_RIGHT;
		return true;
	case KEY_LEFT:
		s->right -= s->right < STEP_RIGHT ? s->right : STEP_RIGHT;
		return true;
	case KEY_RESIZE:
		return true;
	case 'L' & 0x1f:
		/* Somebody else has written on the terminal. */
		clearok(curscr, TRUE);
		return true;
	}
	return false;
}

/* A key that was typed: SCREEN_TIME none was, SCREEN_MOVED it moved the text, or itself. */
static int hear(struct screen *s)
{
	int key = s->paints ? getch() : ERR;

	if (key == ERR)
		return SCREEN_TIME;
	return move_by(s, key) ? SCREEN_MOVED : key;
}

int screen_wait(struct screen *s, double seconds)
{
	struct pollfd p[2] = { { .fd = s->signal_fd, .events = POLLIN },
			       { .fd = s->hears ? STDIN_FILENO : -1, .events = POLLIN } };
	int64_t end = pinion_deadline_in(seconds * 1e9), left;
	int event = hear(s);

	/* The size of the terminal comes as a signal, and then as a key. */
	while (!event && (left = end - pinion_deadline_in(0)) > 0) {
		int n = poll(p, 2, (left + 999999) / 1000000);

		if ((n < 0 && errno != EINTR) || (n > 0 && p[0].revents))
			return SCREEN_END;
		event = hear(s);
		/* A terminal that was hung up has something to read, and nothing comes. */
		if (n > 0 && p[1].revents && !event)
			return SCREEN_END;
	}
	return event;
}
