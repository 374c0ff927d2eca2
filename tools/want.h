/* SPDX-License-Identifier: MIT */
/* want: the options by which pick and run say what is needed and where it may be. */
#ifndef PINION_TOOLS_WANT_H
#define PINION_TOOLS_WANT_H

#include <argp.h>
#include <pinion/pick.h>
#include <stdbool.h>

#define WANT_KEYS 64
#define DEVICE_AUTO "auto" /* every device that has a queue; so no device can be called that */

struct want {
	struct pinion_want want;
	bool all; /* DEVICE_AUTO was asked for by name */
	const char *key[WANT_KEYS];
};

/* For command_parse_with(); the input of the only child is a struct want. It insists that something is asked for. */
extern const struct argp_child want_children[];

#endif
