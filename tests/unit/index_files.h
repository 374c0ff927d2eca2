/* SPDX-License-Identifier: MIT */
/* What the tests of indexes share: model files made by the byte, and what must hold of whatever loads. */
#ifndef PINION_TEST_INDEX_FILES_H
#define PINION_TEST_INDEX_FILES_H

#include "harness.h"
#include "model/index.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pinion/context.h>
#include <pinion/type.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1ull << 20)
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- files made here ---- */

struct file {
	unsigned char *data;
	size_t bytes, room;
	uint64_t sparse; /* size of the file when larger than data */
};

static inline void put(struct file *f, const void *data, size_t bytes)
{
	if (f->bytes + bytes > f->room) {
		f->room = 2 * (f->bytes + bytes);
		f->data = realloc(f->data, f->room);
		ck_assert_ptr_nonnull(f->data);
	}
	if (bytes)
		memcpy(f->data + f->bytes, data, bytes);
	f->bytes += bytes;
}

static inline void put_u32(struct file *f, uint32_t value)
{
	put(f, &value, sizeof(value));
}

static inline void put_u64(struct file *f, uint64_t value)
{
	put(f, &value, sizeof(value));
}

static inline void put_string(struct file *f, const char *text)
{
	put_u64(f, strlen(text));
	put(f, text, strlen(text));
}

static inline void put_zeros(struct file *f, size_t bytes)
{
	static const unsigned char zeros[4096];

	for (; bytes > sizeof(zeros); bytes -= sizeof(zeros))
		put(f, zeros, sizeof(zeros));
	put(f, zeros, bytes);
}

static inline void pad(struct file *f, size_t align)
{
	put_zeros(f, (align - f->bytes % align) % align);
}

static inline void gguf(struct file *f, uint32_t version, uint64_t tensors, uint64_t keys)
{
	f->bytes = 0;
	f->sparse = 0;
	put(f, "GGUF", 4);
	put_u32(f, version);
	put_u64(f, tensors);
	put_u64(f, keys);
}

static inline void put_key(struct file *f, const char *key, uint32_t type)
{
	put_string(f, key);
	put_u32(f, type);
}

static inline void put_key_u32(struct file *f, const char *key, uint32_t value)
{
	put_key(f, key, 4);
	put_u32(f, value);
}

static inline void put_tensor(struct file *f, const char *name, uint32_t type, uint64_t offset, uint32_t rank, ...)
{
	va_list ap;

	put_string(f, name);
	put_u32(f, rank);
	va_start(ap, rank);
	for (uint32_t i = 0; i < rank; i++)
		put_u64(f, va_arg(ap, uint64_t));
	va_end(ap);
	put_u32(f, type);
	put_u64(f, offset);
}

/* GGUF with one f32 tensor "t" of four elements after the keys that are there. */
static inline void end_gguf(struct file *f)
{
	put_tensor(f, "t", PINION_TYPE_F32, 0, 1, UINT64_C(4));
	pad(f, 32);
	put_zeros(f, 16);
}

static inline void safetensors(struct file *f, const char *json, uint64_t data)
{
	f->bytes = 0;
	put_string(f, json);
	f->sparse = f->bytes + data;
}

static inline const char *save(const struct file *f)
{
	static char path[PATH_MAX];
	FILE *out;

	snprintf(path, sizeof(path), "%s/file-%d", test_tmp(), (int)getpid());
	out = fopen(path, "w");
	ck_assert_ptr_nonnull(out);
	ck_assert_uint_eq(f->bytes ? fwrite(f->data, 1, f->bytes, out) : 0, f->bytes);
	ck_assert_int_eq(fclose(out), 0);
	if (f->sparse > f->bytes)
		ck_assert_int_eq(truncate(path, f->sparse), 0);
	return path;
}

/* The same under that name. */
static inline const char *save_as(const char *name, const struct file *f)
{
	static char path[PATH_MAX];
	const char *from = save(f);

	snprintf(path, sizeof(path), "%s/%s", test_tmp(), name);
	ck_assert_int_eq(rename(from, path), 0);
	return path;
}

/* Fills what put_parts() and its like left sparse, so that each place has bytes of its own. */
static inline void put_filling(struct file *f, unsigned int seed)
{
	while (f->bytes < f->sparse) {
		unsigned char byte = rand_r(&seed) >> 3;

		put(f, &byte, 1);
	}
}

static inline void load_file(const char *path, struct file *f)
{
	unsigned char part[4096];
	FILE *in = fopen(path, "r");
	size_t got;

	ck_assert_msg(in != NULL, "%s", path);
	*f = (struct file){0};
	while ((got = fread(part, 1, sizeof(part), in)) > 0)
		put(f, part, got);
	fclose(in);
}

static inline const char *hostile(const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/hostile/%s", test_data(), name);
	return path;
}

static inline void put_label(struct file *f, const char *key, const char *text)
{
	put_key(f, key, 8);
	put_string(f, text);
}

/* ---- what every index that loads has to hold ---- */

static inline uint64_t up(uint64_t value, uint64_t align)
{
	return (value + align - 1) / align * align;
}

/* The bytes of the buffer that a read of @t may write, when reads fill blocks; of a moved one only its own. */
static inline void written(const struct index_tensor *t, uint64_t *begin, uint64_t *end)
{
	*begin = t->moved ? t->offset : t->offset / INDEX_BLOCK * INDEX_BLOCK;
	*end = t->moved ? t->offset + t->bytes : up(t->offset + t->bytes, INDEX_BLOCK);
}

static inline void check_pair(const struct index_tensor *a, const struct index_tensor *b)
{
	uint64_t a_begin, a_end, b_begin, b_end;

	ck_assert(!a->bytes || !b->bytes || a->shard < b->shard || a->file_offset + a->bytes <= b->file_offset);
	if (!a->bytes || !b->bytes ||
	    (a->shard == b->shard && !a->moved && !b->moved && a->offset - a->file_offset == b->offset - b->file_offset))
		return; /* read together: one begins in the buffer where it begins in the file */
	written(a, &a_begin, &a_end);
	written(b, &b_begin, &b_end);
	ck_assert(a_end <= b_begin || b_end <= a_begin);
}

static inline void check_layout(const struct index_block *b)
{
	const struct index_tensor *t = index_tensors(b);
	uint64_t moved = 0, bytes = 0, begin, end;

	ck_assert_uint_ge(b->buffer_bytes, 1);
	for (uint64_t i = 0; i < b->tensor_count; i++) {
		bytes += t[i].bytes;
		moved += t[i].moved ? t[i].bytes : 0;
		if (!t[i].bytes) {
			ck_assert(!t[i].moved && !t[i].offset);
			continue;
		}
		if (t[i].moved)
			ck_assert_uint_eq(t[i].offset % INDEX_MOVED_ALIGN, 0);
		else
			ck_assert_uint_eq(t[i].offset % INDEX_BLOCK, t[i].file_offset % INDEX_BLOCK);
		if (b->format == INDEX_SAFETENSORS)
			ck_assert_uint_eq(t[i].offset % INDEX_PLACED_ALIGN, 0);
		written(&t[i], &begin, &end);
		ck_assert_uint_le(end, t[i].moved ? b->buffer_bytes : up(b->buffer_bytes, INDEX_BLOCK));
		for (uint64_t j = i + 1; j < b->tensor_count && j < i + 50; j++)
			check_pair(&t[i], &t[j]);
	}
	ck_assert_uint_eq(b->tensor_bytes, bytes);
	ck_assert_uint_eq(b->moved_bytes, moved);
}

/* Uses everything in a block that index_check() has believed; run with an address sanitizer this sees a wrong belief. */
static inline void walk(const struct index_block *b)
{
	struct pinion_index_info info;
	struct pinion_tensor t;

	index_describe_file(b, &info);
	ck_assert_uint_le(strlen(info.architecture), INDEX_LABEL_MAX);
	ck_assert_uint_le(strlen(info.name), INDEX_LABEL_MAX);
	ck_assert_uint_eq(info.tensors, b->tensor_count);
	for (uint64_t i = 0; i < info.tensors; i++) {
		index_describe(b, i, &t);
		ck_assert_ptr_null(t.data);
		ck_assert_uint_le(t.rank, PINION_RANK_MAX);
		ck_assert_ptr_nonnull(pinion_type_info(t.type));
		ck_assert(t.file_offset <= info.file_bytes && t.bytes <= info.file_bytes - t.file_offset);
		ck_assert(t.offset <= info.buffer_bytes && t.bytes <= info.buffer_bytes - t.offset);
		ck_assert_uint_le(strlen(t.name), INDEX_NAME_MAX);
		ck_assert_int_eq(index_find(b, t.name), i);
	}
	ck_assert_int_eq(index_find(b, "\x7f no such"), -1);
	ck_assert_int_eq(index_find(b, ""), -1);
}

static inline int read_path(const char *path, struct index_block **block)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret;

	ck_assert_msg(fd >= 0, "%s", path);
	ret = index_read(fd, path, block);
	close(fd);
	return ret;
}

static inline struct index_block *loads(const char *path)
{
	struct index_block *block;

	ck_ok(read_path(path, &block));
	ck_ok(index_check(block, block->bytes));
	walk(block);
	check_layout(block);
	return block;
}

static inline struct index_block *file_loads(const struct file *f)
{
	return loads(save(f));
}

static inline void refused(const char *path, const char *why)
{
	struct index_block *block;
	int ret = read_path(path, &block);

	ck_assert_msg(ret == -EBADMSG, "%s gives %d, wanted: %s", path, ret, why);
	ck_assert_msg(strstr(pinion_error(), why) != NULL, "'%s' lacks '%s'", pinion_error(), why);
}

static inline void file_refused(const struct file *f, const char *why)
{
	refused(save(f), why);
}

/* Refused or loaded, but safe; true when loaded. */
static inline bool survives(const char *path)
{
	struct index_block *block;
	int ret = read_path(path, &block);

	if (ret) {
		ck_assert_int_eq(ret, -EBADMSG);
		return false;
	}
	ck_ok(index_check(block, block->bytes));
	walk(block);
	check_layout(block);
	free(block);
	return true;
}

static inline void expect_tensor(const struct index_block *b, const char *name, uint32_t type, uint64_t elements,
				 uint64_t bytes, uint64_t file_offset)
{
	int64_t i = index_find(b, name);
	struct pinion_tensor t;

	ck_assert_msg(i >= 0, "no tensor '%s'", name);
	index_describe(b, i, &t);
	ck_assert_str_eq(t.name, name);
	ck_assert_uint_eq(t.type, type);
	ck_assert_uint_eq(t.rank, 1);
	ck_assert_uint_eq(t.shape[0], elements);
	for (unsigned int j = 1; j < PINION_RANK_MAX; j++)
		ck_assert_uint_eq(t.shape[j], 1);
	ck_assert_uint_eq(t.bytes, bytes);
	ck_assert_uint_eq(t.file_offset, file_offset);
}

/* ---- safetensors files of parts ---- */

struct part {
	uint64_t bytes;
	bool moved;
};

/* A safetensors file of U8 tensors t0, t1, ... of these sizes whose data begins @skew bytes after a multiple of 64. */
static inline void put_parts(struct file *f, const struct part *part, unsigned int count, unsigned int skew)
{
	uint64_t at = 0, head;
	char text[128];

	put_u64(f, 0);
	put(f, "{", 1);
	for (unsigned int i = 0; i < count; i++) {
		uint64_t end = at + part[i].bytes;
		int len = snprintf(text, sizeof(text), "\"t%u\":{\"dtype\":\"U8\",\"shape\":[%" PRIu64 "],", i,
				   part[i].bytes);

		put(f, ",", i ? 1 : 0);
		put(f, text, len);
		len = snprintf(text, sizeof(text), "\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, end);
		put(f, text, len);
		at = end;
	}
	put(f, "}", 1);
	while (f->bytes % 64 != skew)
		put(f, " ", 1);
	head = f->bytes - 8;
	memcpy(f->data, &head, 8);
	f->sparse = f->bytes + at;
}

/* Such a file loaded, in which those tensors move that should. */
static inline struct index_block *load_parts(const struct part *part, unsigned int count, unsigned int skew)
{
	struct file f = {0};
	struct index_block *b;
	char name[16];

	put_parts(&f, part, count, skew);
	b = file_loads(&f);
	free(f.data);
	for (unsigned int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "t%u", i);
		ck_assert_msg(index_tensors(b)[index_find(b, name)].moved == part[i].moved, "%s", name);
	}
	return b;
}

#define LOAD_PARTS(parts, skew) load_parts(parts, LENGTH(parts), skew)

/* ---- what a refusal costs ---- */

/* The most of this process's memory that was ever present, in KiB. */
static inline long peak_kib(void)
{
	char line[128];
	long kib = -1;
	FILE *in = fopen("/proc/self/status", "r");

	if (!in)
		return -1;
	while (fgets(line, sizeof(line), in))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	fclose(in);
	return kib;
}

/* KiB that refusing @path adds to a fresh process, and the nanoseconds of CPU it takes. */
static inline long refuse_kib(const char *path, long *ns)
{
	long before, report[2] = {-1, -1};
	struct timespec from, to;
	struct pinion_index *ix;
	int ends[2], ret, status;
	pid_t child;

	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		before = peak_kib();
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
		ret = pinion_index_open(path, &ix);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
		report[0] = peak_kib() - before;
		report[1] = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
		if (before < 0 || write(ends[1], report, sizeof(report)) != sizeof(report))
			_exit(2);
		_exit(ret == -EBADMSG ? 0 : 1);
	}
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], report, sizeof(report)), sizeof(report));
	close(ends[0]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	*ns = report[1];
	return report[0];
}

#endif
