/* SPDX-License-Identifier: MIT */
/*
 * safetensors: eight bytes of length, then a JSON object with one entry per tensor. The object is walked here and its
 * entries are handed to jansson one at a time, so that what a hostile header makes of it stays as small as one entry.
 */
#include "../error.h"
#include "index.h"
#include "json.h"
#include "reader.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <pinion/context.h>
#include <pinion/type.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX 100000000u /* the bound of the format's own library */
#define LENGTH_BYTES 8u
#define NAME_TEXT_MAX 8192u   /* a name as JSON: six characters for each byte and the quotes fit */
#define ENTRY_TEXT_MAX 16384u /* an entry as JSON: some 400 are enough, the rest is for white space */
#define METADATA_MAX 65536u   /* keys in __metadata__, which are remembered to see one that comes twice */

static const struct dtype {
	const char *name;
	uint32_t type;
} dtypes[] = {
	{"F64", PINION_TYPE_F64},	  {"F32", PINION_TYPE_F32},	    {"F16", PINION_TYPE_F16},
	{"BF16", PINION_TYPE_BF16},	  {"I64", PINION_TYPE_I64},	    {"I32", PINION_TYPE_I32},
	{"I16", PINION_TYPE_I16},	  {"I8", PINION_TYPE_I8},	    {"U8", PINION_TYPE_U8},
	{"U16", PINION_TYPE_U16},	  {"U32", PINION_TYPE_U32},	    {"U64", PINION_TYPE_U64},
	{"BOOL", PINION_TYPE_BOOL},	  {"F8_E4M3", PINION_TYPE_F8_E4M3}, {"F8_E5M2", PINION_TYPE_F8_E5M2},
	{"F8_E8M0", PINION_TYPE_F8_E8M0},
};

struct header {
	struct jwalk j;
	json_t *seen; /* the keys of __metadata__ */
	struct index_builder *b;
};

static int get_dtype(const struct header *h, const json_t *value, struct index_tensor *t)
{
	char shown[INDEX_SHOWN];

	if (!json_is_string(value))
		return fail(EBADMSG, "%s: its dtype must be a string", h->j.where);
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
		if (!strcmp(json_string_value(value), dtypes[i].name)) {
			t->type = dtypes[i].type;
			return 0;
		}
	}
	text_shown(shown, sizeof(shown), json_string_value(value), json_string_length(value));
	return fail(EBADMSG, "%s: dtype '%s' is not known", h->j.where, shown);
}

static int get_size(const struct header *h, const json_t *value, const char *what, uint64_t *out)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return fail(EBADMSG, "%s: its %s must hold integers from 0 up", h->j.where, what);
	*out = json_integer_value(value);
	return 0;
}

static int get_shape(const struct header *h, const json_t *value, struct index_tensor *t)
{
	int ret = 0;

	if (!json_is_array(value))
		return fail(EBADMSG, "%s: its shape must be a list", h->j.where);
	if (json_array_size(value) > PINION_RANK_MAX)
		return fail(EBADMSG, "%s: its rank is %zu, at most %d is allowed", h->j.where, json_array_size(value),
			    PINION_RANK_MAX);
	t->rank = json_array_size(value);
	for (uint32_t i = 0; i < PINION_RANK_MAX && !ret; i++) {
		t->shape[i] = 1;
		if (i < t->rank)
			ret = get_size(h, json_array_get(value, i), "shape", &t->shape[i]);
	}
	return ret;
}

static int get_offsets(const struct header *h, const json_t *value, struct index_tensor *t)
{
	const struct index_builder *b = h->b;
	uint64_t begin = 0, end = 0;
	int ret;

	if (!json_is_array(value) || json_array_size(value) != 2)
		return fail(EBADMSG, "%s: its data_offsets must be a list of two", h->j.where);
	ret = get_size(h, json_array_get(value, 0), "data_offsets", &begin);
	if (!ret)
		ret = get_size(h, json_array_get(value, 1), "data_offsets", &end);
	if (ret)
		return ret;
	if (begin > end)
		return fail(EBADMSG, "%s: its data_offsets begin at %" PRIu64 " and end before that, at %" PRIu64,
			    h->j.where, begin, end);
	/* No overflow: both are below 2^63. */
	t->file_offset = b->data_offset + begin;
	t->bytes = end - begin;
	return 0;
}

static int check_keys(const struct header *h, json_t *entry)
{
	static const char *const names[] = {"dtype", "shape", "data_offsets"};
	char shown[INDEX_SHOWN];
	const char *key;
	json_t *value;

	for (size_t i = 0; i < 3; i++)
		if (!json_object_get(entry, names[i]))
			return fail(EBADMSG, "%s: its entry has no %s", h->j.where, names[i]);
	json_object_foreach(entry, key, value) {
		if (strcmp(key, names[0]) && strcmp(key, names[1]) && strcmp(key, names[2])) {
			text_shown(shown, sizeof(shown), key, strlen(key));
			return fail(EBADMSG, "%s: its entry has the key '%s', which is not known", h->j.where, shown);
		}
	}
	return 0;
}

static int check_bytes(const struct header *h, const struct index_tensor *t)
{
	uint64_t need;
	int ret = index_need(t, INDEX_SAFETENSORS, h->j.where, &need);

	if (ret)
		return ret;
	if (need != t->bytes)
		return fail(EBADMSG, "%s: its shape and dtype need %" PRIu64 " bytes, its data_offsets have %" PRIu64,
			    h->j.where, need, t->bytes);
	return index_inside(h->j.where, t->file_offset, t->bytes, h->b->file_bytes);
}

static int read_tensor(struct header *h, struct index_tensor *t)
{
	json_t *entry;
	int ret = jwalk_value(&h->j, "{", ENTRY_TEXT_MAX, "its entry", &entry);

	if (ret)
		return ret;
	ret = check_keys(h, entry);
	if (!ret)
		ret = get_dtype(h, json_object_get(entry, "dtype"), t);
	if (!ret)
		ret = get_shape(h, json_object_get(entry, "shape"), t);
	if (!ret)
		ret = get_offsets(h, json_object_get(entry, "data_offsets"), t);
	if (!ret)
		ret = check_bytes(h, t);
	json_decref(entry);
	return ret;
}

static int add_tensor(struct header *h, const json_t *name)
{
	const char *text = json_string_value(name);
	uint64_t len = json_string_length(name);
	struct index_tensor *t;
	int ret;

	if (!len || len > INDEX_NAME_MAX)
		return fail(EBADMSG, "%s: the length of its name is %" PRIu64 ", 1 to %u is allowed", h->j.where, len,
			    INDEX_NAME_MAX);
	if (text_has_control(text, len))
		return fail(EBADMSG, "%s: its name has a control character", h->j.where);
	t = builder_tensor(h->b);
	if (!t)
		return fail(ENOMEM, "%s: no memory for its description", h->j.where);
	t->name_bytes = len;
	ret = builder_string(h->b, text, len, &t->name);
	return ret ? ret : read_tensor(h, t);
}

static int remember_key(struct header *h, const json_t *key)
{
	const char *text = json_string_value(key);
	char shown[INDEX_SHOWN];

	text_shown(shown, sizeof(shown), text, json_string_length(key));
	if (json_object_get(h->seen, text))
		return fail(EBADMSG, "%s: key '%s' is there twice", h->j.where, shown);
	if (json_object_size(h->seen) == METADATA_MAX)
		return fail(EBADMSG, "%s: it has more than %u keys", h->j.where, METADATA_MAX);
	if (json_object_set_new(h->seen, text, json_true()))
		return fail(ENOMEM, "%s: no memory for the key '%s'", h->j.where, shown);
	return 0;
}

/* One pair of __metadata__; of the value nothing is kept. */
static int skip_pair(void *header)
{
	struct header *h = header;
	json_t *key, *value;
	int ret = jwalk_value(&h->j, "\"", NAME_TEXT_MAX, "a key", &key);

	if (ret)
		return ret;
	ret = remember_key(h, key);
	json_decref(key);
	if (!ret)
		ret = jwalk_take(&h->j, ":", "':'");
	if (!ret)
		ret = jwalk_value(&h->j, "\"", h->j.bytes, "a string", &value);
	if (!ret)
		json_decref(value);
	return ret;
}

static int skip_metadata(struct header *h)
{
	if (h->seen)
		return fail(EBADMSG, "__metadata__ is there twice");
	h->seen = json_object();
	if (!h->seen)
		return fail(ENOMEM, "no memory for the keys of __metadata__");
	return jwalk_object(&h->j, skip_pair, h);
}

static int read_pair(void *header)
{
	struct header *h = header;
	char shown[INDEX_SHOWN];
	bool metadata;
	json_t *name;
	int ret;

	snprintf(h->j.where, sizeof(h->j.where), "the header");
	ret = jwalk_value(&h->j, "\"", NAME_TEXT_MAX, "a tensor's name", &name);
	if (ret)
		return ret;
	metadata = !strcmp(json_string_value(name), "__metadata__");
	text_shown(shown, sizeof(shown), json_string_value(name), json_string_length(name));
	snprintf(h->j.where, sizeof(h->j.where), metadata ? "%s" : "tensor '%s'", shown);
	ret = jwalk_take(&h->j, ":", "':'");
	if (!ret)
		ret = metadata ? skip_metadata(h) : add_tensor(h, name);
	json_decref(name);
	return ret;
}

static int read_object(struct header *h)
{
	int ret = jwalk_object(&h->j, read_pair, h);

	if (ret)
		return ret;
	jwalk_space(&h->j);
	if (h->j.at < h->j.bytes)
		return jwalk_expect(&h->j, "", "nothing but white space");
	return 0;
}

static int read_header(struct header *h, struct reader *r)
{
	int ret = reader_u64(r, &h->j.bytes, "its length");

	if (ret)
		return ret;
	ret = reader_need(r, h->j.bytes, "its JSON");
	if (ret)
		return ret;
	if (h->j.bytes > HEADER_MAX)
		return fail(EBADMSG, "the header's length is %" PRIu64 ", at most %u is allowed", h->j.bytes, HEADER_MAX);
	h->j.text = malloc(h->j.bytes + 1);
	if (!h->j.text)
		return fail(ENOMEM, "no memory for a header of %" PRIu64 " bytes", h->j.bytes);
	h->b->data_offset = LENGTH_BYTES + h->j.bytes;
	ret = reader_read(r, h->j.text, h->j.bytes, "its JSON");
	if (!ret && (!h->j.bytes || h->j.text[0] != '{'))
		ret = fail(EBADMSG, "the header must begin with '{' at offset %u of the file", LENGTH_BYTES);
	return ret;
}

int safetensors_parse(int fd, struct index_builder *b)
{
	struct header h = {.j = {.base = LENGTH_BYTES, .where = "the header"}, .b = b};
	struct reader r;
	int ret = reader_open(&r, fd, b->file_bytes);

	if (ret)
		return ret;
	b->format = INDEX_SAFETENSORS;
	ret = read_header(&h, &r);
	reader_close(&r);
	if (!ret)
		ret = read_object(&h);
	json_decref(h.seen);
	free(h.j.text);
	return ret;
}
