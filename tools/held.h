/* SPDX-License-Identifier: MIT */
/* held: a load of what another process holds under the name already. */
#ifndef PINION_TOOLS_HELD_H
#define PINION_TOOLS_HELD_H

#include "hold.h"

#include <pinion/context.h>

/*
 * Waits until the holder of @h's name, @pid, has loaded, and compares what it has with @h's file. 0: the same; -EEXIST it is
 * not. Else -errno: the holder went, cannot be reached, does not answer, or holds no model. @why: a sentence that says so, or
 * what differs. *@text: what there is to say of one that is the same, to be freed.
 */
int held_is_same(const struct hold *h, struct pinion_context *ctx, int pid, char *why, size_t room, char **text);

#endif
