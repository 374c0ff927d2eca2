/* SPDX-License-Identifier: MIT */
/* doctor: what `pinion doctor` looks at, and what it has to say of it. */
#ifndef PINION_TOOLS_DOCTOR_H
#define PINION_TOOLS_DOCTOR_H

#include <pinion/pinion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum finding {
	FINDING_OK,
	FINDING_WARN,	 /* works, with less than there could be */
	FINDING_FAIL,	 /* does not work */
	FINDING_NO_ROOM, /* does not fit; shown as FAIL */
};

struct doctor_line {
	enum finding finding;
	const char *what; /* static; pinion(1) lists them */
	enum pinion_advice advice;
	char text[512];
	char fix[320]; /* what to type, "" when there is nothing to do */
};

/* Nodes and control groups have a line each; more than this are not shown. */
#define DOCTOR_LINES 128

struct doctor {
	uint64_t need; /* bytes to be held, 0: not said */
	struct doctor_line line[DOCTOR_LINES];
	size_t lines;
};

/* Adds a line: what was found. */
void doctor_say(struct doctor *d, enum finding finding, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The same with what to type; @value takes the place of the first word in braces of the advice, see pinion_advice_line(). */
void doctor_advise(struct doctor *d, enum finding finding, const char *what, enum pinion_advice advice, const char *value,
		   const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* The library's last sentence and its advice. */
void doctor_say_error(struct doctor *d, enum finding finding, const char *what);

/* The kernel module: its state, its limits, whether a module may be loaded at all (doctor_module.c). */
void doctor_module(struct doctor *d);

/* Memory, the control groups, RLIMIT_MEMLOCK, huge pages, nodes (doctor_memory.c). @ctx may be NULL. */
void doctor_memory(struct doctor *d, struct pinion_context *ctx);

/* io_uring, each part of it tried (doctor_uring.c). @engine: what streams run on here, NULL: not known; @why not on io_uring. */
void doctor_uring(struct doctor *d, const char *engine, const char *why);

/* Folders, other drivers' devices, limits of a process, containers (doctor_place.c). @dir: the runtime directory or NULL. */
void doctor_place(struct doctor *d, const char *dir);

/* The file's first line without its end; false: it cannot be read. */
bool doctor_read(const char *path, char *text, size_t room);

/* The value of "@key:" in /proc/PID/status or a file like it, a copy with blanks cut; false: it has none. */
bool doctor_field(const char *path, const char *key, char *value, size_t room);

/* The word in brackets of a file that lists its choices, as in sysfs; "" when it cannot be read. */
void doctor_choice(const char *path, char *choice, size_t room);

/* A seccomp filter binds this process. */
bool doctor_is_filtered(void);

#endif
