/* SPDX-License-Identifier: MIT */
/* json: what jansson refuses or gets wrong made right: bytes that are not UTF-8, numbers above INT64_MAX. */
#ifndef PINION_TOOLS_JSON_H
#define PINION_TOOLS_JSON_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Each sets @key of @object. Bytes of @value that are not UTF-8 become U+FFFD. */
void json_set_text(json_t *object, const char *key, const char *value);
void json_set_number(json_t *object, const char *key, uint64_t value);
void json_set(json_t *object, const char *key, json_t *value);

/* Adds @value to @array. */
void json_add(json_t *array, json_t *value);

/* json_object() and json_array() that do not fail. */
json_t *json_new_object(void);
json_t *json_new_array(void);

/* @value in one line, to be freed; frees @value. */
char *json_line(json_t *value);

/* Prints that with a line break. */
void json_print_line(json_t *value, FILE *out);

/* Prints @value with a line break to stdout and frees it. */
void json_print(json_t *value);

#endif
