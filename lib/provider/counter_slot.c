/* SPDX-License-Identifier: MIT */
/* counter slot: one context's place in the counter file, and the parked thread whose death the kernel marks there. */
#include "counter_file.h"

#include "../advice.h"
#include "../error.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void futex_wait(uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the owner thread ---------------------------------------------------------------------------------------------- */

/*
 * The kernel walks this list when the thread dies and marks the word it leads to. The list and its one node are private
 * to the process; only the word is shared. The C library's own list for this thread is replaced, so the thread must not
 * lock a robust pthread mutex: it locks nothing.
 */
static int robust_register(struct counter_robust *robust, uint32_t *word)
{
	robust->node.next = &robust->head.list;
	robust->head.list.next = &robust->node;
	robust->head.list_op_pending = NULL;
	robust->head.futex_offset = (char *)word - (char *)&robust->node;
	return syscall(SYS_set_robust_list, &robust->head, sizeof(robust->head));
}

/*
 * What a claimed slot's owner word holds until its owner thread runs: it reads as dead, and names the claim. So the file's
 * lock is not held while a thread starts, which takes long, and for ever in a process that is stopped meanwhile.
 */
static uint32_t promised_word(const struct counts *c)
{
	return PINION_OWNER_DIED | (c->slot_generation & PINION_OWNER_TID);
}

static void *owner_main(void *arg)
{
	struct counts *c = arg;
	uint32_t *word = &c->file->owner[c->slot], promise = promised_word(c);
	int32_t tid = syscall(SYS_gettid);

	prctl(PR_SET_NAME, "pinion-owner");
	if (robust_register(&c->robust, word))
		tid = -errno;
	else if (!__atomic_compare_exchange_n(word, &promise, tid, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		tid = -ESTALE;
	__atomic_store_n(&c->owner_tid, tid, __ATOMIC_RELEASE);
	futex_wake((uint32_t *)&c->owner_tid);
	while (!__atomic_load_n(&c->leave, __ATOMIC_ACQUIRE))
		futex_wait(&c->leave, 0);
	/* Emptied first: the word may be another's by the time the kernel walks the list, and thread ids repeat. */
	c->robust.head.list.next = &c->robust.head.list;
	if (tid > 0)
		__atomic_store_n(word, 0, __ATOMIC_RELEASE);
	return NULL;
}

static int owner_start(struct counts *c)
{
	sigset_t all, old;
	pthread_attr_t attr;
	int err;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 16384);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&c->owner, &attr, owner_main, c);
	/* The program's thread-local data is taken from the stack and may be more than this one has. */
	if (err == EINVAL)
		err = pthread_create(&c->owner, NULL, owner_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err)
		return fail_thread(err, "starting the thread that holds this context's counter slot");
	while (!__atomic_load_n(&c->owner_tid, __ATOMIC_ACQUIRE))
		futex_wait((uint32_t *)&c->owner_tid, 0);
	if (c->owner_tid > 0)
		return 0;
	__atomic_store_n(&c->leave, 1, __ATOMIC_RELEASE);
	futex_wake(&c->leave);
	pthread_join(c->owner, NULL);
	return c->owner_tid == -ESTALE ? -ESTALE : fail_errno(-c->owner_tid, "set_robust_list");
}

/* ---- claim and leave, under head.lock ------------------------------------------------------------------------------ */

/*
 * Takes every lane of @slot from its device: units that nobody will complete are reclaimed, words only grow. Between the
 * two stores of a lane and its device's figure a death loses the figure, never the count.
 */
static void clear_lanes(struct counts *c, uint32_t slot)
{
	struct counter_file *f = c->file;

	pinion_roster_bump(&f->head.seq);
	for (uint32_t d = 0; d < COUNTER_DEVICES; d++) {
		struct counter_device *dev = &f->device[d];
		uint64_t bit = UINT64_C(1) << (slot % 64), mask;
		uint64_t submitted = 0, completed = 0;

		if (!(dev->slots[slot / 64] & bit))
			continue;
		mask = f->lanes[d][slot] & COUNTER_LANE_MASK;
		__atomic_store_n(&f->lanes[d][slot], 0, __ATOMIC_RELEASE);
		__atomic_and_fetch(&dev->slots[slot / 64], ~bit, __ATOMIC_RELEASE);
		for (; mask; mask &= mask - 1) {
			struct pinion_lane *lane = &f->page[slot].lane[__builtin_ctzll(mask)];

			submitted += pinion_lane_submitted(lane, PINION_BOTH);
			completed += pinion_lane_completed(lane, PINION_BOTH);
		}
		if ((int64_t)(submitted - completed) > 0)
			__atomic_add_fetch(&dev->reclaimed, submitted - completed, __ATOMIC_RELAXED);
		__atomic_add_fetch(&dev->retired, submitted, __ATOMIC_RELAXED);
		counter_note_use(c, dev);
		counts_wake(dev);
	}
	/* A reading that found the lanes still there after the first bump must not add up half retired ones. */
	pinion_roster_bump(&f->head.seq);
	for (uint32_t l = 0; l < PINION_LANES; l++)
		pinion_lane_retire(&f->page[slot].lane[l]);
	pinion_roster_bump(&f->head.seq);
}

static void read_comm(char comm[16])
{
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, comm, 15);

	if (n < 0)
		n = 0;
	memset(comm + n, 0, 16 - n);
	comm[strcspn(comm, "\n")] = 0;
	if (fd >= 0)
		close(fd);
}

/* What is read elsewhere was read before the lock was taken. */
static void write_facts(struct counts *c, const char comm[16])
{
	struct counter_facts *facts = &c->file->facts[c->slot];
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	facts->pid = getpid();
	facts->uid = getuid();
	facts->shared = 0;
	facts->since_ns = now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
	memcpy(facts->comm, comm, sizeof(facts->comm));
	c->slot_generation = ++c->file->head.generation;
	__atomic_store_n(&facts->generation, c->slot_generation, __ATOMIC_RELEASE);
}

/*
 * A slot without a living owner. The owner word is marked when one thread of a killed process is gone; the others may run
 * a moment longer on other processors and still count. So a slot is taken over once its process is gone as a whole, or,
 * when no fresh slot is left, @gone or not.
 */
static bool find_dead(struct counts *c, bool gone)
{
	struct counter_file *f = c->file;

	for (uint32_t s = 0; s < f->head.slots_used && s < COUNTER_SLOTS; s++) {
		uint32_t word = __atomic_load_n(&f->owner[s], __ATOMIC_ACQUIRE);

		if (pinion_owner_alive(word))
			continue;
		/* A word of 0 was given up in order, by a process that may well be there. */
		if (gone && word && !(kill(f->facts[s].pid, 0) && errno == ESRCH))
			continue;
		c->slot = s;
		clear_lanes(c, s);
		return true;
	}
	return false;
}

/* Takes a dead slot over, or grows the used part by one. */
static int find_slot(struct counts *c)
{
	struct counter_file *f = c->file;
	uint32_t used = f->head.slots_used;
	int ret;

	if (find_dead(c, true))
		return 0;
	if (used >= COUNTER_SLOTS && find_dead(c, false))
		return 0;
	if (used >= COUNTER_SLOTS)
		return fail_advise(EAGAIN, PINION_ADVICE_CONTEXTS, NULL,
				   "all %u counter slots of this user are held by living contexts", COUNTER_SLOTS);
	ret = counter_room(c, &f->facts[used], sizeof(f->facts[used]));
	if (!ret)
		ret = counter_room(c, &f->page[used], sizeof(f->page[used]));
	if (ret)
		return ret;
	counter_mutex_init(&f->facts[used].flush_lock);
	c->slot = used;
	__atomic_store_n(&f->head.slots_used, used + 1, __ATOMIC_RELEASE);
	return 0;
}

/* Finds a slot and promises it to this context. */
static int reserve(struct counts *c)
{
	struct counter_file *f = c->file;
	char comm[16];
	int ret;

	read_comm(comm);
	ret = counter_lock(c);
	if (ret)
		return ret;
	ret = find_slot(c);
	if (!ret) {
		if (!counter_mutex_is_one(&f->facts[c->slot].flush_lock))
			counter_mutex_init(&f->facts[c->slot].flush_lock);
		memset(f->page[c->slot].control, 0, sizeof(f->page[c->slot].control));
		write_facts(c, comm);
		c->free_lanes = COUNTER_LANE_MASK;
		__atomic_store_n(&f->owner[c->slot], promised_word(c), __ATOMIC_RELEASE);
	}
	counter_unlock(c);
	return ret;
}

int counter_slot_claim(struct counts *c)
{
	int ret;

	do {
		uint32_t promise;

		ret = reserve(c);
		if (ret)
			return ret;
		c->owner_tid = 0;
		c->leave = 0;
		ret = owner_start(c);
		promise = promised_word(c);
		if (ret && ret != -ESTALE)
			__atomic_compare_exchange_n(&c->file->owner[c->slot], &promise, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
		/* Where no slot is fresh another claim may take over what was promised. */
	} while (ret == -ESTALE);
	return ret;
}

/* Where the lock is not to be had, who takes the slot over finds the lanes there and clears them, as after a death. */
void counter_slot_leave(struct counts *c)
{
	if (!counter_lock(c)) {
		clear_lanes(c, c->slot);
		counter_unlock(c);
	}
	__atomic_store_n(&c->leave, 1, __ATOMIC_RELEASE);
	futex_wake(&c->leave);
	pthread_join(c->owner, NULL);
}

bool counts_slot_alive(struct counts *c, uint32_t slot, uint64_t generation)
{
	const struct counter_file *f = c->file;

	if (slot >= COUNTER_SLOTS || slot >= __atomic_load_n(&f->head.slots_used, __ATOMIC_ACQUIRE))
		return false;
	return pinion_owner_alive(__atomic_load_n(&f->owner[slot], __ATOMIC_ACQUIRE)) &&
	       __atomic_load_n(&f->facts[slot].generation, __ATOMIC_ACQUIRE) == generation;
}
