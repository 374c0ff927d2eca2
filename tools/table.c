/* SPDX-License-Identifier: MIT */
#include "table.h"

#include "format.h"
#include "pinion.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct column {
	size_t width;
	bool right;
};

void table_add(struct table *t, const char *fmt, ...)
{
	va_list ap;

	if (t->rows == t->room) {
		t->room = t->room ? 2 * t->room : 16;
		t->row = reallocarray(t->row, t->room, sizeof(*t->row));
		if (!t->row)
			no_memory();
	}
	va_start(ap, fmt);
	if (vasprintf(&t->row[t->rows], fmt, ap) < 0)
		no_memory();
	va_end(ap);
	t->rows++;
}

/* The cell at *@at, of *@bytes bytes; moves *@at to the next one, NULL after the last. */
static const char *next_cell(const char **at, size_t *bytes)
{
	const char *cell = *at;

	*bytes = strcspn(cell, "\t");
	*at = cell[*bytes] ? cell + *bytes + 1 : NULL;
	return cell;
}

static void measure(const char *row, struct column *column, bool heading)
{
	size_t bytes;

	for (size_t i = 0; row && i < TABLE_COLUMNS; i++) {
		const char *cell = next_cell(&row, &bytes);
		size_t width = text_width(cell, bytes);

		if (heading && *cell == '>') {
			column[i].right = true;
			width--;
		}
		if (width > column[i].width)
			column[i].width = width;
	}
}

static void print_row(const char *row, const struct column *column, bool heading, FILE *out)
{
	size_t bytes;

	for (size_t i = 0; row && i < TABLE_COLUMNS; i++) {
		const char *cell = next_cell(&row, &bytes);
		int gap;

		if (heading && *cell == '>') {
			cell++;
			bytes--;
		}
		gap = column[i].width - text_width(cell, bytes);
		/* No blanks at the end of a line. */
		if (column[i].right)
			fprintf(out, "%*s%.*s", gap, "", (int)bytes, cell);
		else
			fprintf(out, "%.*s%*s", (int)bytes, cell, row ? gap : 0, "");
		fputs(row ? "  " : "\n", out);
	}
}

void table_print(struct table *t, FILE *out)
{
	struct column column[TABLE_COLUMNS] = { 0 };

	for (size_t i = 0; i < t->rows; i++)
		measure(t->row[i], column, i == 0);
	for (size_t i = 0; i < t->rows; i++) {
		print_row(t->row[i], column, i == 0, out);
		free(t->row[i]);
	}
	free(t->row);
	*t = (struct table){ 0 };
}
