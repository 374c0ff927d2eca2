/* SPDX-License-Identifier: MIT */
#include "bench.h"

#include <pinion/context.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEAT_MAX 64

static char sentence[512];

int broke(int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sentence, sizeof(sentence), fmt, ap);
	va_end(ap);
	return -err;
}

int broke_pinion(int err, const char *what)
{
	return broke(-err, "%s: %s", what, pinion_error());
}

const char *broke_why(void)
{
	return sentence;
}

void trial_start(struct trial *t, unsigned int rounds)
{
	memset(t, 0, sizeof(*t));
	t->rounds = rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX;
}

unsigned int trial_add(struct trial *t, way_fn run, void *arg)
{
	if (t->ways == WAYS_MAX)
		abort();
	t->way[t->ways].run = run;
	t->way[t->ways].arg = arg;
	return t->ways++;
}

static int run_round(struct trial *t, struct sample *mean)
{
	memset(mean, 0, t->ways * sizeof(*mean));
	for (unsigned int i = 0; i < 2 * t->ways; i++) {
		unsigned int w = i < t->ways ? i : 2 * t->ways - 1 - i;
		struct sample s = { { 0 } };
		int ret = t->way[w].run(t->way[w].arg, &s);

		if (ret)
			return ret;
		for (unsigned int m = 0; m < MEASURES; m++)
			mean[w].of[m] += s.of[m] / 2;
	}
	return 0;
}

int trial_warm(struct trial *t, double *ns)
{
	double start = now_ns();
	int ret = run_round(t, t->mean[0]);

	*ns = now_ns() - start;
	return ret;
}

int trial_run(struct trial *t)
{
	int ret = 0;

	for (unsigned int r = 0; r < t->rounds && !ret; r++)
		ret = run_round(t, t->mean[r]);
	return ret;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Between the two nearest values. */
static double quantile(const double *v, unsigned int n, double q)
{
	double at = q * (n - 1);
	unsigned int i = at;

	return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[i];
}

static struct spread spread_of(double *v, unsigned int n)
{
	qsort(v, n, sizeof(*v), compare);
	return (struct spread){ quantile(v, n, 0.1), quantile(v, n, 0.5), quantile(v, n, 0.9) };
}

int repeat(way_fn way, void *arg, unsigned int n, struct sample *out)
{
	double v[REPEAT_MAX];
	struct sample s;
	int ret = way(arg, &s);

	n = n < REPEAT_MAX ? n : REPEAT_MAX;
	for (unsigned int i = 0; i < n && !ret; i++) {
		ret = way(arg, &s);
		v[i] = s.of[TIME];
	}
	if (!ret)
		out->of[TIME] = spread_of(v, n).median;
	return ret;
}

struct spread trial_figure(const struct trial *t, unsigned int way, enum measure m)
{
	double v[ROUNDS_MAX];

	for (unsigned int r = 0; r < t->rounds; r++)
		v[r] = t->mean[r][way].of[m];
	return spread_of(v, t->rounds);
}

struct spread trial_mixed(const struct trial *t, unsigned int a, enum measure ma, unsigned int b, enum measure mb)
{
	double v[ROUNDS_MAX];

	for (unsigned int r = 0; r < t->rounds; r++)
		v[r] = t->mean[r][a].of[ma] / t->mean[r][b].of[mb];
	return spread_of(v, t->rounds);
}

struct spread trial_ratio(const struct trial *t, unsigned int a, unsigned int b, enum measure m)
{
	return trial_mixed(t, a, m, b, m);
}
