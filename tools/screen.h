/* SPDX-License-Identifier: MIT */
/* screen: text painted again and again until the user has seen enough. */
#ifndef PINION_TOOLS_SCREEN_H
#define PINION_TOOLS_SCREEN_H

#include <stdbool.h>
#include <termios.h>

struct screen {
	bool paints;   /* stdout is a terminal */
	bool hears;    /* stdin is one, so that keys can be read from it */
	int signal_fd; /* those that ask to end; blocked from screen_open() on */
	struct termios before;
};

/* Keys are read one by one and not shown until screen_close(). Complains itself; -errno. */
int screen_open(struct screen *s);
void screen_close(struct screen *s);

/* On a terminal in place of what was there, cut to its height; else as a block with an empty line after it. */
void screen_paint(const struct screen *s, const char *text);

/* Waits @seconds; false when q was typed or a signal asks to end. */
bool screen_wait(const struct screen *s, double seconds);

#endif
