/* SPDX-License-Identifier: MIT */
/* error: the sentence a failure leaves for its thread, and the checks of size-first option structs. */
#ifndef PINION_LIB_ERROR_H
#define PINION_LIB_ERROR_H

#include <stddef.h>

#define PINION_API __attribute__((visibility("default")))

/*
 * Records the sentence for this thread and returns -@err, so that a failing path is one line. A limit that was met is told with
 * fail_advise() (advice.h), which adds the line to type; -ENOMEM gets one here unless the sentence has it.
 */
int fail(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same with ": " and the text of @err added, and the line to type where the number alone says what is short. */
int fail_errno(int err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Room for one sentence that travels from one thread to another, and for one that is still to be cut to that. */
#define SENTENCE_MAX 512
#define SENTENCE_DRAFT (3 * SENTENCE_MAX)
void sentence_get(char out[SENTENCE_MAX]);
void sentence_set(const char *text);

/*
 * Copies the caller's size-first struct @user (may be NULL) into @own of @own_size bytes, whose first member is size_t
 * size and which the caller of this has filled with defaults. -E2BIG, -EINVAL.
 */
int opts_in(void *own, size_t own_size, const void *user, const char *name);

/* Copies @own out into the caller's size-first struct, as much as it has room for. -E2BIG, -EINVAL. */
int opts_out(void *user, const void *own, size_t own_size, const char *name);

#endif
