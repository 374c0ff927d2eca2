/* SPDX-License-Identifier: MIT */
/* totals: what is in flight on a device, over one session and over 64. */
#include "quiet.h"
#include "rows.h"

#include <errno.h>
#include <pinion/context.h>
#include <pinion/device.h>
#include <pinion/work.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SESSIONS 64
#define DEVICES	 8
#define READINGS 20000
#define CALLS	 20000

struct session {
	struct pinion_context *ctx;
	struct pinion_device *dev[DEVICES];
	struct pinion_ticket ticket[DEVICES];
};

struct crowd {
	struct session session[SESSIONS];
	unsigned int open;
};

/* What one reading reads. */
struct reading {
	struct session *session;
	unsigned int devices;
	bool singly;	   /* a call for each */
	uint32_t expected; /* pending on each */
	uint32_t wrong;
};

static int session_open(struct session *s)
{
	char key[16];
	int ret = pinion_open(NULL, &s->ctx);

	if (ret)
		return broke_pinion(ret, "a context");
	for (unsigned int d = 0; d < DEVICES && !ret; d++) {
		snprintf(key, sizeof(key), "bench-%u", d);
		s->ticket[d] = (struct pinion_ticket){ 0 };
		ret = pinion_device_add(s->ctx, key, NULL, &s->dev[d]);
		if (!ret)
			ret = pinion_work_begin(s->dev[d], 1, &s->ticket[d]);
	}
	if (ret) {
		broke_pinion(ret, "a device and a unit on it");
		pinion_close(s->ctx);
	}
	return ret;
}

static int crowd_grow(struct crowd *c, unsigned int sessions)
{
	int ret = 0;

	while (!ret && c->open < sessions) {
		ret = session_open(&c->session[c->open]);
		if (!ret)
			c->open++;
	}
	return ret;
}

static void crowd_close(struct crowd *c)
{
	while (c->open)
		pinion_close(c->session[--c->open].ctx);
}

static void loop_readings(void *arg, uint64_t n)
{
	struct reading *what = arg;
	struct pinion_device *const *dev = what->session->dev;
	uint32_t pending[DEVICES], wrong = 0;

	while (n--) {
		if (what->singly)
			for (unsigned int d = 0; d < what->devices; d++)
				wrong |= pinion_device_pending(dev[d], PINION_SCOPE_ALL, &pending[d]) != 0;
		else
			wrong |= pinion_devices_pending(dev, what->devices, PINION_SCOPE_ALL, pending) != 0;
		wrong |= (pending[0] ^ what->expected) | (pending[what->devices - 1] ^ what->expected);
	}
	what->wrong |= wrong;
}

static void loop_getppid(void *arg, uint64_t n)
{
	(void)arg;
	while (n--)
		syscall(SYS_getppid);
}

static int way_reading(void *arg, struct sample *out)
{
	struct reading *what = arg;

	out->of[TIME] = loop_alone(loop_readings, what, READINGS / what->expected);
	return what->wrong ? broke(EPROTO, "a total is not the %u units that are in flight", what->expected) : 0;
}

static int way_getppid(void *arg, struct sample *out)
{
	out->of[TIME] = loop_alone(loop_getppid, arg, CALLS);
	return 0;
}

struct ask {
	const char *name;
	unsigned int devices;
	bool singly;
	double limit_ns; /* 0: no bar */
	double cheaper;	 /* than the system call, by this factor: a second row; 0: none */
};

static void row_totals(struct rows *r, struct crowd *c, const struct ask *ask)
{
	struct reading what = {
		.session = &c->session[0], .devices = ask->devices, .singly = ask->singly, .expected = c->open
	};
	struct row row = { .name = ask->name,
			   .against = "getppid",
			   .unit = "ns",
			   .bar = ask->limit_ns > 0 ? BAR_FIGURE_MAX : BAR_NONE,
			   .limit = ask->limit_ns };
	unsigned int read, call, read_again, call_again;
	struct trial t;
	double ns;

	trial_start(&t, ROUNDS_SHORT);
	read = trial_add(&t, way_reading, &what);
	call = trial_add(&t, way_getppid, NULL);
	read_again = trial_add(&t, way_reading, &what);
	call_again = trial_add(&t, way_getppid, NULL);
	if (trial_warm(&t, &ns) || trial_run(&t)) {
		table_broken(r->table, ask->name);
		return;
	}
	row.figure = trial_figure(&t, read, TIME).median;
	row.ratio = trial_ratio(&t, read, call, TIME);
	row.same = trial_ratio(&t, read_again, read, TIME);
	table_row(r->table, &row);
	if (ask->cheaper == 0)
		return;
	row.against = "getppid over it";
	row.ratio = trial_ratio(&t, call, read, TIME);
	row.same = trial_ratio(&t, call_again, call, TIME);
	row.bar = BAR_RATIO_MIN;
	row.limit = ask->cheaper;
	table_row(r->table, &row);
}

static void ask_all(struct rows *r, struct crowd *c, const struct ask *ask, unsigned int n)
{
	bool quiet = quiet_begin();

	for (unsigned int i = 0; i < n; i++)
		row_totals(r, c, &ask[i]);
	if (quiet)
		quiet_end();
}

static const struct ask of_one[] = {
	{ "totals, 1 session, 8 devices", DEVICES, false, 20, 10 },
	{ "the same, a call for each device", DEVICES, true, 0, 0 },
};

static const struct ask of_many[] = {
	{ "totals, 64 sessions, 1 device", 1, false, 200, 0 },
	{ "totals, 64 sessions, 8 devices", DEVICES, false, 1000, 0 },
	{ "the same, a call for each device", DEVICES, true, 0, 0 },
};

void rows_totals(struct rows *r)
{
	static struct crowd c;

	table_section(r->table, "totals, hot; every session has a unit in flight on every device");
	if (crowd_grow(&c, 1)) {
		table_broken(r->table, "totals, 1 session");
	} else {
		ask_all(r, &c, of_one, sizeof(of_one) / sizeof(of_one[0]));
		if (crowd_grow(&c, SESSIONS))
			table_broken(r->table, "totals, 64 sessions");
		else
			ask_all(r, &c, of_many, sizeof(of_many) / sizeof(of_many[0]));
	}
	crowd_close(&c);
}
