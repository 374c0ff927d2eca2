/* SPDX-License-Identifier: MIT */
/* index: what a model file's header says, checked against the file; GGUF v2 and v3, and single-file safetensors. */
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
	uint64_t file_offset; /* from the start of the file */
	uint64_t offset;      /* in the model's buffer; of an index alone: where a load would put it */
	const void *data;     /* in the model's mapping, read-only, borrowed from the model; NULL in an index */
};

struct pinion_index_info {
	size_t size;	     /* set by the caller */
	const char *format;  /* "gguf" or "safetensors"; static */
	uint32_t version;    /* GGUF's; 0 for safetensors */
	uint32_t alignment;  /* GGUF's general.alignment; 0 for safetensors */
	uint64_t file_bytes; /* size of the file */
	uint64_t data_offset; /* of the data section in the file */
	uint64_t tensors;
	uint64_t tensor_bytes; /* sum over the tensors */
	uint64_t buffer_bytes; /* what a load allocates, before rounding to a page */
	uint64_t moved_bytes;  /* of tensor_bytes, what a load has to move because direct I/O cannot place it aligned */
	const char *architecture; /* general.architecture, or ""; borrowed */
	const char *name;	  /* general.name, or ""; borrowed */
};

/*
 * Reads and checks the header of @path; no tensor data is read. The caller owns *@out.
 * Errors: -EBADMSG the content is refused, the sentence names the field or tensor, what it needs and what there is; the
 * errno of opening or reading.
 */
int pinion_index_open(const char *path, struct pinion_index **out);
void pinion_index_free(struct pinion_index *ix);

int pinion_index_info(const struct pinion_index *ix, struct pinion_index_info *info);

/* The tensor called @name, or the i-th in the file's order. -ENOENT. Safe from any thread. */
int pinion_index_tensor(const struct pinion_index *ix, const char *name, struct pinion_tensor *out);
int pinion_index_tensor_at(const struct pinion_index *ix, uint64_t i, struct pinion_tensor *out);

#ifdef __cplusplus
}
#endif
#endif
