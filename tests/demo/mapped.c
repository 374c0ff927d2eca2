/* SPDX-License-Identifier: MIT */
/* mapped: the same products over pinion's buffer and over the file mapped by mmap, in turns, on one thread. */
#include "figure.h"
#include "matvec.h"
#include "product.h"

#include <err.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quant/decode.h"

#define TURNS	   3
#define CLOSE	   0.05			 /* differences up to this say nothing after so few turns */
#define ROWS_MAX   16384		 /* of one tensor */
#define BYTES_MAX  (UINT64_C(256) << 20) /* of all */
#define STEP_ELEMS (64u << 10)		 /* decoded at once, so that the floats stay in the CPU's caches */

struct part {
	uint32_t type;
	struct matrix m; /* rows: those multiplied */
	uint64_t offset, file_offset;
};

struct mapped {
	struct pinion_context *ctx;
	const char *name, *path;
	int fd;
	uint64_t file_bytes;
	struct part *part;
	uint64_t parts, bytes, widest;
	float *x, *w;
	double *y;
};

/* ---- the products ------------------------------------------------------------------------------------------------ */

static void list_parts(struct mapped *all, const struct pinion_model *m)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	struct pinion_tensor t;
	struct part part;

	if (pinion_model_info(m, &info))
		errx(1, "%s", pinion_error());
	all->part = calloc(info.tensors, sizeof(*all->part));
	if (!all->part)
		err(1, "a list of tensors");
	for (uint64_t i = 0; all->bytes < BYTES_MAX && !pinion_model_tensor_at(m, i, &t); i++) {
		if (!quant_can_decode(t.type) || !matrix_of(&t, info.format, &part.m))
			continue;
		part.m.rows = part.m.rows < ROWS_MAX ? part.m.rows : ROWS_MAX;
		part.type = t.type;
		part.offset = t.offset;
		part.file_offset = t.file_offset;
		all->part[all->parts++] = part;
		all->bytes += part.m.rows * part.m.row_bytes;
		all->widest = part.m.cols > all->widest ? part.m.cols : all->widest;
	}
}

static void make_room(struct mapped *all)
{
	all->x = product_vector(all->widest);
	all->w = calloc(all->widest + STEP_ELEMS, sizeof(*all->w));
	all->y = calloc(STEP_ELEMS, sizeof(*all->y));
	if (!all->w || !all->y)
		err(1, "%" PRIu64 " floats", all->widest);
}

/* Every product once over @base; the sum of all results shows that two bases hold the same. */
static double multiply_all(const struct mapped *all, const char *base, bool is_file)
{
	double sum = 0;

	for (uint64_t i = 0; i < all->parts; i++) {
		const struct part *p = &all->part[i];
		const char *stored = base + (is_file ? p->file_offset : p->offset);
		uint64_t step = STEP_ELEMS / p->m.cols ? STEP_ELEMS / p->m.cols : 1, rows;

		for (uint64_t row = 0; row < p->m.rows; row += rows) {
			rows = p->m.rows - row < step ? p->m.rows - row : step;
			if (matvec(p->type, stored + row * p->m.row_bytes, rows, p->m.cols, all->x, all->w, all->y))
				errx(1, "%s", pinion_error());
			for (uint64_t k = 0; k < rows; k++)
				sum += all->y[k];
		}
	}
	return sum;
}

/* ---- two places to multiply from --------------------------------------------------------------------------------- */

static const char *attach(const struct mapped *all, struct pinion_model **m)
{
	struct pinion_tensor t;

	if (pinion_model_attach(all->ctx, all->name, NULL, m) || pinion_model_tensor_at(*m, 0, &t))
		errx(1, "%s", pinion_error());
	return (const char *)t.data - t.offset;
}

static const char *map(const struct mapped *all)
{
	void *p = mmap(NULL, all->file_bytes, PROT_READ, MAP_SHARED, all->fd, 0);

	if (p == MAP_FAILED)
		err(1, "mapping %s", all->path);
	return p;
}

/* A load past the page cache left the file out of it. */
static void make_warm(const struct mapped *all)
{
	const char *file = map(all);

	multiply_all(all, file, true);
	munmap((void *)file, all->file_bytes);
}

/* From nothing to the results, page faults included. */
static double first(const struct mapped *all, bool is_file, const char **base, struct pinion_model **m, struct figure *f)
{
	struct lap lap;
	double sum;

	lap_begin(&lap);
	*base = is_file ? map(all) : attach(all, m);
	sum = multiply_all(all, *base, is_file);
	lap_end(&lap);
	f->bytes = all->bytes;
	figure_add(f, &lap, 0);
	return sum;
}

static double again(const struct mapped *all, bool is_file, const char *base, struct figure *f)
{
	struct lap lap;
	double sum;

	lap_begin(&lap);
	sum = multiply_all(all, base, is_file);
	lap_end(&lap);
	f->bytes = all->bytes;
	figure_add(f, &lap, 0);
	return sum;
}

static void check_equal(double a, double b)
{
	/* As bits, because a model may hold a NaN. */
	if (memcmp(&a, &b, sizeof(a)))
		errx(1, "the products over the buffer sum to %.17g and those over the mapped file to %.17g", a, b);
}

struct figures {
	struct figure buffer_first, buffer_again, file_first, file_again;
};

static void turn(const struct mapped *all, struct figures *f)
{
	const char *buffer, *file;
	struct pinion_model *m;
	double over_buffer, over_file;

	over_buffer = first(all, false, &buffer, &m, &f->buffer_first);
	over_file = first(all, true, &file, &m, &f->file_first);
	check_equal(over_buffer, over_file);
	/* The other way round, so that neither is always the first. */
	over_file = again(all, true, file, &f->file_again);
	over_buffer = again(all, false, buffer, &f->buffer_again);
	check_equal(over_buffer, over_file);
	munmap((void *)file, all->file_bytes);
	pinion_model_free(m);
}

static void print(const struct mapped *all, const struct figures *f)
{
	double mapped = figure_seconds(&f->file_first), attached = figure_seconds(&f->buffer_first);

	printf("decode and multiply %.1f MiB of tensors on one thread, the file warm:\n", all->bytes / 1048576.0);
	figure_print(&f->buffer_first);
	figure_print(&f->file_first);
	figure_print(&f->buffer_again);
	figure_print(&f->file_again);
	if (mapped < attached * (1 - CLOSE))
		printf("  mmap wins the first pass by %.1f ms, even before the load that the buffer needs is counted.\n",
		       (attached - mapped) * 1e3);
	else if (attached < mapped * (1 - CLOSE))
		printf("  The buffer wins the first pass by %.1f ms; the load that it needs once is not in it.\n",
		       (mapped - attached) * 1e3);
	else
		printf("  Neither wins: they are within %.0f %%. The load that the buffer needs once is not in it.\n",
		       CLOSE * 100);
}

int main(int argc, char **argv)
{
	struct figures f = { .buffer_first = { .what = "attach to the buffer, first pass" },
			     .buffer_again = { .what = "a later pass over the buffer" },
			     .file_first = { .what = "mmap of the file, first pass" },
			     .file_again = { .what = "a later pass over the mapped file" } };
	struct mapped all = { 0 };
	struct pinion_model *m;
	struct stat st;

	if (argc != 3)
		errx(2, "usage: demo-mapped NAME MODEL");
	all.name = argv[1];
	all.path = argv[2];
	all.fd = open(all.path, O_RDONLY | O_CLOEXEC);
	if (all.fd < 0 || fstat(all.fd, &st))
		err(1, "%s", all.path);
	all.file_bytes = st.st_size;
	if (pinion_open(NULL, &all.ctx))
		errx(1, "%s", pinion_error());
	attach(&all, &m);
	list_parts(&all, m);
	pinion_model_free(m);
	if (!all.parts)
		errx(1, "no tensor of %s can be decoded", all.path);
	make_room(&all);
	make_warm(&all);
	for (unsigned int i = 0; i < TURNS; i++)
		turn(&all, &f);
	print(&all, &f);
	pinion_close(all.ctx);
	free(all.part);
	free(all.x);
	free(all.w);
	free(all.y);
	close(all.fd);
	return 0;
}
