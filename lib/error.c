/* SPDX-License-Identifier: MIT */
#include "error.h"

#include "advice.h"

#include <errno.h>
#include <pinion/context.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char sentence[SENTENCE_MAX];

PINION_API const char *pinion_error(void)
{
	return sentence;
}

/* Ends @text in what is to be done about @err, unless it says so already or there is nothing to say. */
static int leave(int err, enum pinion_advice advice, const char *text)
{
	if (advice && !advice_of_sentence(text))
		return fail_advise(err, advice, NULL, "%s", text);
	sentence_fit(sentence, sizeof(sentence), text);
	return -err;
}

int fail(int err, const char *fmt, ...)
{
	/* Through a second buffer, because an argument may be the present sentence. */
	char text[SENTENCE_DRAFT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* The other numbers mean many things, and who gives one to this function says which. */
	return leave(err, err == ENOMEM ? PINION_ADVICE_ADDRESS_SPACE : PINION_ADVICE_NONE, text);
}

int fail_errno(int err, const char *fmt, ...)
{
	char text[SENTENCE_DRAFT], what[SENTENCE_MAX - 112], whole[SENTENCE_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* The kernel's word stands, however long the rest is. */
	sentence_fit(what, sizeof(what), text);
	snprintf(whole, sizeof(whole), "%s: %s", what, strerrordesc_np(err) ? strerrordesc_np(err) : "unknown error");
	return leave(err, advice_of_errno(err), whole);
}

void sentence_get(char out[SENTENCE_MAX])
{
	memcpy(out, sentence, SENTENCE_MAX);
}

void sentence_set(const char *text)
{
	snprintf(sentence, sizeof(sentence), "%s", text);
}

static bool tail_is_zero(const void *user, size_t known, size_t given)
{
	const unsigned char *p = user;

	for (size_t i = known; i < given; i++)
		if (p[i])
			return false;
	return true;
}

/* The size a caller's struct says, checked. */
static int opts_size(const void *user, size_t own_size, const char *name, size_t *given)
{
	memcpy(given, user, sizeof(*given));
	if (*given < sizeof(size_t) || *given > 4096)
		return fail(EINVAL, "%s.size is %zu; set it to sizeof(struct %s)", name, *given, name);
	if (*given > own_size && !tail_is_zero(user, own_size, *given))
		return fail(E2BIG, "%s has %zu bytes and uses members that this library (%zu bytes) does not know", name, *given,
			    own_size);
	return 0;
}

int opts_in(void *own, size_t own_size, const void *user, const char *name)
{
	size_t given;
	int ret;

	if (!user)
		return 0;
	ret = opts_size(user, own_size, name, &given);
	if (ret)
		return ret;
	memcpy(own, user, given < own_size ? given : own_size);
	return 0;
}

int opts_out(void *user, const void *own, size_t own_size, const char *name)
{
	size_t given;
	int ret = opts_size(user, own_size, name, &given);

	if (ret)
		return ret;
	memcpy((char *)user + sizeof(size_t), (const char *)own + sizeof(size_t),
	       (given < own_size ? given : own_size) - sizeof(size_t));
	return 0;
}
