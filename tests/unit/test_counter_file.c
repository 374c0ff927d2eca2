/* SPDX-License-Identifier: MIT */
/* The counter file when another process of the user has written over it: calls end, and say what they found. */
#include "harness.h"

#include <errno.h>
#include <pinion/pinion.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Readings are compiled here once more, so that the sequence can move at each look at it. The library's other parts use them. */
static const void *restless;
#define PINION_COUNTERS_PRIMITIVES
#define pinion_load(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define pinion_load_acquire(p)                                                                    \
	({                                                                                        \
		if (restless && (const void *)(p) == restless)                                    \
			__atomic_add_fetch((uint64_t *)(uintptr_t)restless, 1, __ATOMIC_RELAXED); \
		__atomic_load_n(p, __ATOMIC_ACQUIRE);                                             \
	})
#define pinion_store(p, v)	   __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define pinion_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define pinion_fence()		   __atomic_thread_fence(__ATOMIC_SEQ_CST)
#include "../../lib/provider/counter_read.c"

#include "../context.h"
#include "work/account.h"

static struct pinion_context *ctx;
static struct pinion_device *dev;
static struct pinion_ticket ticket;
static struct counter_file *file;
static struct counter_device *entry;

static void setup(void)
{
	struct pinion_device_opts opts = { .size = sizeof(opts), .budget = 1 << 20, .capacity = 8 };
	char dir[4096];

	/* What one test wrote over is no other's. */
	snprintf(dir, sizeof(dir), "%s/%d", test_tmp(), getpid());
	ck_assert(!mkdir(dir, 0700) && !setenv("PINION_DIR", dir, 1));
	setenv("PINION_GROUND", "memfd", 1);
	ck_ok(pinion_open(NULL, &ctx));
	ck_ok(pinion_device_add(ctx, "damaged", &opts, &dev));
	ticket = (struct pinion_ticket){ 0 };
	ck_ok(pinion_work_begin(dev, 1, &ticket));
	file = ctx->counts->file;
	entry = dev->at.entry;
}

static void teardown(void)
{
	pinion_close(ctx);
}

static void ck_damaged(int ret)
{
	ck_assert_int_eq(ret, -EPROTO);
	ck_assert_int_eq(pinion_error_advice(), PINION_ADVICE_DIR_DAMAGED);
}

/* Kinds of mutex, and none: the C library ends the program over some, and some it never gets. */
static const int kind[] = { 0, 1, 2, 3, 16, 32, 64, 128, 128 + 16 + 1, 128 + 32, 128 + 32 + 16, 256, 512, 0x81818181, -1 };

/* ---- cut: what counters.md says of it, "Who may write the file" ----------------------------------------------------- */

/* A context on a file of its own, in @dir, which is then cut to @bytes. In a child, which is not to close it. */
static int count_in_a_file_that_is_cut(const char *dir, off_t bytes)
{
	struct pinion_ticket unit = { 0 };
	struct pinion_device *counted;
	struct pinion_context *own;
	char path[4096];

	signal(SIGBUS, SIG_DFL);
	snprintf(path, sizeof(path), "%s/%s", dir, COUNTER_NAME);
	if (setenv("PINION_DIR", dir, 1) || pinion_open(NULL, &own) || pinion_device_add(own, "cut", NULL, &counted))
		return 1;
	if (pinion_work_begin(counted, 1, &unit) || truncate(path, bytes))
		return 2;
	return pinion_work_end(&unit) ? 3 : 0;
}

static int open_what_was_cut(const char *dir, off_t bytes)
{
	struct pinion_context *own = NULL;
	char size[64];

	snprintf(size, sizeof(size), "has %lld bytes and was made with %zu", (long long)bytes, sizeof(struct counter_file));
	if (setenv("PINION_DIR", dir, 1))
		return 1;
	if (pinion_open(NULL, &own) != -EPROTO || own || pinion_error_advice() != PINION_ADVICE_DIR_DAMAGED)
		return 2;
	return strstr(pinion_error(), size) && strstr(pinion_error(), dir) ? 0 : 3;
}

static int open_what_was_emptied(const char *dir, off_t bytes)
{
	struct pinion_device *none;
	struct pinion_context *own;

	(void)bytes;
	if (setenv("PINION_DIR", dir, 1) || pinion_open(NULL, &own))
		return 1;
	return pinion_device_find(own, "cut", &none) == -ENOENT ? 0 : 2;
}

/* What became of a child that does @fn: its exit code, or minus the signal that ended it. */
static int in_child(int (*fn)(const char *dir, off_t bytes), const char *dir, off_t bytes)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid)
		_exit(fn(dir, bytes));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

START_TEST(a_file_that_is_cut_ends_who_counts_in_it_and_is_named_or_replaced)
{
	const off_t part = offsetof(struct counter_file, facts);
	char dir[4096];

	ck_assert_int_lt(snprintf(dir, sizeof(dir), "%s/cut-%d", test_tmp(), getpid()), (int)sizeof(dir));
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	ck_assert_int_eq(in_child(count_in_a_file_that_is_cut, dir, part), -SIGBUS);
	ck_assert_int_eq(in_child(open_what_was_cut, dir, part), 0);
	strcat(dir, "-to-nothing");
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	ck_assert_int_eq(in_child(count_in_a_file_that_is_cut, dir, 0), -SIGBUS);
	ck_assert_int_eq(in_child(open_what_was_emptied, dir, 0), 0);
}
END_TEST

START_TEST(a_lock_that_is_none_is_said)
{
	int *is = &file->head.lock.__data.__kind, was = *is;
	struct pinion_device *found;

	for (unsigned int i = 0; i < sizeof(kind) / sizeof(*kind); i++) {
		*is = kind[i];
		ck_damaged(pinion_device_find(ctx, "damaged", &found));
	}
	*is = was;
	ck_ok(pinion_device_find(ctx, "damaged", &found));
}
END_TEST

/* What the C library leaves in a lock whose holder died and whose finder did not mend it. */
START_TEST(a_lock_that_nobody_can_have_is_said)
{
	int *owner = &file->head.lock.__data.__owner, was = *owner;
	struct pinion_device *found;

	*owner = INT32_MAX - 1;
	ck_damaged(pinion_device_find(ctx, "damaged", &found));
	*owner = was;
}
END_TEST

START_TEST(a_lock_of_a_session_that_is_none_is_said_and_mended_by_the_next_one)
{
	struct pinion_context *other;
	struct pinion_device *theirs;
	struct pinion_ticket unit = { 0 };
	uint32_t slot;

	ck_ok(pinion_work_end(&ticket));
	ck_ok(pinion_open(NULL, &other));
	ck_ok(pinion_device_find(other, "damaged", &theirs));
	ck_ok(pinion_work_begin(theirs, 1, &unit));
	slot = other->counts->slot;
	for (unsigned int i = 0; i < sizeof(kind) / sizeof(*kind); i++) {
		file->facts[slot].flush_lock.__data.__kind = kind[i];
		ck_damaged(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL));
	}
	pinion_close(other);
	ck_ok(pinion_open(NULL, &other));
	ck_assert_uint_eq(other->counts->slot, slot);
	ck_ok(pinion_device_find(other, "damaged", &theirs));
	unit = (struct pinion_ticket){ 0 };
	ck_ok(pinion_work_begin(theirs, 1, &unit));
	ck_assert_int_eq(pinion_device_flush(dev, PINION_SCOPE_ALL, pinion_deadline_in(0), NULL), -ETIMEDOUT);
	ck_ok(pinion_work_end(&unit));
	ck_ok(pinion_device_flush(dev, PINION_SCOPE_ALL, 0, NULL));
	pinion_close(other);
}
END_TEST

START_TEST(a_key_without_an_end_has_one)
{
	struct pinion_reserve_opts want = { .size = sizeof(want), .bytes = 4096 };
	struct pinion_reservation_info info = { .size = sizeof(info) };
	struct pinion_reservation *claim, *more;
	char key[PINION_KEY_MAX + 2];

	memset(key, 'k', sizeof(key));
	key[PINION_KEY_MAX + 1] = 0;
	ck_ok(pinion_device_reserve(dev, &want, &claim));
	memset(entry->key, 'k', sizeof(entry->key));
	ck_ok(pinion_reservation_info(claim, &info));
	ck_assert_uint_eq(strlen(info.key), PINION_KEY_MAX);
	want.exclusive = true;
	ck_assert_int_eq(pinion_device_reserve(dev, &want, &more), -EBUSY);
	ck_assert(strstr(pinion_error(), key + 1) && !strstr(pinion_error(), key));
	ck_assert_int_eq(pinion_device_remove(dev), -EBUSY);
	ck_assert(strstr(pinion_error(), key + 1) && !strstr(pinion_error(), key));
	pinion_reservation_free(claim);
}
END_TEST

START_TEST(a_device_that_says_it_has_no_queue_is_read_all_the_same)
{
	uint32_t pending = 0;

	entry->has_queue = 0;
	pinion_roster_bump(&file->head.seq);
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending));
	ck_assert_uint_eq(pending, 1);
	/* One that is gone is said, not looked for. */
	entry->generation++;
	ck_assert_int_eq(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending), -ESTALE);
}
END_TEST

#define SESSIONS 40u

/* All that are there seem to live and to count in all of their lanes, more than one part of a reading has. */
static void fill_sessions(void)
{
	for (uint32_t s = 1; s < SESSIONS; s++) {
		file->owner[s] = 1;
		file->lanes[dev->at.index][s] = COUNTER_LANE_MASK;
		entry->slots[0] |= UINT64_C(1) << s;
	}
	file->head.slots_used = UINT32_MAX;
	pinion_roster_bump(&file->head.seq);
}

/* Figures each as large as can be. */
START_TEST(sums_that_are_too_large_are_sums)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	uint32_t pending;

	fill_sessions();
	for (uint32_t s = 1; s < SESSIONS; s++)
		for (uint32_t l = 0; l < PINION_LANES; l++) {
			file->page[s].lane[l].submitted[l & 1] = (struct pinion_count){ INT64_MAX, INT64_MAX };
			file->page[s].lane[l].completed[l & 1] = (struct pinion_count){ s % 3, INT64_MIN };
		}
	entry->has_queue = 0;
	pinion_roster_bump(&file->head.seq);
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending));
	ck_ok(pinion_device_info(dev, &info));
	ck_assert_uint_le(info.pending_low, info.pending_high);
}
END_TEST

/* The lane that @ctx has of a device. */
static struct pinion_lane *lane_of(const struct pinion_context *of, const struct pinion_device *d)
{
	uint32_t slot = of->counts->slot;

	return &file->page[slot].lane[__builtin_ctzll(file->lanes[d->at.index][slot])];
}

static void ck_pending(const uint32_t pending[ABREAST])
{
	static const uint32_t want[ABREAST] = { 2, 0, UINT32_MAX, 2 };

	for (unsigned int d = 0; d < ABREAST; d++)
		ck_assert_uint_eq(pending[d], want[d]);
}

/* Several devices with two lanes each are added up at once: by words, and by pairs of them where the processor can. */
START_TEST(of_devices_read_at_once_each_is_held_within_its_range)
{
	const struct pinion_lane *lane[ABREAST][2], *const *part[ABREAST];
	struct pinion_device_opts opts = { .size = sizeof(opts) };
	struct pinion_device *ours[ABREAST], *theirs;
	struct pinion_ticket unit[ABREAST][2] = { 0 };
	uint32_t pending[ABREAST];
	struct pinion_context *other;

	ck_ok(pinion_open(NULL, &other));
	for (unsigned int d = 0; d < ABREAST; d++) {
		const char *key = (const char *[]){ "one", "two", "three", "four" }[d];

		ck_ok(pinion_device_add(ctx, key, &opts, &ours[d]));
		ck_ok(pinion_device_find(other, key, &theirs));
		ck_ok(pinion_work_begin(ours[d], 1, &unit[d][0]));
		ck_ok(pinion_work_begin(theirs, 1, &unit[d][1]));
		lane[d][0] = lane_of(ctx, ours[d]);
		lane[d][1] = lane_of(other, theirs);
		part[d] = lane[d];
	}
	ck_ok(pinion_devices_pending(ours, ABREAST, PINION_SCOPE_ALL, pending));
	for (unsigned int d = 0; d < ABREAST; d++)
		ck_assert_uint_eq(pending[d], 2);
	lane_of(other, ours[1])->completed[1].ops += 3;
	lane_of(ctx, ours[2])->submitted[0].ops += UINT64_C(1) << 32;
	ck_ok(pinion_devices_pending(ours, ABREAST, PINION_SCOPE_ALL, pending));
	ck_pending(pending);
	parts_pending(part, 2, pending);
	ck_pending(pending);
	pinion_close(other);
}
END_TEST

START_TEST(a_roster_that_never_rests_is_not_waited_for)
{
	struct pinion_device_info info = { .size = sizeof(info) };
	struct pinion_device_user row[1];
	uint32_t pending = 0;
	size_t n = 0;

	restless = &file->head.seq;
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_ALL, &pending));
	ck_assert_uint_eq(pending, 1);
	ck_ok(pinion_device_pending(dev, PINION_SCOPE_MINE, &pending));
	ck_assert_uint_eq(pending, 1);
	ck_ok(pinion_device_info(dev, &info));
	ck_assert_uint_eq(info.pending_high, 1);
	ck_ok(pinion_device_users(dev, row, 1, &n));
	ck_assert_uint_eq(n, 1);
}
END_TEST

static Suite *counter_file_suite(void)
{
	Suite *s = suite_create("counter_file");
	TCase *tc = tcase_create("counter_file");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_file_that_is_cut_ends_who_counts_in_it_and_is_named_or_replaced);
	tcase_add_test(tc, a_lock_that_is_none_is_said);
	tcase_add_test(tc, a_lock_that_nobody_can_have_is_said);
	tcase_add_test(tc, a_lock_of_a_session_that_is_none_is_said_and_mended_by_the_next_one);
	tcase_add_test(tc, a_key_without_an_end_has_one);
	tcase_add_test(tc, a_device_that_says_it_has_no_queue_is_read_all_the_same);
	tcase_add_test(tc, sums_that_are_too_large_are_sums);
	tcase_add_test(tc, of_devices_read_at_once_each_is_held_within_its_range);
	tcase_add_test(tc, a_roster_that_never_rests_is_not_waited_for);
	suite_add_tcase(s, tc);
	return s;
}

PINION_TEST_MAIN(counter_file_suite)
