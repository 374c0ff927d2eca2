/* SPDX-License-Identifier: MIT */
/*
 * alloc: pinned shared memory by one thread, against private memory made present by one call, and a memfd that is locked; and by
 * as many threads as can run, against one.
 */
#include "pages.h"
#include "rows.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define GIB	  ((double)(1 << 30))
#define HUGE_PAGE (2u << 20)
/*
 * The ring that pins a buffer's pages goes in the background; they are to be free again before the next turn. All ways rest for
 * so long, as who comes after a rest finds the memory that was given back no longer in the caches.
 */
#define SETTLE_US 20000

struct allocation {
	struct pinion_context *ctx;
	uint64_t bytes;
	bool huge;
	char pages[PAGES_TEXT];	     /* of the last buffer */
	char base_pages[PAGES_TEXT]; /* of the last of the baseline's */
	char hold[256];
};

/* Nanoseconds for a GiB. */
static void stop(const struct allocation *a, double start, double cpu, struct sample *out)
{
	out->of[TIME] = (now_ns() - start) * GIB / a->bytes;
	out->of[CPU] = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) * GIB / a->bytes;
}

static void tell_hold(struct allocation *a, struct pinion_buffer *buf)
{
	static const char *const name[] = { "?", "not held", "locked", "registered with io_uring" };
	struct pinion_buffer_info info = { .size = sizeof(info) };

	if (!pinion_buffer_info(buf, &info))
		snprintf(a->hold, sizeof(a->hold), "%.0f MiB, %s%s%s", a->bytes / 1048576.0,
			 info.hold <= PINION_HOLD_REGISTERED ? name[info.hold] : "?", *info.hold_why ? ": " : "", info.hold_why);
}

static int way_buffer(void *arg, struct sample *out)
{
	struct allocation *a = arg;
	double cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
	struct pinion_buffer *buf;
	int ret = pinion_buffer_alloc(a->ctx, a->bytes, NULL, &buf);

	if (ret)
		return broke_pinion(ret, "pinion_buffer_alloc");
	stop(a, start, cpu, out);
	pages_of_buffer(a->pages, buf);
	tell_hold(a, buf);
	pinion_buffer_unref(buf);
	usleep(SETTLE_US);
	return 0;
}

/* A thread that may run on one CPU is not helped by others. */
static int way_one_thread(void *arg, struct sample *out)
{
	int cpu = sched_getcpu(), ret;
	cpu_set_t before, one;

	CPU_ZERO(&one);
	CPU_SET(cpu < 0 ? 0 : cpu, &one);
	if (sched_getaffinity(0, sizeof(before), &before) || sched_setaffinity(0, sizeof(one), &one))
		return broke(errno, "the affinity mask: %s", strerror(errno));
	ret = way_buffer(arg, out);
	sched_setaffinity(0, sizeof(before), &before);
	return ret;
}

/* Room for a whole number of huge pages at an address that fits them. */
static char *round_up(char *p)
{
	return (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
}

static int way_private(void *arg, struct sample *out)
{
	struct allocation *a = arg;
	double cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
	char *room = mmap(NULL, a->bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int err = 0;

	if (room == MAP_FAILED)
		return broke(errno, "mmap of private memory: %s", strerror(errno));
	madvise(room, a->bytes + HUGE_PAGE, a->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	if (madvise(round_up(room), a->bytes, MADV_POPULATE_WRITE))
		err = errno;
	stop(a, start, cpu, out);
	pages_of_mapping(a->base_pages, round_up(room), a->bytes);
	munmap(room, a->bytes + HUGE_PAGE);
	usleep(SETTLE_US);
	return err ? broke(err, "MADV_POPULATE_WRITE: %s", strerror(err)) : 0;
}

static int way_locked(void *arg, struct sample *out)
{
	struct allocation *a = arg;
	double cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
	int fd = memfd_create("bench", MFD_CLOEXEC), err = 0;
	void *p = MAP_FAILED;

	if (fd < 0 || ftruncate(fd, a->bytes))
		err = errno;
	else
		p = mmap(NULL, a->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (!err && p == MAP_FAILED)
		err = errno;
	if (!err) {
		madvise(p, a->bytes, a->huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
		if (mlock(p, a->bytes))
			err = errno;
	}
	stop(a, start, cpu, out);
	if (p != MAP_FAILED)
		munmap(p, a->bytes);
	if (fd >= 0)
		close(fd);
	usleep(SETTLE_US);
	return err ? broke(err, "memfd + mlock: %s", strerror(err)) : 0;
}

static struct row alloc_row(const struct trial *t, const char *name, unsigned int buffer, const char *against, unsigned int base,
			    unsigned int again)
{
	return (struct row){ .name = name,
			     .against = against,
			     .figure = trial_figure(t, buffer, TIME).median / 1e6,
			     .unit = "ms/GiB",
			     .ratio = trial_ratio(t, buffer, base, TIME),
			     .same = trial_ratio(t, again, base, TIME),
			     .cpu = trial_ratio(t, buffer, base, CPU).median,
			     .bar = BAR_RATIO_MAX,
			     .limit = 1.1 };
}

static void run(struct rows *r, struct allocation *a)
{
	unsigned int buffer, buffer_again, all, base, again, locked = 0, locked_again = 0;
	struct sample probe;
	bool can_lock = !way_locked(a, &probe);
	char against[64];
	struct trial t;
	struct row row;
	double ns;

	if (!can_lock)
		table_absent(r->table, "allocate, against memfd + mlock", broke_why());
	trial_start(&t, ROUNDS);
	buffer = trial_add(&t, way_one_thread, a);
	all = trial_add(&t, way_buffer, a);
	buffer_again = trial_add(&t, way_one_thread, a);
	base = trial_add(&t, way_private, a);
	again = trial_add(&t, way_private, a);
	if (can_lock) {
		locked = trial_add(&t, way_locked, a);
		locked_again = trial_add(&t, way_locked, a);
	}
	if (trial_warm(&t, &ns) || trial_run(&t)) {
		table_broken(r->table, "allocate");
		return;
	}
	snprintf(against, sizeof(against), "private, populated, %s", a->base_pages);
	row = alloc_row(&t, "allocate", buffer, against, base, again);
	row.pages = a->pages;
	row.note = a->hold;
	table_row(r->table, &row);
	row = alloc_row(&t, "allocate, all threads", all, "one thread", buffer, buffer_again);
	row.pages = a->pages;
	row.limit = 1;
	row.cpu = 0; /* what is divided among threads takes as much */
	table_row(r->table, &row);
	if (!can_lock)
		return;
	row = alloc_row(&t, "allocate", buffer, "memfd + mlock", locked, locked_again);
	row.pages = a->pages;
	table_row(r->table, &row);
}

void rows_alloc(struct rows *r)
{
	struct allocation a = { .bytes = 0 };
	int ret = pinion_open(NULL, &a.ctx);

	if (ret) {
		broke_pinion(ret, "a context");
		table_broken(r->table, "allocate");
		return;
	}
	a.huge = pages_huge(a.ctx);
	a.bytes = r->bytes / SHORTER * (a.huge ? 2 : 1);
	a.bytes = a.bytes < HUGE_PAGE ? HUGE_PAGE : a.bytes - a.bytes % HUGE_PAGE;
	run(r, &a);
	pinion_close(a.ctx);
}
