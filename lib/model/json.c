/* SPDX-License-Identifier: MIT */
#include "json.h"

#include "../error.h"
#include "index.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void jwalk_space(struct jwalk *j)
{
	while (j->at < j->bytes && strchr(" \t\r\n", j->text[j->at]) && j->text[j->at])
		j->at++;
}

/* Whether @c comes next, white space aside; then it is passed. */
bool jwalk_pass(struct jwalk *j, char c)
{
	jwalk_space(j);
	if (j->at == j->bytes || j->text[j->at] != c)
		return false;
	j->at++;
	return true;
}

int jwalk_expect(struct jwalk *j, const char *chars, const char *what)
{
	jwalk_space(j);
	if (j->at < j->bytes && j->text[j->at] && strchr(chars, j->text[j->at]))
		return 0;
	if (j->at == j->bytes)
		return fail(EBADMSG, "%s: the JSON ends at offset %" PRIu64 " of the file where %s is needed", j->where,
			    j->base + j->at, what);
	return fail(EBADMSG, "%s: the JSON has byte 0x%02x at offset %" PRIu64 " of the file where %s is needed",
		    j->where, (uint8_t)j->text[j->at], j->base + j->at, what);
}

int jwalk_take(struct jwalk *j, const char *chars, const char *what)
{
	int ret = jwalk_expect(j, chars, what);

	if (!ret)
		j->at++;
	return ret;
}

/*
 * The next value, which must begin with one of @chars and take no more than @most bytes of text. What it begins with
 * is looked at first: jansson makes of a list many times the memory of its text, of a string only a little more.
 */
int jwalk_value(struct jwalk *j, const char *chars, uint64_t most, const char *what, json_t **out)
{
	char shown[INDEX_SHOWN];
	json_error_t error;
	uint64_t room;
	int ret = jwalk_expect(j, chars, what);

	if (ret)
		return ret;
	room = j->bytes - j->at < most ? j->bytes - j->at : most;
	errno = 0;
	*out = json_loadb(j->text + j->at, room, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK,
			  &error);
	if (*out) {
		j->at += error.position;
		return 0;
	}
	/* Where jansson has no memory it mostly calls the text invalid; the allocator's errno tells. */
	if (errno == ENOMEM)
		return fail(ENOMEM, "%s: no memory for %s", j->where, what);
	if ((uint64_t)error.position >= room && room == most)
		return fail(EBADMSG, "%s: %s at offset %" PRIu64 " of the file takes more than %" PRIu64 " bytes",
			    j->where, what, j->base + j->at, most);
	text_shown(shown, sizeof(shown), error.text, strlen(error.text));
	return fail(EBADMSG, "%s: %s at offset %" PRIu64 " of the file is refused: %s", j->where, what,
		    j->base + j->at + error.position, shown);
}

int jwalk_object(struct jwalk *j, int (*pair)(void *arg), void *arg)
{
	int ret = jwalk_take(j, "{", "'{'");

	if (ret || jwalk_pass(j, '}'))
		return ret;
	do
		ret = pair(arg);
	while (!ret && jwalk_pass(j, ','));
	return ret ? ret : jwalk_take(j, "}", "',' or '}'");
}
