/* SPDX-License-Identifier: MIT */
/*
 * crew: four workers on one model, routed to two devices. For each it picks a device and claims what the worker needs
 * there, and hands the claim over. It shows what they have in flight while they work, kills one of them in the middle of
 * it, and checks that its share and its claim are gone from the table at once and that nothing else is. The one that
 * takes the killed one's place is picked for anew.
 *
 * The total can be checked to the unit because three of the four are held still with a number of units that they say
 * themselves; the fourth is not, and is killed at work.
 */
#include "flight.h"
#include "member.h"
#include "product.h"
#include "route.h"
#include "share.h"

#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS	    4
#define VICTIM	    2 /* worker 3 */
#define PATIENCE_NS (INT64_C(30) * 1000000000)
#define MIB	    (1024.0 * 1024)

struct crew {
	const char *name;
	const char *reference;
	const char *worker; /* path of demo-worker */
	const char *tool;   /* path of pinion */
	unsigned int show_ms;
	struct pinion_context *ctx;
	struct route route;
	struct member member[WORKERS];
	uint64_t need[WORKERS]; /* bytes that a worker computes with */
	struct pinion_name_info model;
	double attach_ns[WORKERS + 1];
	unsigned int attached;
	uint64_t pss, rss;
	uint64_t reclaimed;
};

static volatile int interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

/* ---- the members ------------------------------------------------------------------------------------------------- */

static void read_needs(struct crew *c)
{
	struct products all;
	struct need need;

	products_read(c->reference, false, &all);
	for (unsigned int i = 0; i < WORKERS; i++) {
		products_need(&all, i, WORKERS, &need);
		c->need[i] = need_bytes(&need);
	}
	products_free(&all);
}

static int send_to_device(struct crew *c, unsigned int i)
{
	struct member *m = &c->member[i];
	int ret = route_pick(&c->route, c->need[i], &m->claim);

	snprintf(m->name, sizeof(m->name), "worker %u", i + 1);
	if (ret)
		fprintf(stderr, "routing %s: %s\n", m->name, pinion_error());
	else
		printf("%s is routed to %s, with a claim on %" PRIu32 " units and %.1f KiB there\n", m->name,
		       route_key(m->claim.device), m->claim.units, m->claim.bytes / 1024.0);
	return ret;
}

/* The worker inherits the claim; with ours let go it is the worker's alone, and ends when the worker does. */
static int start(struct crew *c, unsigned int i)
{
	char share[16], shares[16], units[16], claim[16];
	struct member *m = &c->member[i];
	char *const argv[] = { (char *)c->worker, (char *)c->name, (char *)c->reference, share, shares, units, claim, NULL };
	int ret;

	snprintf(share, sizeof(share), "%u", i);
	snprintf(shares, sizeof(shares), "%d", WORKERS);
	snprintf(units, sizeof(units), "%u", 2 * i + 3);
	snprintf(claim, sizeof(claim), "%d", route_fd(&m->claim));
	ret = member_start(m, argv, route_fd(&m->claim));
	if (ret)
		fprintf(stderr, "starting %s: %s\n", m->name, strerror(-ret));
	route_let_go(&m->claim);
	return ret;
}

static int hear_attached(struct crew *c, unsigned int i)
{
	struct member *m = &c->member[i];
	const char *text = member_hear(m, "attached", &interrupted);

	if (!text || sscanf(text, "%" SCNd64 " %" SCNd64, &m->attach_ns, &m->touch_ns) != 2)
		return -EPROTO;
	c->attach_ns[c->attached++] = m->attach_ns;
	printf("%s (pid %d) attached in %.2f ms and touched every page in %.1f ms\n", m->name, m->pid, m->attach_ns / 1e6,
	       m->touch_ns / 1e6);
	return 0;
}

/* Each pick sees the claims of those before it, though none of them has begun to work. */
static int start_all(struct crew *c)
{
	int ret = 0;

	for (unsigned int i = 0; !ret && i < WORKERS; i++)
		ret = send_to_device(c, i);
	for (unsigned int i = 0; !ret && i < WORKERS; i++)
		ret = start(c, i);
	for (unsigned int i = 0; !ret && i < WORKERS; i++)
		ret = hear_attached(c, i);
	return ret;
}

/* Runs the tool with its output among ours; it reads the same counts and names from a process of its own. */
static int run_tool(struct crew *c, const char *command, const char *argument)
{
	char *argv[] = { (char *)c->tool, (char *)command, (char *)argument, NULL };
	int status, ret;
	pid_t pid;

	printf("$ pinion %s %s\n", command, argument);
	fflush(stdout);
	ret = posix_spawn(&pid, c->tool, NULL, NULL, argv, environ);
	if (ret) {
		fprintf(stderr, "%s: %s\n", c->tool, strerror(ret));
		return -ret;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status ? -EIO : 0;
}

/* ---- one copy ---------------------------------------------------------------------------------------------------- */

/* What the workers and the holder map of the model. Pages that are there once must add up to one model. */
static int check_one_copy(struct crew *c)
{
	struct share share;
	int ret = pinion_name_show(c->ctx, c->name, &c->model, NULL, 0, NULL);

	if (ret) {
		fprintf(stderr, "%s\n", pinion_error());
		return ret;
	}
	for (unsigned int i = 0; i <= WORKERS; i++) {
		pid_t pid = i < WORKERS ? c->member[i].pid : c->model.pid;

		ret = share_read(pid, &share);
		if (ret) {
			fprintf(stderr, "/proc/%d/smaps: %s\n", pid, strerror(-ret));
			return ret;
		}
		c->pss += share.pss;
		c->rss += share.rss;
	}
	printf("the kernel counts %.1f MiB of model mapped by them all, and %.1f MiB of RAM behind it; the buffer has %.1f MiB\n",
	       c->rss / MIB, c->pss / MIB, c->model.bytes / MIB);
	/* PSS is rounded down to KiB for each mapping. */
	if (c->pss <= c->model.bytes + c->model.bytes / 50 && c->rss >= (uint64_t)WORKERS * c->model.bytes / 2)
		return 0;
	fprintf(stderr, "that is not one copy shared by %d\n", WORKERS);
	return -EBADMSG;
}

/* ---- in flight --------------------------------------------------------------------------------------------------- */

static int look(struct crew *c, struct flight *f)
{
	int ret = flight_read(&c->route, f);

	if (ret)
		fprintf(stderr, "%s\n", pinion_error());
	return ret ? ret : interrupted ? -EINTR : 0;
}

/* What is claimed on a device is what its living workers claimed, and no more. */
static int check_claims(const struct crew *c, const struct flight *f)
{
	int ret = 0;

	for (unsigned int d = 0; d < ROUTE_DEVICES; d++) {
		const struct flight_on *on = &f->on[d];
		uint32_t claims = 0, units = 0;
		uint64_t bytes = 0;

		for (unsigned int i = 0; i < WORKERS; i++) {
			const struct member *m = &c->member[i];

			if (!m->pid || m->claim.device != d)
				continue;
			claims++;
			units += m->claim.units;
			bytes += m->claim.bytes;
		}
		if (on->claims == claims && on->reserved_units == units && on->reserved == bytes)
			continue;
		fprintf(stderr,
			"the living claimed %" PRIu32 " times %" PRIu32 " units and %" PRIu64
			" bytes on %s, and the table says %" PRIu32 " times %" PRIu32 " and %" PRIu64 "\n",
			claims, units, bytes, route_key(d), on->claims, on->reserved_units, on->reserved);
		ret = -EBADMSG;
	}
	return ret;
}

/* Two workers fill a device, so that no policy can send a third there. */
static int check_spread(struct crew *c)
{
	struct flight f;
	int ret = look(c, &f);

	for (unsigned int d = 0; !ret && d < ROUTE_DEVICES; d++) {
		if (f.on[d].claims == WORKERS / ROUTE_DEVICES)
			continue;
		fprintf(stderr, "%" PRIu32 " of %d workers were routed to %s\n", f.on[d].claims, WORKERS, route_key(d));
		ret = -EBADMSG;
	}
	return ret ? ret : check_claims(c, &f);
}

static void pause_ms(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

/* Repaints on a terminal; says a line now and then otherwise. */
static int show_live(struct crew *c)
{
	const char *term = getenv("TERM");
	bool repaint = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb");
	unsigned int step = repaint ? 100 : c->show_ms / 4;
	struct flight f;
	int ret = 0;

	printf("\nin flight on %d devices, which work on %d at once each:\n", ROUTE_DEVICES, ROUTE_CAPACITY);
	for (unsigned int ms = 0; !ret && ms < c->show_ms; ms += step) {
		pause_ms(step);
		ret = look(c, &f);
		if (!ret && repaint)
			flight_table(&f, c->member, WORKERS, ms > 0);
		else if (!ret)
			flight_line(&f, c->member, WORKERS);
	}
	return ret;
}

/* Everyone but the victim stands still and says with how many units. */
static int hold_others(struct crew *c)
{
	for (unsigned int i = 0; i < WORKERS; i++)
		if (i != VICTIM)
			member_say(&c->member[i], 'h');
	for (unsigned int i = 0; i < WORKERS; i++) {
		struct member *m = &c->member[i];
		const char *text = i == VICTIM ? NULL : member_hear(m, "held", &interrupted);

		if (i != VICTIM && (!text || sscanf(text, "%u", &m->held) != 1))
			return -EPROTO;
	}
	return 0;
}

/* Whether a device's rows say of the living what they say themselves, and nothing of anyone else. */
static int check_device(const struct crew *c, const struct flight *f, unsigned int d, unsigned int *sum)
{
	const struct flight_on *on = &f->on[d];
	unsigned int here = 0, rows = 0;
	int ret = 0;

	for (unsigned int i = 0; i < WORKERS; i++) {
		const struct member *m = &c->member[i];
		const struct pinion_device_user *user = flight_of(on, m->pid);

		if (!m->pid || m->claim.device != d)
			continue;
		rows++;
		here += m->held;
		if (!user || user->pending != m->held) {
			fprintf(stderr, "%s has %u in flight on %s and the table says %" PRIu64 "\n", m->name, m->held,
				route_key(d), user ? user->pending : 0);
			ret = -EBADMSG;
		}
	}
	if (on->total != here || on->users != rows) {
		fprintf(stderr, "%u living have %u in flight on %s and the table says %zu have %" PRIu32 "\n", rows, here,
			route_key(d), on->users, on->total);
		ret = -EBADMSG;
	}
	*sum += here;
	return ret;
}

/* The same of both devices, and that their total is that of the living. */
static int check_table(const struct crew *c, const struct flight *f, pid_t dead)
{
	unsigned int sum = 0;
	int ret = 0;

	for (unsigned int d = 0; d < ROUTE_DEVICES; d++) {
		if (check_device(c, f, d, &sum))
			ret = -EBADMSG;
		if (flight_of(&f->on[d], dead)) {
			fprintf(stderr, "pid %d is dead and still in the table of %s\n", dead, route_key(d));
			ret = -EBADMSG;
		}
	}
	if (f->total != sum) {
		fprintf(stderr, "the living have %u in flight and the table says %" PRIu32 "\n", sum, f->total);
		ret = -EBADMSG;
	}
	if (!ret)
		printf("its row is gone, and the total is what the living say they have, %u\n", sum);
	return ret;
}

/* Whether between the two readings the dead one's claim went, exactly it, and no claim elsewhere. */
static int check_claim_gone(const struct flight *before, const struct flight *after, const struct member *dead)
{
	for (unsigned int d = 0; d < ROUTE_DEVICES; d++) {
		const struct flight_on *b = &before->on[d], *a = &after->on[d];
		bool here = dead->claim.device == d;

		if (b->claims - a->claims == here && b->reserved_units - a->reserved_units == here * dead->claim.units &&
		    b->reserved - a->reserved == here * dead->claim.bytes)
			continue;
		fprintf(stderr,
			"%s had %" PRIu32 " claims on %" PRIu32 " units and %" PRIu64 " bytes and has %" PRIu32 " on %" PRIu32
			" and %" PRIu64 ", which is not the claim of %s less\n",
			route_key(d), b->claims, b->reserved_units, b->reserved, a->claims, a->reserved_units, a->reserved,
			dead->name);
		return -EBADMSG;
	}
	printf("its claim is gone too: %" PRIu32 " units and %.1f KiB of %s are free again\n", dead->claim.units,
	       dead->claim.bytes / 1024.0, route_key(dead->claim.device));
	return 0;
}

/* Waits until the victim has something in flight, which is nearly always. */
static int catch_at_work(struct crew *c, struct flight *f)
{
	int64_t deadline = pinion_deadline_in(PATIENCE_NS);
	int ret;

	do {
		const struct pinion_device_user *user;

		ret = look(c, f);
		user = flight_of(&f->on[c->member[VICTIM].claim.device], c->member[VICTIM].pid);
		if (ret || (user && user->pending))
			return ret;
	} while (pinion_deadline_in(0) < deadline);
	fprintf(stderr, "%s has nothing in flight any more\n", c->member[VICTIM].name);
	return -ETIMEDOUT;
}

static int kill_victim(struct crew *c)
{
	struct member *victim = &c->member[VICTIM], were[WORKERS];
	struct pinion_device_info info = { .size = sizeof(info) };
	struct flight before, after;
	int ret = hold_others(c);

	if (!ret)
		ret = catch_at_work(c, &before);
	if (ret)
		return ret;
	memcpy(were, c->member, sizeof(were));
	member_end(victim, SIGKILL);
	ret = flight_read(&c->route, &after);
	printf("\nworkers 1, 2 and 4 are held still, worker 3 works on:\n");
	flight_table(&before, were, WORKERS, false);
	if (ret) {
		fprintf(stderr, "%s\n", pinion_error());
		return ret;
	}
	printf("SIGKILL to %s; the next reading, %.1f us long, when it had been waited for:\n", victim->name,
	       after.took_ns / 1e3);
	flight_table(&after, c->member, WORKERS, false);
	ret = check_table(c, &after, were[VICTIM].pid);
	if (!ret)
		ret = check_claim_gone(&before, &after, &were[VICTIM]);
	if (!ret)
		ret = check_claims(c, &after);
	if (!ret)
		ret = pinion_device_info(c->route.dev[were[VICTIM].claim.device], &info);
	c->reclaimed = info.reclaimed;
	return ret;
}

/* The killed one's share is done by another process, so that no result is missing. */
static int replace_victim(struct crew *c)
{
	int ret = send_to_device(c, VICTIM);

	if (!ret)
		ret = start(c, VICTIM);
	if (!ret)
		ret = hear_attached(c, VICTIM);
	for (unsigned int i = 0; !ret && i < WORKERS; i++) {
		c->member[i].held = 0;
		if (i != VICTIM)
			member_say(&c->member[i], 'g');
	}
	return ret;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static void print_results(const struct member *m)
{
	printf("%s: %" PRIu64 " tensors, %" PRIu64 " products, ", m->name, m->tensors, m->products);
	if (m->wrong)
		printf("%" PRIu64 " comparisons of %" PRIu64 " FAILED\n", m->wrong, m->compared);
	else if (!m->checked)
		printf("none of which has a reference\n");
	else if (m->checked < m->products)
		printf("%" PRIu64 " equal to the reference, %" PRIu64 " without one (%" PRIu64 " comparisons)\n", m->checked,
		       m->products - m->checked, m->compared);
	else
		printf("all equal to the reference (%" PRIu64 " comparisons)\n", m->compared);
}

static int finish(struct crew *c)
{
	int ret = 0;

	printf("\n");
	for (unsigned int i = 0; i < WORKERS; i++)
		member_say(&c->member[i], 'q');
	for (unsigned int i = 0; !ret && i < WORKERS; i++) {
		struct member *m = &c->member[i];
		const char *text = member_hear(m, "done", &interrupted);

		if (!text || sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &m->tensors, &m->products,
				    &m->checked, &m->compared, &m->wrong) != 5)
			return -EPROTO;
		print_results(m);
	}
	for (unsigned int i = 0; !ret && i < WORKERS; i++) {
		uint64_t wrong = c->member[i].wrong;
		int status = member_end(&c->member[i], 0);

		if (status || wrong)
			ret = -EBADMSG;
	}
	return ret;
}

/* With everyone gone nothing may be left in flight, nor claimed. */
static int check_nothing_left(struct crew *c)
{
	struct flight f;
	int ret = look(c, &f);

	for (unsigned int d = 0; !ret && d < ROUTE_DEVICES; d++) {
		const struct flight_on *on = &f.on[d];

		if (!on->total && !on->users && !on->claims)
			continue;
		fprintf(stderr, "everyone is gone, and on %s %" PRIu32 " are in flight by %zu and %" PRIu32 " claims stand\n",
			route_key(d), on->total, on->users, on->claims);
		ret = -EBADMSG;
	}
	return ret;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Lines for the closing table, then how many results there were. */
static int write_summary(struct crew *c, const char *path)
{
	uint64_t checked = 0, products = 0;
	FILE *f = fopen(path, "w");

	if (!f) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		return -EIO;
	}
	for (unsigned int i = 0; i < WORKERS; i++) {
		checked += c->member[i].checked;
		products += c->member[i].products;
	}
	qsort(c->attach_ns, c->attached, sizeof(*c->attach_ns), compare_doubles);
	fprintf(f, "checked %" PRIu64 "\nunchecked %" PRIu64 "\n", checked, products - checked);
	fprintf(f, "attach to %" PRIu64 " tensors: %.2f ms (median of %u; %.2f to %.2f)\n", c->model.tensors,
		c->attach_ns[c->attached / 2] / 1e6, c->attached, c->attach_ns[0] / 1e6, c->attach_ns[c->attached - 1] / 1e6);
	fprintf(f, "RAM for the model of %d workers and the holder: %.1f MiB, one copy (PSS); a copy each would be %.1f MiB\n",
		WORKERS, c->pss / MIB, WORKERS * (c->model.bytes / MIB));
	fprintf(f, "units lost with the worker that was killed: %" PRIu64 "\n", c->reclaimed);
	return fclose(f) ? -EIO : 0;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int run(struct crew *c, const char *summary)
{
	int ret = pinion_open(NULL, &c->ctx);

	if (!ret)
		ret = route_open(c->ctx, &c->route);
	if (ret) {
		fprintf(stderr, "%s\n", pinion_error());
		return ret;
	}
	read_needs(c);
	ret = start_all(c);
	if (!ret)
		ret = check_spread(c);
	if (!ret)
		ret = check_one_copy(c);
	if (!ret)
		ret = run_tool(c, "show", c->name);
	if (!ret)
		ret = show_live(c);
	if (!ret)
		ret = kill_victim(c);
	if (!ret)
		ret = run_tool(c, "top", "--once");
	if (!ret)
		ret = replace_victim(c);
	if (!ret)
		ret = finish(c);
	if (!ret)
		ret = check_nothing_left(c);
	return ret ? ret : write_summary(c, summary);
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv)
{
	struct crew c = { .model = { .size = sizeof(c.model) } };
	int ret;

	if (argc != 7)
		errx(2, "usage: demo-crew NAME REFERENCE WORKER TOOL SHOW_MS SUMMARY");
	c.name = argv[1];
	c.reference = argv[2];
	c.worker = argv[3];
	c.tool = argv[4];
	c.show_ms = atoi(argv[5]);
	setlinebuf(stdout);
	catch_signals();
	ret = run(&c, argv[6]);
	for (unsigned int i = 0; i < WORKERS; i++) {
		member_end(&c.member[i], SIGKILL);
		route_let_go(&c.member[i].claim);
	}
	if (c.ctx)
		pinion_close(c.ctx);
	if (interrupted)
		return 128 + interrupted;
	return ret ? 1 : 0;
}
