/* SPDX-License-Identifier: MIT */
/*
 * shards: which files a model is in. A path leads to a file that is all of it, to the list of a safetensors model's files, or
 * to any part of a GGUF model that was split. What a file is, its content says; where the others are, their names do.
 */
#include "../error.h"
#include "index.h"
#include "reader.h"
#include "weight_map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pinion/context.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one file ------------------------------------------------------------------------------------------------------ */

static const char *kind_of(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a directory";
	if (S_ISFIFO(mode))
		return "a FIFO";
	if (S_ISCHR(mode) || S_ISBLK(mode))
		return "a device";
	return S_ISSOCK(mode) ? "a socket" : "something else";
}

int index_open(const char *path)
{
	/* Without O_NONBLOCK the open of a FIFO would wait for a writer. */
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int index_stamp(int fd, struct index_stamp *stamp)
{
	struct stat st;

	if (fstat(fd, &st))
		return fail_errno(errno, "looking at it");
	/* Reading a FIFO or a device could wait for ever or do something. */
	if (!S_ISREG(st.st_mode))
		return fail(EINVAL, "it is %s, a regular file is needed", kind_of(st.st_mode));
	*stamp = (struct index_stamp){ .dev = st.st_dev, .ino = st.st_ino, .bytes = st.st_size, .mtime_sec = st.st_mtim.tv_sec,
				       .mtime_nsec = st.st_mtim.tv_nsec };
	return 0;
}

int shard_unchanged(int fd, const struct index_shard *shard, const char *path)
{
	struct index_stamp now;
	int ret = index_stamp(fd, &now);

	if (ret)
		return ret;
	if (!memcmp(&now, &shard->stamp, sizeof(now)))
		return 0;
	return fail(EBADMSG, "%s changed while it was read (it had %" PRIu64 " bytes, now %" PRIu64 "); load it again when it is whole", path,
		    shard->stamp.bytes, now.bytes);
}

int shard_open(const char *path, const struct index_shard *shard, int *out)
{
	int fd = index_open(path), ret;

	if (fd < 0)
		return fail_errno(-fd, "%s", path);
	ret = shard_unchanged(fd, shard, path);
	if (ret)
		close(fd);
	else
		*out = fd;
	return ret;
}

/* Eight bytes of a header's length are no JSON: the last of them would make it longer than any file. */
static bool is_json(const unsigned char *first, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (!first[i] || !strchr(" \t\r\n", first[i]))
			return first[i] == '{' && (bytes < 8 || first[7]);
	return false;
}

int index_kind(int fd, uint64_t file_bytes, enum file_kind *kind)
{
	unsigned char first[9] = { 0 };
	size_t bytes = file_bytes < sizeof(first) ? file_bytes : sizeof(first);
	struct reader r;
	int ret;

	*kind = FILE_OTHER;
	if (!file_bytes)
		return fail(EBADMSG, "the file is empty");
	ret = reader_open(&r, fd, file_bytes);
	if (ret)
		return ret;
	ret = reader_read(&r, first, bytes, "the magic");
	reader_close(&r);
	if (ret)
		return ret;
	if (!memcmp(first, "GGUF", 4) || !memcmp(first, "FUGG", 4))
		*kind = FILE_GGUF;
	else if (is_json(first, bytes))
		*kind = FILE_WEIGHT_MAP;
	else if (first[8] == '{')
		*kind = FILE_SAFETENSORS;
	if (*kind != FILE_OTHER)
		return 0;
	return fail(EBADMSG,
		    "neither GGUF, whose magic is 47 47 55 46, nor safetensors, whose header begins with '{' at offset 8: "
		    "%" PRIu64 " bytes with the magic %02x %02x %02x %02x",
		    file_bytes, first[0], first[1], first[2], first[3]);
}

/* ---- the folder ---------------------------------------------------------------------------------------------------- */

static const char *name_in(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

char *shard_path(const char *path, const char *name)
{
	char *out;

	if (asprintf(&out, "%.*s%s", (int)(name_in(path) - path), path, name) < 0)
		return NULL;
	return out;
}

void path_shown(char *out, size_t room, const char *path)
{
	size_t len = strlen(path);
	size_t skip = len < room ? 0 : len - room + 1;

	text_shown(out, room, path + skip, len - skip);
}

/* Whether @path is a symbolic link to a file of another folder. That is its owner's wish, and is said, not refused. */
static bool leads_outside(const char *path)
{
	char *target = NULL, *folder = NULL, *dir = strndup(path, name_in(path) - path);
	struct stat st;
	bool outside = false;

	if (dir && !lstat(path, &st) && S_ISLNK(st.st_mode)) {
		target = realpath(path, NULL);
		folder = realpath(*dir ? dir : ".", NULL);
	}
	if (target && folder) {
		/* Of a file in the root nothing comes before the slash. */
		size_t len = strcmp(folder, "/") ? strlen(folder) : 0;

		outside = strncmp(target, folder, len) || name_in(target) != target + len + 1;
	}
	free(dir);
	free(target);
	free(folder);
	return outside;
}

/* Parses the file @path that is open at @fd, which is of @kind. */
static int parse_file(int fd, const char *path, enum file_kind kind, struct index_builder *b)
{
	int ret;

	b->outside = leads_outside(path);
	b->file = strdup(name_in(path));
	if (!b->file)
		return fail(ENOMEM, "no memory for the name of a file");
	/* A header of some MiB read in order would start a read-ahead of ten times as much of what is better read directly. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	ret = kind == FILE_GGUF ? gguf_parse(fd, b) : safetensors_parse(fd, b);
	posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
	return ret;
}

static int parse_fd(int fd, const char *path, enum file_kind want, struct index_builder *b)
{
	enum file_kind kind;
	int ret = index_stamp(fd, &b->stamp);

	b->file_bytes = b->stamp.bytes;
	if (!ret)
		ret = index_kind(fd, b->file_bytes, &kind);
	if (!ret && kind != want)
		ret = fail(EBADMSG, "it is no %s file", want == FILE_GGUF ? "GGUF" : "safetensors");
	return ret ? ret : parse_file(fd, path, kind, b);
}

/* Parses @name of @path's folder, one of several files. */
static int parse_named(const char *path, const char *name, enum file_kind want, struct index_builder *b)
{
	char *own = shard_path(path, name), shown[INDEX_SHOWN];
	int fd, ret;

	if (!own)
		return fail(ENOMEM, "no memory for a path");
	path_shown(shown, sizeof(shown), name);
	fd = index_open(own);
	if (fd < 0) {
		ret = fail_errno(-fd, "the model is in several files, and %s of the same folder cannot be opened", shown);
	} else {
		ret = parse_fd(fd, own, want, b);
		if (ret)
			ret = fail(-ret, "%s: %s", shown, pinion_error());
		close(fd);
	}
	free(own);
	return ret;
}

static void free_builders(struct index_builder *b, uint32_t count)
{
	for (uint32_t i = 0; i < count && b; i++)
		builder_free(&b[i]);
	free(b);
}

/* ---- GGUF parts ---------------------------------------------------------------------------------------------------- */

/* NAME-00001-of-00003.gguf: what part @no of @count ends in. */
#define PART_ROOM 40
static void part_end(char out[PART_ROOM], uint32_t no, uint32_t count)
{
	snprintf(out, PART_ROOM, "-%05" PRIu32 "-of-%05" PRIu32 ".gguf", no + 1, count);
}

/* The bytes of a part's name before its end; -EBADMSG where it ends otherwise. */
static int part_stem(const struct index_builder *b, size_t *stem)
{
	char end[PART_ROOM];
	size_t len = strlen(b->file);

	if (text_has_control(b->file, len))
		return fail(EBADMSG, "it is one of several files, and its name has a control character");
	part_end(end, b->split_no, b->split_count);
	if (len < strlen(end) || strcmp(b->file + len - strlen(end), end))
		return fail(EBADMSG, "it is part %" PRIu32 " of %" PRIu32 " (split.no %" PRIu32
			    ") and is not called NAME%s, by which the others are found",
			    b->split_no + 1, b->split_count, b->split_no, end);
	*stem = len - strlen(end);
	return 0;
}

/* Where both say what they are called it must be the same. */
static int same_label(const struct index_builder *a, uint64_t a_at, const struct index_builder *b, uint64_t b_at, const char *key)
{
	const char *of_a = a_at ? a->strings + a_at : "", *of_b = b_at ? b->strings + b_at : "";

	if (!*of_a || !*of_b || !strcmp(of_a, of_b))
		return 0;
	return fail(EBADMSG, "%s is of another model than %s: its %s is '%s', not '%s'", b->file, a->file, key, of_b, of_a);
}

/* Whether @b is part @no of what @a is a part of. */
static int check_part(const struct index_builder *a, const struct index_builder *b, uint32_t no)
{
	int ret;

	if (b->split_count != a->split_count || b->split_no != no)
		return fail(EBADMSG, "%s says that it is part %" PRIu32 " of %" PRIu32 " (split.no %" PRIu32 "), %s is one of %" PRIu32,
			    b->file, b->split_count ? b->split_no + 1 : 1, b->split_count ? b->split_count : 1, b->split_no, a->file,
			    a->split_count);
	if (b->split_tensors != a->split_tensors)
		return fail(EBADMSG, "%s is of another model than %s: its split.tensors.count is %" PRIu32 ", not %" PRIu32, b->file,
			    a->file, b->split_tensors, a->split_tensors);
	ret = same_label(a, a->architecture, b, b->architecture, "general.architecture");
	return ret ? ret : same_label(a, a->model_name, b, b->model_name, "general.name");
}

static int check_part_tensors(const struct index_builder *b, uint32_t count)
{
	uint64_t tensors = 0;

	for (uint32_t i = 0; i < count; i++)
		tensors += b[i].tensor_count;
	if (!b->split_tensors || b->split_tensors == tensors)
		return 0;
	return fail(EBADMSG, "the parts have %" PRIu64 " tensors, split.tensors.count is %" PRIu32, tensors, b->split_tensors);
}

static int parse_part(const char *path, const struct index_builder *given, size_t stem, uint32_t no, struct index_builder *b)
{
	char name[INDEX_FILE_MAX + PART_ROOM], end[PART_ROOM];

	part_end(end, no, given->split_count);
	snprintf(name, sizeof(name), "%.*s%s", (int)stem, given->file, end);
	return parse_named(path, name, FILE_GGUF, b);
}

/* The whole of which @given, which becomes part of it, is one part. */
static int build_parts(const char *path, struct index_builder *given, struct index_block **out)
{
	uint32_t count = given->split_count, own = given->split_no;
	struct index_builder *b;
	size_t stem = 0;
	int ret = part_stem(given, &stem);

	if (ret)
		return ret;
	b = calloc(count, sizeof(*b));
	if (!b)
		return fail(ENOMEM, "no memory for %" PRIu32 " parts", count);
	for (uint32_t i = 0; i < count && !ret; i++)
		if (i != own)
			ret = parse_part(path, given, stem, i, &b[i]);
	b[own] = *given;
	*given = (struct index_builder){ 0 };
	/* The first part has the labels. */
	for (uint32_t i = 1; i < count && !ret; i++)
		ret = check_part(&b[0], &b[i], i);
	if (!ret)
		ret = check_part(&b[own], &b[0], 0);
	if (!ret)
		ret = check_part_tensors(b, count);
	if (!ret)
		ret = index_build(b, count, out);
	free_builders(b, count);
	return ret;
}

/* ---- safetensors by their list ------------------------------------------------------------------------------------- */

static int build_listed(const struct weight_map *map, const char *path, struct index_block **out)
{
	struct index_builder *b = calloc(map->files, sizeof(*b));
	struct index_block *block = NULL;
	int ret = 0;

	if (!b)
		return fail(ENOMEM, "no memory for %" PRIu32 " files", map->files);
	for (uint32_t i = 0; i < map->files && !ret; i++)
		ret = parse_named(path, map->file[i], FILE_SAFETENSORS, &b[i]);
	if (!ret)
		ret = index_build(b, map->files, &block);
	free_builders(b, map->files);
	if (!ret)
		ret = weight_map_check(map, block);
	if (ret) {
		free(block);
		return ret;
	}
	block->claimed_bytes = map->claimed_bytes;
	*out = block;
	return 0;
}

static int build_list(int fd, uint64_t bytes, const char *path, struct index_block **out)
{
	struct weight_map map;
	int ret = weight_map_read(fd, bytes, &map);

	if (!ret)
		ret = build_listed(&map, path, out);
	weight_map_free(&map);
	return ret;
}

/* ---- any of them --------------------------------------------------------------------------------------------------- */

static int build_file(int fd, const char *path, enum file_kind kind, struct index_builder *b, struct index_block **out)
{
	int ret = parse_file(fd, path, kind, b);

	if (ret)
		return ret;
	if (b->split_count > 1)
		return build_parts(path, b, out);
	ret = check_part_tensors(b, 1);
	return ret ? ret : index_build(b, 1, out);
}

static int read_block(int fd, const char *path, struct index_block **out)
{
	struct index_builder b = { 0 };
	enum file_kind kind;
	int ret = index_stamp(fd, &b.stamp);

	b.file_bytes = b.stamp.bytes;
	if (!ret)
		ret = index_kind(fd, b.file_bytes, &kind);
	if (ret)
		return ret;
	if (kind == FILE_WEIGHT_MAP)
		return build_list(fd, b.file_bytes, path, out);
	ret = build_file(fd, path, kind, &b, out);
	builder_free(&b);
	return ret;
}

int index_read(int fd, const char *path, struct index_block **out)
{
	char shown[INDEX_SHOWN];
	int ret = read_block(fd, path, out);

	if (!ret)
		return 0;
	path_shown(shown, sizeof(shown), path);
	return fail(-ret, "%s: %s", shown, pinion_error());
}

int index_read_path(const char *path, struct index_block **out)
{
	char shown[INDEX_SHOWN];
	int fd = index_open(path), ret;

	if (fd < 0) {
		path_shown(shown, sizeof(shown), path);
		return fail_errno(-fd, "opening %s", shown);
	}
	ret = index_read(fd, path, out);
	close(fd);
	return ret;
}
