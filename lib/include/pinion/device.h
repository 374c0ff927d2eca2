/* SPDX-License-Identifier: MIT */
/* device: one place work can run, known to all processes of the user by its key, and what is in flight on it. */
#ifndef PINION_DEVICE_H
#define PINION_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_context;
struct pinion_device;

#define PINION_KEY_MAX 63 /* characters of a key */

enum pinion_scope {
	PINION_SCOPE_MINE, /* this context */
	PINION_SCOPE_ALL,  /* every process of the user; on the module, of every user */
};

struct pinion_device_opts {
	size_t size;
	uint32_t capacity; /* units the device works on at once, 0: not known */
	uint64_t budget;   /* bytes, 0: not known */
};

struct pinion_device_info {
	size_t size;		/* set by the caller */
	char key[PINION_KEY_MAX + 1];
	uint64_t generation;	/* differs each time a key is added anew */
	uint32_t capacity;
	uint64_t budget;
	uint64_t pending_low;	/* units in flight: between low and high, equal when nothing moves */
	uint64_t pending_high;
	uint64_t pending_cost;	/* cost of those units, upper bound */
	uint64_t submitted;	/* units since the device was added, advisory */
	uint64_t reclaimed;	/* units whose owner died with them in flight, advisory */
	uint32_t sessions;	/* live contexts that count on it */
	uint32_t shared_lanes;	/* of them, those whose threads share a lane with atomic adds; on the module 1 if this one's do */
	uint32_t claims;	/* reservations that stand */
	uint32_t reserved_units;
	uint64_t reserved;	/* bytes claimed by them */
};

/* One live context that counts on a device. */
struct pinion_device_user {
	int32_t pid;	/* as that process sees itself; on the module as this one sees it, 0: not in its pid namespace */
	uint32_t uid;
	char comm[16];
	uint64_t since_ns; /* CLOCK_BOOTTIME when it opened */
	uint64_t pending;  /* its units in flight */
	uint64_t submitted;
};

/*
 * The device of that key, which every process of the user shares. Always there are "hostio", the asynchronous host engine;
 * "cpu", and "reference", which computes the same slowly and says what is right: both synchronous. *@out is borrowed until
 * pinion_close(). Errors: -ENOENT no such key: it was never added, was removed, or gave way to another (see pinion_device_add());
 * a backend's name: why there is no such device; -EOPNOTSUPP "metal", which is reserved; -ENOSPC the table is full; -ETIMEDOUT.
 *
 * -ETIMEDOUT, here and wherever it is named without more: another process has been stopped for 2 s in the few microseconds of a
 * change to the table, which cannot be got past; the sentence says which process it is, and how to let it go on.
 * -EPROTO in its place: there is no lock there, because something has written over the counter file.
 */
int pinion_device_find(struct pinion_context *ctx, const char *key, struct pinion_device **out);

/*
 * Adds a device, or finds the one that has the key (its values win). A key is 1 to 63 printable characters without
 * space and names the physical thing: a UUID, a PCI address, a service; never an ordinal. Borrowed until pinion_close().
 *
 * The table holds 64 devices. When it is full, a device is dropped for a new one, with its budget and capacity: of those on which
 * no living context counts and no claim stands, the one that nobody added, found, counted on or claimed for the longest time.
 * Handles to it answer -ESTALE; a handle alone does not keep it, a claim does, and so does a unit that a living context ever
 * began on it.
 *
 * Where counts are the kernel module's (pinion_context_info.counts), devices are of all users, and none is dropped: one lives as long
 * as a context that has added or found it is open, or a lane or a claim is on it. A user may have added 64.
 *
 * Errors: -EINVAL the key; -EOPNOTSUPP "metal", which is reserved; -ENOSPC the table holds as many
 * devices as it may, all in use; -ETIMEDOUT.
 */
int pinion_device_add(struct pinion_context *ctx, const char *key, const struct pinion_device_opts *opts, struct pinion_device **out);

/*
 * Removes the device; handles to it answer -ESTALE from now on. -EBUSY while another live context counts on it, or any claim
 * stands on it, the caller's own too: who else holds a descriptor of it cannot be known, and a device that is added anew could be
 * claimed a second time. -EPERM on the module, of a device that another user added; -ESTALE; -ETIMEDOUT.
 */
int pinion_device_remove(struct pinion_device *dev);

/*
 * The i-th device of the table, in no order that means anything; -ENOENT past the end; -ETIMEDOUT. Borrowed until pinion_close().
 * Who goes through all of them while one is removed may pass another one by. On the module who lists a device does not keep it.
 */
int pinion_device_at(struct pinion_context *ctx, size_t i, struct pinion_device **out);

/* The key it was added by, also when it was removed since; "" in a forked child. Borrowed until pinion_close(). */
const char *pinion_device_key(const struct pinion_device *dev);

/*
 * Units in flight: never below the truth at some instant of the call, exact when nothing moves; a killed process is out
 * as soon as it is dead. Loads alone, no system call, but where the module keeps counts that their owner's page does not show, or
 * other users count. Errors: -ENODATA a synchronous device, which has no queue; -ESTALE.
 */
int pinion_device_pending(struct pinion_device *dev, enum pinion_scope scope, uint32_t *n);

/*
 * The same for @n devices of one context in one reading, pending[i] for dev[i]: what a router asks. On an error, that of
 * the first device that has one, @pending is undefined.
 */
int pinion_devices_pending(struct pinion_device *const *dev, size_t n, enum pinion_scope scope, uint32_t *pending);

/* Everything known of the device, in one reading. */
int pinion_device_info(struct pinion_device *dev, struct pinion_device_info *info);

/* Up to @cap rows of live contexts; *@n is how many there are, which may be more than @cap. */
int pinion_device_users(struct pinion_device *dev, struct pinion_device_user *rows, size_t cap, size_t *n);

/*
 * Waits until every unit submitted before the call is done or its owner is dead; units submitted later do not prolong it.
 * Units may complete in any order. *@lost (may be NULL): units given up because their owner died: done is not dead.
 * Errors: -ETIMEDOUT; -ESTALE.
 */
int pinion_device_flush(struct pinion_device *dev, enum pinion_scope scope, int64_t deadline_ns, uint64_t *lost);

/*
 * Writes a line about the device (its key, its memory or budget, its queue) as they are now, cut to @size bytes with the
 * final 0, and returns its full length as snprintf() does. Of a device that is gone it says that. Safe from any thread.
 */
int pinion_device_describe(struct pinion_device *dev, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
