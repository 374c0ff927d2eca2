/* SPDX-License-Identifier: MIT */
/* loads: the rows of a model file that is loaded, cold, cold and unaligned, and warm. */
#include "fio.h"
#include "load.h"
#include "rows.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TENSOR_BYTES (32u << 20)

/* Where the rows would take longer than this, they get a smaller file. */
#define COLD_MOST_NS 70e9
#define WARM_MOST_NS 40e9

static const unsigned int size_of[SIZES] = { 1, HALF, SHORTER };
static const char *const name_of[SIZES] = { "large.gguf", "half.gguf", "small.gguf" };

/* What a group of rows works with. */
struct group {
	struct rows *rows;
	const char *name;
	struct pinion_context *ctx;
	struct loading loading;
	char pages[PAGES_TEXT];
	char note[192];
	char log[PATH_MAX + 16];
	struct trial trial;
	unsigned int load, base, again;
};

static unsigned int tensors_of(uint64_t bytes)
{
	return bytes > TENSOR_BYTES ? bytes / TENSOR_BYTES : 1;
}

static int need_file(struct rows *r, unsigned int size)
{
	uint64_t bytes = r->bytes / size_of[size];

	if (r->file[size].bytes)
		return 0;
	return model_file_gguf(&r->file[size], r->files, name_of[size], bytes, tensors_of(bytes));
}

static int need_unaligned(struct rows *r)
{
	uint64_t bytes = r->bytes / SHORTER;

	if (r->unaligned.bytes)
		return 0;
	return model_file_unaligned(&r->unaligned, r->files, "unaligned.safetensors", bytes, tensors_of(bytes));
}

/* Everything but the ways. Whatever fails leaves its row. */
static bool group_open(struct group *g, struct rows *r, const char *name, bool cold)
{
	int ret;

	memset(g, 0, sizeof(*g));
	g->rows = r;
	g->name = name;
	if (!*r->files) {
		table_absent(r->table, name, r->files_why);
		return false;
	}
	snprintf(g->log, sizeof(g->log), "%s/fio.json", r->files);
	ret = pinion_open(NULL, &g->ctx);
	if (ret) {
		broke_pinion(ret, "a context");
		table_broken(r->table, name);
		return false;
	}
	g->loading.ctx = g->ctx;
	g->loading.cold = cold;
	return true;
}

static void group_close(struct group *g)
{
	pinion_close(g->ctx);
}

/* Takes the file and looks at one load of it. */
static int group_file(struct group *g, struct model_file *f)
{
	int ret = 0;

	g->loading.file = f;
	if (!g->loading.cold)
		ret = model_file_heat(f);
	return ret ? ret : load_look(&g->loading, g->pages, g->note, sizeof(g->note));
}

/* With the largest file that takes no longer than @most_ns; where pages are small, everything takes long. */
static int group_run(struct group *g, void (*add_ways)(struct group *g, void *arg), void *arg, double most_ns)
{
	double ns = INFINITY;
	int ret = 0;

	for (unsigned int i = pages_huge(g->ctx) ? 0 : SIZES - 1; i < SIZES && !ret && ns * ROUNDS > most_ns; i++) {
		ret = need_file(g->rows, i);
		if (!ret)
			ret = group_file(g, &g->rows->file[i]);
		if (ret)
			break;
		add_ways(g, arg);
		ret = trial_warm(&g->trial, &ns);
	}
	return ret ? ret : trial_run(&g->trial);
}

/* The group's load in GiB/s over way @base, which was also run as @again. */
static struct row speed_row(const struct group *g, const char *against, unsigned int base, unsigned int again)
{
	return (struct row){ .name = g->name,
			     .against = against,
			     .figure = 1e9 / trial_figure(&g->trial, g->load, TIME).median,
			     .unit = "GiB/s",
			     .ratio = trial_ratio(&g->trial, base, g->load, TIME),
			     .same = trial_ratio(&g->trial, base, again, TIME),
			     .pages = g->pages };
}

static struct row whole_row(const struct group *g)
{
	return (struct row){ .name = "load cold, whole",
			     .against = "pinion_buffer_alloc + pread",
			     .figure = trial_figure(&g->trial, g->load, WHOLE).median / 1e6,
			     .unit = "ms/GiB",
			     .ratio = trial_ratio(&g->trial, g->load, g->base, WHOLE),
			     .same = trial_ratio(&g->trial, g->again, g->base, WHOLE),
			     .pages = g->pages,
			     .note = "with the index, making the buffer and sealing it" };
}

static struct row cpu_row(const struct group *g, const char *name, const char *against, double limit)
{
	return (struct row){ .name = name,
			     .against = against,
			     .figure = trial_figure(&g->trial, g->load, CPU).median / 1e6,
			     .unit = "ms/GiB",
			     .ratio = trial_ratio(&g->trial, g->load, g->base, CPU),
			     .same = trial_ratio(&g->trial, g->again, g->base, CPU),
			     .bar = BAR_RATIO_MAX,
			     .limit = limit,
			     .pages = g->pages };
}

/* ---- cold ---------------------------------------------------------------------------------------------------- */

struct fios {
	struct fio huge, small;
	bool has, has_huge;
	unsigned int bar, bar_again, like; /* ways: that of the bar, twice, and that with small pages too */
};

static void fios_find(struct fios *f, struct group *g)
{
	memset(f, 0, sizeof(*f));
	f->has = fio_here();
	f->has_huge = f->has && fio_pool();
	f->huge = (struct fio){ .log = g->log, .huge = true };
	f->small = (struct fio){ .log = g->log, .huge = false };
}

static void add_cold_ways(struct group *g, void *arg)
{
	struct fios *f = arg;
	struct trial *t = &g->trial;

	trial_start(t, ROUNDS);
	f->huge.file = f->small.file = g->loading.file;
	g->load = trial_add(t, load_way, &g->loading);
	if (f->has)
		f->bar = trial_add(t, fio_way, f->has_huge ? &f->huge : &f->small);
	g->base = trial_add(t, load_pread, &g->loading);
	g->again = trial_add(t, load_pread, &g->loading);
	if (f->has)
		f->bar_again = trial_add(t, fio_way, f->has_huge ? &f->huge : &f->small);
	if (f->has_huge && !pages_huge(g->ctx))
		f->like = trial_add(t, fio_way, &f->small);
}

static void fio_rows(struct group *g, const struct fios *f)
{
	struct row row = speed_row(g, f->has_huge ? "fio, 2 MiB pages" : "fio, 4 KiB pages", f->bar, f->bar_again);

	row.bar = BAR_RATIO_MIN;
	row.limit = 0.95;
	row.note = g->note;
	if (!f->has_huge)
		row.note = "fio got no huge pages: the pool (vm.nr_hugepages) has none and only root can give it some";
	table_row(g->rows->table, &row);
	if (f->like) {
		row = speed_row(g, "fio, 4 KiB pages", f->like, f->like);
		row.same = (struct spread){ 0 };
		row.note = "the page size of this pass on both sides";
		table_row(g->rows->table, &row);
	}
}

static void cold_rows(struct group *g, const struct fios *f)
{
	struct row row;

	if (f->has)
		fio_rows(g, f);
	else
		table_absent(g->rows->table, g->name, "fio is not installed, which the bar is against");
	row = speed_row(g, "O_DIRECT pread of 4 MiB", g->base, g->again);
	row.cpu = trial_ratio(&g->trial, g->load, g->base, CPU).median;
	row.note = f->has ? NULL : g->note;
	table_row(g->rows->table, &row);
	row = whole_row(g);
	table_row(g->rows->table, &row);
	row = cpu_row(g, "load cold, CPU of direct bytes", "O_DIRECT pread of 4 MiB", 1.3);
	table_row(g->rows->table, &row);
}

void rows_cold(struct rows *r)
{
	static struct group g;
	struct fios f;

	if (!group_open(&g, r, "load cold, reading", true))
		return;
	fios_find(&f, &g);
	if (group_run(&g, add_cold_ways, &f, COLD_MOST_NS))
		table_broken(r->table, g.name);
	else
		cold_rows(&g, &f);
	group_close(&g);
}

/* ---- cold, and every byte must be moved ---------------------------------------------------------------------- */

static int moved_run(struct group *g)
{
	double ns;
	int ret = need_unaligned(g->rows);

	if (!ret)
		ret = group_file(g, &g->rows->unaligned);
	if (ret)
		return ret;
	trial_start(&g->trial, ROUNDS);
	g->load = trial_add(&g->trial, load_way, &g->loading);
	g->base = trial_add(&g->trial, load_moved, &g->loading);
	g->again = trial_add(&g->trial, load_moved, &g->loading);
	ret = trial_warm(&g->trial, &ns);
	return ret ? ret : trial_run(&g->trial);
}

void rows_moved(struct rows *r)
{
	static struct group g;
	struct row row;

	if (!group_open(&g, r, "load cold, unaligned, reading", true))
		return;
	if (moved_run(&g)) {
		table_broken(r->table, g.name);
	} else {
		row = speed_row(&g, "O_DIRECT pread + memcpy", g.base, g.again);
		row.cpu = trial_ratio(&g.trial, g.load, g.base, CPU).median;
		row.note = g.note;
		table_row(r->table, &row);
		row = cpu_row(&g, "load cold, CPU of moved bytes", "O_DIRECT pread + memcpy", 1.1);
		table_row(r->table, &row);
	}
	group_close(&g);
}

/* ---- warm ---------------------------------------------------------------------------------------------------- */

static void add_warm_ways(struct group *g, void *map)
{
	trial_start(&g->trial, ROUNDS);
	g->load = trial_add(&g->trial, load_way, &g->loading);
	g->base = trial_add(&g->trial, load_pread, &g->loading);
	g->again = trial_add(&g->trial, load_pread, &g->loading);
	*(unsigned int *)map = trial_add(&g->trial, load_mmap, &g->loading);
}

void rows_warm(struct rows *r)
{
	static struct group g;
	unsigned int map;
	struct row row;

	if (!group_open(&g, r, "load warm, reading", false))
		return;
	if (group_run(&g, add_warm_ways, &map, WARM_MOST_NS)) {
		table_broken(r->table, g.name);
	} else {
		row = speed_row(&g, "pread of 4 MiB, 1 thread", g.base, g.again);
		row.cpu = trial_ratio(&g.trial, g.load, g.base, CPU).median;
		row.bar = BAR_RATIO_MIN;
		row.limit = 0.95;
		row.note = g.note;
		table_row(r->table, &row);
		row = speed_row(&g, "mmap + MAP_POPULATE", map, map);
		row.same = (struct spread){ 0 };
		row.note = "mmap copies nothing, and pins nothing";
		if (row.ratio.median < 1)
			row.note = "mmap wins for hot data that is only read: it copies nothing, and pins nothing";
		table_row(r->table, &row);
	}
	group_close(&g);
}
