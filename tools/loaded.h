/* SPDX-License-Identifier: MIT */
/* loaded: what load says of a model that is there: a line, or with --json an object. */
#ifndef PINION_TOOLS_LOADED_H
#define PINION_TOOLS_LOADED_H

#include "hold.h"

#include <pinion/context.h>

/*
 * Of a model that this process has loaded, before it is published: then its mapping goes, and huge pages show in that. *@text
 * is to be freed. 0 or -errno.
 */
int loaded_here(const struct hold *h, const struct pinion_model *m, char **text);

/* Of one that another process holds under the name: the object. *@text is to be freed. 0 or -errno. */
int loaded_elsewhere(const struct hold *h, struct pinion_context *ctx, const struct pinion_model *m, char **text);

#endif
