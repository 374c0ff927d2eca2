/* SPDX-License-Identifier: MIT */
/* format: numbers for people, and text of others made safe to print. */
#ifndef PINION_TOOLS_FORMAT_H
#define PINION_TOOLS_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* Room for one number with its unit. */
struct text {
	char s[48];
};

/* "0 B", "12 KiB", "230.3 MiB", "1.5 GiB": exact where no decimal is shown. */
struct text size_text(uint64_t bytes);

/* "12345678 (11.8 MiB)"; below 1 KiB the number alone */
struct text bytes_text(uint64_t bytes);

/*
 * What users type. Numbers are decimal: no sign, no blank around them, no exponent. 0 or -EINVAL.
 * Sizes: "4096", "512MiB", "1.5 GiB", "64k": units of 1024, with or without "iB".
 */
int size_parse(const char *s, uint64_t *bytes);
/* "4": whole, and no more than 32 bits hold. */
int count_parse(const char *s, uint32_t *n);
/* "0.5" */
int number_parse(const char *s, double *value);

/* "2.31 GB/s" of @bytes in @ns; decimal units, as disks and links are sold. */
struct text rate_text(uint64_t bytes, uint64_t ns);

/* "0.21 s" */
struct text seconds_text(uint64_t ns);

/* "12 s", "5 min", "3 h", "2 d" */
struct text age_text(uint64_t ns);

/* @part of @whole in whole percent, 100 only when nothing is missing; 100 of nothing. */
unsigned int percent(uint64_t part, uint64_t whole);

/* Bytes of the well-formed UTF-8 character at the NUL-terminated @s, 0 when there is none; its code in *@code. */
size_t utf8_char(const char *s, uint32_t *code);

/* Makes @s safe for a terminal in place: each control character and each byte that is not UTF-8 becomes '?'. */
void text_clean(char *s);

/* The same into @out, cut to its room between two characters. Returns @out. */
char *text_copy(char *out, size_t room, const char *s);

/* Characters of @s, which has been cleaned. */
size_t text_width(const char *s, size_t bytes);

#endif
