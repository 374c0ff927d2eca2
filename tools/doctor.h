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
	const char *what; /* static */
	char text[640];
};

struct doctor {
	uint64_t need; /* bytes to be held, 0: not said */
	struct doctor_line line[24];
	size_t lines;
};

/* Adds a line: a sentence, with the line to type where something can be done. */
void doctor_say(struct doctor *d, enum finding finding, const char *what, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The kernel module: its state, its limits, whether a module may be loaded at all (doctor_module.c). */
void doctor_module(struct doctor *d);

/* Limits, memory, io_uring, huge pages, folders (doctor_system.c). @ctx may be NULL. */
void doctor_system(struct doctor *d, struct pinion_context *ctx);

/* The file's first line without its end; false: it cannot be read. */
bool doctor_read(const char *path, char *text, size_t room);

#endif
