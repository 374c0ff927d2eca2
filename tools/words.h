/* SPDX-License-Identifier: MIT */
/* words: option arguments that are one of a few words. */
#ifndef PINION_TOOLS_WORDS_H
#define PINION_TOOLS_WORDS_H

#include <argp.h>
#include <pinion/buffer.h>

/* By enum pinion_pages, by enum pinion_hold; a NULL ends each. */
extern const char *const page_words[];
extern const char *const hold_words[];

/* The place of @arg in @words; a usage error of @option when it is none of them. */
int word_parse(const struct argp_state *state, const char *option, const char *arg, const char *const *words);

#endif
