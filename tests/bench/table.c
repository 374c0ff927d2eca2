/* SPDX-License-Identifier: MIT */
#include "table.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS "%-34s %14s  %-33s %-21s %-12s %5s  %-10s %-19s %s\n"

int table_open(struct table *t, bool json)
{
	memset(t, 0, sizeof(*t));
	t->json = json;
	t->section = "";
	t->rows = json_array();
	return t->rows ? 0 : broke(ENOMEM, "no memory for a table");
}

void table_section(struct table *t, const char *name)
{
	t->section = name;
	if (t->json)
		return;
	printf("\n%s\n", name);
	printf(COLUMNS, "  row", "figure", "against", "ratio (p10..p90)", "A/A p10..p90", "CPU x", "bar", "verdict",
	       "pages");
	fflush(stdout);
}

/*
 * The distance of what is judged from its bar is the margin; where the same against itself strays further than that,
 * the row says nothing.
 */
static const char *verdict(const struct row *row)
{
	double judged = row->bar == BAR_FIGURE_MAX ? row->figure : row->ratio.median;
	bool meets = row->bar == BAR_RATIO_MIN ? judged >= row->limit : judged <= row->limit;

	if (row->bar == BAR_NONE)
		return "-";
	if (row->bar == BAR_PROOF)
		return row->figure == 0 ? "meets" : "MISSES";
	if (row->same.median > 0 && row->same.p90 - row->same.p10 > fabs(judged / row->limit - 1))
		return "not decidable here";
	return meets ? "meets" : "MISSES";
}

/* Whether CPU time decides where time cannot, and how: a throughput's bar is a time's upside down. */
static bool cpu_decides(const struct row *row, bool *meets, double *limit)
{
	if (!(row->cpu > 0) || (row->bar != BAR_RATIO_MAX && row->bar != BAR_RATIO_MIN) || *verdict(row) != 'n')
		return false;
	*limit = row->bar == BAR_RATIO_MAX ? row->limit : 1 / row->limit;
	*meets = row->cpu <= *limit;
	return true;
}

static void number(char *text, size_t room, double v)
{
	snprintf(text, room, "%.*f", v == 0 || fabs(v) >= 1000 ? 0 : fabs(v) >= 100 ? 1 : fabs(v) >= 0.01 ? 2 : 4, v);
}

static void bar_text(char *text, size_t room, const struct row *row)
{
	if (row->bar == BAR_NONE)
		snprintf(text, room, "-");
	else if (row->bar == BAR_PROOF)
		snprintf(text, room, "none");
	else
		snprintf(text, room, "%s %.4g %s", row->bar == BAR_RATIO_MIN ? ">=" : "<=", row->limit,
			 row->bar == BAR_FIGURE_MAX ? row->unit : "x");
}

static void print_row(const struct row *row)
{
	double limit;
	bool meets;
	char value[32], figure[64], ratio[128] = "", low[32], high[32], same[48] = "", cpu[32] = "", bar[48];

	number(value, sizeof(value), row->figure);
	snprintf(figure, sizeof(figure), "%s %s", value, row->unit);
	if (row->ratio.median > 0) {
		number(value, sizeof(value), row->ratio.median);
		number(low, sizeof(low), row->ratio.p10);
		number(high, sizeof(high), row->ratio.p90);
		snprintf(ratio, sizeof(ratio), "%s (%s..%s)", value, low, high);
	}
	if (row->same.median > 0)
		snprintf(same, sizeof(same), "%.3f..%.3f", row->same.p10, row->same.p90);
	if (row->cpu > 0)
		snprintf(cpu, sizeof(cpu), "%.2f", row->cpu);
	bar_text(bar, sizeof(bar), row);
	printf(COLUMNS, row->name, figure, row->against ? row->against : "", ratio, same, cpu, bar, verdict(row),
	       row->pages ? row->pages : "");
	if (cpu_decides(row, &meets, &limit))
		printf("      CPU time decides: %.2f x, %s %.2f x\n", row->cpu, meets ? "within" : "MORE than", limit);
	if (row->note)
		printf("      %s\n", row->note);
	fflush(stdout);
}

static json_t *spread_json(const struct spread *s)
{
	if (!(s->median > 0))
		return json_null();
	return json_pack("{s:f, s:f, s:f}", "p10", s->p10, "median", s->median, "p90", s->p90);
}

static const char *bar_kind(enum bar bar)
{
	static const char *const name[] = { "none", "figure at most", "ratio at most", "ratio at least",
					    "figure is 0" };

	return name[bar];
}

static void keep_row(struct table *t, const struct row *row)
{
	json_t *o = json_pack("{s:s, s:s, s:s?, s:f, s:s, s:o, s:o, s:s, s:s, s:s?, s:s?}", "section", t->section,
			      "name", row->name, "against", row->against, "figure", row->figure, "unit", row->unit,
			      "ratio", spread_json(&row->ratio), "same", spread_json(&row->same), "bar",
			      bar_kind(row->bar), "verdict", verdict(row), "pages", row->pages, "note", row->note);
	double limit;
	bool meets;

	if (row->bar != BAR_NONE && row->bar != BAR_PROOF)
		json_object_set_new(o, "limit", json_real(row->limit));
	if (row->cpu > 0)
		json_object_set_new(o, "cpu", json_real(row->cpu));
	if (cpu_decides(row, &meets, &limit))
		json_object_set_new(o, "by_cpu", json_string(meets ? "meets" : "MISSES"));
	json_array_append_new(t->rows, o);
}

void table_row(struct table *t, const struct row *row)
{
	if (t->json)
		keep_row(t, row);
	else
		print_row(row);
}

static void say(struct table *t, const char *name, const char *what, const char *why)
{
	if (t->json) {
		json_array_append_new(t->rows, json_pack("{s:s, s:s, s:s, s:s}", "section", t->section, "name", name,
							 "verdict", what, "note", why));
		return;
	}
	printf("%-34s %14s  %s: %s\n", name, "-", what, why);
	fflush(stdout);
}

void table_absent(struct table *t, const char *name, const char *why)
{
	say(t, name, "not here", why);
}

void table_broken(struct table *t, const char *name)
{
	t->failed = true;
	say(t, name, "did not run", broke_why());
}

void table_close(struct table *t, json_t *about)
{
	json_t *whole;

	if (t->json) {
		whole = json_pack("{s:o, s:O}", "about", about, "rows", t->rows);
		json_dumpf(whole, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
		putchar('\n');
		json_decref(whole);
	} else {
		printf("\nratio: pinion over the baseline, in the measure of the row (GiB/s: in throughput), the\n"
		       "median of the rounds A B B A. A/A: the baseline over itself in the same run, or, where the\n"
		       "bar is on the figure, what was measured over itself. Where it spreads wider than the\n"
		       "distance from the bar, the row is not decidable here, and CPU time (CPU x: over the\n"
		       "baseline's), bytes and system calls decide.\n");
		json_decref(about);
	}
	json_decref(t->rows);
	fflush(stdout);
}
