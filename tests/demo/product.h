/* SPDX-License-Identifier: MIT */
/*
 * product: rows of one tensor times a fixed vector, and what that must give.
 *
 * demo-pick writes a list of products; a reference (reference.py or demo-reference) adds what each must give; the
 * workers read both. The list is PREFIX.tsv, one product a line: name, type, columns, first row, rows, SHA-256 of the
 * decoded floats ("-": nothing but our own code can say). PREFIX.f64 holds two doubles for each row of each line, in
 * order: y, and the sum of |w||x|, which is what an error of y is measured against.
 */
#ifndef PINION_DEMO_PRODUCT_H
#define PINION_DEMO_PRODUCT_H

#include <pinion/index.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define DIGEST_ROOM 65 /* of sha256_hex() */

struct expected {
	double y;
	double magnitude; /* sum of |w||x| */
};

struct product {
	char *name;
	uint64_t tensor; /* how many others are before it in the list */
	char type[16];
	uint64_t cols;
	uint64_t first;
	uint64_t rows;
	bool checked;
	char digest[DIGEST_ROOM];
	const struct expected *expected; /* one for each row; NULL in a list without results */
};

struct products {
	struct product *product;
	size_t n;
	struct expected *expected;
};

/* Reads PREFIX.tsv, and PREFIX.f64 where @results. Ends the program with a sentence when they are not whole. */
void products_read(const char *prefix, bool results, struct products *out);
void products_free(struct products *p);

/* Tensors are dealt to workers in turn, each with all its bands: whether @p falls to worker @mine (from 0) of @of. */
bool product_is_of(const struct product *p, unsigned int mine, unsigned int of);

/* The largest that a worker has to keep at once of its share. */
struct need {
	uint64_t elems; /* of a product's rows, decoded */
	uint64_t rows;
	uint64_t cols;
};

void products_need(const struct products *p, unsigned int mine, unsigned int of, struct need *out);

/* Bytes of the decoded rows, of the vector and of the sums. */
uint64_t need_bytes(const struct need *need);

/* Writes one line; @digest NULL where the list has no results yet or this product is not checked. */
void product_write(FILE *out, const struct product *p, const char *digest);

/* A tensor as a matrix: its contiguous dimension is a row. */
struct matrix {
	uint64_t rows;
	uint64_t cols;
	uint64_t row_bytes;
};

/* False when it has no elements or a row is not a whole number of blocks. @format: pinion_index_info.format. */
bool matrix_of(const struct pinion_tensor *t, const char *format, struct matrix *out);

/* x[j], the vector that every product is with. */
static inline float product_x(uint64_t j)
{
	return (float)((uint32_t)(j * UINT64_C(2654435761)) / 2147483648.0 - 1.0);
}

/* product_x() of the first @cols, the caller's (free()). */
float *product_vector(uint64_t cols);

#endif
