/* SPDX-License-Identifier: MIT */
#include "format.h"

#include <stdlib.h>
#include <errno.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_SEC 1000000000ull

struct text size_text(uint64_t bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	unsigned int u = 0;
	struct text t;

	/* MiB up to 10 GiB, so that models are compared in one unit. */
	while (u + 1 < sizeof(unit) / sizeof(unit[0]) && bytes >> (10 * u) >= (u < 2 ? 1024 : 10240))
		u++;
	if (bytes & ((1ull << (10 * u)) - 1))
		snprintf(t.s, sizeof(t.s), "%.1f %s", (double)bytes / (1ull << (10 * u)), unit[u]);
	else
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " %s", bytes >> (10 * u), unit[u]);
	return t;
}

struct text bytes_text(uint64_t bytes)
{
	struct text t;

	if (bytes < 1024)
		snprintf(t.s, sizeof(t.s), "%" PRIu64, bytes);
	else
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " (%.20s)", bytes, size_text(bytes).s);
	return t;
}

struct text rate_text(uint64_t bytes, uint64_t ns)
{
	double per_sec = ns ? (double)bytes * NS_PER_SEC / ns : 0;
	struct text t;

	if (per_sec >= 1e9)
		snprintf(t.s, sizeof(t.s), "%.2f GB/s", per_sec / 1e9);
	else
		snprintf(t.s, sizeof(t.s), "%.1f MB/s", per_sec / 1e6);
	return t;
}

struct text seconds_text(uint64_t ns)
{
	struct text t;

	snprintf(t.s, sizeof(t.s), ns < NS_PER_SEC / 10 ? "%.3f s" : "%.2f s", (double)ns / NS_PER_SEC);
	return t;
}

struct text age_text(uint64_t ns)
{
	uint64_t s = ns / NS_PER_SEC;
	struct text t;

	if (s < 120)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " s", s);
	else if (s < 120 * 60)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " min", s / 60);
	else if (s < 48 * 3600)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " h", s / 3600);
	else
		snprintf(t.s, sizeof(t.s), "%" PRIu64 " d", s / 86400);
	return t;
}

unsigned int percent(uint64_t part, uint64_t whole)
{
	if (part >= whole)
		return 100;
	/* Sizes beyond 2^57 would overflow the product; there a percent is more than a percent's worth of bytes. */
	return whole < UINT64_MAX / 100 ? part * 100 / whole : part / (whole / 100);
}

size_t utf8_char(const char *s, uint32_t *code)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *u = (const unsigned char *)s;
	size_t n = u[0] < 0x80 ? 1 : u[0] < 0xc0 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : u[0] < 0xf8 ? 4 : 0;
	uint32_t c = n == 1 ? u[0] : u[0] & (0x7f >> n);

	if (!u[0])
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((u[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (u[i] & 0x3f);
	}
	if (!n || c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	*code = c;
	return n;
}

/* C0, DEL and C1: what a terminal obeys instead of showing. */
static bool is_control(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

char *text_copy(char *out, size_t room, const char *s)
{
	size_t n = 0;

	while (*s) {
		uint32_t code = 0;
		size_t len = utf8_char(s, &code);
		bool safe = len && !is_control(code);
		size_t put = safe ? len : 1;

		if (n + put >= room)
			break;
		if (safe)
			memmove(out + n, s, len);
		else
			out[n] = '?';
		n += put;
		s += len ? len : 1;
	}
	out[n] = 0;
	return out;
}

void text_clean(char *s)
{
	/* What is put is never longer than what was read, so the copy may overlap. */
	text_copy(s, strlen(s) + 1, s);
}

size_t text_width(const char *s, size_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < bytes; i++)
		n += ((unsigned char)s[i] & 0xc0) != 0x80;
	return n;
}

/*
 * What follows the decimal number that @s begins with: digits, which one '.' may divide. Neither blanks nor a sign, nor
 * an exponent, nor a name, all of which strtod() takes. NULL: there is none.
 */
static const char *decimal(const char *s, double *value)
{
	static const char digits[] = "0123456789";
	size_t whole = strspn(s, digits), part = s[whole] == '.' ? strspn(s + whole + 1, digits) : 0;

	if (!whole && !part)
		return NULL;
	*value = strtod(s, NULL);
	return s + whole + (part ? 1 + part : 0);
}

int number_parse(const char *s, double *value)
{
	double read;
	const char *end = decimal(s, &read);

	if (!end || *end)
		return -EINVAL;
	*value = read;
	return 0;
}

int count_parse(const char *s, uint32_t *n)
{
	double value;

	/* A double holds every count. */
	if (strchr(s, '.') || number_parse(s, &value) || value > UINT32_MAX)
		return -EINVAL;
	*n = value;
	return 0;
}

int size_parse(const char *s, uint64_t *bytes)
{
	static const char units[] = "KMGTP";
	const char *unit, *end;
	double value, scale = 1;

	end = decimal(s, &value);
	if (!end)
		return -EINVAL;
	if (*end == ' ' && end[1])
		end++;
	unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	if (unit) {
		for (const char *u = units; u <= unit; u++)
			scale *= 1024;
		end++;
		if (*end == 'i')
			end++;
	}
	if (*end == 'B')
		end++;
	/* Half a byte is a unit forgotten. */
	if (*end || !(value * scale < 9.2e18) || (!unit && value != (uint64_t)value))
		return -EINVAL;
	*bytes = value * scale;
	return 0;
}
