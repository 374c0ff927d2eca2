/* SPDX-License-Identifier: MIT */
/*
 * worker: attaches to a model by name and multiplies its share of a list of products, over and over, through a stream
 * that counts each of them on a device; compares every result with the reference.
 *
 * Which device that is, demo-crew picked: it hands over a claim on it as a descriptor, which the worker inherits, adopts
 * and holds until it ends. What its rows decode to has to fit the claim.
 *
 * demo-crew speaks to it on stdin, a letter at a time, and it answers on stdout, a line at a time:
 *
 *   (start)  attached NS TOUCHED_NS    how long the attach took, and touching every page after it
 *   h        held N                    nothing moves any more and exactly N units are in flight
 *   g                                  goes on
 *   q        done TENSORS PRODUCTS CHECKED COMPARED WRONG
 */
#include "matvec.h"
#include "product.h"
#include "sha256.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pinion/pinion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ATTACH_NS (INT64_C(60) * 1000000000)
#define DEEPEST	  12
#define TOLERANCE 1e-9 /* of the sum of |w||x|: the floats are equal, only the order of sums in doubles differs */

/* A product of this worker's share and where its rows are. */
struct job {
	struct worker *worker;
	const struct product *product;
	const void *stored;
	uint32_t type;
	bool blamed;
};

struct worker {
	char name[16]; /* "worker 2", which begins its sentences too */
	struct pinion_model *model;
	struct pinion_reservation *claim;
	struct pinion_stream *stream;
	struct products products;
	struct job *job;
	uint64_t jobs, next;
	uint64_t last; /* the stream's last operation */
	int gate;      /* an eventfd that a held stream waits for */
	float *x;      /* as long as the longest row */
	/* The stream's thread's alone, until a flush: */
	float *w;
	double *y;
	uint64_t compared, wrong;
};

/* ---- one product, on the stream's thread ------------------------------------------------------------------------- */

static void blame(struct job *job, const char *what)
{
	const struct product *p = job->product;

	job->worker->wrong++;
	if (job->blamed)
		return;
	job->blamed = true;
	fprintf(stderr, "%s: %s (%s) rows %" PRIu64 " to %" PRIu64 ": %s\n", job->worker->name, p->name, p->type, p->first,
		p->first + p->rows - 1, what);
}

static bool sums_agree(double y, const struct expected *e)
{
	/* A row with an infinity or a NaN in it has a sum that says so too. */
	if (!isfinite(e->y))
		return !isfinite(y);
	return fabs(y - e->y) <= TOLERANCE * e->magnitude;
}

static void compare(struct job *job)
{
	struct worker *worker = job->worker;
	const struct product *p = job->product;
	char digest[DIGEST_ROOM];

	worker->compared++;
	sha256_hex(worker->w, p->rows * p->cols * sizeof(*worker->w), digest);
	if (strcmp(digest, p->digest)) {
		blame(job, "the decoded floats are not those of the reference");
		return;
	}
	for (uint64_t i = 0; i < p->rows; i++)
		if (!sums_agree(worker->y[i], &p->expected[i])) {
			blame(job, "a product is not that of the reference");
			return;
		}
}

static int multiply(void *arg)
{
	struct job *job = arg;
	const struct product *p = job->product;
	struct worker *worker = job->worker;
	int ret = matvec(job->type, job->stored, p->rows, p->cols, worker->x, worker->w, worker->y);

	if (!ret && p->checked)
		compare(job);
	return ret;
}

/* ---- the share --------------------------------------------------------------------------------------------------- */

static void find_rows(struct worker *worker, const char *format, struct job *job)
{
	const struct product *p = job->product;
	struct pinion_tensor t;
	struct matrix m;

	if (pinion_model_tensor(worker->model, p->name, &t))
		errx(1, "%s", pinion_error());
	if (!matrix_of(&t, format, &m) || strcasecmp(p->type, pinion_type_info(t.type)->name) || m.cols != p->cols ||
	    p->first + p->rows > m.rows)
		errx(1, "%s: the model and the reference speak of different tensors", p->name);
	job->stored = (const char *)t.data + p->first * m.row_bytes;
	job->type = t.type;
}

/* A claim that is kept to: what is computed with takes no more than was claimed for it. */
static void make_room(struct worker *worker, const struct need *need)
{
	struct pinion_reservation_info info = { .size = sizeof(info) };

	if (pinion_reservation_info(worker->claim, &info))
		errx(1, "%s", pinion_error());
	if (need_bytes(need) > info.bytes)
		errx(1, "%" PRIu64 " bytes are claimed on %s and the share needs %" PRIu64, info.bytes, info.key,
		     need_bytes(need));
	worker->x = product_vector(need->cols);
	worker->w = calloc(need->elems, sizeof(*worker->w));
	worker->y = calloc(need->rows, sizeof(*worker->y));
	if (!worker->w || !worker->y)
		err(1, "%" PRIu64 " floats", need->elems);
}

static void take_share(struct worker *worker, unsigned int mine, unsigned int of)
{
	struct pinion_index_info info = { .size = sizeof(info) };
	const struct products *all = &worker->products;
	struct need need;

	if (pinion_model_info(worker->model, &info))
		errx(1, "%s", pinion_error());
	worker->job = calloc(all->n, sizeof(*worker->job));
	for (size_t i = 0; worker->job && i < all->n; i++) {
		const struct product *p = &all->product[i];

		if (!product_is_of(p, mine, of))
			continue;
		worker->job[worker->jobs] = (struct job){ .worker = worker, .product = p };
		find_rows(worker, info.format, &worker->job[worker->jobs++]);
	}
	if (!worker->jobs)
		errx(1, "there are fewer tensors than workers");
	products_need(all, mine, of, &need);
	make_room(worker, &need);
}

static uint64_t count_tensors(const struct worker *worker)
{
	uint64_t n = 1;

	for (uint64_t i = 1; i < worker->jobs; i++)
		n += strcmp(worker->job[i].product->name, worker->job[i - 1].product->name) != 0;
	return n;
}

static uint64_t count_checked(const struct worker *worker)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < worker->jobs; i++)
		n += worker->job[i].product->checked;
	return n;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

static void submit(struct worker *worker, pinion_call_fn fn, void *arg)
{
	if (pinion_stream_call(worker->stream, fn, arg, &worker->last))
		errx(1, "%s", pinion_error());
}

static void submit_next(struct worker *worker)
{
	submit(worker, multiply, &worker->job[worker->next++ % worker->jobs]);
}

static void flush(struct worker *worker)
{
	if (pinion_stream_flush(worker->stream, PINION_FOREVER))
		errx(1, "%s", pinion_error());
}

/*
 * Submits one more when there is room. The room changes as the work goes on, so that the count is seen to move, and is
 * never less than two, so that something nearly always is in flight.
 */
static void work(struct worker *worker)
{
	uint64_t room = 2 + (worker->next * 5 / 16) % (DEEPEST - 1);

	if (worker->last >= room && pinion_stream_wait(worker->stream, worker->last - room + 1, PINION_FOREVER))
		errx(1, "%s", pinion_error());
	submit_next(worker);
}

static int wait_at_gate(void *arg)
{
	struct worker *worker = arg;
	uint64_t count;

	return read(worker->gate, &count, sizeof(count)) == sizeof(count) ? 0 : -EIO;
}

/* Brings everything to a stop with @units in flight: one that waits at the gate and others behind it. */
static void hold(struct worker *worker, unsigned int units)
{
	flush(worker);
	submit(worker, wait_at_gate, worker);
	for (unsigned int i = 1; i < units; i++)
		submit_next(worker);
	printf("held %u\n", units);
}

static void go_on(struct worker *worker)
{
	uint64_t one = 1;

	if (write(worker->gate, &one, sizeof(one)) != sizeof(one))
		err(1, "opening the gate");
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
	return pinion_deadline_in(0);
}

/* Reads one byte of every page, so that this process's mapping shows all of the pages it shares. */
static void touch(const struct pinion_model *m)
{
	uint64_t size = pinion_buffer_size(pinion_model_buffer(m)), page = sysconf(_SC_PAGESIZE);
	void *base;

	if (pinion_buffer_map(pinion_model_buffer(m), PINION_READ, &base))
		errx(1, "%s", pinion_error());
	for (uint64_t at = 0; at < size; at += page)
		(void)*((const volatile char *)base + at);
	pinion_buffer_unmap(pinion_model_buffer(m), PINION_READ);
}

static void attach(struct worker *worker, struct pinion_context *ctx, const char *name)
{
	struct pinion_attach_opts opts = { .size = sizeof(opts), .deadline_ns = pinion_deadline_in(ATTACH_NS) };
	int64_t start = now_ns(), attached;

	if (pinion_model_attach(ctx, name, &opts, &worker->model))
		errx(1, "%s", pinion_error());
	attached = now_ns();
	touch(worker->model);
	printf("attached %" PRId64 " %" PRId64 "\n", attached - start, now_ns() - attached);
}

/* The claim is this process's from here on, by a descriptor of its own; the one that came with it is of no more use. */
static void take_claim(struct worker *worker, struct pinion_context *ctx, int fd)
{
	struct pinion_device *dev;

	if (pinion_reservation_adopt(ctx, fd, &worker->claim) || pinion_reservation_device(worker->claim, &dev) ||
	    pinion_stream_new(dev, NULL, &worker->stream))
		errx(1, "%s", pinion_error());
	close(fd);
}

/* The next letter, 0 when there is none yet, 'q' when demo-crew is gone. */
static char hear(bool wait)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	char c;

	if (poll(&p, 1, wait ? -1 : 0) <= 0)
		return 0;
	return read(STDIN_FILENO, &c, 1) == 1 ? c : 'q';
}

static void obey(struct worker *worker, unsigned int units)
{
	char c = 0;

	while (c != 'q') {
		work(worker);
		c = hear(false);
		if (c != 'h')
			continue;
		hold(worker, units);
		do
			c = hear(true);
		while (!c);
		go_on(worker);
	}
	/* Each at least once. */
	while (worker->next < worker->jobs)
		work(worker);
	flush(worker);
}

static void give_up(struct worker *worker)
{
	pinion_stream_free(worker->stream);
	pinion_reservation_free(worker->claim);
	pinion_model_free(worker->model);
	products_free(&worker->products);
	free(worker->job);
	free(worker->x);
	free(worker->w);
	free(worker->y);
	close(worker->gate);
}

int main(int argc, char **argv)
{
	struct worker worker = { 0 };
	struct pinion_context *ctx;
	unsigned int mine, of;

	if (argc != 7)
		errx(2, "usage: demo-worker NAME REFERENCE SHARE SHARES UNITS CLAIM\n"
			"(SHARE from 0; UNITS in flight when held; CLAIM: a descriptor)");
	mine = atoi(argv[3]);
	of = atoi(argv[4]);
	snprintf(worker.name, sizeof(worker.name), "worker %u", mine + 1);
	program_invocation_short_name = worker.name;
	setlinebuf(stdout);
	worker.gate = eventfd(0, EFD_CLOEXEC);
	if (worker.gate < 0)
		err(1, "eventfd");
	products_read(argv[2], true, &worker.products);
	if (pinion_open(NULL, &ctx))
		errx(1, "%s", pinion_error());
	take_claim(&worker, ctx, atoi(argv[6]));
	attach(&worker, ctx, argv[1]);
	take_share(&worker, mine, of);
	obey(&worker, atoi(argv[5]));
	printf("done %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", count_tensors(&worker), worker.jobs,
	       count_checked(&worker), worker.compared, worker.wrong);
	give_up(&worker);
	pinion_close(ctx);
	return worker.wrong != 0;
}
