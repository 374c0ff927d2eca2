/* SPDX-License-Identifier: MIT */
/* report: what the process that loads tells the command that started it, over a pipe or in person. */
#ifndef PINION_TOOLS_REPORT_H
#define PINION_TOOLS_REPORT_H

#include <limits.h>
#include <stdint.h>

enum report_kind {
	REPORT_PROGRESS, /* done of total; done 0: making the buffer */
	REPORT_PART,	 /* text is a part of the result, which goes on in the next report */
	REPORT_READY,	 /* text is the result, or the end of it */
	REPORT_HELD,	 /* the same of one that another holds already: who says so keeps nothing, and ends */
	REPORT_FAILED,	 /* text is the sentence, err the errno */
};

struct report {
	uint32_t kind;
	int32_t err;
	uint64_t done;
	uint64_t total;
	char text[1024];
};

/* Smaller than what a pipe takes in one piece, so a reader gets whole ones. */
_Static_assert(sizeof(struct report) <= PIPE_BUF, "a report must travel in one piece");

/* Writes to the pipe. A progress report is dropped when the pipe is full. 0; -EPIPE the command is gone; -errno. */
int report_send(int fd, const struct report *report);

/* Writes the result to the pipe, in as many reports as it takes; @kind: of the last, READY or HELD. */
int report_result(int fd, enum report_kind kind, const char *text);

/* Shows a report to the user of the command; returns the exit code of READY, HELD and FAILED. */
int report_show(const char *name, const struct report *report);

/* Takes a progress line off the terminal. */
void report_clear(void);

#endif
