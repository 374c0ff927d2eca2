/* SPDX-License-Identifier: MIT */
#include "memory.h"

#include "format.h"
#include "pinion.h"
#include "words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WISH ",prefer"

enum { OPT_PAGES = 512, OPT_NUMA, OPT_HOLD };

static const struct argp_option options[] = {
	{ .name = "pages",
	  .key = OPT_PAGES,
	  .arg = "auto|small|huge|thp|2m|1g[" WISH "]",
	  .doc = "Pages of the buffer (auto); prefer: the next best will do" },
	{ .name = "numa",
	  .key = OPT_NUMA,
	  .arg = "NODE[" WISH "]",
	  .doc = "All of the buffer on this NUMA node; prefer: as much as it has" },
	{ .name = "hold",
	  .key = OPT_HOLD,
	  .arg = "auto|none|locked|registered|pinned",
	  .doc = "How the pages are kept in RAM (auto)" },
	{ 0 },
};

/* @arg without ",prefer" at its end, to be freed; whether it had that. */
static char *take_wish(const char *arg, bool *wish)
{
	size_t len = strlen(arg), tail = strlen(WISH);
	char *word;

	*wish = len >= tail && !strcmp(arg + len - tail, WISH);
	word = strndup(arg, *wish ? len - tail : len);
	if (!word)
		no_memory();
	return word;
}

static void parse_pages(struct memory *m, const char *arg, const struct argp_state *state)
{
	char *word = take_wish(arg, &m->opts.prefer_pages);

	m->opts.pages = word_parse(state, "--pages", word, page_words);
	free(word);
}

static void parse_node(struct memory *m, const char *arg, const struct argp_state *state)
{
	bool wish;
	char *word = take_wish(arg, &wish);

	if (count_parse(word, &m->opts.node))
		usage_error(state, "--numa is the number of a node, or with " WISH " behind it, not '%s'", arg);
	m->opts.numa = wish ? PINION_NUMA_PREFERRED : PINION_NUMA_STRICT;
	free(word);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct memory *m = state->input;

	switch (key) {
	case OPT_PAGES:
		m->given = "--pages";
		parse_pages(m, arg, state);
		return 0;
	case OPT_NUMA:
		m->given = "--numa";
		parse_node(m, arg, state);
		return 0;
	case OPT_HOLD:
		m->given = "--hold";
		m->opts.hold = word_parse(state, "--hold", arg, hold_words);
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp argp = { .options = options, .parser = parse };

const struct argp_child memory_children[] = {
	{ .argp = &argp },
	{ 0 },
};

/* The word that ls has for it. */
static const char *hold_name(const struct pinion_buffer_info *info)
{
	return info->hold == PINION_HOLD_NONE ? "unlocked" : hold_words[info->hold];
}

void memory_set(json_t *object, const struct memory *m, const struct pinion_buffer_info *info)
{
	json_set_number(object, "bytes", info->bytes);
	json_set_number(object, "page_size", info->page_size);
	json_set_number(object, "huge_bytes", info->huge_bytes);
	json_set(object, "pages", info->pages == PINION_PAGES_AUTO ? json_null() : json_string(page_words[info->pages]));
	json_set_text(object, "pages_why", info->pages_why);
	json_set(object, "node", m->opts.numa ? json_integer(m->opts.node) : json_null());
	json_set_number(object, "node_bytes", info->node_bytes);
	json_set_text(object, "hold", hold_name(info));
	json_set_text(object, "hold_why", info->hold_why);
}

void memory_print_hold(FILE *out, const struct pinion_buffer_info *info)
{
	fprintf(out, ", %s", hold_name(info));
	if (info->hold != PINION_HOLD_REGISTERED && info->hold != PINION_HOLD_PINNED)
		fprintf(out, " (%s)", info->hold_why);
}

void memory_print_node(FILE *out, const struct memory *m, const struct pinion_buffer_info *info)
{
	if (!m->opts.numa)
		return;
	fprintf(out, ", %s on node %" PRIu32, info->node_bytes == info->bytes ? "all" : size_text(info->node_bytes).s,
		m->opts.node);
}
