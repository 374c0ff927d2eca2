/* SPDX-License-Identifier: MIT */
/* screen: text shown again and again until the user has seen enough: on a terminal by ncurses, elsewhere block by block. */
#ifndef PINION_TOOLS_SCREEN_H
#define PINION_TOOLS_SCREEN_H

#include <stdbool.h>

struct screen {
	bool paints;		  /* stdout is a terminal that ncurses knows */
	bool hears;		  /* stdin is one too, so that keys are read from it */
	int signal_fd;		  /* those that ask to end; blocked from screen_open() on */
	void *term;		  /* SCREEN of ncurses */
	unsigned int down, right; /* how far the text was moved */
	unsigned int lines;	  /* of the text that was painted last */
};

/* Keys are read one by one and not shown until screen_close(). Complains itself; -errno. */
int screen_open(struct screen *s);
void screen_close(struct screen *s);

/* On a terminal @head in the first line, the first of @text below it, the rest as far as it was moved, @foot in the last line;
 * else @text alone. */
void screen_paint(struct screen *s, const char *head, const char *text, const char *foot);

enum screen_event {
	SCREEN_END = -1,  /* a signal asks to end, or the terminal is gone */
	SCREEN_TIME = 0,  /* it is time */
	SCREEN_MOVED = 1, /* the text was moved, or the terminal has another size: paint again */
};

/* Waits @seconds at most. A character that was typed and does not move the text, or one of the above. */
int screen_wait(struct screen *s, double seconds);

#endif
