/* SPDX-License-Identifier: MIT */
/* advice: how the library ends a sentence with the line to type. The table is public, <pinion/advice.h>. */
#ifndef PINION_LIB_ADVICE_H
#define PINION_LIB_ADVICE_H

#include <pinion/advice.h>
#include <stddef.h>

/*
 * fail() whose sentence ends in the advice: "SENTENCE; LINE [id]". @value takes the place of the line's first word in braces,
 * NULL: the line has none, or it is said as it is. The sentence before it says what was refused, the limit, and the need.
 */
int fail_advise(int err, enum pinion_advice advice, const char *value, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* However long the line to type is, so much of a sentence stands before it. */
#define SENTENCE_LEAST 160

/*
 * Copies the sentence @text into @out of @room bytes. One that is too long is cut before its advice, which is kept whole, or at
 * its end where it has none or @room is less than that; where it was cut there is "...".
 */
void sentence_fit(char *out, size_t room, const char *text);

/* -@err and the sentence of a thread that could not be started. */
int fail_thread(int err, const char *what);

/* The advice whose id in brackets ends @sentence. */
enum pinion_advice advice_of_sentence(const char *sentence);

/* What to say of an error number that means the same wherever the kernel gives it; NONE of all others. */
enum pinion_advice advice_of_errno(int err);

#endif
