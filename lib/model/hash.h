/* SPDX-License-Identifier: MIT */
/*
 * hash: the SHA-256 (FIPS 180-4, by nettle) of a model's file, computed by a thread that follows the load: what is a tensor's
 * is taken from the buffer, once it is in place, and only what is between them is read again.
 */
#ifndef PINION_LIB_HASH_H
#define PINION_LIB_HASH_H

#include <stdint.h>

#include "index.h"

/* The sum alone, of a file from its begin on: bytes that the caller has, and between them what is read. */
struct hash_sum;
int hash_sum_new(struct hash_sum **out);
void hash_sum_bytes(struct hash_sum *s, const void *data, uint64_t bytes);
int hash_sum_file(struct hash_sum *s, int fd, uint64_t to); /* what of the file comes before @to and was not summed yet */
void hash_sum_end(struct hash_sum *s, char hex[INDEX_SHA256_ROOM]);
void hash_sum_free(struct hash_sum *s);

struct file_hash;

/*
 * Begins to hash file @shard of @block, which is open at @fd. @data: where the tensors are or will be; NULL: all is read from
 * the file, nothing need be reached. All of these live until hash_end().
 */
int hash_begin(const struct index_block *block, uint32_t shard, int fd, const char *data, struct file_hash **out);

/* Every tensor's bytes before @file_offset are in place. */
void hash_reach(struct file_hash *h, uint64_t file_offset);

/* Waits until it is done, all being reached: 0 with the digits in @hex; -ETIMEDOUT; the errno of reading, with the sentence. */
int hash_wait(struct file_hash *h, int64_t deadline_ns, char hex[INDEX_SHA256_ROOM]);

/* Ends it, done or not. NULL is fine. */
void hash_end(struct file_hash *h);

#endif
