/* SPDX-License-Identifier: MIT */
/*
 * index: one flat, position-independent block that says where each tensor of a model's files is, made by the parsers and
 * handed to other processes as a sealed memfd. Offsets in it are bytes from its start. Who receives one checks it with
 * index_check() before anything in it is believed.
 *
 * Arrows: shards.c finds the files of a model; gguf.c and safetensors.c read each through reader.c and fill a builder;
 * builder.c checks them as a whole and turns them into the block; layout.c says where a load puts each tensor; index.c
 * checks and describes blocks; load.c and attach use them.
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
#define INDEX_FILE_MAX 255u		  /* bytes of a file's name */
#define INDEX_LABEL_MAX 255u		  /* bytes of the architecture and of the model's name */
#define INDEX_SHOWN 100u		  /* room for a name in a sentence */
#define INDEX_SHA256_ROOM 65u		  /* digits and the end of them */
#define INDEX_SHARDS_MAX 65535u		  /* files of a model: as many as a GGUF split can count */

enum index_format { INDEX_GGUF = 1, INDEX_SAFETENSORS = 2 };

struct index_tensor {
	uint64_t name; /* offset of the NUL-terminated name */
	uint32_t name_bytes;
	uint32_t type;
	uint32_t rank;
	uint32_t moved; /* 1: a load copies it to an aligned place; 0: it is read to where it stays */
	uint64_t shape[PINION_RANK_MAX]; /* 1 beyond rank */
	uint64_t bytes;
	uint64_t file_offset; /* in its shard */
	uint64_t offset;      /* in the buffer */
	uint32_t shard;
	uint32_t reserved;
};

/* Which file it was, and in which state: what a change of it shows. */
struct index_stamp {
	uint64_t dev;
	uint64_t ino;
	uint64_t bytes;
	int64_t mtime_sec;
	int64_t mtime_nsec;
};

/* One file of the model. */
struct index_shard {
	uint64_t name; /* offset of its name in the folder of the path that was given */
	struct index_stamp stamp;
	uint64_t data_offset;
	uint64_t first; /* its tensors: [first, first + count) */
	uint64_t count;
	uint32_t version;   /* of a GGUF file */
	uint32_t alignment; /* of a GGUF file */
	uint32_t outside;   /* 1: its name is a symbolic link to another folder */
	char sha256[INDEX_SHA256_ROOM]; /* of the whole file, 64 digits; "" where nobody computed it */
	char reserved[3];
};

struct index_block {
	uint64_t magic;
	uint64_t bytes; /* of the whole block */
	uint32_t format;
	uint32_t shard_count; /* from 1 up */
	uint64_t file_bytes;	/* of all shards */
	uint64_t tensor_bytes;
	uint64_t moved_bytes;
	uint64_t buffer_bytes;
	uint64_t claimed_bytes; /* tensor_bytes as metadata.total_size has it; 0: it says nothing */
	uint64_t architecture; /* offsets of NUL-terminated strings */
	uint64_t model_name;
	uint64_t tensor_count;
	uint64_t shards;  /* offset of struct index_shard[shard_count] */
	uint64_t tensors; /* offset of struct index_tensor[tensor_count], by shard, by file_offset, then in the header's order */
	uint64_t by_name; /* offset of uint32_t[tensor_count]: indices sorted by name */
	uint64_t strings; /* offset of the strings, which end the block */
};

/* What the parsers fill, one for each file. Grows as entries come, never by what a header claims. */
struct index_builder {
	enum index_format format;
	uint32_t version;
	uint32_t alignment;
	uint64_t file_bytes;
	uint64_t data_offset;
	struct index_stamp stamp; /* all of it, and what follows, is of who opened the file */
	char *file; /* its name in the folder, own; NULL: it has none */
	bool outside;
	uint32_t split_no; /* what a GGUF file says of the whole it is a part of */
	uint32_t split_count; /* 0: it says nothing */
	uint32_t split_tensors; /* in all parts; 0: it says nothing */
	struct index_tensor *tensor; /* name: offset in strings */
	uint64_t tensor_count, tensor_room;
	char *strings;
	uint64_t strings_bytes, strings_room;
	uint64_t architecture, model_name; /* offsets in strings; 0 is "" */
};

/* Room for @more entries of @size bytes behind the @count that *@array has; grows by half again. -ENOMEM. */
int array_room(void **array, uint64_t count, uint64_t more, uint64_t *room, size_t size);

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

/*
 * Of the @count files of one model, all of one format: sorts by file and offset in it, refuses overlap and doubled names,
 * places every tensor, makes the block (free()).
 */
int index_build(const struct index_builder *b, uint32_t count, struct index_block **out);

/* Where a load puts each tensor: sets offset, moved of each, and buffer_bytes, moved_bytes. Tensors are in file order. */
int layout_place(struct index_block *block, struct index_tensor *tensor);

/*
 * Reads the model that the file at @fd, which has @path, is or is a part of: the other files are looked for in the folder of
 * @path. The block is the caller's (free()).
 */
int index_read(int fd, const char *path, struct index_block **out);
int index_read_path(const char *path, struct index_block **out); /* the same, opened here */

/* What is in a file, by what it begins with. */
enum file_kind { FILE_OTHER, FILE_GGUF, FILE_SAFETENSORS, FILE_WEIGHT_MAP };

/* -EBADMSG where it is FILE_OTHER, with the sentence. */
int index_kind(int fd, uint64_t file_bytes, enum file_kind *kind);

/* Which file @fd is; -EINVAL where it is none that can be read at will, with the sentence. */
int index_stamp(int fd, struct index_stamp *stamp);

/* Opens @path for reading without waiting for anybody; the descriptor, or -errno without a sentence. */
int index_open(const char *path);

/* The path of the file called @name in the folder of @path (free()); NULL: no memory. */
char *shard_path(const char *path, const char *name);

/* Whether the file at @fd is what it was when its header was read: -EBADMSG, the sentence begins with @path. */
int shard_unchanged(int fd, const struct index_shard *shard, const char *path);

/* Opens the file at @path, which must be what it was when its header was read. */
int shard_open(const char *path, const struct index_shard *shard, int *fd);

/* The end of a long path says more than its beginning. */
void path_shown(char *out, size_t room, const char *path);

/*
 * Whether @block of @bytes bytes can be believed: every offset in range, names terminated and sorted, data inside the
 * file and the buffer. 0 or -EPROTO with the sentence.
 */
int index_check(const void *block, uint64_t bytes);

static inline const struct index_tensor *index_tensors(const struct index_block *b)
{
	return (const struct index_tensor *)((const char *)b + b->tensors);
}

static inline const struct index_shard *index_shards(const struct index_block *b)
{
	return (const struct index_shard *)((const char *)b + b->shards);
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

/* The same of file @i, into the caller's struct; -ENOENT. */
int index_shard_out(const struct index_block *b, uint64_t i, struct pinion_shard *shard);

#endif
