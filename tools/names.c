/* SPDX-License-Identifier: MIT */
#include "names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void name_clean(struct pinion_name_info *info)
{
	text_clean(info->name);
	text_clean(info->path);
	text_clean(info->state);
	text_clean(info->hold);
	text_clean(info->hold_why);
	text_clean(info->format);
}

struct text name_state(const struct pinion_name_info *info)
{
	struct text t;

	if (strcmp(info->state, "loading"))
		snprintf(t.s, sizeof(t.s), "%s", info->state);
	else
		snprintf(t.s, sizeof(t.s), "loading %u %%", info->total ? percent(info->done, info->total) : 0);
	return t;
}

struct text name_pages(const struct pinion_name_info *info)
{
	struct text t = size_text(info->page_size);

	if (!info->page_size)
		return (struct text){ "-" };
	/* Asked for in huge pages: the kernel may have found only some. */
	if (info->page_size > sysconf(_SC_PAGESIZE) && info->huge_bytes < info->bytes)
		snprintf(t.s, sizeof(t.s), "%.20s %u %%", size_text(info->page_size).s, percent(info->huge_bytes, info->bytes));
	/* The module rounds to small pages and takes huge ones as far as there are. */
	else if (info->huge_bytes)
		snprintf(t.s, sizeof(t.s), "huge %u %%", percent(info->huge_bytes, info->bytes));
	return t;
}

struct text name_hold(const struct pinion_name_info *info)
{
	struct text t;

	if (!*info->hold)
		return (struct text){ "-" };
	if (!strcmp(info->hold, "locked") && info->attached)
		snprintf(t.s, sizeof(t.s), "locked by %" PRIu32 " of %" PRIu32, info->locked, info->attached);
	else
		snprintf(t.s, sizeof(t.s), "%.15s", info->hold);
	return t;
}

json_t *name_object(const struct pinion_name_info *info)
{
	json_t *object = json_new_object();

	json_set_text(object, "name", info->name);
	json_set_text(object, "state", info->state);
	json_set_number(object, "bytes", info->bytes);
	json_set_number(object, "tensors", info->tensors);
	json_set_number(object, "page_size", info->page_size);
	json_set_number(object, "huge_bytes", info->huge_bytes);
	json_set_text(object, "hold", info->hold);
	json_set_text(object, "hold_why", info->hold_why);
	json_set_number(object, "attached", info->attached);
	json_set_number(object, "locked", info->locked);
	json_set(object, "pid", json_integer(info->pid));
	json_set_number(object, "age_seconds", info->age_ns / 1000000000);
	json_set_text(object, "path", info->path);
	json_set_text(object, "format", info->format);
	json_set_number(object, "done", info->done);
	json_set_number(object, "total", info->total);
	return object;
}
