/* SPDX-License-Identifier: MIT */
#include "json.h"

#include "format.h"
#include "pinion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

void json_set(json_t *object, const char *key, json_t *value)
{
	if (!value || json_object_set_new(object, key, value))
		no_memory();
}

void json_set_text(json_t *object, const char *key, const char *value)
{
	char *text = malloc(strlen(value) * strlen(REPLACEMENT) + 1), *at = text;

	if (!text)
		no_memory();
	while (*value) {
		uint32_t code;
		size_t n = utf8_char(value, &code);

		at = n ? mempcpy(at, value, n) : stpcpy(at, REPLACEMENT);
		value += n ? n : 1;
	}
	*at = 0;
	json_set(object, key, json_string(text));
	free(text);
}

void json_set_number(json_t *object, const char *key, uint64_t value)
{
	json_set(object, key, json_integer(value < INT64_MAX ? (json_int_t)value : INT64_MAX));
}

void json_add(json_t *array, json_t *value)
{
	if (!value || json_array_append_new(array, value))
		no_memory();
}

json_t *json_new_object(void)
{
	json_t *object = json_object();

	if (!object)
		no_memory();
	return object;
}

json_t *json_new_array(void)
{
	json_t *array = json_array();

	if (!array)
		no_memory();
	return array;
}

char *json_line(json_t *value)
{
	char *line = json_dumps(value, JSON_COMPACT);

	if (!line)
		no_memory();
	json_decref(value);
	return line;
}

void json_print_line(json_t *value, FILE *out)
{
	char *line = json_line(value);

	fprintf(out, "%s\n", line);
	free(line);
}

void json_print(json_t *value)
{
	/* A failed write shows at flush_stdout(). */
	json_dumpf(value, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(value);
}
