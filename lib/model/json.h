/* SPDX-License-Identifier: MIT */
/*
 * json: struct jwalk walks a hostile JSON text and hands its values to jansson one at a time, so that what it makes of them stays as
 * small as one value, however long the text is.
 */
#ifndef PINION_LIB_JSON_H
#define PINION_LIB_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct jwalk {
	char *text; /* not terminated */
	uint64_t bytes;
	uint64_t at;
	uint64_t base;	 /* where the text begins in its file */
	char where[128]; /* what is being read, begins a sentence */
};

void jwalk_space(struct jwalk *j);

/* Whether @c comes next, white space aside; then it is passed. */
bool jwalk_pass(struct jwalk *j, char c);

/* Whether one of @chars comes next; jwalk_take() passes it. -EBADMSG with the sentence: @what is needed there. */
int jwalk_expect(struct jwalk *j, const char *chars, const char *what);
int jwalk_take(struct jwalk *j, const char *chars, const char *what);

/*
 * The next value, which must begin with one of @chars and take no more than @most bytes of text. -EBADMSG, -ENOMEM.
 * *@out is the caller's (json_decref()).
 */
int jwalk_value(struct jwalk *j, const char *chars, uint64_t most, const char *what, json_t **out);

/* The pairs of an object, by @pair, up to and with its '}'. */
int jwalk_object(struct jwalk *j, int (*pair)(void *arg), void *arg);

#endif
