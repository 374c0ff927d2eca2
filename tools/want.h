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

/* What became of the devices of a pick; at most so many are told of. */
#define WANT_ROWS 1024

/*
 * Picks. *@rows: what became of each device, @n of them, to be freed. Says of a device that was asked for and is not there that
 * it was passed over. Complains itself; the exit code.
 */
int want_pick(struct pinion_context *ctx, const struct want *w, struct pinion_pick_row **rows, size_t *n,
	      struct pinion_reservation **out);

/* For command_parse_with(); the input of the only child is a struct want. It insists that something is asked for. */
extern const struct argp_child want_children[];

#endif
