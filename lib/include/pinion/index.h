/* SPDX-License-Identifier: MIT */
/* index: what the headers of a model's files say, checked against the files; GGUF v2 and v3, safetensors, and sets of them. */
#ifndef PINION_INDEX_H
#define PINION_INDEX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PINION_RANK_MAX 8

struct pinion_index;

struct pinion_tensor {
	const char *name;  /* borrowed from the index or model */
	uint32_t type;	   /* enum pinion_type */
	uint32_t rank;	   /* 0: a scalar, one element */
	uint64_t shape[PINION_RANK_MAX]; /* as stored: GGUF fastest dimension first, safetensors row-major */
	uint64_t bytes;
	uint64_t file_offset; /* from the start of its file */
	uint64_t offset;      /* in the model's buffer; of an index alone: where a load would put it */
	const void *data;     /* in the model's mapping, read-only, borrowed from the model; NULL in an index */
	uint32_t shard;	      /* the number of its file, from 0; see pinion_index_shard_at() */
};

struct pinion_index_info {
	size_t size;	     /* set by the caller */
	const char *format;  /* "gguf" or "safetensors"; static */
	uint32_t version;    /* GGUF's, of the first file; 0 for safetensors */
	uint32_t alignment;  /* GGUF's general.alignment, of the first file; 0 for safetensors */
	uint64_t file_bytes; /* size of the file, of all where there are several */
	uint64_t data_offset; /* of the data section in the file, in the first */
	uint64_t tensors;
	uint64_t tensor_bytes; /* sum over the tensors */
	uint64_t buffer_bytes; /* what a load allocates, before rounding to a page */
	uint64_t moved_bytes;  /* of tensor_bytes, what a load has to move because direct I/O cannot place it aligned */
	const char *architecture; /* general.architecture, or ""; borrowed */
	const char *name;	  /* general.name, or ""; borrowed */
	uint64_t shards;	  /* files */
	uint64_t claimed_bytes;	  /* tensor_bytes as the list of files has it (metadata.total_size), which may be wrong; 0: not said */
};

/* One file of a model. */
struct pinion_shard {
	size_t size;	  /* set by the caller */
	const char *file; /* its name, in the folder of the path that was opened; borrowed */
	uint64_t file_bytes;
	uint64_t data_offset;
	uint64_t first;	  /* its tensors in the model's order: from this one on, */
	uint64_t tensors; /* so many */
	uint32_t outside; /* 1: the name is a symbolic link to a file of another folder */
	const char *sha256; /* of the file as it was loaded, 64 hexadecimal digits; "" where the load was not asked for it; borrowed */
};

/*
 * Reads and checks the header of @path; no tensor data is read. Where @path is one of several files, all of them are read:
 * any part of a split GGUF model, found by their names NAME-00001-of-00003.gguf, or the list of a safetensors model's
 * files, NAME.safetensors.index.json. All are in the folder of @path. The caller owns *@out.
 * Errors: -EBADMSG the content is refused, the sentence names the file, the field or tensor, what it needs and what there
 * is; -ENOENT a file of several is missing; the errno of opening or reading.
 */
int pinion_index_open(const char *path, struct pinion_index **out);
void pinion_index_free(struct pinion_index *ix);

int pinion_index_info(const struct pinion_index *ix, struct pinion_index_info *info);

/* The tensor called @name, or the i-th in the files' order. -ENOENT. Safe from any thread. */
int pinion_index_tensor(const struct pinion_index *ix, const char *name, struct pinion_tensor *out);
int pinion_index_tensor_at(const struct pinion_index *ix, uint64_t i, struct pinion_tensor *out);

/* The i-th file. -ENOENT. Safe from any thread. */
int pinion_index_shard_at(const struct pinion_index *ix, uint64_t i, struct pinion_shard *out);

#ifdef __cplusplus
}
#endif
#endif
