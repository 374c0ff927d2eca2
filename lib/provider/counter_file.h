/* SPDX-License-Identifier: MIT */
/*
 * counter file: the memfd ground's counters, one file per user in the runtime directory, mapped by every context.
 *
 * A context is a session and holds one slot: an owner word, a row of facts about it, and a counter page whose layout
 * and protocol are those of <linux/pinion_counters.h>. The owner word is a robust futex of a parked library thread: when
 * that thread is gone, by whatever death, the kernel has marked the word before anyone can reap the process, forked
 * children notwithstanding. Readers look at the word and skip a dead slot; no system call, no sweeper.
 *
 * Who writes what:
 *   head.lock (robust mutex)  slots and devices change hands: claim, takeover, leave, attach of a lane, add, remove
 *   head.seq                  bumped when a lane or a device changes hands (pinion_roster_bump()), under lock; before and
 *                             after it where a lane is taken from a device
 *   owner[slot]               a claim, under lock, where nobody lives; then the owner thread alone; the kernel when it dies
 *   page[slot].lane[]         one thread of the owner per lane (shared lanes: atomic adds)
 *   page[slot].control[]      the flusher that holds facts[slot].flush_lock
 *   device.wake               whoever ends a unit while a lane is armed
 * Readers take no lock: they read seq, walk, and read seq again.
 *
 * Any process of the user may write anything anywhere in it. What it says is followed only as far as the file goes, and
 * nothing is waited for longer than the caller said.
 *
 * Whatever part of the file is in use has its blocks allocated before it is touched, so a full file system is an error
 * of the call that needs the room, never a SIGBUS.
 */
#ifndef PINION_LIB_COUNTER_FILE_H
#define PINION_LIB_COUNTER_FILE_H

#include <linux/futex.h>
#include <linux/pinion_counters.h>
#include <pinion/device.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../process.h"
#include "../rundir.h"

#define COUNTER_NAME "counters.1" /* the layout's version, PINION_COUNTERS_VERSION */
#define COUNTER_MAGIC 0x31544e43494e4950ull /* "PINICNT1" */
#define COUNTER_SLOTS 1024u
#define COUNTER_DEVICES 64u
#define COUNTER_CLAIMS 1024u
#define COUNTER_LANE_MASK ((UINT64_C(1) << PINION_LANES) - 1)

struct counter_head {
	uint64_t magic; /* written last, when the rest is in place */
	uint64_t bytes; /* of the file, so that another build of this layout is told apart */
	char boot[40];	/* the kernel's boot id: after a reboot no word in the file means anything */
	pthread_mutex_t lock;
	uint64_t generation; /* the last one given to a device or a slot */
	uint32_t slots_used;  /* slots below this have their blocks */
	uint32_t claims_used; /* and claims */
	uint32_t turns;	      /* how often the lock was taken: who waits sees whether others get it */
	_Alignas(PINION_LINE_BYTES) __u64 seq;
	_Alignas(PINION_LINE_BYTES) uint64_t uses; /* the last number of a use of a device, under lock; readers look at the line above */
	char pad[4096 - 200];
};

struct counter_device {
	char key[PINION_KEY_MAX + 1];
	uint64_t generation; /* 0: no device */
	uint64_t budget;
	uint64_t reclaimed; /* units of slots that were taken over or left with units in flight */
	uint64_t retired;   /* submitted by sessions that are gone */
	uint32_t capacity;
	uint32_t wake;	    /* futex: flushers sleep here */
	uint32_t has_queue; /* 0: a synchronous device, nothing is ever counted on it */
	uint32_t claims;    /* moves when one is made on it, odd meanwhile; a claim that ends moves nothing here */
	uint64_t used;	    /* the number of its last use: added, found, counted on, claimed on; under lock */
	char pad[8];
	uint64_t slots[COUNTER_SLOTS / 64]; /* which slots have a lane for it */
};

struct counter_facts {
	pthread_mutex_t flush_lock; /* robust: one flusher at a time for this slot */
	uint64_t generation;	    /* differs for each owner */
	uint64_t since_ns;	    /* CLOCK_BOOTTIME */
	uint64_t shared;	    /* lanes that several threads share */
	int32_t pid;
	uint32_t uid;
	char comm[16];
	uint32_t on_module; /* it counts there, and holds the slot for its names alone */
	char pad[36];
};

/* A row of counter_claim.c: it stands while a description holds the lock of its first byte. */
struct counter_claim {
	uint64_t generation; /* of the device; 0: free */
	uint64_t bytes;
	uint32_t units;
	uint32_t exclusive;
	uint32_t device;
	int32_t pid; /* who made it; who holds it now may be another */
	char pad[32];
};

struct counter_file {
	struct counter_head head;
	struct counter_device device[COUNTER_DEVICES];
	uint32_t owner[COUNTER_SLOTS];
	struct counter_facts facts[COUNTER_SLOTS];
	struct counter_claim claim[COUNTER_CLAIMS];
	uint64_t lanes[COUNTER_DEVICES][COUNTER_SLOTS]; /* which lanes of the slot are the device's */
	struct pinion_counter_page page[COUNTER_SLOTS];
};

_Static_assert(sizeof(struct counter_head) == 4096, "the head is a page");
_Static_assert(sizeof(struct counter_device) == 256, "a device is four lines");
_Static_assert(sizeof(struct counter_claim) == 64, "a claim is a line");
_Static_assert(sizeof(struct counter_facts) == 128, "facts are two lines");
_Static_assert(sizeof(struct pinion_counter_page) == 4096, "a slot's counters are a page");

/* What the kernel walks when the owner thread dies: a list of one node, which leads to the owner word. */
struct counter_robust {
	struct robust_list_head head;
	struct robust_list node;
};

struct counter_roster;
struct counts_ops;
struct kmod_counts;

/* One context's view of the file, and of the module's counts where it stands on those (counts_ops.h). */
struct counts {
	struct counter_roster *roster;
	struct counter_file *file; /* MADV_DONTFORK: a child must not reach its parent's lanes */
	const struct counts_ops *ops;
	struct kmod_counts *kmod;	  /* NULL: what is counted is in the file */
	struct pinion_counter_page *page; /* this context's, on either ground */
	int fd;
	struct process_mark mark;
	uint32_t slot;
	uint64_t slot_generation;
	pthread_t owner;
	struct counter_robust robust;
	int32_t owner_tid;
	uint32_t leave;		/* futex: tells the owner thread to give the slot up */
	uint64_t free_lanes;	/* of this slot's page: taken under head.lock, given back at any time */
	uint32_t lanes_promised; /* of them, those kept back for shared lanes; the work room's, under its lock */
};

/* Opens or makes the file and claims a slot. The caller owns *@out. */
int counts_open(struct rundir *dir, struct counts **out);

/* Gives the slot up; what is still counted is reclaimed. In a forked child: frees the memory only. */
void counts_close(struct counts *c);

/* How many living contexts of the directory count on the other ground, where this one does not see them. */
uint32_t counts_apart(const struct counts *c);

/* The owner's slot and generation name a living context, in a record that outlives it. */
bool counts_slot_alive(struct counts *c, uint32_t slot, uint64_t generation);

/*
 * counter_file.c, for the others: head.lock. A dead holder's is made consistent; what it left is safe. A holder that is stopped
 * cannot be got past: -ETIMEDOUT, and the sentence says which process it is, when the same turn lasts for 2 s.
 */
int counter_lock(struct counts *c);
void counter_unlock(struct counts *c);

/* The other robust mutexes. -EPROTO without a sentence: what is there is no such mutex, something wrote over it. */
int counter_mutex_lock(pthread_mutex_t *lock, int64_t deadline_ns);
void counter_mutex_unlock(pthread_mutex_t *lock);
void counter_mutex_init(pthread_mutex_t *lock);
bool counter_mutex_is_one(const pthread_mutex_t *lock);
int counter_fail_damaged(const char *what);

int counter_room(struct counts *c, const void *from, size_t bytes);

/* The key at a place of the table, ended whatever stands there. */
struct counter_key {
	char s[PINION_KEY_MAX + 1];
};

static inline struct counter_key counter_key(const struct counter_device *entry)
{
	struct counter_key key;

	memcpy(key.s, entry->key, PINION_KEY_MAX);
	key.s[PINION_KEY_MAX] = 0;
	return key;
}

/* counter_slot.c */
int counter_slot_claim(struct counts *c);
void counter_slot_leave(struct counts *c);

/*
 * counter_device.c: a device by its place in the table and the generation it had there, and what it was given when it was
 * added, which never changes: who asks for that need not look where another device may be by now.
 */
struct counts_device {
	const __u64 *now; /* the generation of the device that is at the place now */
	uint64_t generation;
	struct counter_device *entry; /* NULL: the place is in the module's table */
	uint64_t budget;
	uint32_t capacity;
	uint16_t index;
	bool has_queue;
};

int counts_device_add(struct counts *c, const char *key, const struct pinion_device_opts *opts, bool has_queue,
		      struct counts_device *out);
int counts_device_find(struct counts *c, const char *key, struct counts_device *out);
/* What a key may be, on either ground. */
int counts_check_key(const char *key);
/* *@key: the key it has there. */
int counts_device_at(struct counts *c, uint32_t i, struct counts_device *out, char key[PINION_KEY_MAX + 1]);
/*
 * The first device from *@place on, which is then the place after it: nobody who was there all the time is passed by, whatever
 * is added and removed meanwhile. -ENOENT without a sentence: the end.
 */
int counts_device_next(struct counts *c, uint32_t *place, struct counts_device *out, char key[PINION_KEY_MAX + 1]);
int counts_device_remove(struct counts *c, const struct counts_device *dev);

/* Under head.lock: notes that somebody made use of the device just now. */
void counter_note_use(struct counts *c, struct counter_device *entry);

/* Binds a free lane of this slot to @dev; @shared is recorded for readers. -EAGAIN none is free; -ESTALE. */
int counts_lane_attach(struct counts *c, const struct counts_device *dev, bool shared, uint32_t *lane);
uint32_t counts_lanes_free(struct counts *c);

/* Gives lanes back whose device was removed and which no thread counts in any more. */
void counts_lanes_return(struct counts *c, uint64_t lanes);

static inline bool counts_device_current(const struct counts_device *dev)
{
	return __builtin_expect(__atomic_load_n(dev->now, __ATOMIC_RELAXED) == dev->generation, 1);
}

/*
 * For the functions that a selection goes through: put together, each on a line of its own. Where the linker happens to put them
 * made a fifth of the time they take.
 */
#define COUNTER_HOT __attribute__((hot, aligned(64)))

/* counter_read.c: loads alone. Of @n devices in one reading, all processes; of one, this context alone. */
int counts_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending);
int counts_pending_mine(const struct counts *c, const struct counts_device *dev, uint32_t *pending);
int counts_info(const struct counts *c, const struct counts_device *dev, struct pinion_device_info *info);
int counts_users(const struct counts *c, const struct counts_device *dev, struct pinion_device_user *rows, size_t cap,
		 size_t *n);

/* counter_claim.c: what stands on a device, and who holds the most of it. */
struct claims_sum {
	uint64_t bytes;
	uint64_t units;
	uint32_t count;
	uint32_t exclusive;
	uint64_t most;
	int32_t most_pid;
};

/* Makes @want stand if it fits beside the others: a descriptor, the caller's; -ENOSPC; -EBUSY; -EAGAIN; -ESTALE; -ETIMEDOUT. */
int counts_reserve(struct counts *c, const struct counts_device *dev, const struct counter_claim *want, uint64_t budget,
		   uint32_t capacity);

/*
 * Under head.lock: whether a claim stands on the device of that generation. Who holds it cannot be told: descriptors are passed
 * on and inherited, and the kernel does not say to whom.
 */
bool counts_is_claimed(const struct counts *c, uint64_t generation);

void counts_claims(struct counts *c, const struct counts_device *dev, struct claims_sum *sum);

/* Claimed bytes as they were seen last, all zero at first. Any thread may use it at any time. */
struct claims_kept {
	uint32_t none; /* the changes by which nothing was claimed, and 1: then nothing can be given up; 0: never seen so */
	uint32_t busy; /* a thread writes the others */
	uint64_t of;   /* what tells whether it is still true: the changes, and the moment; 0: never seen */
	uint64_t bytes;
};

/* What the questions of one call share about claims. */
struct claims_now {
	uint32_t given_up; /* by this process, so far */
	uint32_t moment;   /* 0: the clock was not read yet */
};

/* Claims that this process gave up. */
extern uint32_t counts_given_up __attribute__((visibility("hidden")));

static inline struct claims_now claims_now(void)
{
	return (struct claims_now){ .given_up = __atomic_load_n(&counts_given_up, __ATOMIC_ACQUIRE) };
}

/* What was made and what was given up both only grow, so that their sum differs when either does. */
static inline uint32_t claims_changes(const struct counts_device *dev, const struct claims_now *now)
{
	return __atomic_load_n(&dev->entry->claims, __ATOMIC_ACQUIRE) + now->given_up;
}

/* On the module: what its table says now. */
uint64_t kmod_counts_claimed(struct counts *c, const struct counts_device *dev);

/* The same as below when that takes more than a look at @kept. */
uint64_t counts_claimed_some(struct counts *c, const struct counts_device *dev, struct claims_kept *kept, struct claims_now *now);

/* There was no claim at the last look, and by the @changes there is no new one. */
static inline bool claims_none(const struct claims_kept *kept, uint32_t changes)
{
	return __builtin_expect(__atomic_load_n(&kept->none, __ATOMIC_ACQUIRE) == changes + 1, 1);
}

/* counts_claimed() where that does not hold, of a device that is in the file's table. */
static inline uint64_t counts_claimed_kept(struct counts *c, const struct counts_device *dev, struct claims_kept *kept,
					   struct claims_now *now, uint32_t changes)
{
	uint64_t of = __atomic_load_n(&kept->of, __ATOMIC_ACQUIRE);
	uint64_t bytes = __atomic_load_n(&kept->bytes, __ATOMIC_RELAXED);

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (now->moment && of == ((uint64_t)changes << 32 | now->moment) && __atomic_load_n(&kept->of, __ATOMIC_RELAXED) == of)
		return bytes;
	return counts_claimed_some(c, dev, kept, now);
}

/*
 * The bytes of counts_claims(). A claim that is made anywhere, or given up by this process, is seen at once; one that is given up
 * elsewhere, by death or else, within 20 ms. Without claims no clock is read, and with them once for all that share @now.
 */
static inline uint64_t counts_claimed(struct counts *c, const struct counts_device *dev, struct claims_kept *kept,
				      struct claims_now *now)
{
	uint32_t changes;

	if (__builtin_expect(!dev->entry, 0))
		return kmod_counts_claimed(c, dev);
	changes = claims_changes(dev, now);
	return claims_none(kept, changes) ? 0 : counts_claimed_kept(c, dev, kept, now, changes);
}

/* This process closes the descriptor of a claim. */
void counts_claim_close(int fd);
int counts_claim_of(struct counts *c, int fd, struct counter_claim *claim);

/* counter_flush.c */
int counts_flush(struct counts *c, const struct counts_device *dev, bool mine, int64_t deadline_ns, uint64_t *lost);
void counts_wake(struct counter_device *entry);

#endif
