/* SPDX-License-Identifier: MIT */
#include "figure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define GIB 1073741824.0

static void read_clocks(struct lap *now)
{
	struct timespec ts;
	struct rusage use;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	getrusage(RUSAGE_SELF, &use);
	now->seconds = ts.tv_sec + ts.tv_nsec / 1e9;
	now->cpu = use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

void lap_begin(struct lap *lap)
{
	read_clocks(lap);
}

void lap_end(struct lap *lap)
{
	struct lap now;

	read_clocks(&now);
	lap->seconds = now.seconds - lap->seconds;
	lap->cpu = now.cpu - lap->cpu;
}

void figure_add(struct figure *f, const struct lap *lap, double reading)
{
	if (f->n == FIGURE_MAX)
		return;
	f->seconds[f->n] = lap->seconds;
	f->reading[f->n] = reading;
	f->cpu[f->n++] = lap->cpu;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *value, unsigned int n)
{
	double sorted[FIGURE_MAX];

	if (!n)
		return 0;
	memcpy(sorted, value, n * sizeof(*value));
	qsort(sorted, n, sizeof(*sorted), compare);
	return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double figure_seconds(const struct figure *f)
{
	return median(f->seconds, f->n);
}

void figure_heading(void)
{
	printf("  %-46s %9s %8s %8s %9s\n", "medians of 3 turns, of fio one", "MS", "GB/S", "READING", "CPU S/GIB");
}

static void print_rate(uint64_t bytes, double seconds)
{
	if (seconds > 0)
		printf(" %8.2f", bytes / seconds / 1e9);
	else
		printf(" %8s", "-");
}

void figure_print(const struct figure *f)
{
	double seconds = figure_seconds(f);

	printf("  %-46s", f->what);
	if (f->n) {
		printf(" %9.1f", seconds * 1e3);
		print_rate(f->bytes, seconds);
		print_rate(f->bytes, median(f->reading, f->n));
		printf(" %9.3f", f->bytes ? median(f->cpu, f->n) / (f->bytes / GIB) : 0.0);
	} else {
		printf(" %9s %8s %8s %9s", "-", "-", "-", "-");
	}
	printf("%s%s\n", *f->note ? "  " : "", f->note);
}
