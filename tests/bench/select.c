/* SPDX-License-Identifier: MIT */
/* select: choosing among eight devices, asking about memory, and a pick, against one read of what the kernel says. */
#include "peer.h"
#include "quiet.h"
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEVICES	 8
#define OTHERS	 3     /* sessions beside this one */
#define CAPACITY 8     /* a queue of a few units is below it, so that no candidate is cut short */
#define TIMINGS	 10000 /* at most, of which one way takes its percentile */
#define EMPTIES	 500
#define FITS	 200000 /* milliseconds, so that measuring anew now and then weighs what it does in use */
#define READS	 2000
#define PICKS	 500
#define BURST	 64 /* units between two looks at whether to stop */

/* What selects. */
struct stage {
	struct pinion_context *ctx;
	struct pinion_device *dev[DEVICES], *cpu;
	struct pinion_device_runtime room[DEVICES];
	struct pinion_ticket ticket[DEVICES];
	struct pinion_set *set;
	struct pinion_selector *selector;
	struct peer other[OTHERS];
};

/* One read of a file of the kernel's, which is open already. */
struct kernel_read {
	const char *name;
	int fd;
	bool failed;
};

static struct kernel_read baseline = { .fd = -1 };

static void key_of(char key[24], unsigned int d)
{
	snprintf(key, 24, "bench-select-%u", d);
}

static int add_devices(struct pinion_context *ctx, struct pinion_device *dev[DEVICES])
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = CAPACITY, .budget = UINT64_C(1) << 30 };
	char key[24];
	int ret = 0;

	for (unsigned int d = 0; !ret && d < DEVICES; d++) {
		key_of(key, d);
		ret = pinion_device_add(ctx, key, &opts, &dev[d]);
	}
	return ret;
}

/* ---- the baseline ------------------------------------------------------------------------------------------------ */

static int read_kernel(struct kernel_read *k)
{
	char text[256];

	return pread(k->fd, text, sizeof(text), 0) > 0 ? 0 : -EIO;
}

/* Pressure is there when the kernel was built with it and not told to leave it out. */
static int baseline_open(void)
{
	static const char *const path[] = { "/proc/pressure/memory", "/proc/loadavg" };
	static const char *const name[] = { "one PSI read", "one read of loadavg" };

	for (unsigned int i = 0; i < sizeof(path) / sizeof(path[0]); i++) {
		baseline.name = name[i];
		baseline.fd = open(path[i], O_RDONLY | O_CLOEXEC);
		if (baseline.fd >= 0 && !read_kernel(&baseline))
			return 0;
		if (baseline.fd >= 0)
			close(baseline.fd);
	}
	baseline.fd = -1;
	return broke(ENOENT, "neither /proc/pressure/memory nor /proc/loadavg can be read");
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static void write_until_told(int sock, struct pinion_device *const dev[DEVICES])
{
	struct pinion_ticket ticket = { 0 };
	char byte;

	while (recv(sock, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) {
		for (unsigned int i = 0; i < BURST; i++) {
			pinion_work_begin(dev[i % DEVICES], 1, &ticket);
			pinion_work_end(&ticket);
		}
	}
}

/* A session with a unit on each device, which writes from one byte to the next and stands still otherwise. */
static void be_other(int sock, void *arg)
{
	static struct pinion_ticket ticket[DEVICES];
	struct pinion_device *dev[DEVICES];
	struct pinion_context *ctx;

	(void)arg;
	if (pinion_open(NULL, &ctx) || add_devices(ctx, dev))
		return;
	for (unsigned int d = 0; d < DEVICES; d++)
		if (pinion_work_begin(dev[d], 1, &ticket[d]))
			return;
	if (!peer_say(sock))
		return;
	while (peer_hear(sock))
		write_until_told(sock, dev);
}

static int others_start(struct stage *s)
{
	int ret = 0;

	for (unsigned int i = 0; !ret && i < OTHERS; i++)
		ret = peer_start(&s->other[i], be_other, NULL);
	return ret;
}

static int others_tell(struct stage *s)
{
	for (unsigned int i = 0; i < OTHERS; i++)
		if (!peer_say(s->other[i].sock))
			return broke(EPIPE, "a process that writes is gone");
	return 0;
}

/* ---- the stage --------------------------------------------------------------------------------------------------- */

static struct pinion_runtime *look_up(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	struct stage *s = arg;

	(void)backend;
	return &s->room[device.index].runtime;
}

/* Times that differ and a best one that is in the middle. */
static int set_open(struct stage *s)
{
	int ret = pinion_set_new(&s->set);

	for (unsigned int d = 0; !ret && d < DEVICES; d++) {
		struct pinion_candidate c = {
			.backend = PINION_BACKEND_CUDA,
			.device = { .kind = PINION_BACKEND_CUDA, .index = d },
			.static_cost = { .flops = 30000, .bytes_moved = 1 << 20, .overhead_ns = 1000 * ((d + 4) % DEVICES) }
		};

		ret = pinion_set_push(s->set, &c);
	}
	return ret;
}

static int stage_open(struct stage *s)
{
	struct pinion_selector_opts opts = { .size = sizeof(opts), .lookup = look_up, .lookup_arg = s };
	int ret = pinion_open(NULL, &s->ctx);

	if (!ret)
		ret = pinion_device_find(s->ctx, "cpu", &s->cpu);
	if (!ret)
		ret = add_devices(s->ctx, s->dev);
	for (unsigned int d = 0; !ret && d < DEVICES; d++) {
		pinion_runtime_of_device(s->dev[d], &s->room[d]);
		ret = pinion_work_begin(s->dev[d], 1, &s->ticket[d]);
	}
	if (!ret)
		ret = set_open(s);
	if (!ret)
		ret = pinion_selector_chained(&opts, &s->selector);
	return ret ? broke_pinion(ret, "a selector on eight devices") : 0;
}

static void stage_close(struct stage *s)
{
	for (unsigned int i = 0; i < OTHERS; i++)
		peer_stop(&s->other[i]);
	pinion_selector_unref(s->selector);
	pinion_set_free(s->set);
	for (unsigned int d = 0; d < DEVICES; d++)
		if (s->ticket[d].device)
			pinion_work_end(&s->ticket[d]);
	if (s->ctx)
		pinion_close(s->ctx);
}

/* ---- percentiles of single calls --------------------------------------------------------------------------------- */

/* What the clock cannot resolve is timed several calls at a time; that smooths, and is no way to see the worst of them. */
struct scale {
	double percent;
	unsigned int timings;
	unsigned int calls; /* for each timing */
};

static const struct scale p50 = { 50, TIMINGS / 10, 8 };
static const struct scale p99 = { 99, TIMINGS, 1 };

struct timed {
	int (*call)(void *arg);
	void *arg;
	const struct scale *scale;
};

static int call_nothing(void *arg)
{
	(void)arg;
	return 0;
}

static int call_select(void *arg)
{
	struct stage *s = arg;
	size_t index;

	return pinion_select(s->selector, s->set, &index);
}

static int call_kernel(void *arg)
{
	return read_kernel(arg);
}

static int compare_ns(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int percentile(int (*call)(void *arg), void *arg, const struct scale *scale, double *out)
{
	static double ns[TIMINGS];
	int ret = 0;

	for (unsigned int i = 0; i < scale->timings; i++) {
		double start = now_ns();

		for (unsigned int c = 0; c < scale->calls; c++)
			ret |= call(arg);
		ns[i] = now_ns() - start;
	}
	qsort(ns, scale->timings, sizeof(*ns), compare_ns);
	*out = ns[(unsigned int)(scale->percent / 100 * (scale->timings - 1))] / scale->calls;
	return ret;
}

/* Without what the clock takes to look at. */
static int way_timed(void *arg, struct sample *out)
{
	const struct scale empty = { 50, EMPTIES, 1 };
	const struct timed *t = arg;
	double clock, full;

	percentile(call_nothing, NULL, &empty, &clock);
	if (percentile(t->call, t->arg, t->scale, &full))
		return broke(EIO, "a call that is timed failed");
	clock /= t->scale->calls;
	out->of[TIME] = full > clock ? full - clock : 1;
	return 0;
}

/* ---- loops of calls ---------------------------------------------------------------------------------------------- */

static void loop_fit(void *arg, uint64_t n)
{
	while (n--)
		pinion_device_would_fit(arg, UINT64_C(1) << 20);
}

static void loop_pick(void *arg, uint64_t n)
{
	static const char *keys[DEVICES];
	static char key[DEVICES][24];
	struct stage *s = arg;
	struct pinion_want want = { .size = sizeof(want), .bytes = 1 << 20, .units = 1, .keys = keys, .key_count = DEVICES };
	struct pinion_reservation *r;

	for (unsigned int d = 0; d < DEVICES; d++) {
		key_of(key[d], d);
		keys[d] = key[d];
	}
	while (n--)
		if (!pinion_pick(s->ctx, &want, &r))
			pinion_reservation_free(r);
}

static void loop_kernel(void *arg, uint64_t n)
{
	struct kernel_read *k = arg;

	while (n--)
		k->failed |= read_kernel(k) != 0;
}

struct loop {
	loop_fn run;
	void *arg;
	uint64_t n;
};

static int way_loop(void *arg, struct sample *out)
{
	const struct loop *l = arg;

	out->of[TIME] = loop_alone(l->run, l->arg, l->n);
	return baseline.failed ? broke(EIO, "%s failed", baseline.name) : 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

struct ask {
	const char *name;
	double limit_ns; /* 0: no bar */
	double cheaper;	 /* than the baseline, by this factor: a second row; 0: none */
	const char *note;
};

static void row_against(struct rows *r, const struct ask *ask, way_fn way, void *ours, void *theirs)
{
	struct row row = { .name = ask->name,
			   .against = baseline.name,
			   .unit = "ns",
			   .bar = ask->limit_ns > 0 ? BAR_FIGURE_MAX : BAR_NONE,
			   .limit = ask->limit_ns,
			   .note = ask->note };
	unsigned int our, their, our_again, their_again;
	struct trial t;
	double ns;

	trial_start(&t, ROUNDS_SHORT);
	our = trial_add(&t, way, ours);
	their = trial_add(&t, way, theirs);
	our_again = trial_add(&t, way, ours);
	their_again = trial_add(&t, way, theirs);
	if (trial_warm(&t, &ns) || trial_run(&t)) {
		table_broken(r->table, ask->name);
		return;
	}
	row.figure = trial_figure(&t, our, TIME).median;
	row.ratio = trial_ratio(&t, our, their, TIME);
	row.same = trial_ratio(&t, our_again, our, TIME);
	table_row(r->table, &row);
	if (ask->cheaper == 0)
		return;
	row.against = "the read over it";
	row.ratio = trial_ratio(&t, their, our, TIME);
	row.same = trial_ratio(&t, their_again, their, TIME);
	row.bar = BAR_RATIO_MIN;
	row.limit = ask->cheaper;
	row.note = NULL;
	table_row(r->table, &row);
}

static void row_select(struct rows *r, struct stage *s, const struct ask *ask, const struct scale *scale)
{
	struct timed ours = { call_select, s, scale }, theirs = { call_kernel, &baseline, scale };

	row_against(r, ask, way_timed, &ours, &theirs);
}

static void row_loop(struct rows *r, const struct ask *ask, loop_fn run, void *arg, uint64_t n)
{
	struct loop ours = { run, arg, n }, theirs = { loop_kernel, &baseline, READS };

	row_against(r, ask, way_loop, &ours, &theirs);
}

/* With this session alone. */
static void rows_alone(struct rows *r, struct stage *s)
{
	static const struct ask alone = { "select among 8, 1 session, p50", 200, 10, NULL };
	static const struct ask fit = { "would_fit of 'cpu'", 1000, 0, NULL };
	bool quiet = quiet_begin();

	row_select(r, s, &alone, &p50);
	row_loop(r, &fit, loop_fit, s->cpu, FITS);
	if (quiet)
		quiet_end();
}

/* The others are started first, because real-time priority would be theirs too. */
static void rows_in_company(struct rows *r, struct stage *s)
{
	static const struct ask still = { "select among 8, 4 sessions, p50", 200, 10, NULL };
	static const struct ask writing = { "select among 8, 3 of 4 write, p99", 1000, 0,
					    "three processes begin and end units on all eight as fast as they can" };
	bool quiet;

	if (others_start(s)) {
		table_broken(r->table, still.name);
		return;
	}
	quiet = quiet_begin();
	row_select(r, s, &still, &p50);
	if (others_tell(s))
		table_broken(r->table, writing.name);
	else
		row_select(r, s, &writing, &p99);
	/* What comes next is not about writers. */
	if (others_tell(s))
		table_broken(r->table, writing.name);
	if (quiet)
		quiet_end();
}

static void rows_of_claims(struct rows *r, struct stage *s)
{
	static const struct ask standing = { "select among 8, 4 sessions, claims", 200, 10,
					     "a claim on each; whether they stand is asked of the kernel about every 8 ms" };
	static const struct ask pick = { "pick among 8 and free", 0, 0, "a claim is a lock of the kernel's: system calls" };
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .bytes = 1 << 20 };
	struct pinion_reservation *claim[DEVICES] = { 0 };
	bool quiet = quiet_begin();
	int ret = 0;

	for (unsigned int d = 0; !ret && d < DEVICES; d++)
		ret = pinion_device_reserve(s->dev[d], &opts, &claim[d]);
	if (ret)
		table_broken(r->table, standing.name);
	else
		row_select(r, s, &standing, &p50);
	for (unsigned int d = 0; d < DEVICES; d++)
		pinion_reservation_free(claim[d]);
	row_loop(r, &pick, loop_pick, s, PICKS);
	if (quiet)
		quiet_end();
}

void rows_select(struct rows *r)
{
	static struct stage s;

	table_section(r->table, "selecting, chained, hot; a unit of every session is in flight on every device");
	if (baseline_open() || stage_open(&s)) {
		table_broken(r->table, "select");
	} else {
		rows_alone(r, &s);
		rows_in_company(r, &s);
		rows_of_claims(r, &s);
	}
	stage_close(&s);
	if (baseline.fd >= 0)
		close(baseline.fd);
}
