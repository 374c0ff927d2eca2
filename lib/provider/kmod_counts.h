/* SPDX-License-Identifier: MIT */
/*
 * kmod counts: the module as a ground of counts. A context has an open of its own, whose counter page it maps: the session ends
 * with that mapping, and buffers that outlive the context keep no session alive. Devices, claims and waits are calls; so is a
 * total, where it is not read from the roster.
 *
 * The context keeps its slot of the counter file too, in which it counts nothing: the names it holds are tied to it.
 */
#ifndef PINION_LIB_KMOD_COUNTS_H
#define PINION_LIB_KMOD_COUNTS_H

#include <linux/pinion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "counter_file.h"

struct kmod_device;
struct kmod_windows;

/* One of this context's lanes. Any thread reads it; it is changed under the work room's lock. */
struct kmod_lane {
	uint64_t generation; /* of its device; 0: free */
	uint32_t handle;
	bool shared;
};

struct kmod_counts {
	struct kmod_device *device;
	const struct pinion_info_head *info; /* the info page, read-only */
	size_t info_bytes;
	uint32_t max_inflight; /* of a lane */
	__u64 moves;	       /* of this context's lanes: moves after each change, before the lane's first unit */
	struct kmod_lane lane[PINION_LANES];
	struct kmod_windows *windows; /* NULL: totals are calls */
};

/* Whether the module that @device is an open of counts at all. */
bool kmod_counts_exist(const struct kmod_device *device);

/* Has @c count on the module from now on. On failure it counts in the file as before. */
int kmod_counts_open(struct counts *c);
void kmod_counts_close(struct counts *c);

/* A call on the module: 0 or -errno, without a sentence. */
int kmod_call(const struct counts *c, unsigned long cmd, void *arg);

/* What the module's table says of a place. */
const struct pinion_info_device *kmod_line(const struct kmod_counts *k, uint32_t index);

/* The key of the device, for sentences: "?" when it is gone. */
struct kmod_key {
	char s[PINION_KEY_MAX + 1];
};
struct kmod_key kmod_key(const struct counts *c, const struct counts_device *dev);

/* -ESTALE with its sentence. */
int kmod_stale(const struct counts_device *dev);

/*
 * kmod_counts_read.c: counts_pending() of up to @n devices by one call. How many were read, from the first on, which was among
 * the module's when the roster was read; where it is gone by now the reading is done again, and 0 will do.
 */
size_t kmod_read_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending);
/* The same of all, whatever becomes of the roster. */
int kmod_pending(const struct counts *c, const struct counts_device *const *dev, size_t n, uint32_t *pending);
/* 0 or -errno, also of the row, without a sentence. */
int kmod_read(const struct counts *c, const struct counts_device *dev, struct pinion_reading *row);

/* Calls @fn for each row of a list (PINION_LIST_...), of @row_size bytes. 0 or -errno, without a sentence. */
int kmod_list(const struct counts *c, uint32_t kind, size_t row_size, void (*fn)(void *arg, const void *row), void *arg);

/* kmod_counts_roster.c: the roster as the module says, once: it may be untrue by the time that this returns. Under the roster's
 * lock. */
void kmod_roster_rebuild(const struct counts *c);
void kmod_windows_open(struct kmod_counts *k);
void kmod_windows_close(struct kmod_counts *k, bool is_maker);

/* The functions of counts_kmod, by file. */
int kmod_device_add(struct counts *c, const char *key, const struct pinion_device_opts *opts, bool has_queue,
		    struct counts_device *out);
int kmod_device_find(struct counts *c, const char *key, struct counts_device *out);
int kmod_device_at(struct counts *c, uint32_t i, struct counts_device *out, char key[PINION_KEY_MAX + 1]);
int kmod_device_next(struct counts *c, uint32_t *place, struct counts_device *out, char key[PINION_KEY_MAX + 1]);
int kmod_device_remove(struct counts *c, const struct counts_device *dev);
int kmod_device_of(struct counts *c, const struct counter_claim *claim, struct counts_device *out, char key[PINION_KEY_MAX + 1]);

int kmod_pending_mine(const struct counts *c, const struct counts_device *dev, uint32_t *pending);
int kmod_device_info(const struct counts *c, const struct counts_device *dev, struct pinion_device_info *info);
int kmod_device_users(const struct counts *c, const struct counts_device *dev, struct pinion_device_user *rows, size_t cap,
		      size_t *n);

int kmod_reserve(struct counts *c, const struct counts_device *dev, const struct counter_claim *want, uint64_t budget,
		 uint32_t capacity);
void kmod_claims(struct counts *c, const struct counts_device *dev, struct claims_sum *sum);
int kmod_claim_of(struct counts *c, int fd, struct counter_claim *claim);

int kmod_watch(struct counts *c, const struct counts_device *dev, bool mine, int *fd);
int kmod_watch_take(int fd, uint64_t *lost);
int kmod_flush(struct counts *c, const struct counts_device *dev, bool mine, int64_t deadline_ns, uint64_t *lost);

#endif
