/* SPDX-License-Identifier: MIT */
#include "weight_map.h"

#include "../error.h"
#include "json.h"
#include "reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX (64u << 20) /* the list of a model with 90,000 tensors has 9 MiB */
#define NAME_TEXT_MAX 8192u  /* a name as JSON: six characters for each byte and the quotes fit */
#define VALUE_MAX 65536u     /* of one that is not looked at */
#define NUMBER_MAX 64u
#define ANY_VALUE "\"{[-0123456789tfn"

struct list {
	struct jwalk j;
	struct weight_map *map;
	json_t *known; /* numbers of files, by name */
	json_t *key;   /* of the pair that is being read */
	bool has_map, has_metadata, has_size;
};

/* Reads "key": and leaves the key in l->key. */
static int read_key(struct list *l, const char *what)
{
	int ret;

	json_decref(l->key);
	l->key = NULL;
	ret = jwalk_value(&l->j, "\"", NAME_TEXT_MAX, what, &l->key);
	return ret ? ret : jwalk_take(&l->j, ":", "':'");
}

static bool key_is(const struct list *l, const char *key)
{
	return !strcmp(json_string_value(l->key), key);
}

static int skip_value(struct list *l)
{
	json_t *value;
	int ret = jwalk_value(&l->j, ANY_VALUE, VALUE_MAX, "a value", &value);

	if (!ret)
		json_decref(value);
	return ret;
}

/* ---- weight_map ---------------------------------------------------------------------------------------------------- */

/* The files are where the list is: a path of any kind is none of theirs. */
static int check_file_name(const struct list *l, const char *name, uint64_t len)
{
	char shown[INDEX_SHOWN];

	text_shown(shown, sizeof(shown), name, len);
	if (len && len <= INDEX_FILE_MAX && !text_has_control(name, len) && !strchr(name, '/') && strcmp(name, ".") &&
	    strcmp(name, ".."))
		return 0;
	return fail(EBADMSG, "%s: its file '%s' is refused, it must be the name of a file in the folder of the list", l->j.where,
		    shown);
}

static int add_file(struct list *l, const char *name, uint64_t len, uint32_t *number)
{
	struct weight_map *map = l->map;
	void *names = map->file;
	int ret = check_file_name(l, name, len);

	if (ret)
		return ret;
	if (map->files == INDEX_SHARDS_MAX)
		return fail(EBADMSG, "the weight_map names more than %u files", INDEX_SHARDS_MAX);
	if (array_room(&names, map->files, 1, &map->file_room, sizeof(*map->file)))
		return fail(ENOMEM, "no memory for the names of files");
	map->file = names;
	map->file[map->files] = strdup(name);
	if (!map->file[map->files] || json_object_set_new(l->known, name, json_integer(map->files))) {
		free(map->file[map->files]);
		return fail(ENOMEM, "no memory for the names of files");
	}
	*number = map->files++;
	return 0;
}

static int add_entry(struct list *l, const json_t *file)
{
	const char *tensor = json_string_value(l->key);
	uint64_t len = json_string_length(l->key);
	const json_t *known = json_object_get(l->known, json_string_value(file));
	struct weight_map *map = l->map;
	struct weight_map_entry *e;
	void *entry = map->entry;
	uint32_t number = 0;
	int ret = 0;

	if (!len || len > INDEX_NAME_MAX)
		return fail(EBADMSG, "%s: the length of its name is %" PRIu64 ", 1 to %u is allowed", l->j.where, len, INDEX_NAME_MAX);
	if (text_has_control(tensor, len))
		return fail(EBADMSG, "%s: its name has a control character", l->j.where);
	if (known)
		number = json_integer_value(known);
	else
		ret = add_file(l, json_string_value(file), json_string_length(file), &number);
	if (ret)
		return ret;
	if (array_room(&entry, map->entries, 1, &map->entry_room, sizeof(*map->entry)))
		return fail(ENOMEM, "%s: no memory for its entry", l->j.where);
	map->entry = entry;
	e = &map->entry[map->entries++];
	*e = (struct weight_map_entry){ .name_bytes = len, .file = number };
	return builder_string(&map->names, tensor, len, &e->name);
}

static int read_entry(void *list)
{
	struct list *l = list;
	char shown[INDEX_SHOWN];
	json_t *file;
	int ret;

	snprintf(l->j.where, sizeof(l->j.where), "the weight_map");
	ret = read_key(l, "a tensor's name");
	if (ret)
		return ret;
	text_shown(shown, sizeof(shown), json_string_value(l->key), json_string_length(l->key));
	snprintf(l->j.where, sizeof(l->j.where), "tensor '%s'", shown);
	ret = jwalk_value(&l->j, "\"", NAME_TEXT_MAX, "the name of a file", &file);
	if (ret)
		return ret;
	ret = add_entry(l, file);
	json_decref(file);
	return ret;
}

/* ---- the rest of the list ------------------------------------------------------------------------------------------ */

/* Some writers make it 1e9 or 1000.0; half a byte or a negative number of them is nobody's. */
static int read_total(struct list *l)
{
	json_t *value;
	double real;
	int ret;

	if (l->has_size)
		return fail(EBADMSG, "metadata.total_size is there twice");
	l->has_size = true;
	snprintf(l->j.where, sizeof(l->j.where), "metadata.total_size");
	ret = jwalk_value(&l->j, "-0123456789", NUMBER_MAX, "a number", &value);
	if (ret)
		return ret;
	real = json_number_value(value);
	if (real < 0 || real >= 0x1p63 || real != (double)(uint64_t)real)
		ret = fail(EBADMSG, "metadata.total_size is %g, it must be a number of bytes", real);
	else
		l->map->claimed_bytes = json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)real;
	json_decref(value);
	return ret;
}

static int read_metadata(void *list)
{
	struct list *l = list;
	int ret;

	snprintf(l->j.where, sizeof(l->j.where), "metadata");
	ret = read_key(l, "a key");
	if (ret)
		return ret;
	return key_is(l, "total_size") ? read_total(l) : skip_value(l);
}

static int read_part(void *list)
{
	struct list *l = list;
	bool *has = NULL;
	int ret;

	snprintf(l->j.where, sizeof(l->j.where), "the list");
	ret = read_key(l, "a key");
	if (ret)
		return ret;
	if (key_is(l, "weight_map"))
		has = &l->has_map;
	else if (key_is(l, "metadata"))
		has = &l->has_metadata;
	else
		return skip_value(l);
	if (*has)
		return fail(EBADMSG, "%s is there twice", json_string_value(l->key));
	*has = true;
	return jwalk_object(&l->j, has == &l->has_map ? read_entry : read_metadata, l);
}

static int read_text(struct list *l, int fd, uint64_t bytes)
{
	struct reader r;
	int ret;

	if (bytes > TEXT_MAX)
		return fail(EBADMSG, "a list of files of %" PRIu64 " bytes, at most %u are read", bytes, TEXT_MAX);
	l->j.text = malloc(bytes);
	if (!l->j.text)
		return fail(ENOMEM, "no memory for a list of %" PRIu64 " bytes", bytes);
	l->j.bytes = bytes;
	ret = reader_open(&r, fd, bytes);
	if (ret)
		return ret;
	ret = reader_read(&r, l->j.text, bytes, "the list");
	reader_close(&r);
	return ret;
}

struct named {
	char *file;
	uint32_t number;
};

static int compare_files(const void *a, const void *b)
{
	const struct named *na = a, *nb = b;

	return strcmp(na->file, nb->file);
}

/* The files in the order of their names, which is that of their numbers, whatever tensor the list begins with. */
static int sort_files(struct weight_map *map)
{
	struct named *named = calloc(map->files, sizeof(*named));
	uint32_t *place = calloc(map->files, sizeof(*place));

	if (!named || !place) {
		free(named);
		free(place);
		return fail(ENOMEM, "no memory to sort %" PRIu32 " files", map->files);
	}
	for (uint32_t i = 0; i < map->files; i++)
		named[i] = (struct named){ map->file[i], i };
	qsort(named, map->files, sizeof(*named), compare_files);
	for (uint32_t i = 0; i < map->files; i++) {
		map->file[i] = named[i].file;
		place[named[i].number] = i;
	}
	for (uint64_t i = 0; i < map->entries; i++)
		map->entry[i].file = place[map->entry[i].file];
	free(named);
	free(place);
	return 0;
}

static int read_list(struct list *l)
{
	int ret = jwalk_object(&l->j, read_part, l);

	if (ret)
		return ret;
	snprintf(l->j.where, sizeof(l->j.where), "the list");
	jwalk_space(&l->j);
	if (l->j.at < l->j.bytes)
		return jwalk_expect(&l->j, "", "nothing but white space");
	if (!l->has_map)
		return fail(EBADMSG, "it is JSON without a weight_map, so no list of a model's files");
	if (!l->map->files)
		return fail(EBADMSG, "its weight_map is empty");
	return sort_files(l->map);
}

int weight_map_read(int fd, uint64_t bytes, struct weight_map *map)
{
	struct list l = { .j = { .where = "the list" }, .map = map, .known = json_object() };
	int ret;

	*map = (struct weight_map){ 0 };
	ret = l.known ? read_text(&l, fd, bytes) : fail(ENOMEM, "no memory for a list of files");
	if (!ret)
		ret = read_list(&l);
	json_decref(l.known);
	json_decref(l.key);
	free(l.j.text);
	return ret;
}

void weight_map_free(struct weight_map *map)
{
	for (uint32_t i = 0; i < map->files; i++)
		free(map->file[i]);
	free(map->file);
	free(map->entry);
	builder_free(&map->names);
	*map = (struct weight_map){ 0 };
}

/* ---- against the files --------------------------------------------------------------------------------------------- */

static void name_shown(const struct weight_map *map, const struct weight_map_entry *e, char shown[INDEX_SHOWN])
{
	text_shown(shown, INDEX_SHOWN, map->names.strings + e->name, e->name_bytes);
}

static int check_entry(const struct weight_map *map, const struct weight_map_entry *e, const struct index_block *block, bool *seen)
{
	int64_t at = index_find(block, map->names.strings + e->name);
	char shown[INDEX_SHOWN];
	uint32_t shard;

	name_shown(map, e, shown);
	if (at < 0)
		return fail(EBADMSG, "tensor '%s' should be in %s, and no file of the weight_map has it", shown, map->file[e->file]);
	shard = index_tensors(block)[at].shard;
	if (shard != e->file)
		return fail(EBADMSG, "tensor '%s' should be in %s, and is in %s", shown, map->file[e->file], map->file[shard]);
	if (seen[at])
		return fail(EBADMSG, "tensor '%s' is in the weight_map twice", shown);
	seen[at] = true;
	return 0;
}

int weight_map_check(const struct weight_map *map, const struct index_block *block)
{
	const struct index_tensor *t = index_tensors(block);
	bool *seen = calloc(block->tensor_count + 1, sizeof(*seen));
	char shown[INDEX_SHOWN];
	int ret = 0;

	if (!seen)
		return fail(ENOMEM, "no memory to check %" PRIu64 " tensors", block->tensor_count);
	for (uint64_t i = 0; i < map->entries && !ret; i++)
		ret = check_entry(map, &map->entry[i], block, seen);
	for (uint64_t i = 0; i < block->tensor_count && !ret; i++) {
		if (seen[i])
			continue;
		text_shown(shown, sizeof(shown), index_string(block, t[i].name), t[i].name_bytes);
		ret = fail(EBADMSG, "tensor '%s' is in %s, and the weight_map does not have it", shown, map->file[t[i].shard]);
	}
	free(seen);
	return ret;
}
