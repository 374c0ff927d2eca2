/* SPDX-License-Identifier: MIT */
/*
 * With writers in four processes, a chained selector's picks agree with a model of the true queues at every quiescent
 * point. The writers begin and end units, and make and drop claims, at the parent's orders and all at once; when each has
 * answered, the parent knows what there is without reading it, and so which candidate has to be chosen. Writers are
 * killed in the middle of it: what they had is out of the model as soon as they were waited for.
 */
#include "harness.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WRITERS	   4
#define DEVICES	   3
#define CANDIDATES 6
#define UNITS	   8 /* that a writer has in flight on one device at most */
#define POINTS	   2500
#define KILL_EVERY 100
#define MOVE_EVERY 10 /* claims: that others gave them up is seen after a while, so each time it is waited for */
#define SEEN_NS	   20000000
#define SELDOM	   40 /* times that each part of the key has to have decided */
#define MIB	   (UINT64_C(1) << 20)
#define BUDGET	   (1000 * MIB)
#define CLAIM_MIB  240 /* of one writer at most: all four fit */
#define TIMEOUT	   120

static const char *const keys[DEVICES] = { "route-2", "route-4", "route-8" };
static const uint32_t capacities[DEVICES] = { 2, 4, 8 };

static uint64_t state = 0x9e3779b97f4a7c15;

static uint64_t below(uint64_t n)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % n;
}

static void add_devices(struct pinion_context *ctx, struct pinion_device *dev[DEVICES], uint64_t budget)
{
	for (unsigned int d = 0; d < DEVICES; d++) {
		struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = capacities[d], .budget = budget };

		ck_ok(pinion_device_add(ctx, keys[d], &opts, &dev[d]));
	}
}

/* ---- a writer ---------------------------------------------------------------------------------------------------- */

/* What a writer is to have on each device when it answers. It is what the model knows of it, too. */
struct holding {
	uint32_t units[DEVICES];
	uint64_t claim[DEVICES]; /* bytes */
};

struct writer {
	struct pinion_context *ctx;
	struct pinion_device *dev[DEVICES];
	struct pinion_ticket ticket[DEVICES][UNITS];
	struct pinion_reservation *claim[DEVICES];
	struct holding has;
};

static int move_units(struct writer *w, unsigned int d, uint32_t units)
{
	int ret = 0;

	while (!ret && w->has.units[d] < units)
		ret = pinion_work_begin(w->dev[d], 1, &w->ticket[d][w->has.units[d]++]);
	while (!ret && w->has.units[d] > units)
		ret = pinion_work_end(&w->ticket[d][--w->has.units[d]]);
	return ret;
}

static int move_claim(struct writer *w, unsigned int d, uint64_t bytes)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts), .bytes = bytes };

	if (w->has.claim[d] == bytes)
		return 0;
	pinion_reservation_free(w->claim[d]);
	w->claim[d] = NULL;
	w->has.claim[d] = bytes;
	return bytes ? pinion_device_reserve(w->dev[d], &opts, &w->claim[d]) : 0;
}

/* Never returns. Answers every order with how it went; a test that gave up is noticed by its death. */
static void write_counts(int sock)
{
	static struct writer w;
	struct holding order;
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ret = pinion_open(NULL, &w.ctx);
	for (unsigned int d = 0; !ret && d < DEVICES; d++)
		ret = pinion_device_find(w.ctx, keys[d], &w.dev[d]);
	while (recv(sock, &order, sizeof(order), 0) == sizeof(order)) {
		for (unsigned int d = 0; !ret && d < DEVICES; d++) {
			ret = move_units(&w, d, order.units[d]);
			if (!ret)
				ret = move_claim(&w, d, order.claim[d]);
		}
		if (ret)
			fprintf(stderr, "a writer: %s\n", pinion_error());
		if (send(sock, &ret, sizeof(ret), MSG_NOSIGNAL) != sizeof(ret))
			break;
	}
	_exit(0);
}

/* ---- as the parent sees them ------------------------------------------------------------------------------------- */

struct hand {
	pid_t pid; /* 0: dead */
	int sock;
	struct holding has;
};

struct world {
	struct pinion_context *ctx;
	struct pinion_device *dev[DEVICES];
	struct hand hand[WRITERS];
	bool moves;  /* the claims, at this point */
	bool claims; /* and a budget that they are of; else the devices know nothing of memory */
	unsigned int kills, units_lost;
};

static void start(struct world *world, unsigned int i)
{
	struct hand *h = &world->hand[i];
	int pair[2];

	*h = (struct hand){ 0 };
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fflush(NULL);
	h->pid = fork();
	ck_assert_int_ge(h->pid, 0);
	if (!h->pid) {
		for (unsigned int other = 0; other < WRITERS; other++)
			if (world->hand[other].pid)
				close(world->hand[other].sock);
		close(pair[0]);
		write_counts(pair[1]);
	}
	close(pair[1]);
	h->sock = pair[0];
}

static void order(struct world *world, unsigned int i)
{
	static const uint32_t few[] = { 0, 0, 0, 0, 0, 0, 1, 1, 2, 3 };
	struct hand *h = &world->hand[i];

	for (unsigned int d = 0; d < DEVICES; d++) {
		h->has.units[d] = below(25) ? few[below(sizeof(few) / sizeof(few[0]))] : UNITS;
		if (world->moves && !below(4))
			h->has.claim[d] = below(CLAIM_MIB + 1) * MIB;
	}
	ck_assert_int_eq(send(h->sock, &h->has, sizeof(h->has), MSG_NOSIGNAL), sizeof(h->has));
}

static void hear(struct hand *h)
{
	int ret = -EPIPE;

	ck_assert_int_eq(recv(h->sock, &ret, sizeof(ret), 0), sizeof(ret));
	ck_assert_int_eq(ret, 0);
}

/* Whatever it was doing, it has nothing any more. */
static void kill_writer(struct world *world, unsigned int i)
{
	struct hand *h = &world->hand[i];

	ck_assert_int_eq(kill(h->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(h->pid, NULL, 0), h->pid);
	close(h->sock);
	*h = (struct hand){ 0 };
	world->kills++;
}

static uint32_t held_units(const struct hand *h)
{
	uint32_t n = 0;

	for (unsigned int d = 0; d < DEVICES; d++)
		n += h->has.units[d];
	return n;
}

/*
 * All move at once; then nothing moves. One of @victim's deaths in two is at rest with units in flight that were
 * acknowledged, the others are in the middle of an order that nobody waits for.
 */
static void move_all(struct world *world, unsigned int victim)
{
	bool midway = world->kills % 2;

	for (unsigned int i = 0; i < WRITERS; i++)
		if (world->hand[i].pid)
			order(world, i);
	if (victim < WRITERS && midway)
		kill_writer(world, victim);
	for (unsigned int i = 0; i < WRITERS; i++)
		if (world->hand[i].pid)
			hear(&world->hand[i]);
	if (victim < WRITERS && !midway) {
		while (!held_units(&world->hand[victim])) {
			order(world, victim);
			hear(&world->hand[victim]);
		}
		world->units_lost += held_units(&world->hand[victim]);
		kill_writer(world, victim);
	}
}

/* ---- handles ----------------------------------------------------------------------------------------------------- */

/* A device that is added by its key has for memory what claims leave of its budget, and none where it has no budget. */
static void make_handles(const struct world *world, struct pinion_device_runtime handle[DEVICES])
{
	for (unsigned int d = 0; d < DEVICES; d++) {
		struct pinion_runtime *rt = pinion_runtime_of_device(world->dev[d], &handle[d]);
		uint64_t bytes = 77;

		ck_assert_int_eq(pinion_runtime_available(rt, &bytes), (world->claims ? 0 : -ENODATA));
		ck_assert_uint_eq(bytes, world->claims ? BUDGET : 77);
	}
}

static struct pinion_runtime *look_up(void *arg, enum pinion_backend_id backend, struct pinion_location device)
{
	struct pinion_device_runtime *handle = arg;

	(void)backend;
	return &handle[device.index].runtime;
}

static uint64_t estimate(void *arg, const struct pinion_candidate *candidate)
{
	(void)arg;
	return *(const uint64_t *)candidate->op_params;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* A candidate in the parent's words. */
struct way {
	unsigned int device;
	uint64_t need;	  /* bytes */
	uint64_t compute; /* ns, at a GPU's 30 flops per ns */
	uint64_t move;	  /* ns, at its 40 bytes per ns */
	uint32_t overhead;
	uint64_t inbound;
};

/* The lowest wins, part by part. */
struct key {
	bool fits;
	uint64_t part[3]; /* pressure, load, ns */
};

static struct key key_of(const struct world *world, const struct way *way)
{
	uint64_t pending = 0, claimed = 0, in_use;
	uint32_t capacity = capacities[way->device];
	struct key k = { .fits = true };

	for (unsigned int i = 0; i < WRITERS; i++) {
		pending += world->hand[i].has.units[way->device];
		claimed += world->hand[i].has.claim[way->device];
	}
	in_use = claimed + way->need;
	if (world->claims) {
		k.fits = in_use <= BUDGET;
		k.part[0] = in_use * 100 > UINT64_C(85) * BUDGET;
	}
	k.part[1] = pending >= capacity ? 2 : 4 * pending >= capacity ? 1 : 0;
	k.part[2] = (way->compute > way->move ? way->compute : way->move) + way->overhead + way->inbound;
	return k;
}

/* The part that tells two keys apart: 0 to 2; 3: none does. */
static unsigned int first_difference(const struct key *a, const struct key *b)
{
	unsigned int part = 0;

	while (part < 3 && a->part[part] == b->part[part])
		part++;
	return part;
}

/* The first of the best. Where none fits it is candidate 0. */
static size_t choose(const struct world *world, const struct way *way, size_t n)
{
	size_t best = n;
	struct key of_best = { 0 };

	for (size_t i = 0; i < n; i++) {
		struct key k = key_of(world, &way[i]);
		unsigned int part = first_difference(&k, &of_best);

		if (!k.fits || (best < n && (part == 3 || k.part[part] > of_best.part[part])))
			continue;
		best = i;
		of_best = k;
	}
	return best < n ? best : 0;
}

/* ---- points ------------------------------------------------------------------------------------------------------ */

/* How often what decided: a part of the key or the order against the best of the others, or that nothing fits. */
enum decided { BY_PRESSURE, BY_LOAD, BY_TIME, BY_ORDER, BY_FIT, NOTHING_FITS, DECIDED };

static enum decided decided_by(const struct world *world, const struct way *way, size_t n, size_t chosen)
{
	struct key best = key_of(world, &way[chosen]);
	unsigned int nearest = 0;
	bool others = false;

	if (!best.fits)
		return NOTHING_FITS;
	for (size_t i = 0; i < n; i++) {
		struct key k = key_of(world, &way[i]);
		unsigned int part = first_difference(&k, &best);

		if (i == chosen || !k.fits)
			continue;
		others = true;
		nearest = part > nearest ? part : nearest;
	}
	return others ? (enum decided)nearest : BY_FIT;
}

/* Few different values, so that all parts of the key tie often. */
static void invent(struct way *way)
{
	*way = (struct way){ .device = below(DEVICES),
			     .need = (1 + below(5)) * 125 * MIB,
			     .compute = 100 * (1 + below(3)),
			     .move = 100 * (1 + below(3)),
			     .overhead = 50 * below(2),
			     .inbound = 50 * below(2) };
}

static void push(struct pinion_set *set, const struct way *way)
{
	struct pinion_location location = { .kind = PINION_BACKEND_CUDA, .index = way->device };
	struct pinion_candidate c = {
		.backend = PINION_BACKEND_CUDA,
		.device = location,
		.static_cost = { .flops = 30 * way->compute, .bytes_moved = 40 * way->move, .overhead_ns = way->overhead },
		.inbound_transfer_ns = way->inbound,
		.op_params = &way->need,
		.op_params_size = sizeof(way->need)
	};

	ck_ok(pinion_set_push(set, &c));
}

static void check_queues(const struct world *world, unsigned int point)
{
	uint32_t pending[DEVICES];

	ck_ok(pinion_devices_pending(world->dev, DEVICES, PINION_SCOPE_ALL, pending));
	for (unsigned int d = 0; d < DEVICES; d++) {
		uint32_t truth = 0;

		for (unsigned int i = 0; i < WRITERS; i++)
			truth += world->hand[i].has.units[d];
		ck_assert_msg(pending[d] == truth, "point %u: %s has %u in flight and says %u", point, keys[d], truth,
			      pending[d]);
	}
}

/* That a claim is gone is not seen at once. */
static void wait_till_seen(void)
{
	struct timespec ts = { .tv_nsec = SEEN_NS };

	while (nanosleep(&ts, &ts))
		;
}

static enum decided check_point(const struct world *world, struct pinion_selector *selector, unsigned int point)
{
	size_t n = 2 + below(CANDIDATES - 1), chosen = SIZE_MAX, right;
	struct way way[CANDIDATES];
	struct pinion_set *set;

	ck_ok(pinion_set_new(&set));
	for (size_t i = 0; i < n; i++) {
		invent(&way[i]);
		push(set, &way[i]);
	}
	check_queues(world, point);
	ck_ok(pinion_select(selector, set, &chosen));
	right = choose(world, way, n);
	ck_assert_msg(chosen == right, "point %u: candidate %zu of %zu is chosen, and by the true queues it is %zu", point,
		      chosen, n, right);
	pinion_set_free(set);
	return decided_by(world, way, n, right);
}

static void check_coverage(const struct world *world, const unsigned int count[DECIDED])
{
	printf("route: %s: %d points, %u writers killed, %u acknowledged units with them; decided by pressure %u, load %u, "
	       "time %u, order %u, fit alone %u, nothing fits %u\n",
	       world->claims ? "queues and claims" : "queues", POINTS, world->kills, world->units_lost, count[BY_PRESSURE],
	       count[BY_LOAD], count[BY_TIME], count[BY_ORDER], count[BY_FIT], count[NOTHING_FITS]);
	ck_assert_uint_ge(world->kills, POINTS / KILL_EVERY);
	ck_assert_uint_gt(world->units_lost, 0);
	ck_assert_uint_ge(count[BY_LOAD], SELDOM);
	ck_assert_uint_ge(count[BY_TIME], SELDOM);
	ck_assert_uint_ge(count[BY_ORDER], SELDOM);
	if (!world->claims)
		return;
	ck_assert_uint_ge(count[BY_PRESSURE], SELDOM);
	ck_assert_uint_ge(count[BY_FIT], SELDOM);
	ck_assert_uint_ge(count[NOTHING_FITS], SELDOM / 10);
}

/* A dead writer's place stays empty for a while, so that points see the queues without it. */
static void run_points(struct world *world, struct pinion_selector *selector, unsigned int count[DECIDED])
{
	unsigned int victim = WRITERS;

	for (unsigned int point = 0; point < POINTS; point++) {
		bool deadly = point % KILL_EVERY == KILL_EVERY / 2;

		if (point % KILL_EVERY == KILL_EVERY / 2 + 5)
			start(world, victim);
		if (deadly)
			victim = below(WRITERS);
		world->moves = world->claims && point % MOVE_EVERY == 0;
		move_all(world, deadly ? victim : WRITERS);
		if (world->moves || (world->claims && deadly))
			wait_till_seen();
		count[check_point(world, selector, point)]++;
	}
}

START_TEST(picks_agree_with_the_true_queues_at_every_quiescent_point)
{
	struct world world = { .claims = _i };
	struct pinion_device_runtime handle[DEVICES];
	struct pinion_selector_opts opts = {
		.size = sizeof(opts), .lookup = look_up, .lookup_arg = handle, .estimate = estimate
	};
	struct pinion_selector *selector;
	unsigned int count[DECIDED] = { 0 };

	ck_ok(pinion_open(NULL, &world.ctx));
	add_devices(world.ctx, world.dev, world.claims ? BUDGET : 0);
	make_handles(&world, handle);
	ck_ok(pinion_selector_chained(&opts, &selector));
	for (unsigned int i = 0; i < WRITERS; i++)
		start(&world, i);
	run_points(&world, selector, count);
	check_coverage(&world, count);
	for (unsigned int i = 0; i < WRITERS; i++)
		kill_writer(&world, i);
	check_queues(&world, POINTS);
	/* The next time they have other budgets. */
	for (unsigned int d = 0; d < DEVICES; d++)
		ck_ok(pinion_device_remove(world.dev[d]));
	pinion_selector_unref(selector);
	pinion_close(world.ctx);
}
END_TEST

static Suite *route_suite(void)
{
	Suite *suite = suite_create("route");
	TCase *tc = tcase_create("a model of the queues");

	tcase_set_timeout(tc, TIMEOUT);
	tcase_add_loop_test(tc, picks_agree_with_the_true_queues_at_every_quiescent_point, 0, 2);
	suite_add_tcase(suite, tc);
	return suite;
}

PINION_TEST_MAIN(route_suite)
