/* SPDX-License-Identifier: MIT */
/*
 * index: one flat, position-independent block that says where each tensor of a file is, made by the parsers and handed
 * to other processes as a sealed memfd. Offsets in it are bytes from its start. Who receives one checks it with
 * index_check() before anything in it is believed.
 *
 * Arrows: gguf.c and safetensors.c read through reader.c and fill a builder; builder.c checks it as a whole and turns it
 * into the block; layout.c says where a load puts each tensor; index.c checks and describes blocks; load.c and attach
 * use them.
 */
#ifndef PINION_LIB_INDEX_H
#define PINION_LIB_INDEX_H

#include <pinion/index.h>
#include <stdbool.h>
#include <stdint.h>

#define INDEX_MAGIC 0x3158444e494e4950ull /* "PININDX1" */
#define INDEX_BLOCK 4096u		  /* a file offset and its place in the buffer agree modulo this where placed */
#define INDEX_MOVED_ALIGN 256u		  /* address alignment of a tensor that is moved */
#define INDEX_PLACED_ALIGN 64u		  /* a safetensors tensor at a multiple of this in the file stays where it falls */
#define INDEX_RUN_BYTES (1u << 20)	  /* in a file that also has others, such tensors stay only in runs this long */
#define INDEX_NAME_MAX 1023u		  /* bytes of a tensor's name */
#define INDEX_LABEL_MAX 255u		  /* bytes of the architecture and of the model's name */
#define INDEX_SHOWN 100u		  /* room for a name in a sentence */

enum index_format { INDEX_GGUF = 1, INDEX_SAFETENSORS = 2 };

struct index_tensor {
	uint64_t name; /* offset of the NUL-terminated name */
	uint32_t name_bytes;
	uint32_t type;
	uint32_t rank;
	uint32_t moved; /* 1: a load copies it to an aligned place; 0: it is read to where it stays */
	uint64_t shape[PINION_RANK_MAX]; /* 1 beyond rank */
	uint64_t bytes;
	uint64_t file_offset;
	uint64_t offset; /* in the buffer */
};

struct index_block {
	uint64_t magic;
	uint64_t bytes; /* of the whole block */
	uint32_t format;
	uint32_t version;   /* of the GGUF file */
	uint32_t alignment; /* of the GGUF file */
	uint32_t reserved;
	uint64_t file_bytes;
	uint64_t data_offset;
	uint64_t tensor_bytes;
	uint64_t moved_bytes;
	uint64_t buffer_bytes;
	uint64_t architecture; /* offsets of NUL-terminated strings */
	uint64_t model_name;
	uint64_t tensor_count;
	uint64_t tensors; /* offset of struct index_tensor[tensor_count], by file_offset, then in the header's order */
	uint64_t by_name; /* offset of uint32_t[tensor_count]: indices sorted by name */
	uint64_t strings; /* offset of the strings, which end the block */
};

/* What the parsers fill. Grows as entries come, never by what a header claims. */
struct index_builder {
	enum index_format format;
	uint32_t version;
	uint32_t alignment;
	uint64_t file_bytes;
	uint64_t data_offset;
	struct index_tensor *tensor; /* name: offset in strings */
	uint64_t tensor_count, tensor_room;
	char *strings;
	uint64_t strings_bytes, strings_room;
	uint64_t architecture, model_name; /* offsets in strings; 0 is "" */
};

int builder_string(struct index_builder *b, const char *text, uint64_t len, uint64_t *offset);
struct index_tensor *builder_tensor(struct index_builder *b); /* a zeroed entry, NULL: no memory */
void builder_free(struct index_builder *b);

/* Parsers: read the header of @fd (size @file_bytes), check each field, fill @b. 0 or -errno with the sentence. */
int gguf_parse(int fd, struct index_builder *b);
int safetensors_parse(int fd, struct index_builder *b);

/* Bytes that @t's type and shape need; -EBADMSG with the sentence, which begins with @where. */
int index_need(const struct index_tensor *t, enum index_format format, const char *where, uint64_t *bytes);

/* Whether @bytes at @offset lie inside a file of @file_bytes; -EBADMSG with the sentence, which begins with @where. */
int index_inside(const char *where, uint64_t offset, uint64_t bytes, uint64_t file_bytes);

/* Control characters (NUL and DEL too) have no place in a name: they would break lines and move cursors. */
bool text_has_control(const char *text, uint64_t len);

/* Copies @text into @out for a sentence or a label: cut to the room between characters, control characters as '?'. */
void text_shown(char *out, size_t room, const char *text, uint64_t len);

/* Sorts by file offset, refuses overlap and doubled names, places every tensor, makes the block (free()). */
int index_build(struct index_builder *b, struct index_block **out);

/* Where a load puts each tensor: sets offset, moved of each, and buffer_bytes, moved_bytes. Tensors are in file order. */
int layout_place(struct index_block *block, struct index_tensor *tensor);

/* Opens the file at @fd by its magic; the block is the caller's (free()). @path is for sentences only. */
int index_read(int fd, const char *path, struct index_block **out);

/*
 * Whether @block of @bytes bytes can be believed: every offset in range, names terminated and sorted, data inside the
 * file and the buffer. 0 or -EPROTO with the sentence.
 */
int index_check(const void *block, uint64_t bytes);

static inline const struct index_tensor *index_tensors(const struct index_block *b)
{
	return (const struct index_tensor *)((const char *)b + b->tensors);
}

static inline const char *index_string(const struct index_block *b, uint64_t offset)
{
	return (const char *)b + offset;
}

/* The position of @name in index_tensors(), or -1. */
int64_t index_find(const struct index_block *b, const char *name);

/* The public description of entry @i, without data. */
void index_describe(const struct index_block *b, uint64_t i, struct pinion_tensor *out);
void index_describe_file(const struct index_block *b, struct pinion_index_info *info);

#endif
