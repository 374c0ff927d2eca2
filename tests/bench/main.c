/* SPDX-License-Identifier: MIT */
/* pinion-bench: measures what pinion claims, each claim against its baseline in the same run. */
#include "guard.h"
#include "pages.h"
#include "rows.h"

#include <errno.h>
#include <getopt.h>
#include <pinion/context.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#define BYTES_DEFAULT (UINT64_C(1) << 30)
#define BYTES_LEAST   (UINT64_C(64) << 20)

static const struct group {
	const char *name;
	void (*run)(struct rows *r);
	bool by_pages; /* run for each page size that shared memory can get */
	const char *about;
} groups[] = {
	{ "counts", rows_counts, false, "begin + end of a unit, on one thread and on two; no system calls" },
	{ "totals", rows_totals, false, "what is in flight, over 1 session and over 64" },
	{ "select", rows_select, false, "a choice among eight devices, would_fit, and a pick" },
	{ "handover", rows_handover, false, "a buffer, and a model of 300 tensors, to another process" },
	{ "cold", rows_cold, true, "a GGUF file that the page cache does not hold" },
	{ "moved", rows_moved, true, "the same where every byte must be moved" },
	{ "warm", rows_warm, true, "a GGUF file that the page cache holds" },
	{ "stream", rows_stream, true, "requests of one size through a stream, on registered buffers and without" },
	{ "alloc", rows_alloc, true, "pinned memory" },
};

#define GROUPS (sizeof(groups) / sizeof(groups[0]))

struct wish {
	bool json;
	bool chosen[GROUPS];
	uint64_t bytes;
};

static void help(FILE *to)
{
	fprintf(to,
		"usage: pinion-bench [--json] [GROUP...]\n\n"
		"Measures what pinion claims, each claim as a ratio to a baseline in the same run: rounds A B B A, at\n"
		"least %d of them, their median, and the baseline against itself. Without GROUP all of:\n\n",
		ROUNDS);
	for (unsigned int i = 0; i < GROUPS; i++)
		fprintf(to, "  %-10s %s\n", groups[i].name, groups[i].about);
	fprintf(to, "\nAs root the last five run twice: with the pages that shared memory gets on this machine, and,\n"
		    "where those are small, with\n" SHMEM_THP "\n"
		    "set to advise for the run. That, and the pool of huge pages that fio is given, are put back at\n"
		    "the end, also after a signal.\n\n"
		    "  --json       print JSON instead of a table\n"
		    "  --help       this\n"
		    "  TMPDIR       where the model files are written, on a disk; otherwise /var/tmp\n"
		    "  BENCH_BYTES  size of the large model file, otherwise 1 GiB; K, M and G may follow\n\n"
		    "The exit status is 0 whether bars are met or not, and 1 when something did not run.\n");
}

static bool read_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMG";
	const char *unit;
	char *end;

	errno = 0;
	*bytes = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (errno || end == text || (*end && (!unit || end[1])))
		return false;
	return !unit || !__builtin_mul_overflow(*bytes, UINT64_C(1) << (10 * (unit - units + 1)), bytes);
}

static bool choose(struct wish *w, const char *name)
{
	for (unsigned int i = 0; i < GROUPS; i++) {
		if (!strcmp(groups[i].name, name)) {
			w->chosen[i] = true;
			return true;
		}
	}
	fprintf(stderr, "pinion-bench: no group is called '%s'; --help names them\n", name);
	return false;
}

/* -1: go on; otherwise what to exit with. */
static int read_wish(struct wish *w, int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' },
						 { "help", no_argument, NULL, 'h' },
						 { 0 } };
	const char *bytes = getenv("BENCH_BYTES");
	int c;

	memset(w, 0, sizeof(*w));
	w->bytes = BYTES_DEFAULT;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'j') {
			help(c == 'h' ? stdout : stderr);
			return c == 'h' ? 0 : 2;
		}
		w->json = true;
	}
	if (bytes && *bytes && (!read_bytes(bytes, &w->bytes) || w->bytes < BYTES_LEAST)) {
		fprintf(stderr, "pinion-bench: BENCH_BYTES is '%s', not a size of at least 64M\n", bytes);
		return 2;
	}
	for (int i = optind; i < argc; i++)
		if (!choose(w, argv[i]))
			return 2;
	for (unsigned int i = 0; optind == argc && i < GROUPS; i++)
		w->chosen[i] = true;
	return -1;
}

/* ---- the run ------------------------------------------------------------------------------------------------- */

static json_t *about(const struct rows *r)
{
	char shmem[64], load[64] = "";
	struct utsname u;
	double avg = 0;

	uname(&u);
	setting_read(SHMEM_THP, shmem, sizeof(shmem));
	if (getloadavg(&avg, 1) == 1)
		snprintf(load, sizeof(load), "%.2f", avg);
	if (!r->table->json)
		printf("pinion %s on Linux %s %s, %d processors, load average %s, shmem_enabled %s, files in %s\n",
		       pinion_version(), u.release, u.machine, get_nprocs(), load, *shmem ? shmem : "unknown",
		       *r->files ? r->files : "no directory");
	return json_pack("{s:s, s:s, s:s, s:i, s:f, s:s, s:I}", "pinion", pinion_version(), "kernel", u.release,
			 "machine", u.machine, "processors", get_nprocs(), "load", avg, "shmem_enabled", shmem, "bytes",
			 (json_int_t)r->bytes);
}

static bool has_huge(void)
{
	struct pinion_context *ctx;
	bool huge;

	if (pinion_open(NULL, &ctx))
		return false;
	huge = pages_huge(ctx);
	pinion_close(ctx);
	return huge;
}

static void run_groups(const struct wish *w, struct rows *r, bool by_pages)
{
	for (unsigned int i = 0; i < GROUPS; i++)
		if (w->chosen[i] && groups[i].by_pages == by_pages)
			groups[i].run(r);
}

static bool wants_pages(const struct wish *w)
{
	for (unsigned int i = 0; i < GROUPS; i++)
		if (w->chosen[i] && groups[i].by_pages)
			return true;
	return false;
}

static void run_by_pages(const struct wish *w, struct rows *r)
{
	bool huge = has_huge();

	table_section(r->table, huge ? "memory as this machine gives it: huge pages" :
				       "memory as this machine gives it: small pages");
	run_groups(w, r, true);
	if (huge)
		return;
	table_section(r->table, "memory with shmem_enabled=advise for the run: huge pages");
	if (setting_write(SHMEM_THP, "advise"))
		table_absent(r->table, "all of it",
			     geteuid() ? "only root can set it" : "this kernel does not let it be set");
	else if (!has_huge())
		table_absent(r->table, "all of it", "shared memory gets small pages all the same");
	else
		run_groups(w, r, true);
}

static int run(const struct guard *g, void *arg)
{
	const struct wish *w = arg;
	struct table table;
	struct rows r = { .table = &table, .files = g->files, .files_why = g->files_why, .bytes = w->bytes };
	json_t *head;

	if (table_open(&table, w->json)) {
		fprintf(stderr, "pinion-bench: %s\n", broke_why());
		return 1;
	}
	head = about(&r);
	run_groups(w, &r, false);
	if (wants_pages(w))
		run_by_pages(w, &r);
	table_close(&table, head);
	return table.failed;
}

int main(int argc, char **argv)
{
	struct wish w;
	int ret = read_wish(&w, argc, argv);

	return ret >= 0 ? ret : guard_run(run, &w);
}
