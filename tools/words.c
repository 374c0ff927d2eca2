/* SPDX-License-Identifier: MIT */
#include "words.h"

#include "pinion.h"

#include <stdio.h>
#include <string.h>

const char *const page_words[] = {
	[PINION_PAGES_AUTO] = "auto",
	[PINION_PAGES_SMALL] = "small",
	[PINION_PAGES_HUGE] = "huge",
	[PINION_PAGES_THP] = "thp",
	[PINION_PAGES_2M] = "2m",
	[PINION_PAGES_1G] = "1g",
	NULL,
};

const char *const hold_words[] = {
	[PINION_HOLD_AUTO] = "auto",	 [PINION_HOLD_NONE] = "none",
	[PINION_HOLD_LOCKED] = "locked", [PINION_HOLD_REGISTERED] = "registered",
	[PINION_HOLD_PINNED] = "pinned", NULL,
};

int word_parse(const struct argp_state *state, const char *option, const char *arg, const char *const *words)
{
	char all[128] = "";

	for (int i = 0; words[i]; i++) {
		if (!strcmp(words[i], arg))
			return i;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s", i ? ", " : "", words[i]);
	}
	usage_error(state, "%s is one of %s, not '%s'", option, all, arg);
	return 0;
}
