/* SPDX-License-Identifier: MIT */
/* names: how ls and show put what is known of a name into words. */
#ifndef PINION_TOOLS_NAMES_H
#define PINION_TOOLS_NAMES_H

#include "format.h"
#include "json.h"

#include <pinion/holder.h>

/* Makes the text in @info, which came from another process, safe to print. */
void name_clean(struct pinion_name_info *info);

/* "ready", "loading 45 %" */
struct text name_state(const struct pinion_name_info *info);

/* "4 KiB", "2 MiB", "2 MiB 50 %" where the kernel gave huge pages to a part only */
struct text name_pages(const struct pinion_name_info *info);

/* "registered", "locked by 2 of 3": where pages are only locked, each process locks its own mapping */
struct text name_hold(const struct pinion_name_info *info);

/* What is known of it as an object, its text as it came. */
json_t *name_object(const struct pinion_name_info *info);

#endif
