/* SPDX-License-Identifier: MIT */
/* table: rows of cells, printed in columns as wide as their widest cell. */
#ifndef PINION_TOOLS_TABLE_H
#define PINION_TOOLS_TABLE_H

#include <stddef.h>
#include <stdio.h>

#define TABLE_COLUMNS 12

struct table {
	char **row; /* cells joined by tabs; the first row is the heading */
	size_t rows;
	size_t room;
};

/* Adds a row: cells separated by tabs. Text of others in it has been cleaned, so it holds no tab of its own. */
void table_add(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints and empties the table. A column whose heading begins with '>' is set to the right. */
void table_print(struct table *t, FILE *out);

#endif
