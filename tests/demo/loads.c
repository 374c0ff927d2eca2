/* SPDX-License-Identifier: MIT */
/*
 * loads: what it costs to bring a model file into memory: by pinion, by a loop of pread, by mmap, by fio, in turns in
 * one run, with the file in the page cache and out of it.
 */
#include "figure.h"
#include "fio.h"

#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE	   (4u << 20)
#define ONCE_BYTES (UINT64_C(2) << 30) /* larger files are read once each way */

struct loads {
	const char *path;
	struct pinion_context *ctx;
	int fd;
	uint64_t bytes;
	unsigned int turns;
	bool private_copy; /* there is memory for one */
};

/* ---- the page cache ---------------------------------------------------------------------------------------------- */

/* Percent of the file that the page cache holds. Looking does not read. */
static unsigned int cached_percent(const struct loads *l)
{
	uint64_t page = sysconf(_SC_PAGESIZE), pages = (l->bytes + page - 1) / page, held = 0;
	unsigned char *map = calloc(pages, 1);
	void *at = mmap(NULL, l->bytes, PROT_READ, MAP_SHARED, l->fd, 0);

	if (!map || at == MAP_FAILED || mincore(at, l->bytes, map))
		err(1, "looking which pages of %s are cached", l->path);
	for (uint64_t i = 0; i < pages; i++)
		held += map[i] & 1;
	munmap(at, l->bytes);
	free(map);
	return held * 100 / pages;
}

static void make_warm(const struct loads *l)
{
	char *piece = malloc(PIECE);

	if (!piece)
		err(1, "%u bytes", PIECE);
	for (uint64_t at = 0; at < l->bytes; at += PIECE)
		if (pread(l->fd, piece, PIECE, at) < 0)
			err(1, "%s", l->path);
	free(piece);
}

/* False when the page cache keeps it, as it does a file that lies in memory. */
static bool make_cold(const struct loads *l)
{
	/* Pages not yet written cannot be dropped. */
	fsync(l->fd);
	posix_fadvise(l->fd, 0, 0, POSIX_FADV_DONTNEED);
	return cached_percent(l) <= 5;
}

/* ---- ways to load ------------------------------------------------------------------------------------------------ */

static void by_pinion(const struct loads *l, struct figure *f)
{
	struct pinion_load_stats stats = { .size = sizeof(stats) };
	struct pinion_model *m;
	struct lap lap;

	lap_begin(&lap);
	if (pinion_model_load(l->ctx, l->path, NULL, &m))
		errx(1, "%s", pinion_error());
	lap_end(&lap);
	if (pinion_model_load_stats(m, &stats))
		errx(1, "%s", pinion_error());
	f->bytes = stats.bytes_read;
	figure_add(f, &lap, stats.read_ns / 1e9);
	snprintf(f->note, sizeof(f->note), "direct %u %%, moved %u %%",
		 (unsigned int)(stats.direct_bytes * 100 / stats.bytes_read),
		 (unsigned int)(stats.moved_bytes * 100 / stats.bytes_read));
	pinion_model_free(m);
}

/* Private memory, every page present, as a program that reads its own copy has it. */
static char *private_memory(uint64_t bytes)
{
	uint64_t page = sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		err(1, "%" PRIu64 " bytes", bytes);
	madvise(p, bytes, MADV_HUGEPAGE);
	for (uint64_t at = 0; at < bytes; at += page)
		p[at] = 1;
	return p;
}

static void read_file(int fd, const char *path, char *to, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes;) {
		ssize_t n = pread(fd, to + at, PIECE, at);

		if (n <= 0)
			err(1, "%s at %" PRIu64, path, at);
		at += n;
	}
}

static void by_pread(const struct loads *l, int fd, struct figure *f)
{
	/* Whole pieces at the end too, which direct reads need. */
	uint64_t room = (l->bytes + PIECE - 1) / PIECE * PIECE;
	struct lap whole, reading;
	char *p;

	if (!l->private_copy) {
		snprintf(f->note, sizeof(f->note), "left out: there is no memory for a private copy");
		return;
	}
	lap_begin(&whole);
	p = private_memory(room);
	lap_begin(&reading);
	read_file(fd, l->path, p, l->bytes);
	lap_end(&reading);
	lap_end(&whole);
	f->bytes = l->bytes;
	figure_add(f, &whole, reading.seconds);
	munmap(p, room);
}

static void by_direct_pread(const struct loads *l, struct figure *f)
{
	int fd = open(l->path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0) {
		snprintf(f->note, sizeof(f->note), "no direct reads here: %s", strerror(errno));
		return;
	}
	by_pread(l, fd, f);
	close(fd);
}

static void by_mmap(const struct loads *l, struct figure *f)
{
	struct lap lap;
	void *p;

	lap_begin(&lap);
	p = mmap(NULL, l->bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, l->fd, 0);
	lap_end(&lap);
	if (p == MAP_FAILED)
		err(1, "mapping %s", l->path);
	f->bytes = l->bytes;
	figure_add(f, &lap, 0);
	munmap(p, l->bytes);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void warm(const struct loads *l)
{
	struct figure pinion = { .what = "load into one shared buffer (pinion)" },
		      plain = { .what = "pread loop into private memory" };
	struct figure map = { .what = "mmap with MAP_POPULATE" }, fio = { .what = "fio, io_uring, buffered, 4 MiB, depth 4" };

	make_warm(l);
	printf("warm, the page cache holds %u %% of the file:\n", cached_percent(l));
	for (unsigned int i = 0; i < l->turns; i++) {
		by_pinion(l, &pinion);
		by_pread(l, l->fd, &plain);
		by_mmap(l, &map);
	}
	fio_read(l->path, false, &fio);
	figure_print(&pinion);
	figure_print(&plain);
	figure_print(&map);
	figure_print(&fio);
	if (figure_seconds(&map) < figure_seconds(&pinion))
		printf("  mmap wins here: of a file that the page cache holds it copies nothing, and processes share those pages "
		       "too;\n"
		       "  they stay only as long as the page cache keeps them.\n");
}

static void cold(const struct loads *l)
{
	struct figure pinion = { .what = "load into one shared buffer (pinion)" },
		      plain = { .what = "pread loop into private memory" };
	struct figure direct = { .what = "pread loop past the page cache, O_DIRECT" }, map = { .what = "mmap with MAP_POPULATE" };
	struct figure fio = { .what = "fio, io_uring, O_DIRECT, 4 MiB, depth 4" };

	if (!make_cold(l)) {
		printf("cold: not to be had here, the page cache keeps %u %% of the file (or does not say, when it is not "
		       "yours)\n",
		       cached_percent(l));
		return;
	}
	printf("cold, the page cache holds %u %% of the file:\n", cached_percent(l));
	for (unsigned int i = 0; i < l->turns; i++) {
		by_pinion(l, &pinion);
		make_cold(l);
		by_pread(l, l->fd, &plain);
		make_cold(l);
		by_direct_pread(l, &direct);
		make_cold(l);
		by_mmap(l, &map);
		make_cold(l);
	}
	fio_read(l->path, true, &fio);
	figure_print(&pinion);
	figure_print(&plain);
	figure_print(&direct);
	figure_print(&map);
	figure_print(&fio);
}

/* The load has memory of its own and is refused when it does not fit; a private copy beside it has to be asked for. */
static bool room_for_copy(uint64_t bytes)
{
	unsigned long long kib = 0;
	char line[256];
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %llu", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib * 1024 > bytes + bytes / 4;
}

int main(int argc, char **argv)
{
	struct loads l = { .turns = 3 };
	struct stat st;

	if (argc != 2)
		errx(2, "usage: demo-loads MODEL");
	l.path = argv[1];
	l.fd = open(l.path, O_RDONLY | O_CLOEXEC);
	if (l.fd < 0 || fstat(l.fd, &st))
		err(1, "%s", l.path);
	l.bytes = st.st_size;
	if (l.bytes > ONCE_BYTES)
		l.turns = 1;
	l.private_copy = room_for_copy(l.bytes);
	if (pinion_open(NULL, &l.ctx))
		errx(1, "%s", pinion_error());
	setlinebuf(stdout);
	figure_heading();
	warm(&l);
	cold(&l);
	pinion_close(l.ctx);
	close(l.fd);
	return 0;
}
