/* SPDX-License-Identifier: MIT */
/* model file: writes files to load, of F16 tensors full of noise, and decides what the page cache holds of them. */
#ifndef PINION_BENCH_MODEL_FILE_H
#define PINION_BENCH_MODEL_FILE_H

#include <limits.h>
#include <stdint.h>

struct model_file {
	char path[PATH_MAX];
	uint64_t bytes;
};

/* A GGUF file of about @bytes in @tensors tensors, written to the disk. */
int model_file_gguf(struct model_file *f, const char *dir, const char *name, uint64_t bytes, unsigned int tensors);

/* A safetensors file none of whose tensors is aligned, so that a load must move them all. */
int model_file_unaligned(struct model_file *f, const char *dir, const char *name, uint64_t bytes, unsigned int tensors);
void model_file_remove(const struct model_file *f);

/* Takes the file out of the page cache and looks whether it is. */
int model_file_cool(const struct model_file *f);

/* Reads all of it into the page cache and looks whether it is there. */
int model_file_heat(const struct model_file *f);

/* Bytes of it in the page cache. */
int model_file_cached(const struct model_file *f, uint64_t *bytes);

#endif
