// SPDX-License-Identifier: MIT
/*
 * counts_death [UNITS]: no death falsifies a count. Sixteen processes begin and end so many units each, in their pages and by
 * ADD, and are killed at random meanwhile; what a reader sees is held against what the processes themselves note.
 */
#define _GNU_SOURCE
#include "counting.h"

#include <pthread.h>
#include <sched.h>

#define WRITERS 16
#define DEPTH	32
#define MOST_S	240	    /* of all units, where a machine is too slow for them */
#define MOST	(2 * DEPTH) /* max_inflight of a session */

/* Notes of one writer. It is beginning before begin, has begun after, is ending before end and has ended after. */
struct note {
	_Atomic int life; /* number of its process; 0: nothing here holds */
	_Atomic int paused;
	_Atomic uint64_t beginning, begun, ending, ended;
	_Atomic uint64_t done; /* units, over all its lives */
	_Atomic uint64_t left; /* in flight at its pause */
} __attribute__((aligned(64)));

static struct shared {
	struct note note[WRITERS];
	_Atomic int go, stop;
	_Atomic int enough; /* have been killed, for a writer to come to its end */
	_Atomic int over;   /* is the time for all units: writers look at no clock, which would take longer than a unit */
	_Atomic uint64_t readings, most;
} * shared;

static struct pinion_dev device;
static int dev;
static uint64_t units;

/* ---- a writer ------------------------------------------------------------------------------------------------------ */

struct unit {
	bool added;
	uint32_t parity;
};

struct writer {
	int fd;
	struct note *note;
	struct pinion_counter_page *page;
	struct pinion_attach lane[2];
	struct unit unit[DEPTH];
	unsigned int nr;
	/* With two threads: units on their way from one to the other. */
	_Atomic unsigned int sent, taken;
	uint32_t mail[DEPTH];
};

static struct unit unit_begin(struct writer *w, bool add)
{
	struct unit u = { .added = add };

	atomic_fetch_add(&w->note->beginning, 1);
	if (add) {
		int parity = dev_count(w->fd, w->lane[0].handle, 1, 1, PINION_PARITY_NOW);

		if (parity < 0)
			complain("ADD: %s", strerror(-parity));
		u.parity = parity & 1;
	} else {
		u.parity = page_begin(w->page, &w->lane[0]);
	}
	atomic_fetch_add(&w->note->begun, 1);
	return u;
}

static void unit_end(struct writer *w, const struct unit *u, unsigned int lane)
{
	int ret = 0;

	atomic_fetch_add(&w->note->ending, 1);
	if (u->added)
		ret = dev_count(w->fd, w->lane[0].handle, -1, -1, u->parity);
	else
		page_end(w->fd, w->page, &w->lane[lane], u->parity);
	if (ret < 0)
		complain("ADD -1: %s", strerror(-ret));
	atomic_fetch_add(&w->note->ended, 1);
	atomic_fetch_add(&w->note->done, 1);
}

/* All units are at rest, and known, until everybody's are. */
static void pause_here(struct writer *w)
{
	atomic_store(&w->note->left, w->nr);
	atomic_store(&w->note->paused, 1);
	while (!atomic_load(&shared->go))
		mem_sleep(2000);
	atomic_store(&w->note->life, 0);
}

/* All its units, or fewer where the machine is slow; and it goes on until there was somebody to kill. */
static bool goes_on(const struct writer *w)
{
	return !atomic_load(&shared->enough) || (atomic_load(&w->note->done) < units && !atomic_load(&shared->over));
}

/* In any order; now and then by ADD. */
static void write_alone(struct writer *w, unsigned int adds)
{
	while (goes_on(w)) {
		if (w->nr < DEPTH && (!w->nr || roll(2))) {
			w->unit[w->nr++] = unit_begin(w, adds && one_in(adds));
		} else {
			unsigned int i = roll(w->nr);

			unit_end(w, &w->unit[i], 0);
			w->unit[i] = w->unit[--w->nr];
		}
	}
	pause_here(w);
	while (w->nr)
		unit_end(w, &w->unit[--w->nr], 0);
}

static void *ender(void *data)
{
	struct writer *w = data;
	struct unit u = { 0 };

	for (;;) {
		unsigned int at = atomic_load(&w->taken);

		while (at == atomic_load(&w->sent))
			sched_yield();
		u.parity = w->mail[at % DEPTH];
		if (u.parity > 1)
			return NULL;
		unit_end(w, &u, 1);
		atomic_store(&w->taken, at + 1);
	}
}

static void send_on(struct writer *w, uint32_t parity)
{
	unsigned int at = atomic_load(&w->sent);

	while (at - atomic_load(&w->taken) == DEPTH)
		sched_yield();
	w->mail[at % DEPTH] = parity;
	atomic_store(&w->sent, at + 1);
}

/* Begun by one thread in its lane, ended by the other in its own. */
static void write_by_two(struct writer *w)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, ender, w))
		complain("no thread");
	while (goes_on(w))
		send_on(w, unit_begin(w, false).parity);
	while (atomic_load(&w->taken) != atomic_load(&w->sent))
		sched_yield();
	for (w->nr = 0; w->nr < DEPTH / 2; w->nr++)
		w->unit[w->nr] = unit_begin(w, false);
	pause_here(w);
	while (w->nr)
		send_on(w, w->unit[--w->nr].parity);
	send_on(w, 2);
	pthread_join(thread, NULL);
}

static _Noreturn void writer(unsigned int i, int life)
{
	struct writer w = { .note = &shared->note[i] };
	bool two = i % 4 == 0;
	int ret;

	dice = mix(i * 1000003 + life);
	w.fd = dev_open(O_RDWR);
	w.page = dev_counters(w.fd);
	ret = dev_attach(w.fd, &device, two ? DEPTH : MOST, &w.lane[0]);
	if (!ret && two)
		ret = dev_attach(w.fd, &device, DEPTH, &w.lane[1]);
	if (w.page == MAP_FAILED || ret) {
		complain("a writer: %d, %s", ret, strerror(errno));
		_exit(1);
	}
	atomic_store(&w.note->life, life);
	if (two)
		write_by_two(&w);
	else
		write_alone(&w, i % 4 == 1 ? 8 : 0);
	_exit(0);
}

/* ---- a reader ------------------------------------------------------------------------------------------------------ */

struct notes {
	int life[WRITERS];
	uint64_t begun[WRITERS], ended[WRITERS];
};

static void notes_take(struct notes *n)
{
	for (int i = 0; i < WRITERS; i++) {
		n->life[i] = atomic_load(&shared->note[i].life);
		n->begun[i] = atomic_load(&shared->note[i].begun);
		n->ended[i] = atomic_load(&shared->note[i].ended);
	}
}

/*
 * What had begun before and was not ending after was in flight throughout. What was beginning by the end and had not ended before
 * may have been. Nothing is known of who may have died.
 */
static void notes_bounds(const struct notes *n, uint64_t *least, uint64_t *most)
{
	*least = *most = 0;
	for (int i = 0; i < WRITERS; i++) {
		struct note *note = &shared->note[i];
		uint64_t ending = atomic_load(&note->ending), beginning = atomic_load(&note->beginning);

		if (!n->life[i] || atomic_load(&note->life) != n->life[i]) {
			*most += MOST;
			continue;
		}
		*most += beginning - n->ended[i];
		*least += n->begun[i] > ending ? n->begun[i] - ending : 0;
	}
}

static void read_list(int fd)
{
	struct pinion_list_session rows[2 * WRITERS];
	struct pinion_list l = { .size = sizeof(l),
				 .kind = PINION_LIST_SESSIONS,
				 .rows = (uintptr_t)rows,
				 .count = 2 * WRITERS,
				 .row_size = sizeof(rows[0]) };
	int ret = dev_call(fd, PINION_IOC_LIST, &l);

	if (ret)
		complain("LIST: %s", strerror(-ret));
	for (unsigned int i = 0; !ret && i < l.out_count; i++) {
		if (rows[i].flags & PINION_SESSION_MARKED)
			complain("an honest session is marked: submitted %llu, %llu to %llu", rows[i].submitted, rows[i].low,
				 rows[i].high);
		if (rows[i].low > rows[i].high || (rows[i].uid != PINION_UID_OTHERS && rows[i].high > rows[i].max_inflight))
			complain("a row of %llu to %llu", rows[i].low, rows[i].high);
	}
}

static _Noreturn void reader(uid_t uid, int flags)
{
	struct pinion_reading row;
	uint64_t least, most;
	struct notes notes;
	int fd, ret;

	if (setresuid(uid, uid, uid))
		_exit(1);
	fd = dev_open(flags);
	for (uint64_t n = 0; !atomic_load(&shared->stop); n++) {
		notes_take(&notes);
		ret = dev_reading(fd, &device, &row);
		notes_bounds(&notes, &least, &most);
		if (ret)
			complain("READ: %s", strerror(-ret));
		else if (row.low > row.high)
			complain("low %llu, high %llu", row.low, row.high);
		else if (row.marked)
			complain("%u honest sessions are marked", row.marked);
		else if (row.high > (uint64_t)row.sessions * MOST)
			complain("high %llu of %u sessions", row.high, row.sessions);
		else if (row.high < least)
			complain("high %llu where %llu were in flight throughout", row.high, (unsigned long long)least);
		else if (row.low > most)
			complain("low %llu where %llu may have been in flight", row.low, (unsigned long long)most);
		if (n % 16 == 0)
			read_list(fd);
		atomic_fetch_add(&shared->readings, 1);
		if (least > atomic_load(&shared->most))
			atomic_store(&shared->most, least);
	}
	_exit(0);
}

/* ---- a reading that stands still ----------------------------------------------------------------------------------- */

static struct pinion_reading still;

static void *read_still(void *data)
{
	int ret = dev_reading(*(int *)data, &device, &still);

	if (ret)
		complain("READ: %s", strerror(-ret));
	return NULL;
}

/* Whoever reads the device stops before that pass; 0: goes on. */
static void stop_before(uint64_t pass)
{
	parameter_set("stop_pass", pass);
	if (!eventually(file_number(PARAMETER "stopped_pass") == pass))
		wrong("no reading stops before pass %lu", pass);
}

/*
 * Units begin on one lane and end on another between the passes of a reading: the order of the passes, and nothing but it, gives
 * these figures. Nothing has ended before the first pass, seven have begun before the second and six have ended before the third.
 */
static void between_passes(void)
{
	int fd = dev_open(O_RDWR);
	struct pinion_counter_page *page = dev_counters(fd);
	struct pinion_attach lane[2];
	uint32_t parity = 0;
	pthread_t thread;

	if (page == MAP_FAILED || dev_attach(fd, &device, 10, &lane[0]) || dev_attach(fd, &device, 10, &lane[1]))
		wrong("two lanes: %s", strerror(errno));
	for (int i = 0; i < 3; i++)
		parity = page_begin(page, &lane[0]);
	parameter_set("stop_pass", 2);
	if (pthread_create(&thread, NULL, read_still, &fd))
		wrong("no thread");
	stop_before(2);
	for (int i = 0; i < 4; i++)
		page_begin(page, &lane[0]);
	for (int i = 0; i < 2; i++)
		page_end(fd, page, &lane[1], parity);
	stop_before(3);
	for (int i = 0; i < 2; i++)
		page_begin(page, &lane[0]);
	for (int i = 0; i < 4; i++)
		page_end(fd, page, &lane[1], parity);
	stop_before(0);
	pthread_join(thread, NULL);
	complaints();
	if (still.high != 7 || still.low != 1 || still.submitted != 7 || still.session_high != 7 || still.session_low != 1)
		wrong("%llu to %llu of %llu, not 1 to 7 of 7", still.low, still.high, still.submitted);
	if (still.marked)
		wrong("and it is marked");
	expect_in_flight(dev, &device, 3, "after it");
	munmap(page, PAGE);
	close(fd);
	point("reading", "completed, then submitted, then completed again");
}

/* ---- sixteen writers ----------------------------------------------------------------------------------------------- */

static pid_t writers[WRITERS];
static int lives;

static void writer_start(unsigned int i)
{
	struct note *note = &shared->note[i];

	note->beginning = note->begun = note->ending = note->ended = 0;
	lives++;
	writers[i] = fork();
	if (!writers[i])
		writer(i, lives);
}

static void writer_kill(unsigned int i)
{
	atomic_store(&shared->note[i].life, 0);
	end_process(writers[i]);
}

static bool all_paused(void)
{
	for (int i = 0; i < WRITERS; i++)
		if (!atomic_load(&shared->note[i].paused))
			return false;
	return true;
}

static uint64_t all_left(unsigned int from)
{
	uint64_t sum = 0;

	for (unsigned int i = from; i < WRITERS; i++)
		sum += atomic_load(&shared->note[i].left);
	return sum;
}

static uint64_t least_done(void)
{
	uint64_t least = ~0ULL;

	for (int i = 0; i < WRITERS; i++)
		least = atomic_load(&shared->note[i].done) < least ? atomic_load(&shared->note[i].done) : least;
	return least;
}

static void churn_until_paused(void)
{
	double over = mem_clock() + MOST_S, late = over + 10 * PATIENCE_S;
	unsigned int kills = 0;

	for (unsigned int i = 0; i < WRITERS; i++)
		writer_start(i);
	while (!all_paused() && !complaint->said) {
		unsigned int i = roll(WRITERS);

		mem_sleep(1000 + roll(30000));
		if (!atomic_load(&shared->note[i].paused)) {
			writer_kill(i);
			atomic_store(&shared->note[i].paused, 0);
			writer_start(i);
			kills++;
		}
		/* So many die in any case, whatever a unit takes. */
		atomic_store(&shared->enough, kills >= 2 * WRITERS);
		atomic_store(&shared->over, mem_clock() > over);
		if (mem_clock() > late) {
			wrong("the writers do not come to an end");
			break;
		}
	}
	/* Also where something is wrong. */
	atomic_store(&shared->over, 1);
	atomic_store(&shared->enough, 1);
	printf("# %d writers x %lu units, %u killed\n", WRITERS, least_done(), kills);
}

/* Everything stands still: figures are exact, also as one after another is killed. */
static void at_rest(void)
{
	struct pinion_reading before, row;
	uint64_t killed = 0;

	if (dev_reading(dev, &device, &before))
		wrong("READ");
	if (before.low != all_left(0) || before.high != before.low || before.cost != before.low)
		wrong("at rest %llu to %llu, cost %llu, not %llu", before.low, before.high, before.cost,
		      (unsigned long long)all_left(0));
	if (before.sessions != WRITERS)
		wrong("%u sessions", before.sessions);
	point("writers", "what is in flight at rest is exact");
	for (unsigned int i = 0; i < WRITERS / 2; i++) {
		writer_kill(i);
		killed += shared->note[i].left;
		expect_in_flight(dev, &device, all_left(i + 1), "after a kill");
	}
	dev_reading(dev, &device, &row);
	if (row.reclaimed - before.reclaimed != killed || row.sessions != WRITERS / 2)
		wrong("%llu reclaimed of %llu, %u sessions", row.reclaimed - before.reclaimed, (unsigned long long)killed,
		      row.sessions);
	point("writers", "and stays so as one after another is killed");
}

static void sixteen_writers(void)
{
	struct pinion_reading row;
	pid_t readers[2];
	int ret;

	for (int i = 0; i < 2; i++) {
		readers[i] = fork();
		if (!readers[i])
			reader(i ? NOBODY : 0, i ? O_RDONLY : O_RDWR);
	}
	churn_until_paused();
	atomic_store(&shared->stop, 1);
	for (int i = 0; i < 2; i++)
		if (mem_wait(readers[i]))
			wrong("a reader ended badly");
	complaints();
	printf("# %lu readings, %lu in flight throughout at most\n", shared->readings, shared->most);
	point("writers", "low is not above high, high not below the truth, nobody is marked");
	at_rest();
	atomic_store(&shared->go, 1);
	for (unsigned int i = WRITERS / 2; i < WRITERS; i++)
		if (mem_wait(writers[i]))
			wrong("a writer ended badly");
	ret = dev_reading(dev, &device, &row);
	if (ret || row.low || row.high || row.cost || row.sessions || row.marked)
		wrong("at the end %llu to %llu, cost %llu, %u sessions, %d", row.low, row.high, row.cost, row.sessions, ret);
	complaints();
	point("writers", "and nothing is in flight at the end");
}

int main(int argc, char **argv)
{
	struct pinion_info before;

	units = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000;
	complaint = shared_memory(PAGE);
	shared = shared_memory(sizeof(*shared));
	dice = (uint64_t)(mem_clock() * 1e9);
	printf("# dice 0x%lx\n", dice);
	dev = dev_open(O_RDWR);
	if (dev_info(dev, &before) || dev_add(dev, "counts-death", &device))
		wrong("no device");
	if (!point("start", "a device"))
		return tap_end();
	before.user_devices++;
	between_passes();
	sixteen_writers();
	use_again(dev, &before, "root");
	point("end", "nothing is left");
	return tap_end();
}
