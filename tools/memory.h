/* SPDX-License-Identifier: MIT */
/* memory: the options by which alloc and load say what memory they want, and what is told of what came of it. */
#ifndef PINION_TOOLS_MEMORY_H
#define PINION_TOOLS_MEMORY_H

#include "json.h"

#include <argp.h>
#include <pinion/buffer.h>
#include <stdio.h>

struct memory {
	struct pinion_buffer_opts opts;
	const char *given; /* the last of the options that was given; NULL: none was */
};

/* For command_parse_with(); the input of the only child is a struct memory. */
extern const struct argp_child memory_children[];

/* Sets bytes, page_size, huge_bytes, pages, pages_why, node, node_bytes, hold and hold_why of @object. */
void memory_set(json_t *object, const struct memory *m, const struct pinion_buffer_info *info);

/* ", registered", or what is less, with the reason. */
void memory_print_hold(FILE *out, const struct pinion_buffer_info *info);

/* ", all on node 1", where a node was asked for. */
void memory_print_node(FILE *out, const struct memory *m, const struct pinion_buffer_info *info);

#endif
