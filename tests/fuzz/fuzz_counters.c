/* SPDX-License-Identifier: MIT */
/*
 * The counter file, any byte of which another process of the user may have written over: before it is opened, and between
 * any two calls of who has it open. A real one is written over and used in every way, with devices, a context that lives, one
 * that died with units in flight, and claims. No call crashes, waits longer than it was told to, or loses a descriptor.
 *
 * A lock that says it is held is not waited for (pthread_mutex_clocklock() is wrapped).
 */
#include "fuzz.h"

#include "provider/counter_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS_MAX 128
#define OPENS_MAX 4
#define EACH	  4   /* devices, tickets and reservations at once */
#define PAGES_MAX 256 /* of the file that have data */
#define BUDGET	  (UINT64_C(1) << 20)
#define PAGE	  4096

enum step {
	WRITE_OVER,
	OPEN,
	CLOSE,
	FIND,
	AT,
	ADD,
	REMOVE,
	BEGIN,
	END,
	FLUSH,
	PENDING,
	INFO,
	USERS,
	SIGNALS,
	RESERVE,
	ADOPT,
	CLAIM_INFO,
	GIVE_UP,
	ALIVE,
	STEPS
};

/* A part of the file that is made of many of a kind. */
static const struct {
	size_t at, one, n;
} area[] = {
#define AREA(member, n)                                                                                    \
	{                                                                                                  \
		offsetof(struct counter_file, member), sizeof(((struct counter_file *)0)->member) / (n), n \
	}
	AREA(head, 1),
	AREA(device, COUNTER_DEVICES),
	AREA(owner, COUNTER_SLOTS),
	AREA(facts, COUNTER_SLOTS),
	AREA(claim, COUNTER_CLAIMS),
	AREA(lanes, COUNTER_DEVICES *COUNTER_SLOTS),
	AREA(page, COUNTER_SLOTS),
};
#define AREAS (sizeof(area) / sizeof(area[0]))

/* What is written over: bytes of one of a kind. */
struct patch {
	uint8_t area;
	uint8_t bytes;
	uint16_t which;
	uint16_t offset;
};

static struct {
	char page[PAGES_MAX][PAGE];
	off_t at[PAGES_MAX];
	size_t n;
} fresh;

/* What an input has open. */
static struct {
	struct pinion_context *ctx;
	struct pinion_device *dev[EACH];
	struct pinion_ticket ticket[EACH];
	struct pinion_reservation *claim[EACH];
	unsigned int opens;
	int file;
} now;

static struct pinion_context *living;
static char path[4096];

int __wrap_pthread_mutex_clocklock(pthread_mutex_t *lock, clockid_t clock, const struct timespec *until);

int __wrap_pthread_mutex_clocklock(pthread_mutex_t *lock, clockid_t clock, const struct timespec *until)
{
	int err = pthread_mutex_trylock(lock);

	(void)clock;
	(void)until;
	return err == EBUSY ? ETIMEDOUT : err;
}

/* ---- the file ------------------------------------------------------------------------------------------------------- */

static void remember_file(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t at = 0;

	EXPECT(fd >= 0);
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		at -= at % PAGE;
		EXPECT(fresh.n < PAGES_MAX && pread(fd, fresh.page[fresh.n], PAGE, at) == PAGE);
		fresh.at[fresh.n++] = at;
		at += PAGE;
	}
	close(fd);
}

/* Another one under its name; those who have the last one open keep it. */
static void renew_file(void)
{
	unlink(path);
	now.file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	EXPECT(now.file >= 0 && !ftruncate(now.file, sizeof(struct counter_file)));
	for (size_t i = 0; i < fresh.n; i++)
		EXPECT(pwrite(now.file, fresh.page[i], PAGE, fresh.at[i]) == PAGE);
}

static void write_over(struct fuzz_input *in)
{
	struct patch patch;
	char data[256];
	size_t k, offset;

	fuzz_take(in, &patch, sizeof(patch));
	fuzz_take(in, data, patch.bytes);
	k = patch.area % AREAS;
	offset = patch.offset % area[k].one;
	if (patch.bytes > area[k].one - offset)
		patch.bytes = area[k].one - offset;
	EXPECT(pwrite(now.file, data, patch.bytes, area[k].at + patch.which % area[k].n * area[k].one + offset) == patch.bytes);
}

/* ---- calls ---------------------------------------------------------------------------------------------------------- */

static void open_context(void)
{
	if (!now.ctx && now.opens++ < OPENS_MAX && fuzz_said(pinion_open(NULL, &now.ctx)))
		now.ctx = NULL;
}

static void close_context(void)
{
	for (unsigned int i = 0; i < EACH; i++) {
		if (now.ticket[i].device)
			fuzz_said(pinion_work_end(&now.ticket[i]));
		pinion_reservation_free(now.claim[i]);
		now.claim[i] = NULL;
		now.dev[i] = NULL;
		now.ticket[i] = (struct pinion_ticket){ 0 };
	}
	pinion_close(now.ctx);
	now.ctx = NULL;
}

static void find(struct fuzz_input *in, enum step step, struct pinion_device **dev)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 4, .budget = BUDGET };
	struct pinion_device *found;
	char key[8] = { 0 };
	int ret;

	fuzz_take(in, key, 2);
	if (step == AT)
		ret = pinion_device_at(now.ctx, (unsigned char)*key, &found);
	else if (step == ADD)
		ret = pinion_device_add(now.ctx, key, &opts, &found);
	else
		ret = pinion_device_find(now.ctx, *key & 1 ? "one" : *key & 2 ? "cpu" : "two", &found);
	if (!fuzz_said(ret))
		*dev = found;
}

static void read_device(struct pinion_device *dev, enum step step)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	struct pinion_device_user row[8];
	char text[512];
	uint64_t bytes;
	uint32_t n;
	size_t users;

	if (step == INFO) {
		if (!fuzz_said(pinion_device_info(dev, &info)))
			EXPECT(strlen(info.key) <= PINION_KEY_MAX && info.pending_low <= info.pending_high);
		fuzz_said(pinion_device_describe(dev, text, sizeof(text)) < 0 ? -EINVAL : 0);
	} else if (step == USERS) {
		if (!fuzz_said(pinion_device_users(dev, row, 8, &users)))
			EXPECT(users <= COUNTER_SLOTS);
	} else if (step == PENDING) {
		fuzz_said(pinion_device_pending(dev, PINION_SCOPE_ALL, &n));
		fuzz_said(pinion_device_pending(dev, PINION_SCOPE_MINE, &n));
	} else {
		pinion_device_available(dev, &bytes);
		pinion_device_total(dev, &bytes);
		pinion_device_would_fit(dev, BUDGET);
		pinion_device_capacity(dev, &n);
	}
}

static void count(struct pinion_device *dev, enum step step, struct pinion_ticket *ticket)
{
	if (step == BEGIN)
		fuzz_said(pinion_work_begin(dev, 7, ticket));
	else if (ticket->device)
		fuzz_said(pinion_work_end(ticket));
}

static void adopt(struct fuzz_input *in, struct pinion_reservation **out)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct pinion_reservation *claim;
	uint32_t at;

	fuzz_take(in, &at, sizeof(at));
	EXPECT(fd >= 0 && lseek(fd, at, SEEK_SET) == at);
	if (!*out && !fuzz_said(pinion_reservation_adopt(now.ctx, fd, &claim)))
		*out = claim;
	close(fd);
}

static void claim(struct fuzz_input *in, enum step step, struct pinion_device *dev, struct pinion_reservation **held)
{
	struct pinion_reserve_opts opts = { .size = sizeof(opts) };
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_reservation *made, *again;
	struct pinion_device *of;
	uint8_t want[2];

	fuzz_take(in, want, sizeof(want));
	if (step == RESERVE && dev && !*held) {
		opts.bytes = (uint64_t)want[0] << 13;
		opts.units = want[1] & 7;
		opts.exclusive = want[1] >> 7;
		if (!fuzz_said(pinion_device_reserve(dev, &opts, &made)))
			*held = made;
	} else if (step == GIVE_UP) {
		pinion_reservation_free(*held);
		*held = NULL;
	} else if (step == CLAIM_INFO && *held) {
		if (!fuzz_said(pinion_reservation_info(*held, &info)))
			EXPECT(strlen(info.key) <= PINION_KEY_MAX);
		fuzz_said(pinion_reservation_device(*held, &of));
		if (!fuzz_said(pinion_reservation_adopt(now.ctx, pinion_reservation_fd(*held), &again)))
			pinion_reservation_free(again);
	}
}

static int ignore(void *arg, const struct pinion_name_info *info)
{
	(void)arg;
	(void)info;
	return 0;
}

/* One step of an input. */
static void take_step(struct fuzz_input *in)
{
	uint8_t what[2];
	enum step step;
	unsigned int k;

	fuzz_take(in, what, sizeof(what));
	step = what[0] % STEPS;
	k = what[1] % EACH;
	if (step == WRITE_OVER)
		write_over(in);
	else if (step == OPEN)
		open_context();
	else if (!now.ctx)
		return;
	else if (step == CLOSE)
		close_context();
	else if (step == FIND || step == AT || step == ADD)
		find(in, step, &now.dev[k]);
	else if (step == ADOPT)
		adopt(in, &now.claim[k]);
	else if (step == RESERVE || step == CLAIM_INFO || step == GIVE_UP)
		claim(in, step, now.dev[k], &now.claim[k]);
	else if (step == ALIVE)
		fuzz_said(pinion_name_list(now.ctx, ignore, NULL));
	else if (!now.dev[k])
		return;
	else if (step == BEGIN || step == END)
		count(now.dev[k], step, &now.ticket[k]);
	else if (step == FLUSH)
		fuzz_said(pinion_device_flush(now.dev[k], what[1] & 128 ? PINION_SCOPE_MINE : PINION_SCOPE_ALL,
					      what[1] & 64 ? 0 : pinion_deadline_in(0), NULL));
	else if (step == REMOVE)
		fuzz_said(pinion_device_remove(now.dev[k]));
	else
		read_device(now.dev[k], step);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	unsigned int were = fuzz_open_fds();

	now.opens = 0;
	renew_file();
	for (unsigned int i = 0; i < STEPS_MAX && in.size; i++)
		take_step(&in);
	if (now.ctx)
		close_context();
	close(now.file);
	EXPECT(fuzz_open_fds() == were);
	return 0;
}

/* ---- the ground and the seeds --------------------------------------------------------------------------------------- */

/* Devices, claims, and units in flight of one who lives and of one who died. */
static void make_file(void)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .capacity = 4, .budget = BUDGET };
	struct pinion_reserve_opts want = { .size = sizeof(want), .bytes = 4096 };
	static struct pinion_reservation *held;
	static struct pinion_ticket ticket[5];
	struct pinion_context *own;
	struct pinion_device *dev;
	pid_t pid;
	int status;

	EXPECT(!pinion_open(NULL, &living) && !pinion_device_add(living, "one", &opts, &dev));
	EXPECT(!pinion_device_reserve(dev, &want, &held));
	for (unsigned int i = 0; i < 3; i++)
		EXPECT(!pinion_work_begin(dev, 1, &ticket[i]));
	pid = fork();
	if (!pid) {
		EXPECT(!pinion_open(NULL, &own) && !pinion_device_find(own, "one", &dev));
		EXPECT(!pinion_work_begin(dev, 1, &ticket[3]) && !pinion_device_add(own, "two", NULL, &dev));
		EXPECT(!pinion_work_begin(dev, 1, &ticket[4]));
		_exit(0);
	}
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	remember_file();
	pinion_reservation_free(held);
}

static void take_down(void)
{
	pinion_close(living);
}

struct seed {
	uint8_t data[1024];
	size_t n;
};

static void put(struct seed *seed, const void *data, size_t bytes)
{
	memcpy(seed->data + seed->n, data, bytes);
	seed->n += bytes;
}

static void put_step(struct seed *seed, enum step step, uint8_t k)
{
	uint8_t what[2] = { step, k }, key[2] = { 1 }, want[2] = { 1, 1 };
	uint32_t at = offsetof(struct counter_file, claim);

	put(seed, what, sizeof(what));
	if (step == FIND || step == AT || step == ADD)
		put(seed, key, sizeof(key));
	else if (step == RESERVE || step == CLAIM_INFO || step == GIVE_UP)
		put(seed, want, sizeof(want));
	else if (step == ADOPT)
		put(seed, &at, sizeof(at));
}

static void put_patch(struct seed *seed, uint8_t k, char byte)
{
	struct patch patch = { .area = k, .bytes = 48 };
	char data[48];

	memset(data, byte, sizeof(data));
	put_step(seed, WRITE_OVER, 0);
	put(seed, &patch, sizeof(patch));
	put(seed, data, sizeof(data));
}

/* Every call once, with the file written over before, or when half of them were made. */
static void make_seeds(const char *dir)
{
	static const enum step steps[] = { OPEN,    FIND,  BEGIN, INFO,	   USERS,  PENDING, RESERVE, CLAIM_INFO,
					   SIGNALS, FLUSH, AT,	  ADOPT,   ALIVE,  ADD,	    INFO,    PENDING,
					   USERS,   FLUSH, END,	  GIVE_UP, REMOVE, CLOSE };
	char name[64];

	for (unsigned int k = 0; k <= 2 * AREAS; k++) {
		struct seed seed = { .n = 0 };

		if (k < AREAS)
			put_patch(&seed, k, (char)0x81);
		for (unsigned int i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
			if (i == 9 && k > AREAS)
				put_patch(&seed, k - AREAS - 1, (char)0x81);
			put_step(&seed, steps[i], i / 13);
		}
		snprintf(name, sizeof(name), "%u", k);
		fuzz_save(dir, name, seed.data, seed.n);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_place();
	snprintf(path, sizeof(path), "%s/%s", getenv("PINION_DIR"), COUNTER_NAME);
	make_file();
	atexit(take_down);
	if (*argc == 3 && !strcmp((*argv)[1], "--seeds")) {
		make_seeds((*argv)[2]);
		exit(0);
	}
	return 0;
}
