/* SPDX-License-Identifier: MIT */
/* want: the options by which pick and run say what is needed and where it may be. */
#ifndef PINION_TOOLS_WANT_H
#define PINION_TOOLS_WANT_H

#include <argp.h>
#include <pinion/pick.h>

#define WANT_KEYS 64

struct want {
	struct pinion_want want;
	const char *key[WANT_KEYS];
};

/* For command_parse_with(); the input of the only child is a struct want. It insists that something is asked for. */
extern const struct argp_child want_children[];

#endif
