/* SPDX-License-Identifier: MIT */
/*
 * gguf: the header of a GGUF file, version 2 or 3: counts, keys with values, tensor descriptions. Values are skipped as
 * they stream by; kept are the alignment, the architecture and the model's name.
 */
#include "../error.h"
#include "index.h"
#include "reader.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <pinion/type.h>
#include <stdio.h>
#include <string.h>

#define HEADER_MAX (256ull << 20) /* lists of strings are walked one by one: bounds the time a sparse file can cost */
#define KEY_MAX 65535u		  /* the format's own bound */
#define DEPTH_MAX 4u		  /* of arrays in arrays */
#define RANK_MAX 4u		  /* the format's own bound */
#define ALIGN_DEFAULT 32u
#define ALIGN_MIN 8u /* the format asks for a multiple of 8, ggml for a power of two */
#define ALIGN_MAX (1u << 20)
#define KEY_LEAST 13u /* bytes that a key takes at least: length, type, a one-byte value */
#define NAME_LEAST 8u /* bytes of the length of a tensor's name, with which each description begins */

enum value_type {
	VALUE_U8,
	VALUE_I8,
	VALUE_U16,
	VALUE_I16,
	VALUE_U32,
	VALUE_I32,
	VALUE_F32,
	VALUE_BOOL,
	VALUE_STRING,
	VALUE_ARRAY,
	VALUE_U64,
	VALUE_I64,
	VALUE_F64,
	VALUE_TYPES,
};

/* Bytes of one value; 0 where it depends on the value. */
static const uint8_t value_bytes[VALUE_TYPES] = {
	[VALUE_U8] = 1,	 [VALUE_I8] = 1,   [VALUE_U16] = 2, [VALUE_I16] = 2, [VALUE_U32] = 4, [VALUE_I32] = 4,
	[VALUE_F32] = 4, [VALUE_BOOL] = 1, [VALUE_U64] = 8, [VALUE_I64] = 8, [VALUE_F64] = 8,
};

struct gguf {
	struct reader r;
	struct index_builder *b;
	uint64_t tensors;
	uint64_t keys;
	uint32_t seen; /* one bit per known key */
};

static int check_magic(struct gguf *g)
{
	char magic[4];
	int ret = reader_read(&g->r, magic, sizeof(magic), "the magic");

	if (ret)
		return ret;
	if (!memcmp(magic, "FUGG", 4))
		return fail(EBADMSG, "a big-endian GGUF file (magic 'FUGG'), only little-endian ones are read");
	if (memcmp(magic, "GGUF", 4))
		return fail(EBADMSG, "the magic is %02x %02x %02x %02x, that of GGUF is 47 47 55 46", (uint8_t)magic[0],
			    (uint8_t)magic[1], (uint8_t)magic[2], (uint8_t)magic[3]);
	return 0;
}

static int check_version(struct gguf *g)
{
	uint32_t version;
	int ret = reader_u32(&g->r, &version, "the version");

	if (ret)
		return ret;
	/* Written in the other byte order a small version has its low half zero. */
	if (version && !(version & 0xffff))
		return fail(EBADMSG, "a big-endian GGUF file (version %" PRIu32 "), only little-endian ones are read",
			    __builtin_bswap32(version));
	if (version != 2 && version != 3)
		return fail(EBADMSG, "version %" PRIu32 " of GGUF, only 2 and 3 are read", version);
	g->b->version = version;
	return 0;
}

/* A count is believed only as far as the bytes that are left could hold that many. */
static int check_count(struct gguf *g, const char *what, uint64_t count, uint64_t least)
{
	uint64_t most = reader_left(&g->r) / least;

	if (count <= most && count <= UINT32_MAX)
		return 0;
	return fail(EBADMSG,
		    "%s is %" PRIu64 ", of at least %" PRIu64 " bytes each; the file has %" PRIu64
		    " left, room for %" PRIu64,
		    what, count, least, reader_left(&g->r), most);
}

static int read_head(struct gguf *g)
{
	int ret = check_magic(g);

	if (!ret)
		ret = check_version(g);
	if (!ret)
		ret = reader_u64(&g->r, &g->tensors, "the tensor count");
	if (!ret)
		ret = reader_u64(&g->r, &g->keys, "the key count");
	if (!ret)
		ret = check_count(g, "the tensor count", g->tensors, NAME_LEAST);
	if (!ret)
		ret = check_count(g, "the key count", g->keys, KEY_LEAST);
	return ret;
}

static int skip_string(struct reader *r)
{
	uint64_t len;
	int ret = reader_u64(r, &len, "the length of a string");

	return ret ? ret : reader_skip(r, len, "a string");
}

static int read_type(struct reader *r, uint32_t *type)
{
	int ret = reader_u32(r, type, "the type of its value");

	if (!ret && *type >= VALUE_TYPES)
		ret = fail(EBADMSG, "%s: value type %" PRIu32 " is not known, they are 0 to %u", r->where, *type,
			   VALUE_TYPES - 1);
	return ret;
}

static int skip_array(struct reader *r, unsigned int depth);

static int skip_value(struct reader *r, uint32_t type, unsigned int depth)
{
	if (type == VALUE_STRING)
		return skip_string(r);
	if (type == VALUE_ARRAY)
		return skip_array(r, depth + 1);
	return reader_skip(r, value_bytes[type], "the value");
}

static int skip_array(struct reader *r, unsigned int depth)
{
	uint64_t count, bytes;
	uint32_t type;
	int ret;

	if (depth > DEPTH_MAX)
		return fail(EBADMSG, "%s: arrays are nested more than %u deep", r->where, DEPTH_MAX);
	ret = read_type(r, &type);
	if (!ret)
		ret = reader_u64(r, &count, "the count of an array");
	if (ret)
		return ret;
	if (value_bytes[type]) {
		if (__builtin_mul_overflow(count, value_bytes[type], &bytes))
			return fail(EBADMSG, "%s: the size of an array of %" PRIu64 " elements overflows", r->where,
				    count);
		return reader_skip(r, bytes, "an array");
	}
	/* Each step reads at least a length, so a false count ends at the end of the file. */
	for (uint64_t i = 0; i < count && !ret; i++)
		ret = skip_value(r, type, depth);
	return ret;
}

static int key_alignment(struct gguf *g)
{
	uint32_t align;
	int ret = reader_u32(&g->r, &align, "the value");

	if (ret)
		return ret;
	if (align < ALIGN_MIN || align > ALIGN_MAX || (align & (align - 1)))
		return fail(EBADMSG, "%s is %" PRIu32 ", it must be a power of two from %u to %u", g->r.where, align,
			    ALIGN_MIN, ALIGN_MAX);
	g->b->alignment = align;
	return 0;
}

static int read_label(struct gguf *g, uint64_t *offset)
{
	/* One byte more than is kept, so that the cut is seen to fall inside a character or between two. */
	char text[INDEX_LABEL_MAX + 1], label[INDEX_LABEL_MAX + 1];
	uint64_t len, part;
	int ret = reader_u64(&g->r, &len, "the length of a string");

	if (!ret)
		ret = reader_need(&g->r, len, "a string");
	if (ret)
		return ret;
	part = len < sizeof(text) ? len : sizeof(text);
	ret = reader_read(&g->r, text, part, "a string");
	if (!ret)
		ret = reader_skip(&g->r, len - part, "a string");
	if (ret)
		return ret;
	text_shown(label, sizeof(label), text, part);
	return builder_string(g->b, label, strlen(label), offset);
}

static int key_architecture(struct gguf *g)
{
	return read_label(g, &g->b->architecture);
}

static int key_name(struct gguf *g)
{
	return read_label(g, &g->b->model_name);
}

/* What a part says of the whole. A model in one file may say that it is part 0 of 1. */
static int key_split_no(struct gguf *g)
{
	uint16_t no;
	int ret = reader_read(&g->r, &no, sizeof(no), "the value");

	if (!ret)
		g->b->split_no = le16toh(no);
	return ret;
}

static int key_split_count(struct gguf *g)
{
	uint16_t count;
	int ret = reader_read(&g->r, &count, sizeof(count), "the value");

	if (!ret)
		g->b->split_count = le16toh(count);
	return ret;
}

static int key_split_tensors(struct gguf *g)
{
	uint32_t count;
	int ret = reader_u32(&g->r, &count, "the value");

	if (!ret && count > INT32_MAX)
		return fail(EBADMSG, "%s is negative", g->r.where);
	if (!ret)
		g->b->split_tensors = count;
	return ret;
}

/* The keys whose values are used. Twice one of them would leave two readers free to believe different ones. */
static const struct known_key {
	const char *key;
	uint32_t type;
	const char *type_is;
	int (*read)(struct gguf *g);
} known_keys[] = {
	{"general.alignment", VALUE_U32, "a uint32", key_alignment},
	{"general.architecture", VALUE_STRING, "a string", key_architecture},
	{"general.name", VALUE_STRING, "a string", key_name},
	{"split.count", VALUE_U16, "a uint16", key_split_count},
	{"split.no", VALUE_U16, "a uint16", key_split_no},
	{"split.tensors.count", VALUE_I32, "an int32", key_split_tensors},
};

static int read_known(struct gguf *g, unsigned int i, uint32_t type)
{
	if (g->seen & 1u << i)
		return fail(EBADMSG, "%s is there twice", g->r.where);
	g->seen |= 1u << i;
	if (type != known_keys[i].type)
		return fail(EBADMSG, "%s has value type %" PRIu32 ", it must be %s (%" PRIu32 ")", g->r.where, type,
			    known_keys[i].type_is, known_keys[i].type);
	return known_keys[i].read(g);
}

static int read_key(struct gguf *g, uint64_t number)
{
	char key[INDEX_SHOWN + 1], shown[INDEX_SHOWN];
	uint64_t len, part;
	uint32_t type;
	int ret;

	snprintf(g->r.where, sizeof(g->r.where), "key %" PRIu64, number);
	ret = reader_u64(&g->r, &len, "the length of its name");
	if (ret)
		return ret;
	if (len > KEY_MAX)
		return fail(EBADMSG, "%s: the length of its name is %" PRIu64 ", at most %u is allowed", g->r.where,
			    len, KEY_MAX);
	part = len < sizeof(key) ? len : sizeof(key);
	ret = reader_read(&g->r, key, part, "its name");
	if (!ret)
		ret = reader_skip(&g->r, len - part, "its name");
	if (ret)
		return ret;
	text_shown(shown, sizeof(shown), key, part);
	snprintf(g->r.where, sizeof(g->r.where), "key '%s'", shown);
	ret = read_type(&g->r, &type);
	if (ret)
		return ret;
	for (unsigned int i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]); i++)
		if (len == strlen(known_keys[i].key) && !memcmp(key, known_keys[i].key, len))
			return read_known(g, i, type);
	return skip_value(&g->r, type, 0);
}

static int read_name(struct gguf *g, uint64_t number, struct index_tensor *t)
{
	char name[INDEX_NAME_MAX], shown[INDEX_SHOWN];
	uint64_t len;
	int ret;

	snprintf(g->r.where, sizeof(g->r.where), "tensor %" PRIu64, number);
	ret = reader_u64(&g->r, &len, "the length of its name");
	if (ret)
		return ret;
	if (!len || len > INDEX_NAME_MAX)
		return fail(EBADMSG, "%s: the length of its name is %" PRIu64 ", 1 to %u is allowed", g->r.where, len,
			    INDEX_NAME_MAX);
	ret = reader_read(&g->r, name, len, "its name");
	if (ret)
		return ret;
	text_shown(shown, sizeof(shown), name, len);
	snprintf(g->r.where, sizeof(g->r.where), "tensor '%s'", shown);
	if (text_has_control(name, len))
		return fail(EBADMSG, "%s: its name has a control character", g->r.where);
	t->name_bytes = len;
	return builder_string(g->b, name, len, &t->name);
}

static int read_shape(struct gguf *g, struct index_tensor *t)
{
	int ret = reader_u32(&g->r, &t->rank, "its rank");

	if (!ret && t->rank > RANK_MAX)
		ret = fail(EBADMSG, "%s: its rank is %" PRIu32 ", at most %u is allowed", g->r.where, t->rank,
			   RANK_MAX);
	for (uint32_t i = 0; i < PINION_RANK_MAX && !ret; i++) {
		t->shape[i] = 1;
		if (i < t->rank)
			ret = reader_u64(&g->r, &t->shape[i], "its shape");
	}
	return ret;
}

/* file_offset is left relative to the data section, whose place is known only after the last description. */
static int read_tensor(struct gguf *g, uint64_t number)
{
	struct index_tensor *t = builder_tensor(g->b);
	int ret;

	if (!t)
		return fail(ENOMEM, "no memory for the description of tensor %" PRIu64, number);
	ret = read_name(g, number, t);
	if (!ret)
		ret = read_shape(g, t);
	if (!ret)
		ret = reader_u32(&g->r, &t->type, "its type");
	if (!ret)
		ret = reader_u64(&g->r, &t->file_offset, "its offset");
	return ret ? ret : index_need(t, INDEX_GGUF, g->r.where, &t->bytes);
}

static int place_tensor(struct gguf *g, struct index_tensor *t)
{
	char shown[INDEX_SHOWN];
	char *where = g->r.where;
	uint64_t relative = t->file_offset;

	text_shown(shown, sizeof(shown), g->b->strings + t->name, t->name_bytes);
	snprintf(where, sizeof(g->r.where), "tensor '%s'", shown);
	if (relative % g->b->alignment)
		return fail(EBADMSG, "%s: its offset %" PRIu64 " is not a multiple of general.alignment, %" PRIu32,
			    where, relative, g->b->alignment);
	if (__builtin_add_overflow(relative, g->b->data_offset, &t->file_offset))
		return fail(EBADMSG, "%s: its offset %" PRIu64 " overflows after the data section's, %" PRIu64, where,
			    relative, g->b->data_offset);
	return index_inside(where, t->file_offset, t->bytes, g->b->file_bytes);
}

static int place_data(struct gguf *g)
{
	uint64_t align = g->b->alignment;
	int ret = 0;

	/* No overflow: the header ends before HEADER_MAX. A file without tensors may end unpadded. */
	g->b->data_offset = (g->r.offset + align - 1) / align * align;
	if (!g->tensors && g->b->data_offset > g->b->file_bytes)
		g->b->data_offset = g->b->file_bytes;
	for (uint64_t i = 0; i < g->tensors && !ret; i++)
		ret = place_tensor(g, &g->b->tensor[i]);
	return ret;
}

int gguf_parse(int fd, struct index_builder *b)
{
	struct gguf g = {.b = b};
	int ret = reader_open(&g.r, fd, b->file_bytes);

	if (ret)
		return ret;
	if (g.r.limit > HEADER_MAX) {
		g.r.limit = HEADER_MAX;
		g.r.limit_is = "a header may have";
	}
	b->format = INDEX_GGUF;
	b->alignment = ALIGN_DEFAULT;
	ret = read_head(&g);
	for (uint64_t i = 0; i < g.keys && !ret; i++)
		ret = read_key(&g, i);
	if (!ret && b->split_count && b->split_no >= b->split_count)
		ret = fail(EBADMSG, "split.no is %" PRIu32 ", of %" PRIu32 " parts (split.count)", b->split_no, b->split_count);
	for (uint64_t i = 0; i < g.tensors && !ret; i++)
		ret = read_tensor(&g, i);
	if (!ret)
		ret = place_data(&g);
	reader_close(&g.r);
	return ret;
}
